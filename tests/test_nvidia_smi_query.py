"""`nvidia-smi -q`: sections of every driver generation, and pages that are damaged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from recorded import BUS_A, BUS_B, MIB, A, B, ctime, q_gpu, q_page, q_process, read, seconds

from detector.errors import SourceError
from detector.frame import Device, Fault, Frame, Process
from detector.sources.recording import FORMATS, Problems
from detector.sources.timestamps import UNDATED

GONE = "cut off, or asked about some only; the others count as not looked at"


def one(tmp_path: Path, **sections: object) -> Frame:
    """The only frame of a page with one GPU that has these sections."""
    [frame] = read(tmp_path, q_page(0, q_gpu(**sections)))  # type: ignore[arg-type]
    return frame


def test_a_page_is_a_frame(tmp_path: Path) -> None:
    """Device, readings with their units, processes, driver and time, all of one page."""
    processes = "    Processes\n" + q_process(4242, "/usr/bin/python3", "64001 MiB") + q_process(4243, "python", "N/A")
    [frame] = read(tmp_path, q_page(0, q_gpu(processes=processes)))

    assert seconds([frame]) == [0.0]
    assert frame.driver_version == "550.54.15"
    assert frame.devices == (Device(A, index=0, name="NVIDIA H100 80GB HBM3", pci_bus_id=BUS_A),)
    assert {metric: frame.reading(A, metric) for metric in frame.metrics if metric != "fan_speed_percent"} == {
        "utilization_percent": 12.0, "memory_utilization_percent": 3.0, "encoder_utilization_percent": 0.0,
        "decoder_utilization_percent": 0.0, "memory_total_bytes": 81559 * MIB, "memory_used_bytes": 2 * MIB,
        "memory_free_bytes": 81007 * MIB, "memory_reserved_bytes": 551 * MIB, "temperature_celsius": 41.0, "power_watts": 123.45,
        "power_limit_watts": 700.0, "sm_clock_mhz": 1980.0, "memory_clock_mhz": 2619.0, "performance_state": 0.0, "persistence_mode": 1.0,
    }  # fmt: skip
    assert math.isnan(frame.reading(A, "fan_speed_percent"))
    assert frame.unavailable == {A: {"fan_speed_percent": "not_supported"}}
    assert frame.processes == {
        A: (Process(4242, memory_used_bytes=64001 * MIB, command="/usr/bin/python3"), Process(4243, command="python"))
    }


FIELDS = [
    ("temperature_celsius", 41.0, {"Temperature": {"Gpu": "41 C"}}),
    ("temperature_margin_celsius", 57.0, {"Temperature": {"GPU T.Limit Temp": "57 C"}}),
    ("temperature_margin_slowdown_celsius", -2.0, {"Temperature": {"GPU Slowdown T.Limit Temp": "-2 C"}}),
    ("temperature_slowdown_celsius", 98.0, {"Temperature": {"GPU Slowdown Temp": "98 C"}}),
    ("temperature_shutdown_celsius", 101.0, {"Temperature": {"GPU Shutdown Temp": "101 C"}}),
    ("temperature_max_operating_celsius", 91.0, {"Temperature": {"GPU Max Operating Temp": "91 C"}}),
    ("memory_temperature_celsius", 44.0, {"Temperature": {"Memory Current Temp": "44 C"}}),
    ("memory_temperature_max_celsius", 95.0, {"Temperature": {"Memory Max Operating Temp": "95 C"}}),
    ("power_watts", 67.85, {"GPU_Power_Readings": {}, "Power_Readings": {"Power Draw": "67.85 W", "Power Limit": "235.00 W"}}),
    ("power_limit_watts", 230.0,
     {"GPU_Power_Readings": {}, "Power_Readings": {"Power Limit": "235.00 W", "Enforced Power Limit": "230.00 W"}}),
    ("power_watts", 139.62, {"GPU_Power_Readings": {"Average Power Draw": "139.62 W", "Instantaneous Power Draw": "142.33 W"}}),
    ("power_watts", 142.33, {"GPU_Power_Readings": {"Average Power Draw": "N/A", "Instantaneous Power Draw": "142.33 W"}}),
    ("power_default_limit_watts", 700.0, {"GPU_Power_Readings": {"Default Power Limit": "700.00 W"}}),
    ("memory_used_bytes", 7 * MIB, {"FB_Memory_Usage": {}, "Memory_Usage": {"Used": "7 MB"}}),
    ("memory_used_bytes", 8 * MIB, {"FB_Memory_Usage": {}, "Shared_FB_Memory_Usage": {"Used": "8 MiB"}}),
    ("bar1_used_bytes", 3 * MIB, {"BAR1_Memory_Usage": {"Total": "256 MiB", "Used": "3 MiB"}}),
    ("sm_clock_max_mhz", 2100.0, {"Max_Clocks": {"Graphics": "2200 MHz", "SM": "2100 MHz"}}),
    ("sm_clock_application_mhz", 1695.0, {"Applications_Clocks": {"Graphics": "1695 MHz"}}),
    ("clock_event_reasons", 0x49, {"Clocks_Event_Reasons": {
        "Idle": "Active", "SW Power Cap": "Not Active", "HW Slowdown                       : Active": {"HW Thermal Slowdown": "Active"},
        "Sync Boost": "Not Active", "Display Clock Setting": "Active"}}),
    ("clock_event_reasons", 0x4,
     {"Clocks_Throttle_Reasons": {"SW Power Cap": "Active", "HW Slowdown": "Not Active", "Sync Boost": "Not Active"}}),
    ("clock_event_reasons", math.nan,
     {"Clocks_Event_Reasons": {"SW Power Cap": "Unknown Error", "HW Slowdown": "Not Active", "Sync Boost": "Active"}}),
    ("clock_event_reasons", math.nan, {"Clocks_Event_Reasons": {"SW Power Cap": "Active", "Sync Boost": "Active"}}),
    ("ecc_uncorrected_volatile_total", math.nan, {"ECC_Errors": {"Volatile": {"SRAM Uncorrectable": "4", "DRAM Correctable": "4"}}}),
    ("sw_thermal_seconds_total", 0.112091, {"Clocks_Event_Reasons_Counters": {"SW Thermal Slowdown": "112091 us"}}),
    ("sw_power_cap_seconds_total", 2.0, {"Clocks_Event_Reasons_Counters": {"SW Power Capping": "2000000 us"}}),
    ("hw_power_brake_seconds_total", 0.0, {"Clocks_Event_Reasons_Counters": {"HW Power Braking": "0 us"}}),
    ("ecc_mode", 1.0, {"Ecc_Mode": {"Current": "Enabled", "Pending": "Disabled"}}),
    ("ecc_mode_pending", 0.0, {"ECC_Mode": {"Current": "Enabled", "Pending": "Disabled"}}),
    ("ecc_uncorrected_volatile_total", 3.0,
     {"ECC_Errors": {"Volatile": {"Double Bit": {"Device Memory": "2", "L2 Cache": "1", "Total": "3"}}}}),
    ("ecc_corrected_aggregate_total", 5.0, {"ECC_Errors": {"Aggregate": {"Single Bit": {"Device Memory": "5", "Total": "5"}}}}),
    ("ecc_uncorrected_aggregate_total", 6.0, {"ECC_Errors": {"Aggregate": {
        "SRAM Correctable": "9", "SRAM Uncorrectable Parity": "1", "SRAM Uncorrectable SEC-DED": "2", "DRAM Correctable": "9",
        "DRAM Uncorrectable": "3", "SRAM Threshold Exceeded": "No"}}}),
    ("ecc_uncorrected_volatile_total", 4.0, {"ECC_Errors": {"Volatile": {"SRAM Uncorrectable": "N/A", "DRAM Uncorrectable": "4"}}}),
    ("ecc_uncorrected_volatile_total", math.nan,
     {"ECC_Errors": {"Volatile": {"SRAM Uncorrectable": "Unknown Error", "DRAM Uncorrectable": "4"}}}),
    ("ecc_uncorrected_volatile_total", math.nan, {"ECC_Errors": {"Volatile": {"SRAM Uncorrectable": "N/A", "DRAM Uncorrectable": "N/A"}}}),
    ("remapped_rows_uncorrected_total", 4.0, {"Remapped_Rows": {"Correctable Error": "0", "Uncorrectable Error": "4", "Pending": "Yes"}}),
    ("remapped_rows_pending", 1.0, {"Remapped_Rows": {"Pending": "Yes"}}),
    ("remapped_rows_failure", 0.0, {"Remapped_Rows": {"Remapping Failure Occurred": "No"}}),
    ("retired_pages_single_bit_total", 6.0, {"Retired_Pages": {"Single Bit ECC": "6", "Double Bit ECC": "0"}}),
    ("retired_pages_pending", 1.0, {"Retired_Pages": {"Pending Page Blacklist": "Yes"}}),
    ("retired_pages_pending", 0.0, {"Retired_Pages": {"Pending": "No"}}),
    ("pcie_link_generation", 1.0,
     {"PCI": {"GPU Link Info": {"PCIe Generation": {"Max": "4", "Current": "1"}, "Link Width": {"Max": "16x"}}}}),
    ("pcie_link_width_max", 16.0,
     {"PCI": {"GPU Link Info": {"PCIe Generation": {"Max": "4"}, "Link Width": {"Max": "16x", "Current": "8x"}}}}),
    ("pcie_replay_total", 120.0, {"PCI": {"Replays Since Reset": "120"}}),
    ("pcie_tx_bytes_per_second", 632_000.0, {"PCI": {"Tx Throughput": "632 KB/s"}}),
    ("compute_mode", 3.0, {"Compute_Mode": "Exclusive_Process"}),
    ("mig_mode", 1.0, {"MIG_Mode": {"Current": "Enabled", "Pending": "Enabled"}}),
    ("fabric_state", 3.0, {"Fabric": {"State": "Completed", "Status": "Success"}}),
    ("fabric_state", math.nan, {"Fabric": {"State": "N/A", "Status": "N/A"}}),
    ("recovery_action", 1.0, {"GPU_Recovery_Action": "Reset"}),
    ("recovery_action", 1.0, {"GPU_Recovery_Action": "GPU_RESET"}),
    ("recovery_action", 0.0,
     {"GPU_Recovery_Action": "None", "GPU_Reset_Status": {"Reset Required": "Requested functionality has been deprecated"}}),
    ("recovery_action", 1.0, {"GPU_Reset_Status": {"Reset Required": "Yes", "Drain and Reset Recommended": "N/A"}}),
    ("recovery_action", 4.0, {"GPU_Reset_Status": {"Reset Required": "No", "Drain and Reset Recommended": "Yes"}}),
    ("recovery_action", 0.0, {"GPU_Reset_Status": {"Reset Required": "No", "Drain and Reset Recommended": "N/A"}}),
]  # fmt: skip


@pytest.mark.parametrize(("metric", "expected", "told"), FIELDS)
def test_fields_of_old_and_new_drivers(metric: str, expected: float, told: dict[str, object], tmp_path: Path) -> None:
    """Sections and fields were renamed and split over the years; each is read in our unit, and missing where it is."""
    assert one(tmp_path, **told).reading(A, metric) == pytest.approx(expected, nan_ok=True)


def test_module_power_is_not_the_power_of_the_gpu(tmp_path: Path) -> None:
    """A section of the same shape for the module does not replace that of the GPU."""
    frame = one(tmp_path, Module_Power_Readings={"Power Draw": "999.00 W"}, Default_Applications_Clocks={"SM": "1 MHz"})

    assert (frame.reading(A, "power_watts"), frame.reading(A, "sm_clock_mhz")) == (123.45, 1980.0)


@pytest.mark.parametrize("torn", ["8155", "8155 M", "8155 Mi", "81.", "8 1559 MiB", "GPU", "9223372036854775794 MiB", "-1 MiB"])
def test_a_number_that_lost_its_unit_is_no_reading(torn: str, tmp_path: Path) -> None:
    """It may have lost digits as well; a driver's blank is none either."""
    assert math.isnan(one(tmp_path, FB_Memory_Usage={"Used": torn}).reading(A, "memory_used_bytes"))


