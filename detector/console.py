"""What people see in a terminal. Rich is loaded only here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from detector.incident import Change, Incident
from detector.ruleset import RuleSet
from detector.schema import RuleOut

_COLOURS: Final = {"info": "cyan", "warning": "yellow", "critical": "bold red"}


def output() -> Console:
    """Standard output. Lines are never cut where it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def errors() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(message: str) -> None:
    """One message on standard error, as it is."""
    errors().print(message, markup=False)


def clock(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """`90 s`, `12 min`, `3.5 h`, `2.1 d`."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}" if unit < 3600 else f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86_400:.1f} d"


def where(incident: Incident) -> str:
    """The host, and the GPUs by index where they have one."""
    names = [f"GPU {d.index}" if d.index is not None else d.uuid for d in incident.devices]
    if len(names) > 3:
        names = [f"{len(names)} GPUs"]
    return " ".join([incident.host, ", ".join(names)]).strip()


def whose(incident: Incident) -> str:
    w = incident.workload
    if w is None:
        return ""
    named = w.job or (f"{w.namespace}/{w.pod}" if w.pod else None) or w.command or ""
    return " ".join(part for part in (named, f"({w.user})" if w.user else "", f"pid {w.pid}" if w.pid else "") if part)


def incident_table(incidents: Iterable[Incident], title: str | None = None) -> Table:
    """Incidents, effects under their cause."""
    table = Table(title=title, title_justify="left", header_style="bold", show_lines=False)
    for name in ("fired (UTC)", "for", "severity", "rule", "where", "what"):
        table.add_column(name, no_wrap=name in ("fired (UTC)", "for", "severity", "rule"), overflow="fold")
    listed = list(incidents)
    below: dict[str, list[Incident]] = {}
    known = {incident.id for incident in listed}
    for incident in listed:
        if incident.cause in known:
            below.setdefault(str(incident.cause), []).append(incident)
    for incident in listed:
        if incident.cause not in known:
            table.add_row(*_cells(incident))
            for effect in below.get(incident.id, ()):
                table.add_row(*_cells(effect, "  because of it: "))
    return table


def _cells(incident: Incident, lead: str = "") -> Iterator[Text | str]:
    yield clock(incident.fired_at) or "pending"
    end = incident.resolved_at or incident.last_seen_at
    open_mark = "" if incident.state == "resolved" else " +"
    yield duration(end - (incident.fired_at or incident.started_at)) + open_mark
    yield Text(incident.severity, style=_COLOURS[incident.severity])
    yield incident.rule
    yield where(incident)
    what = Text(lead + incident.summary)
    owner = whose(incident)
    if owner:
        what.append(f"\n{owner}", style="dim")
    if incident.occurrences > 1:
        what.append(f"\nseen {incident.occurrences} times", style="dim")
    if incident.action and not lead:
        what.append(f"\n-> {incident.action}", style="green")
    yield what


def rule_table(rules: RuleSet) -> Table:
    """Every rule with its parameters as configured."""
    table = Table(header_style="bold")
    for name in ("rule", "severity", "parameters", "looks at", "what it says"):
        table.add_column(name, no_wrap=name in ("rule", "severity"), overflow="fold")
    for configured in rules.values():
        rule = RuleOut.of(configured.default)
        settings = ", ".join(f"{key} = {_setting(value)}" for key, value in rule.parameters.items())
        title = Text(rule.name) if rule.enabled else Text(f"{rule.name} (off)", style="dim")
        severity = Text(rule.severity, style=_COLOURS[rule.severity]) if rule.severity else Text("by event")
        table.add_row(title, severity, settings, ", ".join(rule.needs or rule.uses), rule.description.partition("\n")[0])
    return table


def _setting(value: object) -> str:
    return "never" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@contextmanager
def progress(total_name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error while something is read; None, and no bar, where that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(total_name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def announcer() -> Callable[[Change], None]:
    """Prints incidents as they fire, grow worse and end, a line each."""
    console = output()

    def announce(change: Change) -> None:
        incident = change.incident
        if change.transition in ("opened", "dropped") or (change.transition == "updated" and incident.cause is not None):
            return
        line = Text(f"{clock(change.at)}  {change.transition:<9}")
        line.append(f"{incident.severity:<9}", style=_COLOURS[incident.severity])
        line.append(f"{incident.rule:<23}", style="bold")
        line.append(f"{where(incident)}: {incident.summary}" if change.transition != "resolved" else where(incident))
        console.print(line, soft_wrap=True)

    return announce
