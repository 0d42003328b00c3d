"""`nvidia-smi -q -x`: schema versions 10 to 13, concatenated, torn and hostile documents."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from recorded import BUS_A, BUS_B, MIB, A, B, read, seconds, x_gpu, x_page

from detector.errors import SourceError
from detector.frame import Device, Fault, Frame, Process
from detector.sources.recording import FORMATS, Problems


def one(tmp_path: Path, **sections: object) -> Frame:
    [frame] = read(tmp_path, x_page(0, x_gpu(**sections)))  # type: ignore[arg-type]
    return frame


def test_a_document_is_a_frame(tmp_path: Path) -> None:
    """Device, readings with their units, processes, driver and time."""
    [frame] = read(tmp_path, x_page(0, x_gpu()))

    assert seconds([frame]) == [0.0]
    assert frame.driver_version == "550.54.15"
    assert frame.devices == (Device(A, index=0, name="NVIDIA A100-SXM4-80GB", pci_bus_id=BUS_A),)
    assert {metric: frame.reading(A, metric) for metric in frame.metrics} == {
        "utilization_percent": 97.0, "memory_utilization_percent": 40.0, "memory_total_bytes": 81920 * MIB,
        "memory_used_bytes": 61000 * MIB, "memory_free_bytes": 20920 * MIB, "temperature_celsius": 61.0, "power_watts": 250.12,
        "power_limit_watts": 400.0, "sm_clock_mhz": 1395.0, "memory_clock_mhz": 1593.0, "performance_state": 0.0,
    }  # fmt: skip
    assert frame.processes == {A: (Process(4242, memory_used_bytes=60500 * MIB, command="python"),)}


NO = {"gpu_power_readings": {}}
FIELDS = [
    ("power_watts", 66.92, {**NO, "power_readings": {"power_state": "P0", "power_draw": "66.92 W", "power_limit": "400.00 W"}}),
    ("power_limit_watts", 390.0, {**NO, "power_readings": {"power_limit": "400.00 W", "enforced_power_limit": "390.00 W"}}),
    ("power_watts", math.nan, {**NO, "power_readings": {"power_draw": "N/A", "power_limit": "N/A"}}),
    ("power_watts", 139.62, {"gpu_power_readings": {"average_power_draw": "139.62 W", "instant_power_draw": "142.33 W"}}),
    ("power_watts", 40.71, {"gpu_power_readings": {"instant_power_draw": "40.71 W"}}),
    ("power_default_limit_watts", 320.0, {"gpu_power_readings": {"default_power_limit": "320.00 W"}}),
    ("temperature_slowdown_celsius", 89.0, {"temperature": {"gpu_temp_slow_threshold": "89 C", "gpu_temp_max_threshold": "92 C"}}),
    ("temperature_shutdown_celsius", 92.0, {"temperature": {"gpu_temp_slow_threshold": "89 C", "gpu_temp_max_threshold": "92 C"}}),
    ("temperature_max_operating_celsius", 85.0, {"temperature": {"gpu_temp_max_gpu_threshold": "85 C"}}),
    ("temperature_margin_celsius", 31.0, {"temperature": {"gpu_temp_tlimit": "31 C"}}),
    ("temperature_margin_slowdown_celsius", -2.0, {"temperature": {"gpu_temp_slow_tlimit_threshold": "-2 C"}}),
    ("memory_temperature_celsius", 44.0, {"temperature": {"memory_temp": "44 C"}}),
    ("clock_event_reasons", 0x21, {"clocks_throttle_reasons": {
        "clocks_throttle_reason_gpu_idle": "Active", "clocks_throttle_reason_applications_clocks_setting": "Not Active\n\t\t\t",
        "clocks_throttle_reason_sw_power_cap": "Not Active", "clocks_throttle_reason_sync_boost": "Not Active",
        "clocks_throttle_reason_hw_slowdown": "Not Active", "clocks_throttle_reason_sw_thermal_slowdown": "Active"}}),
    ("clock_event_reasons", 0x88, {"clocks_event_reasons": {
        "clocks_event_reason_sw_power_cap": "Not Active", "clocks_event_reason_sync_boost": "Not Active",
        "clocks_event_reason_hw_slowdown": "Active", "clocks_event_reason_hw_power_brake_slowdown": "Active",
        "clocks_event_reason_display_clocks_setting": "Active"}}),
    ("hw_thermal_seconds_total", 1.5, {"clocks_event_reasons_counters": {"clocks_event_reasons_counters_hw_therm_slowdown": "1500000 us"}}),
    ("ecc_mode", 1.0, {"ecc_mode": {"current_ecc": "Enabled", "pending_ecc": "Enabled"}}),
    ("ecc_uncorrected_volatile_total", 2.0, {"ecc_errors": {"volatile": {"double_bit": {"device_memory": "2", "total": "2"}}}}),
    ("ecc_uncorrected_aggregate_total", 6.0, {"ecc_errors": {"aggregate": {
        "sram_uncorrectable_parity": "1", "sram_uncorrectable_secded": "2", "dram_uncorrectable": "3", "sram_correctable": "9"}}}),
    ("ecc_corrected_volatile_total", 3.0, {"ecc_errors": {"volatile": {"sram_correctable": "1", "dram_correctable": "2"}}}),
    ("remapped_rows_pending", 1.0, {"remapped_rows": {"remapped_row_corr": "0", "remapped_row_unc": "4", "remapped_row_pending": "Yes"}}),
    ("remapped_rows_uncorrected_total", 4.0, {"remapped_rows": {"remapped_row_unc": "4"}}),
    ("remapped_rows_failure", 1.0, {"remapped_rows": {"remapped_row_failure": "Yes"}}),
    ("remapped_rows_failure", math.nan, {"remapped_rows": "N/A"}),
    ("retired_pages_double_bit_total", 1.0, {"retired_pages": {"double_bit_retirement": {"retired_count": "1", "retired_pagelist": ""}}}),
    ("retired_pages_pending", 1.0, {"retired_pages": {"pending_retirement": "Yes"}}),
    ("pcie_link_generation", 4.0, {"pci": {"pci_gpu_link_info": {"pcie_gen": {"max_link_gen": "5", "current_link_gen": "4"}}}}),
    ("pcie_link_width", 8.0, {"pci": {"pci_gpu_link_info": {"link_widths": {"max_link_width": "16x", "current_link_width": "8x"}}}}),
    ("pcie_replay_total", 7.0, {"pci": {"replay_counter": "7"}}),
    ("pcie_rx_bytes_per_second", 14_742_333_000.0, {"pci": {"rx_util": "14742333 KB/s"}}),
    ("recovery_action", 4.0, {"gpu_recovery_action": "Drain and Reset"}),
    ("recovery_action", 1.0, {"gpu_reset_status": {"reset_required": "Yes", "drain_and_reset_recommended": "No"}}),
    ("mig_mode_pending", 0.0, {"mig_mode": {"current_mig": "Enabled", "pending_mig": "Disabled"}}),
    ("sm_clock_max_mhz", 1410.0, {"max_clocks": {"graphics_clock": "1500 MHz", "sm_clock": "1410 MHz"}}),
    ("sm_clock_mhz", 1395.0,
     {"supported_clocks": {"supported_mem_clock": {"value": "1215 MHz", "supported_graphics_clock": ["1 MHz", "2 MHz"]}}}),
]  # fmt: skip


@pytest.mark.parametrize(("metric", "expected", "told"), FIELDS)
def test_fields_of_old_and_new_schemas(metric: str, expected: float, told: dict[str, object], tmp_path: Path) -> None:
    """Elements were renamed and split over the years; what is N/A is missing, never 0."""
    assert one(tmp_path, **told).reading(A, metric) == pytest.approx(expected, nan_ok=True)


def test_instances_are_devices_of_their_parent(tmp_path: Path) -> None:
    """One with a uuid has it, one without its documented form; a parent without utilisation has none."""
    told = {"gpu_instance_id": "1", "compute_instance_id": "0", "fb_memory_usage": {"total": "19968 MiB", "used": "19 MiB"}}
    other = {
        **told,
        "index": "1",
        "gpu_instance_id": "2",
        "uuid": "MIG-deadbeef-1",
        "ecc_error_count": {"volatile_count": {"sram_uncorrectable": "4"}},
    }
    process = {"gpu_instance_id": "1", "compute_instance_id": "0", "pid": "77", "process_name": "a", "used_memory": "5 MiB"}
    frame = one(
        tmp_path,
        mig_devices={"mig_device": [{"index": "0", **told}, other]},
        utilization={"gpu_util": "N/A"},
        processes={"process_info": process},
    )
    first = f"MIG-{A}/1/0"

    assert [(device.uuid, device.index, device.parent) for device in frame.devices] == [
        (A, 0, None),
        (first, 0, A),
        ("MIG-deadbeef-1", 1, A),
    ]
    assert [frame.reading(uuid, "memory_used_bytes") / MIB for uuid in (A, first)] == [61000.0, 19.0]
    assert frame.reading("MIG-deadbeef-1", "ecc_uncorrected_volatile_total") == 4.0
    assert math.isnan(frame.reading(A, "utilization_percent"))
    assert frame.processes == {first: (Process(77, 5 * MIB, command="a"),), "MIG-deadbeef-1": ()}


@pytest.mark.parametrize("said", ["\n\t\t\tNone\n\t\t", ""])
def test_no_instances(said: str, tmp_path: Path) -> None:
    """A word in their place is none."""
    assert [device.uuid for device in one(tmp_path, mig_devices=said).devices] == [A]


@pytest.mark.parametrize(("said", "expected"), [("\n\t\t", {A: ()}), ("None", {A: ()}), ("N/A", {})])
def test_processes_that_are_none_and_those_that_are_not_told(said: str, expected: object, tmp_path: Path) -> None:
    """N/A is not "none"."""
    assert expected == one(tmp_path, processes=said, fb_memory_usage={"used": "0 MiB"}).processes


def test_a_lost_gpu(tmp_path: Path) -> None:
    """It is a fault, and its neighbour is read."""
    [frame] = read(tmp_path, x_page(0, x_gpu(utilization={"gpu_util": "GPU is lost"}), x_gpu(BUS_B, B)))

    assert ([device.uuid for device in frame.devices], frame.faults) == ([B], (Fault("gpu_lost", A),))


# -- documents ----------------------------------------------------------------------------------------------------------------
def test_documents_one_after_the_other(tmp_path: Path) -> None:
    """In a loop, on lines of their own or not, with and without a declaration; what stands between is left out."""
    bare = x_page(180, x_gpu()).split("\n", 2)[2].replace("\n", "")
    text = x_page(0, x_gpu()) + "\n\n" + x_page(60, x_gpu()).rstrip("\n") + x_page(120, x_gpu()) + "sleep\n" + bare + x_page(240, x_gpu())
    problems = Problems()

    assert seconds(read(tmp_path, text, problems)) == [0.0, 60.0, 120.0, 180.0, 240.0]
    assert problems.lines() == [f"note: {tmp_path}/recording: lines between the documents are left out"]


def test_a_sentence_between_documents_is_a_blind_look(tmp_path: Path) -> None:
    """nvidia-smi prints it in place of a document."""
    sentence = "Failed to initialize NVML: Driver/library version mismatch"
    frames = read(tmp_path, f"{x_page(0, x_gpu())}{sentence}\nNVML library version: 550.54\n{x_page(120, x_gpu())}")

    assert [frame.faults for frame in frames] == [(), (Fault("library_mismatch", None, sentence),), ()]


@pytest.mark.parametrize("next_page", [False, True])
def test_a_document_that_is_cut_off(next_page: bool, tmp_path: Path) -> None:
    """What is whole in it is read, GPUs that it does not show were not looked at, and it is said."""
    both = x_page(0, x_gpu(), x_gpu(BUS_B, B))
    page = x_page(60, x_gpu(), x_gpu(BUS_B, B))
    torn = page[: page.index("81920", page.index(BUS_B)) + 4]
    problems = Problems()
    frames = read(tmp_path, both + torn + (x_page(120, x_gpu(), x_gpu(BUS_B, B)) if next_page else ""), problems)

    assert [[device.uuid for device in frame.devices] for frame in frames] == [[A, B]] * (2 + next_page)
    assert (frames[1].reading(A, "power_watts"), math.isnan(frames[1].reading(B, "memory_total_bytes"))) == (250.12, True)
    assert problems.lines() == [
        f"{tmp_path}/recording, line {both.count(chr(10)) + 1}: the page is cut off; what it does not show counts as not looked at"
    ]


def test_names_of_processes_that_are_no_xml(tmp_path: Path) -> None:
    """Drivers copied them as they were: an ampersand or a control character does not cost the page."""
    text = x_page(0, x_gpu()).replace(">python<", ">a & b\x01<")
    problems = Problems()
    [frame] = read(tmp_path, text, problems)

    assert [process.command for process in frame.processes[A]] == ["a ? b?"]
    assert problems.lines() == []


# -- hostile documents --------------------------------------------------------------------------------------------------------
LAUGHS = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>\n'
FILE = '<!DOCTYPE nvidia_smi_log [<!ENTITY a SYSTEM "file:///etc/hostname">]>\n'
PARAMETER = '<!DOCTYPE nvidia_smi_log [<!ENTITY % a SYSTEM "http://127.0.0.1:9/a.dtd"> %a;]>\n'


@pytest.mark.parametrize("head", [LAUGHS, FILE, PARAMETER])
def test_entities_are_neither_expanded_nor_fetched(head: str, tmp_path: Path) -> None:
    """A document that declares any is refused as a whole; the others are read."""
    hostile = x_page(0, x_gpu(product_name="&a;&c;"), head=head)
    problems = Problems()
    frames = read(tmp_path, hostile + x_page(60, x_gpu()), problems)

    assert seconds(frames) == [60.0]
    assert problems.lines() == [f"{tmp_path}/recording, line 1: a document that declares entities is not one of nvidia-smi: left out"]
    with pytest.raises(SourceError, match="declares entities"):
        read(tmp_path, hostile)


def test_the_dtd_is_not_fetched(tmp_path: Path) -> None:
    """A DOCTYPE names a file that is not there, or not to be read: it makes no difference."""
    text = x_page(0, x_gpu(), head='<!DOCTYPE nvidia_smi_log SYSTEM "http://127.0.0.1:9/nvsmi_device_v12.dtd">\n')

    assert len(read(tmp_path, text)) == 1


def test_a_document_nested_without_end_is_refused(tmp_path: Path) -> None:
    """It cannot exhaust the stack."""
    with pytest.raises(SourceError, match="nested deeper"):
        read(tmp_path, "<nvidia_smi_log>" + "<a>" * 100_000)


def test_gpus_without_any_identity_are_told_apart_by_their_place(tmp_path: Path) -> None:
    """Neither uuid nor bus address: the order is all there is."""
    [frame] = read(tmp_path, x_page(0, x_gpu("", "N/A"), x_gpu("", "N/A")))

    assert [device.uuid for device in frame.devices] == ["INDEX-0", "INDEX-1"]


@pytest.mark.parametrize(
    ("text", "expected"), [(x_page(0, x_gpu()), True), ("<nvidia_smi_log><gpu/></nvidia_smi_log>", True), ("<html></html>", False)]
)
def test_what_looks_like_a_document(text: str, expected: bool) -> None:
    """The root element tells."""
    assert expected == FORMATS["nvidia-smi-xml"].sniff(text)
