"""Scrapes of DCGM's exporter, as people keep them: with times and without, whole, torn and edited."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import SourceError
from detector.frame import Event, Frame
from detector.metrics import METRICS
from detector.sources import dcgm
from detector.sources.recording import Problems, ReadOptions, read_recording
from detector.sources.text import CHUNK
from detector.sources.timestamps import UNDATED

START = 1_772_438_400.0
MIB = 1024.0**2
A, B = "GPU-aaaaaaaa-0000-4000-8000-00000000000a", "GPU-bbbbbbbb-0000-4000-8000-00000000000b"
UTIL, TEMP, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"
USED, FREE, XID = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_XID_ERRORS"


def sample(name: str, value: object, second: float | None = None, uuid: str = A, **labels: str) -> str:
    """A line of a scrape. Without a *second* it bears no time."""
    told = {"gpu": "0" if uuid == A else "1", "UUID": uuid, "Hostname": "node-a", **labels}
    inside = ",".join(f'{label}="{text}"' for label, text in told.items())
    return f"{name}{{{inside}}} {value}" + ("" if second is None else f" {round((START + second) * 1000)}")


def recorded(path: Path, lines: Iterable[str], problems: Problems | None = None, **options: object) -> list[Frame]:
    file = path / "scrapes.prom"
    file.write_text("".join(f"{line}\n" for line in lines))
    return list(read_recording(file, options=ReadOptions(**options), problems=problems))  # type: ignore[arg-type]


def events(frames: Iterable[Frame]) -> list[tuple[float, int | None]]:
    return [(event.at - START, event.code) for frame in frames for event in frame.events]


# -- what a sample says -----------------------------------------------------------------------------------------------------
def test_a_scrape_is_a_frame(tmp_path: Path) -> None:
    """Samples of one moment are one frame of all GPUs, with what the labels tell of them."""
    facts = {"pci_bus_id": "00000000:3B:00.0", "modelName": "NVIDIA L4", "DCGM_FI_DRIVER_VERSION": "550.90.07"}
    lines = ["# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).", "# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    lines += [sample(UTIL, 97, 0.0, **facts), sample(UTIL, 3, 0.0, B), sample(POWER, "61.500000", 0.0)]

    (frame,) = recorded(tmp_path, lines)

    assert (START, "node-a", "550.90.07") == (frame.at, frame.host, frame.driver_version)
    assert [(A, 0), (B, 1)] == [(device.uuid, device.index) for device in frame.devices]
    assert ("NVIDIA L4", "00000000:3B:00.0", "gpu") == (frame.devices[0].name, frame.devices[0].pci_bus_id, frame.devices[0].kind)
    assert (97.0, 61.5, 3.0) == (
        frame.reading(A, "utilization_percent"),
        frame.reading(A, "power_watts"),
        frame.reading(B, "utilization_percent"),
    )
    assert math.isnan(frame.reading(B, "power_watts"))


@pytest.mark.parametrize(
    ("name", "value", "metric", "reading"),
    [
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, "graphics_engine_active_percent", 50.0),
        ("DCGM_FI_DEV_FB_USED", 20_000, "memory_used_bytes", 20_000 * MIB),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 4_742_776, "energy_joules_total", 4742.776),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 72, "clock_event_reasons", 72.0),
        ("dcgm_gpu_utilization", 41, "utilization_percent", 41.0),
        ("dcgm_ecc_dbe_volatile_total", 2, "ecc_uncorrected_volatile_total", 2.0),
        ("dcgm_retired_pages_pending", 1, "retired_pages_pending", 1.0),
        ("dcgm_tensor_active", 0.25, "tensor_active_percent", 25.0),
        ("nvidia_smi_utilization_gpu_ratio", 0.41, "utilization_percent", 41.0),
        ("nvidia_smi_memory_used_bytes", 2097152, "memory_used_bytes", 2.0 * MIB),
        ("nvidia_smi_clocks_current_sm_clock_hz", 1.41e9, "sm_clock_mhz", 1410.0),
        ("nvidia_smi_temperature_gpu", 44, "temperature_celsius", 44.0),
        ("nvidia_smi_power_draw_watts", 1e2, "power_watts", 100.0),
    ],
)
def test_exporters_and_their_units(tmp_path: Path, name: str, value: float, metric: str, reading: float) -> None:
    """Each exporter's name stands for a metric, and its value is turned into the metric's unit."""
    (frame,) = recorded(tmp_path, [sample(name, value, 0.0)])

    assert reading == pytest.approx(frame.reading(A, metric), rel=1e-12)


@pytest.mark.parametrize(
    "text", ["9223372036854775794", "9.223372036854776e+18", "4294967295", "140737488355328.0", "2147483632", "NaN", "+Inf"]
)
def test_a_blank_is_missing(tmp_path: Path, text: str) -> None:
    """What DCGM writes for "not known" is no reading of any metric, but the GPU is there."""
    fields = sorted({name for metric in METRICS.values() for name, _ in metric.dcgm})

    (frame,) = recorded(tmp_path, [sample(name, text, 0.0) for name in fields])

    assert [A] == [device.uuid for device in frame.devices]
    assert bool(np.isnan(frame.values).all())


def test_what_cannot_be_is_missing(tmp_path: Path) -> None:
    """A utilisation of 1733 % is a sample to drop, and its neighbours are not."""
    (frame,) = recorded(tmp_path, [sample(UTIL, 1733, 0.0), sample(TEMP, 44, 0.0)])

    assert ("temperature_celsius",) == frame.metrics
    assert 44.0 == frame.reading(A, "temperature_celsius")


def test_the_better_of_two_fields_counts(tmp_path: Path) -> None:
    """Two fields of one metric: the averaged power counts, whichever comes first, and the instant one where it is alone."""
    instant = "DCGM_FI_DEV_POWER_USAGE_INSTANT"
    lines = [
        sample(POWER, 100, 0.0),
        sample(instant, 140, 0.0),
        sample(instant, 141, 30.0),
        sample(POWER, 101, 30.0),
        sample(instant, 142, 60.0),
    ]

    assert [100.0, 101.0, 142.0] == [frame.reading(A, "power_watts") for frame in recorded(tmp_path, lines)]


def test_the_size_of_the_memory_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    """Without FB_TOTAL it is what is used, free and reserved; with it, it is FB_TOTAL."""
    parts = [sample(USED, 100, 0.0), sample(FREE, 800, 0.0), sample("DCGM_FI_DEV_FB_RESERVED", 50, 0.0)]

    assert [950 * MIB] == [frame.reading(A, "memory_total_bytes") for frame in recorded(tmp_path, parts)]
    assert [960 * MIB] == [
        frame.reading(A, "memory_total_bytes") for frame in recorded(tmp_path, [*parts, sample("DCGM_FI_DEV_FB_TOTAL", 960, 0.0)])
    ]


# -- who it is about ----------------------------------------------------------------------------------------------------------
def test_pods_share_a_gpu(tmp_path: Path) -> None:
    """Three pods on one GPU are three label sets, one GPU, and no sum."""
    lines = [sample(USED, 30_000, 0.0, pod=f"w-{n}", namespace="team") for n in range(3)]

    (frame,) = recorded(tmp_path, lines)

    assert [30_000 * MIB] == frame.values[:, frame.metrics.index("memory_used_bytes")].tolist()
    assert {} == dict(frame.processes)


def test_an_instance_is_a_device_of_its_own(tmp_path: Path) -> None:
    """UUID and GPU_I_ID are a MIG instance, whose parent is the GPU."""
    lines = [sample(POWER, 200, 0.0), sample("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.9, 0.0, GPU_I_ID="2", GPU_I_PROFILE="3g.40gb")]

    (frame,) = recorded(tmp_path, lines)
    gpu, instance = frame.devices

    assert (A, None, "gpu") == (gpu.uuid, gpu.parent, gpu.kind)
    assert (f"MIG-{A}/2", A, "3g.40gb", "mig") == (instance.uuid, instance.parent, instance.mig_profile, instance.kind)
    assert 90.0 == pytest.approx(frame.reading(instance.uuid, "graphics_engine_active_percent"))
    assert math.isnan(frame.reading(A, "graphics_engine_active_percent"))


def test_a_new_profile_is_the_same_instance(tmp_path: Path) -> None:
    """An instance that changes its profile keeps its identity; `<<<NULL>>>` is none."""
    profiles = ("1g.12gb", "1g.24gb", "<<<NULL>>>")
    frames = recorded(tmp_path, [sample(USED, 7000, 30.0 * n, GPU_I_ID="2", GPU_I_PROFILE=profile) for n, profile in enumerate(profiles)])
    alone = recorded(tmp_path, [sample(USED, 0, 0.0, GPU_I_ID="6", GPU_I_PROFILE="<<<NULL>>>")])

    assert {f"MIG-{A}/2"} == {device.uuid for frame in frames for device in frame.devices}
    assert ["1g.12gb", "1g.24gb"] == [frame.devices[0].mig_profile for frame in frames[:2]]
    assert [None] == [device.mig_profile for device in alone[0].devices]


def test_no_instance_is_an_empty_label(tmp_path: Path) -> None:
    """Exporters leave GPU_I_ID empty for a whole GPU."""
    (frame,) = recorded(tmp_path, [sample(UTIL, 1, 0.0, GPU_I_ID="", GPU_I_PROFILE="")])

    assert [A] == [device.uuid for device in frame.devices]


def test_labels_that_somebody_replaced_by_dots(tmp_path: Path) -> None:
    """A page from a manual leaves out what does not change: index and host stand for the GPU named before."""
    lines = [sample(UTIL, 1), sample(UTIL, 2, uuid=B), f'{TEMP}{{gpu="0",...,modelName="NVIDIA L40S",...}} 32', f'{TEMP}{{gpu="1", …}} 33']

    (frame,) = recorded(tmp_path, lines)

    assert [A, B] == [device.uuid for device in frame.devices]
    assert (32.0, 33.0) == (frame.reading(A, "temperature_celsius"), frame.reading(B, "temperature_celsius"))


@pytest.mark.parametrize(
    ("labels", "host", "uuid"),
    [
        ('gpu="3",Hostname="node-b"', "node-b", "INDEX-3"),
        ('pci_bus_id="0000:3b:00.0",instance="10.0.0.7:9400"', "10.0.0.7", "PCI-00000000:3B:00.0"),
        ('uuid="df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"', "here", "GPU-df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"),
        (r'UUID="GPU-a",Hostname="a\"b\\c"', 'a"b\\c', "GPU-a"),
    ],
)
def test_names_of_hosts_and_gpus(tmp_path: Path, labels: str, host: str, uuid: str) -> None:
    """The best name that the labels have; --host for those that name none."""
    (frame,) = recorded(tmp_path, [f"{TEMP}{{{labels}}} 40 {START:.0f}000"], host="here")

    assert (host, [uuid]) == (frame.host, [device.uuid for device in frame.devices])


def test_hosts_have_frames_of_their_own(tmp_path: Path) -> None:
    """Two hosts in one file are two lines of frames, in the order of time, though one falls silent early on."""
    looks = [(15.0 * n + late, host) for n in range(200) for host, late in (("a", 0.0), ("b", 0.1)) if host == "a" or n < 2]

    frames = recorded(tmp_path, [sample(UTIL, 1, second, Hostname=host) for second, host in looks])

    assert looks == [(round(frame.at - START, 3), frame.host) for frame in frames]


def test_a_gpu_whose_series_stop_is_missing(tmp_path: Path) -> None:
    """Frames go on without it; what goes on is not renumbered."""
    lines = [sample(UTIL, 1, 15.0 * n, uuid) for n in range(4) for uuid in (A, B) if uuid == B or n < 2]

    assert [[A, B], [A, B], [B], [B]] == [[device.uuid for device in frame.devices] for frame in recorded(tmp_path, lines)]


# -- when ---------------------------------------------------------------------------------------------------------------------
def test_times_of_a_scrape_may_differ_a_little(tmp_path: Path) -> None:
    """Fields that are read a few milliseconds apart are one look; a reading that comes again is the next one."""
    lines = [sample(UTIL, 1, 0.0), sample(TEMP, 40, 0.3), sample(UTIL, 2, 0.4), sample(TEMP, 41, 0.45)]

    frames = recorded(tmp_path, lines)

    assert [0.0, 0.4] == pytest.approx([frame.at - START for frame in frames])
    assert [(1.0, 40.0), (2.0, 41.0)] == [(f.reading(A, "utilization_percent"), f.reading(A, "temperature_celsius")) for f in frames]


@pytest.mark.parametrize("time", ["1772438400000", "1772438400.000", "1772438400"])
def test_milliseconds_and_seconds(tmp_path: Path, time: str) -> None:
    """Prometheus' text has milliseconds, OpenMetrics seconds."""
    (frame,) = recorded(tmp_path, [f"{sample(UTIL, 1)} {time}", "# EOF"])

    assert START == frame.at


