"""Why the clocks of a GPU are low, in words."""

from __future__ import annotations

from typing import Final

from detector.window import Window

_REASONS: Final = {
    "power_brake_active": "the power brake is pulled",
    "hw_thermal_active": "hardware slows it down for heat",
    "sw_thermal_active": "software slows it down for heat",
    "hw_slowdown_active": "hardware slows it down",
}
"""The most telling first: a brake or heat sets `hw_slowdown_active`, too."""


def why_slow(window: Window, n: int) -> str:
    """What is to be seen now of row *n* that could hold its work back."""
    seen = [words for flag, words in _REASONS.items() if window.last(flag)[n] == 1][:1]
    power, limit = window.last("power_watts")[n], window.last("power_limit_watts")[n]
    if window.last("sw_power_cap_active")[n] == 1:
        seen.append(f"the driver caps its power, at {power:.0f} of {limit:.0f} W" if power < limit else "it is at its power limit")
    default = window.last("power_default_limit_watts")[n]
    if limit < 0.95 * default:
        seen.append(f"its power limit is {limit:.0f} of {default:.0f} W")
    lanes, most = window.last("pcie_link_width")[n], window.last("pcie_link_width_max")[n]
    if lanes < most:
        seen.append(f"its PCIe link has {lanes:.0f} of {most:.0f} lanes")
    return ", ".join(seen) or "the driver gives no reason"
