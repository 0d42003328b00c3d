"""The service: what it plays is what a replay says, what it knew it still knows after a restart, and trouble is said and survived."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import detector.service
from detector import replay
from detector.cli import main
from detector.config import Config, RecordingSource, load
from detector.errors import ConfigError, StoreError
from detector.frame import Event, Frame
from detector.incident import Change
from detector.schema import IncidentOut
from detector.service import Service, listen, paced
from detector.sources.trace_writer import write_trace
from detector.store import IncidentFilter
from tests.traces import trace

ROOT = Path(__file__).resolve().parent.parent


def frames() -> list[Frame]:
    """Twenty minutes of two GPUs: one is hot from 300 s to 700 s and has an Xid, the other one loses two bits at 900 s."""
    return list(
        trace(
            seconds=1200,
            devices=2,
            utilization_percent=95.0,
            each=lambda n: (
                {"temperature_celsius": lambda s: 91.0 if 300 <= s < 700 else 60.0}
                if n == 0
                else {"ecc_uncorrected_volatile_total": lambda s: 2.0 if s >= 900 else 0.0}
            ),
            events={420.0: [Event("xid", "GPU-0", 1_700_000_420.0, 31, "page fault", "kernel_log")]},
        )
    )


def playing(tmp_path: Path, some: list[Frame], name: str = "recording.jsonl") -> Config:
    """A configuration that plays frames as fast as it goes, its data in a folder of its own."""
    path = tmp_path / name
    write_trace(some, path)
    config = load(environ={"GPUWARDEN_MODEL__ENABLED": "false"})
    source = RecordingSource(paths=(path,), speed=float("inf"))
    return replace(config, source=source, service=replace(config.service, data=tmp_path / "data", port=0))


def played(config: Config, **more: Any) -> Service:
    service = Service(config, **more)
    service.start()
    assert service.wait(60.0)
    return service


def stored(service: Service) -> list[IncidentOut]:
    return sorted(
        (IncidentOut.of(i) for i in service.store.incidents(IncidentFilter(), limit=500).items), key=lambda i: (i.started_at, i.rule)
    )


def test_what_is_played_is_what_a_replay_says(tmp_path: Path) -> None:
    """Replay equals live, to the last field of every incident."""
    config = playing(tmp_path, frames())
    service = played(config)
    expected = [IncidentOut.of(incident) for incident in replay(frames(), config)]

    assert sorted(expected, key=lambda i: (i.started_at, i.rule)) == stored(service)
    assert {"overheating", "rising_double_bit_ecc", "xid"} <= {incident.rule for incident in expected}
    service.stop()


@pytest.mark.parametrize("cut", [45, 60, 95])
def test_a_restart_neither_fires_again_nor_forgets(tmp_path: Path, cut: int) -> None:
    """Stopped while something fires and started anew, it goes on with the same incidents."""
    whole = [(i.id, i.rule, i.fired_at) for i in replay(frames(), playing(tmp_path, frames(), "whole.jsonl"))]
    played(playing(tmp_path, frames()[:cut], "first.jsonl")).stop()
    announced: list[Change] = []
    service = played(playing(tmp_path, frames()[cut:], "second.jsonl"), announce=announced.append)

    after = stored(service)
    assert sorted(whole) == sorted((i.id, i.rule, i.fired_at) for i in after)
    open_before = [i for i in replay(frames()[:cut]) if i.state == "firing"]
    assert [] == [c.incident.rule for c in announced if c.transition == "fired" and c.incident.id in {i.id for i in open_before}]
    assert ["resolved"] == [i.state for i in after if i.rule == "overheating"]
    service.stop()


def test_changes_wait_for_a_database_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost while it is full or locked, the observer goes on, and readiness says why."""
    config = playing(tmp_path, frames())
    service = Service(config)
    record, tries = service.store.record, []

    def refusing(changes: Any) -> None:
        tries.append(len(changes))
        if len(tries) <= 3:
            raise StoreError("database x: it is full; free some space on its disk")
        record(changes)

    monkeypatch.setattr(service.store, "record", refusing)
    monkeypatch.setattr(detector.service, "BATCH_FRAMES", 10)
    monkeypatch.setattr(detector.service, "RETRY_SECONDS", 0.0)
    service.start()
    assert service.wait(60.0)

    assert len(tries) >= 4
    assert sorted(tries[:4]) == tries[:4], "what was refused is offered again, with what has come since"
    assert sorted(i.id for i in replay(frames(), config)) == sorted(i.id for i in stored(service))
    assert () == service.health().problems
    service.stop()


def test_a_source_that_breaks_off_is_said(tmp_path: Path) -> None:
    """The API goes on answering; readiness has the reason."""
    config = playing(tmp_path, frames())
    missing = replace(config, source=RecordingSource(paths=(tmp_path / "absent.jsonl",), speed=float("inf")))
    service = played(missing)

    health = service.health()
    assert not health.delivering
    assert "absent.jsonl" in health.problems[0]
    service.stop()


