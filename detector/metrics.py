"""The metric catalogue: one row a metric.

Every reader, the sampler, the exporter and the reference page derive from this table, so a metric is added by adding its row.
Values are in the unit that the name ends in: bytes, watts, joules, degrees Celsius, MHz, percent 0-100, seconds; `_total` is a
counter. A reading outside of `low`..`high` cannot be one (a driver's blank such as 9223372036854775794, a utilisation of
4294967295 %): sources turn it into "missing".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["gauge", "counter", "state"]
Entity = Literal["device", "process", "job", "host"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured, in which unit, and what every source calls it."""

    name: str
    kind: Kind
    unit: str
    description: str
    entity: Entity = "device"
    nvml: str = ""
    """The NVML call, or `field N` for nvmlDeviceGetFieldValues."""
    smi: tuple[str, ...] = ()
    """nvidia-smi query names, without the unit in brackets."""
    dcgm: tuple[tuple[str, float], ...] = ()
    """DCGM fields, each with the factor that turns its value into our unit."""
    cadence: float = 1.0
    """Seconds between two live readings."""
    held: bool = False
    """A limit or total: it holds until another value is reported, however long ago it was read."""
    low: float = 0.0
    high: float = float("inf")
    bit: int = 0
    """For a flag that the engine derives: the bit of `clock_event_reasons` that it is."""

    def plausible(self, value: float) -> bool:
        """Whether *value* can be a reading at all. Infinity and NaN are (a diverged loss) where `high` is infinite."""
        return not (value < self.low or value > self.high)


_MIB = 1024.0 * 1024.0
_PERCENT: Final = {"unit": "percent", "high": 100.0}
_BYTES: Final = {"unit": "bytes", "high": 2.0**50}
_CELSIUS: Final = {"unit": "celsius", "low": -40.0, "high": 160.0}
_WATTS: Final = {"unit": "watts", "high": 20_000.0}
_MHZ: Final = {"unit": "mhz", "high": 20_000.0}
_COUNT: Final = {"unit": "count", "high": 2.0**53}
_SECONDS: Final = {"unit": "seconds", "high": 1e11}
_FLAG: Final = {"unit": "flag", "high": 1.0}
_CODE: Final = {"unit": "code", "high": 2.0**53}


def _row(name: str, kind: Kind, traits: dict[str, object], description: str, **sources: object) -> Metric:
    return Metric(name=name, kind=kind, description=description, **{**traits, **sources})  # type: ignore[arg-type]


