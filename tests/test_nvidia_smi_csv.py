"""nvidia-smi's CSV as people record it: every dialect, and every way in which a log goes wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import SourceError
from detector.frame import Device, Fault, Frame
from detector.metrics import METRICS
from detector.sources.columns import column
from detector.sources.recording import Problems, ReadOptions, read_recording
from detector.sources.timestamps import UNDATED

EIGHT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC).timestamp()
MIB = 1024.0 * 1024.0
UTILIZATION = "utilization_percent"


def read(path: Path, text: str, problems: Problems | None = None, **options: Any) -> list[Frame]:
    """The frames of a log with this text, naive times being UTC."""
    path = path / "smi.csv"
    path.write_text(text, newline="")
    return list(read_recording(path, options=ReadOptions(**{"timezone": "UTC", **options}), problems=problems))


def log(*rows: str, header: str = "timestamp, index, utilization.gpu [%]") -> str:
    return "".join(f"{line}\n" for line in (header, *rows))


def row(second: float, *cells: object, at: float = EIGHT) -> str:
    stamp = datetime.fromtimestamp(at + second, UTC)
    return ", ".join([f"{stamp:%Y/%m/%d %H:%M:%S}.{stamp.microsecond // 1000:03d}", *map(str, cells)])


def readings(frames: Sequence[Frame], metric: str = UTILIZATION, uuid: str = "INDEX-0") -> list[float]:
    return [frame.reading(uuid, metric) for frame in frames]


def seconds(frames: Sequence[Frame]) -> list[float]:
    return [round(frame.at - EIGHT, 3) for frame in frames]


def one_reading(tmp_path: Path, header: str, cell: str, **options: Any) -> tuple[str, float]:
    """The metric that a column is read as and the reading of its only cell; an empty name where the column is kept out."""
    text = log(row(0, "50 %", cell), header=f"timestamp, utilization.gpu [%], {header}")
    [frame] = read(tmp_path, text, **options)
    name = next((name for name in frame.metrics if name != UTILIZATION), "")
    return name, frame.reading("DEVICE-0", name)


# -- cells ------------------------------------------------------------------------------------------------------------------
CELLS = [
    ("memory.used [MiB]", "588 MiB", "memory_used_bytes", 588 * MIB),
    ("memory.used [MiB]", "588", "memory_used_bytes", 588 * MIB),
    ("memory.used", "588", "memory_used_bytes", 588 * MIB),
    ("memory.used", "588MiB", "memory_used_bytes", 588 * MIB),
    ("memory.used [MB]", "588 MB", "memory_used_bytes", 588 * MIB),
    ("memory.used [MiB]", "1.5 GiB", "memory_used_bytes", 1536 * MIB),
    ("memory.used [KiB]", "1024", "memory_used_bytes", MIB),
    ("memory.total [MiB]", "81559 MiB", "memory_total_bytes", 81559 * MIB),
    ("power.draw [W]", "612.53 W", "power_watts", 612.53),
    ("power.draw [mW]", "612530", "power_watts", 612.53),
    ("power.draw", "13", "power_watts", 13.0),
    ("power.draw.instant [W]", "13.5 W", "power_watts", 13.5),
    ("temperature.gpu", "53", "temperature_celsius", 53.0),
    ("temperature.gpu", "53 C", "temperature_celsius", 53.0),
    ("temperature.gpu.tlimit", "-2", "temperature_margin_celsius", -2.0),
    ("clocks.current.sm [MHz]", "1980 MHz", "sm_clock_mhz", 1980.0),
    ("clocks.sm [GHz]", "1.98", "sm_clock_mhz", 1980.0),
    ("pstate", "P8", "performance_state", 8.0),
    ("pstate", "0", "performance_state", 0.0),
    ("clocks_event_reasons.active", "0x0000000000000048", "clock_event_reasons", 72.0),
    ("clocks_throttle_reasons.active", "4", "clock_event_reasons", 4.0),
    ("clocks_event_reasons_counters.sw_power_cap [us]", "834002687 us", "sw_power_cap_seconds_total", 834.002687),
    ("clocks_event_reasons_counters.sync_boost", "2000000", "sync_boost_seconds_total", 2.0),
    ("ecc.mode.current", "Enabled", "ecc_mode", 1.0),
    ("persistence_mode", "Disabled", "persistence_mode", 0.0),
    ("remapped_rows.pending", "Yes", "remapped_rows_pending", 1.0),
    ("retired_pages.pending", "No", "retired_pages_pending", 0.0),
    ("ecc.errors.uncorrected.volatile.total", "3", "ecc_uncorrected_volatile_total", 3.0),
    ("compute_mode", "Default", "compute_mode", 0.0),
    ("compute_mode", "Exclusive_Process", "compute_mode", 3.0),
    ("compute_mode", "Prohibited", "compute_mode", 2.0),
    *(("gpu_recovery_action", word, "recovery_action", float(n)) for n, word in enumerate(
        ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"))),
    ("fan.speed [%]", "38 %", "fan_speed_percent", 38.0),
    ("pcie.link.gen.current", "5", "pcie_link_generation", 5.0),
    ("mig.mode.current", "Enabled", "mig_mode", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("header", "cell", "metric", "value"), CELLS)
def test_a_cell_becomes_a_reading_in_our_unit(header: str, cell: str, metric: str, value: float, tmp_path: Path) -> None:
    """Units stand in the cell, in the header or nowhere; words and masks are numbers."""
    read_as, reading = one_reading(tmp_path, header, cell)

    assert metric == read_as
    assert value == pytest.approx(reading)


def test_every_name_that_nvidia_smi_has_in_the_catalogue_is_known() -> None:
    """The reader derives from the catalogue: a new row there is read here."""
    for metric in METRICS.values():
        for smi in metric.smi:
            assert metric.name == column(smi).metric


ALIASES = [
    ("gpu_util%", "97", UTILIZATION, 97.0),
    ("gpu_utilization", "97", UTILIZATION, 97.0),
    ("GPU Utilization (%)", "97", UTILIZATION, 97.0),
    ("utilization_gpu_percent", "97", UTILIZATION, 97.0),
    ("gpuUtil", "97", UTILIZATION, 97.0),
    ("GPU [%]", "97", UTILIZATION, 97.0),
    ("mem_util_percent", "33", "memory_utilization_percent", 33.0),
    ("mem_used_MB", "588", "memory_used_bytes", 588 * MIB),
    ("memory_used", "588", "memory_used_bytes", 588 * MIB),
    ("vram_used_gb", "1.5", "memory_used_bytes", 1536 * MIB),
    ("memory_usage_mib", "588", "memory_used_bytes", 588 * MIB),
    ("GPU Memory Used (MiB)", "588", "memory_used_bytes", 588 * MIB),
    ("memory_used_bytes", "588", "memory_used_bytes", 588.0),
    ("memory_total", "16384", "memory_total_bytes", 16384 * MIB),
    ("temp_c", "42", "temperature_celsius", 42.0),
    ("temperature_C", "42", "temperature_celsius", 42.0),
    ("Temperature [°C]", "42", "temperature_celsius", 42.0),
    ("power_draw_W", "5.20", "power_watts", 5.2),
    ("power_w", "5.20", "power_watts", 5.2),
    ("gpu_power_mw", "5200", "power_watts", 5.2),
    ("power_watts", "5.2", "power_watts", 5.2),
    ("sm_clock_mhz", "1980", "sm_clock_mhz", 1980.0),
    ("sm_freq", "1980", "sm_clock_mhz", 1980.0),
    ("fan_speed", "40", "fan_speed_percent", 40.0),
    ("fan_rpm", "2400", "fan_speed_rpm", 2400.0),
]


@pytest.mark.parametrize(("header", "cell", "metric", "value"), ALIASES)
def test_names_that_people_give_are_understood(header: str, cell: str, metric: str, value: float, tmp_path: Path) -> None:
    """Case, punctuation, short forms and unit suffixes do not matter."""
    [frame] = read(tmp_path, log(row(0, cell), header=f"timestamp, {header}"))

    assert (metric,) == frame.metrics
    assert value == pytest.approx(frame.reading("DEVICE-0", metric))


@pytest.mark.parametrize(
    ("header", "cell"),
    [
        ("gpu_util", "0.97"),  # a share of one
        ("memory_used", "16106127360"),  # bytes
        ("memory_total", "15.75"),  # GiB
        ("memory_total", "24"),
        ("power_draw", "33090"),  # milliwatts
        ("sm_clock", "1.98"),  # GHz
        ("temperature_gpu", "8188"),
        ("temp_f", "107"),
        ("power_level", "3"),
        ("mem_usage_percent", "50"),  # of the total: occupancy, no metric
        ("memory_usage", "50"),  # of what?
        ("gpu0_power_w", "50"),
        ("cpu_util", "50"),
        ("ram_used_mb", "50"),
        ("power.draw [VA]", "50"),
        ("temperature.gpu", "warm"),
    ],
)
def test_what_cannot_be_sure_is_kept_out_and_said(header: str, cell: str, tmp_path: Path) -> None:
    """A unit or a meaning that would have to be guessed is no reading, and not a problem either."""
    problems = Problems()
    [frame] = read(tmp_path, log(row(0, 50, cell), header=f"timestamp, fan.speed [%], {header}"), problems)

    assert ("fan_speed_percent",) == frame.metrics
    assert 0 == len(problems)
    assert any("kept out" in note for note in problems.notes)


def test_amounts_of_memory_are_in_one_unit(tmp_path: Path) -> None:
    """Where the total can only be in GB, the 3 in use are no 3 MiB."""
    frames = read(tmp_path, log(row(0, 3, 24, 50), header="timestamp, memory_used, memory_total, gpu_util"))

    assert (UTILIZATION,) == frames[0].metrics


@pytest.mark.parametrize(("name", "kept"), [("mem_util", False), ("utilization.memory [%]", True)])
def test_a_share_of_the_memory_is_not_how_busy_it_is(name: str, kept: bool, tmp_path: Path) -> None:
    """Under a name that people give both, the other columns tell; nvidia-smi's own name means one thing."""
    rows = [row(n, 40 + 5 * n, (40 + 5 * n) * 160, 16_000) for n in range(5)]
    frames = read(tmp_path, log(*rows, header=f"timestamp, {name}, mem_used_mb, mem_total_mb"))

    assert kept == ("memory_utilization_percent" in frames[0].metrics)