def test_what_cannot_be_a_reading_is_a_problem(tmp_path: Path) -> None:
    """The line of the GPU and the metric are named."""
    problems = Problems()
    read(tmp_path, q_page(0, q_gpu(FB_Memory_Usage={"Used": "81559", "Free": "1 MiB"})), problems)

    assert problems.lines() == [f"{tmp_path}/recording, line 9: what stands in the place of memory_used_bytes is no reading of it: torn?"]


# -- faults -------------------------------------------------------------------------------------------------------------------
def test_an_error_in_a_harmless_field_is_no_fault(tmp_path: Path) -> None:
    """`Addressing Mode : Unknown Error` is a quirk of a driver, and one gauge that fails is not the GPU."""
    frame = one(tmp_path, Addressing_Mode="Unknown Error", Utilization={"Gpu": "Unknown Error"})

    assert frame.faults == ()
    assert frame.unavailable[A] == {"utilization_percent": "unknown", "fan_speed_percent": "not_supported"}


@pytest.mark.parametrize(
    "said",
    [
        {"Utilization": {"Gpu": "GPU is lost"}, "Temperature": {"GPU Current Temp": "GPU is lost"}},
        {"Utilization": {"Gpu": "Unknown Error"}, "Temperature": {"GPU Current Temp": "Unknown Error"},
         "GPU_Power_Readings": {"Power Draw": "Unknown Error"}, "Performance_State": "Unknown Error"},
    ],
)  # fmt: skip
def test_a_gpu_of_which_nothing_can_be_read_is_lost(said: dict[str, object], tmp_path: Path) -> None:
    """It is not on the list any more, whatever the driver knows of it by heart; its neighbour is."""
    [frame] = read(tmp_path, q_page(0, q_gpu(**said), q_gpu(BUS_B, B)))  # type: ignore[arg-type]

    assert [device.uuid for device in frame.devices] == [B]
    assert frame.faults == (Fault("gpu_lost", A),)


