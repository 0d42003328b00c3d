"""What the running service takes: resident memory and share of a core, all its processes together.

    python benchmarks/memory.py [--seconds 60]

`gpuwarden serve` on eight simulated GPUs at 1 Hz, in a process of its own; the simulator's own work is in the figures. Linux only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in children for p in family(int(child)))]


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long to watch it")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "detector", "serve", "--source", "simulator", "--speed", "1", "--port", "0", "--data", folder]
        service = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(15)  # start-up is not what it costs to run
            before = sum(cpu_seconds(pid) for pid in family(service.pid))
            time.sleep(seconds)
            processes = family(service.pid)
            share = (sum(cpu_seconds(pid) for pid in processes) - before) / seconds
            print("| processes | resident | share of a core |\n| ---: | ---: | ---: |")
            print(f"| {len(processes)} | {sum(map(resident_mib, processes)):.0f} MiB | {share:.2%} |")
        finally:
            service.terminate()
            service.wait(30)


if __name__ == "__main__":
    main()
