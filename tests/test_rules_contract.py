"""What holds for every rule that is found, so that a new one gets these tests for free."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from traces import BOARD, GIB, START, changes, engine_of, final, trace

from detector.discover import discover
from detector.durations import seconds
from detector.frame import Device, Frame, Job, Process, pack
from detector.incident import Incident
from detector.metrics import METRICS
from detector.rule import AnyRule, EventRule, Rule, Verdict, name_of, parameters
from detector.window import Window

FOUND = discover()
RULES: Mapping[str, AnyRule] = {name: kind() for name, kind in FOUND.rules.items()}
OVER_TIME: Mapping[str, Rule] = {name: rule for name, rule in RULES.items() if isinstance(rule, Rule)}
PAGES = Path(__file__).parents[1] / "docs" / "rules"

each_rule = pytest.mark.parametrize("name", sorted(RULES))
each_rule_over_time = pytest.mark.parametrize("name", sorted(OVER_TIME))


class Promise(NamedTuple):
    severity: str
    patience: float
    """Seconds that the condition must have lasted, at least, before it fires."""


PROMISES = {
    "idle_gpu": Promise("warning", 1200),
    "memory_leak": Promise("warning", 1200),
    "overheating": Promise("warning", 60),
    "memory_overheating": Promise("warning", 60),
    "stuck_training": Promise("warning", 300),
    "rising_double_bit_ecc": Promise("critical", 0),
    "row_remap_failure": Promise("critical", 0),
    "gpu_lost": Promise("critical", 0),
    "recovery_required": Promise("critical", 0),
    "driver_fault": Promise("critical", 30),
    "telemetry_blind": Promise("critical", 15),
    "telemetry_frozen": Promise("warning", 600),
    "thermal_throttling": Promise("warning", 60),
    "power_brake": Promise("critical", 30),
    "clock_stuck_low": Promise("warning", 300),
    "corrected_ecc_rate": Promise("warning", 300),
    "fan_failure": Promise("critical", 60),
    "row_remap_pending": Promise("warning", 0),
    "pages_retired": Promise("warning", 0),
    "pcie_degraded": Promise("warning", 30),
    "orphan_memory": Promise("warning", 300),
    "zombie_process": Promise("warning", 60),
    "straggler": Promise("warning", 600),
    "training_diverged": Promise("warning", 0),
    "power_capped": Promise("info", 0),
    "configuration_drift": Promise("info", 0),
    "memory_pressure": Promise("info", 300),
}
"""What an operator is told to expect of a rule that he has not touched."""


# -- the file ---------------------------------------------------------------------------------------------------------------------


def test_every_rule_can_be_loaded() -> None:
    """A file in the folder that is no rule would be a rule that nobody misses."""
    assert {} == FOUND.problems


@each_rule
def test_a_rule_is_called_after_its_file_and_says_what_it_is_about(name: str) -> None:
    """File, class and rule have one name; both file and class say in a sentence what they mean."""
    kind = type(RULES[name])

    assert (name, "".join(word.capitalize() for word in name.split("_"))) == (name_of(kind), kind.__name__)
    for text in (inspect.getmodule(kind).__doc__, vars(kind).get("__doc__")):  # type: ignore[union-attr]
        assert text
        assert text.strip().endswith(".")


@each_rule
def test_a_number_of_a_rule_is_a_number(name: str) -> None:
    """Durations, thresholds and shares are finite and not negative, as long as nobody has set them."""
    numbers = {field: value for field in parameters(type(RULES[name])) if isinstance(value := getattr(RULES[name], field), float)}

    assert {} == {field: value for field, value in numbers.items() if not 0.0 <= value < math.inf}


@pytest.mark.parametrize("name", sorted(PROMISES.keys() & OVER_TIME.keys()))
def test_defaults_are_what_an_operator_was_told(name: str) -> None:
    """A rule is as severe as promised, and not sooner than promised: its hold comes on top of what its look-back shows."""
    rule = OVER_TIME[name]

    assert PROMISES[name].severity == rule.severity
    assert PROMISES[name].patience <= rule.hold + getattr(rule, "lookback", 0.0)


@each_rule_over_time
def test_metrics_are_declared_for_a_use(name: str) -> None:
    """A history costs memory on every device: whatever is declared is also asked for, or shown."""
    source = inspect.getsource(inspect.getmodule(type(OVER_TIME[name])))  # type: ignore[arg-type]
    kind = type(OVER_TIME[name])
    # Where the tuple is looped over, or is made from what the rule looks at, nothing can be declared in vain.
    derived = "self.uses" in source or "self.needs" in source or re.search(r"uses: ClassVar = [^(]", source)

    assert [] == [metric for metric in (*kind.needs, *kind.uses) if source.count(f'"{metric}"') < 2 and not derived]


# -- a rule and its window -----------------------------------------------------------------------------------------------------------


class Look(NamedTuple):
    window: Window
    verdict: Verdict


class Asked:
    """A window that remembers of which metrics the history was asked."""

    HISTORY = frozenset({"min", "max", "mean", "increase", "count", "present", "slope", "values", "filled"})

    def __init__(self, window: Window, history: set[str]) -> None:
        self._window, self._history = window, history

    def __len__(self) -> int:
        return len(self._window)

    def of(self, places: Any) -> Asked:
        return Asked(self._window.of(places), self._history)

    def of_devices(self, ask: Callable[[Any], Any]) -> Any:
        return self._window.of_devices(lambda devices: ask(Asked(devices, self._history)))

    def __getattr__(self, what: str) -> Any:
        answer = getattr(self._window, what)
        if what not in self.HISTORY:
            return answer

        def remembered(metric: str, *more: Any, **options: Any) -> Any:
            self._history.add(metric)
            return answer(metric, *more, **options)

        return remembered


def watched(rule: Rule) -> tuple[Rule, list[Look], set[str]]:
    """The rule, with every look that it takes and every metric whose history it asks for."""
    looks: list[Look] = []
    history: set[str] = set()

    class Watched(type(rule)):  # type: ignore[misc]
        def check(self, window: Window) -> Verdict:
            verdict: Verdict = super().check(Asked(window, history))
            looks.append(Look(window, verdict))
            return verdict

    return Watched(**{name: getattr(rule, name) for name in parameters(type(rule))}), looks, history


STATES: Mapping[str, Sequence[float]] = {
    "utilization_percent": (0.0, 1.0, 40.0, 97.0, 100.0),
    "memory_utilization_percent": (0.0, 1.0, 40.0),
    "power_watts": (30.0, 75.0, 180.0, 390.0),
    "memory_used_bytes": (0.0, 9e6, 2 * GIB, 60 * GIB),
    "temperature_celsius": (35.0, 80.0, 86.0, 91.0),
    "memory_temperature_celsius": (35.0, 80.0, 94.0, 99.0),
    "memory_temperature_max_celsius": (95.0,),
    "temperature_margin_celsius": (-3.0, 0.0, 3.0, 40.0),
    "fan_speed_percent": (0.0, 60.0),
    "fan_speed_rpm": (0.0, 3000.0),
    "sm_clock_mhz": (210.0, 600.0, 1400.0),
    "performance_state": (0.0, 8.0),
    "clock_event_reasons": (0.0, 1.0, 4.0, 0x20, 0x48, 0x88),
    "recovery_action": (0.0, 1.0),
    "power_default_limit_watts": (400.0, 700.0),
    "pcie_link_width": (8.0, 16.0),
    "pcie_link_width_max": (16.0,),
    "pcie_link_generation": (1.0, 4.0),
    "pcie_link_generation_max": (4.0,),
    "nvlink_links_active": (0.0, 10.0, 12.0),
    "nvlink_links_total": (12.0,),
}
"""Readings that mean something to one rule or another; of the other metrics 0 or 1, and of counters steps."""

KNOWN = [metric for metric in METRICS.values() if metric.entity == "device" and metric.name not in BOARD and not metric.bit]
READABLE = [metric for metric in KNOWN if metric.nvml or metric.smi or metric.dcgm]


def readings(random: np.random.Generator) -> Callable[[int], dict[str, float]]:
    """A GPU that does anything whatever: states that last for minutes to hours, counters that rise now and then, gaps."""
    lasts = {metric.name: int(random.choice([6, 30, 90])) for metric in READABLE}
    rate = {metric.name: float(random.choice([0.0, 0.0, 0.01, 1.0, 60.0])) for metric in READABLE}
    gone = float(random.choice([0.0, 0.0, 0.2]))
    never = {metric.name for metric in READABLE if random.random() < 0.2}
    chosen = {metric.name: random.integers(0, 1_000_000, 64) for metric in READABLE}

    def at(look: int) -> dict[str, float]:
        now = {}
        for metric in READABLE:
            if metric.name in never or random.random() < gone:
                continue
            draw = int(chosen[metric.name][look // lasts[metric.name] % 64])
            choices = STATES.get(metric.name, (0.0, 1.0))
            now[metric.name] = float(int(look * rate[metric.name])) if metric.kind == "counter" else choices[draw % len(choices)]
        return {**{name: float(value) for name, value in BOARD.items() if isinstance(value, float)}, **now}

    return at


def crowd(random: np.random.Generator) -> Callable[[int], tuple[Process, ...] | None]:
    """Processes that come, grow and go; None: not visible."""
    visible, job = random.random() < 0.8, str(random.choice(["llm", ""])) or None
    growth, count = float(random.choice([0.0, 30e6])), int(random.integers(0, 3))

    def at(look: int) -> tuple[Process, ...] | None:
        state = "Z" if look > 100 and random.random() < 0.5 else None
        return tuple(Process(4200 + k, 5 * GIB + look * growth, job=job, state=state) for k in range(count)) if visible else None

    return at


@cache
def recording(seed: int, host: str = "node-a", gpus: tuple[int, ...] = (0, 1, 2, 3), looks: int = 200) -> tuple[Frame, ...]:
    """Frames of one host, one in half a minute. What a GPU does depends on the seed, the host and its number, and on nothing else."""
    numbers = {n: np.random.default_rng([seed, n, *host.encode()]) for n in gpus}
    does = {n: (readings(numbers[n]), crowd(numbers[n])) for n in gpus}
    devices = tuple(Device(f"{host}-{n}", index=n) for n in gpus)

    def frame(look: int) -> Frame:
        names, values = pack([does[n][0](look) for n in gpus])
        processes = {f"{host}-{n}": found for n in gpus if (found := does[n][1](look)) is not None}
        job = Job("llm", {"job_step_total": float(min(look, 60)), "job_loss": math.nan if look > 100 else 2.0})
        return Frame(host, START + look * 30.0, devices, names, values, processes=processes, jobs=(job,))

    return tuple(frame(look) for look in range(looks))


class Row(NamedTuple):
    """What was said of one subject at one look."""

    firing: bool
    known: bool
    severity: int | None
    value: float
    threshold: float


Subject = tuple[object, ...]
"""Host, device, process and job."""


def rows(looks: Sequence[Look]) -> dict[Subject, dict[float, Row]]:
    """What was said of each subject, and when."""
    said: dict[Subject, dict[float, Row]] = {}
    for window, verdict in looks:
        threshold = np.broadcast_to(np.asarray(verdict.threshold, np.float64), (len(window),))
        known = verdict.answerable()
        for n, subject in enumerate(window.subjects):
            key = (subject.host, subject.device and subject.device.uuid, subject.process and subject.process.pid, subject.job)
            severity = None if verdict.severity is None else int(verdict.severity[n])
            row = Row(bool(verdict.firing[n]), bool(known[n]), severity, float(verdict.value[n]), float(threshold[n]))
            said.setdefault(key, {})[float(window.now[n])] = row
    return said


class Heard(NamedTuple):
    looks: list[Look]
    history: set[str]


def observed(*recordings: tuple[Frame, ...]) -> dict[str, Heard]:
    """What every rule answered to recordings that came in step with each other."""
    watching = {name: watched(rule) for name, rule in OVER_TIME.items()}
    engine = engine_of({name: rule for name, (rule, _, _) in watching.items()})
    for frames in zip(*recordings, strict=True):
        engine.observe(*frames)
    assert {} == engine.rule_errors
    return {name: Heard(looks, history) for name, (_, looks, history) in watching.items()}


@cache
def observed_of(seed: int, *hosts: str, gpus: tuple[int, ...] = (0, 1)) -> dict[str, Heard]:
    return observed(*(recording(seed, host, gpus, looks=100) for host in hosts))


@each_rule_over_time
def test_an_answer_has_the_windows_shape(name: str) -> None:
    """Arrays of one row a row, of the kinds that the engine counts on; also where there is no row."""
    nobody = np.empty(0, np.intp)

    for window, verdict in observed_of(1, "node-a", "node-b").get(name, Heard([], set())).looks[::5]:
        for part, answer in ((window, verdict), (window.of(nobody), OVER_TIME[name].check(window.of(nobody)))):
            shape = (len(part),)
            assert (shape, np.bool_) == (answer.firing.shape, answer.firing.dtype)
            assert (shape, np.float64) == (answer.value.shape, answer.value.dtype)
            assert np.shape(answer.threshold) in ((), shape)
            assert (shape, np.bool_) == (answer.answerable().shape, answer.answerable().dtype)
            assert answer.severity is None or (shape, np.int8) == (answer.severity.shape, answer.severity.dtype)
            assert answer.group is None or len(part) == len(answer.group)


@each_rule_over_time
def test_the_history_that_a_rule_asks_for_is_declared(name: str) -> None:
    """What is not in `needs` or `uses` is kept only as long as another rule wants it."""
    kind = type(OVER_TIME[name])
    history = observed_of(1, "node-a", "node-b")[name].history | observed_of(2, "node-b", gpus=(1, 0))[name].history

    assert set() == history - {*kind.needs, *kind.uses}


@each_rule_over_time
@pytest.mark.parametrize("devices", [1, 3])
def test_where_nothing_is_read_nothing_is_wrong(name: str, devices: int) -> None:
    """Devices that are listed and say nothing at all, for an hour."""
    frames = trace(seconds=3600, step=60, devices=devices, each=lambda n: dict.fromkeys(BOARD))

    assert [] == changes({name: OVER_TIME[name]}, frames)


@each_rule_over_time
@pytest.mark.parametrize("seed", range(4))
def test_other_hosts_and_the_order_of_devices_make_no_difference(name: str, seed: int) -> None:
    """A host is answered the same alone and among others, whichever way its GPUs are listed."""
    alone = rows(observed_of(seed, "node-b", gpus=(1, 0))[name].looks)
    among = {key: said for key, said in rows(observed_of(seed, "node-a", "node-b", "node-c")[name].looks).items() if key[0] == "node-b"}

    # A rule is not asked where none of its metrics was ever read: among others it may be, and then has nothing to say.
    assert not any(row.firing for key, said in among.items() for at, row in said.items() if at not in alone.get(key, {}))
    for key, said in alone.items():
        for at, row in said.items():
            other = among[key][at]
            assert row[:2] == other[:2], (key, at)
            if row.firing:
                assert row.severity == other.severity
                np.testing.assert_allclose((row.value, row.threshold), (other.value, other.threshold), rtol=1e-5)


@cache
def incidents() -> list[Incident]:
    return [incident for seed in range(8) for incident in final(OVER_TIME, recording(seed))]


@each_rule_over_time
def test_what_is_told_can_be_read(name: str) -> None:
    """Whatever happens: a sentence with numbers in it and no gaps, something to do, readings that exist."""
    for incident in incidents():
        if incident.rule == name:
            assert incident.summary.strip()
            assert incident.action.strip()
            assert not re.search(r"\b(nan|inf|None)\b|\.\d{4,}", f"{incident.summary} {incident.action} {incident.description}")
            assert incident.severity in ("info", "warning", "critical")
            assert {series.metric for series in incident.evidence} <= METRICS.keys()


def test_the_recordings_of_these_tests_have_something_to_find() -> None:
    """Most rules fire in one of them, so that what is said above is said of their words, too."""
    silent = OVER_TIME.keys() - {incident.rule for incident in incidents()}

    assert len(silent) <= len(OVER_TIME) / 3, sorted(silent)


# -- the page -------------------------------------------------------------------------------------------------------------------------


def shown(cell: str, name: str) -> object:
    """A default as a page writes it: a duration such as `15m`, a number, a word, yes or no; "never" for none."""
    cell = cell.strip("`")
    if cell == "none":
        return ()
    if cell in ("never", "true", "false"):
        return {"never": None, "true": True, "false": False}[cell]
    if name.endswith(("hold", "keep_firing", "escalate_after", "lookback", "_seconds")):
        return seconds(cell)
    return float(cell) if re.fullmatch(r"[0-9.]+", cell) else cell


def table_of(page: str) -> dict[str, object]:
    """Parameter -> default, as the page's table has them."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)
    return {name: shown(cell.strip(), name) for name, cell in rows}


