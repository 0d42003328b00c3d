"""A table with a row a device, which grows, forgets, and is saved to a file that is checked when it is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detector.errors import SourceError

Key = tuple[str, str]
"""Host and uuid of a device."""

_NAMES: Final = ("layout", "hosts", "uuids", "digest")
"""What a file holds beside the columns."""


class Column(NamedTuple):
    dtype: Any
    shape: tuple[int, ...] = ()
    """Of one device's entry."""
    below: float = np.inf
    """Entries are at least 0 and less than this; infinite: any value goes."""


class Table:
    """Columns of arrays, shaped (capacity, ...); a new device's entries are 0."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)
        self._arrays: dict[str, NDArray[Any]] = {name: np.zeros((0, *column.shape), column.dtype) for name, column in columns.items()}
        self._free: list[int] = []
        self.slots: dict[Key, int] = {}

    def __getitem__(self, column: str) -> NDArray[Any]:
        """The whole column, free slots included. It is replaced when the table grows: ask again after `add`."""
        return self._arrays[column]

    def add(self, key: Key) -> int:
        """A slot for *key*, empty."""
        if not self._free:
            self._grow(max(8, 2 * len(self.slots)))
        slot = self.slots[key] = self._free.pop()
        return slot

    def remove(self, key: Key) -> None:
        """Give the slot back."""
        slot = self.slots.pop(key)
        for array in self._arrays.values():
            array[slot] = 0
        self._free.append(slot)

    def _grow(self, capacity: int) -> None:
        old = len(self.slots)
        for name, array in self._arrays.items():
            grown = np.zeros((capacity, *array.shape[1:]), array.dtype)
            grown[:old] = array
            self._arrays[name] = grown
        self._free.extend(range(capacity - 1, old - 1, -1))

    # -- file ---------------------------------------------------------------------------------------------------------------
    def save(self, path: Path, layout: str, keys: list[Key]) -> None:
        """Write the rows of *keys*; *layout* says what the columns mean. The file is complete or not there at all."""
        slots = np.array([self.slots[key] for key in keys], np.intp)
        arrays = {name: array[slots] for name, array in self._arrays.items()}
        arrays["hosts"] = np.array([host for host, _ in keys], np.str_)
        arrays["uuids"] = np.array([uuid for _, uuid in keys], np.str_)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with unfinished.open("wb") as file:
                np.savez(file, **arrays, layout=np.array(layout), digest=np.array(_digest(arrays)))  # type: ignore[arg-type]
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def load(self, path: Path, layout: str) -> None:
        """Replace all rows by those of the file. A SourceError says why it cannot be used; the table is then as it was."""
        arrays = self._checked(path, layout)
        fresh = Table(self._columns)
        keys = list(zip(arrays["hosts"].tolist(), arrays["uuids"].tolist(), strict=True))
        fresh._grow(max(8, len(keys)))
        for key in keys:
            fresh.add(key)  # slots are given in order
        for name, array in fresh._arrays.items():
            array[: len(keys)] = arrays[name]
        self._arrays, self._free, self.slots = fresh._arrays, fresh._free, fresh.slots

    def _checked(self, path: Path, layout: str) -> dict[str, NDArray[Any]]:
        try:
            # Opened here, because numpy leaves a file open that turns out to be no archive.
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                saved = str(file["layout"]) if "layout" in file else None
                arrays = {name: file[name] for name in file} if saved == layout else {}
        except Exception as error:
            # A file that is no archive, is cut short or was altered fails in numpy, zipfile, zlib or ast, each with errors of its own.
            reason = error.strerror if isinstance(error, OSError) and error.strerror else f"it is damaged ({type(error).__name__}: {error})"
            raise SourceError(f"{path}: {reason}; delete it, and the model learns anew") from None
        if saved != layout:
            raise SourceError(f'{path}: its layout is "{saved}", this version reads "{layout}"; delete it, and the model learns anew')
        problem = self._problem(arrays)
        if problem is not None:
            raise SourceError(f"{path}: it is damaged ({problem}); delete it, and the model learns anew")
        return arrays

    def _problem(self, arrays: dict[str, NDArray[Any]]) -> str | None:
        if set(arrays) != {*self._columns, *_NAMES}:
            return "columns are missing or unknown"
        hosts, uuids = arrays["hosts"], arrays["uuids"]
        if hosts.ndim != 1 or hosts.shape != uuids.shape or hosts.dtype.kind != "U" or uuids.dtype.kind != "U":
            return "the devices are not named"
        if len(set(zip(hosts.tolist(), uuids.tolist(), strict=True))) != len(hosts):
            return "a device stands in it twice"
        for name, column in self._columns.items():
            array = arrays[name]
            if array.dtype != column.dtype or array.shape != (len(hosts), *column.shape):
                return f"{name} is {array.dtype} {array.shape}"
            if np.isfinite(column.below) and not bool(((array >= 0) & (array < column.below)).all()):
                return f"{name} has values beyond 0 to {column.below:.0f}"
        if str(arrays["digest"]) != _digest({name: array for name, array in arrays.items() if name not in ("layout", "digest")}):
            return "the checksum does not fit"
        return None


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()