def test_a_table_of_nothing_sure_is_refused(tmp_path: Path) -> None:
    """With the reason for each column."""
    with pytest.raises(SourceError, match=r"no column that can be read for sure: column 'power': 'high' is no power_watts"):
        read(tmp_path, log(row(0, "high"), row(1, "low"), header="timestamp, power"))


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("[N/A]", "not_supported"),
        ("N/A", "not_supported"),
        ("[Not Supported]", "not_supported"),
        ("[Requested functionality has been deprecated]", "not_supported"),
        ("[Function Not Found]", "not_supported"),
        ("[Insufficient Permissions]", "no_permission"),
        ("[Unknown Error]", "unknown"),
        ("ERR!", "unknown"),
        ("[Something new]", "unknown"),
        ("", None),
        ("-", None),
        ("nan", None),
    ],
)
def test_a_cell_without_a_reading_says_why(cell: str, reason: str | None, tmp_path: Path) -> None:
    """Missing is never 0, and never a problem."""
    problems = Problems()
    frames = read(tmp_path, log(row(0, 0, "50 %"), row(1, 0, cell), row(2, 0, "51 %")), problems)

    assert np.array_equal([50.0, np.nan, 51.0], readings(frames), equal_nan=True)
    assert [{}, {"INDEX-0": {UTILIZATION: reason}} if reason else {}, {}] == [frame.unavailable for frame in frames]
    assert 0 == len(problems)


@pytest.mark.parametrize("cell", ["4294967295 %", "101 %", "-1 %"])
def test_what_no_reading_can_be_is_missing(cell: str, tmp_path: Path) -> None:
    """A driver's blank is not a utilisation."""
    assert np.isnan(readings(read(tmp_path, log(row(0, 0, "50 %"), row(1, 0, "51 %"), row(2, 0, cell))))[2])


