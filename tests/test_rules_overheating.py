"""A GPU close to the temperature at which it slows itself down."""

from __future__ import annotations

import pytest
from traces import Value, changes, final, told, trace

from detector.frame import Device
from rules.overheating import Overheating

RULES = {"overheating": Overheating()}

NO_LIMIT = {"temperature_slowdown_celsius": None}


def fever(degrees: float, since: float = 600.0, until: float = float("inf"), rest: float = 70.0) -> Value:
    """A temperature that is *degrees* from *since* until just before *until*, and *rest* else."""
    return lambda second: degrees if since <= second < until else rest


def margin_of(temperature: Value, slowdown: float) -> Value:
    """What the T.Limit sensor of a card says that slows down at *slowdown*, where its margin is 0."""
    assert callable(temperature)
    return lambda second: slowdown - temperature(second)  # type: ignore[operator]


@pytest.mark.parametrize("degrees", [60.0, 83.9])
def test_below_the_margin_all_is_well(degrees: float) -> None:
    """An A100 slows down at 89: up to 84 there is nothing to say."""
    assert [] == changes(RULES, trace(seconds=3600, temperature_celsius=degrees))


@pytest.mark.parametrize(("degrees", "severity"), [(84.0, "warning"), (88.9, "warning"), (89.0, "critical"), (95.0, "critical")])
def test_it_warns_near_the_cards_own_limit_and_is_critical_at_it(degrees: float, severity: str) -> None:
    """The card's slowdown temperature decides, five degrees early, after a minute of nothing but hot samples."""
    frames = trace(seconds=1200, temperature_celsius=fever(degrees))

    assert [f"670 fired overheating {severity}"] == told(changes(RULES, frames))


@pytest.mark.parametrize(("step", "fired"), [(1, 675), (10, 670), (60, 660)])
def test_the_sampling_rate_makes_little_difference(step: float, fired: float) -> None:
    """A minute is a minute at one sample a second, one in ten and one in sixty."""
    frames = trace(seconds=1200, step=step, temperature_celsius=fever(86.0))

    assert [f"{fired} fired overheating warning"] == told(changes(RULES, frames))


def test_it_becomes_critical_as_it_grows_hotter() -> None:
    """One incident that gets worse, not two."""
    frames = trace(seconds=1200, temperature_celsius=lambda s: 70 if s < 300 else 86 if s < 600 else 91)

    assert ["370 fired overheating warning", "610 updated overheating critical"] == told(changes(RULES, frames))


def test_it_resolves_two_minutes_after_it_cooled() -> None:
    """The limit, not the peak, is what it must fall below, and it must stay there."""
    frames = trace(seconds=1800, temperature_celsius=fever(86.0, until=1200, rest=83.0))

    assert ["670 fired overheating warning", "1320 resolved overheating warning"] == told(changes(RULES, frames))


@pytest.mark.parametrize("period", [20, 50])
def test_spikes_are_no_overheating(period: float) -> None:
    """A GPU that is hot for ten seconds now and then is cooled well enough."""
    assert [] == told(changes(RULES, trace(seconds=3600, step=5, temperature_celsius=lambda s: 92.0 if s % period < 10 else 80.0)))


def test_a_hot_spell_that_ended_before_a_minute_was_over_is_dropped() -> None:
    """It was seen, and was nothing."""
    frames = trace(seconds=1200, temperature_celsius=fever(92.0, until=640))

    assert ["610 opened overheating critical", "640 dropped overheating critical"] == told(changes(RULES, frames), pending=True)


def test_a_card_that_runs_hot_by_design_is_left_alone() -> None:
    """An RTX PRO 4000 SFF works at 85-88 degC and slows down at 97 (k8s-infrastructure#115)."""
    frames = trace(seconds=7200, temperature_slowdown_celsius=97.0, temperature_celsius=lambda s: 85.0 + s % 4)

    assert [] == changes(RULES, frames)


def test_a_laptop_at_93_degrees_that_slows_down_at_102_is_left_alone() -> None:
    """What is hot for a server is the working temperature of a laptop."""
    assert [] == changes(RULES, trace(seconds=3600, temperature_slowdown_celsius=102.0, temperature_celsius=93.0))


def test_a_card_that_names_no_limit_is_measured_by_a_static_one_and_that_is_said() -> None:
    """A warning at most: 90 degC is an assumption."""
    (incident,) = final(RULES, trace(seconds=1200, temperature_celsius=fever(99.0), **NO_LIMIT))

    assert ("warning", 90.0) == (incident.severity, incident.threshold)
    assert "GPU at 99 degC or more for 60 s; the card names no limit, 90 degC is assumed" == incident.summary


