"""Kernel logs: every style of line, every form of message, and archives that hold copies of copies."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import SourceError
from detector.frame import Event, Frame
from detector.sources import kernel_log
from detector.sources.recording import Problems, ReadOptions, read_recording

START = datetime(2026, 3, 2, 8, 0, 0, tzinfo=UTC).timestamp()
BUS, UUID = "PCI-00000000:3B:00.0", "GPU-8140738b-5a8c-41c7-a494-978ff0e16e8a"
LOADING = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024"
TIE = f"NVRM: GPU at PCI:0000:3b:00: {UUID}"
LOST = ["NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands."]  # fmt: skip


def xid(code: int = 31, text: str = "pid=7, name=python, MMU Fault", bus: str = "0000:3b:00") -> str:
    return f"NVRM: Xid (PCI:{bus}): {code}, {text}"


def journal(second: float, text: str, host: str = "node-a") -> str:
    """As `journalctl -k -o short-iso-precise` prints it."""
    return f"{datetime.fromtimestamp(START + second, UTC).isoformat(timespec='microseconds')} {host} kernel: {text}"


def syslog(second: float, text: str, host: str = "node-a") -> str:
    return f"{datetime.fromtimestamp(START + second, UTC):%b %e %H:%M:%S} {host} kernel: {text}"


def recorded(
    path: Path, lines: Iterable[str], problems: Problems | None = None, *, modified: float = START + 9e4, **told: object
) -> list[Frame]:
    """The frames of a log that was last written at *modified*."""
    file = path / "kernel.log"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.utime(file, (modified, modified))
    options = ReadOptions(timezone="UTC", **told)  # type: ignore[arg-type]
    return list(read_recording(file, options=options, problems=problems))


def events(frames: Iterable[Frame]) -> list[tuple[float, str, str | None, int | None]]:
    return [(round(event.at - START, 3), event.kind, event.uuid, event.code) for frame in frames for event in frame.events]


def boots(frames: Iterable[Frame]) -> list[float]:
    """When a boot was told: by an id that follows another."""
    told = [(round(frame.at - START, 3), frame.boot_id) for frame in frames if frame.boot_id is not None]
    return [at for (before_at, before), (at, now) in pairwise(told) if at == before_at and before == f"before {now}"]


# -- lines --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("opening", "second", "host"),
    [
        ("2026-03-02T08:00:05,123456+00:00 ", 5.123, "localhost"),
        ("kern  :err   : 2026-03-02T08:00:05,123456+00:00 ", 5.123, "localhost"),
        ("2026-03-02T09:00:05.123456+01:00 node-a kernel: ", 5.123, "node-a"),
        ("2026-03-02T16:00:05+0800 node-a kernel: ", 5.0, "node-a"),
        ("2026-03-02T08:00:05.500000Z node-a kernel[1]: ", 5.5, "node-a"),
        ("Mon 2026-03-02 08:00:05 UTC node-a kernel: ", 5.0, "node-a"),
        ("1772438405.250000 node-a kernel: ", 5.25, "node-a"),
        ("[Mon Mar  2 08:00:05 2026] ", 5.0, "localhost"),
        ("kern  :warn  : [Mon Mar  2 08:00:05 2026] ", 5.0, "localhost"),
        ("Mar  2 08:00:05 node-a kernel: ", 5.0, "node-a"),
        ("Mar 02 08:00:05.125000 node-a kernel: ", 5.125, "node-a"),
        ("Mar  2 08:00:05 node-a kernel: [350941.516160] ", 5.0, "node-a"),
        ("3月 02 08:00:05 node-a kernel: ", 5.0, "node-a"),
        (" 3월  2 08:00:05 node-a kernel: ", 5.0, "node-a"),
        ("Mär 02 08:00:05 node-a kernel: ", 5.0, "node-a"),
        ("mars 02 08:00:05 node-a kernel: ", 5.0, "node-a"),
        ("мар 02 08:00:05 node-a kernel: ", 5.0, "node-a"),
    ],
)
def test_styles_of_lines(tmp_path: Path, opening: str, second: float, host: str) -> None:
    """Each tells when it was, and where if it says so; the driver's words are the same."""
    frames = recorded(tmp_path, [opening + xid(79, "GPU has fallen off the bus.")])

    assert [Event("xid", BUS, pytest.approx(START + second, abs=1e-3), 79, "GPU has fallen off the bus.", "kernel_log")] == [
        event for frame in frames for event in frame.events
    ]
    assert {host} == {frame.host for frame in frames}


