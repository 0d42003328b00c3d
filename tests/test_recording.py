"""Opening recordings, whatever is in them, and merging them to one timeline."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import ConfigError, SourceError
from detector.frame import Device, Frame
from detector.sources import text as text_module
from detector.sources.recording import FORMATS, NOT_YET, Problems, ReadOptions, read_recording, to_frame

START = 1_700_000_000.0
UTC = ReadOptions(timezone="UTC")
CONTRACT = (
    "trace nvidia-smi-csv nvidia-smi-query nvidia-smi-xml nvidia-smi-dmon nvidia-smi-pmon nvidia-smi-table dcgm prometheus-json "
    "kernel-log gpustat wandb parquet"
)


def frame_line(at: float, host: str = "node-a", power: float = 100.0) -> str:
    return json.dumps({"at": at, "host": host, "devices": [{"uuid": "GPU-a", "readings": {"power_watts": power}}]}) + "\n"


def trace_file(path: Path, seconds: Sequence[float], host: str = "node-a") -> Path:
    path.write_text("".join(frame_line(START + second, host) for second in seconds))
    return path


def csv_text(rows: int = 3) -> str:
    lines = [f"2026/03/02 08:00:{n:02d}.000, 0, {n} %\n" for n in range(rows)]
    return "timestamp, index, utilization.gpu [%]\n" + "".join(lines)


def seconds(frames: Sequence[Frame]) -> list[float]:
    return [frame.at - START for frame in frames]


# -- what cannot be read ----------------------------------------------------------------------------------------------------
def test_every_format_of_the_contract_is_known() -> None:
    """Each name is either read or says that it is not supported yet, and the file is named."""
    assert sorted(CONTRACT.split()) == sorted((*FORMATS, *NOT_YET))


@pytest.mark.parametrize("name", NOT_YET)
def test_a_format_to_come_says_so(name: str, tmp_path: Path) -> None:
    """A known name that cannot be read yet is no unknown name."""
    path = trace_file(tmp_path / "a.jsonl", [0])

    with pytest.raises(SourceError, match=rf"a\.jsonl: not supported yet: {name}"):
        read_recording(path, options=ReadOptions(format=name))


def test_an_unknown_format_is_a_wrong_call(tmp_path: Path) -> None:
    """A misspelt format lists those there are."""
    with pytest.raises(ConfigError, match=r"unknown format 'csv'.*nvidia-smi-csv"):
        read_recording(tmp_path / "a.csv", options=ReadOptions(format="csv"))


@pytest.mark.parametrize("options", [ReadOptions(timezone="Mars/Olympus"), ReadOptions(interval=0.0), ReadOptions(interval=float("nan"))])
def test_options_that_make_no_sense_are_a_wrong_call(options: ReadOptions, tmp_path: Path) -> None:
    """They are found before a file is opened."""
    with pytest.raises(ConfigError):
        read_recording(tmp_path / "absent.csv", options=options)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error comes at once, not when the first frame is asked for."""
    with pytest.raises(SourceError, match=r"absent\.jsonl does not exist"):
        read_recording(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("content", [b"", b"\n\n  \n", b"\0" * 5000, b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_refused(content: bytes, tmp_path: Path) -> None:
    """Blank lines, a byte order mark alone and a hole are as empty as no bytes."""
    path = tmp_path / "empty.csv"
    path.write_bytes(content)

    with pytest.raises(SourceError, match=r"empty\.csv is empty"):
        read_recording(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """A folder is not searched for recordings."""
    with pytest.raises(SourceError, match="is a folder: name the recordings in it"):
        read_recording(tmp_path)


def test_a_file_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way out is to change the permissions."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(SourceError, match="may not be read by this user"):
        read_recording(tmp_path / "secret.jsonl")


@pytest.mark.parametrize("content", [np.random.default_rng(2).bytes(4096), b"GPU Load: 2.0%\nhello\n", b'{"status": "success"}\n'])
def test_foreign_bytes_are_refused(content: bytes, tmp_path: Path) -> None:
    """Something else than a recording is refused with the file's name and the way out."""
    path = tmp_path / "foreign.bin"
    path.write_bytes(content)

    with pytest.raises(SourceError, match=r"foreign\.bin looks like none of the formats .*--format"):
        read_recording(path)


@given(st.binary(max_size=3000), st.sampled_from(["auto", *FORMATS]))
def test_random_bytes_raise_nothing_but_a_source_error(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    """Whatever the bytes, and even where the format is insisted on."""
    path = tmp_path_factory.mktemp("random") / "random"
    path.write_bytes(content)
    with suppress(SourceError):
        list(read_recording(path, options=ReadOptions(format=name, timezone="UTC")))


PIECES = [*"\n\n\n,,,;\t\" '0123456789.:/-%", "timestamp", "utilization.gpu [%]", "memory.used [MiB]", "index", "uuid", "GPU-a1", "[N/A]",
          "2026/03/02 08:00:00", "97 %", "588 MiB", "P0", '{"at": 1', '"devices": [', "}", "]", "Failed to initialize NVML: Unknown Error",
          "power.draw [W]", "pid", "\0", "\r", "\ufeff", "Unable to determine the device handle for GPU 0000:3B:00.0: lost"]  # fmt: skip


@given(
    st.lists(st.sampled_from(PIECES), max_size=80),
    st.sampled_from(["auto", *FORMATS]),
    st.sampled_from([None, ("timestamp", "power.draw")]),
)
def test_rubble_raises_nothing_but_a_source_error(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], name: str, columns: tuple[str, ...] | None
) -> None:
    """Pieces of real recordings, put together at random, come closer to being one than random bytes do."""
    path = tmp_path_factory.mktemp("rubble") / "rubble"
    path.write_text("".join(pieces), newline="")
    try:
        frames = list(read_recording(path, options=ReadOptions(format=name, timezone="UTC", columns=columns)))
    except SourceError:
        return
    for frame in frames:
        assert (len(frame.devices), len(frame.metrics)) == frame.values.shape or not frame.devices
        assert not np.isinf(frame.values).any()


# -- bytes to lines ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_encodings_line_ends_and_compression(encoding: str, newline: str, pack: type[bytes], tmp_path: Path) -> None:
    """PowerShell's UTF-16, with its mark or stripped of it, Windows' and old line ends, packed or not: the same readings."""
    path = tmp_path / "any-name"
    path.write_bytes(pack(csv_text().replace("\n", newline).encode(encoding)))
    problems = Problems()

    frames = list(read_recording(path, options=UTC, problems=problems))

    assert [0.0, 1.0, 2.0] == [frame.reading("INDEX-0", "utilization_percent") for frame in frames]
    assert [] == problems.lines()


@pytest.mark.parametrize("chunk", [2, 3, 7, 64])
def test_where_chunks_are_cut_does_not_matter(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A character or a line end that falls on the edge of a chunk stays whole, and lines are counted right."""
    path = tmp_path / "a.jsonl"
    lines = [*(frame_line(START + n, "größe-節点") for n in range(3)), "torn\n"]
    path.write_bytes("".join(lines).replace("\n", "\r\n").encode("utf-16"))
    monkeypatch.setattr(text_module, "CHUNK", chunk)
    problems = Problems()

    frames = list(read_recording(path, options=ReadOptions(format="trace"), problems=problems))

    assert "line 4: " in problems.lines()[0]

    assert [(START + n, "größe-節点") for n in range(3)] == [(frame.at, frame.host) for frame in frames]


def test_a_trace_packed_in_several_members_is_one(tmp_path: Path) -> None:
    """`cat a.gz b.gz > c.gz`, and a tape's padding behind it."""
    path = tmp_path / "c"
    path.write_bytes(gzip.compress(frame_line(START).encode()) + gzip.compress(frame_line(START + 1).encode()) + b"\0" * 100)

    assert [0.0, 1.0] == seconds(list(read_recording(path)))


def test_a_packed_file_that_is_cut_off_is_read_in_part(tmp_path: Path) -> None:
    """What could be unpacked counts, and the loss is said."""
    lines = "".join(frame_line(START + n, power=float(p)) for n, p in enumerate(np.random.default_rng(1).integers(0, 700, 2000)))
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode())[:-2000])
    problems = Problems()

    frames = list(read_recording(path, problems=problems))

    assert 100 < len(frames) < 2000
    assert any("the compressed data is cut off" in line for line in problems.lines())


def test_damaged_compression_is_read_in_part(tmp_path: Path) -> None:
    """A bad block in the middle ends the file there."""
    lines = "".join(frame_line(START + n, power=float(p)) for n, p in enumerate(np.random.default_rng(1).integers(0, 700, 20_000)))
    packed = bytearray(gzip.compress(lines.encode()))
    middle = len(packed) * 3 // 4
    packed[middle : middle + 40] = b"\xff" * 40
    path = tmp_path / "damaged.gz"
    path.write_bytes(packed)
    problems = Problems()

    assert len(list(read_recording(path, problems=problems))) > 1000
    assert len(problems) > 0


def test_holes_of_nuls_cost_only_what_was_in_them(tmp_path: Path) -> None:
    """A log that was truncated under its writer begins with NULs; a crash leaves them where a line's end was."""
    path = tmp_path / "holes.csv"
    lines = csv_text(6).splitlines()
    lines[2] += "\0" * 300
    lines[4] = lines[4][:10] + "\0" * 9 + lines[4][12:]
    path.write_text("\0" * 1000 + "\n".join(lines) + "\n")
    problems = Problems()

    frames = list(read_recording(path, options=UTC, problems=problems))

    assert [0.0, 1.0, 2.0, 4.0, 5.0] == [frame.reading("INDEX-0", "utilization_percent") for frame in frames]
    assert 1 == len(problems)
    assert "line 5" in problems.lines()[0]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit the line is skipped and said; the next one counts."""
    monkeypatch.setattr(text_module, "_LONGEST_LINE", 1000)
    monkeypatch.setattr(text_module, "CHUNK", 300)
    path = tmp_path / "long.jsonl"
    path.write_text(frame_line(START) + '{"at": ' + "1" * 20_000 + "}\n" + frame_line(START + 1))
    problems = Problems()

    assert [0.0, 1.0] == seconds(list(read_recording(path, problems=problems)))
    assert any("line 2: longer than any line of a recording" in line for line in problems.lines())


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Ten times the file, the same memory."""

    def peak(copies: int) -> int:
        path = tmp_path / f"{copies}.jsonl"
        with path.open("w") as file:
            for n in range(copies * 5000):
                file.write(frame_line(START + n))
        tracemalloc.start()
        count = sum(1 for _ in read_recording(path))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert copies * 5000 == count
        return used

    small = peak(1)

    assert peak(10) < 1.2 * small


def test_a_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    """`<(zcat ...)` on the command line: no seeking, no second opening, also beside other files."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = "".join(frame_line(START + n, "node-b") for n in range(3))
    writer = threading.Thread(target=pipe.write_text, args=(content,))
    writer.start()
    frames = list(read_recording(pipe, trace_file(tmp_path / "a.jsonl", [0.5, 1.5])))
    writer.join()

    assert [0.0, 0.5, 1.0, 1.5, 2.0] == seconds(frames)


# -- one timeline -----------------------------------------------------------------------------------------------------------
def test_paths_in_any_order_are_one_timeline(tmp_path: Path) -> None:
    """Parts of a recording, and recordings of several hosts that overlap, are merged by time."""
    parts = [
        trace_file(tmp_path / "c.jsonl", [20, 21]),
        trace_file(tmp_path / "a.jsonl", [0, 1, 2]),
        trace_file(tmp_path / "b.jsonl", [1.5, 20.5], host="node-b"),
    ]

    assert [0, 1, 1.5, 2, 20, 20.5, 21] == seconds(list(read_recording(*parts)))


def test_frames_that_come_late_find_their_place(tmp_path: Path) -> None:
    """Small disorder inside a file is mended, duplicates stay."""
    path = trace_file(tmp_path / "a.jsonl", [1, 0, 3, 2, 2, 5, 4])

    assert [0, 1, 2, 2, 3, 4, 5] == seconds(list(read_recording(path)))


def test_a_path_that_cannot_be_read_does_not_silence_the_others(tmp_path: Path) -> None:
    """Of several paths, one that is missing is a problem that names it."""
    problems = Problems()
    frames = list(read_recording(tmp_path / "absent.csv", trace_file(tmp_path / "a.jsonl", [0]), problems=problems))

    assert 1 == len(frames)
    assert [f"{tmp_path / 'absent.csv'}: does not exist"] == problems.lines()


def test_paths_none_of_which_can_be_read_are_all_named(tmp_path: Path) -> None:
    """The reasons come together."""
    with pytest.raises(SourceError, match=r"(?s)one\.csv does not exist.*two\.csv does not exist"):
        read_recording(tmp_path / "one.csv", tmp_path / "two.csv")


def test_no_path_is_nothing_to_read() -> None:
    """An empty call is an error, not an empty timeline."""
    with pytest.raises(SourceError, match="no recording was named"):
        read_recording()


def test_many_files_are_not_open_at_once(tmp_path: Path) -> None:
    """A page a file, for days: more files than a process may open."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "from detector.sources.recording import read_recording\n"
        "print(sum(1 for _ in read_recording(*sys.argv[1:])))"
    )
    paths = [str(trace_file(tmp_path / f"{n}.jsonl", [100 - n])) for n in range(100)]

    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)

    assert "100\n" == done.stdout


def test_progress_ends_at_the_end(tmp_path: Path) -> None:
    """Bytes are counted over all files, and each byte once."""
    paths = [trace_file(tmp_path / f"{n}.jsonl", range(5000)) for n in range(2)]
    total = sum(path.stat().st_size for path in paths)
    seen: list[tuple[int, int]] = []

    list(read_recording(*paths, progress=lambda done, of: seen.append((done, of))))

    assert (total, total) == seen[-1]
    assert sorted(seen) == seen
    assert len(seen) > 4


# -- problems ---------------------------------------------------------------------------------------------------------------
def test_problems_are_counted_by_kind_with_the_first_places() -> None:
    """Standard error gets a line for each kind, however many there were."""
    problems = Problems()
    for line in range(1, 101):
        problems.add("a.csv", line, "torn")
    problems.add("b.csv", None, "cut off")
    problems.note("said")
    problems.note("said")

    assert 101 == len(problems)
    assert ["a.csv, lines 1, 2, 3, 4, 5 and 95 more: torn", "b.csv: cut off", "note: said"] == problems.lines()


def test_notes_are_no_problems() -> None:
    """What is only worth knowing does not make a recording one that was read in part."""
    problems = Problems()
    problems.note("columns kept out: serial")

    assert not problems


def test_problems_of_ever_new_kinds_are_bounded() -> None:
    """A file of nothing but surprises does not fill the memory."""
    problems = Problems()
    for n in range(10_000):
        problems.add("a.csv", n, f"kind {n}")
        problems.note(f"note {n}")

    assert 10_000 == len(problems)
    assert len(problems.lines()) < 100


# -- the table --------------------------------------------------------------------------------------------------------------
def test_to_frame_has_a_row_for_each_host_device_and_moment(tmp_path: Path) -> None:
    """Sorted by host, device and time, with a column for each metric and NaN where it is missing."""
    path = trace_file(tmp_path / "a.jsonl", [1, 0])
    table = to_frame(path, trace_file(tmp_path / "b.jsonl", [0], host="node-b"))

    assert ["host", "device", "at"] == table.index.names
    assert [("node-a", "GPU-a", START), ("node-a", "GPU-a", START + 1), ("node-b", "GPU-a", START)] == [
        (host, device, at.timestamp()) for host, device, at in table.index
    ]
    assert ["power_watts"] == list(table.columns)
    assert "UTC" == str(table.index[0][2].tz)


def test_to_frame_takes_frames_and_keeps_microseconds() -> None:
    """Frames whose metrics differ share one table; a metric that a frame lacks is NaN."""
    gpu = Device("GPU-a")
    frames = [
        Frame("n", START + 0.123456, (gpu,), ("temperature_celsius", "power_watts"), np.array([[50.0, 100.0]])),
        Frame("n", START + 1, (gpu,), ("power_watts",), np.array([[200.0]])),
        Frame("n", START + 2),
    ]

    table = to_frame(iter(frames))

    assert ["temperature_celsius", "power_watts"] == list(table.columns)
    assert [100.0, 200.0] == table["power_watts"].tolist()
    assert [False, True] == table["temperature_celsius"].isna().tolist()
    assert 123_456 == table.index[0][2].microsecond


def test_to_frame_of_nothing_is_an_empty_table() -> None:
    """A notebook that filters everything away still gets its index."""
    table = to_frame([])

    assert (0, ["host", "device", "at"]) == (len(table), table.index.names)


def test_reading_loads_no_heavy_library() -> None:
    """pandas comes with `to_frame` only."""
    code = "import sys, detector.sources.recording; print([m for m in ('pandas', 'sklearn', 'pynvml', 'pydantic') if m in sys.modules])"

    assert "[]\n" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
