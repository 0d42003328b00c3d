"""How boards answer to load: clocks, power, heat, counters. First-order models, vectorised over all devices."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from detector.metrics import METRICS
from detector.sources.simulator.boards import MIB, Board
from detector.sources.simulator.fleet import Fleet
from detector.sources.simulator.tick import Booleans, Floats, Tick

IDLE: Final = 0x1
SW_POWER_CAP: Final = 0x4
HW_SLOWDOWN: Final = 0x8
SW_THERMAL: Final = 0x20
HW_THERMAL: Final = 0x40
POWER_BRAKE: Final = 0x80
"""Clock event reasons, as NVML numbers them."""

ROOM_CELSIUS: Final = 25.0
_HEADROOM: Final = 1.15
"""What the heaviest kernels would draw at full clock, as a multiple of the power limit."""
_DIE_SHARE: Final = 0.2
"""Share of the thermal resistance between die and heat sink: this part of a rise follows power at once."""
_POWER_SECONDS: Final = 1.0
_LINGER_SECONDS: Final = 15.0
"""How long clocks stay up after the last kernel."""
_NVLINK_BYTES_PER_SECOND: Final = 25e9

_ACTIVITY: Final = ("utilization_percent", "memory_utilization_percent", "encoder_utilization_percent", "decoder_utilization_percent")
_PROFILED: Final = ("graphics_engine_active_percent", "sm_active_percent", "tensor_active_percent", "dram_active_percent")
_OF_INSTANCES: Final = (*_PROFILED, "memory_total_bytes", "memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes",
                        "bar1_used_bytes", "bar1_total_bytes", "process_count")  # fmt: skip
_ECC: Final = ("ecc_corrected_volatile_total", "ecc_uncorrected_volatile_total", "ecc_corrected_aggregate_total",
               "ecc_uncorrected_aggregate_total", "ecc_mode", "ecc_mode_pending")  # fmt: skip
_REMAPPING: Final = ("remapped_rows_corrected_total", "remapped_rows_uncorrected_total", "remapped_rows_pending", "remapped_rows_failure")
_RETIRING: Final = ("retired_pages_single_bit_total", "retired_pages_double_bit_total", "retired_pages_pending")
_NVLINK: Final = ("nvlink_links_active", "nvlink_links_total", "nvlink_errors_total", "nvlink_tx_bytes_total", "nvlink_rx_bytes_total")
_AT_ZERO: Final = (
    "encoder_utilization_percent", "decoder_utilization_percent", "sw_power_cap_seconds_total", "sw_thermal_seconds_total",
    "hw_thermal_seconds_total", "hw_power_brake_seconds_total", "sync_boost_seconds_total", "ecc_uncorrected_volatile_total",
    "ecc_uncorrected_aggregate_total", *_REMAPPING, *_RETIRING, "nvlink_errors_total", "nvlink_tx_bytes_total", "nvlink_rx_bytes_total",
    "recovery_action", "compute_mode",
)  # fmt: skip

COLUMNS: Final = tuple(
    name for name, metric in METRICS.items() if metric.entity == "device" and metric.nvml and name != "fabric_state"
)  # fmt: skip
"""The metrics that the simulator shows, in the order of the catalogue: what NVML tells, without fabrics."""


def unsupported(board: Board, instance: bool) -> frozenset[str]:
    """The metrics that a device with this board does not have."""
    if instance:
        return frozenset(COLUMNS) - set(_OF_INSTANCES)
    missing: set[str] = set()
    for has, names in (
        (not board.mig, _ACTIVITY),
        (board.profiles and not board.mig, _PROFILED),
        (board.ecc, _ECC),
        (board.remaps_rows, _REMAPPING),
        (board.ecc and not board.remaps_rows, _RETIRING),
        (board.nvlinks > 0, _NVLINK),
        (board.fan, ("fan_speed_percent", "fan_speed_rpm")),
        (board.reports_margin, ("temperature_margin_celsius", "temperature_margin_slowdown_celsius")),
        (not math.isnan(board.memory_max), ("memory_temperature_celsius", "memory_temperature_max_celsius")),
        (not board.mig, ("process_count",)),
        (board.partitionable, ("mig_mode", "mig_mode_pending")),
    ):
        if not has:
            missing.update(names)
    return frozenset(missing)


class Physics:
    """The state of every board. `table` is shaped (metrics, devices), a row a metric of COLUMNS, NaN where a board has none.

    `column` names the rows of `table`. Gauges are written anew in each step; counters and states stay until something changes them.
    """

    def __init__(self, fleet: Fleet, seed: int, missing: Booleans) -> None:
        """*missing*, shaped (metrics, devices), is true where a device does not have the metric."""
        self.table = np.full((len(COLUMNS), len(fleet.devices)), np.nan)
        self.column = dict(zip(COLUMNS, self.table, strict=True))
        self._missing = missing
        self._boards = {
            name: np.array([getattr(board, name) for board in fleet.boards])
            for name in (
                "memory_mib", "reserved_mib", "power_limit", "idle_watts", "context_watts", "sm_clock", "sm_clock_idle", "memory_clock",
                "memory_clock_idle", "rest_state", "rests_with_context", "busy_celsius", "settle_seconds", "slowdown", "max_operating",
                "pcie_rests", "nvlinks",
            )
        }  # fmt: skip
        self._random = np.random.default_rng((seed, 4))
        devices = len(fleet.devices)
        spread = self._random.uniform(0.92, 1.06, devices)
        self._resistance = (self._boards["busy_celsius"] - ROOM_CELSIUS) / self._boards["power_limit"] * spread
        self._inlet = ROOM_CELSIUS + self._random.uniform(-2.0, 2.0, devices)
        self._sink, self._power, self._throttle = np.zeros(devices), np.zeros(devices), np.ones(devices)
        self._worked_at = np.full(devices, -math.inf)
        self._started = False
        self._write_constants(fleet)

    def step(self, tick: Tick) -> None:
        """Move on by `tick.dt` seconds; the first step finds everything settled."""
        b, c, dt = self._boards, self.column, tick.dt
        settle = dt if self._started else math.inf
        self._started = True
        noise = self._random.standard_normal((4, len(self._power)))
        working = tick.busy > 0.004
        self._worked_at[working] = tick.at
        lingering = tick.context & (tick.at - self._worked_at <= _LINGER_SECONDS)
        resting = ~working & ~lingering & (~tick.context | b["rests_with_context"])

        floor = np.where(tick.context | working, b["context_watts"], b["idle_watts"])
        dynamic = (_HEADROOM * b["power_limit"] - floor) * np.maximum(tick.intensity, 0.0)
        allowed = np.minimum(tick.clock_limit, self._throttle)
        affordable = np.cbrt((b["power_limit"] - floor) / np.maximum(dynamic, 1e-9))
        capped = affordable < allowed
        ratio = np.minimum(np.minimum(allowed, affordable), 1.0)
        power = np.minimum(floor + dynamic * ratio**3, b["power_limit"])
        self._power += (power * (1.0 + 0.004 * noise[0]) - self._power) * _approach(settle, _POWER_SECONDS)

        temperature = self._heat(tick, settle)
        warm = temperature >= b["slowdown"] - 3.0
        hot = temperature >= b["slowdown"] - 1.0
        reasons = tick.reasons | np.where(working, 0, IDLE)
        reasons |= np.where(capped & working, SW_POWER_CAP, 0)
        reasons |= np.where(warm & working, SW_THERMAL, 0) | np.where(hot & working, HW_THERMAL | HW_SLOWDOWN, 0)

        c["utilization_percent"][:] = np.rint(100.0 * tick.busy)
        c["memory_utilization_percent"][:] = np.rint(100.0 * np.clip(tick.bandwidth, 0.0, 1.0))
        c["power_watts"][:] = np.round(self._power, 3)
        c["sm_clock_mhz"][:] = np.where(resting, b["sm_clock_idle"], 15.0 * np.floor(b["sm_clock"] * ratio / 15.0))
        c["memory_clock_mhz"][:] = np.where(resting, b["memory_clock_idle"], b["memory_clock"])
        c["performance_state"][:] = np.where(resting, b["rest_state"], 0)
        c["clock_event_reasons"][:] = reasons
        self._write_activity(tick, ratio)
        self._write_memory(tick)
        self._write_temperatures(tick, temperature, noise)
        self._write_links(tick, resting, noise[3])
        self._count(tick, reasons)
        np.copyto(self.table, np.nan, where=self._missing)

    def _heat(self, tick: Tick, settle: float) -> Floats:
        """Core temperature. The heat sink follows power slowly, the die sits above it at once; the hotter, the slower the clocks."""
        room = self._inlet + 1.5 * math.sin(2.0 * math.pi * tick.at / 86_400.0)
        sink = room + (1.0 - _DIE_SHARE) * self._resistance * tick.heating * self._power
        self._sink += (sink - self._sink) * _approach(settle, self._boards["settle_seconds"])
        temperature: Floats = self._sink + _DIE_SHARE * self._resistance * self._power
        # An integrating controller: slow enough not to ring, whatever the step.
        gain = 0.01 * min(tick.dt, 1.2)
        self._throttle = np.clip(self._throttle + gain * (self._boards["slowdown"] - 1.0 - temperature), 0.3, 1.0)
        return temperature

    def _write_activity(self, tick: Tick, ratio: Floats) -> None:
        c = self.column
        c["graphics_engine_active_percent"][:] = np.round(100.0 * tick.busy, 2)
        # Spinning kernels keep a few SMs busy; real ones fill them with their intensity.
        c["sm_active_percent"][:] = np.round(100.0 * tick.busy * np.minimum(1.0, 0.1 + tick.intensity), 2)
        c["tensor_active_percent"][:] = np.round(55.0 * np.clip(tick.intensity - 0.1, 0.0, 1.0) * ratio, 2)
        c["dram_active_percent"][:] = np.round(80.0 * np.clip(tick.bandwidth, 0.0, 1.0), 2)

    def _write_memory(self, tick: Tick) -> None:
        c = self.column
        room = c["memory_total_bytes"] - c["memory_reserved_bytes"]
        c["memory_used_bytes"][:] = np.minimum(tick.memory, room)
        c["memory_free_bytes"][:] = room - c["memory_used_bytes"]
        c["bar1_used_bytes"][:] = np.where(tick.context, 6.0, 1.0) * MIB

    def _write_temperatures(self, tick: Tick, temperature: Floats, noise: Floats) -> None:
        b, c = self._boards, self.column
        core = np.rint(temperature + 0.25 * noise[1])
        c["temperature_celsius"][:] = core
        c["temperature_margin_celsius"][:] = b["max_operating"] - core
        c["memory_temperature_celsius"][:] = np.rint(temperature + 3.0 + 6.0 * np.clip(tick.bandwidth, 0.0, 1.0) + 0.25 * noise[2])
        fan = np.where(temperature < 48.0, 0.0, np.rint(np.clip(30.0 + 1.7 * (temperature - 48.0), 30.0, 100.0)))
        c["fan_speed_percent"][:] = fan
        c["fan_speed_rpm"][:] = np.where(fan > 0.0, np.rint(32.0 * fan + 10.0 * noise[2]), 0.0)

    def _write_links(self, tick: Tick, resting: Booleans, noise: Floats) -> None:
        b, c = self._boards, self.column
        best = c["pcie_link_generation_max"]
        c["pcie_link_generation"][:] = np.where(resting & b["pcie_rests"], 1.0, best)
        lanes = 0.25e9 * 2.0 ** (best - 1.0) * c["pcie_link_width"]
        traffic = np.maximum(lanes * tick.pcie * (1.0 + 0.1 * noise), 0.0)
        c["pcie_tx_bytes_per_second"][:] = np.rint(0.4 * traffic)
        c["pcie_rx_bytes_per_second"][:] = np.rint(traffic)

    def _count(self, tick: Tick, reasons: np.ndarray) -> None:
        b, c, dt = self._boards, self.column, tick.dt
        c["energy_joules_total"] += np.round(self._power * dt, 3)
        for name, bits in (
            ("sw_power_cap_seconds_total", SW_POWER_CAP),
            ("sw_thermal_seconds_total", SW_THERMAL),
            ("hw_thermal_seconds_total", HW_THERMAL),
            ("hw_power_brake_seconds_total", POWER_BRAKE),
        ):
            c[name] += dt * ((reasons & bits) != 0)
        for name in ("nvlink_tx_bytes_total", "nvlink_rx_bytes_total"):
            c[name] += np.rint(_NVLINK_BYTES_PER_SECOND * b["nvlinks"] * np.maximum(tick.nvlink, 0.0) * dt)
        # What healthy boards have, too: a corrected error every other day, a PCIe packet a day that is sent again.
        luck = self._random.random((2, len(self._power)))
        corrected = luck[0] < dt / 172_800.0
        c["ecc_corrected_volatile_total"] += corrected
        c["ecc_corrected_aggregate_total"] += corrected
        c["pcie_replay_total"] += luck[1] < dt / 86_400.0

    def _write_constants(self, fleet: Fleet) -> None:
        b, c, rng = self._boards, self.column, self._random
        devices = len(fleet.devices)
        for name in _AT_ZERO:
            c[name][:] = 0.0
        c["memory_total_bytes"][:] = b["memory_mib"] * MIB
        c["memory_reserved_bytes"][:] = b["reserved_mib"] * MIB
        c["bar1_total_bytes"][:] = 2.0 ** np.ceil(np.log2(b["memory_mib"])) * MIB
        c["power_limit_watts"][:] = c["power_default_limit_watts"][:] = b["power_limit"]
        c["sm_clock_max_mhz"][:], c["memory_clock_max_mhz"][:] = b["sm_clock"], b["memory_clock"]
        c["temperature_slowdown_celsius"][:], c["temperature_max_operating_celsius"][:] = b["slowdown"], b["max_operating"]
        c["temperature_shutdown_celsius"][:] = [board.shutdown for board in fleet.boards]
        c["memory_temperature_max_celsius"][:] = [board.memory_max for board in fleet.boards]
        c["temperature_margin_slowdown_celsius"][:] = b["max_operating"] - b["slowdown"]
        c["pcie_link_generation_max"][:] = [board.pcie[0] for board in fleet.boards]
        c["pcie_link_width_max"][:] = c["pcie_link_width"][:] = [board.pcie[1] for board in fleet.boards]
        c["nvlink_links_active"][:] = c["nvlink_links_total"][:] = b["nvlinks"]
        c["ecc_mode"][:] = c["ecc_mode_pending"][:] = c["persistence_mode"][:] = 1.0
        c["mig_mode"][:] = c["mig_mode_pending"][:] = [float(bool(board.mig)) for board in fleet.boards]
        # A driver that has been loaded for some days, boards that have served for some years.
        c["energy_joules_total"][:] = np.rint(rng.uniform(2.0, 20.0, devices) * 86_400.0 * b["idle_watts"])
        c["ecc_corrected_volatile_total"][:] = rng.poisson(1.0, devices)
        c["ecc_corrected_aggregate_total"][:] = c["ecc_corrected_volatile_total"] + rng.poisson(20.0, devices)
        c["pcie_replay_total"][:] = rng.poisson(3.0, devices)


def _approach(seconds: float, constant: Floats | float) -> Floats:
    """How much of the way a first-order lag goes in *seconds*."""
    return np.asarray(1.0 - np.exp(-seconds / np.asarray(constant)))
