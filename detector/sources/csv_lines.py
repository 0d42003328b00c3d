"""What the lines of a CSV file are: fields, and perhaps a header."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from typing import Final

from detector.sources.columns import column, is_value
from detector.sources.timestamps import Timestamps

DELIMITERS: Final = (",", ";", "\t")
_LONGEST_HEADER: Final = 100_000


def split(line: str, delimiter: str) -> list[str]:
    """The fields of a line; quotation marks hold a field together."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a field beyond csv's limit
        return [line]


def header_of(line: str) -> tuple[tuple[str, ...], str] | None:
    """The names and the delimiter of a header that names a reading; None where the line is something else."""
    if line.lstrip()[:1] in ("", "#", "{", "<") or len(line) > _LONGEST_HEADER:
        return None
    for delimiter in DELIMITERS:
        if delimiter in line:
            names = [name.strip().strip('"') for name in split(line, delimiter)]
            if any(map(is_value, names[1:])):
                continue
            if Timestamps("UTC").style(names[0]) is not None:  # `date` before each line, the header's too
                names[0] = "timestamp"
            if _names_readings(names) and not is_value(names[0]):
                return tuple(names), delimiter
    only = column(line)
    return ((line,), ",") if only.role == "metric" and only.exact else None


def _names_readings(names: Sequence[str]) -> bool:
    """One name that only nvidia-smi uses will do; words that anybody uses must be most of the line, or it is a sentence."""
    told = [column(name) for name in names]
    readings = [one for one in told if one.role in ("metric", "bit")]
    return any(one.exact for one in readings) or (len(readings) > 0 and sum(one.role != "other" for one in told) >= 0.5 * len(told))


def delimiter_of(lines: Sequence[str], width: int | None = None) -> tuple[str, int] | None:
    """The delimiter that nearly all lines share, and how many fields it makes (*width*, where it is given); None: there is none."""
    for delimiter in DELIMITERS:
        counts = Counter(len(split(line, delimiter)) for line in lines)
        fields, often = counts.most_common(1)[0]
        if (width or fields) == fields and (fields > 1 or width == 1) and often >= 0.9 * len(lines):
            return delimiter, fields
    return None


def is_names(line: str) -> bool:
    """Whether a line holds words only, as a header does."""
    cells = [cell.strip().strip('"') for delimiter in DELIMITERS if delimiter in line for cell in line.split(delimiter)] or [line.strip()]
    style = Timestamps("UTC").style
    return not any(is_value(cell) or style(cell) for cell in cells)
