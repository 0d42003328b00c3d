"""What an exported series is about: which reading, of which GPU, by its name and labels.

dcgm-exporter, its ancestors (`dcgm_gpu_temp`) and nvidia_gpu_exporter (`nvidia_smi_temperature_gpu`) are understood, both in their
own text and in what Prometheus answers about them. Labels of pods do not tell GPUs apart, and own nothing: often they are the exporter's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from detector.frame import Device
from detector.metrics import METRICS, Metric
from detector.sources.format import LOCALHOST
from detector.sources.identity import Devices, pci_address

PREFIXES: Final = ("DCGM_", "dcgm_", "nvidia_smi_")
"""How the names of GPU series begin. What else a page holds is none of our business."""

_OLD_WORDS: Final = (("GPU_UTIL", "GPU_UTILIZATION"), ("COPY_UTIL", "COPY_UTILIZATION"), ("ENC_UTIL", "ENC_UTILIZATION"),
                     ("DEC_UTIL", "DEC_UTILIZATION"), ("MEM_CLOCK", "MEMORY_CLOCK"), ("VOL_", "VOLATILE_"), ("AGG_", "AGGREGATE_"),
                     ("RETIRED_", "RETIRED_PAGES_"), ("PIPE_TENSOR", "TENSOR"))  # fmt: skip
_SMI_UNITS: Final = {"percent": ("_ratio", 100.0), "bytes": ("_bytes", 1.0), "watts": ("_watts", 1.0), "mhz": ("_clock_hz", 1e-6)}
_SMI_PLAIN: Final = ("celsius", "count", "flag", "code", "lanes")
_XID_GAUGES: Final = ("DCGM_FI_DEV_XID_ERRORS", "dcgm_xid_errors")
_XID_COUNTS: Final = ("DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL")
_HOSTS: Final = ("Hostname", "hostname", "node", "kubernetes_node", "instance")
"""Labels that name the host, the best first."""
_FACTS: Final = ("index", "name", "pci_bus_id", "mig_profile")
_NONE: Final = ("", "<<<NULL>>>")
_BARE_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PORT: Final = re.compile(r":\d+$")

_BLANKS: Final = frozenset(float(base + n) for base in (0x7FFF_FFF0, 2**47) for n in range(16)) | {4294967295.0}
_ENDLESS: Final = 9.2e18


def blank(value: float) -> bool:
    """Whether *value* is no number, or what DCGM writes for "not known", "not supported", "not permitted" in 32 or 64 bits or a float."""
    return value != value or value >= _ENDLESS or (value >= 2e9 and value in _BLANKS)


@dataclass(frozen=True, slots=True)
class Series:
    """A series that is about a GPU. One without a metric, or a field that the catalogue does not have, says that it is there."""

    host: str
    uuid: str
    kind: Literal["reading", "xid", "xid_count", "presence"]
    metric: Metric | None = None
    factor: float = 1.0
    """Turns a value into the metric's unit."""
    preferred: bool = True
    """False: another field says the same better, where it is there."""
    code: int | None = None
    """Of a count of Xids: of which."""
    message: str = ""
    driver_version: str | None = None

    def reading(self, value: float) -> float | None:
        """*value* in the metric's unit; None where it cannot be a reading."""
        if self.metric is None or blank(value):
            return None
        value *= self.factor
        return value if self.metric.plausible(value) else None


