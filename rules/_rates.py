"""How fast counters rise."""

from __future__ import annotations

import numpy as np

from detector.metrics import METRICS
from detector.rule import Floats
from detector.window import Window


def per_second(window: Window, counter: str, lookback: float) -> Floats:
    """By how much *counter* rose a second over the newest *lookback* seconds, shape (rows,); NaN where it was not read.

    A rise stands for the time since the reading before it. So the look-back may hold the rise of one interval more than it is long, which
    is allowed for: the result is rather too low than too high.
    """
    interval = np.maximum(window.interval, METRICS[counter].cadence)
    return window.increase(counter, lookback) / (lookback + interval)