def test_a_page_without_times_is_one_look(tmp_path: Path) -> None:
    """Its place in time is nowhere, and a second page is --interval later."""
    page = ["# HELP x y", sample(UTIL, 5), sample(UTIL, 6, uuid=B)]

    assert [UNDATED] == [frame.at for frame in recorded(tmp_path, page)]
    assert [UNDATED, UNDATED + 30.0] == [frame.at for frame in recorded(tmp_path, page * 2, interval=30.0)]
    assert [UNDATED, UNDATED + 1.0] == [frame.at for frame in recorded(tmp_path, page[1:] * 2)]


def test_the_same_scrape_twice_doubles_nothing(tmp_path: Path) -> None:
    """Two equal pages are two looks at the same GPU with the same readings, and an Xid is still no event."""
    first, second = recorded(tmp_path, ["# HELP x y", sample(USED, 5000), sample(XID, 31)] * 2)

    assert first.devices == second.devices
    assert [first.values.tolist()] == [second.values.tolist()]
    assert [] == events((first, second))


def test_pages_of_several_hosts_without_times(tmp_path: Path) -> None:
    """Each host's first page is its first look."""
    pages = [[f"# HELP {UTIL} y", sample(UTIL, n, Hostname=host)] for n in range(2) for host in ("a", "b")]

    assert [(UNDATED + n, host) for n in range(2) for host in ("a", "b")] == [
        (frame.at, frame.host) for frame in recorded(tmp_path, [line for page in pages for line in page])
    ]


