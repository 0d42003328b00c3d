"""Moments in every style that GPU logs come in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import ConfigError
from detector.sources.timestamps import UNDATED, Timestamps, zone_of

EIGHT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC).timestamp()


@pytest.fixture
def honolulu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's own zone is Honolulu, ten hours behind UTC and without summer time."""
    monkeypatch.setenv("TZ", "Pacific/Honolulu")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        "2026/03/02 08:00:00.000",
        " 2026/03/02 08:00:00 ",
        "2026-03-02 08:00",
        "2026-03-02T08:00:00Z",
        "2026-03-02T08:00:00.0000000Z",
        "2026-03-02 08:00:00,000 UTC",
        "2026-03-02T16:00:00+08:00",
        "2026-03-02T13:30:00.000+0530",
        "2026-03-02 03:00:00-05",
        "20260302T080000Z",
        "20260302_080000",
        "Mon Mar  2 08:00:00 2026",
        "Mon Mar  2 08:00:00 UTC 2026",
        "1772438400",
        "1772438400.0",
        "1772438400000",
        "1772438400000000",
        "1772438400000000000",
    ],
)
def test_one_moment_in_all_its_styles(text: str) -> None:
    """However a log writes eight o'clock, it is eight o'clock."""
    assert EIGHT == Timestamps("UTC").read(text)


@pytest.mark.parametrize(
    "text", ["", "N/A", "P0", "8188 MiB", "02/03/2026 08:00:00", "2026/13/02 08:00:00", "2026/02/31 08:00:00", "2026/03/02 08:00:99",
             "2026/03/02 0", "08:00:00", "99999999999", "nan", "Foo Bar 99 08:00:00 2026"],
)  # fmt: skip
def test_what_is_no_moment_is_nan(text: str) -> None:
    """Half a moment, an ambiguous one (day or month first?) and a word are none."""
    assert np.isnan(Timestamps("UTC").read(text))
    assert np.isnan(Timestamps("UTC").column([text])[0])


def test_small_numbers_count_from_a_fixed_start() -> None:
    """Seconds since a start that nobody wrote down begin at the documented one."""
    assert [UNDATED, UNDATED + 0.5] == Timestamps("UTC").column(["0.0", "0.5"]).tolist()


def test_naive_times_are_the_zone_s() -> None:
    """A time without a zone is in the zone that was asked for."""
    assert EIGHT - 3600 == Timestamps("Europe/Berlin").read("2026/03/02 08:00:00.000")


@pytest.mark.usefixtures("honolulu")
def test_naive_times_are_the_machine_s_without_a_zone() -> None:
    """TZ is honoured, and times that name their zone do not care."""
    stamps = Timestamps()

    assert EIGHT + 36_000 == stamps.read("2026/03/02 08:00:00.000")
    assert EIGHT == stamps.read("2026-03-02T08:00:00Z")


def test_the_hour_that_comes_twice_is_told_by_the_order() -> None:
    """When clocks go back, times that seem to run backwards are the second hour; they keep their distance to what came before."""
    first = datetime(2025, 10, 26, 0, 0, tzinfo=UTC)  # 02:00 in Berlin, summer time
    moments = [first + timedelta(minutes=10 * n) for n in range(18)]
    cells = [f"{moment.astimezone(ZoneInfo('Europe/Berlin')):%Y/%m/%d %H:%M:%S}.000" for moment in moments]

    assert [moment.timestamp() for moment in moments] == Timestamps("Europe/Berlin").column(cells).tolist()


def test_the_hour_that_is_skipped_stays_in_order() -> None:
    """When clocks go forward, the times around the gap are an hour less apart than they look."""
    at = Timestamps("Europe/Berlin").column(["2026/03/29 01:59:59.000", "2026/03/29 03:00:00.000"])

    assert 1.0 == at[1] - at[0]


def test_styles_may_change_within_a_column() -> None:
    """A logger that is restarted with another format does not confuse the fast path."""
    cells = ["2026-03-02T08:00:00.5Z", "2026-03-02T08:00:01.5Z", "2026-03-02 08:00:02.5", "2026-03-02T10:00:03.5+02:00", "1772438404.5"]

    assert [EIGHT + n + 0.5 for n in range(5)] == Timestamps("UTC").column(cells).tolist()


def test_a_torn_cell_does_not_borrow_the_minute_of_its_neighbour() -> None:
    """A cell that begins like the one before and ends in something else is no moment."""
    at = Timestamps("UTC").column(["2026/03/02 08:00:01.000", "2026/03/02 08:00:2026/03", "2026/03/02 08:00:75", "2026/03/02 08:00:"])

    assert [False, True, True, True] == np.isnan(at).tolist()


@pytest.mark.parametrize(
    ("text", "style"),
    [("1772438400", "absolute"), ("2026-03-02T08:00:00Z", "absolute"), ("2026/03/02 08:00:00", "naive"), ("12.5", "elapsed"), ("P0", None)],
)
def test_style(text: str, style: str | None) -> None:
    """What a time says of its zone decides which of two time columns is believed."""
    assert style == Timestamps("UTC").style(text)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "Europe"])
def test_an_unknown_zone_is_an_error_with_a_way_out(name: str) -> None:
    """A zone that does not exist names itself and examples of some that do."""
    with pytest.raises(ConfigError, match="give one such as Europe/Berlin"):
        zone_of(name)


@given(
    st.datetimes(datetime(1995, 1, 1), datetime(2090, 1, 1)),
    st.sampled_from([ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns"), ZoneInfo("Asia/Kathmandu")]),
    st.sampled_from([" ", "T"]),
    st.sampled_from(["-", "/"]),
    st.integers(0, 6),
)
def test_a_time_with_an_offset_is_read_back(moment: datetime, zone: ZoneInfo, between: str, dash: str, digits: int) -> None:
    """Any moment, in any zone and with any number of digits, comes back as it was, up to the digits."""
    local = moment.replace(tzinfo=UTC).astimezone(zone)
    fraction = f".{local.microsecond:06d}"[: digits + 1] if digits else ""
    text = f"{local:%Y{dash}%m{dash}%d{between}%H:%M:%S}{fraction}{local:%z}"

    read = Timestamps("UTC").column([text, text])

    assert moment.replace(tzinfo=UTC).timestamp() == pytest.approx(read[0], abs=10.0**-digits, rel=0)
    assert read[0] == read[1]


@given(st.lists(st.text(max_size=30) | st.from_regex(r"[0-9/: .TZ+-]{1,30}"), max_size=20))
def test_any_text_is_a_moment_or_none(cells: list[str]) -> None:
    """Whatever stands in a column, reading it raises nothing, and cell by cell gives the same as all at once."""
    stamps = Timestamps("UTC")
    at = Timestamps("UTC").column(cells)

    assert np.array_equal(at, [stamps.read(cell) for cell in cells], equal_nan=True)