def test_a_lost_gpu_is_a_fault_and_no_device(tmp_path: Path) -> None:
    """[GPU is lost] in its cells; the other GPU goes on."""
    text = log(
        row(0, "GPU-a", "00000000:3B:00.0", "50 %"),
        row(0, "GPU-b", "00000000:5E:00.0", "60 %"),
        row(1, "[GPU is lost]", "00000000:3B:00.0", "[GPU is lost]"),
        row(1, "GPU-b", "00000000:5E:00.0", "61 %"),
        header="timestamp, uuid, pci.bus_id, utilization.gpu [%]",
    )
    frames = read(tmp_path, text)

    assert [["GPU-a", "GPU-b"], ["GPU-b"]] == [[device.uuid for device in frame.devices] for frame in frames]
    assert [(), (Fault("gpu_lost", "GPU-a"),)] == [frame.faults for frame in frames]


def test_a_gpu_that_requires_a_reset_is_a_fault_and_stays(tmp_path: Path) -> None:
    """It is still on the bus, and its other readings count."""
    frames = read(tmp_path, log(row(0, 0, "[GPU requires reset]", 40), header="timestamp, index, utilization.gpu [%], temperature.gpu"))

    assert (Fault("reset_required", "INDEX-0"),) == frames[0].faults
    assert [40.0] == readings(frames, "temperature_celsius")


def test_throttle_reasons_in_columns_of_their_own_are_folded_into_the_mask(tmp_path: Path) -> None:
    """As long as there is no mask; a reason that is not known leaves the others."""
    header = "timestamp, clocks_event_reasons.hw_slowdown, clocks_throttle_reasons.sw_power_cap, clocks_event_reasons.hw_thermal_slowdown"
    rows = [
        row(0, "Active", "Not Active", "Active"),
        row(1, "Not Active", "Not Active", "Not Active"),
        row(2, "[N/A]", "Active", "Not Active"),
        row(3, *["[N/A]"] * 3),
    ]

    assert np.array_equal(
        [0x48, 0, 4, np.nan], readings(read(tmp_path, log(*rows, header=header)), "clock_event_reasons", "DEVICE-0"), equal_nan=True
    )
    with_mask = log(
        row(0, "Active", "0x0000000000000004"), header="timestamp, clocks_event_reasons.hw_slowdown, clocks_event_reasons.active"
    )
    assert [4.0] == readings(read(tmp_path, with_mask), "clock_event_reasons", "DEVICE-0")


def test_of_two_columns_for_one_metric_the_better_one_counts(tmp_path: Path) -> None:
    """power.draw before power.draw.instant, which fills in where the first has nothing."""
    text = log(row(0, "20 W", "10 W"), row(1, "30 W", "[N/A]"), header="timestamp, power.draw.instant [W], power.draw [W]")

    assert [10.0, 30.0] == readings(read(tmp_path, text), "power_watts", "DEVICE-0")


# -- whose readings they are ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("header", "cells", "device"),
    [
        ("uuid", ["GPU-0a-1"], Device("GPU-0a-1")),
        ("pci.bus_id", ["0000:3b:00.0"], Device("PCI-00000000:3B:00.0", pci_bus_id="00000000:3B:00.0")),
        ("index", ["3"], Device("INDEX-3", 3)),
        ("gpu", ["3"], Device("INDEX-3", 3)),
        ("gpu_index", ["3"], Device("INDEX-3", 3)),
        ("gpu_id", ["GPU-0a-1"], Device("GPU-0a-1")),
        ("gpu", ["NVIDIA A40"], Device("DEVICE-0", name="NVIDIA A40")),
        ("name", ["NVIDIA A40"], Device("DEVICE-0", name="NVIDIA A40")),
        (
            "index, name, uuid, pci.bus_id",
            ["3", "NVIDIA A40", "GPU-0a-1", "3B:00.0"],
            Device("GPU-0a-1", 3, "NVIDIA A40", "00000000:3B:00.0"),
        ),
        ("index, uuid", ["3", "GPU-00000000-0000-0000-0000-000000000000"], Device("INDEX-3", 3)),  # masked by its owner
    ],
)
def test_a_device_is_known_by_the_best_name_it_has(header: str, cells: list[str], device: Device, tmp_path: Path) -> None:
    """What stands in a column decides, not what the column is called."""
    frames = read(tmp_path, log(row(0, *cells, "5 %"), row(1, *cells, "6 %"), header=f"timestamp, {header}, utilization.gpu [%]"))

    assert [(device,), (device,)] == [frame.devices for frame in frames]
    assert frames[0].devices is frames[1].devices


def test_a_column_called_index_that_never_changes_is_not_the_index(tmp_path: Path) -> None:
    """Eight GPUs stay eight where a script mislabelled a column that is always 0."""
    rows = [f"2026-03-02T16:00:{second:02d}+08:00,{gpu}, 0, {gpu * 10}" for second in (0, 2) for gpu in range(8)]
    frames = read(tmp_path, log(*rows, header="timestamp,gpu,index,temperature.gpu"))

    assert [0, 2] == seconds(frames)
    assert [list(range(0, 80, 10))] * 2 == [frame.values[:, 0].tolist() for frame in frames]


def test_a_known_uuid_is_found_by_its_bus_address(tmp_path: Path) -> None:
    """A row whose uuid cannot be read is still the same device."""
    rows = [row(0, "GPU-a", "3B:00.0", "5 %"), row(1, "[Unknown Error]", "3B:00.0", "6 %")]
    frames = read(tmp_path, log(*rows, header="timestamp, uuid, pci.bus_id, utilization.gpu [%]"))

    assert [5.0, 6.0] == readings(frames, uuid="GPU-a")


def test_rows_of_one_moment_without_an_identity_are_devices_in_order(tmp_path: Path) -> None:
    """As many rows each second, with the same name: the first is always the same GPU."""
    rows = [row(second + 0.003 * gpu, "NVIDIA A40", f"{10 * gpu + second} %") for second in range(5) for gpu in range(3)]
    problems = Problems()
    frames = read(tmp_path, log(*rows, header="timestamp, name, utilization.gpu [%]"), problems)

    assert 5 == len(frames)
    assert [[20.0 + second] for second in range(5)] == [[frame.reading("DEVICE-2", UTILIZATION)] for frame in frames]
    assert any("3 rows a moment" in note for note in problems.notes)


