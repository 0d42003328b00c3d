"""Replay is the service's own engine: the same frames give the same incidents, however they come."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detector import replay
from detector.errors import ConfigError, SourceError
from detector.incident import Incident
from detector.sources.trace_writer import write_trace
from tests.traces import START, trace


def hot(seconds: float = 900.0, **more: object) -> list:
    """One of two GPUs passes its slowdown temperature after 300 s, and cools down after 600 s."""
    return list(
        trace(
            seconds=seconds,
            devices=2,
            utilization_percent=95.0,
            each=lambda n: {"temperature_celsius": (lambda s: 91.0 if 300 <= s < 600 else 60.0) if n else 55.0},
        )
    )


def essence(incidents: list[Incident]) -> list[tuple[str, str, str, str, float | None, float | None]]:
    return [(i.id, i.rule, i.severity, i.state, i.fired_at, i.resolved_at) for i in incidents]


def test_frames_and_the_file_they_were_written_to_give_the_same(tmp_path: Path) -> None:
    """A path, a list of paths and frames are three ways to say one thing."""
    frames = hot()
    whole, first, second = tmp_path / "whole.jsonl", tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    write_trace(frames, whole)
    write_trace(frames[:40], first)
    write_trace(frames[40:], second)
    expected = essence(replay(frames))

    assert [("overheating", "critical", "resolved")] == [incident[1:4] for incident in expected]
    assert expected == essence(replay(whole))
    assert expected == essence(replay([second, first]))
    assert expected == essence(replay(iter(frames)))


def test_an_incident_is_in_its_final_state() -> None:
    """What is still open at the end has been seen until the end."""
    (incident,) = replay(hot(seconds=500))

    assert ("firing", START + 500) == (incident.state, incident.last_seen_at)
    assert ["GPU-1"] == [device.uuid for device in incident.devices]


def test_what_has_not_held_long_enough_is_pending() -> None:
    """Pending incidents are told only when asked for."""
    frames = hot(seconds=330)

    assert [] == replay(frames)
    assert [("overheating", "pending")] == [(i.rule, i.state) for i in replay(frames, pending=True)]


def test_a_configuration_decides(tmp_path: Path) -> None:
    """A path of a configuration does as well as a configuration."""
    config = tmp_path / "gpuwarden.toml"
    config.write_text("[rules.overheating]\nenabled = false\n[rules.thermal_throttling]\nenabled = false\n")

    assert [] == replay(hot(), config)


def test_nothing_to_read_and_nothing_to_configure_are_errors(tmp_path: Path) -> None:
    """Each error names its file."""
    with pytest.raises(SourceError, match=r"absent\.jsonl"):
        replay(tmp_path / "absent.jsonl")
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        replay(hot(), tmp_path / "absent.toml")
    assert os.listdir(tmp_path) == []
