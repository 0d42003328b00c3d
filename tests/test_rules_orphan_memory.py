"""Device memory that nobody holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from traces import GIB, Value, changes, final, gpu, told, trace

from detector.frame import Device, Process
from rules.orphan_memory import OrphanMemory

RULES = {"orphan_memory": OrphanMemory()}
Listing = Callable[[int, float], tuple[Process, ...] | None]


def job(until: float) -> Listing:
    """A process that is listed until just before *until*; the list is read all the time."""
    return lambda n, second: (Process(4242 + n, memory_used_bytes=20 * GIB),) if second < until else ()


def work(until: float = 600.0, held: float = 20 * GIB) -> dict[str, Value]:
    """Busy until *until*, and the memory stays."""
    return {"utilization_percent": lambda s: 97.0 if s < until else 0.0, "memory_used_bytes": held}


def test_memory_that_a_process_holds_is_not_orphaned() -> None:
    """At work and at rest."""
    assert [] == changes(RULES, trace(seconds=3600, processes=job(7200.0), **work()))


def test_memory_that_nobody_holds_is_told_after_five_minutes() -> None:
    """One look-back after the process is gone, and the patience."""
    happened = changes(RULES, trace(seconds=1800, processes=job(600.0), **work()))

    assert ["960 fired orphan_memory warning"] == told(happened)
    assert "20.0 GiB of memory in use, and no process holds it" == happened[-1].incident.summary


@pytest.mark.parametrize("held", [58 * 1024.0**2, 0.99 * GIB])
def test_less_than_a_gib_is_noise(held: float) -> None:
    """What a display, the driver, or a job leaves (nvshare#23)."""
    assert [] == changes(RULES, trace(seconds=3600, processes=job(600.0), **work(held=held)))


def test_between_two_jobs_memory_may_linger() -> None:
    """Four minutes until the next one starts."""
    gap: Listing = lambda n, second: () if 600 <= second < 840 else (Process(1),)  # noqa: E731

    assert [] == told(changes(RULES, trace(seconds=3600, processes=gap, **work(until=3600.0))))


def test_a_list_that_is_not_read_says_nothing() -> None:
    """Not known is not empty."""
    assert [] == changes(RULES, trace(seconds=3600, **work()))


def test_a_gpu_at_work_without_a_process_has_a_list_that_hides_some() -> None:
    """In a container without the host's PIDs: neither while it works, nor in the hour after."""
    nobody: Listing = lambda n, second: ()  # noqa: E731

    assert [] == changes(RULES, trace(seconds=7200, step=30, processes=nobody, **work(until=7200.0)))
    assert [] == told(changes(RULES, trace(seconds=7200, step=30, processes=nobody, **work(until=1800.0))))


def test_processes_of_a_partitioned_gpu_are_on_its_instances() -> None:
    """The parent's own list is empty by design; an instance's is not."""
    parts = [gpu(), Device("MIG-0", parent="GPU-0")]
    frames = [*trace(seconds=1800, devices=parts, mig_mode=1.0, processes=lambda n, s: (), memory_used_bytes=20 * GIB)]
    each = lambda n: {"mig_mode": None if n else 1.0, "memory_used_bytes": 20 * GIB}  # noqa: E731
    unmarked = trace(seconds=1800, devices=parts, each=each, processes=lambda n, s: ())

    assert [] == told(changes(RULES, frames))
    assert [["MIG-0"]] == [[device.uuid for device in incident.devices] for incident in final(RULES, unmarked)]


def test_what_one_dead_job_leaves_on_four_gpus_is_one_incident() -> None:
    """And so much GPU time is wasted."""
    (incident,) = final(RULES, trace(seconds=1800, devices=4, processes=job(600.0), **work()))

    assert "80.0 GiB of memory in use on 4 GPUs, and no process holds it" == incident.summary
    assert 4 == len(incident.devices)
    assert incident.wasted_gpu_seconds > 4 * 900


def test_it_resolves_when_the_memory_is_free_or_somebody_takes_it() -> None:
    """A minute after."""
    freed = {**work(), "memory_used_bytes": lambda s: 20 * GIB if s < 1800 else 0.0}
    again: Listing = lambda n, second: (Process(1),) if second < 600 or second >= 1800 else ()  # noqa: E731

    assert ["960 fired orphan_memory warning", "1860 resolved orphan_memory warning"] == told(
        changes(RULES, trace(seconds=3600, processes=job(600.0), **freed))
    )
    assert ["960 fired orphan_memory warning", "1860 resolved orphan_memory warning"] == told(
        changes(RULES, trace(seconds=3600, processes=again, **work()))
    )


def test_silence_resolves_nothing() -> None:
    """Neither a list that is no longer read, nor memory that is not."""
    listed = job(600.0)
    blind: Listing = lambda n, second: listed(n, second) if second < 1200 else None  # noqa: E731
    unread = {**work(), "memory_used_bytes": lambda s: 20 * GIB if s < 1200 else None}

    assert ["960 fired orphan_memory warning"] == told(changes(RULES, trace(seconds=3600, processes=blind, **work())))
    assert ["960 fired orphan_memory warning"] == told(changes(RULES, trace(seconds=3600, processes=listed, **unread)))
