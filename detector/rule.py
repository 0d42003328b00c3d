"""A rule: what it needs, what it asks of the window, and how it says what it found.

There are two kinds. A `Rule` judges readings over time, for every device (or process, job or host) at once. An `EventRule` judges one
event at a time; a Rule that has a `judge` method as well does both. They answer with verdicts and findings and know nothing of
incidents: the engine turns answers into incidents.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from detector.frame import Event
from detector.incident import SEVERITIES, Severity
from detector.metrics import Entity

if TYPE_CHECKING:
    from detector.window import Window

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]

INFO: Final = SEVERITIES.index("info")
WARNING: Final = SEVERITIES.index("warning")
CRITICAL: Final = SEVERITIES.index("critical")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer a row, three of them possible: firing, clear, and cannot tell.

    Every array is shaped (rows,), in the order of the window's rows. `known` False is "cannot tell": the incident stays as it was.
    Left out, a row is known where neither value nor threshold is NaN.
    """

    firing: Booleans
    value: Floats
    threshold: Floats | float = np.nan
    known: Booleans | None = None
    severity: NDArray[np.int8] | None = None
    """INFO, WARNING or CRITICAL a row, where it differs from the rule's own."""
    group: Sequence[str | None] | None = None
    """Rows that fire with the same group are one incident (the ranks of a job that hang together). None: one incident a row."""

    def of(self, places: NDArray[np.intp]) -> Verdict:
        """The answers for some of the rows."""
        return Verdict(
            firing=self.firing[places],
            value=self.value[places],
            threshold=self.threshold if isinstance(self.threshold, float | int) else self.threshold[places],
            known=None if self.known is None else self.known[places],
            severity=None if self.severity is None else self.severity[places],
            group=None if self.group is None else [self.group[n] for n in places],
        )

    def answerable(self) -> Booleans:
        """Where the rule can tell, shape (rows,)."""
        if self.known is not None:
            return self.known
        known = ~np.isnan(self.value)
        threshold = np.asarray(self.threshold)
        return known if threshold.ndim == 0 else known & ~np.isnan(threshold)


@dataclass(frozen=True, slots=True)
class Story:
    """What an incident tells a person. Made only when something changes, for the rows of one incident."""

    summary: str
    """One sentence: what, where in numbers, since when it is unusual."""
    action: str = ""
    """What to do next."""
    description: str = ""
    evidence: tuple[str, ...] = ()
    """Metrics to attach as series; empty: the rule's `needs`."""
    unit: str = ""
    """The unit of the verdict's value and threshold."""
    suspect: tuple[int, str] | None = None
    """The row that seems to be the cause, as its place in the window that was told about, and why."""
    pid: int | None = None
    """The process that is concerned, where the rule knows better than "the largest one"."""


@dataclass(frozen=True)
class Rule:
    """Judges readings over time. Subclass it as a frozen dataclass, one file in `rules/`; fields are what an operator may set.

    `hold`, `keep_firing` and every `*_seconds` or duration-like field is in seconds. `check` gets a window and must not keep state.
    """

    enabled: bool = True
    severity: Severity = "warning"
    hold: float = 0.0
    keep_firing: float = 60.0
    escalate_after: float | None = None
    """Seconds of firing after which it becomes critical; None: never for its duration alone."""

    entity: ClassVar[tuple[Entity, ...]] = ("device",)
    """Which windows it judges: devices, processes, jobs, hosts."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Metrics without which it cannot tell."""
    uses: ClassVar[tuple[str, ...]] = ()
    """Metrics that it also looks at where they exist."""
    every: ClassVar[float] = 5.0
    """Seconds between two looks. A look also follows at once when a host has news (a fault, a device that came or went)."""
    wastes: ClassVar[bool] = False
    """Whether a GPU is wasted while it fires."""
    explained_by: ClassVar[tuple[str, ...]] = ()
    """Rules whose incident on the same device (or on the whole host) is the cause of this one's."""

    def check(self, window: Window) -> Verdict:
        """The answer for every row of the window."""
        raise NotImplementedError

    def tell(self, window: Window, verdict: Verdict) -> Story:
        """The words for one incident. Window and verdict hold only the rows that it is about, the first row first."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Finding:
    """What an event means. Findings with the same subject are one incident, counted."""

    severity: Severity
    story: Story
    subject: str = ""
    """Sets incidents of one device and rule apart; empty: one incident for the device."""
    tag: str = ""
    """What is counted apart within the incident: an Xid code. The incident's label `seen` tells the counts."""
    spread: float = 0.0
    """The same on other devices of the host within so many seconds is one incident: cards that fall off the bus together."""


@dataclass(frozen=True)
class EventRule:
    """Judges one event at a time. Subclass it as a frozen dataclass, one file in `rules/`."""

    enabled: bool = True
    keep_firing: float = 600.0
    """Seconds without a repeat after which it is over."""

    explained_by: ClassVar[tuple[str, ...]] = ()

    def judge(self, event: Event) -> Finding | None:
        """What the event means; None: nothing that this rule is about."""
        raise NotImplementedError

    def keep_for(self, severity: Severity) -> float:
        """Seconds without a repeat after which an incident of this severity is over."""
        return self.keep_firing


@runtime_checkable
class JudgesEvents(Protocol):
    """What an EventRule has, and a Rule that judges events as well."""

    enabled: bool

    def judge(self, event: Event) -> Finding | None: ...

    def keep_for(self, severity: Severity) -> float: ...


AnyRule = Rule | EventRule


def name_of(rule: AnyRule | type[AnyRule]) -> str:
    """The rule's name: the name of its file."""
    kind = rule if isinstance(rule, type) else type(rule)
    return kind.__module__.rpartition(".")[2]


def parameters(rule: type[AnyRule]) -> dict[str, dataclasses.Field[object]]:
    """What an operator may set on a rule, by name."""
    return {f.name: f for f in dataclasses.fields(rule)}