def test_rows_that_share_a_second_by_chance_are_one_gpu(tmp_path: Path) -> None:
    """A loop of 0.7 s with times in whole seconds: one or two rows a second, and nothing to tell devices apart."""
    rows = [row(int(0.7 * n), f"{n} %") for n in range(20)]
    frames = read(tmp_path, log(*rows, header="timestamp, utilization.gpu [%]"))

    assert [float(n) for n in range(20)] == readings(frames, uuid="DEVICE-0")


def test_a_host_column_names_the_host(tmp_path: Path) -> None:
    """Hosts that are mixed in one file stay apart, and a host that falls silent does not hold the others up."""
    rows = [row(n, host, 0, f"{n} %") for n in range(3) for host in (("a", "b") if n < 2 else ("b",))]
    frames = read(tmp_path, log(*rows, header="timestamp, hostname, index, utilization.gpu [%]"), host="ignored")

    assert [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 2)] == [(frame.host, frame.at - EIGHT) for frame in frames]


@pytest.mark.parametrize(("host", "expected"), [(None, "localhost"), ("node-a", "node-a")])
def test_without_a_host_column_the_option_names_it(host: str | None, expected: str, tmp_path: Path) -> None:
    """nvidia-smi does not say where it ran."""
    assert [expected] == [frame.host for frame in read(tmp_path, log(row(0, 0, "5 %")), host=host)]


def test_the_driver_version_is_the_frame_s(tmp_path: Path) -> None:
    """It is a fact about the host, not a reading."""
    [frame] = read(tmp_path, log(row(0, "590.48.01", "5 %"), header="timestamp, driver_version, utilization.gpu [%]"))

    assert "590.48.01" == frame.driver_version


# -- time -------------------------------------------------------------------------------------------------------------------
def test_rows_of_one_moment_are_a_frame(tmp_path: Path) -> None:
    """Times a few milliseconds apart, as nvidia-smi prints them; the frame has the first row's time."""
    frames = read(tmp_path, log(*(row(10 * n + 0.004 * gpu, gpu, "5 %") for n in range(3) for gpu in range(4))))

    assert [0, 10, 20] == seconds(frames)
    assert [4, 4, 4] == [len(frame.devices) for frame in frames]


def test_a_device_that_is_missing_does_not_merge_two_moments(tmp_path: Path) -> None:
    """GPU 0, 1, then only 1, then 0 and 1: the gap in time ends a frame, not only the repetition."""
    frames = read(tmp_path, log(*(row(t, gpu, "5 %") for t, gpu in ((0, 0), (0.01, 1), (1, 1), (2, 0), (2.01, 1)))))

    assert [[0, 1], [1], [0, 1]] == [[device.index for device in frame.devices] for frame in frames]


def test_four_times_a_second(tmp_path: Path) -> None:
    """A short interval is learnt from the rows."""
    frames = read(tmp_path, log(*(row(0.25 * n, gpu, "5 %") for n in range(20) for gpu in range(2) if n != 7 or gpu)))

    assert [0.25 * n for n in range(20)] == seconds(frames)


def test_the_machine_s_own_zone_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TZ says what naive times mean, unless --timezone does."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    local = read(tmp_path, log(row(0, 0, "5 %")), timezone=None)
    monkeypatch.undo()
    time.tzset()

    assert [-9 * 3600] == seconds(local)
    assert [-3600] == seconds(read(tmp_path, log(row(0, 0, "5 %")), timezone="Europe/Berlin"))


@pytest.mark.parametrize("identity", ["index", "name"])
def test_the_night_the_clocks_go_back(identity: str, tmp_path: Path) -> None:
    """Ten minutes between two rows stay ten minutes, however the columns were found out."""
    start = datetime(2025, 10, 26, 0, 0, tzinfo=UTC).timestamp()  # 02:00, for the first time
    hours = [datetime.fromtimestamp(start + 600 * n, ZoneInfo("Europe/Berlin")) for n in range(15)]
    rows = [f"{hour:%Y/%m/%d %H:%M:%S}.000, 0, {n} %" for n, hour in enumerate(hours)]
    frames = read(tmp_path, log(*rows, header=f"timestamp, {identity}, utilization.gpu [%]"), timezone="Europe/Berlin")

    assert [start + 600 * n for n in range(15)] == [frame.at for frame in frames]


def test_utc_in_the_name_of_a_column_is_its_zone(tmp_path: Path) -> None:
    """A naive time that says it is UTC is not local."""
    assert [0] == seconds(read(tmp_path, log(row(0, 0, "5 %"), header="timestamp_utc, index, gpu_util"), timezone="Asia/Tokyo"))


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        ("epoch, timestamp", "1772438400.25, 2026/03/02 09:00:00.500", 0.25),  # needs no zone
        ("time, timestamp", "2026-03-02 08:00:00, 2026/03/02 08:00:00.500", 0.5),  # has fractions
        ("date, time", "2026-03-02, 08:00:00.500", 0.5),
        ("time_ms, timestamp", "1500, 2026/03/02 08:00:00.000", 0),  # counts from a start
    ],
)
def test_of_two_times_the_surer_and_finer_one_counts(header: str, cells: str, expected: float, tmp_path: Path) -> None:
    """Two columns of time are common where a script adds its own."""
    assert [expected] == seconds(read(tmp_path, log(f"{cells}, 5 %", header=f"{header}, utilization.gpu [%]")))


def test_seconds_since_a_start_count_from_the_fixed_date(tmp_path: Path) -> None:
    """Whatever their unit."""
    text = log("0, 5 %", "500, 6 %", header="elapsed_ms, utilization.gpu [%]")

    assert [UNDATED, UNDATED + 0.5] == [frame.at for frame in read(tmp_path, text)]


@pytest.mark.parametrize(("interval", "step"), [(None, 1.0), (0.5, 0.5)])
def test_a_log_without_times_takes_the_interval(interval: float | None, step: float, tmp_path: Path) -> None:
    """And says so."""
    problems = Problems()
    frames = read(tmp_path, log(*["85 %", "100 %", "94 %"], header="utilization.gpu [%]"), problems, interval=interval)

    assert [UNDATED + step * n for n in range(3)] == [frame.at for frame in frames]
    assert [85.0, 100.0, 94.0] == readings(frames, uuid="DEVICE-0")
    assert any(f"{step:g} s apart" in note for note in problems.notes)


