"""System events of Weights & Biases: JSON Lines with readings such as `system.gpu.0.powerWatts`.

They are means over some tens of seconds. `memory` is how busy the memory controller was; how much memory was occupied is told in
percent by old clients (`memoryAllocated`), which no metric is, and in bytes by newer ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from detector.frame import Device, Frame
from detector.metrics import METRICS
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.identity import device_uuid
from detector.sources.pages import Entry, Pages, numbered
from detector.sources.text import Text
from detector.sources.timestamps import UNDATED, Timestamps

_READINGS: Final = {
    "gpu": "utilization_percent",
    "memory": "memory_utilization_percent",
    "memoryAllocatedBytes": "memory_used_bytes",
    "memoryTotal": "memory_total_bytes",
    "temp": "temperature_celsius",
    "powerWatts": "power_watts",
    "enforcedPowerLimitWatts": "power_limit_watts",
    "smClock": "sm_clock_mhz",
    "memoryClock": "memory_clock_mhz",
    "fanSpeed": "fan_speed_percent",
    "encoderUtilization": "encoder_utilization_percent",
}
_KEY: Final = re.compile(r"(?:system\.)?_?gpu\.(\d{1,3})\.(\w+)")
_SNIFF: Final = re.compile(r'^[ \t]*\{[^\n]*"(?:system\.)?_?gpu\.\d+\.\w+"\s*:', re.MULTILINE)


def sniff(head: str) -> bool:
    return _SNIFF.search(head) is not None


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """A frame a line that tells of GPUs. A line that is no JSON object is a problem, one about other things is not."""
    pages, times = Pages(options), Timestamps("UTC")
    for number, line, _ in numbered(text):
        if not line or line.isspace():
            continue
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            problems.add(text.path, number, "not a JSON object; torn or cut off?")
            continue
        if entries := _entries(told):
            yield from pages.page(entries, _moment(told, times))


FORMAT: Final = Format("wandb", sniff, read)


def _entries(told: Mapping[str, Any]) -> list[Entry]:
    entries: dict[int, Entry] = {}
    for key, value in told.items():
        match = _KEY.fullmatch(key)
        if match is None:
            continue
        index, name = int(match[1]), match[2]
        entry = entries.setdefault(index, Entry(Device(device_uuid(None, None, index), index=index), {}))
        if name == "name" and isinstance(value, str):
            entry.device = Device(entry.device.uuid, index=index, name=value)
        elif (metric := _READINGS.get(name)) is not None:
            number = _number(value)
            entry.readings[metric] = number if METRICS[metric].plausible(number) and np.isfinite(number) else np.nan
    return [entries[index] for index in sorted(entries) if entries[index].readings]


def _moment(told: Mapping[str, Any], times: Timestamps) -> float | None:
    """`_timestamp` in Unix seconds, else `_runtime` in seconds since the start of the run."""
    at = _number(told.get("_timestamp"))
    if at == at and (at := times.read(f"{at:.6f}")) == at:
        return at
    runtime = _number(told.get("_runtime"))
    return UNDATED + runtime if 0.0 <= runtime < 1e9 else None


def _number(value: object) -> float:
    """NaN where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return float("nan")
    try:
        return float(value)
    except OverflowError:
        return float("nan")
