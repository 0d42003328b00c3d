"""When which fault befalls which team, and its coming and going."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from detector.errors import ConfigError
from detector.sources.simulator.faults import BY_NAME, Fault, Scene
from detector.sources.simulator.fleet import Fleet
from detector.sources.simulator.tick import Floats, Tick
from detector.sources.simulator.workloads import Workloads

_QUIET: Final = 240.0
"""Seconds between two faults of one team, enough for its next job to warm up."""
_LEAD: Final = 600.0
"""A job that a fault will befall does not end so many seconds before it."""
_CYCLE: Final = 3 * 3600.0


@dataclass(slots=True)
class Episode:
    """One fault on the schedule, in seconds since the start of the cycle."""

    fault: Fault
    team: int
    row: int
    starts: float
    ends: float
    active: bool = False
    kept: dict[str, Floats] = field(default_factory=dict)


class Programme:
    """The schedule. After the last fault, and not before three hours are over, it begins again."""

    def __init__(self, fleet: Fleet, faults: str | Sequence[str], start: float) -> None:
        """*faults*: "all" that the GPUs can show, "none", a name or some names. Raises ConfigError."""
        self.fleet, self._start = fleet, start
        self.episodes = _schedule(fleet, faults)
        end = max((episode.ends for episode in self.episodes), default=0.0)
        self.cycle = max(_CYCLE, 600.0 * math.ceil((end + _LEAD) / 600.0))
        self._rows = [np.array(fleet.teams[episode.team].rows) for episode in self.episodes]
        self._of_team: dict[int, list[Episode]] = {}
        for episode in self.episodes:
            self._of_team.setdefault(episode.team, []).append(episode)

    def befallen(self, episode: Episode) -> tuple[int, ...]:
        """The rows that a fault is about."""
        return self.fleet.teams[episode.team].rows if episode.fault.whole_team else (episode.row,)

    def keep_until(self, team: int, at: float) -> float:
        """Until when the job of *team* must stay because of a fault that befalls it, or will soon; *at* itself: it may end."""
        moment = self._moment(at)
        windows = [episode for episode in self._of_team.get(team, ()) if episode.starts - _LEAD <= moment < episode.ends]
        return at + max((episode.ends - moment for episode in windows), default=0.0)

    def turn(self, at: float, workloads: Workloads) -> None:
        """Faults that end or begin at *at* take their jobs with them."""
        moment = self._moment(at)
        for episode in self.episodes:
            due = episode.starts <= moment < episode.ends
            if episode.active and not due:
                episode.active = False
                if episode.fault.restarts:
                    workloads.evict(episode.team, at + 30.0)
            elif due and not episode.active and episode.fault.evicts:
                workloads.evict(episode.team, at + episode.ends - moment + 30.0)

    def bend(self, tick: Tick, state: Mapping[str, Floats]) -> None:
        """What faults change for the boards."""
        for episode, scene in self._scenes(tick, state):
            if scene.begins:
                episode.kept.clear()
            episode.active = True
            episode.fault.bend(scene)

    def show(self, tick: Tick, readings: Mapping[str, Floats]) -> None:
        """What faults change in the readings of this step alone."""
        for episode, scene in self._scenes(tick, readings):
            episode.fault.show(scene)

    def _scenes(self, tick: Tick, state: Mapping[str, Floats]) -> list[tuple[Episode, Scene]]:
        moment = self._moment(tick.at)
        return [
            (
                episode,
                Scene(
                    tick, episode.team, self.fleet.teams[episode.team].board, rows, episode.row, self.fleet.devices[episode.row].uuid,
                    not episode.active, moment - episode.starts, episode.ends - episode.starts, state, episode.kept,
                ),
            )
            for episode, rows in zip(self.episodes, self._rows, strict=True)
            if episode.starts <= moment < episode.ends
        ]  # fmt: skip

    def _moment(self, at: float) -> float:
        return (at - self._start) % self.cycle


def _schedule(fleet: Fleet, faults: str | Sequence[str]) -> tuple[Episode, ...]:
    """Each fault as early as it may begin, on the team that is free then and shows it best."""
    free = [0.0] * len(fleet.teams)
    episodes = []
    for fault in _chosen(faults):
        fitting = [number for number, team in enumerate(fleet.teams) if fault.fits(team)]
        if not fitting:
            if faults == "all":
                continue
            raise ConfigError(f"no GPU of this simulation can show {fault.name!r}; gpus = 8 and no workload give one of every board")

        def begin(number: int, fault: Fault = fault) -> tuple[float, bool]:
            return max(fault.after, free[number]), not fault.prefers(fleet.teams[number])

        team = min(fitting, key=begin)
        starts, rows = begin(team)[0], fleet.teams[team].rows
        episodes.append(Episode(fault, team, rows[len(rows) // 2], starts, starts + fault.lasts))
        free[team] = starts + fault.lasts + _QUIET
    return tuple(episodes)


def _chosen(faults: str | Sequence[str]) -> list[Fault]:
    names = [faults] if isinstance(faults, str) else list(faults)
    if names == ["all"]:
        return list(BY_NAME.values())
    if names == ["none"]:
        return []
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise ConfigError(f"the simulator has no fault {unknown[0]!r}; it has all, none, {', '.join(BY_NAME)}")
    return [fault for name, fault in BY_NAME.items() if name in names]