@pytest.mark.parametrize("opening", ["[   12.345678] ", "[   12.345678] node-a kernel: ", "<3>[   12.345678] ", "[   12.345678] kernel: "])
def test_lines_that_count_from_boot(tmp_path: Path, opening: str) -> None:
    """Their order is known: the last of them is taken to be as late as the file, and that is said."""
    problems = Problems()
    frames = recorded(tmp_path, [opening + xid(31), opening.replace("12", "22") + xid(43)], problems, modified=START)

    assert [(-10.0, "xid", BUS, 31), (0.0, "xid", BUS, 43)] == events(frames)
    assert ["no date" in line for line in problems.lines()] == [True]


def test_the_host_of_lines_that_name_none(tmp_path: Path) -> None:
    """It is what the file names elsewhere, else --host, else localhost."""
    bare = f"[Mon Mar  2 08:00:05 2026] {xid()}"

    assert {"here"} == {frame.host for frame in recorded(tmp_path, [bare], host="here")}
    assert {"node-a"} == {frame.host for frame in recorded(tmp_path, [bare, journal(9, "usb 1-1: new device")], host="here")}


def test_hosts_of_a_collector_are_kept_apart(tmp_path: Path) -> None:
    """One file with the lines of many hosts."""
    frames = recorded(tmp_path, [journal(n, xid(31 + n), f"node-{n}") for n in range(3)])

    assert [(f"node-{n}", 31 + n) for n in range(3)] == [(frame.host, event.code) for frame in frames for event in frame.events]


# -- years --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("day", "modified", "year"),
    [("Mar  2", "2026-07-01", 2026), ("Dec 31", "2026-01-02", 2025), ("Mar  2", "2026-03-02", 2026), ("Feb 29", "2026-03-02", 2024)],
)
def test_a_log_without_a_year_has_the_files(tmp_path: Path, day: str, modified: str, year: int) -> None:
    """But nothing is in the future of the file, and the guess is said."""
    problems = Problems()
    file_time = datetime.fromisoformat(f"{modified}T00:00:00+00:00").timestamp()
    (frame,) = recorded(tmp_path, [f"{day} 08:00:00 node-a kernel: {xid()}"], problems, modified=file_time)

    assert year == datetime.fromtimestamp(frame.at, UTC).year
    assert [f"{tmp_path / 'kernel.log'}: its times have no year: the file's, {year}, is taken"] == [
        line.removeprefix("note: ") for line in problems.lines()
    ]


def test_a_year_that_stands_elsewhere_in_the_file_counts(tmp_path: Path) -> None:
    """An archive of 2026, unpacked in 2030: lines without a year belong to those that have one."""
    problems = Problems()
    frames = recorded(tmp_path, [journal(0, xid(31)), syslog(3600, xid(43))], problems, modified=START + 4 * 366 * 86400.0)

    assert [(0.0, "xid", BUS, 31), (3600.0, "xid", BUS, 43)] == events(frames)
    assert [] == problems.lines()


def test_naive_times_are_in_the_zone_that_was_asked_for(tmp_path: Path) -> None:
    """As in every format."""
    file = tmp_path / "kernel.log"
    file.write_text(f"[Mon Mar  2 08:00:00 2026] {xid()}\n")

    (frame,) = read_recording(file, options=ReadOptions(timezone="+02:00"))

    assert START - 7200.0 == frame.at


