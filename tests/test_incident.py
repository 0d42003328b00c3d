"""The state machine: answers about one condition come in, the life of an incident comes out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.incident import CLEAR, Condition, Incident, Policy, Transition, advance, fingerprint, incident_id

ANSWERS = {"T": True, "F": False, "?": None}

PATIENT = Policy(hold=20, keep_firing=20, cool_down=100)
EAGER = Policy(hold=0, keep_firing=0, cool_down=100)
TWITCHY = Policy(hold=0, keep_firing=20, cool_down=100, flap_count=3, flap_window=400, flap_quiet=150)


def life(answers: str, policy: Policy, *, step: float = 10.0) -> tuple[Condition, list[str]]:
    """Where a condition stands after *answers* (True, False, ? for "cannot tell"), one each *step* seconds, and what happened when."""
    condition, happened = CLEAR, []
    for n, letter in enumerate(answers.replace(" ", "")):
        condition, transition = advance(condition, ANSWERS[letter], n * step, policy)
        if transition is not None:
            happened.append(f"{n * step:.0f} {transition}")
    return condition, happened


@pytest.mark.parametrize(
    ("answers", "policy", "happened"),
    [
        # -- hold
        ("FFF", PATIENT, []),
        ("T", EAGER, ["0 fired"]),
        ("TT", PATIENT, ["0 opened"]),
        ("TTT", PATIENT, ["0 opened", "20 fired"]),
        ("TTTTTT", PATIENT, ["0 opened", "20 fired"]),
        ("TTF", PATIENT, ["0 opened", "20 dropped"]),
        ("TF TTT", PATIENT, ["0 opened", "10 dropped", "20 opened", "40 fired"]),
        # -- keep firing
        ("TTT FF", PATIENT, ["0 opened", "20 fired"]),
        ("TTT FFF", PATIENT, ["0 opened", "20 fired", "50 resolved"]),
        ("TTT FFTFFT", PATIENT, ["0 opened", "20 fired"]),
        ("TTT FFTFFF", PATIENT, ["0 opened", "20 fired", "80 resolved"]),
        ("TF", EAGER, ["0 fired", "10 resolved"]),
        # -- cannot tell
        ("????", EAGER, []),
        ("T?????T", PATIENT, ["0 opened"]),
        ("T?????TT", PATIENT, ["0 opened", "70 fired"]),
        ("T??F", PATIENT, ["0 opened", "30 dropped"]),
        ("TTT ?????????", PATIENT, ["0 opened", "20 fired"]),
        ("TTT F?????F", PATIENT, ["0 opened", "20 fired"]),
        ("TTT F?????FF", PATIENT, ["0 opened", "20 fired", "100 resolved"]),
        ("TTT F??????T", PATIENT, ["0 opened", "20 fired"]),
        # -- cool-down
        ("TTT FFF TTT", PATIENT, ["0 opened", "20 fired", "50 resolved", "80 reopened"]),
        ("TTT FFF TTF", PATIENT, ["0 opened", "20 fired", "50 resolved"]),
        ("TTT FFF TFFFTF", PATIENT, ["0 opened", "20 fired", "50 resolved"]),
        ("TTT FFF TTT FFF", PATIENT, ["0 opened", "20 fired", "50 resolved", "80 reopened", "110 resolved"]),
        ("TTT FFF FFFFFFFFF TTT", PATIENT, ["0 opened", "20 fired", "50 resolved", "170 reopened"]),  # returned in time, held after it
        ("TTT FFF FFFFFFFFFF TTT", PATIENT, ["0 opened", "20 fired", "50 resolved", "160 opened", "180 fired"]),
        ("TTT FFF FFFFFFFFFF TF", PATIENT, ["0 opened", "20 fired", "50 resolved", "160 opened", "170 dropped"]),
        ("TF FFFFFFFFFF T", EAGER, ["0 fired", "10 resolved", "120 fired"]),
        ("TF FFFFFFFFF T", EAGER, ["0 fired", "10 resolved", "110 reopened"]),
    ],
)
def test_life(answers: str, policy: Policy, happened: list[str]) -> None:
    """What happens to a condition given its answers."""
    assert happened == life(answers, policy)[1]


def test_a_condition_that_keeps_returning_is_flapping_from_its_third_return() -> None:
    """Returns are counted, whether they came before the resolution or after it."""
    assert not life("T FT FT", TWITCHY)[0].flapping
    assert life("T FT FT FT", TWITCHY)[0].flapping
    assert life("T FFFT FFFT FFFT", TWITCHY)[0].flapping


def test_a_flapping_incident_stays_open_until_it_has_been_quiet() -> None:
    """It no longer resolves after `keep_firing`: that would be the next flap."""
    restless = "T FT FT FT" + "FFFF T" * 3

    assert ["0 fired"] == life(restless + "F" * 15, TWITCHY)[1]
    assert ["0 fired", f"{10 * (len(restless.replace(' ', '')) + 15)} resolved"] == life(restless + "F" * 16, TWITCHY)[1]


def test_flapping_ends_when_it_has_held_steady_for_the_whole_window() -> None:
    """Steady is steady, firing or not."""
    restless = "T FT FT FT"

    assert life(restless + "T" * 40, TWITCHY)[0].flapping
    assert not life(restless + "T" * 41, TWITCHY)[0].flapping
    assert not life(restless + "F" * 41, TWITCHY)[0].flapping


def test_old_returns_are_not_flapping() -> None:
    """Three returns, but not within the window."""
    assert not life("T FT" + "T" * 30 + "FT" + "T" * 30 + "FT", TWITCHY)[0].flapping


# -- properties ---------------------------------------------------------------------------------------------------------------

POLICIES = st.builds(
    Policy,
    hold=st.sampled_from([0.0, 10.0, 25.0]),
    keep_firing=st.sampled_from([0.0, 10.0, 25.0]),
    cool_down=st.sampled_from([0.0, 30.0, 100.0]),
    flap_count=st.integers(2, 4),
    flap_window=st.sampled_from([50.0, 300.0]),
    flap_quiet=st.sampled_from([20.0, 60.0]),
)
STEPS = st.lists(st.tuples(st.sampled_from([True, False, None]), st.integers(1, 30)), max_size=60)

FOLLOWS: dict[Transition | None, set[Transition]] = {
    None: {"opened", "fired"},
    "opened": {"fired", "dropped"},
    "dropped": {"opened", "fired"},
    "fired": {"resolved"},
    "reopened": {"resolved"},
    "resolved": {"reopened", "opened", "fired"},
}


def transitions(steps: list[tuple[bool | None, int]], policy: Policy) -> list[tuple[float, Transition]]:
    condition, clock, happened = CLEAR, 0.0, []
    for answer, seconds in steps:
        clock += seconds
        condition, transition = advance(condition, answer, clock, policy)
        if transition is not None:
            happened.append((clock, transition))
    return happened


@given(STEPS, POLICIES)
def test_a_life_is_in_order(steps: list[tuple[bool | None, int]], policy: Policy) -> None:
    """Never resolved without having fired, never fired twice without a resolution between, never opened while open."""
    happened = [transition for _, transition in transitions(steps, policy)]

    for before, after in pairwise([None, *happened]):
        assert after in FOLLOWS[before]


@given(STEPS, POLICIES)
def test_nothing_happens_while_nobody_can_tell(steps: list[tuple[bool | None, int]], policy: Policy) -> None:
    """Not one transition carries the moment of a None."""
    clock, blind = 0, set()
    for answer, seconds in steps:
        clock += seconds
        if answer is None:
            blind.add(float(clock))

    assert not blind & {at for at, _ in transitions(steps, policy)}


@given(STEPS, POLICIES, st.data())
def test_time_does_not_count_while_nobody_can_tell(steps: list[tuple[bool | None, int]], policy: Policy, data: st.DataObject) -> None:
    """Without cool-down and flapping, a blind stretch anywhere moves what follows and changes nothing else."""
    policy = replace(policy, cool_down=-1.0, flap_count=1_000)
    cut = data.draw(st.integers(0, len(steps)))
    blind = data.draw(st.lists(st.integers(1, 100), max_size=3))
    before = sum(seconds for _, seconds in steps[:cut])
    stretched = [*steps[:cut], *((None, seconds) for seconds in blind), *steps[cut:]]

    expected = [(at if at <= before else at + sum(blind), transition) for at, transition in transitions(steps, policy)]

    assert expected == transitions(stretched, policy)


@given(STEPS, POLICIES)
def test_it_fires_exactly_when_the_condition_was_told_to_hold_long_enough(steps: list[tuple[bool | None, int]], policy: Policy) -> None:
    """Against plain bookkeeping: `hold` and `keep_firing` add up the seconds that ended in an answer, since the last opposite one."""
    policy = replace(policy, cool_down=-1.0, flap_count=1_000)
    clock, firing, run, since = 0, False, 0, False
    expected = []
    for answer, seconds in steps:
        clock += seconds
        if answer is None:
            continue
        if answer == firing:
            run, since = 0, False
            continue
        run, since = (run + seconds, True) if since else (0, True)
        if run >= (policy.keep_firing if firing else policy.hold):
            expected.append((clock, "resolved" if firing else "fired"))
            firing, run, since = not firing, 0, False

    happened = [(at, transition) for at, transition in transitions(steps, policy) if transition in ("fired", "resolved")]

    assert expected == happened


@given(STEPS, POLICIES)
def test_a_condition_does_not_grow(steps: list[tuple[bool | None, int]], policy: Policy) -> None:
    """However long it flaps, few returns are remembered."""
    condition, clock = CLEAR, 0.0
    for answer, seconds in steps * 3:
        clock += seconds
        condition, _ = advance(condition, answer, clock, policy)

    assert len(condition.returns) <= 16


# -- identity -----------------------------------------------------------------------------------------------------------------


def test_a_fingerprint_tells_rule_host_and_subject_apart() -> None:
    """Also where their texts run together to the same."""
    things = [("xid", "a", "GPU-0"), ("xid", "aGPU-", "0"), ("xida", "", "GPU-0"), ("xid", "b", "GPU-0"), ("xid", "a", "GPU-1")]

    assert len(things) == len({fingerprint(*thing) for thing in things})
    assert fingerprint("xid", "a", "GPU-0") == fingerprint("xid", "a", "GPU-0")


def test_an_episode_is_named_by_its_thing_and_its_beginning() -> None:
    """The same recording gives the same ids, on any machine: the value is a promise to whoever stored one."""
    mark = fingerprint("overheating", "node-a", "GPU-0")

    assert "04c540f7-3309-5b80-8094-7061759fb43a" == incident_id(mark, 1_700_000_000.0)
    assert incident_id(mark, 1_700_000_000.0) != incident_id(mark, 1_700_000_000.5)


def test_an_incident_is_open_until_it_is_resolved() -> None:
    """Pending is open, too."""
    incident = Incident("id", "mark", "xid", "warning", "pending", "node-a", started_at=0.0, last_seen_at=0.0)

    assert [True, True, False] == [replace(incident, state=state).open for state in ("pending", "firing", "resolved")]
