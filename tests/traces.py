"""What the tests speak in: a trace is a few series over time, the outcome a list of transitions.

    frames = trace(seconds=600, step=10, temperature_celsius=lambda s: 99.0 if s > 300 else 60.0)
    assert ["fired overheating", ...] == told(changes({"overheating": Overheating()}, frames))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from detector.engine import Engine
from detector.frame import Device, Event, Fault, Frame, Job, Process, pack
from detector.incident import Change, Incident, Severity
from detector.metrics import Entity
from detector.rule import AnyRule, EventRule, Finding, Rule, Story, Verdict
from detector.ruleset import Configured, RuleSet
from detector.window import Window

START = 1_700_000_000.0

Value = float | Callable[[float], float | None] | None

GIB = 1024.0**3

BOARD: Mapping[str, Value] = {
    "memory_total_bytes": 80 * GIB,
    "temperature_slowdown_celsius": 89.0,
    "power_limit_watts": 400.0,
    "sm_clock_max_mhz": 1410.0,
}
"""An A100, as far as the rules look."""


def gpu(n: int = 0) -> Device:
    return Device(f"GPU-{n}", index=n, name="NVIDIA A100-SXM4-80GB")


def at(value: Value, second: float) -> float | None:
    return value(second) if callable(value) else value


def trace(
    *,
    seconds: float,
    step: float = 10.0,
    host: str = "node-a",
    devices: int | Sequence[Device] = 1,
    start: float = START,
    each: Callable[[int], Mapping[str, Value]] | None = None,
    processes: Callable[[int, float], tuple[Process, ...] | None] | None = None,
    jobs: Callable[[float], tuple[Job, ...]] | None = None,
    events: Mapping[float, Sequence[Event]] | None = None,
    faults: Callable[[float], tuple[Fault, ...]] | None = None,
    listed: Callable[[int, float], bool] | None = None,
    **metrics: Value,
) -> Iterator[Frame]:
    """Frames of one host. A metric is a number, or a function of the seconds since the start (None: no reading); `each` differs by GPU."""
    gpus = [gpu(n) for n in range(devices)] if isinstance(devices, int) else list(devices)
    for k in range(int(seconds / step) + 1):
        second = k * step
        there = [n for n in range(len(gpus)) if listed is None or listed(n, second)]
        rows = []
        for n in there:
            series = {**BOARD, **metrics, **(each(n) if each else {})}
            rows.append({name: value for name in series if (value := at(series[name], second)) is not None})
        names, values = pack(rows)
        known = {gpus[n].uuid: p for n in there if processes is not None and (p := processes(n, second)) is not None}
        yield Frame(
            host=host,
            at=start + second,
            devices=tuple(gpus[n] for n in there),
            metrics=names,
            values=values,
            processes=known,
            jobs=jobs(second) if jobs else (),
            events=tuple(events.get(second, ())) if events else (),
            faults=faults(second) if faults else (),
        )


def engine_of(rules: Mapping[str, AnyRule]) -> Engine:
    return Engine(RuleSet([Configured(name, rule) for name, rule in rules.items()]))


def feed(engine: Engine, frames: Iterable[Frame]) -> list[Change]:
    """All that happened, pending ones included."""
    return [change for frame in frames for change in engine.observe(frame)]


def changes(rules: Mapping[str, AnyRule], frames: Iterable[Frame]) -> list[Change]:
    """All that happened, pending ones included."""
    return feed(engine_of(rules), frames)


def told(happened: Iterable[Change], *, pending: bool = False) -> list[str]:
    """Transitions in words, such as `1260 fired stuck_training warning`: seconds since the start, what, rule, severity."""
    quiet = () if pending else ("opened", "dropped")
    return [
        f"{change.at - START:.0f} {change.transition} {change.incident.rule} {change.incident.severity}"
        for change in happened
        if change.transition not in quiet
    ]


def final(rules: Mapping[str, AnyRule], frames: Iterable[Frame]) -> list[Incident]:
    """The incidents that fired, in their final state."""
    engine = engine_of(rules)
    known: dict[str, Incident] = {}
    for frame in frames:
        known |= {change.incident.id: change.incident for change in engine.observe(frame)}
    known |= {incident.id: incident for incident in engine.incidents()}
    return [incident for incident in known.values() if incident.fired_at is not None]


# Rules for tests of what is not a rule: each is as plain as a rule can be.


@dataclass(frozen=True)
class Hot(Rule):
    """The GPU is warmer than `limit` now."""

    limit: float = 80.0

    needs: ClassVar[tuple[str, ...]] = ("temperature_celsius",)

    def check(self, window: Window) -> Verdict:
        now = window.last("temperature_celsius")
        return Verdict(firing=now > self.limit, value=now, threshold=self.limit)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        return Story(summary=f"{len(window)} GPU at {np.max(verdict.value):.0f} degrees", unit="celsius")


@dataclass(frozen=True)
class Greedy(Rule):
    """The process holds more than `limit` bytes now."""

    hold: float = 0.0
    keep_firing: float = 20.0
    limit: float = 10 * GIB

    entity: ClassVar[tuple[Entity, ...]] = ("process",)
    needs: ClassVar[tuple[str, ...]] = ("process_memory_used_bytes",)

    def check(self, window: Window) -> Verdict:
        now = window.last("process_memory_used_bytes")
        return Verdict(firing=now > self.limit, value=now, threshold=self.limit)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        return Story(summary=f"holds {verdict.value[0] / GIB:.0f} GiB", unit="bytes")


@dataclass(frozen=True)
class Alarm(EventRule):
    """An Xid, whichever; each code is a thing of its own."""

    keep_firing: float = 60.0
    severity: Severity = "warning"

    def judge(self, event: Event) -> Finding | None:
        if event.kind != "xid":
            return None
        return Finding(self.severity, Story(summary=f"Xid {event.code}"), subject=str(event.code))


def xid(second: float, code: int = 31, uuid: str | None = "GPU-0", *, text: str = "", by: Literal["nvml", "kernel_log"] = "nvml") -> Event:
    """An Xid so many seconds after the start."""
    return Event("xid", uuid, START + second, code, text or f"Xid {code} at {second}", by)