@pytest.mark.parametrize("order", ["series", "metric", "appended"])
def test_a_dump_is_sorted(tmp_path: Path, order: str) -> None:
    """A database writes series after series, people append files in any order: the frames are those of the scrapes."""
    cells = list(product(range(50), (UTIL, TEMP), (A, B)))
    keys: dict[str, Callable[[tuple[int, str, str]], object]] = {
        "series": lambda cell: (cell[1], cell[2], cell[0]),
        "metric": lambda cell: (cell[1], cell[0]),
        "appended": lambda cell: (cell[0] < 25, cell[0]),
    }
    scrapes = recorded(tmp_path, [sample(name, n, 15.0 * n, uuid) for n, name, uuid in cells])

    frames = recorded(tmp_path, [sample(name, n, 15.0 * n, uuid) for n, name, uuid in sorted(cells, key=keys[order])])

    assert [(f.at, len(f.devices), f.reading(B, "temperature_celsius")) for f in scrapes] == [
        (f.at, len(f.devices), f.reading(B, "temperature_celsius")) for f in frames
    ]


def test_a_dump_whose_first_series_is_long(tmp_path: Path) -> None:
    """That it goes on with the next one from the start cannot be seen yet; that it repeats a series can."""
    lines = [sample(UTIL, n % 90, 15.0 * n, uuid) for uuid in (A, B) for n in range(3000)]

    frames = recorded(tmp_path, lines)

    assert sum(map(len, lines[:3000])) > CHUNK
    assert [(15.0 * n, 2) for n in range(3000)] == [(frame.at - START, len(frame.devices)) for frame in frames]


