"""What holds for every format that is made of pages or rounds: damage never misleads, and other formats keep their files."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import (
    BUS_B,
    DMON,
    PMON,
    B,
    gpustat,
    q_gpu,
    q_page,
    q_process,
    read,
    row,
    t_gpu,
    t_page,
    t_process,
    x_gpu,
    x_page,
)

from detector.errors import SourceError
from detector.frame import Device, Fault, Frame
from detector.sources.format import ReadOptions
from detector.sources.pages import Entry, Pages, evenly
from detector.sources.recording import FORMATS, Problems
from detector.sources.text import Text
from detector.sources.timestamps import UNDATED

PROCESSES = "    Processes\n" + q_process(4242, "/usr/bin/python3", "64001 MiB")
ECC = {
    "Clocks_Event_Reasons": {"SW Power Cap": "Active", "HW Slowdown": "Active", "Sync Boost": "Active"},
    "ECC_Errors": {"Volatile": {"SRAM Uncorrectable": "21", "DRAM Uncorrectable": "43"}},
    "PCI": {"Replays Since Reset": "1207"},
}
RTX = "[{}] GeForce RTX 2070 | 34°C,  31 %,  12 % (E:  11 %  D:  13 %),  126 / 250 W |  7584 /  7982 MB | root:python/820594(7581M)"
SAMPLES = {
    "nvidia-smi-query": "".join(q_page(60 * n, q_gpu(processes=PROCESSES), q_gpu(BUS_B, B, **ECC)) for n in range(2)),
    "nvidia-smi-xml": "".join(x_page(60 * n, x_gpu(), x_gpu(BUS_B, B, pci={"replay_counter": "1207"})) for n in range(2)),
    "nvidia-smi-table": "".join(
        t_page(60 * n, t_gpu(memory="17706MiB", load="83%", ecc="12"), t_gpu(1, BUS_B), processes=t_process(0, 851083)) for n in range(2)
    ),
    "nvidia-smi-dmon": DMON + "".join(row(n % 2, 438, 55, 61, 97, 43, 12, 13, 0, 0, 2619, 1980) for n in range(4)),
    "nvidia-smi-pmon": PMON
    + "".join(row(n % 2, 21180, "C", 97, 43, 0, 0, 0, 0, 3000, 12).rstrip() + "    python      \n" for n in range(4)),
    "gpustat": "".join(gpustat(60 * n, RTX.format(0), RTX.format(1)) for n in range(2)),
    "wandb": "".join(f'{{"system.gpu.0.gpu": 97.25, "system.gpu.0.powerWatts": 127.79, "_timestamp": 15820709{n}0}}\n' for n in (1, 4)),
}
OTHERS = {
    "trace": '{"at": 1700000000.0, "host": "a", "devices": [{"uuid": "GPU-a", "readings": {"utilization_percent": 9}}]}\n',
    "csv": "timestamp, index, utilization.gpu [%], memory.used [MiB]\n2026/03/02 08:00:00.000, 0, 97 %, 61000 MiB\n",
    "csv without a header": "97, 61000\n96, 61000\n" * 20,
    "kernel log": "Mar  2 08:00:00 node-a kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n",
    "dcgm": "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
    'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",device="nvidia0"} 41 1700000000000\n',
    "prometheus": '{"status": "success", "data": {"result": [{"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP"}, "value": [1, "41"]}]}}\n',
    "prose": "=== 2024-10-31 15:33:14 ===\nGPU Load: 2.0%\nGPU Memory: 121.0MB / 6144.0MB (2.0%)\n2026-04-29 11:53:23 GPU util: 94%\n",
    "tegrastats": "RAM 506/3964MB (lfb 728x4MB) CPU [0%@102,0%@102] GR3D_FREQ 0% PLL@29.5C PMIC@100C GPU@31.5C\n",
}
NAMES = tuple(SAMPLES)
Told = tuple[str, str, float]
"""Device, metric, value."""


def told(frames: list[Frame]) -> Iterator[Told]:
    """Every reading that is there."""
    for frame in frames:
        for n, device in enumerate(frame.devices):
            for metric, value in zip(frame.metrics, frame.values[n].tolist(), strict=True):
                if value == value:
                    yield device.pci_bus_id or device.uuid, metric, value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, set[Told]]:
    """The readings of each sample."""
    return {name: set(told(read(folder, text, format=name))) for name, text in SAMPLES.items()}


def read_if_possible(folder: Path, text: str | bytes, name: str) -> list[Frame]:
    try:
        return read(folder, text, format=name)
    except SourceError:
        return []


# -- which format it is -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_each_is_recognised(name: str, tmp_path: Path) -> None:
    """By one of these formats alone, and `auto` reads it without a complaint."""
    problems = Problems()
    frames = read(tmp_path, SAMPLES[name], problems)

    assert [other for other in NAMES if FORMATS[other].sniff(SAMPLES[name])] == [name]
    assert (len(frames), len(problems)) == (2, 0)


@pytest.mark.parametrize("other", OTHERS)
def test_other_formats_keep_their_files(other: str) -> None:
    """Nor is free text about GPUs one of these."""
    assert [name for name in NAMES if FORMATS[name].sniff(OTHERS[other])] == []


@pytest.mark.parametrize("name", ["prose", "tegrastats"])
def test_free_text_is_refused(name: str, tmp_path: Path) -> None:
    """The way out is said."""
    with pytest.raises(SourceError, match="looks like none of the formats"):
        read(tmp_path, OTHERS[name])


# -- damage -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(data=st.data())
def test_a_cut_makes_up_no_reading(name: str, data: st.DataObject, folder: Path, whole: dict[str, set[Told]]) -> None:
    """Wherever a recording ends, and where it is torn and the next begins: what is read was there."""
    text = SAMPLES[name]
    cut = data.draw(st.integers(1, len(text)))
    again = text.lstrip("\n") if data.draw(st.booleans()) else ""

    assert set(told(read_if_possible(folder, text[:cut] + again, name))) <= whole[name]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(data=st.data())
def test_a_cut_loses_no_device(name: str, data: st.DataObject, folder: Path) -> None:
    """One that the first look shows is on the list of a second look that is cut off."""
    text = SAMPLES[name]
    half = len(text) // 2
    frames = read_if_possible(folder, text[: data.draw(st.integers(half + 1, len(text)))], name)
    lists = [{device.uuid for device in frame.devices} for frame in frames]

    assert all(lists[0] <= one for one in lists[1:])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(data=st.data())
def test_noise_is_survived(name: str, data: st.DataObject, folder: Path) -> None:
    """Whatever stands in a recording, it is read or refused; readings stay plausible."""
    text = SAMPLES[name]
    places = data.draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=4).map(sorted))
    noise = st.text(max_size=20) | st.sampled_from(
        ["\n", "\n\n", "GPU 00000000:01:00.0\n", "|", "|===|\n", "{", "}", "<gpu>", "</gpu>", "# gpu\n", "[0] "]
    )
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    noisy = "".join(piece + data.draw(noise) for piece in pieces).encode("utf-8", "replace")

    assert all(np.isfinite(value) for _, _, value in told(read_if_possible(folder, noisy, name)))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(data=st.binary(min_size=1, max_size=300))
def test_bytes_are_refused(name: str, data: bytes, folder: Path) -> None:
    """A file of another kind is no reason to fall over."""
    assert list(told(read_if_possible(folder, data, name))) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "filling", [" ", "=", "|", "[0] ", "1", "(", "?", "-", "<a>", "<?xml", "&", "# gpu", "12 %", "a:b/", '"', "\\", "{", "NVSMI LOG"]
)
def test_a_line_without_end_is_survived(name: str, filling: str, folder: Path, whole: dict[str, set[Told]]) -> None:
    """Time grows with the length of a line, not with its square."""
    first = SAMPLES[name].partition("\n")[0]

    assert set(told(read_if_possible(folder, f"{first}{filling * (200_000 // len(filling))}\n", name))) <= whole[name]


@pytest.mark.parametrize("name", NAMES)
def test_memory_does_not_grow_with_the_file(name: str, tmp_path: Path) -> None:
    """Ten times the looks take no more."""
    peaks = []
    for times in (40, 400):
        path = tmp_path / f"{times}"
        path.write_text(SAMPLES[name] * times)
        tracemalloc.start()
        try:
            for _ in FORMATS[name].read(Text(path, Problems()), ReadOptions(timezone="UTC"), Problems()):
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    assert peaks[1] < 2 * peaks[0] + 4e6  # a chunk of the file is 256 KiB, as text and as lines


# -- frames of pages ----------------------------------------------------------------------------------------------------------
def entry(uuid: str, value: float = 1.0) -> Entry:
    return Entry(Device(uuid), {"utilization_percent": value})


def test_a_device_that_stands_on_a_page_twice_is_one() -> None:
    """The first time counts."""
    [frame] = Pages(ReadOptions()).page([entry("a", 1.0), entry("b", 2.0), entry("a", 3.0)])

    assert ([device.uuid for device in frame.devices], frame.values.tolist()) == (["a", "b"], [[1.0], [2.0]])


def test_devices_are_the_same_objects_while_they_are_the_same() -> None:
    """Whoever follows compares by identity first."""
    pages = Pages(ReadOptions())
    first, second = (frame for n in range(2) for frame in pages.page([entry("a"), entry("b")], float(n)))

    assert first.devices is second.devices


def test_blind_looks_fill_the_time_between_pages() -> None:
    """At the usual distance; closer, where the next page leaves less room; before the first page, as far ahead of it."""
    pages = Pages(ReadOptions(interval=10.0))
    fault = Fault("unknown")
    frames = [*pages.blind(fault), *pages.page([entry("a")], 100.0), *pages.page([entry("a")], 110.0)]
    frames += [*pages.blind(fault), *pages.blind(fault), *pages.page([entry("a")], 119.0), *pages.blind(fault), *pages.end()]

    assert [(frame.at, bool(frame.faults)) for frame in frames] == [
        (90.0, True), (100.0, False), (110.0, False), (113.0, True), (116.0, True), (119.0, False), (129.0, True),
    ]  # fmt: skip


def test_blind_looks_alone() -> None:
    """A recording that never saw anything begins at the undated start."""
    pages = Pages(ReadOptions())

    assert [frame.at - UNDATED for frame in (*pages.blind(Fault("unknown")), *pages.blind(Fault("hung")), *pages.end())] == [0.0, 1.0]


@given(st.lists(st.integers(0, 5), max_size=200).map(sorted))
def test_looks_of_one_second_keep_their_order_and_their_second(stamps: list[int]) -> None:
    """None leaves its second, and time never stands still."""
    at = [frame.at for frame in evenly(Frame(host="a", at=float(stamp)) for stamp in stamps)]

    assert [int(one) for one in at] == stamps
    assert len(set(at)) == len(at) or max(map(stamps.count, stamps)) > 64
