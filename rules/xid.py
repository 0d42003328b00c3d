"""Xids: what the driver reports about a GPU, an event at a time."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

from detector.frame import Event
from detector.incident import Severity
from detector.rule import EventRule, Finding, Story

_NO_ACTION: Final = re.compile(r"to 0x0|\(none\)$", re.IGNORECASE)


EVIDENCE: Final = ("utilization_percent", "power_watts", "temperature_celsius")


@dataclass(frozen=True)
class Xid(EventRule):
    """An Xid, judged by the catalogue in `xid.toml`: what it means, whose fault it is, what to do.

    Xids of one kind on one GPU are one incident with a count, and cards that fall off the bus together are one. The two lists of an
    operator go over the catalogue, for peers disagree about many codes. A sticky gauge is not an event: sources report each Xid once.
    """

    keep_firing: float = 1800.0
    """Seconds without another one after which a fault is over that is no more than a program's."""
    critical_keep_firing: float = 86_400.0
    """The same for a GPU that needs a reset: it needs it until somebody did it. A boot ends the incident at once."""
    critical: tuple[int, ...] = ()
    """Codes to treat as critical, whatever the catalogue says."""
    warning: tuple[int, ...] = ()
    info: tuple[int, ...] = ()
    ignore: tuple[int, ...] = ()
    together_seconds: float = 5.0
    """GPUs of a host that fall off the bus within this time did so for one reason."""

    explained_by: ClassVar = ()

    def judge(self, event: Event) -> Finding | None:
        if event.kind != "xid" or event.code is None or event.code in self.ignore:
            return None
        entry = catalogue().get(event.code, UNKNOWN)
        if event.code == 154 and _NO_ACTION.search(event.message):
            return None
        severity = self._severity(event.code, entry)
        said = f": {' '.join(event.message.split())[:200]}" if event.message else ""
        story = Story(summary=f"Xid {event.code}, {entry.meaning}{said}", action=entry.action, evidence=EVIDENCE)
        spread = self.together_seconds if entry.kind == "bus" else 0.0
        return Finding(severity, story, entry.kind, str(event.code), spread)

    def keep_for(self, severity: Severity) -> float:
        return self.critical_keep_firing if severity == "critical" else self.keep_firing

    def _severity(self, code: int, entry: Entry) -> Severity:
        if code in self.critical:
            return "critical"
        if code in self.warning:
            return "warning"
        return "info" if code in self.info else entry.severity


@dataclass(frozen=True, slots=True)
class Entry:
    """What an Xid means."""

    meaning: str
    kind: str
    """`application` (a program's fault), `memory`, `bus`, `link`, `hardware`, `display`, `notice`: kinds are incidents of their own."""
    severity: Severity
    action: str


UNKNOWN: Final = Entry(
    "which is not in the catalogue", "hardware", "warning", "Look it up in NVIDIA's Xid catalogue for this driver's version."
)


@cache
def catalogue() -> dict[int, Entry]:
    """The Xids by code."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    actions = data["actions"]
    return {int(code): Entry(row["meaning"], row["kind"], row["severity"], actions[row["action"]]) for code, row in data["xid"].items()}