def test_the_name_may_stand_among_the_labels(tmp_path: Path) -> None:
    """As `promtool tsdb dump` writes it."""
    (frame,) = recorded(tmp_path, [f'{{__name__="{UTIL}", UUID="{A}"}} 7 {START:.0f}000'])

    assert 7.0 == frame.reading(A, "utilization_percent")


# -- Xids ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("gauge", "expected"),
    [
        ([0, 0, 31, 31, 31], [(30.0, 31)]),
        ([31, 31, 31], []),
        ([0, 31, 0, 0], [(15.0, 31)]),
        ([0, 31, 0, 31], [(15.0, 31), (45.0, 31)]),
        ([31, 45], [(15.0, 45)]),
        ([0, "9223372036854775794", 0], []),
        ([31, "9223372036854775794", 31], []),
        ([0, 140737488355328.0], []),
    ],
)
def test_a_gauge_of_xids(tmp_path: Path, gauge: list[object], expected: list[tuple[float, int]]) -> None:
    """An event is a change to another code; what it shows first is history, what it repeats is no news, and 0 is none."""
    lines = [line for n, code in enumerate(gauge) for line in (sample(UTIL, 1, 15.0 * n), sample(XID, code, 15.0 * n))]

    assert expected == events(recorded(tmp_path, lines))