# -- Xids -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "uuid", "code", "message"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", BUS, 79, "GPU has fallen off the bus."),
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception", BUS, 13, "Graphics Exception"),
        ("NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=a b, Ch 0008", BUS, 43, "pid=7, name=a b, Ch 0008"),
        ("NVRM: Xid (PCI:0000:3b:00.0): 94, Contained", BUS, 94, "Contained"),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, Ch 1", BUS, 43, "Ch 1"),
        ("NVRM: Xid (0000:3b:00): 13, 0003 00000000", BUS, 13, "0003 00000000"),
        ("NVRM: Xid (003b:00): 8, Channel 0000001e", BUS, 8, "Channel 0000001e"),
        (f"NVRM: Xid ({UUID}): 31, Ch 1", UUID, 31, "Ch 1"),
        ("NVRM: Xid (PCI:0009:01:00): 119", "PCI-00000009:01:00.0", 119, ""),
        ("message repeated 3 times: [ NVRM: Xid (PCI:0000:3b:00): 45, Ch 1]", BUS, 45, "Ch 1]"),
    ],
)
def test_forms_of_an_xid(tmp_path: Path, text: str, uuid: str, code: int, message: str) -> None:
    """From the first drivers to the newest."""
    (frame,) = recorded(tmp_path, [journal(0, text)])

    assert (Event("xid", uuid, START, code, message, "kernel_log"),) == frame.events


@pytest.mark.parametrize("tie", [TIE, f"nvidia-modeset: Allocated GPU:0 ({UUID}) @ PCI:0000:3b:00.0"])
@pytest.mark.parametrize("first", [True, False])
def test_an_address_that_the_log_ties_to_a_uuid(tmp_path: Path, tie: str, first: bool) -> None:
    """Wherever in the file it says so."""
    lines = [journal(0, tie), journal(5, xid()), journal(9, xid(48, bus="0000:19:00"))]

    frames = recorded(tmp_path, lines if first else lines[::-1])

    assert [(5.0, "xid", UUID, 31), (9.0, "xid", "PCI-00000000:19:00.0", 48)] == events(frames)


def test_other_words_are_no_xids(tmp_path: Path) -> None:
    """The history of a call, a switch's SXid, and a program that talks about Xids."""
    lines = [
        "NVRM: GPU4 GSP RPC buffer contains function 103 (GSP_RM_ALLOC) and data 0x0000000000002081 0x0000000000000004.",
        "NVRM:      0    103  GSP_RM_ALLOC          0x0000000000002081 0x0000000000000004 0x00062ed1a6bd61fa          y",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO",
        "pt_main_thread[77]: segfault at 7f79 ip 00007f7c error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
    ]
    problems = Problems()

    assert [] == events(recorded(tmp_path, [journal(n, line) for n, line in enumerate(lines)], problems))
    assert [] == problems.lines()


# -- lost GPUs ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "lines",
    [
        ["NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."],
        ["NVRM: GPU at 00000000:b3:00.0 has fallen off the bus."],
        LOST,
        [LOST[0], f"               {LOST[1]}", f"               {LOST[2]}"],
        ["NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5)", *LOST[1:]],
        [
            "NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x26:0xffff:1234)",
            "NVRM: GPU 0000:b3:00.0: rm_init_adapter failed, device minor number 0",
        ],
        ["NVRM: GPU at 0000:b3:00.0 has fallen off the bus.", "NVRM: RmInitAdapter failed! (0x26:0xffff:1096)"],
        ["Unable to determine the device handle for GPU0000:B3:00.0: Unknown Error"] * 3,
        ["Unable to determine the device handle for GPU 0000:B3:00.0: GPU is lost.  Reboot the system to recover this GPU"],
    ],
)
def test_a_lost_gpu_is_one_event(tmp_path: Path, lines: list[str]) -> None:
    """However many lines it takes to say so, and whether or not it has a number."""
    stamped = [journal(40 + n * 1e-4, line) if line[0] in "NU" else line for n, line in enumerate(lines)]

    assert [("gpu_lost", "PCI-00000000:B3:00.0")] == [(kind, uuid) for _, kind, uuid, _ in events(recorded(tmp_path, stamped))]


