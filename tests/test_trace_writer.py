"""Traces as they are written: JSON Lines that say everything, and what stays the same only once."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detector.errors import SourceError
from detector.frame import Device, Event, Fault, Frame, Job, Process, pack
from detector.metrics import METRICS
from detector.sources.recording import read_recording
from detector.sources.simulator import Simulator
from detector.sources.trace_writer import write_trace

GPU = Device("GPU-a", 0, "NVIDIA H100 80GB HBM3", "00000000:18:00.0")


def frame(at: float = 1000.0, device: Device = GPU, **readings: float) -> Frame:
    metrics, values = pack([readings])
    return Frame("node-a", at, (device,), metrics, values)


def written(path: Path, *frames: Frame) -> list[dict[str, Any]]:
    """The lines of a trace of *frames*, read by JSON's strict rules."""
    count = write_trace(frames, path)
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert len(lines) == count
    return lines


def test_a_frame_is_a_line_with_all_it_says(tmp_path: Path) -> None:
    """Every part of a frame stands where the contract has it, and what is not known is left out."""
    process = Process(4242, 65e9, 90.0, "python train.py", "ada", job="llm-7b", started_at=900.5)
    told = replace(
        frame(utilization_percent=97.0, power_watts=612.5, memory_total_bytes=85520809984.0),
        unavailable={"GPU-a": {"fan_speed_percent": "not_supported"}},
        processes={"GPU-a": (process,)},
        events=(Event("xid", "GPU-a", 999.5, 79, "GPU has fallen off the bus.", "kernel_log"),),
        faults=(Fault("gpu_lost", "GPU-a"),),
        jobs=(Job("llm-7b", {"job_loss": 2.25, "job_step_total": 18200.0}),),
        driver_version="580.95.05",
    )

    assert [
        {
            "at": 1000,
            "host": "node-a",
            "driver_version": "580.95.05",
            "devices": [
                {
                    "uuid": "GPU-a",
                    "index": 0,
                    "name": "NVIDIA H100 80GB HBM3",
                    "pci_bus_id": "00000000:18:00.0",
                    "readings": {"utilization_percent": 97, "power_watts": 612.5, "memory_total_bytes": 85520809984},
                    "unavailable": {"fan_speed_percent": "not_supported"},
                    "processes": [
                        {
                            "pid": 4242,
                            "memory_used_bytes": 65000000000,
                            "sm_utilization_percent": 90,
                            "command": "python train.py",
                            "user": "ada",
                            "job": "llm-7b",
                            "started_at": 900.5,
                        }
                    ],
                }
            ],
            "events": [
                {
                    "kind": "xid",
                    "uuid": "GPU-a",
                    "at": 999.5,
                    "code": 79,
                    "message": "GPU has fallen off the bus.",
                    "source": "kernel_log",
                }
            ],
            "jobs": [{"job": "llm-7b", "readings": {"job_loss": 2.25, "job_step_total": 18200}}],
            "errors": [{"kind": "gpu_lost", "uuid": "GPU-a"}],
        }
    ] == written(tmp_path / "trace.jsonl", told)


def test_what_stays_the_same_is_said_once(tmp_path: Path) -> None:
    """Static facts, limits and reasons come again only when they change; gauges come every time."""
    reasons = {"GPU-a": {"fan_speed_percent": "not_supported"}}
    one = replace(frame(1000.0, power_watts=600.0, power_limit_watts=700.0), unavailable=reasons)
    same = replace(frame(1001.0, power_watts=600.0, power_limit_watts=700.0), unavailable=reasons)
    other = replace(frame(1002.0, replace(GPU, index=1), power_watts=600.0, power_limit_watts=500.0), unavailable={})

    _, second, third = written(tmp_path / "trace.jsonl", one, same, other)

    assert [{"uuid": "GPU-a", "readings": {"power_watts": 600}}] == second["devices"]
    assert [
        {"uuid": "GPU-a", "index": 1, "readings": {"power_watts": 600, "power_limit_watts": 500}, "unavailable": {}},
    ] == third["devices"]


def test_devices_of_the_same_name_on_two_hosts_are_two(tmp_path: Path) -> None:
    """A uuid is known per host, as an index-only device has the same one everywhere."""
    here, there = frame(power_limit_watts=700.0), replace(frame(power_limit_watts=700.0), host="node-b")

    first, second = written(tmp_path / "trace.jsonl", here, there)

    assert first["devices"] == second["devices"]


