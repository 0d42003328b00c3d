"""Durations as people write them: seconds, or text such as "90s", "15m", "1h30m" and "1d"."""

from __future__ import annotations

import re
import sys
from typing import Final

_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_TEXT: Final = re.compile("(-?)(?=.)" + "".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit}(?![a-z]))?" for unit in _UNITS))

DURATION: Final = 'a duration: seconds, or text such as "90s", "15m", "1h30m" or "1d"'
"""What `seconds` understands, in words."""


def seconds(duration: object) -> float:
    """The seconds that *duration* means; never negative, always finite.

    Units go from the largest to the smallest, each at most once: d, h, m, s, ms. A ValueError says what is wrong.
    """
    if isinstance(duration, str):
        match = _TEXT.fullmatch(duration)
        if match is None:
            raise ValueError(f"must be {DURATION}")
        minus, *counts = match.groups(default="0")
        value = sum(float(count) * unit for count, unit in zip(counts, _UNITS.values(), strict=True)) * (-1 if minus else 1)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        value = duration
    else:
        raise ValueError(f"must be {DURATION}")
    if value < 0:
        raise ValueError("must not be negative")
    if not value <= sys.float_info.max:  # NaN is not, either
        raise ValueError("must be finite")
    return float(value)