def test_an_xid_79_says_it_already(tmp_path: Path) -> None:
    """The sentence beside it is no second event; the same sentence two minutes later is."""
    lines = [(40.0, xid(79, "GPU has fallen off the bus.", "0000:b3:00")), (40.01, "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.")]
    lines += [(160.0 + n * 1e-4, text) for n, text in enumerate(LOST)]

    assert [(40.0, "xid", 79), (160.0, "gpu_lost", None)] == [
        (at, kind, code) for at, kind, _, code in events(recorded(tmp_path, [journal(second, text) for second, text in lines]))
    ]


def test_gpus_that_fall_together_are_events_of_their_own(tmp_path: Path) -> None:
    """Three cards in half a millisecond."""
    lines = [journal(n * 1e-4, f"NVRM: GPU 0000:0{n}:00.0: GPU has fallen off the bus.") for n in range(3)]

    assert [f"PCI-00000000:0{n}:00.0" for n in range(3)] == [uuid for _, _, uuid, _ in events(recorded(tmp_path, lines))]


def test_a_gpu_that_nobody_names(tmp_path: Path) -> None:
    """It is the host's matter."""
    assert [(0.0, "gpu_lost", None, None)] == events(recorded(tmp_path, [journal(0, "NVRM: RmInitAdapter failed! (0x26:0xffff:1)")]))


# -- copies -------------------------------------------------------------------------------------------------------------------
def test_a_copy_of_a_line_is_no_event(tmp_path: Path) -> None:
    """The journal's line, syslog's (cut to whole seconds), dmesg's, and the same file once more: one event."""
    lines = [TIE, xid(79, "GPU has fallen off the bus.")]
    copies = [journal(40.7, line) for line in lines] + [syslog(40.7, line) for line in lines]
    copies += [f"[Mon Mar  2 08:00:40 2026] {line}" for line in lines] + [f"[   40.516160] {line}" for line in lines]

    assert [("xid", UUID, 79)] == [told[1:] for told in events(recorded(tmp_path, copies * 2))]


def test_repeats_of_a_line_are_events(tmp_path: Path) -> None:
    """One style, other times: the same words are said again."""
    assert [0.0, 0.5, 5.0] == [at for at, *_ in events(recorded(tmp_path, [journal(second, xid()) for second in (0.0, 0.5, 5.0)]))]
    assert [0.0, 1.0] == [at for at, *_ in events(recorded(tmp_path, [syslog(second, xid()) for second in (0, 0, 1)]))]


def test_words_that_differ_are_events(tmp_path: Path) -> None:
    """A storm within a second has as many events as there are different lines."""
    lines = [syslog(0, xid(13, f"Graphics SM Warp Exception on (GPC {n})")) for n in range(5)]

    assert 5 == len(events(recorded(tmp_path, [*lines, *lines])))


def test_what_only_the_boot_relative_part_says_is_kept(tmp_path: Path) -> None:
    """An archive's dmesg: copies of dated lines are dropped, the rest lies where the dated lines end."""
    lines = [journal(40, xid(31)), f"[   40.1] {xid(31)}", f"[   50.1] {xid(48, 'DBE')}", journal(60, "usb 1-1: new device")]

    assert [(40.0, "xid", BUS, 31), (60.0, "xid", BUS, 48)] == events(recorded(tmp_path, lines))


# -- order and boots ------------------------------------------------------------------------------------------------------------
def test_the_later_boot_may_come_first(tmp_path: Path) -> None:
    """The file's order is not that of time."""
    day = 86_400.0
    lines = [syslog(day + n, text) for n, text in ((0, LOADING), (90, xid(79)))] + [
        syslog(n, text) for n, text in ((0, LOADING), (60, xid(79)))
    ]

    frames = recorded(tmp_path, lines)

    assert sorted(frame.at for frame in frames) == [frame.at for frame in frames]
    assert [(60.0, 79), (day + 90, 79)] == [(at, code) for at, _, _, code in events(frames)]
    assert [0.0, day] == boots(frames)


