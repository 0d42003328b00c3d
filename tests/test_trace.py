"""Traces, line by line: what the format promises, and what a reader owes to one that is damaged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import SourceError
from detector.frame import Device, Event, Fault, Frame, Job, Process
from detector.metrics import METRICS
from detector.sources.recording import Problems, ReadOptions, read_recording
from detector.sources.trace_writer import write_trace

START = 1_700_000_000.0
A = "GPU-aaaa"


def read(path: Path, *lines: dict[str, Any] | str, problems: Problems | None = None, end: str = "\n", **options: Any) -> list[Frame]:
    """The frames of a trace with these lines."""
    path = path / "recording.jsonl"
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text + end)
    return list(read_recording(path, options=ReadOptions(**options), problems=problems))


def frame(second: float = 0.0, *devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"at": START + second, "host": "node-a", "devices": list(devices), **more}


def device(readings: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"uuid": A, **({} if readings is None else {"readings": readings}), **more}


def test_the_example_of_the_format(tmp_path: Path) -> None:
    """Everything that a line can say arrives."""
    told = frame(
        0.0,
        device(
            {"utilization_percent": 97, "power_watts": 612.5},
            index=0,
            name="NVIDIA H100 80GB HBM3",
            pci_bus_id="0000:3b:00.0",
            parent=None,
            mig_profile=None,
            power_state="active",
            unavailable={"fan_speed_percent": "not_supported"},
            processes=[
                {"pid": 4242, "memory_used_bytes": 65e9, "sm_utilization_percent": 90, "command": "python train.py", "user": "ada",
                 "container": None, "namespace": "ml", "pod": "p", "job": "llm-7b", "state": "R", "started_at": START - 60},
            ],
        ),
        events=[{"kind": "xid", "uuid": A, "code": 79, "message": "GPU has fallen off the bus.", "source": "nvml"}],
        jobs=[{"job": "llm-7b", "readings": {"job_loss": 2.31, "job_step_total": 18200}}],
        errors=[{"kind": "gpu_lost", "uuid": A}],
        driver_version="550.90.07",
        boot_id="b",
    )  # fmt: skip

    [read_back] = read(tmp_path, told)

    gpu = Device(A, index=0, name="NVIDIA H100 80GB HBM3", pci_bus_id="00000000:3B:00.0", power_state="active")
    assert (START, "node-a", (gpu,)) == (read_back.at, read_back.host, read_back.devices)
    assert ("utilization_percent", "power_watts") == read_back.metrics
    assert [[97.0, 612.5]] == read_back.values.tolist()
    assert {A: {"fan_speed_percent": "not_supported"}} == read_back.unavailable
    process = Process(4242, 65e9, 90.0, "python train.py", "ada", None, "ml", "p", "llm-7b", "R", START - 60)
    assert {A: (process,)} == read_back.processes
    assert (Event("xid", A, START, 79, "GPU has fallen off the bus.", "nvml"),) == read_back.events
    assert (Job("llm-7b", {"job_loss": 2.31, "job_step_total": 18200.0}),) == read_back.jobs
    assert (Fault("gpu_lost", A),) == read_back.faults
    assert ("550.90.07", "b", False) == (read_back.driver_version, read_back.boot_id, read_back.simulated)


def test_static_facts_are_remembered_for_each_device(tmp_path: Path) -> None:
    """What a device is stands in the frame that first names it, on each host by itself."""
    first = frame(0, device({}, index=3, name="L4", parent="GPU-p", mig_profile="1g.10gb", pci_bus_id="3B:00.0",
                            unavailable={"power_watts": "not_supported"}))  # fmt: skip
    frames = read(tmp_path, first, frame(1, device({})), frame(2, device({}, index=2)), {**frame(3, device({})), "host": "node-b"})

    known = Device(A, 3, "L4", "00000000:3B:00.0", "GPU-p", "1g.10gb")
    assert known == frames[1].devices[0]
    assert {A: {"power_watts": "not_supported"}} == frames[1].unavailable
    assert 2 == frames[2].devices[0].index
    assert (Device(A), {}) == (frames[3].devices[0], frames[3].unavailable)


def test_equal_devices_are_the_same_objects(tmp_path: Path) -> None:
    """A long trace does not hold a device a frame, and comparing is quick."""
    frames = read(tmp_path, frame(0, device({}, index=0)), frame(1, device({})))

    assert frames[0].devices is frames[1].devices


@pytest.mark.parametrize(
    "told", [{}, {"power_watts": None}, {"power_watts": "NaN"}, {"power_watts": 9223372036854775794}, {"power_watts": -1}]
)
def test_a_reading_that_is_none_is_missing(told: dict[str, Any], tmp_path: Path) -> None:
    """Absent, null, NaN, and what no power can be: missing, never 0, and no problem."""
    problems = Problems()
    [read_back] = read(tmp_path, frame(0, device(told)), problems=problems)

    assert math.isnan(read_back.reading(A, "power_watts"))
    assert 0 == len(problems)


def test_devices_with_different_readings_share_a_frame(tmp_path: Path) -> None:
    """Columns are the union, a gap is NaN."""
    [both] = read(tmp_path, frame(0, device({"power_watts": 1}), {"uuid": "GPU-b", "readings": {"temperature_celsius": 2}}))

    assert ("power_watts", "temperature_celsius") == both.metrics
    assert np.array_equal([[1.0, np.nan], [np.nan, 2.0]], both.values, equal_nan=True)


@pytest.mark.parametrize(
    ("spelt", "value"), [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf), (float("nan"), math.nan), (2, 2.0)]
)
def test_a_diverged_loss_is_a_value(spelt: object, value: float, tmp_path: Path) -> None:
    """For a job NaN and infinity are readings, spelt out or bare."""
    [read_back] = read(tmp_path, frame(jobs=[{"job": "j", "readings": {"job_loss": spelt, "job_step_total": None}}]))

    assert ["job_loss"] == list(read_back.jobs[0].readings)
    assert value == pytest.approx(read_back.jobs[0].readings["job_loss"], nan_ok=True)


def test_unknown_names_are_kept_out_and_said_once(tmp_path: Path) -> None:
    """A newer recorder's metrics, fields and events do no harm."""
    problems = Problems()
    told = frame(0, device({"flux_capacity": 1, "job_loss": 2}, colour="green"), recorder={"v": 1}, events=[{"kind": "earthquake"}])
    frames = read(tmp_path, told, {**told, "at": START + 1}, problems=problems)

    assert [(), ()] == [read_back.metrics for read_back in frames]
    assert [(), ()] == [read_back.events for read_back in frames]
    assert (0, 3) == (len(problems), len(problems.notes))