def test_two_gauges_that_fail_are_no_loss(tmp_path: Path) -> None:
    """Even where the others are not supported: it takes more to say that a GPU is gone."""
    gauges = {"Temperature": {"GPU Current Temp": "Unknown Error"}, "GPU_Power_Readings": {"Power Draw": "Unknown Error"}}
    frame = one(tmp_path, Utilization={"Gpu": "N/A"}, Performance_State="N/A", **gauges)

    assert ([device.uuid for device in frame.devices], frame.faults) == ([A], ())


def test_a_gpu_that_requires_a_reset_is_still_there(tmp_path: Path) -> None:
    """It is listed with its fault."""
    frame = one(tmp_path, Utilization={"Gpu": "GPU requires reset"})

    assert [device.uuid for device in frame.devices] == [A]
    assert frame.faults == (Fault("reset_required", A),)


def test_a_sentence_in_the_place_of_a_page_is_a_blind_look(tmp_path: Path) -> None:
    """It is put at the usual distance between the pages around it; the lines that go with it say nothing more."""
    sentence = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.\n"
    )
    lost = f"Unable to determine the device handle for GPU {BUS_A[4:]}: GPU is lost.  Reboot the system to recover this GPU\n"
    problems = Problems()
    frames = read(tmp_path, q_page(0, q_gpu()) + q_page(10, q_gpu()) + sentence + lost + q_page(40, q_gpu()), problems)

    assert seconds(frames) == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert [frame.faults for frame in frames[2:4]] == [
        (Fault("driver_not_loaded", None, sentence.strip()),), (Fault("gpu_lost", A, lost.strip()),),
    ]  # fmt: skip
    assert problems.lines() == []