def test_without_times_a_frame_begins_when_a_device_comes_again(tmp_path: Path) -> None:
    """The index shows where a sample ends."""
    frames = read(tmp_path, log("0, 1 %", "1, 2 %", "0, 3 %", "1, 4 %", header="index, utilization.gpu [%]"))

    assert [[[1.0], [2.0]], [[3.0], [4.0]]] == [frame.values.tolist() for frame in frames]


def test_times_in_an_ambiguous_style_are_refused_unless_the_interval_is_given(tmp_path: Path) -> None:
    """Is it February or March? The way out is in the message."""
    text = log("02/03/2026 08:00, 5 %", "02/03/2026 08:05, 6 %", header="time, utilization.gpu [%]")

    with pytest.raises(SourceError, match=r"smi\.csv: times such as '02/03/2026 08:00' in column 'time' cannot be read .* --interval"):
        read(tmp_path, text)
    assert [UNDATED, UNDATED + 300] == [frame.at for frame in read(tmp_path, text, interval=300.0)]


# -- headers ----------------------------------------------------------------------------------------------------------------
def test_a_header_before_every_row(tmp_path: Path) -> None:
    """A loop that runs nvidia-smi anew each time prints it again and again."""
    text = "".join(f"timestamp, index, utilization.gpu [%]\n{row(n, 0, f'{n} %')}\n" for n in range(5))

    assert [0.0, 1.0, 2.0, 3.0, 4.0] == readings(read(tmp_path, text))


def test_another_header_begins_another_table(tmp_path: Path) -> None:
    """A log that was appended to with other columns, as many or more; and back to the first."""
    first, second = log(row(0, 0, "5 %")), log(row(1, 0, 40), header="timestamp, index, temperature.gpu")
    third = log(row(2, 0, 41, "7 %"), header="timestamp, index, temperature.gpu, utilization.gpu [%]")
    problems = Problems()
    frames = read(tmp_path, first + second + third + first.replace(":00.000", ":03.000"), problems)

    assert [0, 1, 2, 3] == seconds(frames)
    assert np.array_equal([5, np.nan, 7, 5], readings(frames), equal_nan=True)
    assert np.array_equal([np.nan, 40, 41, np.nan], readings(frames, "temperature_celsius"), equal_nan=True)
    assert 0 == len(problems)


def test_a_header_behind_other_lines(tmp_path: Path) -> None:
    """What nohup and scripts print first is said and skipped."""
    problems = Problems()
    frames = read(tmp_path, "nohup: ignoring input\nMonitoring power, temperature and fans\n" + log(row(0, 0, "5 %")), problems)

    assert [5.0] == readings(frames)
    assert [f"{tmp_path / 'smi.csv'}, lines 1, 2: stands before the header"] == problems.lines()


def test_a_date_before_every_line_is_a_column(tmp_path: Path) -> None:
    """`while read line; do echo "$(date +%s),$line"; done` puts one before the header too."""
    text = f"1772438400,timestamp, index, utilization.gpu [%]\n1772438401,{row(0.5, 0, '5 %')}\n"

    frames = read(tmp_path, text, timezone="Asia/Tokyo")

    assert ([1], [5.0]) == (seconds(frames), readings(frames))


def test_rows_with_a_time_more_than_the_header(tmp_path: Path) -> None:
    """Read by name they would be 8188 degrees hot; the second time is found, and the rest moves with it."""
    header = "time,gpu_index,gpu_name,gpu_util_percent,mem_used_mb,mem_total_mb,temp_c,power_w"
    rows = [f"2026-03-02 08:00:0{n},{row(n + 0.5, 0, 'RTX 4060', n, 410, 8188, 42, 2.01)}" for n in range(5)]
    problems = Problems()
    frames = read(tmp_path, log(*rows, header=header), problems)

    assert [0.5, 1.5, 2.5, 3.5, 4.5] == seconds(frames)
    assert [42.0] * 5 == readings(frames, "temperature_celsius")
    assert [8188 * MIB] * 5 == readings(frames, "memory_total_bytes")
    assert 0 == len(problems)


@pytest.mark.parametrize("fields", [2, 4])
def test_rows_that_do_not_fit_the_header_are_refused(fields: int, tmp_path: Path) -> None:
    """A field more or fewer that nothing explains: which column it is would be a guess."""
    rows = [", ".join(row(n, 0, "5 %", "6 %").split(", ")[:fields]) for n in range(5)]

    with pytest.raises(SourceError, match="rows that do not have the 3 fields that its header names; name all of theirs with --columns"):
        read(tmp_path, log(*rows))


def test_a_comma_at_the_end_of_rows_or_header(tmp_path: Path) -> None:
    """An empty field is no reading."""
    assert [5.0] == readings(read(tmp_path, log(row(0, 0, "5 %") + ",")))
    assert [5.0] == readings(read(tmp_path, log(row(0, 0, "5 %"), header="timestamp, index, utilization.gpu [%],")))


NO_HEADER = "1772438400,0, 72.60, 73543, 81920\n1772438405,3, 73.60, 73543, 81920\n"


def test_without_a_header_columns_must_be_named(tmp_path: Path) -> None:
    """Which number is what would be a guess; the error shows the first row and the way out."""
    with pytest.raises(SourceError, match=r"has no header.*first row: '1772438400,0, 72\.60.*--columns"):
        read(tmp_path, NO_HEADER)

    frames = read(tmp_path, NO_HEADER, columns=("timestamp", "utilization.gpu", "power.draw", "memory.used", "memory.total"))

    assert ([0, 5], [0.0, 3.0]) == (seconds(frames), readings(frames, uuid="DEVICE-0"))
    assert [72.6, 73.6] == readings(frames, "power_watts", "DEVICE-0")
    assert [81920 * MIB] * 2 == readings(frames, "memory_total_bytes", "DEVICE-0")


def test_units_without_a_header_are_not_enough(tmp_path: Path) -> None:
    """`2 %, 588 MiB` may be the fan and the free memory."""
    with pytest.raises(SourceError, match="has no header"):
        read(tmp_path, "2 %, 588 MiB\n" * 5)

    frames = read(tmp_path, "2 %, 588 MiB\n" * 5, columns=("fan.speed", "memory.free"))
    assert [588 * MIB] * 5 == readings(frames, "memory_free_bytes", "DEVICE-0")