def test_the_code_may_be_a_label(tmp_path: Path) -> None:
    """The series with another error code is the same GPU; its words are those of the event."""
    words = {0: "No Error", 31: "GPU memory page fault"}
    lines = [
        line
        for n, code in enumerate([0, 0, 31, 31])
        for line in (sample(TEMP, 40, 15.0 * n), sample(XID, code, 15.0 * n, err_code=str(code), err_msg=words[code]))
    ]

    frames = recorded(tmp_path, lines)

    assert {A} == {device.uuid for frame in frames for device in frame.devices}
    assert [Event("xid", A, START + 30.0, 31, "GPU memory page fault", "dcgm")] == [e for frame in frames for e in frame.events]


def test_a_count_of_xids(tmp_path: Path) -> None:
    """A count by code appears with the first Xid, rises with the next, and goes when its window has passed."""
    counts = [None, 1, 1, 2, None, 1]
    lines = [sample(TEMP, 40, 15.0 * n) for n in range(6)]
    lines += [sample("DCGM_EXP_XID_ERRORS_COUNT", count, 15.0 * n, xid="43") for n, count in enumerate(counts) if count is not None]

    assert [(15.0, 43), (45.0, 43), (75.0, 43)] == events(recorded(tmp_path, lines))


def test_a_gauge_that_appears_with_its_first_xid(tmp_path: Path) -> None:
    """Exporters may leave out a series until there is something to show."""
    lines = [sample(TEMP, 40, 15.0 * n) for n in range(4)] + [sample(XID, 48, 15.0 * n) for n in (2, 3)]

    assert [(30.0, 48)] == events(recorded(tmp_path, lines))


def test_instances_repeat_the_xid_of_their_gpu(tmp_path: Path) -> None:
    """One Xid, told once for the GPU and once for each instance, is one event of the GPU."""
    lines = [
        sample(XID, code, 15.0 * n, **({"GPU_I_ID": part} if part else {})) for n, code in enumerate([0, 94]) for part in ("", "1", "2")
    ]

    assert [Event("xid", A, START + 15.0, 94, "", "dcgm")] == [e for frame in recorded(tmp_path, lines) for e in frame.events]


