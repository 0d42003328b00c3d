"""gpustat: its text with every option, its JSON, and looks that are torn."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from recorded import EIGHT, MIB, A, gpustat, read, seconds

from detector.errors import SourceError
from detector.frame import Device, Fault, Frame, Process
from detector.sources.recording import FORMATS, Problems
from detector.sources.timestamps import UNDATED

ZERO = "INDEX-0"
ROW = "[0] GeForce RTX 2070 | 34°C,  31 %,   2 % (E:   1 %  D:   3 %),   26 / 250 W |  7584 /  7982 MB | root:python/820594(7581M)"
FREE = "[0] NVIDIA A40 | 27°C,   0 % |     0 / 46068 MB |"


def one(tmp_path: Path, row: str) -> Frame:
    [frame] = read(tmp_path, gpustat(0, row))
    return frame


def told(frame: Frame, uuid: str = ZERO) -> dict[str, float]:
    return {metric: value for metric in frame.metrics if not math.isnan(value := frame.reading(uuid, metric))}


def test_a_look_is_a_frame(tmp_path: Path) -> None:
    """Host, driver and time from the line above, and all that a row can say."""
    frame = one(tmp_path, ROW)

    assert (seconds([frame]), frame.host, frame.driver_version) == ([0.0], "node-a", "535.104.05")
    assert frame.devices == (Device(ZERO, index=0, name="GeForce RTX 2070"),)
    assert told(frame) == {
        "temperature_celsius": 34.0, "fan_speed_percent": 31.0, "utilization_percent": 2.0, "encoder_utilization_percent": 1.0,
        "decoder_utilization_percent": 3.0, "power_watts": 26.0, "power_limit_watts": 250.0, "memory_used_bytes": 7584 * MIB,
        "memory_total_bytes": 7982 * MIB,
    }  # fmt: skip
    assert frame.processes == {ZERO: (Process(820594, memory_used_bytes=7581 * MIB, command="python", user="root"),)}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("[0] A | 34'C,   2 % |    10 /    20 MB |", {"temperature_celsius": 34.0, "utilization_percent": 2.0}),
        ("[0] A | 34Â°C,  2 % |    10 /    20 MB", {"temperature_celsius": 34.0, "utilization_percent": 2.0}),
        ("[0] A | 34\ufffdC,  2 % |    10 /    20 MB", {"temperature_celsius": 34.0, "utilization_percent": 2.0}),
        ("[0] A | ??°C,  ?? % (E:  ?? %  D:   0 %),   ?? /  ?? W |    10 /    20 MB |", {"decoder_utilization_percent": 0.0}),
        ("[0] A | 34°C,  30 %,   2 %,   61 / 250 W |    10 /    20 MB |",
         {"temperature_celsius": 34.0, "fan_speed_percent": 30.0, "utilization_percent": 2.0, "power_watts": 61.0,
          "power_limit_watts": 250.0}),
        ("\x1b[36m[0]\x1b[m\x1b(B \x1b[34mA\x1b[m |\x1b[31m 34°C\x1b[m, \x1b[1;32m  2 %\x1b[m | \x1b[33m10\x1b[m / 20 MB |",
         {"temperature_celsius": 34.0, "utilization_percent": 2.0}),
    ],
)  # fmt: skip
def test_versions_and_options(row: str, expected: dict[str, float], tmp_path: Path) -> None:
    """Signs of degrees in broken encodings, colours, question marks for what is unknown, columns asked for or not."""
    assert told(one(tmp_path, row)) == {**expected, "memory_used_bytes": 10 * MIB, "memory_total_bytes": 20 * MIB}


@pytest.mark.parametrize(
    "header",
    [
        "node-a                    Mon Mar  2 08:00:00 2026  535.104.05",
        "node-a                    Mon Mar  2 08:00:00 2026",
        "node-a  2026-03-02 08:00:00  None",
        "node-a  Mon 02 Mar 2026 08:00:00 AM UTC  535.104.05",
        "\x1b[1mnode-a                    \x1b[m\x1b(B  Mon Mar  2 08:00:00 2026  \x1b[1m535.104.05\x1b[m",
    ],
)
def test_the_line_above(header: str, tmp_path: Path) -> None:
    """The time is in the locale's form; early versions do not name the driver."""
    [frame] = read(tmp_path, f"{header}\n{FREE}\n")

    assert (frame.host, frame.at) == ("node-a", EIGHT)


def test_afternoons(tmp_path: Path) -> None:
    """English locales count hours to twelve."""
    text = "".join(f"a  Mon 02 Mar 2026 {at} UTC  5.1\n{FREE}\n" for at in ("12:00:00 AM", "11:59:59 AM", "12:00:00 PM", "01:00:00 PM"))

    assert [s / 3600 for s in seconds(read(tmp_path, text))] == [-8.0, pytest.approx(4.0, abs=1e-3), 4.0, 5.0]


