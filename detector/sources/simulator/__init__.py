"""A simulated source: GPUs that behave, with faults on a schedule. For `gpuwarden demo`, for tests, for trying a rule.

Nothing here reads a clock or sleeps: time rides on the frames, and whoever consumes them paces them. The same arguments give the
same frames. Every frame says that it is simulated.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from detector.errors import ConfigError
from detector.frame import Frame
from detector.metrics import METRICS
from detector.sources.simulator.faults import FAULTS
from detector.sources.simulator.fleet import Fleet
from detector.sources.simulator.framing import Framer
from detector.sources.simulator.physics import COLUMNS, Physics, unsupported
from detector.sources.simulator.programme import Programme
from detector.sources.simulator.workloads import Workloads

__all__ = ["FAULTS", "START", "Scheduled", "Simulator"]

START: Final = 1767600000.0
"""Monday 2026-01-05, 08:00 UTC: where simulated time begins unless told otherwise."""
_JITTER_SECONDS: Final = 0.003
_MISSING_FRAMES: Final = 1 / 2000
_LISTING_SECONDS: Final = METRICS["process_memory_used_bytes"].cadence


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One fault as the programme has it: which devices it befalls, from when to when (Unix seconds)."""

    rule: str
    sentence: str
    host: str
    devices: tuple[str, ...]
    starts_at: float
    ends_at: float


class Simulator:
    """Hosts `sim-a`, `sim-b` ... with *gpus* GPUs each, MIG instances on top, stepped every *step* seconds from *start* (Unix seconds).

    *faults* is "all", "none", or names out of FAULTS; *workload* ("training", "inference", "notebook", "none") gives every GPU the
    same kind of work instead of a mixture. Raises ConfigError.
    """

    FAULTS: ClassVar[Mapping[str, str]] = FAULTS

    def __init__(
        self,
        gpus: int = 8,
        seed: int = 0,
        faults: str | Sequence[str] = "none",
        step: float = 1.0,
        start: float = START,
        hosts: int = 1,
        workload: str | None = None,
    ) -> None:
        if step <= 0.0 or seed < 0:
            raise ConfigError(f"the simulator needs a step above 0 and a seed of 0 or more, not step = {step}, seed = {seed}")
        self._fleet = fleet = Fleet(gpus, hosts, seed, workload)
        self._step, self._start, self._steps = step, start, 0
        self._programme = Programme(fleet, faults, start)
        self._workloads = Workloads(fleet, seed, start, self._programme.keep_until)
        lacking = [unsupported(board, device.parent is not None) for board, device in zip(fleet.boards, fleet.devices, strict=True)]
        self._missing = np.array([[name in names for names in lacking] for name in COLUMNS])
        self._physics = Physics(fleet, seed, self._missing)
        unavailable = {
            device.uuid: {name: "not_supported" for name in COLUMNS if name in names}
            for device, names in zip(fleet.devices, lacking, strict=True)
        }
        self._framers = [Framer(fleet, host, seed, unavailable) for host in range(hosts)]
        self._random = np.random.default_rng((seed, 5))
        self._ready: deque[Frame] = deque()

    @property
    def schedule(self) -> tuple[Scheduled, ...]:
        """When which fault comes for the first time; the programme repeats every `cycle` seconds."""
        fleet, start = self._fleet, self._start
        return tuple(
            Scheduled(
                episode.fault.name,
                episode.fault.sentence,
                fleet.hosts[fleet.teams[episode.team].host],
                tuple(fleet.devices[row].uuid for row in self._programme.befallen(episode)),
                start + episode.starts,
                start + episode.ends,
            )
            for episode in self._programme.episodes
        )

    @property
    def cycle(self) -> float:
        """Seconds after which the programme of faults begins again."""
        return self._programme.cycle

    def frames(self, seconds: float | None = None) -> Iterator[Frame]:
        """The frames of the next *seconds* of simulated time, host after host in each step; without end if None.

        A later call goes on where the last one, finished or not, was left.
        """
        until = None if seconds is None else self._steps + round(seconds / self._step)
        while True:
            while self._ready:
                yield self._ready.popleft()
            if until is not None and self._steps >= until:
                return
            self._ready.extend(self._advance())

    def _advance(self) -> Iterator[Frame]:
        """One step of everything."""
        number, self._steps = self._steps, self._steps + 1
        at, dt = self._start + number * self._step, self._step if number else 0.0
        self._programme.turn(at, self._workloads)
        self._workloads.advance(at)
        tick = self._workloads.tick(at, dt)
        self._programme.bend(tick, self._physics.column)
        self._physics.step(tick)
        readings = self._physics.table.copy()
        column = dict(zip(COLUMNS, readings, strict=True))
        self._programme.show(tick, column)
        listing = number == 0 or _listings(number * self._step) > _listings((number - 1) * self._step)
        column["process_count"][:] = tick.context if listing else np.nan
        np.copyto(readings, np.nan, where=self._missing)
        reports = self._workloads.report(tick)
        # A timer is late, never early; and one pass in 2,000 never comes to its end.
        late = np.abs(self._random.standard_normal(len(self._framers))) * min(_JITTER_SECONDS, 0.05 * self._step)
        lost = self._random.random(len(self._framers)) < _MISSING_FRAMES
        for framer, delay, missing in zip(self._framers, late, lost, strict=True):
            if not missing or tick.events:
                yield framer.frame(round(at + float(delay), 4), tick, readings, self._workloads, reports, listing)


def _listings(elapsed: float) -> int:
    return math.floor(elapsed / _LISTING_SECONDS + 1e-9)
