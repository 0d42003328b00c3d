"""A GPU that claims to work for nobody."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from traces import GIB, Value, changes, final, told, trace
from workloads import FREE, WORKS, doing

from detector.frame import Device, Process
from rules.driver_fault import DriverFault

RULES = {"driver_fault": DriverFault()}

STICKS = {"utilization_percent": 100.0, "memory_used_bytes": 0.0, "power_watts": 130.0}
"""An L40S at rest, as nvidia-smi once showed it."""


@pytest.mark.parametrize("state", [FREE, WORKS])
def test_rest_and_work_are_no_fault(state: Mapping[str, Value]) -> None:
    """Busy with memory held, or idle without: both are as they should be."""
    assert [] == changes(RULES, trace(seconds=1800, **state))


@pytest.mark.parametrize(("step", "fired"), [(1, 645), (10, 640), (60, 660)])
def test_busy_for_nobody_is_critical_after_half_a_minute(step: float, fired: float) -> None:
    """Nothing but 100 % in the samples, no memory, for 30 s; the sampling rate makes little difference."""
    frames = trace(seconds=1200, step=step, **doing((0, FREE), (600, STICKS)))

    assert [f"{fired} fired driver_fault critical"] == told(changes(RULES, frames))


@pytest.mark.parametrize("almost", [{"utilization_percent": 98.0}, {"memory_used_bytes": 65 * 1024.0**2}])
def test_just_below_nothing_is_said(almost: Mapping[str, Value]) -> None:
    """98 % is a program; 65 MiB are more than noise."""
    assert [] == changes(RULES, trace(seconds=1200, **{**STICKS, **almost}))


def test_one_sample_is_too_little_for_a_verdict() -> None:
    """The first look after a job, or at a driver that scrubs memory, may say 100 %."""
    assert [] == told(changes(RULES, trace(seconds=1200, step=60, **doing((0, STICKS), (60, FREE), (600, STICKS), (660, FREE)))))


def test_a_process_explains_it() -> None:
    """Who is listed may hold memory that is not shown."""
    frames = trace(seconds=1200, processes=lambda n, second: (Process(4711, memory_used_bytes=None),), **STICKS)

    assert [] == changes(RULES, frames)


def test_an_empty_list_of_processes_does_not() -> None:
    """Nobody is there, and that is known."""
    assert 1 == len(final(RULES, trace(seconds=1200, processes=lambda n, second: (), **STICKS)))


def test_what_cannot_be_seen_is_not_judged() -> None:
    """A vGPU guest or a container may not see memory: no memory seen is not none used."""
    assert [] == changes(RULES, trace(seconds=1200, **{**STICKS, "memory_used_bytes": None}))


@pytest.mark.parametrize("device", [Device("MIG-0", parent="GPU-9"), Device("MIG-1")])
def test_an_instance_is_not_judged(device: Device) -> None:
    """Utilisation means something else on a partitioned GPU."""
    assert [] == changes(RULES, trace(seconds=1200, devices=[device], **STICKS))


def test_a_partitioned_gpu_is_not_judged() -> None:
    """The memory in use is that of its instances."""
    assert [] == changes(RULES, trace(seconds=1200, mig_mode=1.0, **STICKS))


def test_with_persistence_mode_off_it_is_a_warning_and_a_hint() -> None:
    """A driver that starts for each look shows its own start (clip-as-service#254)."""
    (incident,) = final(RULES, trace(seconds=1200, persistence_mode=0.0, **STICKS))

    assert "warning" == incident.severity
    assert incident.action.startswith("Switch persistence mode on first")


@pytest.mark.parametrize("sensor", ["utilization_percent", "memory_used_bytes"])
def test_a_sensor_that_falls_silent_resolves_nothing(sensor: str) -> None:
    """The incident ends a minute after the GPU is seen to be well."""
    frames = trace(seconds=2400, **doing((0, FREE), (600, STICKS), (900, {**STICKS, sensor: None}), (1800, FREE)))

    assert ["640 fired driver_fault critical", "1860 resolved driver_fault critical"] == told(changes(RULES, frames))


def test_a_job_that_starts_ends_it() -> None:
    """Memory in use: somebody works."""
    frames = trace(seconds=2400, **doing((0, STICKS), (1200, WORKS)))

    assert ["30 fired driver_fault critical", "1260 resolved driver_fault critical"] == told(changes(RULES, frames))


def test_one_gpu_of_several_is_named() -> None:
    """Its neighbours are not concerned."""
    frames = trace(seconds=1200, devices=4, each=lambda n: STICKS if n == 2 else WORKS)

    assert [["GPU-2"]] == [[device.uuid for device in incident.devices] for incident in final(RULES, frames)]


def test_the_incident_says_what_a_person_needs() -> None:
    """How busy, for whom, what to do, and the readings."""
    (incident,) = final(RULES, trace(seconds=1200, **STICKS))

    assert "GPU reports 100 % utilisation with no memory in use and no process" == incident.summary
    assert (100.0, 99.0, "percent") == (incident.value, incident.threshold, incident.unit)
    assert "nvidia-smi" in incident.action
    assert ["utilization_percent", "memory_used_bytes", "power_watts"] == [series.metric for series in incident.evidence]


def test_what_counts_as_memory_is_the_operators_choice() -> None:
    """A display that takes 300 MiB does not hide the fault where he says so."""
    rules = {"driver_fault": DriverFault(max_memory_bytes=GIB)}

    assert 1 == len(final(rules, trace(seconds=1200, **{**STICKS, "memory_used_bytes": 300 * 1024.0**2})))