# -- time ---------------------------------------------------------------------------------------------------------------------
def test_many_pages_in_one_file(tmp_path: Path) -> None:
    """Each is a frame at its own time."""
    assert seconds(read(tmp_path, "".join(q_page(60 * n, q_gpu()) for n in range(5)))) == [0.0, 60.0, 120.0, 180.0, 240.0]


def test_pages_of_one_second_are_spread_over_it(tmp_path: Path) -> None:
    """The stamp has whole seconds; who looks four times a second has four looks, not one."""
    assert seconds(read(tmp_path, "".join(q_page(n // 4, q_gpu()) for n in range(8)))) == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]


@pytest.mark.parametrize(("interval", "step"), [(None, 1.0), (30.0, 30.0)])
def test_pages_without_a_time_follow_one_another(interval: float | None, step: float, tmp_path: Path) -> None:
    """A second apart, or as they are said to be; identical ones too, and it is said."""
    problems = Problems()
    frames = read(tmp_path, q_page(None, q_gpu()) * 3, problems, interval=interval)

    assert [frame.at - UNDATED for frame in frames] == [0.0, step, 2 * step]
    assert problems.lines() == [
        f"note: {tmp_path}/recording: pages without a time count as {step:g} s apart, --interval would say otherwise"
    ]


def test_a_page_whose_time_is_torn_stands_where_it_belongs(tmp_path: Path) -> None:
    """Behind the page before it, at the usual distance."""
    pages = [q_page(60 * n, q_gpu()) for n in range(4)]
    pages[2] = pages[2].replace(ctime(120), "Mon Mar")
    problems = Problems()

    assert seconds(read(tmp_path, "".join(pages), problems)) == [0.0, 60.0, 120.0, 180.0]
    assert len(problems) == 1


def test_times_are_local(tmp_path: Path) -> None:
    """The stamp has no zone."""
    assert seconds(read(tmp_path, q_page(0, q_gpu()), timezone="+02:00")) == [-7200.0]


# -- damage -------------------------------------------------------------------------------------------------------------------
def test_a_page_that_shows_too_few_gpus_loses_none(tmp_path: Path) -> None:
    """What it does not show was not looked at: it stays on the list, without readings."""
    problems = Problems()
    both = q_page(0, q_gpu(), q_gpu(BUS_B, B))
    frames = read(tmp_path, both + q_page(60, q_gpu(), attached=2), problems)

    assert [[device.uuid for device in frame.devices] for frame in frames] == [[A, B], [A, B]]
    assert (frames[1].reading(A, "temperature_celsius"), math.isnan(frames[1].reading(B, "temperature_celsius"))) == (41.0, True)
    assert problems.lines() == [f"{tmp_path}/recording, line {both.count(chr(10)) + 2}: the page shows 1 of 2 attached GPUs: {GONE}"]


def test_pages_about_one_gpu_each_lose_none(tmp_path: Path) -> None:
    """`nvidia-smi -q -i 0` and `-i 1` in turn: each page is about its own."""
    frames = read(tmp_path, "".join(q_page(n, q_gpu(*(((BUS_A, A), (BUS_B, B))[n % 2])), attached=2) for n in range(4)))

    assert [{device.uuid for device in frame.devices} for frame in frames] == [{A}, {A, B}, {A, B}, {A, B}]


def test_a_gpu_that_is_attached_no_more_is_gone(tmp_path: Path) -> None:
    """A page that is whole is to be believed."""
    frames = read(tmp_path, q_page(0, q_gpu(), q_gpu(BUS_B, B)) + q_page(60, q_gpu()))

    assert [[device.uuid for device in frame.devices] for frame in frames] == [[A, B], [A]]


def test_a_page_that_runs_into_the_next(tmp_path: Path) -> None:
    """The torn line is dropped, and what came before it kept."""
    page = q_page(0, q_gpu())
    torn = page[: page.index("1980 MHz") + 2]
    frames = read(tmp_path, torn + q_page(60, q_gpu()).lstrip("\n"))

    assert seconds(frames) == [0.0, 60.0]
    assert ("sm_clock_mhz" in frames[0].metrics, frames[0].reading(A, "power_watts")) == (False, 123.45)


def test_the_value_of_a_line_without_an_end_is_left_out(tmp_path: Path) -> None:
    """A count of 12 may have been 120."""
    page = q_page(0, q_gpu(PCI={"Replays Since Reset": "120"}))

    assert "pcie_replay_total" not in read(tmp_path, page[: page.index("120") + 2])[0].metrics


def test_a_page_of_nothing_is_refused(tmp_path: Path) -> None:
    """A title and no GPU is not an empty host."""
    with pytest.raises(SourceError, match=r"shows 0 of 8 attached GPUs"):
        read(tmp_path, q_page(0, attached=8))


def test_some_sections_only(tmp_path: Path) -> None:
    """`-d PAGE_RETIREMENT` names GPUs by their bus address; a full page before it tells whose it is."""
    some = f"GPU {BUS_B}\n    Retired Pages\n        Single Bit ECC                    : 7\n\n"
    alone = read(tmp_path, q_page(0, some))
    after = read(tmp_path, q_page(0, q_gpu(BUS_B, B)) + q_page(60, some))

    assert alone[0].devices == (Device(f"PCI-{BUS_B}", index=0, pci_bus_id=BUS_B),)
    assert after[1].reading(B, "retired_pages_single_bit_total") == 7.0


def test_blocks_without_a_head(tmp_path: Path) -> None:
    """Somebody kept the GPUs only: a GPU that comes again begins the next look."""
    frames = read(tmp_path, (q_gpu() + q_gpu(BUS_B, B)) * 3)

    assert [len(frame.devices) for frame in frames] == [2, 2, 2]


# -- processes ----------------------------------------------------------------------------------------------------------------
HELD = {"FB_Memory_Usage": {"Total": "81559 MiB", "Used": "40000 MiB"}}


def test_no_process_proves_nothing_while_memory_is_held(tmp_path: Path) -> None:
    """A container sees none of the host's, yet their memory; where there is no memory to hold, there is none."""
    held, free = one(tmp_path, **HELD), one(tmp_path)

    assert (held.processes, free.processes) == ({}, {A: ()})


def test_a_list_that_showed_processes_is_believed_when_it_is_empty(tmp_path: Path) -> None:
    """The process is gone and its memory is not: that is worth knowing."""
    some = q_gpu(processes="    Processes\n" + q_process(1), **HELD)
    frames = read(tmp_path, q_page(0, some) + q_page(60, q_gpu(**HELD)))

    assert [len(frame.processes[A]) for frame in frames] == [1, 0]


@pytest.mark.parametrize("said", ["    Processes                             : N/A\n", ""])
def test_processes_that_are_not_told_are_not_known(said: str, tmp_path: Path) -> None:
    """Not supported, or not on the page."""
    assert read(tmp_path, q_page(0, q_gpu(processes=said)))[0].processes == {}


@pytest.mark.parametrize("name", ["Unknown Error", "[Unknown Error]", "Insufficient Permissions", "[Not Found]", "N/A"])
def test_a_process_whose_name_cannot_be_read_is_a_process(name: str, tmp_path: Path) -> None:
    """It has no name; that says nothing of the GPU."""
    [frame] = read(tmp_path, q_page(0, q_gpu(processes="    Processes\n" + q_process(7, name))))

    assert frame.processes == {A: (Process(7, memory_used_bytes=100 * MIB),)}
    assert frame.faults == ()


def test_processes_of_early_drivers(tmp_path: Path) -> None:
    """They were called compute processes, and had no instances."""
    said = "    Compute Processes\n" + "".join(
        f"        Process ID                        : {pid}\n            Name                          : a\n"
        f"            Used GPU Memory               : 5 MiB\n"
        for pid in (1, 2)
    )
    [frame] = read(tmp_path, q_page(0, q_gpu(processes=said)))

    assert frame.processes == {A: (Process(1, 5 * MIB, command="a"), Process(2, 5 * MIB, command="a"))}


# -- MIG ----------------------------------------------------------------------------------------------------------------------
def test_instances_are_devices_of_their_parent(tmp_path: Path) -> None:
    """Each has its own memory and processes; the page does not name it, so its documented form does."""
    instance = (
        "    MIG Device\n        Index                             : {n}\n        GPU Instance ID                   : {gi}\n"
        "        Compute Instance ID               : 0\n        FB Memory Usage\n            Total                         : 19968 MiB\n"
        "            Used                          : {used} MiB\n"
    )
    block = q_gpu(
        processes="    Processes\n" + q_process(9, instance="2"), MIG_Mode={"Current": "Enabled"}, Utilization={"Gpu": "N/A"}, **HELD
    )
    at = block.index("    Fan Speed")
    text = q_page(0, block[:at] + instance.format(n=0, gi=1, used=19) + instance.format(n=1, gi=2, used=9000) + block[at:])
    [frame] = read(tmp_path, text)
    first, second = f"MIG-{A}/1/0", f"MIG-{A}/2/0"

    assert [(device.uuid, device.index, device.parent, device.kind) for device in frame.devices] == [
        (A, 0, None, "gpu"), (first, 0, A, "mig"), (second, 1, A, "mig"),
    ]  # fmt: skip
    assert [frame.reading(uuid, "memory_used_bytes") / MIB for uuid in (A, first, second)] == [40000.0, 19.0, 9000.0]
    assert frame.processes == {first: (), second: (Process(9, 100 * MIB, command="python"),)}


# -- sniffing -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (q_page(0, q_gpu()), True),
        (q_gpu(), True),
        ("started by cron\n" + q_page(0, q_gpu()), True),
        ("GPU 0: NVIDIA H100 (UUID: GPU-1)\n", False),
        ("timestamp, utilization.gpu [%]\n", False),
        ("[ 1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n" * 200 + q_page(0, q_gpu()), False),
    ],
)
def test_what_looks_like_a_page(text: str, expected: bool) -> None:
    """A title or a block near the beginning; deep in a bug report it is a part of something else."""
    assert expected == FORMATS["nvidia-smi-query"].sniff(text)