@pytest.mark.parametrize(
    "marks",
    [
        [journal(100, LOADING)],
        [journal(100, "Linux version 5.15.0-112-generic (buildd@lcy02) #122-Ubuntu SMP"), journal(105, LOADING)],
        ["-- Reboot --", journal(100, "usb 1-1: new device")],
        ["-- Reboot --", "", "NVRM: a line whose time is lost", journal(100, "usb 1-1: new device")],
        ["-- Boot 4f5e0c9b1f2d4a6c8e7b3a5d9c0f1e2d --", journal(100, "usb 1-1: new device")],
    ],
)
def test_a_boot_is_told(tmp_path: Path, marks: list[str]) -> None:
    """What ran before it ends: the driver is loaded, the kernel starts, or the journal says so. A boot is told once."""
    frames = recorded(tmp_path, [journal(0, xid()), *marks, journal(200, xid())])

    assert [100.0] == boots(frames)


def test_a_boot_has_the_id_that_the_journal_gives_it(tmp_path: Path) -> None:
    """And the driver's version is the one that was loaded."""
    mark = "4f5e0c9b1f2d4a6c8e7b3a5d9c0f1e2d"
    frames = recorded(tmp_path, [journal(0, xid()), f"-- Boot {mark} --", journal(100, "usb 1-1: new device"), journal(105, LOADING)])

    assert [100.0] == boots(frames)
    assert mark in [frame.boot_id for frame in frames]
    assert ["550.90.07"] == [frame.driver_version for frame in frames if frame.driver_version]


def test_time_that_begins_again_is_a_boot(tmp_path: Path) -> None:
    """In a log that only counts from boot. A line that is out of order by a moment is none."""
    lines = [f"[ {second:.6f}] {xid(text=str(n))}" for n, second in enumerate((10.0, 900.5, 900.25, 5.0, 60.0))]

    frames = recorded(tmp_path, lines, modified=START)

    assert [-950.5, -60.25, -60.0, -55.0, 0.0] == pytest.approx([at for at, *_ in events(frames)], abs=0.01)
    assert [-55.0] == boots(frames)


def test_a_log_in_which_nothing_happened_is_read(tmp_path: Path) -> None:
    """Its first and last line are frames without events, and nothing is lost."""
    problems = Problems()
    lines = [journal(n, "audit: type=1400 apparmor=STATUS") for n in range(500)]

    frames = recorded(tmp_path, [journal(-10, LOADING), *lines], problems)

    assert [] == events(frames)
    assert (-10.0, 499.0) == (frames[0].at - START, frames[-1].at - START)
    assert [] == problems.lines()
    assert all(not frame.devices and not frame.faults for frame in frames)


# -- what is not whole, and what is none ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("cut", [len("NVRM: Xid (PCI:0000:3b"), len("NVRM: Xid (PCI:0000:3b:00): "), len("NVRM: Xid (PCI:0000:3b:00): 7")])
def test_an_xid_that_was_cut_off_is_lost(tmp_path: Path, cut: int) -> None:
    """The 7 of a 79 is no Xid 7; the line is said."""
    file, problems = tmp_path / "kernel.log", Problems()
    whole = journal(1, xid(79))
    file.write_text(f"{journal(0, LOADING)}\n{whole[: len(whole) - len(xid(79)) + cut]}")

    assert [] == events(read_recording(file, problems=problems))
    assert [f"{file}, line 2: an Xid that cannot be read; torn or cut off?"] == problems.lines()


def test_lines_without_a_time_belong_to_the_one_before(tmp_path: Path) -> None:
    """Or to the time of the file, where there is none."""
    assert [(5.0, 31)] == [(at, code) for at, _, _, code in events(recorded(tmp_path, [journal(5, TIE), xid()]))]
    assert [(0.0, 31)] == [(at, code) for at, _, _, code in events(recorded(tmp_path, [xid()], modified=START))]


