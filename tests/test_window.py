"""What can be asked of the newest readings, held against plain bookkeeping over lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from traces import GIB, START

from detector.frame import Device, Process
from detector.model import Scores
from detector.ring import TIERS, Ring
from detector.window import Stat, Subject, Window

POWER, ENERGY, LIMIT = "power_watts", "energy_joules_total", "power_limit_watts"
LONGEST = TIERS[-1][0] * (TIERS[-1][1] - 1)
NAN = math.nan


@dataclass
class Recording:
    """A ring of a few rows a host, written row by row in the order of arrival; and the list of all that was written."""

    ring: Ring = field(default_factory=lambda: Ring("device", (POWER, ENERGY)))
    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)
    arrived: list[tuple[str, int, str, float, float]] = field(default_factory=list)
    """(host, device, metric, at, value), missing ones left out."""

    def put(self, host: str, device: int, at: float, readings: Mapping[str, float]) -> None:
        if (host, device) not in self.rows:
            self.rows[host, device] = self.ring.add(host, device, at)
        self.now[host] = max(at, self.now.get(host, at))
        columns = self.ring.columns(tuple(readings))
        self.ring.put(host, at, np.array([self.rows[host, device]]), columns, np.array([list(readings.values())]))
        self.arrived += [(host, device, metric, at, value) for metric, value in readings.items() if not math.isnan(value)]

    def window(self, host: str, interval: float = 1.0) -> Window:
        rows = np.array(self.ring.rows(host), np.intp)
        now = self.now[host]
        heads = self.ring.head(host, now)
        subjects = [Subject(host, Device(f"GPU-{n}")) for n in range(len(rows))]
        return Window(self.ring, rows, subjects, heads=heads, now=np.full(len(rows), now), interval=np.full(len(rows), interval))

    def readings(self, host: str, device: int, metric: str) -> list[tuple[float, float]]:
        """(at, value) in the order of arrival."""
        return [(at, value) for h, d, m, at, value in self.arrived if (h, d, m) == (host, device, metric)]

    def rises(self, host: str, device: int, metric: str) -> list[tuple[float, float]]:
        """(at, rise) of a counter: what arrives late is not news, a fall is a reset, the first value a baseline."""
        newest, rises = None, []
        for at, value in self.readings(host, device, metric):
            rise = 0.0
            if newest is None or at >= newest[0]:
                rise = max(0.0, value - newest[1]) if newest else 0.0
                newest = (at, value)
            rises.append((at, rise))
        return rises


def recorded(moments: Sequence[float], *values: float) -> Recording:
    """One device, one power reading a moment."""
    recording = Recording()
    for at, value in zip(moments, values, strict=True):
        recording.put("node-a", 0, START + at, {POWER: value})
    return recording


def reach(lookback: float, now: float) -> tuple[float, float]:
    """(width of a bucket, where the oldest one begins) for the finest tier that reaches so far."""
    width = next(width for width, slots in TIERS if math.ceil(lookback / width) + 1 <= slots)
    return width, (math.floor(now / width) - math.ceil(lookback / width)) * width


# -- against plain bookkeeping ------------------------------------------------------------------------------------------------

SECONDS = st.sampled_from([0.0, 0.25, 1.0, 1.0, 1.0, 5.0, 10.0, 30.0, 60.0, 61.5, 300.0, 3_600.0, 43_200.0])
LATE = st.sampled_from([0.0, 0.0, 0.0, 0.5, 3.0, 45.0, 600.0, 20_000.0])
WATTS = st.one_of(st.floats(0.0, 1_000.0, width=32), st.just(NAN))
JOULES = st.one_of(st.integers(0, 10_000).map(float), st.just(NAN))
ARRIVALS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), SECONDS, LATE, WATTS, JOULES), min_size=1, max_size=50)
LOOKBACK = st.one_of(st.sampled_from([1.0, 60.0, 300.0, 3_600.0, LONGEST]), st.floats(1.0, LONGEST))


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Two hosts with clocks of their own, two devices each; readings irregular, late, twice or missing, over up to two days."""
    offsets = (0.0, draw(st.sampled_from([0.0, 0.4, -3_600.0, 86_400.0 * 300])))
    recording, elapsed = Recording(), 0.0
    for host, device, seconds, late, watts, joules in draw(ARRIVALS):
        elapsed = min(elapsed + seconds, 2 * 86_400.0)
        readings = {POWER: watts, ENERGY: joules}
        for _ in range(draw(st.integers(1, 2)) if seconds == 0.25 else 1):
            recording.put(f"node-{host}", device, START + offsets[host] + elapsed - late, readings)
    return recording


