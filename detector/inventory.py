"""Who is there: hosts, their devices, processes and jobs, each with its row in a ring; and how a frame becomes readings."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detector.frame import Device, Fault, Frame, Process
from detector.metrics import METRICS, Entity
from detector.ring import KNOWN_FORMS, TIERS, HostClock, Ring, Rows, span
from detector.window import Subject

FORGET_DEVICE_SECONDS: Final = 86_400.0
"""A device that no frame has listed for a day is forgotten."""
FORGET_JOB_SECONDS: Final = 86_400.0
FORGET_PROCESS_SECONDS: Final = 30.0
"""A process may be missing from a list or two (NVML's list and /proc race)."""

_OF_PROCESS: Final = ("process_memory_used_bytes", "process_sm_utilization_percent")
_BITS: Final = tuple((metric.name, metric.bit) for metric in METRICS.values() if metric.bit)
_DERIVED: Final = ("device_visible", "process_count", "process_memory_known_bytes", *(name for name, _ in _BITS))


@dataclass(slots=True)
class Host:
    """What is known of a host."""

    name: str
    clock: HostClock
    simulated: bool = False
    devices: dict[str, int] = field(default_factory=dict)
    """uuid -> row."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Weaker identities (PCI-..., INDEX-...) -> the uuid they turned out to be."""
    processes: dict[tuple[str, int], int] = field(default_factory=dict)
    """(uuid, pid) -> row."""
    process_seen: dict[tuple[str, int], float] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)
    job_seen: dict[str, float] = field(default_factory=dict)
    """Job -> observed time when it was last heard of."""
    unavailable: dict[str, dict[str, str]] = field(default_factory=dict)
    row: int = 0
    """Its own row in the ring of hosts."""
    faults: tuple[Fault, ...] = ()
    boot_id: str | None = None
    blind: bool = False
    blind_told: float = -np.inf
    """When the ring was last told whether the host is blind."""
    faulty: bool = False
    """Whether a device has a fault."""
    before: float = -np.inf
    """When its frame before the newest one was."""
    rebooted: bool = False
    """The newest frame is of another boot than the one before."""
    looked: dict[float, float] = field(default_factory=dict)
    """How often a rule looks -> observed time of the last such look."""
    listed: tuple[Device, ...] = ()
    """The devices of the newest frame that lists any, and their rows."""
    listed_rows: Rows = field(default_factory=lambda: np.empty(0, np.intp))