@pytest.mark.parametrize("time", ["Foo  2 08:00:00", "Feb 31 08:00:00", "2026-13-45T08:00:00+00:00", "Mar  2 28:61:00"])
def test_a_time_that_is_none(tmp_path: Path, time: str) -> None:
    """What the line says counts, at the time of the one before."""
    assert [(5.0, 31)] == [(at, code) for at, _, _, code in events(recorded(tmp_path, [journal(5, TIE), f"{time} node-a kernel: {xid()}"]))]


@pytest.mark.parametrize(
    "head",
    [
        "timestamp, index, utilization.gpu [%]\n2026/03/02 08:00:00.000, 0, 97 %\n",
        "Mon Mar  2 08:00:00 2026\n+-----------------------------------------+\n| NVIDIA-SMI 550.90.07 |\n",
        '{"at": 1.0, "devices": [], "events": [{"kind": "xid", "message": "NVRM: Xid (PCI:0000:3b:00): 79"}]}\n',
        'DCGM_FI_DEV_XID_ERRORS{gpu="0"} 79\n',
        "[2026-03-02 08:00:00] GPU 45 %, shutting down soon\n",
        "[Mon Mar  2 08:00:00 2026] utilization 4 %\n",
        "[  1.25] step 12, loss 4.5\n",
        "2026-03-02 08:00:00 INFO training started\n",
        "2026-03-02 08:00:00,123 INFO the nvidia driver is 550\n",
        "2026-03-02T08:00:00Z nvidia says hello\n",
        "Mar  2 08:00:00 node-a sshd[1]: nvidia\n",
        "",
    ],
)
def test_other_files_are_left_to_others(head: str) -> None:
    """A time before some words is no kernel log."""
    assert kernel_log.sniff(head) is False


@given(st.data())
def test_damage_never_makes_an_event(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A log that is cut anywhere, and may go on at a later line: no event but those that happened."""
    told = [(n * 10.0, 100 + n) for n in range(8)]
    lines = [f"{journal(second, xid(code))}\n" for second, code in told]
    whole = "".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    rest = "".join(lines[data.draw(st.integers(0, len(lines))) :])
    file = tmp_path_factory.mktemp("damage") / "kernel.log"
    file.write_text(whole[:cut] + data.draw(st.sampled_from(["", "\n" + rest])))

    with suppress(SourceError):
        assert {(at, code) for at, _, _, code in events(read_recording(file))} <= set(told)


@given(st.lists(st.text(max_size=60) | st.sampled_from([xid(), TIE, LOADING, *LOST, "-- Reboot --", "[  1.0] NVRM: ", journal(3, xid())])))
def test_any_lines_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    """Nothing but a SourceError comes of what is no log."""
    with suppress(SourceError):
        recorded(tmp_path_factory.mktemp("junk"), [line.encode(errors="ignore").decode() for line in lines], format="kernel-log")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A log that is eight times as long takes no more memory; what is held are its events."""
    peaks = []
    for count in (10_000, 80_000):
        file = tmp_path / f"{count}.log"
        with file.open("w") as out:
            out.writelines(f"{journal(n, xid(31, f'Ch {n}') if n % 1000 == 0 else 'audit: apparmor')}\n" for n in range(count))
        tracemalloc.start()
        assert count // 1000 == len(events(read_recording(file)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < 1.5 * peaks[0]


def test_a_storm_beyond_all_measure_is_told_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of time then holds within a batch, and nothing is lost."""
    monkeypatch.setattr(kernel_log, "_BATCH", 100)
    lines = [journal(n * 0.01, xid(13, f"ESR {n} {'x' * 2000}")) for n in range(1000)]

    assert [round(n * 0.01, 3) for n in range(1000)] == [at for at, *_ in events(recorded(tmp_path, lines))]