# -- what is not whole --------------------------------------------------------------------------------------------------------
def test_a_line_that_ends_after_its_labels_is_one_line_lost(tmp_path: Path) -> None:
    """It is said with its number; the file is read."""
    problems = Problems()
    lines = [sample(UTIL, n, 15.0 * n) for n in range(4)]
    lines.insert(2, sample("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "").rstrip())

    assert 4 == len(recorded(tmp_path, lines, problems))
    assert [f"{tmp_path / 'scrapes.prom'}, line 3: no value behind the labels"] == problems.lines()


@pytest.mark.parametrize(
    "torn",
    [
        f'{UTIL}{{gpu="0",UUID="GPU-7',
        f'{UTIL}{{gpu="0",UUID="{A}"}} 4x {START:.0f}000',
        f'{UTIL}{{gpu="0",UUID="{A}"}} 4',
        f'{UTIL}{{gpu="0",UUID="{A}"}} 4 17724384',
        f'{UTIL}{{gpu="0",UUID="{A}"}} 4 5 6 7',
        '="0",UUID="x"} 31 1772438400000',
        "What is this?",
    ],
)
def test_a_torn_line_is_one_line_lost(tmp_path: Path, torn: str) -> None:
    """Whatever is left of it, no reading is made of it."""
    problems = Problems()
    lines = [sample(UTIL, n, 15.0 * n) for n in range(4)]

    frames = recorded(tmp_path, [*lines[:2], torn, *lines[2:]], problems)

    assert [0.0, 1.0, 2.0, 3.0] == [frame.reading(A, "utilization_percent") for frame in frames]
    assert 1 == len(problems)


def test_a_last_value_without_an_end_is_lost(tmp_path: Path) -> None:
    """409.69 watts, cut to 40, are not 40 watts."""
    file, problems = tmp_path / "scrapes.prom", Problems()
    file.write_text(sample(TEMP, 61) + "\n" + sample(POWER, "409.69")[:-4])

    (frame,) = read_recording(file, problems=problems)

    assert ("temperature_celsius",) == frame.metrics
    assert 1 == len(problems)


def test_a_time_among_samples_without_one_is_one_line_lost(tmp_path: Path) -> None:
    """Where it belongs cannot be told."""
    problems = Problems()

    (frame,) = recorded(tmp_path, [sample(UTIL, 1), sample(TEMP, 40), sample(POWER, 50, 0.0)], problems)

    assert ("utilization_percent", "temperature_celsius") == frame.metrics
    assert 1 == len(problems)


def test_other_series_of_a_page_are_none_of_our_business(tmp_path: Path) -> None:
    """What else an exporter shows is skipped without a word."""
    problems = Problems()
    others = ["go_goroutines 8", 'http_seconds_bucket{le="0.1"} 5 # {trace_id="a"} 0.67', "process_cpu_seconds_total 1.5e+02", ""]

    assert 1 == len(recorded(tmp_path, [*others, sample(UTIL, 1), *others], problems))
    assert [] == problems.lines()


def test_a_page_about_other_things_is_refused(tmp_path: Path) -> None:
    """Where no series is about a GPU, nothing can be read."""
    with pytest.raises(SourceError, match=r"scrapes\.prom"):
        recorded(tmp_path, ["go_goroutines 8", "go_threads 9"])
    with pytest.raises(SourceError, match="dcgm"):
        recorded(tmp_path, ["go_goroutines 8", "go_threads 9"], format="dcgm")


@pytest.mark.parametrize(
    "head",
    [
        "timestamp, index, utilization.gpu [%]\n2026/03/02 08:00:00.000, 0, 97 %\n",
        '{"at": 1.0, "devices": [{"uuid": "GPU-a", "readings": {}}]}\n',
        '{"status":"success","data":{"result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_TEMP"},"value":[1,"2"]}]}}',
        "Mar  2 08:00:00 node-a kernel: NVRM: loading NVIDIA UNIX\n",
        "my log says DCGM_FI_DEV_GPU_TEMP{} 4\n",
        "",
    ],
)
def test_other_formats_are_left_to_others(head: str) -> None:
    """Only lines that begin as a GPU series does are Prometheus text."""
    assert dcgm.sniff(head) is False


@given(st.data())
def test_damage_never_makes_a_reading(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A file that is cut anywhere, and may go on at a later line: every value that is read was in it, at its own time."""
    cells = [(15.0 * n, uuid, 111.5 + n) for n in range(4) for uuid in (A, B)]
    lines = [f"{sample(POWER, value, second, uuid)}\n" for second, uuid, value in cells]
    whole = "".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    rest = "".join(lines[data.draw(st.integers(0, len(lines))) :])
    file = tmp_path_factory.mktemp("damage") / "scrapes.prom"
    file.write_text(whole[:cut] + data.draw(st.sampled_from(["", "\n" + rest])))

    with suppress(SourceError):
        for frame in read_recording(file):
            read = {(round(frame.at - START, 3), d.uuid, frame.reading(d.uuid, "power_watts")) for d in frame.devices}
            assert read <= set(cells)


@given(st.binary(max_size=400), st.sampled_from(["dcgm", "prometheus-json", "kernel-log"]))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, junk: bytes, format: str) -> None:
    """Nothing but a SourceError comes out of a file that is none of ours."""
    file = tmp_path_factory.mktemp("junk") / "file"
    file.write_bytes(junk)

    with suppress(SourceError):
        list(read_recording(file, options=ReadOptions(format=format)))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Four times as many scrapes take no more memory."""
    peaks = []
    for count in (1000, 4000):
        numbers = random.Random(1)
        file = tmp_path / f"{count}.prom"
        with file.open("w") as out:
            for n in range(count):
                out.writelines(f"{sample(name, numbers.randrange(90), 15.0 * n)}\n" for name in (UTIL, TEMP, POWER, USED))
        tracemalloc.start()
        assert count == sum(1 for _ in read_recording(file))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < 1.5 * peaks[0]