class _Batch:
    """Readings of one ring, gathered from many hosts to be written together."""

    def __init__(self, metrics: tuple[str, ...]) -> None:
        self._metrics = metrics
        self._hosts: list[tuple[str, float, int]] = []
        self._rows: list[int] = []
        self._readings: list[tuple[float, ...]] = []

    def add(self, host: str, at: float, rows: Sequence[int], readings: Sequence[tuple[float, ...]]) -> None:
        """Readings of some rows of a host, a value for each of the metrics."""
        self._hosts.append((host, at, len(rows)))
        self._rows.extend(rows)
        self._readings.extend(readings)

    def write(self, ring: Ring) -> None:
        """Write them, hosts that stand at the same bucket in one go."""
        if not self._hosts:
            return
        ring.open((host, at) for host, at, _ in self._hosts)
        rows, readings = np.array(self._rows, np.intp), np.array(self._readings, np.float64)
        moments = np.repeat([at for _, at, _ in self._hosts], [count for _, _, count in self._hosts])
        alike: dict[tuple[int, ...], list[NDArray[np.intp]]] = {}
        begin = 0
        for host, at, count in self._hosts:
            alike.setdefault((int(at // TIERS[0][0]), *ring.heads(host)), []).append(np.arange(begin, begin + count))
            begin += count
        columns = ring.columns(self._metrics)
        for key, parts in alike.items():
            some = np.concatenate(parts)
            ring.write(key[1:], moments[some], span(rows[some]), columns, readings[some])


class Inventory:
    """Hosts and the rings their readings are in. *history*: the metrics that rules look back on."""

    def __init__(self, history: Iterable[str]) -> None:
        wanted = tuple(history)
        self.hosts: dict[str, Host] = {}
        self.devices = Ring("device", wanted)
        self.processes = Ring("process", wanted)
        self.jobs = Ring("job", wanted)
        self.itself = Ring("host", wanted)
        """The hosts themselves, a row each."""
        self.subjects: dict[Entity, dict[int, Subject]] = {"device": {}, "process": {}, "job": {}, "host": {}}
        self.gone: list[tuple[Entity, int, Subject]] = []
        """(entity, row, what stood there) that were given back since the engine last asked."""
        self.renamed: list[tuple[str, str, str]] = []
        """(host, uuid before, uuid now) of devices whose better identity turned up since the engine last asked."""
        self._taken: dict[str, deque[tuple[object, ...]]] = {}
        """host -> what tells its newest frames apart, to know one that comes again."""
        self._columns: dict[tuple[str, ...], tuple[Rows, NDArray[np.intp]]] = {}

    def ring(self, entity: Entity) -> Ring:
        rings: dict[Entity, Ring] = {"device": self.devices, "process": self.processes, "job": self.jobs, "host": self.itself}
        return rings[entity]

    def subject(self, entity: Entity, row: int) -> Subject:
        return self.subjects[entity][row]

    def take(self, frame: Frame) -> tuple[Host, bool]:
        """Write the frame's readings; returns its host, and whether there is news that rules should look at now."""
        return self.take_all((frame,))[0]

    def comes_again(self, frame: Frame) -> bool:
        """Whether the frame was taken before: a recording that holds it twice, or two recordings that overlap."""
        told = (frame.boot_id, frame.devices, frame.events, frame.faults, frame.jobs, frame.processes)
        mark = (frame.at, frame.metrics, frame.values.tobytes(), told)
        taken = self._taken.setdefault(frame.host, deque(maxlen=64))
        if mark in taken:
            return True
        taken.append(mark)
        return False

    def take_all(self, frames: Sequence[Frame]) -> list[tuple[Host, bool]]:
        """`take` for frames of different hosts, in fewer and larger writes."""
        taken = [self._enter(frame) for frame in frames]
        hosts = [host for host, _ in taken]
        self.devices.open((host.name, frame.at) for host, frame in zip(hosts, frames, strict=True) if host.listed or frame.devices)
        alike: dict[tuple[tuple[str, ...], int, int], list[tuple[Frame, Rows]]] = {}
        for n, (host, frame) in enumerate(zip(hosts, frames, strict=True)):
            if frame.at < host.clock.now:
                frame, rows = self._late(host, frame)
            elif frame.devices:
                news = self._list_devices(host, frame)
                taken[n], rows = (host, taken[n][1] or news), host.listed_rows
            if frame.devices:
                head = self.devices.heads(host.name)[0]
                alike.setdefault((frame.metrics, int(frame.at // TIERS[0][0]), head), []).append((frame, rows))
        for group in alike.values():
            self._write(group)
        told: dict[Entity, _Batch] = {"host": _Batch(("host_blind",)), "process": _Batch(_OF_PROCESS)}
        for host, frame in zip(hosts, frames, strict=True):
            if frame.at >= host.clock.now:
                self._take_rest(host, frame, told)
        for entity, batch in told.items():
            batch.write(self.ring(entity))
        return taken

    def _late(self, host: Host, frame: Frame) -> tuple[Frame, Rows]:
        """Of a frame that comes late only the readings of known devices count: it does not say who is there now."""
        places = [n for n, device in enumerate(frame.devices) if self.resolve(host, device.uuid) in host.devices]
        known = tuple(frame.devices[n] for n in places)
        rows = np.array([host.devices[self.resolve(host, device.uuid)] for device in known], np.intp)
        return replace(frame, devices=known, values=frame.values[places] if known else frame.values), rows

    def _take_rest(self, host: Host, frame: Frame, told: Mapping[Entity, _Batch]) -> None:
        if frame.devices or frame.faults:
            self._tell_faults(host, frame, told["host"])
        if frame.devices and len(host.devices) > len(frame.devices):
            self._mark_absent(host, frame.at)
        if frame.processes:
            self._take_processes(host, frame, told["process"])
        if frame.jobs:
            self._take_jobs(host, frame)
        for uuid, reasons in frame.unavailable.items():
            host.unavailable[self.resolve(host, uuid)] = dict(reasons)
        self._forget_jobs(host)

    def _enter(self, frame: Frame) -> tuple[Host, bool]:
        """The frame's host, its clock moved on; and whether there is news in its faults."""
        host = self.hosts.get(frame.host)
        if host is None:
            row = self.itself.add(frame.host, frame.host, frame.at)
            self.subjects["host"][row] = Subject(frame.host)
            host = Host(frame.host, HostClock(frame.at), simulated=frame.simulated, row=row, faults=frame.faults, boot_id=frame.boot_id)
            self.hosts[frame.host] = host
            return host, True
        host.simulated |= frame.simulated
        host.rebooted = False
        if frame.at < host.clock.now:
            return host, False
        host.before = host.clock.now
        host.clock.advance(frame.at)
        if frame.boot_id is not None:
            host.rebooted = host.boot_id is not None and frame.boot_id != host.boot_id
            host.boot_id = frame.boot_id
        news = bool(frame.devices or frame.faults) and frame.faults != host.faults
        if frame.devices or frame.faults:
            host.faults = frame.faults
        return host, news or host.rebooted

    def _tell_faults(self, host: Host, frame: Frame, told: _Batch) -> None:
        """Put the faults of the frame where rules find them: on the host, and on each device that is concerned."""
        whole = tuple(fault for fault in frame.faults if fault.uuid is None)
        blind = bool(whole) and not frame.devices
        if blind != host.blind or frame.at - host.blind_told >= METRICS["host_blind"].cadence:
            host.blind, host.blind_told = blind, frame.at
            told.add(host.name, frame.at, [host.row], [(float(blind),)])
        self.subject("host", host.row).faults = whole
        concerned: dict[str, list[Fault]] = {}
        for fault in frame.faults:
            if fault.uuid is not None:
                concerned.setdefault(self.resolve(host, fault.uuid), []).append(fault)
        for uuid in concerned.keys() - host.devices.keys():
            self._row_of(host, Device(uuid, pci_bus_id=uuid.removeprefix("PCI-") if uuid.startswith("PCI-") else None), frame.at)
        if concerned or host.faulty:
            for uuid, row in host.devices.items():
                self.subject("device", row).faults = tuple(concerned.get(uuid, ()))
        host.faulty = bool(concerned)

    # -- devices ------------------------------------------------------------------------------------------------------------
    def resolve(self, host: Host, uuid: str) -> str:
        """The best known identity of a device."""
        return host.aliases.get(uuid, uuid)

    def _list_devices(self, host: Host, frame: Frame) -> bool:
        """Find the rows of the frame's devices; whether some came or went."""
        if frame.devices is host.listed or frame.devices == host.listed:
            return False
        if host.clock.after_hole:
            self._replace_all(host, frame)
        rows = np.array([self._row_of(host, device, frame.at) for device in frame.devices], np.intp)
        for row in rows.tolist():
            subject = self.subject("device", row)
            subject.missed, subject.missed_since = 0, None
        changed = set(host.listed_rows.tolist()) != set(rows.tolist())
        host.listed, host.listed_rows = frame.devices, rows
        return changed

    def _replace_all(self, host: Host, frame: Frame) -> None:
        """A host that comes back after a while with other devices and none of the old ones is another machine: nothing was lost."""
        if not any(self._joined(host, device) in host.devices for device in frame.devices):
            self._forget(host, set(host.devices.values()))

    def _write(self, group: Sequence[tuple[Frame, Rows]]) -> None:
        """Write the readings of frames with the same metrics, each with its rows, of hosts that stand at the same bucket."""
        frames, rows = [frame for frame, _ in group], [rows for _, rows in group]
        metrics = frames[0].metrics
        columns, places = self._columns_of(metrics)
        brought = frames[0].values if len(frames) == 1 else np.concatenate([frame.values for frame in frames])
        values = np.concatenate([brought, self._derived(frames, metrics, brought)], axis=1)[:, places]
        heads = self.devices.heads(frames[0].host)
        if len(frames) == 1:
            self.devices.write(heads, frames[0].at, span(rows[0]), columns, values)
            return
        at = np.repeat([frame.at for frame in frames], [len(frame.devices) for frame in frames])
        self.devices.write(heads, at, span(np.concatenate(rows)), columns, values)

    def _columns_of(self, metrics: tuple[str, ...]) -> tuple[Rows, NDArray[np.intp]]:
        """Places in the ring for the readings of a frame followed by the derived ones, and which of them the ring knows."""
        known = self._columns.get(metrics)
        if known is None:
            if len(self._columns) >= KNOWN_FORMS:
                self._columns.clear()
            columns = self.devices.columns((*metrics, *_DERIVED))
            # What a frame brings itself wins over what would be derived.
            brought = set(columns[: len(metrics)].tolist())
            places = np.array([n for n, c in enumerate(columns) if c >= 0 and (n < len(metrics) or int(c) not in brought)], np.intp)
            known = self._columns[metrics] = (columns[places], places)
        return known

    def _derived(self, frames: Sequence[Frame], metrics: tuple[str, ...], brought: NDArray[np.float64]) -> NDArray[np.float64]:
        """What follows from the readings and process lists, a column each of `_DERIVED`."""
        out = np.full((len(brought), len(_DERIVED)), np.nan)
        out[:, 0] = 1.0
        if any(frame.processes for frame in frames):
            row = 0
            for frame in frames:
                for device in frame.devices:
                    processes = frame.processes.get(device.uuid)
                    if processes is not None:
                        out[row, 1] = len(processes)
                        known = [p.memory_used_bytes for p in processes]
                        out[row, 2] = sum(m for m in known if m is not None) if None not in known else np.nan
                    row += 1
        if "clock_event_reasons" in metrics:
            mask = brought[:, metrics.index("clock_event_reasons")]
            readable = ~np.isnan(mask)
            bits = np.where(readable, mask, 0.0).astype(np.int64)
            for n, (_, bit) in enumerate(_BITS, 3):
                out[:, n] = np.where(readable, (bits & bit) > 0, np.nan)
        return out

    def _row_of(self, host: Host, device: Device, at: float) -> int:
        uuid = self._joined(host, device)
        row = host.devices.get(uuid)
        if row is None:
            row = host.devices[uuid] = self.devices.add(host.name, (host.name, uuid), at)
            self.subjects["device"][row] = Subject(host.name, replace(device, uuid=uuid))
            return row
        subject = self.subject("device", row)
        if subject.device != device:
            known = subject.device or device
            facts = {name: getattr(device, name) for name in ("index", "name", "pci_bus_id", "parent", "mig_profile", "power_state")}
            subject.device = replace(known, uuid=uuid, **{name: fact for name, fact in facts.items() if fact is not None})
        return row

    def _joined(self, host: Host, device: Device) -> str:
        """The uuid to file the device under: the strongest identity seen of it, joined with the weaker ones seen before."""
        uuid = self.resolve(host, device.uuid)
        if uuid in host.devices or device.kind == "mig":
            return uuid
        ladder = [f"PCI-{device.pci_bus_id}"] if device.pci_bus_id else []
        ladder += [f"INDEX-{device.index}", f"DEVICE-{device.index}"] if device.index is not None else []
        for weaker in ladder[ladder.index(uuid) + 1 :] if uuid in ladder else ladder:
            if weaker in host.devices and uuid in host.devices:
                self._forget(host, {host.devices[weaker]})
            elif weaker in host.devices:
                self._rename(host, weaker, uuid)
            elif host.aliases.get(weaker) != uuid:
                self.renamed.append((host.name, weaker, uuid))
            host.aliases[weaker] = uuid
        return uuid

    def _rename(self, host: Host, before: str, now: str) -> None:
        row = host.devices[now] = host.devices.pop(before)
        subject = self.subject("device", row)
        subject.device = replace(subject.device or Device(now), uuid=now)
        host.aliases = {weak: now if strong == before else strong for weak, strong in host.aliases.items()} | {before: now}
        for of_process in (host.processes, host.process_seen):
            for key in [key for key in of_process if key[0] == before]:
                of_process[now, key[1]] = of_process.pop(key)  # type: ignore[assignment]
        if before in host.unavailable:
            host.unavailable[now] = host.unavailable.pop(before)
        self.renamed.append((host.name, before, now))

    def _mark_absent(self, host: Host, at: float) -> None:
        """Devices that the host has but the frame does not list are not visible; after a day they are forgotten."""
        absent = np.array(sorted(set(host.devices.values()) - set(host.listed_rows.tolist())), np.intp)
        if not len(absent):
            return
        visible = self.devices.columns(("device_visible",))
        self.devices.put(host.name, at, absent, visible, np.zeros((len(absent), 1)))
        forgotten = set()
        for row in absent.tolist():
            subject = self.subject("device", row)
            subject.missed += 1
            subject.missed_since = at if subject.missed_since is None else subject.missed_since
            if at - subject.missed_since > FORGET_DEVICE_SECONDS:
                forgotten.add(row)
        self._forget(host, forgotten)

    def _forget(self, host: Host, rows: set[int]) -> None:
        """Devices that are no longer part of the host."""
        for uuid, row in [(uuid, row) for uuid, row in host.devices.items() if row in rows]:
            del host.devices[uuid]
            host.unavailable.pop(uuid, None)
            host.aliases = {alias: target for alias, target in host.aliases.items() if target != uuid}
            self._give_back("device", host.name, row)

    def _give_back(self, entity: Entity, host: str, row: int) -> None:
        self.ring(entity).remove(host, row)
        self.gone.append((entity, row, self.subjects[entity].pop(row)))

    # -- processes and jobs -------------------------------------------------------------------------------------------------
    def _take_processes(self, host: Host, frame: Frame, told: _Batch) -> None:
        rows, readings = [], []
        for named, processes in frame.processes.items():
            uuid = self.resolve(host, named)
            device_row = host.devices.get(uuid)
            if device_row is None:
                continue
            device = self.subject("device", device_row)
            device.processes = processes
            for process in processes:
                rows.append(self._process_row(host, uuid, device.device, process, frame.at))
                memory, busy = process.memory_used_bytes, process.sm_utilization_percent
                readings.append((np.nan if memory is None else memory, np.nan if busy is None else busy))
        if rows:
            told.add(host.name, frame.at, rows, readings)
        self._forget_processes(host)

    def _process_row(self, host: Host, uuid: str, device: Device | None, process: Process, at: float) -> int:
        key = (uuid, process.pid)
        row = host.processes.get(key)
        if row is None:
            row = host.processes[key] = self.processes.add(host.name, (host.name, *key), at)
        self.subjects["process"][row] = Subject(host.name, device, (process,), process, process.job)
        host.process_seen[key] = host.clock.observed
        return row

    def _forget_processes(self, host: Host) -> None:
        for key in [key for key, seen in host.process_seen.items() if host.clock.observed - seen > FORGET_PROCESS_SECONDS]:
            del host.process_seen[key]
            self._give_back("process", host.name, host.processes.pop(key))

    def _forget_jobs(self, host: Host) -> None:
        for job in [job for job, seen in host.job_seen.items() if host.clock.observed - seen > FORGET_JOB_SECONDS]:
            del host.job_seen[job]
            self._give_back("job", host.name, host.jobs.pop(job))

    def _take_jobs(self, host: Host, frame: Frame) -> None:
        for job in frame.jobs:
            host.job_seen[job.job] = host.clock.observed
            row = host.jobs.get(job.job)
            if row is None:
                row = host.jobs[job.job] = self.jobs.add(host.name, (host.name, job.job), frame.at)
                self.subjects["job"][row] = Subject(host.name, job=job.job)
            readings = {name: value for name, value in job.readings.items() if name in METRICS and METRICS[name].entity == "job"}
            if "job_loss" in readings:
                readings["job_loss_finite"] = float(np.isfinite(readings["job_loss"]))
            values = np.array([[value if np.isfinite(value) else np.nan for value in readings.values()]])
            self.jobs.put(host.name, frame.at, np.array([row], np.intp), self.jobs.columns(tuple(readings)), values)
            if "job_step_total" in readings:
                self._spread_steps(host, job.job, frame.at, readings["job_step_total"])

    def _spread_steps(self, host: Host, job: str, at: float, step: float) -> None:
        """The steps of a job, on each device that it runs on: so a rule about devices can ask whether their job moves."""
        rows = np.array([row for row in host.devices.values() if job in self.subject("device", row).jobs], np.intp)
        if len(rows):
            self.devices.put(host.name, at, rows, self.devices.columns(("device_job_step_total",)), np.full((len(rows), 1), step))

    # -- views --------------------------------------------------------------------------------------------------------------
    def rows(self, entity: Entity, hosts: Sequence[Host]) -> Rows:
        """The rows of the hosts, host by host."""
        ring = self.ring(entity)
        return np.array([row for host in hosts for row in ring.rows(host.name)], np.intp)
