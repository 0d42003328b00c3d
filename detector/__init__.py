"""gpuwarden watches NVIDIA GPUs from outside the workload: frames come in, incidents go out.

The names below are what notebooks and scripts use. They load their module on first use, so importing a part of the package
loads that part only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detector.offline import replay
    from detector.sources.recording import read_recording, to_frame

    __version__: str

__all__ = ["__version__", "read_recording", "replay", "to_frame"]

_HOMES = {
    "read_recording": "detector.sources.recording",
    "replay": "detector.offline",
    "to_frame": "detector.sources.recording",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    """The installed version; `0+checkout` where the checkout is used without being installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gpuwarden")
    except PackageNotFoundError:
        return "0+checkout"
