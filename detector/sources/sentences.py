"""What nvidia-smi says where rows should be."""

from __future__ import annotations

import re
from typing import Final

from detector.frame import Fault, FaultKind
from detector.sources.identity import device_uuid, pci_address

_SENTENCES: Final[dict[str, FaultKind]] = {
    r"Failed to initialize NVML: Driver/library version mismatch": "library_mismatch",
    r"Failed to initialize NVML: (?:Insufficient Permissions|GPU access blocked)": "no_permission",
    r"Failed to initialize NVML: Driver Not Loaded": "driver_not_loaded",
    r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver": "driver_not_loaded",
    r"NVIDIA-SMI couldn't find libnvidia-ml|nvidia-smi: (?:command )?not found": "library_not_found",
    r"Unable to determine the device handle for GPU": "gpu_lost",
    r"Failed to initialize NVML|No devices were found": "unknown",
}
_SENTENCE: Final = re.compile("|".join(f"({opening})" for opening in _SENTENCES), re.IGNORECASE)
_FOLLOWS: Final = re.compile(r"\s*(?:NVML library version:|Please also try adding directory|Make sure that the latest NVIDIA driver)")
_ADDRESS: Final = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


def fault_of(line: str) -> Fault | None:
    """What nvidia-smi could not do, by a sentence in its output; a single GPU is called by its bus address. None: another line."""
    match = _SENTENCE.search(line)
    if match is None or match.lastindex is None:
        return None
    kind = tuple(_SENTENCES.values())[match.lastindex - 1]
    address = _ADDRESS.search(line) if kind == "gpu_lost" else None
    return Fault(kind, device_uuid(None, pci_address(address[0])) if address else None, line.strip())


def is_sentence(line: str) -> bool:
    """Whether the line is such a sentence, or goes with one."""
    return _SENTENCE.search(line) is not None or _FOLLOWS.match(line) is not None