@dataclass(slots=True)
class Directory:
    """The series of a recording and the devices they are about. *host*: where no label names one."""

    host: str | None = None
    devices: dict[tuple[str, str], Device] = field(default_factory=dict)
    """(host, uuid) -> the device, with all that its labels have told so far."""
    _names: Devices = field(default_factory=Devices)
    _newest_host: str | None = None

    def series(self, name: str, labels: Mapping[str, str], elided: bool = False) -> Series | None:
        """What a series is about; None where it is not about a GPU. *elided*: somebody has left out labels that do not change."""
        if not name.startswith(PREFIXES):
            return None
        host = self._host(labels, elided)
        device = self._device(host, labels)
        if device is None:
            return None
        uuid, driver = device.uuid, labels.get("DCGM_FI_DRIVER_VERSION") or labels.get("driver_version") or None
        if name in _XID_GAUGES or name in _XID_COUNTS:
            # An Xid is of the GPU, whichever instances repeat it.
            kind: Literal["xid", "xid_count"] = "xid" if name in _XID_GAUGES else "xid_count"
            return Series(host, device.parent or uuid, kind, code=_integer(labels.get("xid")), message=labels.get("err_msg", ""))
        if name not in _FIELDS:
            return Series(host, uuid, "presence", driver_version=driver)
        metric, factor, preferred = _FIELDS[name]
        return Series(host, uuid, "reading", metric, factor, preferred, driver_version=driver)

    def since(self, host: str, device: Device) -> Device:
        """*device*, as it was known some time ago, with what was told of it since; unless it has changed, for that is another time's."""
        now = self.devices[host, device.uuid]
        return now if now is device or all(getattr(device, fact) in (None, getattr(now, fact)) for fact in _FACTS) else device

    def _host(self, labels: Mapping[str, str], elided: bool) -> str:
        for label in _HOSTS:
            if named := labels.get(label):
                self._newest_host = _PORT.sub("", named) if label == "instance" else named
                return self._newest_host
        return (self._newest_host if elided else None) or self.host or LOCALHOST

    def _device(self, host: str, labels: Mapping[str, str]) -> Device | None:
        uuid = labels.get("UUID") or labels.get("uuid") or None
        if uuid is not None and _BARE_UUID.fullmatch(uuid):
            uuid = f"GPU-{uuid}"
        bus, index = labels.get("pci_bus_id") or None, _integer(labels.get("gpu"))
        if uuid is None and bus is None and index is None:
            return None
        name = labels.get("modelName") or labels.get("name") or None
        gpu = self._known(host, self._names.find(host, uuid, bus and (pci_address(bus) or bus), index, name))
        instance, profile = labels.get("GPU_I_ID"), labels.get("GPU_I_PROFILE", "")
        if not instance:
            return gpu
        profile_or_none = None if profile in _NONE else profile
        return self._known(host, Device(f"MIG-{gpu.uuid}/{instance}", name=name, parent=gpu.uuid, mig_profile=profile_or_none))

    def _known(self, host: str, device: Device) -> Device:
        """The device with what was told of it before, as not every series has every label."""
        before = self.devices.get((host, device.uuid), device)
        told = Device(
            device.uuid,
            index=before.index if device.index is None else device.index,
            name=device.name or before.name,
            pci_bus_id=device.pci_bus_id or before.pci_bus_id,
            parent=device.parent,
            mig_profile=device.mig_profile or before.mig_profile,
        )
        if told == before:
            told = before
        self.devices[host, device.uuid] = told
        return told


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 6 else None


def _fields() -> Iterator[tuple[str, tuple[Metric, float, bool]]]:
    """Every name that a reading is exported under, the metric, the factor into its unit, and whether no other name is better."""
    for metric in METRICS.values():
        for rank, (name, factor) in enumerate(metric.dcgm):
            yield name, (metric, factor, rank == 0)
            old = name.removeprefix("DCGM_FI_DEV_").removeprefix("DCGM_FI_PROF_")
            for new_word, old_word in _OLD_WORDS:
                old = old.replace(new_word, old_word)
            yield f"dcgm_{old.lower()}", (metric, factor, rank == 0)
        suffix, factor = _SMI_UNITS.get(metric.unit, ("", 1.0))
        if suffix or metric.unit in _SMI_PLAIN:
            for rank, query in enumerate(metric.smi):
                yield f"nvidia_smi_{query.replace('.', '_')}{suffix}", (metric, factor, rank == 0)


_FIELDS: Final = dict(_fields())
