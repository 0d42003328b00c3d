"""What can go wrong, one row a fault: the rule that should find it, a sentence, when, where, and how it bends things."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detector.frame import Event, EventKind
from detector.sources.simulator.boards import MIB, Board
from detector.sources.simulator.fleet import Team
from detector.sources.simulator.physics import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, ROOM_CELSIUS
from detector.sources.simulator.tick import Floats, Tick

_MINUTE: Final = 60.0


@dataclass(slots=True)
class Scene:
    """A fault at work, in one step."""

    tick: Tick
    team: int
    board: Board
    rows: NDArray[np.intp]
    """The devices of the whole team."""
    row: int
    """The one that the fault befalls, where it does not befall all."""
    uuid: str
    """That of `row`."""
    begins: bool
    """Whether this is its first step."""
    elapsed: float
    """Seconds since the fault began."""
    lasts: float
    state: Mapping[str, Floats]
    """Metric -> (devices,), what the boards know of themselves. Counters may be raised here."""
    kept: dict[str, Floats]
    """What the fault wants to remember until its end."""

    def count(self, per_second: float) -> float:
        """How many of an even stream of happenings fall into this step; the first one is at once."""
        before = -1 if self.begins else math.floor((self.elapsed - self.tick.dt) * per_second)
        return float(math.floor(self.elapsed * per_second) - before)

    def raise_counters(self, by: float, *names: str) -> None:
        for name in names:
            self.state[name][self.row] += by

    def tell(self, kind: EventKind, code: int | None, message: str) -> None:
        self.tick.events.append((self.row, Event(kind, self.uuid, self.tick.at, code, message, "nvml")))


def _nothing(scene: Scene) -> None:
    """The fault shows itself by what its row says alone."""


def _work(scene: Scene) -> None:
    """Full load without a pause, so that nothing but the fault is to be seen."""
    tick, rows = scene.tick, scene.rows
    tick.busy[rows] = 0.96 + 0.04 * tick.busy[rows]
    tick.intensity[rows] = 0.8 + 0.05 * tick.intensity[rows]
    tick.bandwidth[rows] = 0.4 + 0.1 * tick.bandwidth[rows]
    tick.pcie[rows] = np.maximum(tick.pcie[rows], 0.1)
    tick.progress[scene.team] = 1.0


def _rest(scene: Scene) -> None:
    tick = scene.tick
    for demand in (tick.busy, tick.intensity, tick.bandwidth, tick.pcie, tick.nvlink):
        demand[scene.rows] = 0.0
    tick.progress[scene.team] = 0.0


def _spin(scene: Scene) -> None:
    """Every rank waits in a collective: a kernel runs all the time and moves nothing."""
    _rest(scene)
    scene.tick.busy[scene.rows] = 1.0
    scene.tick.intensity[scene.rows] = 0.03


def _leak(scene: Scene) -> None:
    """In blocks of 20 MiB, as an allocator asks for them, until four fifths of what was free are gone."""
    _work(scene)
    free = scene.kept.setdefault("free", scene.state["memory_free_bytes"][[scene.row]])
    blocks = math.floor(0.8 * free[0] / (20 * MIB) * scene.elapsed / scene.lasts)
    scene.tick.memory[scene.row] += 20 * MIB * blocks


def _block_air(scene: Scene) -> None:
    """So little air that the card would pass its own slowdown temperature by far, were it not to slow down."""
    _work(scene)
    board = scene.board
    scene.tick.heating[scene.row] = (board.slowdown + 25.0 - ROOM_CELSIUS) / (board.busy_celsius - ROOM_CELSIUS)


def _flip_bits(scene: Scene) -> None:
    errors = scene.count(1 / 100)
    scene.raise_counters(errors, "ecc_uncorrected_volatile_total", "ecc_uncorrected_aggregate_total")
    if errors:
        scene.tell("double_bit_ecc", None, "double bit ECC error")
        scene.tell("xid", 48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer.")


def _correct_bits(scene: Scene) -> None:
    scene.raise_counters(scene.count(3.0), "ecc_corrected_volatile_total", "ecc_corrected_aggregate_total")


def _latch_busy(scene: Scene) -> None:
    """The driver's busy counter sticks: it says 100 % of a GPU that nobody uses."""
    scene.tick.busy[scene.row] = 1.0
    scene.tick.intensity[scene.row] = 0.02


