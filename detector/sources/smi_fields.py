"""The fields of `nvidia-smi -q`, as text and as XML, old names and new, and how their values are read.

A field is called by its place: the names of its sections and its own, small, with underscores (`fb_memory_usage/used`). Text and XML
agree on most of them that way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from detector.frame import FaultKind
from detector.metrics import METRICS
from detector.sources.columns import BAD, Cells, column, missing_reason

_PLACES: Final[dict[str, tuple[str, ...]]] = {
    "utilization_percent": ("utilization/gpu", "utilization/gpu_util"),
    "memory_utilization_percent": ("utilization/memory", "utilization/memory_util"),
    "encoder_utilization_percent": ("utilization/encoder", "utilization/encoder_util"),
    "decoder_utilization_percent": ("utilization/decoder", "utilization/decoder_util"),
    **{
        f"memory_{part}_bytes": (f"fb_memory_usage/{part}", f"shared_fb_memory_usage/{part}", f"memory_usage/{part}")
        for part in ("total", "used", "free", "reserved")
    },
    **{f"bar1_{part}_bytes": (f"bar1_memory_usage/{part}", f"shared_bar1_memory/{part}") for part in ("used", "total")},
    "temperature_celsius": ("temperature/gpu_current_temp", "temperature/gpu_temp", "temperature/gpu"),
    "memory_temperature_celsius": ("temperature/memory_current_temp", "temperature/memory_temp"),
    "temperature_margin_celsius": ("temperature/gpu_t.limit_temp", "temperature/gpu_temp_tlimit"),
    "temperature_margin_slowdown_celsius": ("temperature/gpu_slowdown_t.limit_temp", "temperature/gpu_temp_slow_tlimit_threshold"),
    "temperature_slowdown_celsius": ("temperature/gpu_slowdown_temp", "temperature/gpu_temp_slow_threshold"),
    "temperature_shutdown_celsius": ("temperature/gpu_shutdown_temp", "temperature/gpu_temp_max_threshold"),
    "temperature_max_operating_celsius": ("temperature/gpu_max_operating_temp", "temperature/gpu_temp_max_gpu_threshold"),
    "memory_temperature_max_celsius": ("temperature/memory_max_operating_temp", "temperature/gpu_temp_max_mem_threshold"),
    "fan_speed_percent": ("fan_speed",),
    "power_watts": (
        "gpu_power_readings/power_draw", "gpu_power_readings/average_power_draw",
        "gpu_power_readings/instantaneous_power_draw", "gpu_power_readings/instant_power_draw", "power_readings/power_draw",
    ),
    "power_limit_watts": ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit", "power_readings/power_limit"),
    "power_default_limit_watts": ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
    "sm_clock_mhz": ("clocks/sm", "clocks/sm_clock"),
    "sm_clock_max_mhz": ("max_clocks/sm", "max_clocks/sm_clock"),
    "memory_clock_mhz": ("clocks/memory", "clocks/mem_clock"),
    "memory_clock_max_mhz": ("max_clocks/memory", "max_clocks/mem_clock"),
    "sm_clock_application_mhz": ("applications_clocks/graphics", "applications_clocks/graphics_clock"),
    "performance_state": ("performance_state",),
    **{
        metric: (f"clocks_event_reasons_counters/{name}", f"clocks_event_reasons_counters/clocks_event_reasons_counters_{tag}")
        for metric, name, tag in (
            ("sw_power_cap_seconds_total", "sw_power_capping", "sw_power_cap"),
            ("sw_thermal_seconds_total", "sw_thermal_slowdown", "sw_therm_slowdown"),
            ("hw_thermal_seconds_total", "hw_thermal_slowdown", "hw_therm_slowdown"),
            ("hw_power_brake_seconds_total", "hw_power_braking", "hw_power_brake"),
            ("sync_boost_seconds_total", "sync_boost", "sync_boost"),
        )
    },
    "ecc_mode": ("ecc_mode/current", "ecc_mode/current_ecc"),
    "ecc_mode_pending": ("ecc_mode/pending", "ecc_mode/pending_ecc"),
    "remapped_rows_corrected_total": ("remapped_rows/correctable_error", "remapped_rows/remapped_row_corr"),
    "remapped_rows_uncorrected_total": ("remapped_rows/uncorrectable_error", "remapped_rows/remapped_row_unc"),
    "remapped_rows_pending": ("remapped_rows/pending", "remapped_rows/remapped_row_pending"),
    "remapped_rows_failure": ("remapped_rows/remapping_failure_occurred", "remapped_rows/remapped_row_failure"),
    "retired_pages_single_bit_total": ("retired_pages/single_bit_ecc", "retired_pages/multiple_single_bit_retirement/retired_count"),
    "retired_pages_double_bit_total": ("retired_pages/double_bit_ecc", "retired_pages/double_bit_retirement/retired_count"),
    "retired_pages_pending": (
        "retired_pages/pending_page_blacklist", "retired_pages/pending",
        "retired_pages/pending_blacklist", "retired_pages/pending_retirement",
    ),
    "pcie_link_generation": ("pci/gpu_link_info/pcie_generation/current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
    "pcie_link_generation_max": ("pci/gpu_link_info/pcie_generation/max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    "pcie_link_width": ("pci/gpu_link_info/link_width/current", "pci/pci_gpu_link_info/link_widths/current_link_width"),
    "pcie_link_width_max": ("pci/gpu_link_info/link_width/max", "pci/pci_gpu_link_info/link_widths/max_link_width"),
    "pcie_replay_total": ("pci/replays_since_reset", "pci/replay_counter"),
    "pcie_tx_bytes_per_second": ("pci/tx_throughput", "pci/tx_util"),
    "pcie_rx_bytes_per_second": ("pci/rx_throughput", "pci/rx_util"),
    "persistence_mode": ("persistence_mode",),
    "compute_mode": ("compute_mode",),
    "mig_mode": ("mig_mode/current", "mig_mode/current_mig"),
    "mig_mode_pending": ("mig_mode/pending", "mig_mode/pending_mig"),
    "fabric_state": ("fabric/state",),
    "recovery_action": ("gpu_recovery_action",),
}  # fmt: skip
"""Metric -> the places of its value, the best first."""

_COUNTS: Final = {
    "corrected": ("single_bit", ("sram_correctable", "dram_correctable")),
    "uncorrected": (
        "double_bit",
        (
            "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_sec-ded", "sram_uncorrectable_secded",
            "dram_uncorrectable",
        ),
    ),
}  # fmt: skip
_ECC_SECTIONS: Final = {since: (f"ecc_errors/{since}", f"ecc_error_count/{since}_count") for since in ("volatile", "aggregate")}
_ECC: Final = {
    f"ecc_{kind}_{since}_total": (
        tuple(f"{section}/{bit}/total" for section in sections),
        tuple(f"{section}/{part}" for section in sections for part in parts),
    )
    for since, sections in _ECC_SECTIONS.items()
    for kind, (bit, parts) in _COUNTS.items()
}
"""Metric -> the places of the total, and from Ampere on those of the parts that make it up."""

_BITS: Final = {
    f"clocks_{word}_reasons/{name}": bit
    for word in ("event", "throttle")
    for reason in (
        "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
        "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown",
    )
    for bit in [column(f"clocks_event_reasons.{reason}").bit]
    for name in ("idle" if reason == "gpu_idle" else reason, f"hw_slowdown/{reason}", f"clocks_{word}_reason_{reason}")
}  # fmt: skip
_ALWAYS: Final = frozenset(_BITS[f"clocks_event_reasons/{reason}"] for reason in ("sw_power_cap", "hw_slowdown", "sync_boost"))
"""Reasons that every driver knows."""
_RESET: Final = {"gpu_reset_status/reset_required": 1.0, "gpu_reset_status/drain_and_reset_recommended": 4.0}
"""What newer drivers say as the recovery action."""

PLACES: Final = frozenset(
    (
        *(place for places in _PLACES.values() for place in places),
        *(place for totals, parts in _ECC.values() for place in (*totals, *parts)),
        *_BITS,
        *_RESET,
    )
)
"""All places that are read; what stands elsewhere need not be kept."""

_FABRIC: Final = {"not supported": "N/A", "not started": "1", "in progress": "2", "completed": "3"}
_VITAL: Final = ("temperature_celsius", "power_watts", "utilization_percent", "performance_state")
_WITH_UNIT: Final = frozenset({"percent", "bytes", "celsius", "watts", "mhz", "seconds"})
_BARE: Final = re.compile(r"[-+.\de]+", re.IGNORECASE)
_WIDTH: Final = re.compile(r"(\d+)x")
_RATE: Final = re.compile(r"(\d+) KB/s")


@dataclass(slots=True)
class Reading:
    """What the fields of one device say."""

    readings: dict[str, float] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    """metric -> why there is no reading."""
    fault: FaultKind | None = None
    bad: list[str] = field(default_factory=list)
    """Metrics whose field holds something that is no reading of it."""


class Fields:
    """Reads fields. Values repeat, so each is read once and then looked up."""

    def __init__(self) -> None:
        self._cells = {metric: Cells(METRICS[metric], None) for metric in (*_PLACES, *_ECC)}
        self._flag = Cells(METRICS["ecc_mode"], None)

    def read(self, said: Mapping[str, str], *, instance: bool = False) -> Reading:
        """*said* is place -> text, of a GPU or of a MIG *instance*."""
        out = Reading()
        for metric, places in _PLACES.items():
            self._first(out, metric, places, said)
        for metric, (totals, parts) in _ECC.items():
            self._first(out, metric, totals, said)
            if metric not in out.readings:
                self._sum(out, metric, [part for part in parts if part in said], said, instance)
        self._mask(out, said)
        if "recovery_action" not in out.readings:
            self._reset(out, said)
        out.fault = _fault(out)
        return out

    def _first(self, out: Reading, metric: str, places: tuple[str, ...], said: Mapping[str, str]) -> None:
        """The best of several places; where none has a reading, why the best has none."""
        for place in places:
            text = said.get(place)
            if text is None:
                continue
            value = self._value(metric, text)
            if value == BAD:
                out.bad.append(metric)
            elif value == value:
                out.readings[metric] = value
                out.unavailable.pop(metric, None)
                return
            elif reason := missing_reason(text):
                out.unavailable.setdefault(metric, reason)

    def _value(self, metric: str, text: str) -> float:
        """The reading in our unit, NaN where there is none, BAD where the text cannot be one.

        A number that has lost its unit may have lost digits as well.
        """
        unit = METRICS[metric].unit
        if unit in _WITH_UNIT:
            return BAD if _BARE.fullmatch(text) else self._cells[metric][text]
        if unit == "lanes" and (width := _WIDTH.fullmatch(text)):
            text = width[1]
        elif unit == "bytes_per_second" and (rate := _RATE.fullmatch(text)):
            return float(rate[1]) * 1000.0
        elif metric == "fabric_state":
            text = _FABRIC.get(text.lower(), text)
        elif metric == "recovery_action":
            text = text.replace("_", " ")
        return self._cells[metric][text]

    def _sum(self, out: Reading, metric: str, parts: list[str], said: Mapping[str, str], instance: bool) -> None:
        """A part that the board does not count is none; one that could not be read, or is cut off, leaves the sum unknown.

        The last part is DRAM's, which instances have no count of.
        """
        if not instance and not any("/dram_" in part for part in parts):
            return
        texts = [said[part] for part in parts]
        values = [self._cells[metric][text] for text in texts]
        reasons = [missing_reason(text) for text in texts]
        known = [value for value in values if value == value]
        if BAD in values:
            out.bad.append(metric)
        elif known and all(reason in (None, "not_supported") for reason in reasons):
            out.readings[metric] = sum(known)
            out.unavailable.pop(metric, None)
        elif reason := next(filter(None, reasons), None):
            out.unavailable.setdefault(metric, reason)

    def _mask(self, out: Reading, said: Mapping[str, str]) -> None:
        """The reasons that are active; unknown where one of them is, or where the page does not tell what all drivers tell."""
        texts = {bit: said[place] for place, bit in _BITS.items() if place in said}
        flags = {bit: self._flag[text] for bit, text in texts.items()}
        if flags.keys() >= _ALWAYS and all(flag in (0.0, 1.0) for flag in flags.values()):
            out.readings["clock_event_reasons"] = float(sum(bit for bit, flag in flags.items() if flag))
        elif reason := next(filter(None, map(missing_reason, texts.values())), None):
            out.unavailable["clock_event_reasons"] = reason

    def _reset(self, out: Reading, said: Mapping[str, str]) -> None:
        flags = {action: self._flag[said[place]] for place, action in _RESET.items() if place in said}
        if any(flag in (0.0, 1.0) for flag in flags.values()):
            out.readings["recovery_action"] = next((action for action, flag in flags.items() if flag == 1.0), 0.0)
            out.unavailable.pop("recovery_action", None)


def _fault(out: Reading) -> FaultKind | None:
    """Why the device as a whole cannot be read. An error in a field or two is no fault."""
    reasons = [out.unavailable.get(metric) for metric in (*_VITAL, "memory_used_bytes")]
    if "gpu_lost" in reasons:
        return "gpu_lost"
    if "reset_required" in reasons:
        return "reset_required"
    # ERR! all over is how nvidia-smi shows a GPU that has fallen off the bus; the memory, which it knows by heart, may still have values.
    errors = sum(out.unavailable.get(metric) == "unknown" for metric in _VITAL)
    return "gpu_lost" if errors >= 3 and out.readings.keys().isdisjoint(_VITAL) else None
