"""Which hosts there are, which GPUs and MIG instances they hold, and which of these work together."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Final, Literal, get_args

from detector.errors import ConfigError
from detector.frame import Device
from detector.sources.simulator.boards import A100, A100_MIG, H100, L40S, RTX_4090, T4, Board

Kind = Literal["training", "inference", "notebook", "none"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_NAMESPACE: Final = uuid.UUID("5e0f1b1e-7a0c-5d6b-8a7e-51a0c0ffee00")

_Group = tuple[Board, Kind, int]

_BENCH: Final[tuple[_Group, ...]] = (
    (H100, "training", 4),
    (L40S, "training", 1),
    (T4, "notebook", 1),
    (RTX_4090, "inference", 1),
    (A100_MIG, "none", 1),
)
"""The first host has one of everything, so that every fault finds a GPU that can show it."""
_INSTANCE_KINDS: Final[tuple[Kind, ...]] = ("inference", "notebook", "none")

_RACKS: Final[tuple[tuple[_Group, ...], ...]] = (
    ((H100, "training", 8),),
    ((A100, "training", 4), (A100, "training", 4)),
    ((L40S, "inference", 1), (L40S, "inference", 1), (L40S, "training", 1), (L40S, "none", 1)),
    ((T4, "notebook", 1), (T4, "inference", 1), (T4, "notebook", 1), (T4, "none", 1)),
    ((RTX_4090, "training", 2), (RTX_4090, "notebook", 1), (RTX_4090, "training", 1)),
)
"""Every further host has boards of one product, as hosts in racks do."""


@dataclass(frozen=True, slots=True)
class Team:
    """The devices that one job occupies at a time, and the work they get."""

    host: int
    rows: tuple[int, ...]
    kind: Kind
    board: Board
    instance: bool = False
    """Whether the device is a MIG instance."""


@dataclass(frozen=True, slots=True)
class Part:
    """A MIG instance: its row, the row of its GPU, and its share of it."""

    row: int
    parent: int
    share: float


class Fleet:
    """Every device of every host. A row is a device; the rows of a host follow one another.

    A partitioned GPU is a team of its own without work: jobs run in its instances, faults can befall the GPU.
    """

    def __init__(self, gpus: int, hosts: int, seed: int, workload: str | None) -> None:
        """*hosts* hosts of *gpus* GPUs each. *workload* gives all of them the same kind of work. Raises ConfigError."""
        if gpus < 1 or hosts < 1:
            raise ConfigError(f"the simulator needs at least one GPU and one host, not gpus = {gpus}, hosts = {hosts}")
        if workload is not None and workload not in KINDS:
            raise ConfigError(f"the simulator has no workload {workload!r}; it has {', '.join(KINDS)}")
        self.hosts = tuple(f"sim-{_letters(number)}" for number in range(hosts))
        self.devices: list[Device] = []
        self.boards: list[Board] = []
        self.parts: list[Part] = []
        self.teams: list[Team] = []
        self.rows_of_host: list[slice] = []
        self._seed, self._workload = seed, workload
        for host in range(hosts):
            first = len(self.devices)
            for index, group in _fill(_BENCH if host == 0 else _RACKS[(host - 1) % len(_RACKS)], gpus):
                self._add(host, index, *group)
            self.rows_of_host.append(slice(first, len(self.devices)))

    def _add(self, host: int, index: int, board: Board, kind: Kind, ranks: int) -> None:
        kind = self._kind(kind) if not board.mig else "none"
        rows = [self._gpu(host, index + rank, board) for rank in range(ranks)]
        for members in [tuple(rows)] if kind == "training" else [(row,) for row in rows]:
            self.teams.append(Team(host, members, kind, board))

    def _gpu(self, host: int, index: int, board: Board) -> int:
        gpu = Device(self._uuid("GPU", host, index), index, board.name, f"{index // 200:08X}:{0x18 + index % 200:02X}:00.0")
        row = self._device(gpu, board)
        for number, (profile, share) in enumerate(board.mig):
            part = board.instance(profile, share)
            name = self._uuid("MIG", host, index, number)
            instance = Device(name, number, part.name, gpu.pci_bus_id, parent=gpu.uuid, mig_profile=profile)
            self.parts.append(Part(self._device(instance, part), row, share))
            self.teams.append(Team(host, (self.parts[-1].row,), self._kind(_INSTANCE_KINDS[number]), part, instance=True))
        return row

    def _device(self, device: Device, board: Board) -> int:
        self.devices.append(device)
        self.boards.append(board)
        return len(self.devices) - 1

    def _kind(self, usual: Kind) -> Kind:
        return next((kind for kind in KINDS if kind == self._workload), usual)

    def _uuid(self, prefix: str, *path: int) -> str:
        return f"{prefix}-{uuid.uuid5(_NAMESPACE, '/'.join(map(str, (self._seed, *path))))}"


def _fill(chassis: tuple[_Group, ...], gpus: int) -> Iterator[tuple[int, _Group]]:
    """The groups of a host and the index of their first GPU, over and over until *gpus* are there."""
    index = 0
    for board, kind, ranks in cycle(chassis):
        if index >= gpus:
            return
        ranks = min(ranks, gpus - index)
        yield index, (board, kind, ranks)
        index += ranks


def _letters(number: int) -> str:
    """a ... z, aa, ab ..."""
    return (_letters(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)