def _page_fault(scene: Scene) -> None:
    if scene.begins:
        scene.tell("xid", 31, "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f3a_12c00000, FAULT_PDE ACCESS_TYPE_VIRT_READ")


def _leave_the_bus(scene: Scene) -> None:
    """What comes back after the reset has counted nothing yet."""
    if scene.begins:
        scene.tell("xid", 79, "GPU has fallen off the bus.")
    scene.tick.visible[scene.row] = False
    for name in ("energy_joules_total", "ecc_corrected_volatile_total", "ecc_uncorrected_volatile_total", "pcie_replay_total"):
        scene.state[name][scene.row] *= 0.0


def _throttle_hot(scene: Scene) -> None:
    """A sensor that the core temperature does not show, on the regulators, slows the GPU down."""
    _work(scene)
    scene.tick.reasons[scene.row] |= HW_THERMAL | HW_SLOWDOWN
    scene.tick.clock_limit[scene.row] = 0.55


def _brake(scene: Scene) -> None:
    _work(scene)
    scene.tick.reasons[scene.row] |= POWER_BRAKE | HW_SLOWDOWN
    scene.tick.clock_limit[scene.row] = 0.4


def _await_remap(scene: Scene) -> None:
    if scene.begins:
        scene.raise_counters(1.0, "remapped_rows_uncorrected_total")


def _show_pending(scene: Scene) -> None:
    scene.state["remapped_rows_pending"][scene.row] = 1.0


def _starve(scene: Scene) -> None:
    _work(scene)
    scene.tick.pcie[scene.row] = 0.25


def _show_narrow_link(scene: Scene) -> None:
    for name in ("pcie_link_width", "pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"):
        scene.state[name][scene.row] = np.floor(scene.state[name][scene.row] / 4.0)


def _fray(scene: Scene) -> None:
    scene.raise_counters(scene.count(5.0), "nvlink_errors_total")


def _show_link_down(scene: Scene) -> None:
    scene.state["nvlink_links_active"][scene.row] -= 1.0


def _leave_memory(scene: Scene) -> None:
    scene.tick.memory[scene.rows] = scene.kept.setdefault("held", scene.state["memory_used_bytes"][scene.rows])


def _lag(scene: Scene) -> None:
    """The others wait for it in each step: as busy as ever, at less power."""
    _work(scene)
    others = scene.rows[scene.rows != scene.row]
    scene.tick.intensity[others] *= 0.6
    scene.tick.clock_limit[scene.row] = 0.6
    scene.tick.progress[scene.team] = 0.6


def _show_frozen(scene: Scene) -> None:
    for name, column in scene.state.items():
        column[scene.row] = scene.kept.setdefault(name, column[[scene.row]])[0]


def _diverge(scene: Scene) -> None:
    scene.tick.diverged[scene.team] = True


def _stop_fan(scene: Scene) -> None:
    _work(scene)
    scene.tick.heating[scene.row] = 1.5


def _show_standing_fan(scene: Scene) -> None:
    scene.state["fan_speed_rpm"][scene.row] = 0.0


def _any_gpu(team: Team) -> bool:
    return not team.instance


def _whole_gpu(team: Team) -> bool:
    return _any_gpu(team) and not team.board.mig


def _has_job(team: Team) -> bool:
    return team.kind != "none" and _any_gpu(team)


def _trains(team: Team) -> bool:
    return team.kind == "training" and _any_gpu(team)


def _trains_together(team: Team) -> bool:
    return _trains(team) and len(team.rows) >= 3


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that can go wrong."""

    name: str
    sentence: str
    after: float
    """Seconds from the start of the simulation at the earliest."""
    lasts: float
    fits: Callable[[Team], bool]
    """Where it can happen."""
    bend: Callable[[Scene], None] = _nothing
    """What is different for the boards: demand, conditions, counters."""
    show: Callable[[Scene], None] = _nothing
    """What is different in the readings alone; here `state` holds this frame's readings."""
    prefers: Callable[[Team], bool] = _any_gpu
    """Where it is seen best."""
    evicts: bool = False
    """The job ends as it begins, and the next one starts after its end."""
    restarts: bool = False
    """The job ends with it."""
    whole_team: bool = False
    """Whether it befalls all devices of a team, not one."""


def _needs(trait: str) -> Callable[[Team], bool]:
    return lambda team: _any_gpu(team) and bool(getattr(team.board, trait))


