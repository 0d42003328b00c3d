"""Recordings as nvidia-smi and others print them, made up for the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from detector.frame import Frame
from detector.sources.recording import Problems, ReadOptions, read_recording

EIGHT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC).timestamp()
MIB = 1024.0 * 1024.0
A, B = "GPU-0a0a0a0a-1111-2222-3333-444444444444", "GPU-0b0b0b0b-1111-2222-3333-444444444444"
BUS_A, BUS_B = "00000000:3B:00.0", "00000000:5E:00.0"


def read(path: Path, text: str | bytes, problems: Problems | None = None, **options: Any) -> list[Frame]:
    """The frames of a recording that is this text; naive times are UTC."""
    path = path / "recording"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_recording(path, options=ReadOptions(**{"timezone": "UTC", **options}), problems=problems))


def seconds(frames: Sequence[Frame]) -> list[float]:
    return [round(frame.at - EIGHT, 3) for frame in frames]


def ctime(second: float) -> str:
    """As nvidia-smi writes it."""
    return f"{datetime.fromtimestamp(EIGHT + second, UTC):%a %b %e %H:%M:%S %Y}"


# -- nvidia-smi -q ------------------------------------------------------------------------------------------------------------
Sections = Mapping[str, "str | Sections"]


def sections(told: Sections, depth: int = 4) -> str:
    """Sections and fields, indented."""
    lines = []
    for name, value in told.items():
        if isinstance(value, str):
            lines.append(f"{' ' * depth}{name}".ljust(42) + f": {value}\n")
        else:
            lines.append(f"{' ' * depth}{name}\n{sections(value, depth + 4)}")
    return "".join(lines)


def q_gpu(bus: str = BUS_A, uuid: str = A, processes: str = "    Processes                             : None\n", **more: Any) -> str:
    """The block of a GPU; *more* replaces sections, by their name with underscores."""
    told: dict[str, Any] = {
        "Product Name": "NVIDIA H100 80GB HBM3",
        "Persistence Mode": "Enabled",
        "GPU UUID": uuid,
        "Fan Speed": "N/A",
        "Performance State": "P0",
        "FB Memory Usage": {"Total": "81559 MiB", "Reserved": "551 MiB", "Used": "2 MiB", "Free": "81007 MiB"},
        "Utilization": {"Gpu": "12 %", "Memory": "3 %", "Encoder": "0 %", "Decoder": "0 %"},
        "Temperature": {"GPU Current Temp": "41 C"},
        "GPU Power Readings": {"Power Draw": "123.45 W", "Current Power Limit": "700.00 W"},
        "Clocks": {"SM": "1980 MHz", "Memory": "2619 MHz"},
    }
    told.update({name.replace("_", " "): value for name, value in more.items()})
    return f"GPU {bus}\n{sections(told)}{processes}\n"


def q_page(second: float | None, *gpus: str, attached: int | None = None) -> str:
    stamp = "" if second is None else f"Timestamp                                 : {ctime(second)}\n"
    return (
        f"\n==============NVSMI LOG==============\n\n{stamp}"
        "Driver Version                            : 550.54.15\nCUDA Version                              : 12.4\n\n"
        f"Attached GPUs                             : {len(gpus) if attached is None else attached}\n" + "".join(gpus)
    )


def q_process(pid: int, name: str = "python", memory: str = "100 MiB", instance: str = "N/A") -> str:
    return (
        f"        GPU instance ID                   : {instance}\n"
        f"        Compute instance ID               : {'0' if instance != 'N/A' else 'N/A'}\n"
        f"        Process ID                        : {pid}\n            Type                          : C\n"
        f"            Name                          : {name}\n            Used GPU Memory               : {memory}\n"
    )


# -- nvidia-smi -q -x ---------------------------------------------------------------------------------------------------------
def xml(told: Mapping[str, Any], depth: int = 2) -> str:
    """Elements; a list repeats one."""
    lines = []
    for name, value in told.items():
        for one in value if isinstance(value, list) else [value]:
            inner = one if isinstance(one, str) else f"\n{xml(one, depth + 1)}" + "\t" * depth
            lines.append("\t" * depth + f"<{name}>{inner}</{name}>\n")
    return "".join(lines)


def x_gpu(bus: str = BUS_A, uuid: str = A, **more: Any) -> str:
    told: dict[str, Any] = {
        "product_name": "NVIDIA A100-SXM4-80GB",
        "uuid": uuid,
        "performance_state": "P0",
        "fb_memory_usage": {"total": "81920 MiB", "used": "61000 MiB", "free": "20920 MiB"},
        "utilization": {"gpu_util": "97 %", "memory_util": "40 %"},
        "temperature": {"gpu_temp": "61 C"},
        "gpu_power_readings": {"power_draw": "250.12 W", "current_power_limit": "400.00 W"},
        "clocks": {"sm_clock": "1395 MHz", "mem_clock": "1593 MHz"},
        "processes": {"process_info": {"pid": "4242", "type": "C", "process_name": "python", "used_memory": "60500 MiB"}},
    }
    told.update(more)
    return f'\t<gpu id="{bus}">\n{xml(told)}\t</gpu>\n'


def x_page(second: float, *gpus: str, attached: int | None = None, head: str = "") -> str:
    return (
        '<?xml version="1.0" ?>\n' + (head or '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n') + "<nvidia_smi_log>\n"
        f"\t<timestamp>{ctime(second)}</timestamp>\n\t<driver_version>550.54.15</driver_version>\n"
        f"\t<attached_gpus>{len(gpus) if attached is None else attached}</attached_gpus>\n{''.join(gpus)}\n</nvidia_smi_log>\n"
    )


# -- the table ----------------------------------------------------------------------------------------------------------------
T_BORDER = "+-----------------------------------------+------------------------+----------------------+\n"
T_HEAD = f"""\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
{T_BORDER.replace("-", "=").replace("+=", "|=", 1).rstrip()[:-1]}|
"""
T_PROCESSES = """
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
"""
T_END = "+-----------------------------------------------------------------------------------------+\n"
T_NONE = "|  No running processes found                                                             |\n"


def t_gpu(
    index: int = 0, bus: str = BUS_A, *, name: str = "NVIDIA A40", gauges: str = "| 30%   27C    P0             24W /  300W |",
    memory: str = "0MiB", load: str = "0%", ecc: str = "0", mig: str = "N/A",
) -> str:  # fmt: skip
    return (
        f"|   {index}  {name:<29}  On  |   {bus} Off | {ecc:>20} |\n"
        f"{gauges}{memory:>10} /  46068MiB | {load:>8}      Default |\n"
        f"|                                         |                        | {mig:>20} |\n{T_BORDER}"
    )


def t_page(second: float | None, *gpus: str, processes: str = T_NONE, instances: str = "") -> str:
    stamp = "" if second is None else f"{ctime(second)}       \n"
    return f"{stamp}{T_HEAD}{''.join(gpus)}{instances}{T_PROCESSES}{processes}{T_END}"


def t_process(gpu: int, pid: int, name: str = "python", memory: str = "1826MiB", instance: str = "N/A") -> str:
    return f"|    {gpu}   {instance:>3}  {'0' if instance != 'N/A' else 'N/A':>3}   {pid:>7}      C   {name:<38} {memory:>10} |\n"


# -- lists --------------------------------------------------------------------------------------------------------------------
DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk 
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz 
"""
PMON = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command 
# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name 
"""


def row(*cells: object) -> str:
    return "".join(f"{cell!s:>7}" for cell in cells) + " \n"


def gpustat(second: float, *rows: str, host: str = "node-a", driver: str = "  535.104.05") -> str:
    return f"{host:<32}  {ctime(second)}{driver}\n" + "".join(f"{line}\n" for line in rows)
