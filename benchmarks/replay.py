"""How fast a recording is read and judged, beside `pandas.read_csv` on the same file as the limit.

    python benchmarks/replay.py [--seconds 3600]

The recording is what `nvidia-smi --query-gpu=... --format=csv -l 1` writes on a host of eight busy GPUs: 14 columns, units in the cells.
Cells a second on one core, best of three; all in one run, so the ratios hold whatever the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from detector import read_recording
from detector.config import load
from detector.engine import Engine
from detector.offline import run
from detector.sources.recording import ReadOptions

HEADER = (
    "timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], temperature.gpu, "
    "power.draw [W], enforced.power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz], clocks_event_reasons.active"
)
START = 1_700_000_000


def write(path: Path, seconds: int) -> int:
    """A recording of so many seconds; returns its number of cells."""
    random = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER + "\n")
        for second in range(seconds):
            at = datetime.fromtimestamp(START + second, UTC).strftime("%Y/%m/%d %H:%M:%S")
            for gpu in range(8):
                file.write(
                    f"{at}.{100 + gpu}, {gpu}, GPU-7a3c1f00-0000-4000-8000-00000000000{gpu}, NVIDIA A100-SXM4-80GB, "
                    f"{random.integers(93, 101)} %, {random.integers(40, 60)} %, 61000 MiB, 81920 MiB, {random.integers(62, 68)}, "
                    f"{random.uniform(360, 395):.2f} W, 400.00 W, "
                    f"{random.integers(89, 94) * 15} MHz, 1410 MHz, 0x0000000000000004\n"
                )
    return seconds * 8 * (HEADER.count(",") + 1)


def best(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3600, help="length of the recording")
    seconds = parser.parse_args().seconds
    options = ReadOptions(timezone="UTC")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gpus.csv")
        cells = write(path, seconds)
        config = load(environ={})
        took = {
            "`pandas.read_csv` (no judgement, no units)": best(lambda: pd.read_csv(path, skipinitialspace=True)),
            "read into frames": best(lambda: sum(1 for _ in read_recording(path, options=options))),
            "read and judged by all rules (`gpuwarden replay`)": best(
                lambda: run(Engine(config.ruleset()), read_recording(path, options=options))
            ),
        }
    limit = next(iter(took.values()))
    print(f"{cells:,} cells, {seconds:,} s of 8 GPUs at 1 Hz\n")
    print("| | cells a second | of the limit | recorded seconds a second |")
    print("| --- | ---: | ---: | ---: |")
    for name, spent in took.items():
        print(f"| {name} | {cells / spent:,.0f} | {limit / spent:.2f} | {seconds / spent:,.0f} |")


if __name__ == "__main__":
    main()