def test_a_source_that_ended_has_delivered(tmp_path: Path) -> None:
    """A recording that was played to its end is no failure."""
    service = played(playing(tmp_path, frames()))

    assert service.health().delivering
    assert 1_700_001_200.0 == service.health().last_frame_at
    service.stop()


def test_frames_are_paced_and_those_due_together_come_together() -> None:
    """Time is data: at infinite speed nothing waits, and a stop ends it."""
    stop = threading.Event()
    some = list(trace(seconds=6000, step=10))
    batches = list(paced(some, float("inf"), stop))

    assert some == [frame for batch in batches for frame in batch]
    assert 256 == max(map(len, batches))
    stop.set()
    assert [] == list(paced(some, 1.0, stop))


# -- the command ---------------------------------------------------------------------------------------------------------------
@contextmanager
def serving(*words: str, **environ: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`gpuwarden WORDS --port 0` in a process of its own; its address, once it listens."""
    command = [sys.executable, "-m", "detector", *words, "--port", "0"]
    environment = {**os.environ, "GPUWARDEN_MODEL__ENABLED": "false", "PYTHONUNBUFFERED": "1", **environ}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found is not None, said + process.stderr.read()
        yield found.group(), process
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_serve_plays_a_recording_and_answers_over_rest(tmp_path: Path) -> None:
    """The incidents of a file, from a real server on a real port; SIGTERM ends it with status 0."""
    path = tmp_path / "recording.jsonl"
    write_trace(frames(), path)
    expected = {IncidentOut.of(i).id for i in replay(path)}
    with serving("serve", "--replay", str(path), "--speed", "inf", "--data", str(tmp_path / "data")) as (url, process):
        for _ in range(600):
            items = get(f"{url}/api/v1/incidents?limit=500")["items"]
            if get(f"{url}/healthz")["last_frame_at"] == "2023-11-14T22:33:20.000Z" and len(items) >= len(expected):
                break
            process.poll()
        assert expected == {item["id"] for item in items}
        assert ["critical"] == [i["severity"] for i in get(f"{url}/api/v1/incidents?rule=overheating")["items"]]
        assert {"GPU-0", "GPU-1"} == {device["uuid"] for device in get(f"{url}/api/v1/devices")["items"]}
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert 0 == process.returncode


def test_demo_announces_incidents_and_says_that_it_simulates(tmp_path: Path) -> None:
    """It stops by itself when asked to, and leaves nothing behind."""
    with serving("demo", "--speed", "3000", "--seconds", "4", TMPDIR=str(tmp_path)) as (url, process):
        assert get(f"{url}/healthz")["simulated"] is True
        out, _ = process.communicate(timeout=60)

    assert 0 == process.returncode
    assert [] == [rule for rule in ("driver_fault", "stuck_training", "overheating", "rising_double_bit_ecc") if rule not in out]
    assert [] == os.listdir(tmp_path)


def test_a_busy_port_is_one_clear_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the port and the way out."""
    path = tmp_path / "recording.jsonl"
    write_trace(frames()[:3], path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert 2 == main(["serve", "--replay", str(path), "--port", str(port), "--data", str(tmp_path / "data")])

    err = capsys.readouterr().err
    assert f"port {port}" in err
    assert "--port" in err


def test_an_address_that_others_can_reach_is_refused() -> None:
    """Without a password only this machine may ask, unless somebody says --insecure."""
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0.*--insecure"):
        listen("0.0.0.0", 0)
    listen("0.0.0.0", 0, insecure=True).close()


@pytest.mark.parametrize("trouble", ["a file", "not a database", "of a newer version"])
def test_a_data_folder_that_cannot_be_used_is_one_clear_message(tmp_path: Path, trouble: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything runs, with the path."""
    path, data = tmp_path / "recording.jsonl", tmp_path / "data"
    write_trace(frames()[:3], path)
    if trouble == "a file":
        data.write_text("")
    else:
        data.mkdir()
        if trouble == "not a database":
            (data / "gpuwarden.db").write_text("once upon a time " * 100)
        else:
            with sqlite3.connect(data / "gpuwarden.db") as database:
                database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
                database.execute("INSERT INTO alembic_version VALUES ('9999')")
            database.close()

    assert 2 == main(["serve", "--replay", str(path), "--port", "0", "--data", str(data)])
    assert str(data) in capsys.readouterr().err


def test_a_source_that_is_not_there_yet_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With what can be used instead."""
    assert 2 == main(["serve", "--source", "nvml", "--port", "0"])
    assert "--source simulator" in capsys.readouterr().err
