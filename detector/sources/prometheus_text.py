"""The text that exporters show to Prometheus, a sample a line: `name{label="value",...} value [milliseconds]`."""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ELLIPSIS: Final = re.compile(r"\s*(?:\.{2,}|\u2026)\s*(?:,|$)")
_NAME: Final = re.compile(r"[A-Za-z_:][\w:]*")
_ESCAPE: Final = re.compile(r"\\(.)")
_LATEST: Final = 4_102_444_800.0
_EARLIEST: Final = 631_152_000.0
"""1990 to 2100: what is not such a moment, in seconds or milliseconds, is no time."""


def split(line: str) -> tuple[str, str, str] | None:
    """Name and labels as they stand, value, and time (empty: it bears none); None where a line is no sample, or a torn one."""
    end = line.rfind("}") + 1
    if not end:
        words = line.split()
        return (words[0], words[1], words[2] if len(words) == 3 else "") if 2 <= len(words) <= 3 and "{" not in words[0] else None
    words = line[end:].split()
    if len(words) == 1:
        return line[:end], words[0], ""
    return (line[:end], words[0], words[1]) if len(words) == 2 else None


def moment(number: float) -> float | None:
    """Unix seconds, of which Prometheus' text has thousandths, OpenMetrics and JSON whole ones; None where it is no moment."""
    at = number if number < 1e11 else number / 1000.0
    return at if _EARLIEST <= at <= _LATEST else None


def series(key: str) -> tuple[str, dict[str, str], bool] | None:
    """Name, labels, and whether somebody has put dots for more labels; None where *key* is no name with labels."""
    name, brace, inner = key.partition("{")
    name = name.strip()
    if brace and not inner.endswith("}"):
        return None
    labels, elided, at, inner = {}, False, 0, inner[:-1].rstrip()
    while at < len(inner):
        if label := _LABEL.match(inner, at):
            labels[label[1]] = _ESCAPE.sub(_unescaped, label[2]) if "\\" in label[2] else label[2]
            at = label.end()
        elif dots := _ELLIPSIS.match(inner, at):
            elided, at = True, dots.end()
        else:
            return None
    name = name or labels.pop("__name__", "")  # as `promtool tsdb dump` writes it
    return (name, labels, elided) if _NAME.fullmatch(name) else None


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]
