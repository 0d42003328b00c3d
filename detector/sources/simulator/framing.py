"""Makes frames of what the boards show: one a host and step."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

import numpy as np

from detector.frame import Fault, Frame, Job, Process
from detector.sources.simulator.fleet import Fleet
from detector.sources.simulator.physics import COLUMNS
from detector.sources.simulator.tick import Floats, Tick
from detector.sources.simulator.workloads import Workloads

_DRIVER: Final = "580.95.05"
_USED: Final = COLUMNS.index("memory_used_bytes")
_BUSY: Final = COLUMNS.index("utilization_percent")


class Framer:
    """The frames of one host."""

    def __init__(self, fleet: Fleet, host: int, seed: int, unavailable: Mapping[str, Mapping[str, str]]) -> None:
        self._host, self._rows = fleet.hosts[host], fleet.rows_of_host[host]
        self._devices = tuple(fleet.devices[self._rows])
        self._unavailable = {device.uuid: unavailable[device.uuid] for device in self._devices}
        self._boot = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._host}/{seed}"))
        inside = [(number, team) for number, team in enumerate(fleet.teams) if team.host == host]
        self._training = [number for number, team in inside if team.kind == "training"]
        # Whose processes the driver would list: of a partitioned GPU, those of its instances.
        self._seats = [
            (number, rank, row, fleet.devices[row].uuid)
            for number, team in inside
            if not team.board.mig
            for rank, row in enumerate(team.rows)
        ]

    def frame(self, at: float, tick: Tick, readings: Floats, workloads: Workloads, reports: tuple[Floats, Floats], listing: bool) -> Frame:
        """The frame at *at*. *readings* is shaped (metrics, devices) for all hosts; *listing*: processes are listed this time."""
        seen = tick.visible[self._rows]
        devices, values, unavailable = self._devices, readings[:, self._rows].T, self._unavailable
        faults: tuple[Fault, ...] = ()
        if not seen.all():
            lost = [device.uuid for device, here in zip(devices, seen, strict=True) if not here]
            devices = tuple(device for device, here in zip(devices, seen, strict=True) if here)
            values = values[seen]
            unavailable = {device.uuid: unavailable[device.uuid] for device in devices}
            faults = tuple(Fault("gpu_lost", name, "GPU is lost") for name in lost)
        return Frame(
            self._host,
            at,
            devices,
            COLUMNS,
            np.ascontiguousarray(values),
            unavailable,
            self._processes(tick, readings, workloads) if listing else {},
            tuple(event for row, event in tick.events if self._rows.start <= row < self._rows.stop),
            faults,
            self._jobs(workloads, *reports),
            _DRIVER,
            self._boot,
            simulated=True,
        )

    def _processes(self, tick: Tick, readings: Floats, workloads: Workloads) -> dict[str, tuple[Process, ...]]:
        listed: dict[str, tuple[Process, ...]] = {}
        used, busy = readings[_USED], readings[_BUSY]
        for team, rank, row, name in self._seats:
            if not tick.visible[row]:
                continue
            job = workloads.jobs[team]
            if job is None:
                listed[name] = ()
                continue
            share = float(busy[row])
            listed[name] = (
                Process(
                    job.pids[rank],
                    float(used[row]),
                    None if share != share else share,
                    job.command,
                    job.user,
                    job.container,
                    job.namespace,
                    job.pods[rank],
                    job.name,
                    "R" if share > 50.0 else "S",
                    job.started_at,
                ),
            )
        return listed

    def _jobs(self, workloads: Workloads, steps: Floats, loss: Floats) -> tuple[Job, ...]:
        return tuple(
            Job(job.name, {"job_loss": float(loss[team]), "job_step_total": float(steps[team])})
            for team in self._training
            if (job := workloads.jobs[team]) is not None and job.name is not None
        )
