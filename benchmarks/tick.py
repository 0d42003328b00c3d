"""What one look of all rules costs, by the number of GPUs, and what a longer look-back adds.

    python benchmarks/tick.py

Hosts of eight busy GPUs send a frame a second with 14 metrics and, every five seconds, a process each. A tick is one call of
`Engine.observe` with the frames of all hosts; every fifth one has the rules look. Microseconds of one core per GPU, median of the ticks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from detector.config import load
from detector.engine import Engine
from detector.frame import Device, Frame, Process
from detector.inventory import Inventory
from detector.window import Window

METRICS = (
    "utilization_percent", "memory_utilization_percent", "memory_used_bytes", "memory_total_bytes", "temperature_celsius",
    "temperature_slowdown_celsius", "power_watts", "power_limit_watts", "sm_clock_mhz", "sm_clock_max_mhz", "clock_event_reasons",
    "ecc_uncorrected_volatile_total", "ecc_uncorrected_aggregate_total", "performance_state",
)  # fmt: skip
BUSY = (96.0, 50.0, 6.1e10, 8.5e10, 66.0, 89.0, 370.0, 400.0, 1350.0, 1410.0, 4.0, 0.0, 0.0, 0.0)
START = 1_700_000_000.0


def fleet(hosts: int, seconds: int) -> Iterator[list[Frame]]:
    """The frames of all hosts, a second at a time."""
    random = np.random.default_rng(0)
    devices = [tuple(Device(f"GPU-{host}-{n}", n, "NVIDIA A100-SXM4-80GB") for n in range(8)) for host in range(hosts)]
    processes = [
        {device.uuid: (Process(1000 + 8 * host + n, 6e10, job=f"job-{host}"),) for n, device in enumerate(devices[host])}
        for host in range(hosts)
    ]
    for second in range(seconds):
        values = np.tile(np.array(BUSY), (8 * hosts, 1))
        values[:, 0] += random.integers(-3, 4, 8 * hosts)
        values[:, 4] += random.integers(-2, 3, 8 * hosts)
        values[:, 6] += random.normal(0.0, 5.0, 8 * hosts)
        yield [
            Frame(f"node-{host}", START + second, devices[host], METRICS, values[8 * host : 8 * host + 8],
                  processes=processes[host] if second % 5 == 0 else {})
            for host in range(hosts)
        ]  # fmt: skip


def ticks(hosts: int, seconds: int = 45) -> tuple[float, float]:
    """(microseconds per GPU of a tick that only takes frames, of one in which the rules look)."""
    engine = Engine(load(environ={}).ruleset())
    taking, looking = [], []
    for second, frames in enumerate(fleet(hosts, seconds)):
        began = time.perf_counter()
        engine.observe(*frames)
        spent = (time.perf_counter() - began) * 1e6 / (8 * hosts)
        (looking if second % 5 == 0 else taking).append(spent)
    return float(np.median(taking[4:])), float(np.median(looking[2:]))


def look_back(hosts: int) -> tuple[float, float]:
    """Microseconds per GPU of one maximum over ten minutes, and over an hour."""
    inventory = Inventory(["utilization_percent"])
    for frames in fleet(hosts, 3):
        inventory.take_all(frames)
    known = list(inventory.hosts.values())
    rows = inventory.rows("device", known)
    subjects = [inventory.subject("device", int(row)) for row in rows]
    now = np.full(len(rows), START + 2)
    heads = inventory.devices.head(known[0].name, START + 2)

    def cost(seconds: float) -> float:
        spent = []
        for _ in range(30):
            window = Window(inventory.devices, rows, subjects, heads=heads, now=now, interval=np.ones(len(rows)))
            began = time.perf_counter()
            maximum: NDArray[np.float64] = window.max("utilization_percent", seconds)
            spent.append(time.perf_counter() - began)
            assert len(maximum) == len(rows)
        return float(np.median(spent)) * 1e6 / len(rows)

    return cost(600.0), cost(3600.0)


def main() -> None:
    print("| GPUs | frames taken, us a GPU | rules look, us a GPU | maximum of 10 min | of 1 h | ratio |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for hosts in (1, 125, 1250):
        taking, looking = ticks(hosts)
        short, long = look_back(hosts)
        print(f"| {8 * hosts:,} | {taking:.1f} | {looking:.1f} | {short:.3f} | {long:.3f} | {long / short:.2f} |")


if __name__ == "__main__":
    main()
