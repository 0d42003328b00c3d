"""What the GPUs are asked to do: training, inference, notebooks, nothing. Jobs end, and others with other PIDs follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.sources.simulator.boards import MIB
from detector.sources.simulator.fleet import Fleet, Kind
from detector.sources.simulator.tick import Floats, Tick

_DAY: Final = 86_400.0
_USERS: Final = ("ada", "grace", "maria", "alan", "edsger", "barbara")
_MODELS: Final = {
    "training": ("llm-7b", "vit-large", "protein-fold", "whisper-ft", "diffusion-xl"),
    "inference": ("chat-13b", "embed-base", "rerank-small", "speech-medium"),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """Some seconds of even work; shares as in Tick."""

    seconds: float
    busy: float = 0.0
    intensity: float = 0.0
    bandwidth: float = 0.0
    pcie: float = 0.0
    nvlink: float = 0.0
    jitter: float = 0.0
    """Standard deviation of `busy` from one second to the next."""
    progress: float = 0.0


def _training(rng: np.random.Generator) -> Iterator[Phase]:
    """Steps, now and then a late data loader; a checkpoint every 10 to 20 minutes, an evaluation after every third."""
    intensity, bandwidth = rng.uniform(0.75, 0.95), rng.uniform(0.4, 0.65)
    yield Phase(rng.uniform(30, 60), busy=0.03, intensity=0.01, bandwidth=0.01, pcie=0.25, jitter=0.02)
    checkpoints = int(rng.integers(3))
    while True:
        left = rng.uniform(600, 1200)
        while left > 0.0:
            stretch = min(left, 20.0 + rng.exponential(240.0))
            left -= stretch
            yield Phase(stretch, 0.985, intensity, bandwidth, pcie=0.06, nvlink=0.35, jitter=0.012, progress=1.0)
            yield Phase(rng.uniform(2, 7), busy=0.12, intensity=0.04, bandwidth=0.03, pcie=0.05, jitter=0.05)
        yield Phase(rng.uniform(20, 90), busy=0.02, intensity=0.01, bandwidth=0.005, pcie=0.3, jitter=0.012)
        checkpoints += 1
        if checkpoints % 3 == 0:
            yield Phase(rng.uniform(60, 150), busy=0.72, intensity=0.45 * intensity, bandwidth=0.3, pcie=0.1, nvlink=0.05, jitter=0.05)


def _inference(rng: np.random.Generator) -> Iterator[Phase]:
    """Bursts of requests with quiet moments between them."""
    yield Phase(rng.uniform(20, 40), busy=0.01, bandwidth=0.02, pcie=0.5, jitter=0.01)
    while True:
        level = rng.uniform(0.35, 1.0)
        yield Phase(rng.uniform(5, 90), level, 0.75 * level, 0.85 * level, pcie=0.02, jitter=0.1)
        yield Phase(rng.uniform(2, 45), busy=0.015, intensity=0.005, bandwidth=0.01, pcie=0.001, jitter=0.02)


def _notebook(rng: np.random.Generator) -> Iterator[Phase]:
    """A cell runs for seconds, its author thinks for up to eight minutes."""
    yield Phase(rng.uniform(5, 20), busy=0.02, pcie=0.2, jitter=0.02)
    while True:
        level = rng.uniform(0.3, 0.98)
        yield Phase(rng.uniform(6, 60), level, 0.8 * level, 0.6 * level, pcie=0.05, jitter=0.06)
        yield Phase(min(480.0, rng.exponential(120.0) + 5.0))


@dataclass(frozen=True, slots=True)
class _Habit:
    """How jobs of one kind go about it: ranges to draw from."""

    phases: Callable[[np.random.Generator], Iterator[Phase]]
    lasts: tuple[float, float]
    memory: tuple[float, float]
    """Plateau as a share of the device."""
    warm_up: tuple[float, float]
    """Seconds until the allocator has what it needs."""
    block_mib: tuple[int, int]
    """What it asks the driver for at a time."""


_HABITS: Final[dict[Kind, _Habit]] = {
    "training": _Habit(_training, (2 * 3600, 6 * 3600), (0.45, 0.75), (60, 150), (20, 128)),
    "inference": _Habit(_inference, (10 * 3600, 30 * 3600), (0.88, 0.92), (25, 45), (512, 1024)),
    "notebook": _Habit(_notebook, (3600, 3 * 3600), (0.15, 0.6), (120, 240), (20, 512)),
}


@dataclass(slots=True)
class Job:
    """What one team is busy with, and who it belongs to."""

    phases: Iterator[Phase]
    started_at: float
    ends_at: float
    name: str | None
    pids: tuple[int, ...]
    command: str
    user: str
    namespace: str
    pods: tuple[str, ...]
    container: str


class Workloads:
    """The jobs of every team. Each team draws from its own random numbers, so that what befalls one never shifts another."""

    def __init__(self, fleet: Fleet, seed: int, start: float, keep_until: Callable[[int, float], float]) -> None:
        """*keep_until* says of a team at a moment until when its job has to stay; the moment itself: it may end."""
        self.fleet = fleet
        self.jobs: list[Job | None] = [None] * len(fleet.teams)
        devices, teams = len(fleet.devices), len(fleet.teams)
        self._keep_until = keep_until
        self._random = [np.random.default_rng((seed, 1, number)) for number in range(teams)]
        self._noise = np.random.default_rng((seed, 2))
        self._rows = [np.array(team.rows) for team in fleet.teams]
        self._next = np.array([np.inf if team.kind == "none" else start for team in fleet.teams])
        self._phase = np.zeros((6, devices))
        self._context = np.zeros(devices, dtype=bool)
        self._progress = np.zeros(teams)
        self._wobble = np.zeros(devices)
        self._daily = np.zeros(devices, dtype=bool)
        for team in fleet.teams:
            self._daily[list(team.rows)] = team.kind == "inference"
        self._room = np.array([board.memory_mib for board in fleet.boards]) * MIB
        self._base = np.random.default_rng((seed, 3)).integers(1, 5, devices) * MIB
        self._plateau, self._since, self._warm_up = np.zeros(devices), np.zeros(devices), np.ones(devices)
        self._block = np.full(devices, 20 * MIB)
        self._steps, self._pace = np.zeros(teams), np.zeros(teams)
        self._loss = np.ones((2, teams))
        self._parts = np.array([part.row for part in fleet.parts], dtype=np.intp)
        self._parents = np.array([part.parent for part in fleet.parts], dtype=np.intp)
        self._shares = np.array([part.share for part in fleet.parts])
        for number, team in enumerate(fleet.teams):
            if team.kind != "none":
                self._start_midway(number, start)

    def advance(self, at: float) -> None:
        """Everything that begins or ends until *at*."""
        for team in np.flatnonzero(self._next <= at).tolist():
            while self._next[team] <= at:
                self._turn(team)

    def evict(self, team: int, until: float) -> None:
        """End the job of *team* at once; the next one starts at *until*."""
        rows = self._rows[team]
        self.jobs[team] = None
        self._phase[:, rows] = 0.0
        self._context[rows] = False
        self._plateau[rows] = 0.0
        self._progress[team] = 0.0
        self._next[team] = until if self.fleet.teams[team].kind != "none" else np.inf

    def tick(self, at: float, dt: float) -> Tick:
        """What all devices do at *at*."""
        devices, teams = len(self._room), len(self.jobs)
        white, drift = self._noise.standard_normal((2, devices))
        keep = math.exp(-dt / 6.0)
        self._wobble = keep * self._wobble + math.sqrt(1.0 - keep * keep) * drift
        busy, intensity, bandwidth, pcie, nvlink, jitter = self._phase
        level = np.where(self._daily, _demand_of_the_day(at), 1.0)
        busy = np.clip(busy * level + jitter * (0.8 * self._wobble + 0.6 * white), 0.0, 1.0)
        uneven = 1.0 + 0.025 * self._wobble + 0.015 * white
        tick = Tick(
            at, dt, busy, intensity * level * uneven, bandwidth * level * uneven, pcie * uneven, nvlink * uneven,
            memory=self._memory(at), context=self._context.copy(), heating=np.ones(devices), clock_limit=np.ones(devices),
            reasons=np.zeros(devices, dtype=np.int64), visible=np.ones(devices, dtype=bool),
            progress=self._progress.copy(), diverged=np.zeros(teams, dtype=bool),
        )  # fmt: skip
        self._join_parts(tick)
        return tick

    def report(self, tick: Tick) -> tuple[Floats, Floats]:
        """Steps done and loss of every team after *tick*, both (teams,)."""
        self._steps += self._pace * tick.progress * tick.dt
        start, floor = self._loss
        noise = self._noise.standard_normal(len(self.jobs))
        loss = (floor + (start - floor) * (1.0 + self._steps / 400.0) ** -0.4) * (1.0 + 0.01 * noise)
        return np.floor(self._steps), np.where(tick.diverged, np.nan, loss)

    def _memory(self, at: float) -> Floats:
        part = np.clip((at - self._since) / self._warm_up, 0.0, 1.0)
        eager = np.where(part < 1.0, 1.0 - (1.0 - part) ** 3, 1.0)
        used: Floats = self._base + np.floor(self._plateau * eager / self._block) * self._block
        return used

    def _join_parts(self, tick: Tick) -> None:
        """A partitioned GPU does what its instances do together."""
        for array in (tick.busy, tick.intensity, tick.bandwidth, tick.pcie, tick.nvlink):
            np.add.at(array, self._parents, array[self._parts] * self._shares)
        np.add.at(tick.memory, self._parents, tick.memory[self._parts])
        np.logical_or.at(tick.context, self._parents, tick.context[self._parts])

    def _turn(self, team: int) -> None:
        now = float(self._next[team])
        job = self.jobs[team]
        if job is None:
            job = self._start(team, now)
        elif now >= job.ends_at:
            job.ends_at = self._keep_until(team, now)
            if now >= job.ends_at:
                self.evict(team, now + self._random[team].uniform(30, 150))
                return
        self._enter(team, next(job.phases), now)

    def _enter(self, team: int, phase: Phase, now: float) -> None:
        job, rows = self.jobs[team], self._rows[team]
        assert job is not None
        shares = (phase.busy, phase.intensity, phase.bandwidth, phase.pcie, phase.nvlink, phase.jitter)
        self._phase[:, rows] = np.array(shares)[:, None]
        self._progress[team] = phase.progress
        self._next[team] = min(now + phase.seconds, max(job.ends_at, np.nextafter(now, np.inf)))

    def _start_midway(self, team: int, start: float) -> None:
        """The first frame finds a job that has been at work for a while."""
        age = float(self._random[team].uniform(1800, 5400))
        job = self._start(team, start - age)
        job.ends_at = start + float(self._random[team].uniform(0.3, 1.0)) * (job.ends_at - job.started_at)
        self._steps[team] = math.floor(self._pace[team] * age)
        next(job.phases)

    def _start(self, team: int, at: float) -> Job:
        kind, rows, rng = self.fleet.teams[team].kind, self._rows[team], self._random[team]
        habit = _HABITS[kind]
        self._context[rows] = True
        self._since[rows] = at
        self._plateau[rows] = self._room[rows] * rng.uniform(*habit.memory) * rng.uniform(0.99, 1.0, len(rows))
        self._warm_up[rows] = rng.uniform(*habit.warm_up)
        self._block[rows] = 2 * int(rng.integers(habit.block_mib[0] // 2, habit.block_mib[1] // 2)) * MIB
        self._steps[team], self._pace[team] = 0.0, rng.uniform(0.8, 4.0)
        self._loss[:, team] = rng.uniform(6.0, 11.0), rng.uniform(1.2, 2.2)
        job = _hire(kind, len(rows), rng, at, at + rng.uniform(*habit.lasts))
        self.jobs[team] = job
        return job


def _hire(kind: Kind, ranks: int, rng: np.random.Generator, started_at: float, ends_at: float) -> Job:
    user = _USERS[rng.integers(len(_USERS))]
    pid, mark = int(rng.integers(2_000, 4_000_000)), f"{rng.integers(16**5):05x}"
    pids = tuple(pid + 3 * rank for rank in range(ranks))
    phases = _HABITS[kind].phases(rng)
    if kind == "notebook":
        command = f"python -m ipykernel_launcher -f kernel-{mark}.json"
        return Job(phases, started_at, ends_at, None, pids, command, user, "notebooks", (f"notebook-{user}-{mark}",), "notebook")
    model = _MODELS[kind][rng.integers(len(_MODELS[kind]))]
    if kind == "inference":
        command = f"python -m serve --model {model} --memory-fraction 0.9"
        return Job(phases, started_at, ends_at, None, pids, command, "serving", "serving", (f"{model}-{mark}",), "server")
    name = f"{model}-{mark}"
    pods = tuple(f"{name}-worker-{rank}" for rank in range(ranks))
    return Job(phases, started_at, ends_at, name, pids, f"python train.py --config {model}.yaml", user, "research", pods, "train")


def _demand_of_the_day(at: float) -> float:
    """Share of the day's peak at a moment: highest in the afternoon, lowest at four in the morning (UTC)."""
    return 0.7 + 0.3 * math.sin(2.0 * math.pi * (at % _DAY / _DAY - 10.0 / 24.0))