def expected(recording: Recording, host: str, lookback: float, metric: str, ask: Callable[[list[float]], float]) -> list[float]:
    """What *ask* says of each device's values in the look-back, NaN where there are none."""
    _, oldest = reach(lookback, recording.now[host])
    rows = [device for h, device in recording.rows if h == host]
    source = recording.rises if metric == ENERGY else recording.readings
    told = []
    for device in rows:
        values = [value for at, value in source(host, device, metric) if at >= oldest]
        told.append(ask(values) if values else NAN)
    return told


@settings(max_examples=150)
@given(recordings(), LOOKBACK)
def test_over_time_functions_are_what_plain_bookkeeping_says(recording: Recording, lookback: float) -> None:
    """Each answer over the readings since the oldest bucket began, to the precision in which buckets keep them."""
    for host in recording.now:
        window = recording.window(host)

        def agrees(actual: NDArray[np.float64], metric: str, ask: Callable[[list[float]], float], host: str = host) -> None:
            np.testing.assert_allclose(actual, expected(recording, host, lookback, metric, ask), rtol=1e-5, atol=1e-3)

        agrees(window.min(POWER, lookback), POWER, min)
        agrees(window.max(POWER, lookback), POWER, max)
        agrees(window.mean(POWER, lookback), POWER, lambda values: sum(values) / len(values))
        agrees(window.increase(ENERGY, lookback), ENERGY, sum)
        agrees(np.where(window.count(POWER, lookback), window.count(POWER, lookback), NAN), POWER, len)


@settings(max_examples=100)
@given(recordings(), LOOKBACK)
def test_series_are_what_plain_bookkeeping_says(recording: Recording, lookback: float) -> None:
    """Bucket by bucket: mean, minimum and maximum; and the least-squares slope over the means."""
    for host, now in recording.now.items():
        window = recording.window(host)
        width, oldest = reach(lookback, now)
        buckets = math.ceil(lookback / width) + 1
        devices = [device for h, device in recording.rows if h == host]
        table: dict[Stat, list[list[float]]] = {"mean": [], "min": [], "max": []}
        for device in devices:
            cells: list[list[tuple[float, float]]] = [[] for _ in range(buckets)]
            for at, value in recording.readings(host, device, POWER):
                if at >= oldest:
                    cells[math.floor((at - oldest) / width)].append((at, value))
            values = [[value for _, value in cell] for cell in cells]
            table["mean"].append([sum(v) / len(v) if v else NAN for v in values])
            table["min"].append([min(v, default=NAN) for v in values])
            table["max"].append([max(v, default=NAN) for v in values])
        for stat, columns in table.items():
            times, actual = window.values(POWER, lookback, stat)
            np.testing.assert_allclose(actual, np.array(columns).T, rtol=1e-5, atol=1e-3)
            assert [(n - buckets + 1) * width for n in range(buckets)] == times.tolist()
        times, _ = window.values(POWER, lookback)
        for n, means in enumerate(table["mean"]):
            seen = ~np.isnan(means)
            fit = np.polyfit(times[seen], np.array(means)[seen], 1)[0] if seen.sum() >= 3 else NAN
            np.testing.assert_allclose(window.slope(POWER, lookback)[n], fit, rtol=1e-3, atol=1e-4)


