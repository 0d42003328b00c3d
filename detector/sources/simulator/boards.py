"""The boards that can be simulated, with figures in the manner of their public data sheets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

MIB: Final = 1024.0 * 1024.0
_NAN: Final = float("nan")


@dataclass(frozen=True, slots=True)
class Board:
    """One product as NVML shows it. NaN: this product does not say."""

    name: str
    memory_mib: float
    reserved_mib: float
    power_limit: float
    idle_watts: float
    context_watts: float
    """Power with a CUDA context but no work."""
    sm_clock: float
    sm_clock_idle: float
    memory_clock: float
    memory_clock_idle: float
    rest_state: int
    """P-state without a context."""
    rests_with_context: bool
    """Whether clocks fall although a context is held, as GeForce boards do."""
    busy_celsius: float
    """Core temperature at the power limit in a room of 25 degrees."""
    settle_seconds: float
    """Time constant of heat sink and air flow."""
    slowdown: float
    shutdown: float
    max_operating: float
    pcie: tuple[int, int]
    """Generation and width of the link."""
    pcie_rests: bool
    """Whether the link falls to generation 1 at rest."""
    memory_max: float = _NAN
    """Highest memory temperature; NaN: no sensor."""
    ecc: bool = True
    remaps_rows: bool = True
    fan: bool = False
    nvlinks: int = 0
    reports_margin: bool = False
    profiles: bool = False
    """Whether activity counters (SM, tensor, DRAM) can be read."""
    partitionable: bool = False
    """Whether the board knows MIG at all."""
    mig: tuple[tuple[str, float], ...] = ()
    """MIG instances: profile, and its share of the GPU. Empty: not partitioned."""

    def instance(self, profile: str, share: float) -> Board:
        """The part of this board that is one MIG instance."""
        return replace(
            self,
            name=f"{self.name} MIG {profile}",
            memory_mib=float(round(self.memory_mib * share)),
            reserved_mib=0.0,
            nvlinks=0,
            profiles=True,
            mig=(),
        )


H100: Final = Board(
    "NVIDIA H100 80GB HBM3", memory_mib=81559, reserved_mib=479, power_limit=700, idle_watts=70, context_watts=115,
    sm_clock=1980, sm_clock_idle=345, memory_clock=2619, memory_clock_idle=2619, rest_state=0, rests_with_context=False,
    busy_celsius=66, settle_seconds=55, slowdown=89, shutdown=95, max_operating=87, memory_max=95, pcie=(5, 16), pcie_rests=False,
    nvlinks=18, reports_margin=True, profiles=True, partitionable=True,
)  # fmt: skip
A100: Final = Board(
    "NVIDIA A100-SXM4-80GB", memory_mib=81920, reserved_mib=571, power_limit=400, idle_watts=56, context_watts=68,
    sm_clock=1410, sm_clock_idle=210, memory_clock=1593, memory_clock_idle=1593, rest_state=0, rests_with_context=False,
    busy_celsius=62, settle_seconds=50, slowdown=89, shutdown=92, max_operating=85, memory_max=95, pcie=(4, 16), pcie_rests=False,
    nvlinks=12, partitionable=True,
)  # fmt: skip
A100_MIG: Final = replace(A100, mig=(("3g.40gb", 0.5), ("2g.20gb", 0.25), ("1g.10gb", 0.125)))
L40S: Final = Board(
    "NVIDIA L40S", memory_mib=46068, reserved_mib=609, power_limit=350, idle_watts=34, context_watts=82,
    sm_clock=2520, sm_clock_idle=210, memory_clock=9001, memory_clock_idle=405, rest_state=8, rests_with_context=False,
    busy_celsius=70, settle_seconds=70, slowdown=90, shutdown=95, max_operating=88, pcie=(4, 16), pcie_rests=True, reports_margin=True,
)  # fmt: skip
T4: Final = Board(
    "Tesla T4", memory_mib=15360, reserved_mib=426, power_limit=70, idle_watts=10, context_watts=27,
    sm_clock=1590, sm_clock_idle=300, memory_clock=5001, memory_clock_idle=405, rest_state=8, rests_with_context=False,
    busy_celsius=73, settle_seconds=80, slowdown=93, shutdown=96, max_operating=85, pcie=(3, 16), pcie_rests=True, remaps_rows=False,
)  # fmt: skip
RTX_4090: Final = Board(
    "NVIDIA GeForce RTX 4090", memory_mib=24564, reserved_mib=362, power_limit=450, idle_watts=18, context_watts=27,
    sm_clock=2745, sm_clock_idle=210, memory_clock=10501, memory_clock_idle=405, rest_state=8, rests_with_context=True,
    busy_celsius=68, settle_seconds=65, slowdown=96, shutdown=99, max_operating=90, pcie=(4, 16), pcie_rests=True,
    ecc=False, remaps_rows=False, fan=True,
)  # fmt: skip
