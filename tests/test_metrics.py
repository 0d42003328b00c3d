"""The metric catalogue."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from detector.metrics import METRICS, Metric

PER_DEVICE = """
utilization_percent graphics_engine_active_percent memory_utilization_percent encoder_utilization_percent
decoder_utilization_percent sm_active_percent tensor_active_percent dram_active_percent
memory_total_bytes memory_used_bytes memory_free_bytes memory_reserved_bytes bar1_used_bytes bar1_total_bytes
temperature_celsius memory_temperature_celsius temperature_margin_celsius temperature_margin_slowdown_celsius
temperature_slowdown_celsius temperature_shutdown_celsius temperature_max_operating_celsius memory_temperature_max_celsius
fan_speed_percent fan_speed_rpm
power_watts power_limit_watts power_default_limit_watts energy_joules_total
sm_clock_mhz sm_clock_max_mhz memory_clock_mhz memory_clock_max_mhz sm_clock_application_mhz performance_state clock_event_reasons
sw_power_cap_seconds_total sw_thermal_seconds_total hw_thermal_seconds_total hw_power_brake_seconds_total sync_boost_seconds_total
ecc_corrected_volatile_total ecc_uncorrected_volatile_total ecc_corrected_aggregate_total ecc_uncorrected_aggregate_total
ecc_mode ecc_mode_pending
remapped_rows_corrected_total remapped_rows_uncorrected_total remapped_rows_pending remapped_rows_failure
retired_pages_single_bit_total retired_pages_double_bit_total retired_pages_pending
pcie_link_generation pcie_link_generation_max pcie_link_width pcie_link_width_max pcie_replay_total
pcie_tx_bytes_per_second pcie_rx_bytes_per_second
nvlink_links_active nvlink_links_total nvlink_errors_total nvlink_tx_bytes_total nvlink_rx_bytes_total
recovery_action persistence_mode compute_mode mig_mode mig_mode_pending fabric_state process_count
"""
PER_PROCESS = "process_memory_used_bytes process_sm_utilization_percent"
PER_JOB = "job_loss job_step_total"

UNITS = {"percent", "bytes", "celsius", "rpm", "watts", "joules", "mhz", "seconds"}
"""Units that a name carries as its last word, before `_total`."""
HELD = """
memory_total_bytes bar1_total_bytes temperature_margin_slowdown_celsius temperature_slowdown_celsius temperature_shutdown_celsius
temperature_max_operating_celsius memory_temperature_max_celsius power_limit_watts power_default_limit_watts sm_clock_max_mhz
memory_clock_max_mhz pcie_link_generation_max pcie_link_width_max nvlink_links_total
"""

EVERY = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


@pytest.mark.parametrize(("names", "entity"), [(PER_DEVICE, "device"), (PER_PROCESS, "process"), (PER_JOB, "job")])
def test_every_promised_metric_is_there(names: str, entity: str) -> None:
    """Tools, recordings and configurations rely on these names."""
    assert [] == [name for name in names.split() if name not in METRICS]
    assert {entity} == {METRICS[name].entity for name in names.split()}


@EVERY
def test_a_metric_is_filed_under_its_name(metric: Metric) -> None:
    """And says in a sentence what it is."""
    assert METRICS[metric.name] is metric
    assert metric.description.endswith(".")


@EVERY
def test_a_name_ends_in_its_unit(metric: Metric) -> None:
    """Names of other units (counts, codes, flags) carry none."""
    stem = metric.name.removesuffix("_total")
    if metric.name.endswith("_per_second"):
        assert "bytes_per_second" == metric.unit
    else:
        assert (metric.unit if metric.unit in UNITS else None) == (last if (last := stem.rpartition("_")[2]) in UNITS else None)


@EVERY
def test_a_counter_ends_in_total(metric: Metric) -> None:
    """And nothing else does, but the number of links, which is a total that does not count up."""
    assert (metric.kind == "counter" or metric.name == "nvlink_links_total") == metric.name.endswith("_total")


def test_no_source_calls_two_metrics_the_same() -> None:
    """A column of nvidia-smi, a field of DCGM: each is one metric."""
    columns = Counter(name for metric in METRICS.values() for name in metric.smi)
    fields = Counter(name for metric in METRICS.values() for name, _ in metric.dcgm)

    assert [] == [name for name, count in (columns + fields).items() if count > 1]


@EVERY
def test_names_of_sources_look_like_theirs(metric: Metric) -> None:
    """nvidia-smi's are lower case without the unit in brackets, DCGM's are field names with a factor that is not zero."""
    assert [] == [name for name in metric.smi if name != name.lower() or "[" in name or " " in name]
    assert [] == [name for name, factor in metric.dcgm if not name.startswith("DCGM_FI_") or not 0 < factor < math.inf]


def test_limits_and_totals_hold() -> None:
    """They may stand in the first frame only; nothing that moves does so."""
    assert set(HELD.split()) == {name for name, metric in METRICS.items() if metric.held}


@EVERY
def test_a_metric_has_a_range_and_a_cadence(metric: Metric) -> None:
    """Something between its low and its high is plausible, and it is read now and then."""
    assert metric.low < metric.high
    assert metric.plausible(metric.low if math.isfinite(metric.low) else 0.0)
    assert metric.plausible(metric.high)
    assert 0 < metric.cadence <= 60.0


@pytest.mark.parametrize(
    ("name", "value", "plausible"),
    [
        ("utilization_percent", 0.0, True),
        ("utilization_percent", 100.0, True),
        ("utilization_percent", 101.0, False),
        ("utilization_percent", 4_294_967_295.0, False),
        ("utilization_percent", -1.0, False),
        ("utilization_percent", math.inf, False),
        ("fan_speed_percent", 105.0, True),
        ("memory_used_bytes", 192 * 1024.0**3, True),
        ("memory_used_bytes", 2.0**64 - 1, False),
        ("energy_joules_total", 9_223_372_036_854_775_794.0, False),
        ("temperature_celsius", -5.0, True),
        ("temperature_celsius", 255.0, False),
        ("memory_temperature_celsius", 0.0, False),
        ("temperature_margin_slowdown_celsius", -2.0, True),
        ("performance_state", 15.0, True),
        ("performance_state", 32.0, False),
        ("pcie_link_width", 0.0, False),
        ("job_loss", -3.5, True),
        ("job_loss", math.inf, True),
        ("job_loss", -math.inf, True),
        ("job_loss", math.nan, True),
    ],
)
def test_what_can_be_a_reading(name: str, value: float, plausible: bool) -> None:
    """A driver's blank cannot; a diverged loss can."""
    assert plausible == METRICS[name].plausible(value)


def test_a_derived_flag_is_one_bit_of_the_reasons() -> None:
    """Each another one, as nvml.h numbers them."""
    bits = {name: metric.bit for name, metric in METRICS.items() if metric.bit}

    assert {
        "gpu_idle_active": 0x1,
        "sw_power_cap_active": 0x4,
        "hw_slowdown_active": 0x8,
        "sw_thermal_active": 0x20,
        "hw_thermal_active": 0x40,
        "power_brake_active": 0x80,
    } == bits
