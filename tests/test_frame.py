"""What every source yields."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.frame import Device, Frame, pack

NAMES = ("utilization_percent", "power_watts", "temperature_celsius")
READINGS = st.lists(st.dictionaries(st.sampled_from(NAMES), st.floats(allow_nan=True, allow_infinity=True)), max_size=4)


def frame_of(rows: list[dict[str, float]]) -> Frame:
    metrics, values = pack(rows)
    return Frame("node-a", 0.0, tuple(Device(f"GPU-{n}") for n in range(len(rows))), metrics, values)


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        (Device("GPU-0"), "gpu"),
        (Device("INDEX-0", index=0), "gpu"),
        (Device("MIG-0"), "mig"),
        (Device("GPU-0/3/0", parent="GPU-0"), "mig"),
    ],
)
def test_a_part_of_a_gpu_is_a_mig_instance(device: Device, kind: Literal["gpu", "mig"]) -> None:
    """Known by its uuid or by its parent."""
    assert kind == device.kind


@given(READINGS)
def test_packed_readings_are_found_again(rows: list[dict[str, float]]) -> None:
    """A row a device; what is not there is NaN, and so is what nobody has."""
    frame = frame_of(rows)

    assert (len(rows), len(frame.metrics)) == frame.values.shape
    assert np.float64 == frame.values.dtype
    for n, row in enumerate(rows):
        for name in (*NAMES, "sm_clock_mhz"):
            np.testing.assert_equal(frame.reading(f"GPU-{n}", name), row.get(name, math.nan))


def test_a_reading_of_an_unknown_device_is_missing() -> None:
    """Missing, not an error."""
    assert math.isnan(frame_of([{"power_watts": 1.0}]).reading("GPU-9", "power_watts"))


def test_columns_may_be_given() -> None:
    """In their order; others are left out, and a None is a missing reading."""
    metrics, values = pack([{"power_watts": 1.0, "sm_clock_mhz": 2.0}, {"power_watts": None}], ("power_watts", "ecc_mode"))  # type: ignore[dict-item]

    assert ("power_watts", "ecc_mode") == metrics
    np.testing.assert_equal(values, [[1.0, math.nan], [math.nan, math.nan]])


def test_columns_come_in_the_order_they_are_met() -> None:
    """Each once."""
    assert ("power_watts", "ecc_mode") == pack([{"power_watts": 1.0}, {"ecc_mode": 1.0, "power_watts": 1.0}])[0]


def test_nothing_packs_into_nothing() -> None:
    """A frame without devices has no rows."""
    metrics, values = pack([])

    assert () == metrics
    assert (0, 0) == values.shape == Frame("node-a", 0.0).values.shape


def test_what_has_an_identity_does_not_change() -> None:
    """Frames and devices are values, and devices are equal by what they say."""
    with pytest.raises(FrozenInstanceError):
        Frame("node-a", 0.0).at = 1.0  # type: ignore[misc]
    assert Device("GPU-0", index=0) == Device("GPU-0", index=0)
    assert 2 == len({Device("GPU-0", index=0), Device("GPU-0", index=1), Device("GPU-0", index=0)})


def test_frames_do_not_share_what_was_left_out() -> None:
    """Each has its own empty values."""
    assert Frame("a", 0.0).values is not Frame("b", 0.0).values