@pytest.mark.parametrize("at", [START, "2023-11-14T22:13:20Z", "2023-11-15T03:43:20.000+05:30", "2023-11-14T12:13:20-10:00"])
def test_at_is_a_number_or_rfc_3339(at: float | str, tmp_path: Path) -> None:
    """Offsets are turned into UTC."""
    assert [START] == [read_back.at for read_back in read(tmp_path, {"at": at, "devices": []})]


def test_without_a_host_the_option_names_it(tmp_path: Path) -> None:
    """A trace that names its host wins over the option."""
    lines = [{"at": START, "devices": []}, frame(1)]

    assert ["localhost", "node-a"] == [read_back.host for read_back in read(tmp_path, *lines)]
    assert ["node-x", "node-a"] == [read_back.host for read_back in read(tmp_path, *lines, host="node-x")]


def test_processes_absent_are_not_known(tmp_path: Path) -> None:
    """An empty list says that there are none; no list says nothing."""
    frames = read(tmp_path, frame(0, device({})), frame(1, device({}, processes=[])), frame(2, device({}, processes=None)))

    assert [{}, {A: ()}, {}] == [read_back.processes for read_back in frames]


def test_a_process_hides_its_memory(tmp_path: Path) -> None:
    """Null, and a driver's blank, are not known and not 0."""
    told = [{"pid": 1, "memory_used_bytes": None}, {"pid": 2, "memory_used_bytes": 18446744073709551615}]
    [read_back] = read(tmp_path, frame(0, device({}, processes=told)))

    assert (Process(1), Process(2)) == read_back.processes[A]


