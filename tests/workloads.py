"""What GPUs do, for tests of rules: a few states, and when a GPU is in which.

    job = trace(seconds=3600, devices=4, processes=ranks("llm"), **doing((0, WORKS), (1800, SPINS)))
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping

from traces import GIB, Value

from detector.frame import Process

Readings = Mapping[str, float | None]

FREE: Readings = {"utilization_percent": 0.0, "memory_utilization_percent": 0.0, "power_watts": 56.0, "memory_used_bytes": 0.0}
"""Nobody holds it."""
RESTS: Readings = {"utilization_percent": 0.0, "memory_utilization_percent": 0.0, "power_watts": 66.0, "memory_used_bytes": 60 * GIB}
"""A process holds memory and does nothing."""
WORKS: Readings = {"utilization_percent": 98.0, "memory_utilization_percent": 45.0, "power_watts": 380.0, "memory_used_bytes": 60 * GIB}
SPINS: Readings = {"utilization_percent": 100.0, "memory_utilization_percent": 0.0, "power_watts": 75.0, "memory_used_bytes": 60 * GIB}
"""Waits in a collective for a peer."""


def doing(*stretches: tuple[float, Readings]) -> dict[str, Value]:
    """Series of a GPU that is in a state from the given second until the next one's. A state is silent on what only others mention."""
    starts = [start for start, _ in stretches]
    metrics = dict.fromkeys(name for _, state in stretches for name in state)

    def of(metric: str) -> Callable[[float], float | None]:
        return lambda second: stretches[bisect(starts, second) - 1][1].get(metric)

    return {metric: of(metric) for metric in metrics}


def every(period: float, *stretches: tuple[float, Readings]) -> dict[str, Value]:
    """The same, over and over: the seconds are counted from the start of each period."""
    once = doing(*stretches)

    def again(value: Value) -> Callable[[float], float | None]:
        assert callable(value)
        return lambda second: value(second % period)

    return {metric: again(value) for metric, value in once.items()}


def ranks(job: str | None, until: float = float("inf")) -> Callable[[int, float], tuple[Process, ...]]:
    """A process of the job on each GPU, until it ends; None: it has no name."""

    def of(n: int, second: float) -> tuple[Process, ...]:
        return (Process(4200 + n, memory_used_bytes=60 * GIB, command="python train.py", user="ada", job=job),) if second < until else ()

    return of