@settings(max_examples=100)
@given(recordings(), LOOKBACK)
def test_a_look_back_reaches_as_far_as_asked_and_hardly_further(recording: Recording, lookback: float) -> None:
    """At most one bucket beyond a whole number of buckets."""
    for host, now in recording.now.items():
        width, _ = reach(lookback, now)
        whole = math.ceil(lookback / width) * width
        for n, device in enumerate(d for h, d in recording.rows if h == host):
            moments = [at for at, _ in recording.readings(host, device, POWER)]
            asked = sum(at >= now - lookback for at in moments)
            most = sum(at > now - whole - width for at in moments)
            assert asked <= recording.window(host).count(POWER, lookback)[n] <= most


@settings(max_examples=100)
@given(recordings())
def test_the_newest_reading_is_the_newest_by_its_time(recording: Recording) -> None:
    """Not by its arrival; and none is said of a sensor that has fallen silent."""
    for host, now in recording.now.items():
        window = recording.window(host)
        for n, device in enumerate(d for h, d in recording.rows if h == host):
            newest = None
            for at, value in recording.readings(host, device, POWER):
                newest = (at, value) if newest is None or at >= newest[0] else newest
            fresh = newest is not None and now - newest[0] <= 5.0
            np.testing.assert_equal(window.last(POWER)[n], newest[1] if newest and fresh else NAN)
            assert window.ever(POWER)[n] == (newest is not None)


@settings(max_examples=100)
@given(recordings(), LOOKBACK, st.sampled_from([1.0, 10.0, 60.0]))
def test_presence_is_a_share(recording: Recording, lookback: float, interval: float) -> None:
    """Between 0 and 1; 0 where fewer than three readings are."""
    for host in recording.now:
        window = recording.window(host, interval)
        share = window.present(POWER, lookback)
        assert ((share >= 0) & (share <= 1)).all()
        assert (share[window.count(POWER, lookback) < 3] == 0).all()


# -- counters -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "increase"),
    [
        ([7.0], 0.0),  # the first value is a baseline, however high
        ([7.0, 7.0, 9.0, 10.0], 3.0),
        ([7.0, 9.0, 0.0, 1.0], 3.0),  # a reload
        ([7.0, 9.0, 8.0, 12.0], 6.0),  # a fall is a reset even to a high value
        ([7.0, NAN, NAN, 9.0], 2.0),
        ([NAN, 9.0], 0.0),
        ([NAN], NAN),
    ],
)
def test_a_counter_rises_and_is_reset(values: list[float], increase: float) -> None:
    """A fall is a reset, never a negative rise."""
    recording = Recording()
    for n, value in enumerate(values):
        recording.put("node-a", 0, START + n, {ENERGY: value})

    np.testing.assert_equal(recording.window("node-a").increase(ENERGY, 60.0), [increase])


def test_a_rise_counts_when_it_is_seen_however_long_nobody_looked() -> None:
    """The counter was read yesterday and is higher today: that is an increase within this minute."""
    recording = Recording()
    recording.put("node-a", 0, START, {ENERGY: 5.0})
    recording.put("node-a", 0, START + 86_400, {ENERGY: 8.0})

    assert [3.0] == recording.window("node-a").increase(ENERGY, 60.0).tolist()