_ROWS: Final = (
    Fault("memory_leak", "A process asks for more and more memory until hardly any is left.", 2 * _MINUTE, 45 * _MINUTE,
          _trains, _leak, restarts=True, prefers=lambda team: len(team.rows) == 1),
    Fault("idle_gpu", "A process holds memory and does nothing for 35 minutes.", 3 * _MINUTE, 35 * _MINUTE,
          _has_job, _rest, prefers=lambda team: team.kind == "notebook", whole_team=True),
    Fault("driver_fault", "A GPU says 100 % busy, and nobody uses it.", 2 * _MINUTE, 3 * _MINUTE,
          _whole_gpu, _latch_busy, evicts=True, prefers=lambda team: len(team.rows) == 1 and team.kind == "inference"),
    Fault("rising_double_bit_ecc", "Memory errors that ECC cannot correct, one after another.", 5 * _MINUTE, 5 * _MINUTE,
          _needs("ecc"), _flip_bits, prefers=lambda team: bool(team.board.mig)),
    Fault("stuck_training", "All ranks of a job wait in a collective that never ends.", 6 * _MINUTE, 22 * _MINUTE,
          _trains, _spin, restarts=True, prefers=_trains_together, whole_team=True),
    Fault("overheating", "Cold air does not reach a GPU.", 9 * _MINUTE, 6 * _MINUTE,
          _has_job, _block_air, prefers=lambda team: len(team.rows) == 1 and team.kind == "inference"),
    Fault("xid", "A kernel reads where it must not: Xid 31, the job dies.", 5 * _MINUTE, _MINUTE, _has_job, _page_fault, evicts=True),
    Fault("gpu_lost", "A GPU falls off the bus: Xid 79, no more readings, until somebody resets it.", 6 * _MINUTE, 6 * _MINUTE,
          _has_job, _leave_the_bus, evicts=True, prefers=lambda team: len(team.rows) == 1),
    Fault("thermal_throttling", "Hot regulators halve the clocks.", 5 * _MINUTE, 5 * _MINUTE, _has_job, _throttle_hot),
    Fault("power_brake", "The power supply asks the GPU to slow down.", 5 * _MINUTE, 4 * _MINUTE, _has_job, _brake),
    Fault("corrected_ecc_rate", "Three corrected memory errors a second.", 5 * _MINUTE, 12 * _MINUTE,
          _needs("ecc"), _correct_bits, prefers=lambda team: bool(team.board.mig)),
    Fault("row_remap_pending", "A memory row waits for a reset to be remapped.", 5 * _MINUTE, 6 * _MINUTE,
          _needs("remaps_rows"), _await_remap, _show_pending, prefers=lambda team: bool(team.board.mig)),
    Fault("pcie_degraded", "The PCIe link falls to a quarter of its lanes.", 5 * _MINUTE, 5 * _MINUTE,
          _has_job, _starve, _show_narrow_link),
    Fault("nvlink_degraded", "One NVLink goes down, with errors.", 5 * _MINUTE, 5 * _MINUTE, _needs("nvlinks"), _fray, _show_link_down),
    Fault("orphan_memory", "A process is gone, its memory is not.", 5 * _MINUTE, 10 * _MINUTE, _has_job, _leave_memory, evicts=True,
          prefers=lambda team: len(team.rows) == 1, whole_team=True),
    Fault("straggler", "One rank runs at little more than half its clock, and all the others wait for it.", 5 * _MINUTE, 16 * _MINUTE,
          _trains_together, _lag),
    Fault("telemetry_frozen", "The readings of a GPU repeat to the last digit.", 5 * _MINUTE, 16 * _MINUTE, _has_job, _work, _show_frozen),
    Fault("training_diverged", "The loss of a job is no number any more.", 5 * _MINUTE, 5 * _MINUTE,
          _trains, _diverge, restarts=True, whole_team=True),
    Fault("fan_failure", "The fan stands still at full load.", 5 * _MINUTE, 6 * _MINUTE, _needs("fan"), _stop_fan, _show_standing_fan),
)  # fmt: skip

BY_NAME: Final[Mapping[str, Fault]] = {fault.name: fault for fault in _ROWS}
FAULTS: Final[Mapping[str, str]] = {fault.name: fault.sentence for fault in _ROWS}
"""Every fault that the simulator knows, by the name of the rule that finds it, with a sentence."""
