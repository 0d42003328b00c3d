"""What the columns of a table of GPU readings mean, and how their cells are read.

nvidia-smi's own names come from the catalogue. Names that people give are recognised by their words (`gpu_util%`, `mem_used_MB`,
`temperature_C`), and only where they can mean one thing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from detector.metrics import METRICS, Metric

Role = Literal["metric", "bit", "time", "identity", "name", "host", "driver", "process", "other"]

BAD: Final = float("inf")
"""A cell that is neither a reading nor a way to say that there is none."""

KIB: Final = 1024.0
_UNITS: Final[dict[str, dict[str, float]]] = {
    "percent": {"%": 1.0, "percent": 1.0, "pct": 1.0},
    # nvidia-smi counts in MiB, once labelled MB, and who writes MB or GB today has copied or divided that.
    "bytes": {"b": 1.0, "bytes": 1.0, "byte": 1.0}
    | {f"{prefix}{tail}": KIB**n for n, prefix in enumerate("kmgt", 1) for tail in ("b", "ib")},
    "celsius": {"c": 1.0, "celsius": 1.0, "degc": 1.0},
    "watts": {"w": 1.0, "watt": 1.0, "watts": 1.0, "mw": 0.001, "milliwatts": 0.001},
    "mhz": {"mhz": 1.0, "ghz": 1000.0, "khz": 0.001, "hz": 1e-6},
    "seconds": {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9},
    "rpm": {"rpm": 1.0},
}
_UNSAID: Final = {"bytes": KIB**2, "seconds": 1e-6}
"""nvidia-smi's unit of a family, where neither header nor cell says one; 1 for all others."""
_UNIT_WORDS: Final = frozenset(word for units in _UNITS.values() for word in units)

_SYNONYMS: Final = {
    "util": "utilization", "utilisation": "utilization", "mem": "memory", "vram": "memory", "temp": "temperature", "pwr": "power",
    "clocks": "clock", "clk": "clock", "freq": "clock", "frequency": "clock", "enc": "encoder", "dec": "decoder",
}  # fmt: skip
_NOISE: Final = frozenset({"gpu", "nvidia", "current"})

_BITS: Final = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80,
}  # fmt: skip
_FLAGS: Final = {
    "enabled": 1.0, "disabled": 0.0, "yes": 1.0, "no": 0.0, "active": 1.0, "not active": 0.0, "true": 1.0, "false": 0.0,
    "on": 1.0, "off": 0.0,
}  # fmt: skip
_WORDS: Final[dict[str, Mapping[str, float]]] = {
    "performance_state": {f"p{n}": float(n) for n in range(16)},
    "compute_mode": {"default": 0.0, "exclusive_thread": 1.0, "prohibited": 2.0, "exclusive_process": 3.0},
    "recovery_action": {
        "none": 0.0, "reset": 1.0, "gpu reset": 1.0, "reboot": 2.0, "node reboot": 2.0, "drain p2p": 3.0, "drain and reset": 4.0,
    },
}  # fmt: skip

_MISSING: Final = {
    **dict.fromkeys(("n/a", "not supported", "not available", "not found", "function not found"), "not_supported"),
    "requested functionality has been deprecated": "not_supported",
    **dict.fromkeys(("insufficient permissions", "no permission"), "no_permission"),
    **dict.fromkeys(("unknown error", "err!", "error"), "unknown"),
    "gpu is lost": "gpu_lost",
    "gpu requires reset": "reset_required",
    **dict.fromkeys(("", "-", "--", "nan", "na", "null", "none", "?", "??"), ""),
}

_BRACKETS: Final = re.compile(r"(.*?)\s*[\[(]\s*([^\[\]()]*?)\s*[\])]")
_NUMBER: Final = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(\D.*)?", re.IGNORECASE)
_COMMA: Final = re.compile(r"([-+]?\d+),(\d+)(?!\S*[.,])")
_HEX: Final = re.compile(r"0x[0-9a-f]{1,16}", re.IGNORECASE)
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_MEMO_LIMIT: Final = 50_000


def missing_reason(text: str) -> str | None:
    """Why there is no reading where a cell says so (`""`: it does not say why); None where it says something else."""
    word = text.strip().lower()
    reason = _MISSING.get(word.strip("[]"))
    return "unknown" if reason is None and word.startswith("[") and word.endswith("]") else reason


