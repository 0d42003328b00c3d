"""A GPU whose driver asks for help."""

from __future__ import annotations

import pytest
from traces import changes, final, told, trace

from rules.recovery_required import RecoveryRequired
from rules.row_remap_pending import RowRemapPending

RULES = {"recovery_required": RecoveryRequired()}


def test_nothing_asked_is_fine() -> None:
    """Action 0."""
    assert [] == changes(RULES, trace(seconds=3600, recovery_action=0.0))


@pytest.mark.parametrize(
    ("code", "words", "action"),
    [
        (1.0, "a reset of the GPU", "--gpu-reset"),
        (2.0, "a reboot of the node", "reboot"),
        (3.0, "peer-to-peer traffic to be drained", "start no new ones"),
        (4.0, "the GPU to be drained and reset", "--gpu-reset"),
        (5.0, "IMEX to be recovered", "nvidia-imex"),
        (6.0, "a reset of the bus", "bus"),
        (7.0, "a reboot of the system", "reboot"),
        (99.0, "an action that this version does not know", "nvidia-smi -q"),
    ],
)
def test_each_action_is_said_in_words(code: float, words: str, action: str) -> None:
    """At once, on one look, with what to do."""
    (incident,) = final(RULES, trace(seconds=0, recovery_action=code))

    assert "critical" == incident.severity
    assert f"the driver asks for {words} (recovery action {code:.0f})" == incident.summary
    assert action in incident.action


def test_it_resolves_after_the_reset() -> None:
    """A minute after the driver is content."""
    frames = trace(seconds=1200, recovery_action=lambda s: 1.0 if 300 <= s < 600 else 0.0)

    assert ["300 fired recovery_required critical", "660 resolved recovery_required critical"] == told(changes(RULES, frames))


def test_an_action_that_is_no_longer_read_resolves_nothing() -> None:
    """And one that an old driver does not tell is not judged."""
    frames = trace(seconds=1200, recovery_action=lambda s: 1.0 if s < 300 else None)

    assert ["0 fired recovery_required critical"] == told(changes(RULES, frames))
    assert [] == changes(RULES, trace(seconds=600))


@pytest.mark.parametrize(("code", "incidents"), [(1.0, 8), (2.0, 1), (7.0, 1)])
def test_a_reboot_is_asked_for_once(code: float, incidents: int) -> None:
    """Eight GPUs need a reset each, and one reboot."""
    assert incidents == len(final(RULES, trace(seconds=60, devices=8, recovery_action=code)))


def test_it_explains_a_row_that_waits_for_the_reset() -> None:
    """One root cause, one alarm."""
    rules = {**RULES, "row_remap_pending": RowRemapPending()}
    found = {i.rule: i for i in final(rules, trace(seconds=60, recovery_action=1.0, remapped_rows_pending=1.0))}

    assert found["recovery_required"].id == found["row_remap_pending"].cause