@given(st.lists(st.integers(0, 50), min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_a_late_reading_of_a_counter_is_no_reset(steps: list[int], random: Random) -> None:
    """Whatever arrives late or twice: in the end the counter rose by what lies between its oldest and its newest value."""
    recording = Recording()
    values = np.cumsum(steps).astype(float).tolist()
    for n, value in enumerate(values):
        recording.put("node-a", 0, START + n, {ENERGY: value})
        late = random.randrange(n + 1)
        recording.put("node-a", 0, START + late, {ENERGY: values[late]})

    assert [values[-1] - values[0]] == recording.window("node-a").increase(ENERGY, 60.0).tolist()


def test_small_rises_of_a_large_counter_are_not_lost() -> None:
    """One more error is one more, also in the life of a counter beyond sixteen million."""
    recording = Recording()
    for n in range(10):
        recording.put("node-a", 0, START + n, {ENERGY: 2.0**40 + n})

    assert [9.0] == recording.window("node-a").increase(ENERGY, 60.0).tolist()


# -- presence -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1.0, 5.0, 10.0, 30.0])
def test_a_steady_recording_is_present_in_full(step: float) -> None:
    """At any usual sampling, jitter included."""
    jitter = [0.0, 0.3, -0.3, 0.1, 0.4, -0.4, 0.2]
    moments = [n * step + step * jitter[n % 7] for n in range(int(900 / step))]

    assert recorded(moments, *[1.0] * len(moments)).window("node-a", step).present(POWER, 300.0) >= 0.9


def test_half_a_recording_is_half_present() -> None:
    """The sensor fell silent in the middle of the look-back."""
    recording = Recording()
    for n in range(601):
        recording.put("node-a", 0, START + n, {POWER: 1.0 if n < 300 or n > 450 else NAN})

    assert 0.5 == pytest.approx(recording.window("node-a").present(POWER, 300.0)[0], abs=0.05)


def test_sparse_readings_prove_nothing_about_a_short_time() -> None:
    """Four readings in four minutes say nothing of these four minutes."""
    assert [0.0] == recorded([0, 60, 120, 180, 240], 1.0, 1.0, 1.0, 1.0, 1.0).window("node-a", 60.0).present(POWER, 240.0).tolist()


# -- now ----------------------------------------------------------------------------------------------------------------------


def test_a_reading_goes_stale_with_its_cadence_and_its_hosts_sampling() -> None:
    """Two and a half usual intervals of the slower of both."""
    recording = Recording()
    recording.put("node-a", 0, START, {POWER: 300.0, "ecc_mode": 1.0, LIMIT: 400.0})
    for seconds, interval, watts, mode in ((5.0, 1.0, 300.0, 1.0), (6.0, 1.0, NAN, 1.0), (25.0, 10.0, 300.0, 1.0), (151.0, 1.0, NAN, NAN)):
        recording.now["node-a"] = START + seconds
        window = recording.window("node-a", interval)
        np.testing.assert_equal(window.last(POWER), [watts])
        np.testing.assert_equal(window.last("ecc_mode"), [mode])


def test_a_limit_holds_until_it_changes() -> None:
    """However long ago it was read."""
    recording = Recording()
    recording.put("node-a", 0, START, {LIMIT: 400.0})
    recording.put("node-a", 0, START + 86_400 * 3, {LIMIT: NAN, POWER: 1.0})

    assert [400.0] == recording.window("node-a").last(LIMIT).tolist()


def test_age_counts_from_the_first_frame() -> None:
    """Seconds, by the host's own clock."""
    assert [90.0] == recorded([0, 30, 90], 1.0, 1.0, 1.0).window("node-a").age.tolist()


def test_a_series_may_be_filled() -> None:
    """An empty bucket repeats the one before it; before the first reading there is nothing to repeat."""
    _, filled = recorded([0, 1, 4], 7.0, 8.0, 9.0).window("node-a").filled(POWER, 6.0)

    np.testing.assert_equal(filled[:, 0], [NAN, NAN, 7.0, 8.0, 8.0, 8.0, 9.0])


def test_the_last_value_of_a_bucket_is_its_newest() -> None:
    """A late reading of the same bucket does not displace it."""
    recording = Recording()
    for at, value in ((0.2, 1.0), (0.9, 3.0), (0.5, 2.0)):
        recording.put("node-a", 0, START + at, {POWER: value})

    assert 3.0 == recording.window("node-a").values(POWER, 1.0, "last")[1][-1, 0]


# -- rows ---------------------------------------------------------------------------------------------------------------------


def three_gpus() -> Window:
    recording = Recording()
    for n in range(30):
        for device in range(3):
            recording.put("node-a", device, START + n, {POWER: 100.0 * device + n})
    return recording.window("node-a")


@pytest.mark.parametrize("places", [[], [0], [2], [1, 2], [2, 0], [0, 1, 2]])
def test_a_part_of_a_window_says_the_same(places: list[int]) -> None:
    """By indices or by a mask, and scores go along."""
    window = three_gpus()
    arrays: dict[str, Any] = {each.name: np.arange(3.0) for each in fields(Scores) if each.name != "metrics"}
    window.scores = Scores(**arrays, metrics=(POWER,))
    part = window.of(np.array(places, np.intp))

    assert len(places) == len(part)
    assert [window.subjects[n] for n in places] == part.subjects
    for ask in (Window.min, Window.max, Window.mean, Window.count, Window.slope, Window.present):
        np.testing.assert_array_equal(ask(window, POWER, 20.0)[places], ask(part, POWER, 20.0))
    np.testing.assert_array_equal(window.last(POWER)[places], part.last(POWER))
    np.testing.assert_array_equal(window.values(POWER, 20.0)[1][:, places], part.values(POWER, 20.0)[1])
    assert part.scores is not None
    assert [float(n) for n in places] == part.scores.rarity.tolist()


def test_a_mask_picks_rows() -> None:
    """True is in."""
    assert ["GPU-0", "GPU-2"] == [s.device.uuid for s in three_gpus().of(np.array([True, False, True])).subjects if s.device]


def test_a_metric_without_history_is_refused() -> None:
    """The rule has to name it in `needs` or `uses`."""
    with pytest.raises(KeyError, match="temperature_celsius"):
        three_gpus().mean("temperature_celsius", 60.0)


def test_a_process_may_ask_about_its_device() -> None:
    """NaN where the device is not known."""
    devices = three_gpus()
    ring = Ring("process", ())
    homes = ["GPU-2", "GPU-0", "GPU-9", "GPU-2"]
    rows = np.array([ring.add("node-a", n, START) for n in range(4)], np.intp)
    subjects = [Subject("node-a", Device(uuid), process=Process(n)) for n, uuid in enumerate(homes)]
    heads = ring.head("node-a", START)
    window = Window(ring, rows, subjects, heads=heads, now=np.full(4, START), interval=np.ones(4), devices=devices)

    np.testing.assert_equal(window.of_devices(lambda d: d.last(POWER)), [229.0, 29.0, NAN, 229.0])
    np.testing.assert_equal(window.of(np.array([3, 2])).of_devices(lambda d: d.last(POWER)), [229.0, NAN])
    assert 0 == len(window.of(np.array([], np.intp)).of_devices(lambda d: d.last(POWER)))


@pytest.mark.parametrize(
    ("processes", "owner"),
    [
        (None, None),
        ((), None),
        ((Process(7),), "pid:7"),
        ((Process(7, 1 * GIB), Process(8, 2 * GIB)), "pid:8"),
        ((Process(7, 3 * GIB, pod="p", namespace="n"), Process(8, 2 * GIB, job="j")), "pod:n/p"),
        ((Process(7, 1 * GIB, pod="p"), Process(8, 2 * GIB, pod="p", job="j")), "job:j"),
    ],
)
def test_whose_a_device_is(processes: tuple[Process, ...] | None, owner: str | None) -> None:
    """The job, the pod or the process that holds most of its memory."""
    assert owner == Subject("node-a", Device("GPU-0"), processes).owner


def test_the_jobs_on_a_device_are_named_once() -> None:
    """In the order of its processes."""
    assert ("b", "a") == Subject("node-a", processes=(Process(1, job="b"), Process(2), Process(3, job="a"), Process(4, job="b"))).jobs