def test_a_time_in_another_language_leaves_the_order(tmp_path: Path) -> None:
    """Looks follow one another, and it is said."""
    problems = Problems()
    frames = read(tmp_path, f"node-a  2026年03月02日 08時00分00秒  535.104.05\n{FREE}\n" * 2, problems, interval=20.0)

    assert [(frame.host, frame.at - UNDATED) for frame in frames] == [("node-a", 0.0), ("node-a", 20.0)]
    assert "cannot be read: looks count as 20 s apart" in problems.lines()[0]


def test_many_looks_at_several_gpus(tmp_path: Path) -> None:
    """A frame each; those of one second are spread over it."""
    frames = read(tmp_path, "".join(gpustat(at, ROW, ROW.replace("[0]", "[1]")) for at in (0, 20, 20)))

    assert seconds(frames) == [0.0, 20.0, 20.5]
    assert [len(frame.devices) for frame in frames] == [2, 2, 2]


def test_looks_without_a_line_above(tmp_path: Path) -> None:
    """`--no-header`: a GPU that comes again begins the next look."""
    problems = Problems()
    frames = read(tmp_path, f"{FREE}\n{FREE.replace('[0]', '[1]')}\n" * 3, problems)

    assert [(frame.host, frame.at - UNDATED, len(frame.devices)) for frame in frames] == [("localhost", n, 2) for n in (0.0, 1.0, 2.0)]
    assert len(problems.lines()) == 1


# -- processes ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (
            "root:python/1(2M) ada:a.out/3(?M)",
            (Process(1, 2 * MIB, command="python", user="root"), Process(3, command="a.out", user="ada")),
        ),
        ("root/1(2M)", (Process(1, 2 * MIB),)),
        ("?:?/1(2M)", (Process(1, 2 * MIB),)),
        ("root(2M) ada(3M)", 2.0),
        ("(Not Supported)", None),
        ("root:python/1(2M) root:pyth", None),
        ("", None),
    ],
)
def test_processes_as_they_are_listed(listed: str, expected: object, tmp_path: Path) -> None:
    """With user, name and process id; without an id they can only be counted; an empty list proves nothing while memory is held."""
    frame = one(tmp_path, f"[0] A | 34°C,  2 % |  7584 /  7982 MB | {listed}")

    assert frame.processes.get(ZERO, told(frame).get("process_count")) == expected


def test_no_process_and_no_memory(tmp_path: Path) -> None:
    """There is none."""
    assert one(tmp_path, FREE).processes == {ZERO: ()}


def test_full_commands(tmp_path: Path) -> None:
    """`--show-full-cmd` adds lines below; they are no loss."""
    problems = Problems()
    frames = read(tmp_path, gpustat(0, ROW, " └─ 820594 ( 100%, 2.1GB): python train.py", ROW.replace("[0]", "[1]")), problems)

    assert ([len(frame.devices) for frame in frames], problems.lines()) == ([2], [])


# -- damage -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["((GPU is lost))", "((Unknown Error))"])
def test_a_lost_gpu(name: str, tmp_path: Path) -> None:
    """gpustat puts the error where the name should be."""
    [frame] = read(tmp_path, gpustat(0, f"[0] {name} | ??°C,  ?? % |    ?? /    ?? MB | (Not Supported)", FREE.replace("[0]", "[1]")))

    assert [device.uuid for device in frame.devices] == ["INDEX-1"]
    assert frame.faults == (Fault("gpu_lost", ZERO, name.strip("()")),)


def test_an_error_in_the_place_of_a_look_is_a_blind_look(tmp_path: Path) -> None:
    """gpustat could not ask the driver."""
    error = "Error on querying NVIDIA devices. Use --debug flag to see more details."
    frames = read(tmp_path, gpustat(0, FREE) + error + "\n" + gpustat(40, FREE))

    assert [frame.faults for frame in frames] == [(), (Fault("unknown", None, error),), ()]


@pytest.mark.parametrize("cut", [len("[0] GeForce"), ROW.index("7584") + 2, ROW.index("MB"), ROW.index("7982") + 2])
def test_a_torn_row(cut: int, tmp_path: Path) -> None:
    """It costs itself; its line is named."""
    problems = Problems()
    frames = read(tmp_path, gpustat(0, ROW) + gpustat(20, ROW[:cut]) + gpustat(40, ROW), problems)

    assert (len(frames), len(problems)) == (2, 1 if "|" in ROW[:cut] else 0)