@dataclass(frozen=True, slots=True)
class Column:
    """What a column's name says."""

    name: str
    role: Role
    metric: str = ""
    factor: float | None = None
    """What turns a bare number into our unit, as the name says it; None: it does not."""
    rank: int = 0
    """Of two columns of one metric the lower one is better."""
    exact: bool = True
    """False: recognised by its words, so worth saying."""
    bit: int = 0
    utc: bool = False


@lru_cache(maxsize=4096)
def column(name: str) -> Column:
    """What a column called *name* holds."""
    name = name.strip().strip('"').strip()
    bracketed = _BRACKETS.fullmatch(name)
    base, said = (bracketed[1], bracketed[2]) if bracketed else (name, None)
    key = base.lower()
    if said is None and key in METRICS and METRICS[key].entity == "device":
        return Column(name, "metric", key, 1.0)
    if key in _SMI:
        metric, rank = _SMI[key]
        return _with_unit(name, (metric,), said, rank, exact=True) or Column(name, "other")
    prefix, _, reason = key.partition(".")
    if prefix in ("clocks_event_reasons", "clocks_throttle_reasons") and reason in _BITS:
        return Column(name, "bit", "clock_event_reasons", bit=_BITS[reason])
    words = _words(base)
    if said is None and len(words) > 1 and words[-1] in _UNIT_WORDS:
        said = words.pop()
    return _by_words(name, frozenset(words), said)


def _words(base: str) -> list[str]:
    text = _HUMP.sub(" ", base).lower().replace("%", " percent")
    return [_SYNONYMS.get(word, word) for word in re.findall(r"[a-z0-9]+", text)]


def _by_words(name: str, words: frozenset[str], said: str | None) -> Column:
    if words - {"utc"} in _TIMES:
        return Column(name, "time", factor=_UNITS["seconds"].get((said or "s").lower()), utc="utc" in words or said == "UTC")
    if said is None and (role := _ROLES.get(words)) is not None:
        return Column(name, role)
    for known in (words, words - _NOISE):
        if (metrics := _ALIASES.get(known)) is not None:
            return _with_unit(name, metrics, said, 10, exact=False) or Column(name, "other")
    if said is not None and (metrics := _ONLY_WITH_UNIT.get(words - _NOISE)) is not None:
        return _with_unit(name, metrics, said, 20, exact=False) or Column(name, "other")
    return Column(name, "other")


def _with_unit(name: str, metrics: tuple[str, ...], said: str | None, rank: int, *, exact: bool) -> Column | None:
    """The first of *metrics* that is counted in the unit; None where none is."""
    if said is None:
        return Column(name, "metric", metrics[0], None, rank, exact)
    for metric in metrics:
        factor = _UNITS.get(METRICS[metric].unit, {}).get(_unit(said))
        if factor is not None:
            return Column(name, "metric", metric, factor, rank, exact)
    return None


def _unit(said: str) -> str:
    return said.strip(" \u00b0\ufffd").lower()


_SMI: Final = {smi: (metric.name, rank) for metric in METRICS.values() for rank, smi in enumerate(metric.smi)}


def _aliases() -> dict[frozenset[str], tuple[str, ...]]:
    out: dict[frozenset[str], tuple[str, ...]] = {}
    for smi, (metric, _) in _SMI.items():
        words = frozenset(_words(smi))
        out.setdefault(words, (metric,))
        out.setdefault(words - _NOISE, (metric,))
    for spelt, metrics in {
        "power": ("power_watts",),
        "power usage": ("power_watts",),
        "power consumption": ("power_watts",),
        "fan": ("fan_speed_percent", "fan_speed_rpm"),
        "fan speed": ("fan_speed_percent", "fan_speed_rpm"),
        "performance state": ("performance_state",),
        "hbm temperature": ("memory_temperature_celsius",),
        "throttle reasons": ("clock_event_reasons",),
    }.items():
        out[frozenset(spelt.split())] = metrics
    return out