@each_rule
def test_every_rule_has_a_page(name: str) -> None:
    """What it means, how to confirm it, what to do, when it is a false alarm: somebody reads this at night."""
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")

    assert page.startswith(f"# {name}\n")
    for heading in ("## What it means", "## Confirm it", "## What to do", "## When it is a false alarm", "## Parameters"):
        assert heading in page


@pytest.mark.parametrize("name", sorted({page.stem for page in PAGES.glob("*.md")} & RULES.keys()))
def test_a_page_lists_the_parameters_as_they_are(name: str) -> None:
    """All of them, with their defaults; a default that is a list or a table stands on the page in words."""
    rule = RULES[name]
    actual = {field: getattr(rule, field) for field in parameters(type(rule))}
    plain = {field: value for field, value in actual.items() if value is None or isinstance(value, bool | float | int | str)}
    page = table_of((PAGES / f"{name}.md").read_text(encoding="utf-8"))

    assert actual.keys() == page.keys()
    assert plain == {field: page[field] for field in plain}


def test_no_page_is_about_a_rule_that_is_gone() -> None:
    """A renamed rule takes its page along."""
    assert set() == {page.stem for page in PAGES.glob("*.md")} - RULES.keys() - {"README"}


def test_event_rules_are_rules_as_well() -> None:
    """The two kinds are found alike."""
    assert any(isinstance(rule, EventRule) for rule in RULES.values())
    assert all(dataclasses.is_dataclass(rule) for rule in RULES.values())
