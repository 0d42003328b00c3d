"""Reads recordings, whatever their format, as one timeline of frames."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from detector.errors import ConfigError, SourceError
from detector.frame import Frame
from detector.metrics import METRICS
from detector.sources import (
    dcgm,
    gpustat,
    kernel_log,
    nvidia_smi_csv,
    nvidia_smi_dmon,
    nvidia_smi_query,
    nvidia_smi_table,
    nvidia_smi_xml,
    prometheus_json,
    trace,
    wandb,
)
from detector.sources.format import DEFAULTS, Format, Problems, ReadOptions
from detector.sources.text import Text
from detector.sources.timestamps import zone_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMATS", "NOT_YET", "Problems", "ReadOptions", "read_recording", "to_frame"]

FORMATS: Final[dict[str, Format]] = {
    format.name: format
    for format in (
        trace.FORMAT,
        dcgm.FORMAT,
        prometheus_json.FORMAT,
        kernel_log.FORMAT,
        nvidia_smi_xml.FORMAT,
        nvidia_smi_query.FORMAT,
        nvidia_smi_table.FORMAT,
        nvidia_smi_dmon.DMON,
        nvidia_smi_dmon.PMON,
        gpustat.FORMAT,
        wandb.FORMAT,
        nvidia_smi_csv.FORMAT,
    )
}
"""By name, in the order in which `auto` tries them: the most particular first."""

NOT_YET: Final = ("parquet",)
"""Formats whose names are taken."""

_DISORDER: Final = 64
"""A frame may come so many frames late and still find its place in time."""

Progress = Callable[[int, int], None]


def read_recording(
    *paths: str | PathLike[str],
    options: ReadOptions = DEFAULTS,
    problems: Problems | None = None,
    progress: Progress | None = None,
) -> Iterator[Frame]:
    """The frames of recordings, merged by time; what could not be read is added to *problems*.

    A stream: memory does not grow with the size of a file. Frames that come late by more than a few stay late. *progress* is told
    bytes read and bytes in all. Raises SourceError at once where nothing can be read; of several paths, those that cannot are
    problems as long as one can. Raises ConfigError where *options* make no sense.
    """
    _check(options)
    found = Problems() if problems is None else problems
    files = [Path(fspath(path)) for path in paths]
    on_bytes = _meter(files, progress)
    if len(files) == 1:
        first, frames = _begin(files[0], options, found, on_bytes)
        return chain((first,), frames)
    streams: list[Iterator[Frame]] = []
    refused = []
    for file in files:
        again = file.is_file()  # a pipe cannot be read twice
        try:
            first, frames = _begin(file, options, Problems(), _unheard) if again else _begin(file, options, found, on_bytes)
        except SourceError as why:
            refused.append((file, why))
        else:
            streams.append(_resume(file, first, options, found, on_bytes) if again else chain((first,), frames))
    if not streams:
        raise SourceError("\n".join(str(error) for _, error in refused) or "no recording was named")
    for file, error in refused:
        found.add(file, None, _without(file, error))
    return heapq.merge(*streams, key=lambda frame: frame.at)


def to_frame(*sources: str | PathLike[str] | Iterable[Frame], options: ReadOptions = DEFAULTS) -> pd.DataFrame:
    """Recordings, or frames, as a table: a row for each (host, device, at), sorted; a column for each metric, NaN where it is missing.

    `device` is the uuid, `at` a UTC Timestamp. Processes, events and jobs are left to the frames themselves.
    """
    import pandas as pd

    rows: dict[tuple[str, ...], list[Frame]] = {}
    for source in sources:
        for frame in read_recording(source, options=options) if isinstance(source, (str, PathLike)) else source:
            if frame.devices:
                rows.setdefault(frame.metrics, []).append(frame)
    tables = [_table(metrics, frames) for metrics, frames in rows.items()] or [_table((), [])]
    table = pd.concat(tables) if len(tables) > 1 else tables[0]
    return table[[name for name in METRICS if name in table.columns]].sort_index(kind="stable")


def _table(metrics: tuple[str, ...], frames: list[Frame]) -> pd.DataFrame:
    import pandas as pd

    ats = np.array([frame.at for frame in frames for _ in frame.devices], np.float64)
    index = pd.MultiIndex.from_arrays(
        [
            [frame.host for frame in frames for _ in frame.devices],
            [device.uuid for frame in frames for device in frame.devices],
            pd.to_datetime(np.round(ats * 1e6).astype(np.int64), unit="us", utc=True),
        ],
        names=["host", "device", "at"],
    )
    values = np.concatenate([frame.values for frame in frames]) if frames else np.empty((0, len(metrics)))
    return pd.DataFrame(values, index=index, columns=list(metrics))


def _check(options: ReadOptions) -> None:
    if options.format not in ("auto", *FORMATS, *NOT_YET):
        raise ConfigError(f"unknown format {options.format!r}; formats are auto, {', '.join((*FORMATS, *NOT_YET))}")
    if options.timezone is not None:
        zone_of(options.timezone)
    if options.interval is not None and not 0.0 < options.interval < float("inf"):
        raise ConfigError(f"the interval is {options.interval:g} seconds; it must be above 0")


def _meter(files: list[Path], progress: Progress | None) -> Callable[[int], None]:
    if progress is None:
        return _unheard
    total = sum(file.stat().st_size for file in files if file.is_file())
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress(done, max(done, total))

    return on_bytes


def _unheard(count: int) -> None:
    """Nobody asked how far it has come."""


def _begin(file: Path, options: ReadOptions, problems: Problems, on_bytes: Callable[[int], None]) -> tuple[Frame, Iterator[Frame]]:
    """The first frame of a file, and those after it. Raises SourceError where there is none."""
    text = Text(file, problems, on_bytes)
    format = _format(text, options)
    frames = _in_order(_guarded(file, format.read(text, options, problems), problems))
    first = next(frames, None)
    if first is None:
        why = "; ".join(problems.lines()[:1]) or "it has no readings"
        raise SourceError(f"{file} holds nothing that can be read as {format.name}: {why}")
    return first, frames


def _resume(file: Path, first: Frame, options: ReadOptions, problems: Problems, on_bytes: Callable[[int], None]) -> Iterator[Frame]:
    """One of many files: closed after its first frame, opened again when its time has come."""
    yield first
    try:
        _, frames = _begin(file, options, problems, on_bytes)
    except SourceError as error:
        problems.add(file, None, _without(file, error))
    else:
        yield from frames


def _format(text: Text, options: ReadOptions) -> Format:
    if options.format in NOT_YET:
        raise SourceError(f"{text.path}: not supported yet: {options.format}; what can be read is {', '.join(FORMATS)}")
    if options.format != "auto":
        return FORMATS[options.format]
    for format in FORMATS.values():
        if format.sniff(text.head):
            return format
    if options.columns is not None:
        return nvidia_smi_csv.FORMAT
    raise SourceError(f"{text.path} looks like none of the formats {', '.join(FORMATS)}; if it is one of them, say so with --format")


def _guarded(file: Path, frames: Iterator[Frame], problems: Problems) -> Iterator[Frame]:
    """A source that fails after its first frame has been read in part."""
    some = False
    try:
        for frame in frames:
            some = True
            yield frame
    except SourceError as error:
        if not some:
            raise
        problems.add(file, None, _without(file, error))


def _in_order(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The same frames by time, as far as a bounded look ahead can tell."""
    waiting: list[tuple[float, int, Frame]] = []
    for n, frame in enumerate(frames):
        heapq.heappush(waiting, (frame.at, n, frame))
        if len(waiting) > _DISORDER:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def _without(file: Path, error: SourceError) -> str:
    """The message without the file's name, which a problem says by itself."""
    return str(error).removeprefix(str(file)).lstrip(": ")