def test_events_without_devices_and_with_their_own_time(tmp_path: Path) -> None:
    """A frame may carry events only, and an event may be older than its frame."""
    [read_back] = read(
        tmp_path, {"at": START, "events": [{"kind": "xid", "uuid": None, "code": 62, "at": START - 5, "source": "kernel_log"}]}
    )

    assert () == read_back.devices
    assert (Event("xid", None, START - 5, 62, "", "kernel_log"),) == read_back.events


def test_a_blind_frame_says_why(tmp_path: Path) -> None:
    """Errors without a device concern the host; a kind nobody knows is `unknown` and keeps its word."""
    [read_back] = read(tmp_path, frame(errors=[{"kind": "library_mismatch"}, {"kind": "gremlins"}]))

    assert (Fault("library_mismatch"), Fault("unknown", None, "gremlins")) == read_back.faults


@pytest.mark.parametrize(
    ("told", "uuid"), [({"pci_bus_id": "0000:3b:00.0"}, "PCI-00000000:3B:00.0"), ({"index": 2}, "INDEX-2"), ({"readings": {}}, "DEVICE-0")]
)
def test_a_device_without_uuid_takes_its_next_best_name(told: dict[str, Any], uuid: str, tmp_path: Path) -> None:
    """Bus address, then index, then its place."""
    [read_back] = read(tmp_path, frame(0, told))

    assert uuid == read_back.devices[0].uuid


# -- damage -----------------------------------------------------------------------------------------------------------------
BAD_LINES = [
    '{"at": 1700000000.0, "host": "node-a", "dev',
    "not json",
    "[1, 2]",
    '"at"',
    '{"host": "node-a"}',
    '{"at": null}',
    '{"at": "yesterday"}',
    '{"at": 1700000000000}',
    '{"at": NaN}',
    '{"at": 1e999}',
    '{"at": [], "devices": []}',
    '{"at": ' + "9" * 5000 + "}",
    "[" * 100_000,
]