_ROWS: Final = (
    # -- activity -----------------------------------------------------------------------------------------------------------
    _row("utilization_percent", "gauge", _PERCENT, "Share of the last sample period with at least one kernel running.",
         nvml="nvmlDeviceGetUtilizationRates.gpu", smi=("utilization.gpu",), dcgm=(("DCGM_FI_DEV_GPU_UTIL", 1.0),)),
    _row("graphics_engine_active_percent", "gauge", _PERCENT, "Share of time the graphics or compute engine was active.",
         nvml="GPM 1", dcgm=(("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100.0),)),
    _row("memory_utilization_percent", "gauge", _PERCENT, "Share of time device memory was read or written (bandwidth, not occupancy).",
         nvml="nvmlDeviceGetUtilizationRates.memory", smi=("utilization.memory",), dcgm=(("DCGM_FI_DEV_MEM_COPY_UTIL", 1.0),)),
    _row("encoder_utilization_percent", "gauge", _PERCENT, "Share of time the video encoder was busy.",
         nvml="nvmlDeviceGetEncoderUtilization", smi=("utilization.encoder",), dcgm=(("DCGM_FI_DEV_ENC_UTIL", 1.0),), cadence=5.0),
    _row("decoder_utilization_percent", "gauge", _PERCENT, "Share of time the video decoder was busy.",
         nvml="nvmlDeviceGetDecoderUtilization", smi=("utilization.decoder",), dcgm=(("DCGM_FI_DEV_DEC_UTIL", 1.0),), cadence=5.0),
    _row("sm_active_percent", "gauge", _PERCENT, "Share of cycles with at least one warp resident, averaged over the SMs.",
         nvml="GPM 2", dcgm=(("DCGM_FI_PROF_SM_ACTIVE", 100.0),)),
    _row("tensor_active_percent", "gauge", _PERCENT, "Share of cycles the tensor pipes were active.",
         nvml="GPM 5", dcgm=(("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100.0),)),
    _row("dram_active_percent", "gauge", _PERCENT, "Share of cycles device memory was sending or receiving.",
         nvml="GPM 10", dcgm=(("DCGM_FI_PROF_DRAM_ACTIVE", 100.0),)),
    # -- memory -------------------------------------------------------------------------------------------------------------
    _row("memory_total_bytes", "gauge", _BYTES, "Installed device memory.", nvml="nvmlDeviceGetMemoryInfo_v2.total",
         smi=("memory.total",), dcgm=(("DCGM_FI_DEV_FB_TOTAL", _MIB),), cadence=60.0, held=True),
    _row("memory_used_bytes", "gauge", _BYTES, "Allocated device memory, without what the driver reserves.",
         nvml="nvmlDeviceGetMemoryInfo_v2.used", smi=("memory.used",), dcgm=(("DCGM_FI_DEV_FB_USED", _MIB),)),
    _row("memory_free_bytes", "gauge", _BYTES, "Free device memory.", nvml="nvmlDeviceGetMemoryInfo_v2.free",
         smi=("memory.free",), dcgm=(("DCGM_FI_DEV_FB_FREE", _MIB),)),
    _row("memory_reserved_bytes", "gauge", _BYTES, "Device memory that driver and firmware keep for themselves.",
         nvml="nvmlDeviceGetMemoryInfo_v2.reserved", smi=("memory.reserved",), dcgm=(("DCGM_FI_DEV_FB_RESERVED", _MIB),)),
    _row("bar1_used_bytes", "gauge", _BYTES, "BAR1 aperture in use (mapped for peers and RDMA).",
         nvml="nvmlDeviceGetBAR1MemoryInfo.bar1Used", dcgm=(("DCGM_FI_DEV_BAR1_USED", _MIB),), cadence=10.0),
    _row("bar1_total_bytes", "gauge", _BYTES, "Size of the BAR1 aperture.", nvml="nvmlDeviceGetBAR1MemoryInfo.bar1Total",
         dcgm=(("DCGM_FI_DEV_BAR1_TOTAL", _MIB),), cadence=60.0, held=True),
    # -- temperature --------------------------------------------------------------------------------------------------------
    _row("temperature_celsius", "gauge", _CELSIUS, "Core temperature.", nvml="nvmlDeviceGetTemperatureV",
         smi=("temperature.gpu",), dcgm=(("DCGM_FI_DEV_GPU_TEMP", 1.0),)),
    # 0 is what DCGM reports for cards without a memory sensor (NVIDIA/DCGM#311): no reading.
    _row("memory_temperature_celsius", "gauge", {**_CELSIUS, "low": 1.0}, "Memory (HBM) temperature.", nvml="field 82",
         smi=("temperature.memory",), dcgm=(("DCGM_FI_DEV_MEMORY_TEMP", 1.0),)),
    _row("temperature_margin_celsius", "gauge", _CELSIUS, "T.Limit: degrees left to the nearest slowdown; 0 or below while it slows down.",
         nvml="nvmlDeviceGetMarginTemperature", smi=("temperature.gpu.tlimit",), dcgm=(("DCGM_FI_DEV_GPU_TEMP_LIMIT", 1.0),)),
    _row("temperature_margin_slowdown_celsius", "gauge", _CELSIUS, "The margin at which the GPU slows down (H100: -2).",
         nvml="field 194", dcgm=(("DCGM_FI_DEV_SLOWDOWN_TEMP_TLIMIT", 1.0),), cadence=60.0, held=True),
    _row("temperature_slowdown_celsius", "gauge", _CELSIUS, "Core temperature at which hardware slows down.",
         nvml="nvmlDeviceGetTemperatureThreshold(SLOWDOWN)", dcgm=(("DCGM_FI_DEV_SLOWDOWN_TEMP", 1.0),), cadence=60.0, held=True),
    _row("temperature_shutdown_celsius", "gauge", _CELSIUS, "Core temperature at which hardware shuts down.",
         nvml="nvmlDeviceGetTemperatureThreshold(SHUTDOWN)", dcgm=(("DCGM_FI_DEV_SHUTDOWN_TEMP", 1.0),), cadence=60.0, held=True),
    _row("temperature_max_operating_celsius", "gauge", _CELSIUS, "Highest core temperature of normal operation.",
         nvml="nvmlDeviceGetTemperatureThreshold(GPU_MAX)", dcgm=(("DCGM_FI_DEV_GPU_MAX_OP_TEMP", 1.0),), cadence=60.0, held=True),
    _row("memory_temperature_max_celsius", "gauge", _CELSIUS, "Highest memory temperature of normal operation.",
         nvml="nvmlDeviceGetTemperatureThreshold(MEM_MAX)", dcgm=(("DCGM_FI_DEV_MEM_MAX_OP_TEMP", 1.0),), cadence=60.0, held=True),
    # The intended speed as a share of the speed at maximum noise: it may pass 100, and a blocked fan still reads normal (nvml.h).
    _row("fan_speed_percent", "gauge", {"unit": "percent", "high": 200.0}, "Intended fan speed.", nvml="nvmlDeviceGetFanSpeed_v2",
         smi=("fan.speed",), dcgm=(("DCGM_FI_DEV_FAN_SPEED", 1.0),), cadence=10.0),
    _row("fan_speed_rpm", "gauge", {"unit": "rpm", "high": 100_000.0}, "Measured fan speed.", nvml="nvmlDeviceGetFanSpeedRPM", cadence=10.0),
    # -- power --------------------------------------------------------------------------------------------------------------
    _row("power_watts", "gauge", _WATTS, "Board power, averaged over a second on most boards.", nvml="nvmlDeviceGetPowerUsage",
         smi=("power.draw", "power.draw.average", "power.draw.instant"), dcgm=(("DCGM_FI_DEV_POWER_USAGE", 1.0), ("DCGM_FI_DEV_POWER_USAGE_INSTANT", 1.0))),
    _row("power_limit_watts", "gauge", _WATTS, "Power limit in force.", nvml="nvmlDeviceGetEnforcedPowerLimit",
         smi=("enforced.power.limit", "power.limit"), dcgm=(("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 1.0), ("DCGM_FI_DEV_POWER_MGMT_LIMIT", 1.0)), cadence=10.0, held=True),
    _row("power_default_limit_watts", "gauge", _WATTS, "Power limit the board ships with.", nvml="field 189",
         smi=("power.default_limit",), dcgm=(("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", 1.0),), cadence=60.0, held=True),
    _row("energy_joules_total", "counter", {"unit": "joules", "high": 2.0**53}, "Energy since the driver was loaded.",
         nvml="nvmlDeviceGetTotalEnergyConsumption", dcgm=(("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0.001),)),
    # -- clocks -------------------------------------------------------------------------------------------------------------
    _row("sm_clock_mhz", "gauge", _MHZ, "SM clock.", nvml="nvmlDeviceGetClockInfo(SM)",
         smi=("clocks.current.sm", "clocks.sm"), dcgm=(("DCGM_FI_DEV_SM_CLOCK", 1.0),)),
    _row("sm_clock_max_mhz", "gauge", _MHZ, "Highest SM clock.", nvml="nvmlDeviceGetMaxClockInfo(SM)",
         smi=("clocks.max.sm",), dcgm=(("DCGM_FI_DEV_MAX_SM_CLOCK", 1.0),), cadence=60.0, held=True),
    _row("memory_clock_mhz", "gauge", _MHZ, "Memory clock.", nvml="nvmlDeviceGetClockInfo(MEM)",
         smi=("clocks.current.memory", "clocks.mem", "clocks.memory"), dcgm=(("DCGM_FI_DEV_MEM_CLOCK", 1.0),)),
    _row("memory_clock_max_mhz", "gauge", _MHZ, "Highest memory clock.", nvml="nvmlDeviceGetMaxClockInfo(MEM)",
         smi=("clocks.max.memory", "clocks.max.mem"), dcgm=(("DCGM_FI_DEV_MAX_MEM_CLOCK", 1.0),), cadence=60.0, held=True),
    _row("sm_clock_application_mhz", "gauge", _MHZ, "SM clock set as application clock.",
         smi=("clocks.applications.graphics", "clocks.applications.gr"), dcgm=(("DCGM_FI_DEV_APP_SM_CLOCK", 1.0),), cadence=60.0),
    _row("performance_state", "state", {"unit": "code", "high": 15.0}, "P-state: 0 is the fastest, 15 the slowest.",
         nvml="nvmlDeviceGetPerformanceState", smi=("pstate",), dcgm=(("DCGM_FI_DEV_PSTATE", 1.0),)),
    _row("clock_event_reasons", "state", _CODE, "Why clocks are below the maximum: NVML bit mask.", nvml="nvmlDeviceGetCurrentClocksEventReasons",
         smi=("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
         dcgm=(("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1.0), ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1.0))),
    # -- time throttled -----------------------------------------------------------------------------------------------------
    _row("sw_power_cap_seconds_total", "counter", _SECONDS, "Time held back by the power limit.", nvml="field 74",
         smi=("clocks_event_reasons_counters.sw_power_cap",), dcgm=(("DCGM_FI_DEV_POWER_VIOLATION", 1e-9),)),
    _row("sw_thermal_seconds_total", "counter", _SECONDS, "Time slowed down by software for heat.", nvml="field 269",
         smi=("clocks_event_reasons_counters.sw_thermal_slowdown",), dcgm=(("DCGM_FI_DEV_THERMAL_VIOLATION", 1e-9),)),
    _row("hw_thermal_seconds_total", "counter", _SECONDS, "Time slowed down by hardware for heat.", nvml="field 270",
         smi=("clocks_event_reasons_counters.hw_thermal_slowdown",)),
    _row("hw_power_brake_seconds_total", "counter", _SECONDS, "Time slowed down by the external power brake.", nvml="field 271",
         smi=("clocks_event_reasons_counters.hw_power_brake_slowdown",)),
    _row("sync_boost_seconds_total", "counter", _SECONDS, "Time held back by a sync boost group.", nvml="field 76",
         smi=("clocks_event_reasons_counters.sync_boost",), dcgm=(("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", 1e-9),)),
    # -- ECC ----------------------------------------------------------------------------------------------------------------
    _row("ecc_corrected_volatile_total", "counter", _COUNT, "Corrected memory errors since the driver was loaded.", nvml="field 3",
         smi=("ecc.errors.corrected.volatile.total",), dcgm=(("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1.0),), cadence=10.0),
    _row("ecc_uncorrected_volatile_total", "counter", _COUNT, "Uncorrected (double-bit) memory errors since the driver was loaded.", nvml="field 4",
         smi=("ecc.errors.uncorrected.volatile.total",), dcgm=(("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1.0),), cadence=10.0),
    _row("ecc_corrected_aggregate_total", "counter", _COUNT, "Corrected memory errors in the life of the board.", nvml="field 5",
         smi=("ecc.errors.corrected.aggregate.total",), dcgm=(("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 1.0),), cadence=10.0),
    _row("ecc_uncorrected_aggregate_total", "counter", _COUNT, "Uncorrected (double-bit) memory errors in the life of the board.", nvml="field 6",
         smi=("ecc.errors.uncorrected.aggregate.total",), dcgm=(("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 1.0),), cadence=10.0),
    _row("ecc_mode", "state", _FLAG, "1 while ECC is on.", nvml="nvmlDeviceGetEccMode.current", smi=("ecc.mode.current",),
         dcgm=(("DCGM_FI_DEV_ECC_CURRENT", 1.0),), cadence=60.0),
    _row("ecc_mode_pending", "state", _FLAG, "ECC mode after the next reset.", nvml="nvmlDeviceGetEccMode.pending", smi=("ecc.mode.pending",),
         dcgm=(("DCGM_FI_DEV_ECC_PENDING", 1.0),), cadence=60.0),
    # -- rows, pages --------------------------------------------------------------------------------------------------------
    _row("remapped_rows_corrected_total", "counter", _COUNT, "Memory rows remapped after corrected errors.", nvml="field 142",
         smi=("remapped_rows.correctable",), dcgm=(("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 1.0),), cadence=10.0),
    _row("remapped_rows_uncorrected_total", "counter", _COUNT, "Memory rows remapped after uncorrected errors.", nvml="field 143",
         smi=("remapped_rows.uncorrectable",), dcgm=(("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1.0),), cadence=10.0),
    _row("remapped_rows_pending", "state", _FLAG, "1 while a row waits for a reset to be remapped.", nvml="field 144",
         smi=("remapped_rows.pending",), dcgm=(("DCGM_FI_DEV_ROW_REMAP_PENDING", 1.0),), cadence=10.0),
    _row("remapped_rows_failure", "state", _FLAG, "1 once a row could not be remapped.", nvml="field 145",
         smi=("remapped_rows.failure",), dcgm=(("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1.0),), cadence=10.0),
    _row("retired_pages_single_bit_total", "counter", _COUNT, "Memory pages retired after corrected errors.", nvml="field 29",
         smi=("retired_pages.single_bit_ecc.count", "retired_pages.sbe"), dcgm=(("DCGM_FI_DEV_RETIRED_SBE", 1.0),), cadence=60.0),
    _row("retired_pages_double_bit_total", "counter", _COUNT, "Memory pages retired after double-bit errors.", nvml="field 30",
         smi=("retired_pages.double_bit.count", "retired_pages.dbe"), dcgm=(("DCGM_FI_DEV_RETIRED_DBE", 1.0),), cadence=60.0),
    _row("retired_pages_pending", "state", _FLAG, "1 while a page waits for a reset to be retired.", nvml="field 31",
         smi=("retired_pages.pending",), dcgm=(("DCGM_FI_DEV_RETIRED_PENDING", 1.0),), cadence=60.0),
    # -- PCIe ---------------------------------------------------------------------------------------------------------------
    _row("pcie_link_generation", "state", {"unit": "code", "low": 1.0, "high": 16.0}, "PCIe generation of the link now; it drops at rest by design.",
         nvml="nvmlDeviceGetCurrPcieLinkGeneration", smi=("pcie.link.gen.current", "pcie.link.gen.gpucurrent"),
         dcgm=(("DCGM_FI_DEV_PCIE_LINK_GEN", 1.0),), cadence=10.0),
    _row("pcie_link_generation_max", "state", {"unit": "code", "low": 1.0, "high": 16.0}, "PCIe generation that card and slot can do together.",
         nvml="nvmlDeviceGetMaxPcieLinkGeneration", smi=("pcie.link.gen.max",), dcgm=(("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", 1.0),), cadence=60.0, held=True),
    _row("pcie_link_width", "state", {"unit": "lanes", "low": 1.0, "high": 64.0}, "PCIe lanes in use.", nvml="nvmlDeviceGetCurrPcieLinkWidth",
         smi=("pcie.link.width.current",), dcgm=(("DCGM_FI_DEV_PCIE_LINK_WIDTH", 1.0),), cadence=10.0),
    _row("pcie_link_width_max", "state", {"unit": "lanes", "low": 1.0, "high": 64.0}, "PCIe lanes that card and slot can do together.",
         nvml="nvmlDeviceGetMaxPcieLinkWidth", smi=("pcie.link.width.max",), dcgm=(("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", 1.0),), cadence=60.0, held=True),
    _row("pcie_replay_total", "counter", _COUNT, "PCIe packets sent again.", nvml="field 94", dcgm=(("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1.0),), cadence=10.0),
    _row("pcie_tx_bytes_per_second", "gauge", {"unit": "bytes_per_second", "high": 2.0**42}, "PCIe traffic out of the GPU.", nvml="GPM 20",
         dcgm=(("DCGM_FI_PROF_PCIE_TX_BYTES", 1.0),)),
    _row("pcie_rx_bytes_per_second", "gauge", {"unit": "bytes_per_second", "high": 2.0**42}, "PCIe traffic into the GPU.", nvml="GPM 21",
         dcgm=(("DCGM_FI_PROF_PCIE_RX_BYTES", 1.0),)),
    # -- NVLink -------------------------------------------------------------------------------------------------------------
    _row("nvlink_links_active", "state", {"unit": "links", "high": 128.0}, "NVLink links that are up.", nvml="nvmlDeviceGetNvLinkState", cadence=10.0),
    _row("nvlink_links_total", "state", {"unit": "links", "high": 128.0}, "NVLink links the GPU has.", nvml="field 91", cadence=60.0, held=True),
    _row("nvlink_errors_total", "counter", _COUNT, "NVLink replays, recoveries and CRC errors, all links.", nvml="fields 161-163, 206-221",
         dcgm=(("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 1.0),), cadence=10.0),
    _row("nvlink_tx_bytes_total", "counter", {"unit": "bytes", "high": 2.0**62}, "NVLink traffic out of the GPU.", nvml="fields 138, 140", cadence=10.0),
    _row("nvlink_rx_bytes_total", "counter", {"unit": "bytes", "high": 2.0**62}, "NVLink traffic into the GPU.", nvml="fields 139, 141", cadence=10.0),
    # -- state --------------------------------------------------------------------------------------------------------------
    _row("recovery_action", "state", {"unit": "code", "high": 255.0}, "What the driver asks for: 0 nothing, 1 GPU reset, 2 reboot, 3 drain P2P, 4 drain and reset.",
         nvml="field 230", smi=("gpu_recovery_action",), dcgm=(("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 1.0),)),
    _row("persistence_mode", "state", _FLAG, "1 while the driver stays loaded without clients.", nvml="nvmlDeviceGetPersistenceMode",
         smi=("persistence_mode",), dcgm=(("DCGM_FI_DEV_PERSISTENCE_MODE", 1.0),), cadence=60.0),
    _row("compute_mode", "state", {"unit": "code", "high": 3.0}, "0 default, 2 prohibited, 3 exclusive process.", nvml="nvmlDeviceGetComputeMode",
         smi=("compute_mode",), dcgm=(("DCGM_FI_DEV_COMPUTE_MODE", 1.0),), cadence=60.0),
    _row("mig_mode", "state", _FLAG, "1 while the GPU is partitioned (MIG).", nvml="nvmlDeviceGetMigMode.current", smi=("mig.mode.current",),
         dcgm=(("DCGM_FI_DEV_MIG_MODE", 1.0),), cadence=10.0),
    _row("mig_mode_pending", "state", _FLAG, "MIG mode after the next reset.", nvml="nvmlDeviceGetMigMode.pending", smi=("mig.mode.pending",), cadence=10.0),
    _row("fabric_state", "state", {"unit": "code", "high": 3.0}, "NVSwitch fabric registration: 1 not started, 2 in progress, 3 completed.",
         nvml="nvmlDeviceGetGpuFabricInfoV", cadence=60.0),
    _row("process_count", "gauge", _COUNT, "Processes on the GPU, where all of them are visible.", nvml="nvmlDeviceGetComputeRunningProcesses_v3", cadence=5.0),
    # -- per process and per job --------------------------------------------------------------------------------------------
    _row("process_memory_used_bytes", "gauge", _BYTES, "Device memory of one process.", entity="process",
         nvml="nvmlDeviceGetComputeRunningProcesses_v3.usedGpuMemory", cadence=5.0),
    _row("process_sm_utilization_percent", "gauge", _PERCENT, "SM share of one process.", entity="process",
         nvml="nvmlDeviceGetProcessUtilization.smUtil", cadence=5.0),
    _row("job_loss", "gauge", {"unit": "loss", "low": float("-inf")}, "Training loss as the job reports it; NaN or infinite once it diverged.", entity="job"),
    _row("job_loss_finite", "state", _FLAG, "0 while the job reports a loss that is NaN or infinite.", entity="job"),
    _row("job_step_total", "counter", {"unit": "steps", "high": 2.0**53}, "Training steps done.", entity="job"),
    # -- what the engine itself derives from frames ---------------------------------------------------------------------------
    _row("host_blind", "state", _FLAG, "1 while a host could be reached but none of its GPUs could be seen.", entity="host", cadence=30.0),
    _row("gpu_idle_active", "state", _FLAG, "1 while clocks are low because there is nothing to do.", bit=0x1),
    _row("sw_power_cap_active", "state", _FLAG, "1 while the power limit holds clocks back: normal at full load.", bit=0x4),
    _row("hw_slowdown_active", "state", _FLAG, "1 while hardware slows the clocks down (heat, power brake, or a change of P-state).", bit=0x8),
    _row("sw_thermal_active", "state", _FLAG, "1 while software slows the clocks down for heat.", bit=0x20),
    _row("hw_thermal_active", "state", _FLAG, "1 while hardware slows the clocks down for heat.", bit=0x40),
    _row("power_brake_active", "state", _FLAG, "1 while the external power brake is pulled.", bit=0x80),
    _row("device_visible", "state", _FLAG, "1 while frames list the device, 0 once they list others without it."),
    _row("device_job_step_total", "counter", _COUNT, "Steps of the job that runs on the device."),
    _row("process_memory_known_bytes", "gauge", _BYTES, "Sum over the processes of a GPU; missing while any of them hides its share.", cadence=5.0),
)  # fmt: skip

METRICS: Final[dict[str, Metric]] = {row.name: row for row in _ROWS}
"""Every metric by name, in the order of the catalogue."""
