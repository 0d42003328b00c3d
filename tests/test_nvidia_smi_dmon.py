"""`nvidia-smi dmon` and `pmon`: columns, times, rounds over several GPUs, and rows that are torn."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from recorded import DMON, EIGHT, MIB, PMON, read, row, seconds

from detector.errors import SourceError
from detector.frame import Device, Fault, Frame, Process
from detector.sources.recording import FORMATS, Problems
from detector.sources.timestamps import UNDATED

A, B = "INDEX-0", "INDEX-1"
ALL = """\
#Date        Time         gpu    pwr   temp  mtemp     sm    mem    enc    dec   mclk   pclk  pviol  tviol     fb   bar1   ccpm  sbecc  dbecc    pci  rxpci  txpci
#YYYYMMDD    HH:MM:SS     Idx      W      C      C      %      %      %      %    MHz    MHz      %   bool     MB     MB     MB   errs   errs   errs   MB/s   MB/s
 20260302    08:00:00       0    129     57     61     14      3      1      2  10501   2055     50      1   4580     77      9      4      5      6    900    300
"""  # noqa: E501


def gpu(index: int = 0, power: object = 10, temperature: object = 52, sm: object = 5) -> str:
    return row(index, power, temperature, "-", sm, 7, 0, 0, 0, 0, 405, 225)


def offsets(frames: list[Frame]) -> list[float]:
    return [frame.at - UNDATED for frame in frames]


def listed(frames: list[Frame]) -> list[list[str]]:
    return [[device.uuid for device in frame.devices] for frame in frames]


def test_rows_are_rounds(tmp_path: Path) -> None:
    """A GPU that comes again begins the next; a dash is missing, never 0."""
    frames = read(tmp_path, DMON + (gpu(0) + gpu(1, power=438, sm="-")) * 3)

    assert listed(frames) == [[A, B]] * 3
    assert frames[0].devices[1] == Device(B, index=1)
    assert {metric: frames[0].reading(A, metric) for metric in frames[0].metrics if metric != "memory_temperature_celsius"} == {
        "power_watts": 10.0, "temperature_celsius": 52.0, "utilization_percent": 5.0, "memory_utilization_percent": 7.0,
        "encoder_utilization_percent": 0.0, "decoder_utilization_percent": 0.0, "memory_clock_mhz": 405.0, "sm_clock_mhz": 225.0,
    }  # fmt: skip
    assert math.isnan(frames[0].reading(B, "utilization_percent"))
    assert frames[0].processes == {}


def test_every_column_that_is_a_reading(tmp_path: Path) -> None:
    """In our units; the share of time in violation is no metric."""
    [frame] = read(tmp_path, ALL)

    assert seconds([frame]) == [0.0]
    assert {metric: frame.reading(A, metric) for metric in frame.metrics} == {
        "power_watts": 129.0, "temperature_celsius": 57.0, "memory_temperature_celsius": 61.0, "utilization_percent": 14.0,
        "memory_utilization_percent": 3.0, "encoder_utilization_percent": 1.0, "decoder_utilization_percent": 2.0,
        "memory_clock_mhz": 10501.0, "sm_clock_mhz": 2055.0, "memory_used_bytes": 4580 * MIB, "bar1_used_bytes": 77 * MIB,
        "ecc_corrected_aggregate_total": 4.0, "ecc_uncorrected_aggregate_total": 5.0, "pcie_replay_total": 6.0,
        "pcie_rx_bytes_per_second": 900e6, "pcie_tx_bytes_per_second": 300e6,
    }  # fmt: skip


def test_all_dashes_is_a_gpu_that_says_nothing(tmp_path: Path) -> None:
    """It is listed, and none of its readings is 0."""
    [frame] = read(tmp_path, "# gpu     sm    mem\n# Idx      %      %\n" + row(0, "-", "-"))

    assert listed([frame]) == [[A]]
    assert all(math.isnan(frame.reading(A, metric)) for metric in ("utilization_percent", "memory_utilization_percent"))


def test_the_header_is_repeated(tmp_path: Path) -> None:
    """Even in the middle of a round it is no row and begins nothing."""
    assert listed(read(tmp_path, DMON + gpu(0) + DMON + gpu(1) + gpu(0) + gpu(1))) == [[A, B], [A, B]]


def test_other_columns_further_down(tmp_path: Path) -> None:
    """Two recordings in one file: each row is read under its own header."""
    frames = read(tmp_path, DMON + gpu(0) + "# gpu   temp    pwr\n# Idx      C      W\n" + row(0, 61, 99))

    assert [(frame.reading(A, "power_watts"), frame.reading(A, "temperature_celsius")) for frame in frames] == [(10.0, 52.0), (99.0, 61.0)]


def test_a_column_in_a_strange_unit_is_kept_out(tmp_path: Path) -> None:
    """It is said, and the others are read."""
    problems = Problems()
    [frame] = read(tmp_path, "# gpu    pwr     fb\n# Idx      W     GB\n" + row(0, 99, 4), problems)

    assert (frame.metrics, frame.reading(A, "power_watts")) == (("power_watts",), 99.0)
    assert f"note: {tmp_path}/recording: columns in an unexpected unit are kept out: fb [GB]" in problems.lines()


@pytest.mark.parametrize("header", ["#gpu, pwr, gtemp\n#Idx, W, C\n", "# gpu, pwr, gtemp\n"])
def test_with_commas(header: str, tmp_path: Path) -> None:
    """`--format csv`, with units or without."""
    [frame] = read(tmp_path, header + "0, 438, 55\n")

    assert [frame.reading(A, metric) for metric in frame.metrics] == [55.0, 438.0]


# -- time ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("interval", "step"), [(None, 1.0), (5.0, 5.0)])
def test_rounds_without_a_time(interval: float | None, step: float, tmp_path: Path) -> None:
    """A second apart, as dmon prints them, or as they are said to be; identical rows too, and it is said."""
    problems = Problems()

    assert offsets(read(tmp_path, DMON + gpu() * 3, problems, interval=interval)) == [0.0, step, 2 * step]
    assert len(problems.lines()) == 1


def test_date_and_time(tmp_path: Path) -> None:
    """`-o DT`, in local time."""
    header, _, first = ALL.splitlines(keepends=True)
    text = header + first + first.replace("08:00:00", "08:01:00")

    assert seconds(read(tmp_path, text)) == [0.0, 60.0]
    assert seconds(read(tmp_path, text, timezone="+01:00")) == [-3600.0, -3540.0]


def test_the_time_of_day_alone(tmp_path: Path) -> None:
    """`-o T`: after midnight comes the next day."""
    text = "#Time        gpu    pwr\n#HH:MM:SS    Idx      W\n" + "".join(
        f" {at}    0    10\n" for at in ("23:59:58", "23:59:59", "00:00:01")
    )

    assert offsets(read(tmp_path, text)) == [86_398.0, 86_399.0, 86_401.0]


# -- damage -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("torn", [row(0, 10, 52), row(0, 10, 52, "-", 5, 7, 0, 0, 0, 0, 405, 225, 3), row("x", *range(11)), "Killed\n"])
def test_a_torn_row_costs_itself(torn: str, tmp_path: Path) -> None:
    """The line is named, the rows around it are read."""
    problems = Problems()

    assert len(read(tmp_path, DMON + gpu() + torn + gpu(), problems)) == 2
    assert problems.lines()[0].startswith(f"{tmp_path}/recording, line 4: not the 12 columns")


@pytest.mark.parametrize("cell", ["4x", "0x10", "1e9", "12.", "--5"])
def test_a_cell_that_is_no_number_costs_its_row(cell: str, tmp_path: Path) -> None:
    """It may be anything."""
    problems = Problems()

    assert len(read(tmp_path, DMON + gpu() + gpu(power=cell), problems)) == 1
    assert len(problems) == 1


def test_a_last_row_without_its_end_is_left_out(tmp_path: Path) -> None:
    """405 MHz may have been 4050."""
    problems = Problems()

    assert len(read(tmp_path, DMON + gpu() + gpu().rstrip(), problems)) == 1
    assert problems.lines()[0] == f"{tmp_path}/recording, line 4: the row is cut off"


def test_a_last_round_that_is_cut_off_loses_no_gpu(tmp_path: Path) -> None:
    """The recorder was stopped between two rows."""
    frames = read(tmp_path, DMON + (gpu(0) + gpu(1)) * 2 + gpu(0))

    assert listed(frames) == [[A, B]] * 3
    assert math.isnan(frames[2].reading(B, "power_watts"))


def test_a_gpu_that_is_gone_is_gone(tmp_path: Path) -> None:
    """Rounds that are over without it say so."""
    assert listed(read(tmp_path, DMON + gpu(0) + gpu(1) + gpu(0) * 3)) == [[A, B], [A], [A], [A]]


def test_a_sentence_is_a_blind_look(tmp_path: Path) -> None:
    """nvidia-smi was started again and again, and once it saw nothing."""
    sentence = "Failed to initialize NVML: Unknown Error"
    frames = read(tmp_path, DMON + gpu() + sentence + "\n" + DMON + gpu())

    assert [frame.faults for frame in frames] == [(), (Fault("unknown", None, sentence),), ()]


def test_nothing_but_a_header_is_refused(tmp_path: Path) -> None:
    """No row was recorded."""
    with pytest.raises(SourceError):
        read(tmp_path, DMON)


# -- pmon ---------------------------------------------------------------------------------------------------------------------
def process(gpu: int, pid: object, sm: object = "-", memory: object = "-", command: str = "python") -> str:
    cells = row(gpu, pid, "C" if pid != "-" else "-", sm, "-", "-", "-", "-", "-", memory, 0)
    return f"{cells.rstrip()}    {command}         \n"


def test_processes_of_a_round(tmp_path: Path) -> None:
    """A row each, their share and their memory where they are told; nothing is known of the GPUs themselves."""
    once = process(0, 11, 45, 3000) + process(0, 12, command="a b") + process(1, 11)
    frames = read(tmp_path, PMON + once * 2)

    assert offsets(frames) == [0.0, 1.0]
    assert (listed(frames), frames[0].metrics) == ([[A, B]] * 2, ())
    assert frames[0].processes == {
        A: (Process(11, 3000 * MIB, 45.0, "python"), Process(12, command="a b")), B: (Process(11, command="python"),),
    }  # fmt: skip


def test_a_round_begins_where_the_gpus_begin_again(tmp_path: Path) -> None:
    """Another process on the first GPU after the second is a new round, and so is a process that comes again."""
    frames = read(tmp_path, PMON + process(0, 11) + process(1, 12) + process(0, 13) + process(1, 12) + process(1, 12))

    assert [[p.pid for many in frame.processes.values() for p in many] for frame in frames] == [[11, 12], [13, 12], [12]]


def test_a_row_of_dashes_is_no_process(tmp_path: Path) -> None:
    """At first that may be a container that sees none; once some were seen, it is the truth."""
    none = process(0, "-", command="-")
    frames = read(tmp_path, PMON + none * 2 + process(0, 11) + none)

    assert [frame.processes.get(A) for frame in frames] == [None, None, (Process(11, command="python"),), ()]


def test_pmon_with_times(tmp_path: Path) -> None:
    """Date and time come first."""
    text = "#Date       Time        gpu        pid  type    sm   mem   enc   dec   command\n"
    [frame] = read(tmp_path, text + " 20260302   08:00:05      0       1234     C    10     2     -     -   python\n")

    assert (frame.at - EIGHT, frame.processes) == (5.0, {A: (Process(1234, sm_utilization_percent=10.0, command="python"),)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DMON, "nvidia-smi-dmon"),
        (ALL, "nvidia-smi-dmon"),
        ("#gpu, pwr\n", "nvidia-smi-dmon"),
        (PMON, "nvidia-smi-pmon"),
        ("# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n", None),
        ("# gpu usage of the lab\n", None),
    ],
)
def test_what_looks_like_a_list(text: str, expected: str | None) -> None:
    """The names of its columns tell."""
    assert [name for name in ("nvidia-smi-dmon", "nvidia-smi-pmon") if FORMATS[name].sniff(text)] == ([expected] if expected else [])