def test_named_columns_replace_a_header_that_says_nothing(tmp_path: Path) -> None:
    """A name such as skip leaves a column out."""
    text = "timestamp,GPU0,GPU1\n1772438400,199.975,256.513\n1772438401,196.311,261.444\n"
    with pytest.raises(SourceError, match=r"the columns timestamp,GPU0,GPU1, and what they measure cannot be told for sure"):
        read(tmp_path, text)

    problems = Problems()
    frames = read(tmp_path, text, problems, columns=("timestamp", "skip", "power.draw [W]"))

    assert ([256.513, 261.444], 0) == (readings(frames, "power_watts", "DEVICE-0"), len(problems))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("timestamp", "power.draw"), "rows of 5 fields, and --columns names 2"),
        (("a", "b", "c", "d", "e"), "none of the columns a, b, c, d, e"),
    ],
)
def test_named_columns_that_do_not_fit_are_refused(columns: tuple[str, ...], message: str, tmp_path: Path) -> None:
    """One name a field, and at least one reading among them."""
    with pytest.raises(SourceError, match=message):
        read(tmp_path, NO_HEADER, columns=columns)


def test_a_table_of_processes_is_not_one_of_gpus(tmp_path: Path) -> None:
    """The memory of a process is not the memory of its GPU."""
    with pytest.raises(SourceError, match="a table of processes"):
        read(tmp_path, log(row(0, "GPU-a", 42, "588 MiB"), header="timestamp, gpu_uuid, pid, used_gpu_memory [MiB]"))


def test_a_header_and_nothing_else_is_nothing(tmp_path: Path) -> None:
    """A loop that was stopped before its first row."""
    with pytest.raises(SourceError, match="holds nothing that can be read as nvidia-smi-csv: it has no readings"):
        read(tmp_path, log())


# -- dialects ---------------------------------------------------------------------------------------------------------------
def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    """As a spreadsheet in Europe saves it."""
    text = log("2026-03-02 08:00:00,500;0;33,09 W;12,5 %", header="timestamp;index;power.draw [W];utilization.gpu [%]")
    frames = read(tmp_path, text)

    assert ([0.5], [33.09], [12.5]) == (seconds(frames), readings(frames, "power_watts"), readings(frames))


def test_quotation_marks(tmp_path: Path) -> None:
    """A quoted comma does not end a field, and is not read as a decimal mark: it may separate thousands."""
    problems = Problems()
    text = log(
        '"2026/03/02 08:00:00.000","NVIDIA A40, passively cooled","5 %","588 MiB"',
        '"2026/03/02 08:00:01.000","NVIDIA A40, passively cooled","6 %","1,588 MiB"',
        '"2026/03/02 08:00:02.000","NVIDIA A40, passively cooled","7 %","600 MiB"',
        header='"timestamp","name","utilization.gpu [%]","memory.used [MiB]"',
    )
    frames = read(tmp_path, text, problems)

    assert [5.0, 7.0] == readings(frames, uuid="DEVICE-0")
    assert "NVIDIA A40, passively cooled" == frames[0].devices[0].name
    assert 1 == len(problems)


GPU_KINDS = {
    "uuid": [f"GPU-0000000{n}-1111-4222-8333-444444444444" for n in range(4)],
    "pci.bus_id": [f"00000000:{17 * n + 16:02X}:00.0" for n in range(4)],
    "index": ["0", "1", "2", "3"],
}
COLUMNS: dict[str, tuple[str, str, st.SearchStrategy[Any]]] = {
    # metric: nvidia-smi's name, its unit, values in that unit as nvidia-smi prints them
    UTILIZATION: ("utilization.gpu", "%", st.integers(0, 100)),
    "memory_used_bytes": ("memory.used", "MiB", st.integers(0, 81_559)),
    "memory_total_bytes": ("memory.total", "MiB", st.integers(1024, 200_000)),
    "power_watts": ("power.draw", "W", st.integers(500, 120_000).map(lambda n: f"{n / 100:.2f}")),
    "temperature_celsius": ("temperature.gpu", "", st.integers(1, 110)),
    "sm_clock_mhz": ("clocks.current.sm", "MHz", st.integers(135, 2600)),
    "performance_state": ("pstate", "", st.integers(0, 15).map(lambda n: f"P{n}")),
    "clock_event_reasons": ("clocks_event_reasons.active", "", st.integers(0, 255).map(lambda n: f"0x{n:016X}")),
    "ecc_uncorrected_volatile_total": ("ecc.errors.uncorrected.volatile.total", "", st.integers(0, 10**9)),
    "hw_thermal_seconds_total": ("clocks_event_reasons_counters.hw_thermal_slowdown", "us", st.integers(0, 10**12)),
    "remapped_rows_pending": ("remapped_rows.pending", "", st.sampled_from(["Yes", "No"])),
}
FACTORS = {"memory_used_bytes": MIB, "memory_total_bytes": MIB, "hw_thermal_seconds_total": 1e-6}


def meant(metric: str, cell: object) -> float:
    """What a cell of nvidia-smi means, worked out by other means than the reader's."""
    text = str(cell)
    if text in ("Yes", "No"):
        return float(text == "Yes")
    if text == "[N/A]":
        return float("nan")
    number = int(text, 16) if text.startswith("0x") else float(text.lstrip("P"))
    return number * FACTORS.get(metric, 1.0)


@dataclass(frozen=True)
class Recorded:
    """A log, and what stands in it."""

    text: bytes
    metrics: list[str]
    ticks: list[list[list[object]]]
    """tick -> GPU -> cells."""
    uuids: list[str]
    interval: float
    body: int
    """Where the first row begins."""


