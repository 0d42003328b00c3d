"""What an incident shows a person: the readings around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from detector.incident import Series
from detector.inventory import Host, Inventory
from detector.metrics import METRICS, Entity
from detector.window import Stat, Subject, Window

EVIDENCE_SECONDS: Final = 1800.0
MOST_DEVICES: Final = 8


def evidence(inventory: Inventory, host: Host, entity: Entity, rows: Iterable[int], metrics: Sequence[str]) -> tuple[Series, ...]:
    """Half an hour of the metrics for the first rows of an incident; of a process also what its device shows."""
    until = host.clock.now
    out = []
    for row in list(rows)[:MOST_DEVICES]:
        subject = inventory.subject(entity, row)
        for metric in metrics:
            found = _found(inventory, host, entity, row, subject, metric)
            if found is not None:
                series = kept(inventory, host, *found, metric, until - EVIDENCE_SECONDS, until)
                if series.values:
                    out.append(series)
    return tuple(out)


def _found(inventory: Inventory, host: Host, entity: Entity, row: int, subject: Subject, metric: str) -> tuple[Entity, int] | None:
    """Where the metric of a row is kept: with the row itself, or with its device."""
    if METRICS[metric].entity == entity:
        return entity, row
    if METRICS[metric].entity == "device" and subject.device is not None:
        of_device = host.devices.get(inventory.resolve(host, subject.device.uuid))
        return None if of_device is None else ("device", of_device)
    return None


def kept(inventory: Inventory, host: Host, entity: Entity, row: int, metric: str, since: float, until: float) -> Series:
    """What is kept of a metric between two moments (Unix seconds), a value a bucket: the mean of a gauge, the last of a counter or state.

    KeyError: nobody asked for the metric's history.
    """
    ring, subject, now = inventory.ring(entity), inventory.subject(entity, row), host.clock.now
    window = Window(ring, np.array([row], np.intp), [subject], heads=ring.head(host.name, now), now=np.array([now]),
                    interval=np.array([host.clock.interval]))  # fmt: skip
    longest = ring.tiers[-1].width * (ring.tiers[-1].slots - 1)
    lookback = min(max(now - since, 1.0), longest)
    width = ring.tiers[ring.tier_for(lookback)[0]].width
    stat: Stat = "mean" if METRICS[metric].kind == "gauge" else "last"
    times, values = window.values(metric, lookback, stat)
    at = np.floor(now / width) * width + times
    seen = ~np.isnan(values[:, 0]) & (at + width > since) & (at <= until)
    uuid = subject.device.uuid if subject.device else None
    return Series(metric, METRICS[metric].unit, tuple(at[seen].tolist()), tuple(values[seen, 0].tolist()), uuid)
