"""The table of plain `nvidia-smi`: layouts of many drivers, loops, instances, and tables that are torn."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from recorded import (
    BUS_A,
    BUS_B,
    EIGHT,
    MIB,
    T_END,
    T_HEAD,
    T_NONE,
    T_PROCESSES,
    ctime,
    q_gpu,
    q_page,
    read,
    seconds,
    t_gpu,
    t_page,
    t_process,
)

from detector.errors import SourceError
from detector.frame import Device, Fault, Frame, Process
from detector.sources.recording import FORMATS, Problems
from detector.sources.timestamps import UNDATED

A, B = f"PCI-{BUS_A}", f"PCI-{BUS_B}"
BUSY = {"gauges": "|  0%   38C    P2             97W /  300W |", "memory": "1835MiB", "load": "29%"}


def listed(frames: list[Frame]) -> list[list[str]]:
    return [[device.uuid for device in frame.devices] for frame in frames]


def told(frame: Frame, uuid: str = A) -> dict[str, float]:
    """The readings that are there."""
    return {metric: value for metric in frame.metrics if not math.isnan(value := frame.reading(uuid, metric))}


def test_a_table_is_a_frame(tmp_path: Path) -> None:
    """Both rows of a GPU, its processes, the driver, and the time above."""
    [frame] = read(tmp_path, t_page(0, t_gpu(**BUSY), processes=t_process(0, 851083, "/opt/conda/envs/a/bin/python")))

    assert seconds([frame]) == [0.0]
    assert frame.driver_version == "550.54.15"
    assert frame.devices == (Device(A, index=0, name="NVIDIA A40", pci_bus_id=BUS_A),)
    assert told(frame) == {
        "utilization_percent": 29.0, "memory_used_bytes": 1835 * MIB, "memory_total_bytes": 46068 * MIB, "temperature_celsius": 38.0,
        "fan_speed_percent": 0.0, "power_watts": 97.0, "power_limit_watts": 300.0, "performance_state": 2.0, "compute_mode": 0.0,
        "ecc_uncorrected_volatile_total": 0.0, "ecc_mode": 1.0, "persistence_mode": 1.0,
    }  # fmt: skip
    assert frame.unavailable == {A: {"mig_mode": "not_supported"}}
    assert frame.processes == {A: (Process(851083, memory_used_bytes=1826 * MIB, command="/opt/conda/envs/a/bin/python"),)}


OLD = f"""\
{ctime(0)}
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 384.81                 Driver Version: 384.81                    |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  Off  | 00000000:3B:00.0 Off |                    2 |
| N/A   35C    P0    56W / 300W |    457MiB / 16152MiB |      7%   E. Process |
+-------------------------------+----------------------+----------------------+
|   1  GeForce GTX 1080   WDDM  | 00000000:5E:00.0  On |                  N/A |
|ERR!   64C    P8    N/A /  N/A |    200MiB /  8192MiB |     N/A   Prohibited |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0     12345      C   python                                       447MiB |
|    1      1096    C+G   ...oft Office\\root\\Office16\\WINWORD.EXE    N/A      |
|    1      1300    C+G   Insufficient Permissions                   N/A      |
+-----------------------------------------------------------------------------+
"""


def test_the_layout_before_mig(tmp_path: Path) -> None:
    """Two rows a GPU, narrow columns, a name that is cut, a driver model of Windows, and processes without instances."""
    problems = Problems()
    [frame] = read(tmp_path, OLD, problems)

    assert [(device.name, device.index) for device in frame.devices] == [("Tesla V100-SXM2...", 0), ("GeForce GTX 1080", 1)]
    assert told(frame) == {
        "utilization_percent": 7.0, "memory_used_bytes": 457 * MIB, "memory_total_bytes": 16152 * MIB, "temperature_celsius": 35.0,
        "power_watts": 56.0, "power_limit_watts": 300.0, "performance_state": 0.0, "ecc_uncorrected_volatile_total": 2.0, "ecc_mode": 1.0,
        "persistence_mode": 0.0, "compute_mode": 3.0,
    }  # fmt: skip
    assert told(frame, B) == {
        "memory_used_bytes": 200 * MIB, "memory_total_bytes": 8192 * MIB, "temperature_celsius": 64.0, "performance_state": 8.0,
        "compute_mode": 2.0,
    }  # fmt: skip
    assert frame.unavailable[B]["fan_speed_percent"] == "unknown"
    assert frame.processes == {
        A: (Process(12345, 447 * MIB, command="python"),),
        B: (Process(1096, command="...oft Office\\root\\Office16\\WINWORD.EXE"), Process(1300)),
    }
    assert problems.lines() == []


@pytest.mark.parametrize(
    "gauges",
    [
        "| N/A   27C    P8             32W /  350W |", "|N/A   27C    P8    32W / 350W |", "| N/A  27C  P8  32W/350W |",
        "|  N/A   27C   P8              32W /  350W |", "| 100%   27C    P8              32W / 350W |",
    ],
)  # fmt: skip
def test_spaces_do_not_matter(gauges: str, tmp_path: Path) -> None:
    """Columns grew with every driver."""
    [frame] = read(tmp_path, t_page(0, t_gpu(gauges=gauges)))

    assert [frame.reading(A, metric) for metric in ("temperature_celsius", "power_watts", "power_limit_watts")] == [27.0, 32.0, 350.0]


@pytest.mark.parametrize(
    ("ecc", "expected"),
    [("Off", {"ecc_mode": 0.0}), ("On", {"ecc_mode": 1.0}), ("N/A", {}), ("3", {"ecc_mode": 1.0, "ecc_uncorrected_volatile_total": 3.0})],
)
def test_the_column_of_ecc(ecc: str, expected: dict[str, float], tmp_path: Path) -> None:
    """It counts errors, or says whether ECC is on."""
    [frame] = read(tmp_path, t_page(0, t_gpu(ecc=ecc)))

    assert {metric: value for metric, value in told(frame).items() if metric.startswith("ecc")} == expected


@pytest.mark.parametrize(("mig", "expected"), [("Enabled", 1.0), ("Disabled", 0.0), ("Enabled*", 1.0), ("N/A", math.nan)])
def test_the_third_row(mig: str, expected: float, tmp_path: Path) -> None:
    """It is about MIG; a star is a change that waits for a reset."""
    assert read(tmp_path, t_page(0, t_gpu(mig=mig)))[0].reading(A, "mig_mode") == pytest.approx(expected, nan_ok=True)


def test_err_all_over_is_a_lost_gpu(tmp_path: Path) -> None:
    """The memory, which the driver knows by heart, does not bring it back; a gauge or two that fail are no loss."""
    lost = t_gpu(0, name="ERR!", gauges="|ERR!  ERR! ERR!             ERR! / ERR! |", load="ERR!", ecc="ERR!", mig="ERR!")
    half = t_gpu(1, BUS_B, gauges="| N/A   ERR!   P0             ERR! / ERR! |", memory="10457MiB", load="0%")
    [frame] = read(tmp_path, t_page(0, lost, half))

    assert listed([frame]) == [[B]]
    assert frame.faults == (Fault("gpu_lost", A),)
    assert frame.unavailable[B]["temperature_celsius"] == "unknown"


# -- time ---------------------------------------------------------------------------------------------------------------------
def test_the_interval_changes(tmp_path: Path) -> None:
    """A minute apart, then twice a second: the stamp has whole seconds only."""
    at = [0, 60, 120, 121, 121, 122, 122]

    assert seconds(read(tmp_path, "".join(t_page(second, t_gpu()) for second in at))) == [0.0, 60.0, 120.0, 121.0, 121.5, 122.0, 122.5]


@pytest.mark.parametrize(("interval", "step"), [(None, 1.0), (5.0, 5.0)])
def test_tables_without_a_time(interval: float | None, step: float, tmp_path: Path) -> None:
    """Somebody cut the line above: identical tables follow one another all the same."""
    assert [frame.at - UNDATED for frame in read(tmp_path, t_page(None, t_gpu()) * 3, interval=interval)] == [0.0, step, 2 * step]


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("2026-03-02 08:00:07", 7.0),
        ("Mon Mar  2 08:00:07 UTC 2026", 7.0),
        ("2026-03-02T09:00:07+01:00", 7.0),
        (f"{EIGHT + 7:.0f}", 7.0),
        ("12", None),
    ],
)
def test_a_time_that_the_loop_prints(line: str, at: float | None, tmp_path: Path) -> None:
    """`date` before each table is a time, a number that somebody counts is none."""
    [frame] = read(tmp_path, f"{line}\n{t_page(None, t_gpu())}")

    assert (None if frame.at == UNDATED else frame.at - EIGHT) == at


def test_a_sentence_after_its_time(tmp_path: Path) -> None:
    """`date; nvidia-smi` in a loop, and the driver goes away."""
    sentence = "Failed to initialize NVML: Unknown Error"
    frames = read(tmp_path, f"{t_page(0, t_gpu())}{ctime(60)}\n{sentence}\n{ctime(120)}\n{sentence}\n{t_page(180, t_gpu())}")

    assert seconds(frames) == [0.0, 60.0, 120.0, 180.0]
    assert [frame.faults for frame in frames] == [(), (Fault("unknown", None, sentence),), (Fault("unknown", None, sentence),), ()]


# -- processes ----------------------------------------------------------------------------------------------------------------
HELD = {"memory": "17706MiB"}


@pytest.mark.parametrize(
    ("memory", "processes", "expected"),
    [
        ("0MiB", T_NONE, {A: ()}),
        ("17706MiB", T_NONE, {}),
        ("0MiB", "", {}),
        ("17706MiB", "", {}),
        ("0MiB", "|    0            Not Supported                                                              |\n", {}),
    ],
)
def test_an_empty_list_of_processes(memory: str, processes: str, expected: object, tmp_path: Path) -> None:
    """In a container it is empty though memory is held; without the sentence there are processes that cannot be shown."""
    assert expected == read(tmp_path, t_page(0, t_gpu(memory=memory), processes=processes))[0].processes


def test_processes_that_end_while_their_memory_stays(tmp_path: Path) -> None:
    """A list that has shown some is believed when it shows none."""
    frames = read(tmp_path, t_page(0, t_gpu(**HELD), processes=t_process(0, 7)) + t_page(60, t_gpu(**HELD)))

    assert [len(frame.processes[A]) for frame in frames] == [1, 0]


def test_a_process_on_one_of_two_gpus(tmp_path: Path) -> None:
    """The other has none."""
    [frame] = read(tmp_path, t_page(0, t_gpu(**HELD), t_gpu(1, BUS_B), processes=t_process(0, 7) + t_process(0, 8, "")))

    assert frame.processes == {A: (Process(7, 1826 * MIB, command="python"), Process(8, 1826 * MIB)), B: ()}


def test_a_gpu_whose_processes_are_not_shown(tmp_path: Path) -> None:
    """Boards for display do not tell; that their neighbour has some says nothing of them."""
    hidden = "|    1            Not Supported                                                              |\n"
    [frame] = read(tmp_path, t_page(0, t_gpu(**HELD), t_gpu(1, BUS_B), processes=t_process(0, 7) + hidden))

    assert list(frame.processes) == [A]


INSTANCES = """
+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC DEC OFA JPG    |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  0    7   0   0  |              13MiB / 10880MiB    | 16      0 |  1   0    1    0    1 |
|                  |                 0MiB / 16383MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  0    8   0   1  |            9000MiB / 10880MiB    | 16      0 |  1   0    1    0    1 |
|                  |                 2MiB / 16383MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
"""


def test_instances_are_devices_of_their_parent(tmp_path: Path) -> None:
    """Each with its own memory and processes."""
    problems = Problems()
    page = t_page(0, t_gpu(load="N/A", mig="Enabled", ecc="On"), instances=INSTANCES, processes=t_process(0, 9, instance="8"))
    [frame] = read(tmp_path, page, problems)
    first, second = f"MIG-{A}/7/0", f"MIG-{A}/8/0"

    assert [(device.uuid, device.index, device.parent) for device in frame.devices] == [(A, 0, None), (first, 0, A), (second, 1, A)]
    assert [frame.reading(uuid, "memory_used_bytes") / MIB for uuid in (first, second)] == [13.0, 9000.0]
    assert frame.processes == {first: (), second: (Process(9, 1826 * MIB, command="python"),)}
    assert problems.lines() == []


def test_no_instances(tmp_path: Path) -> None:
    """A GPU that is to be partitioned and is not yet."""
    empty = "".join(INSTANCES.splitlines(keepends=True)[:8]) + "|  No MIG devices found                             |\n" + T_END
    problems = Problems()

    assert listed(read(tmp_path, t_page(0, t_gpu(), instances=empty), problems)) == [[A]]
    assert problems.lines() == []


# -- damage -------------------------------------------------------------------------------------------------------------------
def test_a_table_that_is_cut_off_loses_no_gpu(tmp_path: Path) -> None:
    """Those that it does not show were not looked at."""
    page = t_page(60, t_gpu(**BUSY), t_gpu(1, BUS_B))
    problems = Problems()
    whole = t_page(0, t_gpu(), t_gpu(1, BUS_B))
    frames = read(tmp_path, whole + page[: page.index(BUS_B) + 4] + "\n" + t_page(120, t_gpu(), t_gpu(1, BUS_B)), problems)

    assert listed(frames) == [[A, B], [A, B], [A, B]]
    assert [frame.reading(A, "utilization_percent") for frame in frames] == [0.0, 29.0, 0.0]
    assert math.isnan(frames[1].reading(B, "utilization_percent"))
    assert len(problems) == 2  # the torn row, and the page


def test_tables_without_their_processes_are_whole(tmp_path: Path) -> None:
    """`nvidia-smi | head` keeps the GPUs; one that is not among them is gone."""
    heads = "".join(f"{ctime(60 * n)}\n{T_HEAD}{t_gpu()}{t_gpu(1, BUS_B) if n < 2 else ''}\n" for n in range(4))
    problems = Problems()

    assert listed(read(tmp_path, heads, problems)) == [[A, B], [A, B], [A], [A]]
    assert problems.lines() == []


def test_a_row_that_is_torn_costs_its_gpu_the_readings(tmp_path: Path) -> None:
    """The line is named, the others are read."""
    text = t_page(0, t_gpu(gauges="|  0%   38C    P2"), t_gpu(1, BUS_B))
    problems = Problems()
    [frame] = read(tmp_path, text, problems)

    assert (listed([frame]), "power_watts" in told(frame), "power_watts" in told(frame, B)) == ([[A, B]], False, True)
    assert problems.lines() == [f"{tmp_path}/recording, line 10: a row of the table that cannot be read: torn?"]


def test_other_lines_are_left_out(tmp_path: Path) -> None:
    """The program's own output in the same log is no loss."""
    problems = Problems()
    frames = read(tmp_path, f"epoch 1\n{t_page(0, t_gpu())}----\nloss 0.4 | lr 1e-4\n{t_page(60, t_gpu())}", problems)

    assert (len(frames), problems.lines()) == (2, [f"note: {tmp_path}/recording: lines between the tables are left out"])


def test_a_table_without_gpus_is_refused(tmp_path: Path) -> None:
    """It is no empty host."""
    with pytest.raises(SourceError):
        read(tmp_path, f"{ctime(0)}\n{T_HEAD}{T_PROCESSES}{T_NONE}{T_END}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (t_page(0, t_gpu()), True),
        (OLD, True),
        ("log\n" * 500 + t_page(0, t_gpu()), True),
        (q_page(0, q_gpu()), False),
        ("| a | b |\n|---|---|\n", False),
    ],
)
def test_what_looks_like_a_table(text: str, expected: bool) -> None:
    """The row with the version of nvidia-smi."""
    assert expected == FORMATS["nvidia-smi-table"].sniff(text)