_ALIASES: Final = _aliases()
_ONLY_WITH_UNIT: Final = {
    frozenset({"memory", "usage"}): ("memory_used_bytes",),  # in percent it is a share of the total, which no metric is
    frozenset({"usage"}): ("utilization_percent",),
    frozenset({"load"}): ("utilization_percent",),
    frozenset[str](): ("utilization_percent",),  # `GPU [%]`
}
_TIMES: Final = frozenset(
    frozenset(spelt.split())
    for spelt in (
        "timestamp", "time", "datetime", "date time", "date", "ts", "epoch", "unix time", "unix timestamp", "time stamp", "unixtime",
        "elapsed", "elapsed time", "timestamp iso", "local time", "epoch time", "timestamp unix", "timestamp epoch",
    )
)  # fmt: skip
_ROLE_NAMES: Final[dict[Role, tuple[str, ...]]] = {
    "identity": (
        "uuid", "gpu uuid", "pci bus id", "gpu bus id", "bus id", "pci address",
        "index", "gpu index", "device index", "gpu id", "gpu number", "gpu num", "gpu", "device", "id",
    ),
    "name": ("name", "gpu name", "device name", "model", "gpu model", "product name"),
    "host": ("hostname", "host", "host name", "node", "node name"),
    "driver": ("driver version",),
    "process": ("pid", "process id", "gpu pid"),
}  # fmt: skip
_ROLES: Final = {frozenset(spelt.split()): role for role, many in _ROLE_NAMES.items() for spelt in many}


class Cells(dict[str, float]):
    """Cells of one column as readings in our unit: NaN where there is none, BAD where it is not a cell of this column.

    Cells repeat, so each is read once and then looked up.
    """

    def __init__(self, metric: Metric, factor: float | None, bit: int = 0, *, comma: bool = False) -> None:
        """*factor* is what a bare number is multiplied with, *bit* what a flag is worth, *comma* whether it is a decimal mark."""
        super().__init__()
        self._metric = metric
        self._units = _UNITS.get(metric.unit, {})
        self._factor = float(bit) if bit else _UNSAID.get(metric.unit, 1.0) if factor is None else factor
        flags = {word: value * bit for word, value in _FLAGS.items()} if bit else _FLAGS if metric.unit == "flag" else {}
        self._words = _WORDS.get(metric.name, flags)
        self._comma = comma
        self._tail = ""
        self._cut: int | None = None
        self._tail_factor = self._factor
        self._hex = metric.name == "clock_event_reasons" and not bit

    def __missing__(self, cell: str) -> float:
        if len(self) >= _MEMO_LIMIT:
            self.clear()
        value = self[cell] = self._like_the_last(cell)
        return value

    def _like_the_last(self, cell: str) -> float:
        """A number with the unit that the column had before, which nearly every cell is; else read with care."""
        if cell.endswith(self._tail) and "_" not in cell:
            try:
                value = float(cell[: self._cut]) * self._tail_factor
            except ValueError:
                pass
            else:
                if self._metric.low <= value <= self._metric.high and value < BAD:
                    return value
        return self._read(cell.strip().strip('"').strip())

    def _read(self, text: str) -> float:
        match = _NUMBER.fullmatch(_COMMA.sub(r"\1.\2", text) if self._comma else text)
        if match is None:
            return self._word(text)
        factor = self._units.get(_unit(match[2])) if match[2] else self._factor
        if factor is None:
            return self._word(text)
        if match[2]:
            self._tail, self._cut, self._tail_factor = text[match.end(1) :], match.end(1) - len(text), factor
        value = float(match[1]) * factor
        return value if self._metric.plausible(value) else np.nan

    def _word(self, text: str) -> float:
        word = text.lower()
        if word in self._words:
            return self._words[word]
        if self._hex and _HEX.fullmatch(text):
            return float(int(text, 16))
        return BAD if missing_reason(word) is None else np.nan


def doubt(metric: Metric, values: NDArray[np.float64]) -> bool:
    """Whether bare numbers, read in nvidia-smi's unit for want of another, cannot be in it: a share of 1, gigabytes, milliwatts.

    *values* are some readings of the column in our unit, without NaN.
    """
    if not len(values):
        return False
    top, whole = float(values.max()), bool((values % 1 == 0).all())
    if metric.unit == "percent":
        return top <= 1.0 and not whole
    if metric.unit == "bytes":
        counts = values / _UNSAID["bytes"]
        if metric.name == "memory_total_bytes" and top < 2.0**27:
            return True
        return top >= 2.0**44 or (0 < counts.max() < 1024 and bool((counts % 1 != 0).any()))
    if metric.unit == "watts":
        return top > 3000.0
    if metric.unit == "mhz":
        return top > 10_000.0 or (top < 10.0 and not whole)
    return False


def is_value(text: str) -> bool:
    """Whether a cell holds a number, with or without a unit, or says in brackets that there is none: no header does."""
    match = _NUMBER.fullmatch(text)
    if match is not None:
        return not match[2] or _unit(match[2]) in _UNIT_WORDS
    return missing_reason(text) not in (None, "")