@st.composite
def recordings(draw: st.DrawFn, *, plain: bool = False) -> Recorded:
    """Any table in any dialect; *plain*: in UTF-8 and with one header, so that it can be cut at a byte."""
    metrics = draw(st.lists(st.sampled_from(list(COLUMNS)), unique=True, min_size=1))
    identity = draw(st.sampled_from(list(GPU_KINDS)))
    gpus, interval = draw(st.integers(1, 4)), draw(st.sampled_from([0.25, 1.0, 60.0]))
    cells = st.tuples(*(COLUMNS[metric][2] | st.just("[N/A]") for metric in metrics)).map(list)
    ticks = draw(st.lists(st.lists(cells, min_size=gpus, max_size=gpus), min_size=1, max_size=5))

    in_cells, in_header = draw(st.booleans()), draw(st.booleans())
    delimiter = draw(st.sampled_from([", ", ",", ";", "\t"]))
    comma = delimiter == ";" and draw(st.booleans())
    repeated = not plain and draw(st.booleans())
    order = draw(st.permutations(["timestamp", identity, *metrics]))
    style = draw(st.sampled_from(["smi", "iso", "epoch"]))

    def name(what: str) -> str:
        if what not in COLUMNS:
            return what
        smi, unit, _ = COLUMNS[what]
        return f"{smi} [{unit}]" if unit and in_header else smi

    def cell(what: str, at: float, gpu: int, values: list[object]) -> str:
        if what == "timestamp":
            stamp = datetime.fromtimestamp(at, UTC)
            if style == "smi":
                return f"{stamp:%Y/%m/%d %H:%M:%S}.{stamp.microsecond // 1000:03d}"
            return stamp.isoformat() if style == "iso" else f"{at:.3f}"
        if what == identity:
            return GPU_KINDS[identity][gpu]
        value, unit = str(values[metrics.index(what)]), COLUMNS[what][1]
        value = value.replace(".", ",") if comma else value
        return f"{value} {unit}" if unit and in_cells and value != "[N/A]" else value

    header = delimiter.join(map(name, order))
    lines = [header]
    for n, tick in enumerate(ticks):
        lines += [header] if repeated and n else []
        lines += [delimiter.join(cell(what, EIGHT + n * interval, gpu, values) for what in order) for gpu, values in enumerate(tick)]
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    text = newline.join([*lines, ""])
    uuids = [{"uuid": "", "pci.bus_id": "PCI-", "index": "INDEX-"}[identity] + kind for kind in GPU_KINDS[identity][:gpus]]
    encoding = "utf-8" if plain else draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le"]))
    return Recorded(text.encode(encoding), metrics, ticks, uuids, interval, len(header) + len(newline))


def written(recorded: Recorded, path: Path, size: int | None = None) -> Path:
    path = path / "smi.csv"
    path.write_bytes(recorded.text[:size])
    return path


@given(recordings())
def test_any_dialect_gives_the_same_values(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> None:
    """Units, delimiter, encoding, order of columns, header style, style of time and identity: none changes a reading."""
    problems = Problems()
    path = written(recorded, tmp_path_factory.mktemp("dialect"))
    frames = list(read_recording(path, options=ReadOptions(timezone="UTC"), problems=problems))

    assert [] == problems.lines()
    assert [EIGHT + n * recorded.interval for n in range(len(recorded.ticks))] == [frame.at for frame in frames]
    for tick, frame in zip(recorded.ticks, frames, strict=True):
        assert recorded.uuids == [device.uuid for device in frame.devices]
        for uuid, cells in zip(recorded.uuids, tick, strict=True):
            for metric, cell in zip(recorded.metrics, cells, strict=True):
                assert meant(metric, cell) == pytest.approx(frame.reading(uuid, metric), nan_ok=True)


@given(recordings(plain=True), st.data())
def test_cutting_a_file_anywhere_loses_its_last_row_at_most(
    tmp_path_factory: pytest.TempPathFactory, recorded: Recorded, data: st.DataObject
) -> None:
    """And never changes a value: of the row that was cut, what cannot be relied on is missing."""
    cut = data.draw(st.integers(recorded.body, len(recorded.text)))
    complete = recorded.text[:cut].count(b"\n") - 1
    if not complete:  # the only row is cut: there may be nothing left
        return
    problems = Problems()
    path = written(recorded, tmp_path_factory.mktemp("cut"), cut)
    frames = list(read_recording(path, options=ReadOptions(timezone="UTC"), problems=problems))

    rows = [(EIGHT + n * recorded.interval, uuid, cells) for n, tick in enumerate(recorded.ticks)
            for uuid, cells in zip(recorded.uuids, tick, strict=True)]  # fmt: skip
    got = [(frame.at, device.uuid, values) for frame in frames for device, values in zip(frame.devices, frame.values.tolist(), strict=True)]
    assert len(got) in (complete, complete + 1)
    for n, ((_, uuid, cells), (_, read_uuid, values)) in enumerate(zip(rows, got, strict=False)):
        assert uuid == read_uuid
        columns = frames[0].metrics
        for metric, cell in zip(recorded.metrics, cells, strict=True):
            value = values[columns.index(metric)]
            assert meant(metric, cell) == pytest.approx(value, nan_ok=True) or (n == complete and np.isnan(value))


# -- damage -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("2026/03/02 08:00:01.0", "a line that is no row"),
        (row(1, 0), "not the 3 fields"),
        (row(1, 0, "5 %", "6 %"), "not the 3 fields"),
        (row(1, 0, "5 2026/03/02 08:00:02.000"), "what stands under 'utilization.gpu [%]' is no reading of it"),
        (row(1, 0, "5 MiB"), "is no reading of it"),
        (row(1, 0, "5 %%"), "is no reading of it"),
        (row(1, 0, "1_0 %"), "is no reading of it"),
        (row(1, 0, "utilization.gpu [%]"), "is no reading of it"),
        ("2026/03/02 08:002026/03/02 08:00:01.000, 0, 5 %", "no time where the time should be"),
        (row(1, "9999", "5 %"), "does not say which GPU it is about"),
        ("Terminated", "a line that is no row"),
    ],
)
def test_a_torn_line_is_said_and_the_rest_counts(bad: str, said: str, tmp_path: Path) -> None:
    """Two writers, a kill, a full disk: one line lost is one line lost."""
    problems = Problems()
    rows = [row(n, 0, f"{n} %") for n in range(2, 6)]
    frames = read(tmp_path, log(row(0, 0, "0 %"), bad, *rows), problems)

    assert [0.0, 2.0, 3.0, 4.0, 5.0] == readings(frames)
    assert 1 == len(problems)
    assert "smi.csv, line 3: " in problems.lines()[0]
    assert said in problems.lines()[0]