def test_a_last_row_without_its_end(tmp_path: Path) -> None:
    """What is whole in it is read; its list of processes may be longer than it looks."""
    frames = read(tmp_path, gpustat(0, ROW) + gpustat(20, ROW + " ada:a.out/3(5M)").rstrip())

    assert (told(frames[1])["memory_used_bytes"], frames[1].processes) == (7584 * MIB, {})


# -- JSON ---------------------------------------------------------------------------------------------------------------------
def look(second: int = 0, **more: Any) -> dict[str, Any]:
    gpu = {
        "index": 0, "uuid": A, "name": "NVIDIA A40", "temperature.gpu": 34, "fan.speed": None, "utilization.gpu": 2, "utilization.enc": 1,
        "utilization.dec": 3, "power.draw": 26, "enforced.power.limit": 300, "memory.used": 7584, "memory.total": 46068,
        "processes": [
            {"username": "ada", "command": "python", "full_command": ["python", "train.py"], "gpu_memory_usage": 7581, "cpu_percent": 99.9,
             "cpu_memory_usage": 1, "pid": 77},
        ],
    }  # fmt: skip
    at = f"2026-03-02T08:00:{second:02d}.250000"
    return {"hostname": "node-a", "driver_version": "535.104.05", "query_time": at, "gpus": [{**gpu, **more}]}


def pretty(*looks: object) -> str:
    return "".join(json.dumps(one, indent=4, separators=(",", ": ")) + "\n" for one in looks)


def test_json(tmp_path: Path) -> None:
    """Documents one after the other, each a frame."""
    problems = Problems()
    frames = read(tmp_path, pretty(look(0), look(10)), problems)

    assert (seconds(frames), frames[0].host, frames[0].driver_version) == ([0.25, 10.25], "node-a", "535.104.05")
    assert frames[0].devices == (Device(A, index=0, name="NVIDIA A40"),)
    assert told(frames[0], A) == {
        "temperature_celsius": 34.0, "utilization_percent": 2.0, "encoder_utilization_percent": 1.0, "decoder_utilization_percent": 3.0,
        "power_watts": 26.0, "power_limit_watts": 300.0, "memory_used_bytes": 7584 * MIB, "memory_total_bytes": 46068 * MIB,
    }  # fmt: skip
    assert frames[0].processes == {A: (Process(77, memory_used_bytes=7581 * MIB, command="python train.py", user="ada"),)}
    assert problems.lines() == []


def test_json_on_one_line(tmp_path: Path) -> None:
    """Somebody made it compact."""
    assert seconds(read(tmp_path, "".join(json.dumps(look(s)) + "\n" for s in (0, 1)))) == [0.25, 1.25]


def test_json_of_a_lost_gpu(tmp_path: Path) -> None:
    """It has an index and an error; its uuid is known from before."""
    lost = {"index": 0, "name": "((GPU is lost))", "processes": None}
    document = {**look(10), "gpus": [lost]}

    assert read(tmp_path, pretty(look(0), document))[1].faults == (Fault("gpu_lost", A, "GPU is lost"),)


@pytest.mark.parametrize("processes", [None, [{"command": "python"}], "x"])
def test_json_without_processes(processes: object, tmp_path: Path) -> None:
    """Not told, or not to be told apart."""
    assert read(tmp_path, pretty(look(processes=processes)))[0].processes == {}


def test_json_that_is_torn(tmp_path: Path) -> None:
    """A document that is cut off costs itself, in the middle or at the end."""
    problems = Problems()
    whole = pretty(look(0))
    frames = read(tmp_path, whole + whole[:200] + "\n" + pretty(look(20)) + whole[:200], problems)

    assert seconds(frames) == [0.25, 20.25]
    assert len(problems) == 2


@pytest.mark.parametrize(
    "text", ['{"gpus": [{"utilization.gpu": {}}]\n}\n', '{"gpus": {"utilization.gpu": 1}}\n', '{"gpus": [1], "query_time": 5}\n']
)
def test_json_of_another_shape_is_refused(text: str, tmp_path: Path) -> None:
    """No look is made of it."""
    with pytest.raises(SourceError):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (gpustat(0, ROW), True),
        (pretty(look()), True),
        (f"\x1b[36m{FREE}\n", True),
        ('{"at": 1, "devices": []}\n', False),
        ("[0] something | else | 1 / 2 MB\n", False),
        ("[1] 34 %, 12 / 13 MB\n", False),
    ],
)
def test_what_looks_like_gpustat(text: str, expected: bool) -> None:
    """A row with degrees and memory, or a document that lists GPUs."""
    assert expected == FORMATS["gpustat"].sniff(text)