@pytest.mark.parametrize("bad", BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_bad_line_is_said_with_its_number_and_the_rest_counts(bad: str, tmp_path: Path) -> None:
    """One line lost is one line lost."""
    problems = Problems()
    frames = read(tmp_path, frame(0), bad, frame(2), problems=problems)

    assert [START, START + 2] == [read_back.at for read_back in frames]
    assert 1 == len(problems)
    assert "recording.jsonl, line 2: " in problems.lines()[0]


PARTS = [
    ({"devices": {}}, "`devices` is not a list"),
    ({"devices": [1]}, "an entry of `devices` is not an object"),
    ({"devices": [device([1])]}, "`readings` is not an object"),  # type: ignore[arg-type]
    ({"devices": [device({"power_watts": "much"})]}, "power_watts is not a number"),
    ({"devices": [device({"power_watts": [1]})]}, "power_watts is not a number"),
    ({"devices": [device({}, processes=[{"command": "x"}])]}, "a process without a `pid`"),
    ({"devices": [device({}, processes=7)]}, "`processes` is not a list"),
    ({"jobs": [{"readings": {}}]}, "a job without a name"),
]


@pytest.mark.parametrize(("part", "text"), PARTS, ids=range(len(PARTS)))
def test_a_bad_part_does_not_cost_the_frame(part: dict[str, Any], text: str, tmp_path: Path) -> None:
    """What is wrong is said, everything else of the frame counts."""
    problems = Problems()
    [read_back] = read(tmp_path, {**frame(errors=[{"kind": "hung"}]), **part}, problems=problems)

    assert (Fault("hung"),) == read_back.faults
    assert [f"{tmp_path / 'recording.jsonl'}, line 1: {text}"] == problems.lines()


def test_a_file_without_a_frame_is_refused(tmp_path: Path) -> None:
    """The first problem is the reason."""
    with pytest.raises(SourceError, match=r"holds nothing that can be read as trace: .*line 1: not a frame: no `at`"):
        read(tmp_path, {"host": "node-a"}, format="trace")


def test_a_trace_that_is_cut_anywhere_loses_its_last_frame_at_most(tmp_path: Path) -> None:
    """Frames are whole or not there; a cut is said unless it falls between lines."""
    lines = [json.dumps(frame(n, device({"power_watts": 100.5 + n}, index=0))) for n in range(3)]
    whole = read(tmp_path, *lines)
    text = "\n".join(lines) + "\n"
    ends = [n for n, letter in enumerate(text) if letter == "\n"]
    for cut in range(ends[0], len(text)):
        problems = Problems()
        path = tmp_path / "cut.jsonl"
        path.write_text(text[:cut])
        frames = list(read_recording(path, problems=problems))
        complete = sum(cut >= end for end in ends)

        assert [f.at for f in whole[:complete]] == [f.at for f in frames]
        assert [f.values.tolist() for f in whole[:complete]] == [f.values.tolist() for f in frames]
        assert (cut not in ends and cut - 1 not in ends) == bool(problems)


# -- properties -------------------------------------------------------------------------------------------------------------
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
MAYBE_NAME = st.none() | NAMES


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Any frame that a trace can hold."""
    uuids = draw(st.lists(NAMES, unique=True, max_size=3))
    metrics = draw(st.lists(st.sampled_from([m.name for m in METRICS.values() if m.entity == "device"]), unique=True, max_size=4))
    reading = st.just(math.nan) | st.floats(1.0, 1.0) | st.integers(1, 1).map(float)
    values = np.array([[draw(reading) for _ in metrics] for _ in uuids]).reshape(len(uuids), len(metrics))
    at = draw(st.floats(1e9, 2e9))
    processes = st.lists(
        st.builds(Process, st.integers(1, 9), st.none() | st.floats(0, 1e12), command=MAYBE_NAME, pod=MAYBE_NAME), max_size=2
    )
    return Frame(
        host=draw(NAMES),
        at=at,
        devices=tuple(Device(uuid, draw(st.none() | st.integers(0, 7)), draw(MAYBE_NAME)) for uuid in uuids),
        metrics=tuple(metrics),
        values=values,
        processes={uuid: tuple(draw(processes)) for uuid in uuids if draw(st.booleans())},
        events=tuple(draw(st.lists(st.builds(Event, st.just("xid"), MAYBE_NAME, st.floats(1e9, 2e9), st.integers(1, 200)), max_size=2))),
        faults=tuple(draw(st.lists(st.builds(Fault, st.sampled_from(["hung", "gpu_lost"]), MAYBE_NAME, st.just("")), max_size=2))),
        jobs=tuple(draw(st.lists(st.builds(Job, NAMES, st.fixed_dictionaries({"job_loss": st.floats()})), max_size=2))),
        driver_version=draw(MAYBE_NAME),
        simulated=draw(st.booleans()),
    )


@given(frames())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, written: Frame) -> None:
    """A frame survives the trip to disk and back."""
    path = tmp_path_factory.mktemp("trip") / "trace.jsonl"
    write_trace([written], path)
    problems = Problems()

    [read_back] = read_recording(path, options=ReadOptions(format="trace"), problems=problems)

    assert [] == problems.lines()
    assert (written.host, written.at, written.devices) == (read_back.host, read_back.at, read_back.devices)
    for device in written.devices:
        for metric in written.metrics:
            assert written.reading(device.uuid, metric) == pytest.approx(read_back.reading(device.uuid, metric), nan_ok=True)
    assert (written.processes, written.events, written.faults) == (read_back.processes, read_back.events, read_back.faults)
    assert [job.job for job in written.jobs] == [job.job for job in read_back.jobs]
    for before, after in zip(written.jobs, read_back.jobs, strict=True):
        assert before.readings["job_loss"] == pytest.approx(after.readings["job_loss"], nan_ok=True)
    assert (written.driver_version, written.simulated) == (read_back.driver_version, read_back.simulated)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["uuid", "pid", "readings", "kind", "at", "job", "x"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["at", "host", "devices", "events", "jobs", "errors", "boot_id"]), JSON), min_size=1, max_size=4
    )
)
def test_any_json_is_a_frame_or_a_problem(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]]) -> None:
    """Values of the wrong kind, anywhere, raise nothing else."""
    try:
        read_frames = read(tmp_path_factory.mktemp("any"), *lines, format="trace", timezone="UTC")
    except SourceError:
        return
    assert all(0.0 <= f.at < 1e11 and (len(f.devices), len(f.metrics)) == f.values.shape for f in read_frames)
