"""A process that is dead, or cannot be killed, and holds a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from traces import GIB, changes, final, told, trace

from detector.frame import Process
from rules.zombie_process import ZombieProcess

RULES = {"zombie_process": ZombieProcess()}
TRAIN = Process(4711, memory_used_bytes=12 * GIB, command="python train.py", user="ada")


Listing = Callable[[int, float], tuple[Process, ...] | None]


def turns(state: str | None, since: float = 300.0, until: float = float("inf"), process: Process = TRAIN) -> Listing:
    """A process that sleeps and wakes (S), and is in *state* from *since* until just before *until*."""
    return lambda n, second: (replace(process, state=state if since <= second < until else "S"),)


@pytest.mark.parametrize("state", ["R", "S", "T", None])
def test_a_living_process_is_fine(state: str | None) -> None:
    """Running, sleeping, stopped by a debugger; and nothing is known of a state that is not read."""
    assert [] == changes(RULES, trace(seconds=1200, processes=turns(state), utilization_percent=0.0))


@pytest.mark.parametrize(
    ("state", "words"), [("Z", "is a zombie"), ("dead", "is gone"), ("X", "is dead"), ("D", "cannot be interrupted (state D)")]
)
def test_it_fires_after_a_minute(state: str, words: str) -> None:
    """The incident names the process and what it holds."""
    (incident,) = final(RULES, trace(seconds=600, processes=turns(state), utilization_percent=0.0))

    assert f"process 4711 (python train.py) {words} and holds 12.0 GiB" == incident.summary
    assert 4711 == (incident.workload.pid if incident.workload else None)


def test_it_needs_a_minute() -> None:
    """A process on its way out is a zombie for a moment."""
    assert ["360 fired zombie_process warning"] == told(changes(RULES, trace(seconds=600, processes=turns("Z"))))
    assert [] == told(changes(RULES, trace(seconds=600, processes=turns("Z", until=350.0))))


def test_waiting_for_a_disk_now_and_then_is_loading_data() -> None:
    """State D in two of three samples."""
    loads = lambda n, second: (replace(TRAIN, state="S" if second % 30 == 0 else "D"),)  # noqa: E731

    assert [] == told(changes(RULES, trace(seconds=1200, processes=loads, utilization_percent=0.0)))


@pytest.mark.parametrize("state", ["D", "dead"])
def test_a_process_at_work_is_alive(state: str) -> None:
    """By its own share of the GPU, or else by the GPU's: its PID is of another namespace, say."""
    busy = replace(TRAIN, sm_utilization_percent=80.0)

    assert [] == told(changes(RULES, trace(seconds=1200, processes=turns(state, process=busy), utilization_percent=0.0)))
    assert [] == told(changes(RULES, trace(seconds=1200, processes=turns(state), utilization_percent=90.0)))


def test_a_zombie_is_one_whatever_its_neighbours_do() -> None:
    """Somebody else keeps the GPU busy."""
    assert 1 == len(final(RULES, trace(seconds=1200, processes=turns("Z"), utilization_percent=90.0)))


def test_a_process_without_a_name_is_only_that() -> None:
    """`Unknown Error` is what nvidia-smi says of processes that it may not look at (mxnet#4242)."""
    nameless = lambda n, second: (Process(31794, memory_used_bytes=5 * GIB, command="Unknown Error"), Process(27707))  # noqa: E731

    assert [] == changes(RULES, trace(seconds=1200, processes=nameless, utilization_percent=0.0))


def test_the_ranks_of_a_job_are_one_incident_and_so_is_one_process_on_many_gpus() -> None:
    """One node, one filesystem, one hang."""
    ranks = lambda n, second: (Process(100 + n, state="D", job="llm-7b", memory_used_bytes=GIB),)  # noqa: E731
    (job,) = final(RULES, trace(seconds=600, devices=4, processes=ranks, utilization_percent=0.0))
    (one,) = final(RULES, trace(seconds=600, devices=2, processes=turns("dead"), utilization_percent=0.0))

    assert (4, 2) == (len(job.devices), len(one.devices))


def test_it_resolves_when_the_process_lives_or_is_no_longer_listed() -> None:
    """It woke up, or the driver has let go of it."""
    wakes = trace(seconds=1200, processes=turns("D", until=600.0), utilization_percent=0.0)
    ends = trace(seconds=1200, processes=lambda n, s: turns("D")(n, s) if s < 600 else (), utilization_percent=0.0)

    for frames in (wakes, ends):
        assert ["360 fired zombie_process warning", "640 resolved zombie_process warning"] == told(changes(RULES, frames))


def test_a_list_that_is_no_longer_read_resolves_nothing() -> None:
    """Nobody knows whether it is still there."""
    blind = trace(seconds=1200, processes=lambda n, s: turns("Z")(n, s) if s < 600 else None)

    assert ["360 fired zombie_process warning"] == told(changes(RULES, blind))