@pytest.mark.parametrize(
    ("tail", "values", "lost"),
    [
        (row(1, 0, "97 %"), [5.0, 97.0], 0),  # the unit stands: nothing can follow
        (row(1, 0, "[N/A]"), [5.0, np.nan], 0),
        (row(1, 0, "97"), [5.0, np.nan], 0),  # of 97 or of 970
        (row(1, 0, ""), [5.0], 1),
        (row(1, 0)[:-4], [5.0], 1),
    ],
)
def test_a_last_line_without_end(tail: str, values: list[float], lost: int, tmp_path: Path) -> None:
    """A number that nothing follows may have lost its last digits: it is left out, which a note says."""
    problems = Problems()
    frames = read(tmp_path, log(row(0, 0, "5 %")) + tail, problems)

    assert np.array_equal(values, readings(frames), equal_nan=True)
    assert lost == len(problems)
    assert bool(problems.notes) == tail.endswith("97")


def test_a_last_line_that_ends_in_a_name_is_dropped(tmp_path: Path) -> None:
    """GPU-1 may have been GPU-12."""
    problems = Problems()
    frames = read(tmp_path, log("5 %, GPU-12", "6 %, GPU-12", header="utilization.gpu [%], uuid") + "7 %, GPU-1", problems)

    assert [5.0, 6.0] == readings(frames, uuid="GPU-12")
    assert 1 == len(problems)


# -- sentences --------------------------------------------------------------------------------------------------------------
SENTENCES = [
    ("Failed to initialize NVML: Driver/library version mismatch", "library_mismatch"),
    ("Failed to initialize NVML: Unknown Error", "unknown"),
    ("Failed to initialize NVML: Insufficient Permissions", "no_permission"),
    ("Failed to initialize NVML: Driver Not Loaded", "driver_not_loaded"),
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed.",
     "driver_not_loaded"),
    ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "library_not_found"),
    ("No devices were found", "unknown"),
    ("bash: nvidia-smi: command not found", "library_not_found"),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "kind"), SENTENCES)
@pytest.mark.parametrize("header", ["timestamp, index, utilization.gpu [%]", "utilization.gpu [%]"])
def test_a_sentence_instead_of_rows_is_a_blind_frame(sentence: str, kind: str, header: str, tmp_path: Path) -> None:
    """It says why nothing could be read, between what was read before and after; also in a table of one column."""
    problems = Problems()
    single = "timestamp" not in header
    rows = ["5 %", "6 %"] if single else [row(0, 0, "5 %"), row(20, 0, "6 %")]
    frames = read(tmp_path, log(rows[0], sentence, "NVML library version: 550.54", rows[1], header=header), problems, interval=10.0)

    assert [(), (Fault(kind, None, sentence),), ()] == [frame.faults for frame in frames]  # type: ignore[arg-type]
    assert [0, 10, 20] == [frame.at - (UNDATED if single else EIGHT) for frame in frames]
    assert [1, 0, 1] == [len(frame.devices) for frame in frames]
    assert 0 == len(problems)


def test_blind_frames_follow_at_the_usual_interval(tmp_path: Path) -> None:
    """Sentences bear no time: they are as far apart as the frames before them were."""
    sentence = SENTENCES[0][0]
    rows = [row(30 * n, 0, "5 %") for n in range(4)]
    frames = read(tmp_path, log(*rows, *[sentence] * 3, row(600, 0, "5 %")))

    assert [0, 30, 60, 90, 120, 150, 180, 600] == seconds(frames)


def test_more_sentences_than_there_is_time_for_are_closer(tmp_path: Path) -> None:
    """A loop that failed faster than usual does not push the clock beyond the rows that follow."""
    rows = [row(30 * n, 0, "5 %") for n in range(4)]
    frames = read(tmp_path, log(*rows, *[SENTENCES[0][0]] * 99, row(190, 0, "5 %")))

    assert [91, 92, 93] == seconds(frames)[4:7]
    assert 190 == seconds(frames)[-1]
    assert seconds(frames) == sorted(seconds(frames))


def test_a_log_of_nothing_but_failures_is_a_recording(tmp_path: Path) -> None:
    """There is no time to tell, so they count from the fixed date."""
    frames = read(tmp_path, f"{SENTENCES[1][0]}\n" * 3)

    assert [UNDATED, UNDATED + 1, UNDATED + 2] == [frame.at for frame in frames]
    assert {Fault("unknown", None, SENTENCES[1][0])} == {fault for frame in frames for fault in frame.faults}


def test_failures_before_the_first_row_end_where_it_begins(tmp_path: Path) -> None:
    """The driver was loaded late: the first row's time dates them."""
    frames = read(tmp_path, f"{SENTENCES[3][0]}\n" * 3 + log(row(0, 0, "5 %")))

    assert [-3, -2, -1, 0] == seconds(frames)


@pytest.mark.parametrize(
    "sentence",
    [
        "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU",
        "Unable to determine the device handle for gpu 0000:3b:00.0: Unknown Error",
        "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error",
    ],
)
def test_a_device_handle_that_fails_is_a_lost_gpu(sentence: str, tmp_path: Path) -> None:
    """Named by its bus address, or by the uuid that the log gave it before."""
    header = "timestamp, uuid, pci.bus_id, utilization.gpu [%]"
    known = read(tmp_path, log(row(0, "GPU-a", "00000000:3B:00.0", "5 %"), sentence, header=header))
    unknown = read(tmp_path, log(row(0, 0, "5 %"), sentence))

    assert (Fault("gpu_lost", "GPU-a", sentence),) == known[-1].faults
    assert (Fault("gpu_lost", "PCI-00000000:3B:00.0", sentence),) == unknown[-1].faults


# -- size -------------------------------------------------------------------------------------------------------------------
def test_a_table_over_many_blocks(tmp_path: Path) -> None:
    """Rows of one moment that a block's edge separates are still one frame."""
    rows = [row(n, gpu, f"{n % 101} %") for n in range(8000) for gpu in range(3)]
    frames = read(tmp_path, log(*rows))

    assert [float(n) for n in range(8000)] == seconds(frames)
    assert {3} == {len(frame.devices) for frame in frames}
    assert [float(n % 101) for n in range(8000)] == readings(frames, uuid="INDEX-2")
