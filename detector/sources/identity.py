"""What a device is called when a recording gives less than its UUID."""

from __future__ import annotations

import re

from detector.frame import Device

_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)


def pci_address(text: str) -> str | None:
    """`0000:3b:00.0`, `3B:00.0` or `0:3b:00` as NVML writes it, `00000000:3B:00.0`; None where *text* is no such address."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return None
    return f"{match[1] or '':0>8}:{match[2]}:{match[3]}.{match[4] or 0}".upper()


def device_uuid(uuid: str | None, pci_bus_id: str | None = None, index: int | None = None, position: int = 0) -> str:
    """The best identity there is: the uuid, else `PCI-00000000:3B:00.0`, else `INDEX-0`, else `DEVICE-0`, its place in the frame."""
    if uuid:
        return uuid
    if pci_bus_id:
        return f"PCI-{pci_bus_id}"
    return f"DEVICE-{position}" if index is None else f"INDEX-{index}"


class Devices:
    """The devices of a recording, whichever of its names a row gives: once uuid and bus address stood together, either is enough."""

    def __init__(self) -> None:
        self._uuids: dict[tuple[str | None, str], str] = {}

    def find(self, host: str | None, uuid: str | None, bus: str | None, index: int | None, name: str | None) -> Device:
        """The device with these names; one without any is DEVICE-0."""
        labels = [(host, device_uuid(None, bus))] if bus else []
        labels += [(host, device_uuid(None, None, index))] if index is not None else []
        if uuid is not None:
            self._uuids.update(dict.fromkeys(labels, uuid))
        known = uuid or next((self._uuids[label] for label in labels if label in self._uuids), None)
        return Device(device_uuid(known, bus, index), index=index, name=name, pci_bus_id=bus)

    def best(self, host: str | None, uuid: str) -> str:
        """The uuid of a device that *uuid*, perhaps a bus address, names."""
        return self._uuids.get((host, uuid), uuid)
