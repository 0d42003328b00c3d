"""The command line: what goes where, and with which exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detector import cli
from detector.cli import main
from detector.discover import discover
from detector.sources.trace_writer import write_trace
from tests.traces import trace

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def hot(tmp_path: Path) -> Path:
    """A GPU past its slowdown temperature: one critical incident."""
    return written(tmp_path / "hot.jsonl", 91.0)


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    return written(tmp_path / "calm.jsonl", 60.0)


def written(path: Path, celsius: float) -> Path:
    write_trace(trace(seconds=600, temperature_celsius=celsius, utilization_percent=95.0, memory_used_bytes=4e10, power_watts=380.0), path)
    return path


def test_json_is_one_incident_a_line_and_nothing_else(hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output is for programs."""
    assert 0 == main(["replay", str(hot), "--json"])

    out, err = capsys.readouterr()
    (incident,) = map(json.loads, out.splitlines())
    assert ("overheating", "critical", "firing") == (incident["rule"], incident["severity"], incident["state"])
    assert "" == err


def test_the_table_says_what_where_whose_and_what_to_do(hot: Path, calm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A person reads a table, or that there is nothing."""
    assert 0 == main(["replay", str(hot)])
    table = capsys.readouterr().out
    assert 0 == main(["replay", str(calm)])

    assert [] == [word for word in ("critical", "overheating", "node-a GPU 0", "91 degC", "->") if word not in table]
    assert "No incident in 61 frames.\n" == capsys.readouterr().out


@pytest.mark.parametrize(("severity", "status"), [("info", 1), ("warning", 1), ("critical", 1)])
def test_fail_on_makes_an_incident_the_exit_status(
    hot: Path, calm: Path, severity: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 says that an incident fired, and nothing else does."""
    assert status == main(["replay", str(hot), "--json", "--fail-on", severity])
    assert 0 == main(["replay", str(calm), "--json", "--fail-on", severity])
    capsys.readouterr()


def test_a_torn_line_makes_it_partial_and_is_named(hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rest still counts."""
    lines = hot.read_text().splitlines()
    lines[9] = lines[9][:50]
    hot.write_text("\n".join(lines) + "\n")

    assert 3 == main(["replay", str(hot), "--json"])
    out, err = capsys.readouterr()
    assert ["overheating"] == [json.loads(line)["rule"] for line in out.splitlines()]
    assert f"{hot}, line 10" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "absent"), (b"", "empty"), (bytes(range(256)) * 16, "")],
    ids=["no file", "an empty file", "foreign bytes"],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """2, nothing on standard output, and the reason with the file's name."""
    path = tmp_path / ("absent" if content is None else "recording")
    if content is not None:
        path.write_bytes(content)

    assert 2 == main(["replay", str(path), "--json"])
    out, err = capsys.readouterr()
    assert "" == out
    assert str(path) in err
    assert said in err


def test_a_wrong_configuration_is_refused_before_anything_is_read(calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the file, the table and the nearest key."""
    config = tmp_path / "gpuwarden.toml"
    config.write_text("[rules.overheating]\nholt = 90\n")

    assert 2 == main(["replay", str(calm), "--config", str(config)])
    err = capsys.readouterr().err
    assert [] == [word for word in (str(config), "[rules.overheating]", "holt", '"hold"') if word not in err]


def test_a_broken_rule_of_the_users_own_leaves_the_others_at_work(hot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, and the rest is judged."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "mine.py").write_text("def\n")
    config = tmp_path / "gpuwarden.toml"
    config.write_text('[service]\nrules_folder = "rules"\n')

    assert 0 == main(["replay", str(hot), "--config", str(config), "--json"])
    out, err = capsys.readouterr()
    assert ["overheating"] == [json.loads(line)["rule"] for line in out.splitlines()]
    assert "mine.py" in err


@pytest.mark.parametrize(
    "words",
    [["replay"], ["replay", "x", "--fail-on", "fatal"], ["replay", "x", "--interval", "soon"], ["demo", "--speed", "0"], ["frobnicate"]],
)
def test_a_wrong_call_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """2, with the usage."""
    with pytest.raises(SystemExit) as left:
        main(words)
    assert 2 == left.value.code
    assert "usage: gpuwarden" in capsys.readouterr().err


def test_a_bug_is_an_internal_error_and_not_an_incident(
    calm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """70, never 1."""
    monkeypatch.setattr(cli, "_verdict", lambda *_, **__: 1 // 0)

    assert 70 == main(["replay", str(calm)])
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_rules_lists_every_rule_as_it_is_configured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table and as JSON."""
    config = tmp_path / "gpuwarden.toml"
    config.write_text('[rules.overheating]\nhold = "5m"\n[rules.idle_gpu]\nenabled = false\n')

    assert 0 == main(["rules", "--json", "--config", str(config)])
    rules = {rule["name"]: rule for rule in map(json.loads, capsys.readouterr().out.splitlines())}
    assert set(discover().rules) == set(rules)
    assert 300.0 == rules["overheating"]["parameters"]["hold"]
    assert rules["idle_gpu"]["enabled"] is False
    assert 0 == main(["rules", "--config", str(config)])
    table = capsys.readouterr().out
    assert [] == [name for name in rules if name not in table]
    assert "hold = 300" in table


def test_a_reader_that_goes_away_is_no_error(hot: Path) -> None:
    """`gpuwarden replay ... | head -0` ends quietly."""
    command = f'"{sys.executable}" -m detector replay "{hot}" --json | true; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60)

    assert (0, "") == (done.returncode, done.stderr)


def test_an_interrupt_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """Control-C while a pipe is read."""
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    process = subprocess.Popen([sys.executable, "-m", "detector", "replay", str(pipe)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    with pipe.open("w"):  # it is open at the other end as well: the command is reading
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert 130 == process.returncode
    assert "Traceback" not in err