def test_a_missing_reading_is_left_out(tmp_path: Path) -> None:
    """NaN of a device is no reading, and JSON has no NaN."""
    (line,) = written(tmp_path / "trace.jsonl", frame(power_watts=math.nan, temperature_celsius=40.0))

    assert {"temperature_celsius": 40} == line["devices"][0]["readings"]


@pytest.mark.parametrize(("loss", "told"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_a_diverged_loss_is_a_value(tmp_path: Path, loss: float, told: str) -> None:
    """NaN and infinity of a job are spelt out."""
    (line,) = written(tmp_path / "trace.jsonl", replace(frame(), jobs=(Job("llm", {"job_loss": loss}),)))

    assert {"job_loss": told} == line["jobs"][0]["readings"]


def test_no_processes_and_unknown_processes_are_two_things(tmp_path: Path) -> None:
    """An empty list is known to be empty; where nobody looked there is no list."""
    none, unknown = written(tmp_path / "trace.jsonl", replace(frame(), processes={"GPU-a": ()}), frame(1001.0))

    assert [] == none["devices"][0]["processes"]
    assert "processes" not in unknown["devices"][0]


def test_a_blind_frame_has_no_devices_and_an_error(tmp_path: Path) -> None:
    """The recorder was alive and could see nothing: that is a line, too."""
    (line,) = written(tmp_path / "trace.jsonl", Frame("node-a", 1000.0, faults=(Fault("driver_not_loaded"),)))

    assert {"at": 1000, "host": "node-a", "devices": [], "errors": [{"kind": "driver_not_loaded"}]} == line


def test_the_name_decides_about_compression(tmp_path: Path) -> None:
    """`.jsonl.gz` holds the same lines as `.jsonl`, in less room."""
    frames = list(Simulator(gpus=2).frames(30))
    plain, packed = tmp_path / "trace.jsonl", tmp_path / "trace.jsonl.gz"

    assert written(plain, *frames) == written(packed, *frames)
    assert packed.stat().st_size < plain.stat().st_size / 5


def test_a_recording_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    """Whoever stops a recording has the frames up to then, as whole lines."""
    path = tmp_path / "trace.jsonl.gz"

    def interrupted() -> Iterator[Frame]:
        yield frame(1000.0)
        yield frame(1001.0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_trace(interrupted(), path)

    assert [1000, 1001] == [json.loads(line)["at"] for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_a_simulated_trace_is_marked_and_speaks_the_catalogue(tmp_path: Path) -> None:
    """Every line of a simulation says so, and every reading in it has a name of the catalogue and a plausible number."""
    frames = list(Simulator(faults="all").frames(400))
    lines = written(tmp_path / "trace.jsonl", *frames)

    assert {True} == {line["simulated"] for line in lines}
    for line, original in zip(lines, frames, strict=True):
        assert [device.uuid for device in original.devices] == [device["uuid"] for device in line["devices"]]
        for device in line["devices"]:
            assert all(METRICS[name].plausible(value) for name, value in device["readings"].items())


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The message has the file and the reason."""
    path = tmp_path / "nowhere" / "trace.jsonl"

    with pytest.raises(SourceError, match=r"nowhere/trace\.jsonl cannot be written: No such file or directory"):
        write_trace([], path)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    """The reader makes the same frames of it, held readings aside, which stand where they change."""
    frames = list(Simulator(faults=["gpu_lost"]).frames(420))
    write_trace(frames, tmp_path / "trace.jsonl")

    again = list(read_recording(tmp_path / "trace.jsonl"))

    assert len(frames) == len(again)
    for one, other in zip(frames, again, strict=True):
        assert (one.host, one.at, one.devices, one.processes, one.events, one.faults) == (
            (other.host, other.at, other.devices, other.processes, other.events, other.faults)
        )
        assert [(job.job, dict(job.readings)) for job in one.jobs] == [(job.job, dict(job.readings)) for job in other.jobs]
        assert dict(one.unavailable) == dict(other.unavailable)
        moving = [name for name in one.metrics if not METRICS[name].held]
        for device in one.devices:
            told = {name: one.reading(device.uuid, name) for name in moving}
            assert told == pytest.approx({name: other.reading(device.uuid, name) for name in moving}, nan_ok=True, abs=0.0)