def test_below_the_static_limit_nothing_is_said() -> None:
    """85 degC fires daily on cards that are well (k8s-infrastructure#115)."""
    assert [] == changes(RULES, trace(seconds=3600, temperature_celsius=89.9, **NO_LIMIT))


@pytest.mark.parametrize(("degrees", "expected"), [(81.0, []), (84.0, ["warning"]), (89.5, ["critical"])])
def test_a_margin_stands_in_for_a_limit(degrees: float, expected: list[str]) -> None:
    """An H100 tells how many degrees are left, and that it slows down at -2."""
    temperature = fever(degrees)
    frames = trace(
        seconds=1200,
        temperature_celsius=temperature,
        temperature_margin_celsius=margin_of(temperature, 87.0),
        temperature_margin_slowdown_celsius=-2.0,
        **NO_LIMIT,
    )

    assert expected == [incident.severity for incident in final(RULES, frames)]


@pytest.mark.parametrize(
    ("temperature", "margin"),
    [
        (fever(41.0, rest=41.0), -5.0),  # gpud#1208: a sensor that reads nothing
        (fever(75.0, rest=75.0), 0.0),  # an H100 that has no margin reports 0
        (fever(86.0, rest=60.0), 0.0),  # and goes on to when it grows warm
        (fever(86.0, rest=60.0), -1.0),
    ],
)
def test_a_margin_that_is_no_sensor_is_not_believed(temperature: Value, margin: float) -> None:
    """No card slows down at 36 degC, and a margin that stands still while the temperature moves measures nothing."""
    frames = trace(seconds=7200, temperature_celsius=temperature, temperature_margin_celsius=margin, **NO_LIMIT)

    assert [] == changes(RULES, frames)


@pytest.mark.parametrize("nonsense", [0.0, 10.0])
def test_a_limit_that_no_card_has_is_not_believed(nonsense: float) -> None:
    """A slowdown temperature of 0 is a reader's way to say that there is none."""
    assert [] == changes(RULES, trace(seconds=1200, temperature_slowdown_celsius=nonsense, temperature_celsius=75.0))


def test_a_silent_sensor_tells_nothing() -> None:
    """Without a temperature there is neither heat nor its absence."""
    assert [] == changes(RULES, trace(seconds=1200, temperature_celsius=None, utilization_percent=99.0))


def test_a_sensor_that_falls_silent_resolves_nothing() -> None:
    """The incident stays as it was until the sensor says that it is over."""
    hot = trace(seconds=4800, temperature_celsius=lambda s: 70 if s < 600 else 92 if s < 900 else None if s < 3600 else 60)

    assert ["670 fired overheating critical", "3720 resolved overheating critical"] == told(changes(RULES, hot))


def test_one_hot_gpu_of_eight_is_named() -> None:
    """Its neighbours are not concerned."""
    frames = trace(seconds=1200, devices=8, each=lambda n: {"temperature_celsius": fever(92.0) if n == 3 else 70.0})
    (incident,) = final(RULES, frames)

    assert ["GPU-3"] == [device.uuid for device in incident.devices]


def test_the_instances_of_one_hot_board_are_one_incident() -> None:
    """Some readers give every MIG instance the temperature of its board."""
    parts = [Device("GPU-0", index=0), *(Device(f"MIG-{n}", parent="GPU-0") for n in range(3))]

    assert [4] == [len(incident.devices) for incident in final(RULES, trace(seconds=900, devices=parts, temperature_celsius=92.0))]


def test_the_incident_says_what_a_person_needs() -> None:
    """How hot, compared with what, for how long; the readings of the time before; what to do."""
    frames = trace(seconds=1200, temperature_celsius=fever(86.0), power_watts=380.0)
    (incident,) = final(RULES, frames)

    assert "GPU at 86 degC or more for 60 s; it slows itself down at 89 degC" == incident.summary
    assert (86.0, 84.0, "celsius") == (incident.value, incident.threshold, incident.unit)
    assert incident.action
    assert ["temperature_celsius", "power_watts"] == [series.metric for series in incident.evidence]
    assert (70.0, 86.0) == (incident.evidence[0].values[0], incident.evidence[0].values[-1])


def test_the_severity_of_an_operator_counts_until_the_card_slows_down() -> None:
    """Who wants notes instead of warnings still hears of a GPU at its limit."""
    rules = {"overheating": Overheating(severity="info")}

    assert ["info"] == [i.severity for i in final(rules, trace(seconds=900, temperature_celsius=86.0))]
    assert ["critical"] == [i.severity for i in final(rules, trace(seconds=900, temperature_celsius=92.0))]
