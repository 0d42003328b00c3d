"""System events of Weights & Biases."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from recorded import EIGHT, MIB, read, seconds

from detector.errors import SourceError
from detector.frame import Device
from detector.sources.recording import FORMATS, Problems
from detector.sources.timestamps import UNDATED

A, B = "INDEX-0", "INDEX-1"
T4 = {"gpu": 4.07, "memory": 0.0, "memoryAllocated": 1.91, "temp": 49.93, "powerWatts": 27.79, "powerPercent": 39.69}


def event(second: float | None = 0.0, gpus: dict[int, dict[str, Any]] | None = None, prefix: str = "system.", **more: Any) -> str:
    readings = {f"{prefix}gpu.{n}.{name}": value for n, told in ({0: T4} if gpus is None else gpus).items() for name, value in told.items()}
    stamp = {} if second is None else {"_timestamp": EIGHT + second, "_runtime": 28 + second}
    return json.dumps({**readings, "system.cpu": 65.27, "_wandb": True, **stamp, **more}) + "\n"


def test_a_line_is_a_frame(tmp_path: Path) -> None:
    """`memory` is how busy the memory controller was; how much is occupied in percent is no reading, and no bytes are made of it."""
    frames = read(tmp_path, event(0) + event(30.5))

    assert seconds(frames) == [0.0, 30.5]
    assert frames[0].devices == (Device(A, index=0),)
    assert {metric: frames[0].reading(A, metric) for metric in frames[0].metrics} == {
        "utilization_percent": 4.07, "memory_utilization_percent": 0.0, "temperature_celsius": 49.93, "power_watts": 27.79,
    }  # fmt: skip
    assert frames[0].processes == {}


@pytest.mark.parametrize("prefix", ["system.", ""])
def test_newer_clients(prefix: str, tmp_path: Path) -> None:
    """They tell bytes, clocks and the power limit; what a process had is not told twice."""
    told = {"memoryAllocatedBytes": 270598144, "enforcedPowerLimitWatts": 70.0, "smClock": 300, "memoryClock": 405, "fanSpeed": 30}
    more = {"_gpu.0.name": "Tesla T4", "_gpu.0.memoryTotal": 15360 * MIB, f"{prefix}gpu.process.0.gpu": 99.0, "_gpu.count": 1}
    [frame] = read(tmp_path, event(0, {0: told}, prefix, **more))

    assert frame.devices == (Device(A, index=0, name="Tesla T4"),)
    assert {metric: frame.reading(A, metric) for metric in frame.metrics} == {
        "memory_total_bytes": 15360 * MIB, "memory_used_bytes": 270598144.0, "power_limit_watts": 70.0, "sm_clock_mhz": 300.0,
        "memory_clock_mhz": 405.0, "fan_speed_percent": 30.0,
    }  # fmt: skip


def test_several_gpus(tmp_path: Path) -> None:
    """In the order of their index, which has two digits where there are many."""
    [frame] = read(tmp_path, event(0, {10: {"temp": 50}, 1: {"temp": 40}, 0: {"temp": 30}}))

    assert [(device.uuid, frame.reading(device.uuid, "temperature_celsius")) for device in frame.devices] == [
        (A, 30.0), (B, 40.0), ("INDEX-10", 50.0),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, "5", True, math.nan, math.inf, 4294967295, -3, [1], 10**400])
def test_what_is_no_reading_is_missing(value: object, tmp_path: Path) -> None:
    """It is not 0, and the others stay."""
    [frame] = read(tmp_path, event(0, {0: {"gpu": value, "temp": 50}}))

    assert (math.isnan(frame.reading(A, "utilization_percent")), frame.reading(A, "temperature_celsius")) == (True, 50.0)


@pytest.mark.parametrize(
    ("more", "expected"),
    [([{"_runtime": 28}, {"_runtime": 58}], [28.0, 58.0]), ([{}, {}], [0.0, 30.0]), ([{"_timestamp": "x"}, {"_runtime": -1}], [0.0, 30.0])],
)
def test_lines_without_a_time(more: list[dict[str, Any]], expected: list[float], tmp_path: Path) -> None:
    """Seconds since the start of the run, else as far apart as they are said to be."""
    frames = read(tmp_path, "".join(event(None, **one) for one in more), interval=30.0)

    assert [frame.at - UNDATED for frame in frames] == expected


def test_lines_about_other_things(tmp_path: Path) -> None:
    """A machine has more than GPUs: they are no loss. A line that is torn is one."""
    problems = Problems()
    frames = read(tmp_path, event(0) + event(15, {}) + "\n" + event(30)[:-20] + "\n" + event(45) + "[1]\n", problems)

    assert seconds(frames) == [0.0, 45.0]
    assert problems.lines() == [f"{tmp_path}/recording, lines 4, 6: not a JSON object; torn or cut off?"]


def test_a_run_without_gpus_is_refused(tmp_path: Path) -> None:
    """It says nothing that could be judged."""
    with pytest.raises(SourceError, match="nothing that can be read as wandb"):
        read(tmp_path, event(0, {}) * 3, format="wandb")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (event(0), True),
        (event(0, {}) + event(30), True),
        (event(0, prefix=""), True),
        (event(0, {}), False),
        ('{"at": 1, "devices": []}\n', False),
    ],
)
def test_what_looks_like_events(text: str, expected: bool) -> None:
    """A key about a GPU."""
    assert expected == FORMATS["wandb"].sniff(text)
