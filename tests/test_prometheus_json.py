"""Answers of the Prometheus API, as people keep them: one or many, whole or cut off."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import SourceError
from detector.frame import Frame
from detector.sources import prometheus_json
from detector.sources.recording import Problems, ReadOptions, read_recording
from detector.sources.text import CHUNK

START = 1_772_438_400.0
A, B = "GPU-aaaaaaaa-0000-4000-8000-00000000000a", "GPU-bbbbbbbb-0000-4000-8000-00000000000b"
UTIL, TEMP, XID = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS"

Told = dict[str, Any]


def named(name: str, uuid: str = A, **labels: str) -> dict[str, str]:
    return {"__name__": name, "UUID": uuid, "gpu": "0" if uuid == A else "1", "Hostname": "node-a", **labels}


def vector(*values: tuple[str, str, object], second: float = 0.0) -> Told:
    """The answer to `query`: (name, uuid, value) at one moment."""
    result = [{"metric": named(name, uuid), "value": [START + second, str(value)]} for name, uuid, value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def matrix(*series: tuple[str, str, Sequence[object]], step: float = 15.0) -> Told:
    """The answer to `query_range`: (name, uuid, values), None where there is none."""
    result = [
        {"metric": named(name, uuid), "values": [[START + n * step, str(v)] for n, v in enumerate(values) if v is not None]}
        for name, uuid, values in series
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def recorded(path: Path, text: str, problems: Problems | None = None, **options: object) -> list[Frame]:
    file = path / "answer.json"
    file.write_text(text)
    return list(read_recording(file, options=ReadOptions(**options), problems=problems))  # type: ignore[arg-type]


def told(frames: Iterable[Frame], metric: str = "temperature_celsius") -> list[tuple[float, dict[str, float]]]:
    return [(round(f.at - START, 3), {d.uuid: f.reading(d.uuid, metric) for d in f.devices}) for f in frames]


# -- answers ------------------------------------------------------------------------------------------------------------------
def test_a_vector_is_one_look(tmp_path: Path) -> None:
    """All series of one moment are one frame; values are strings, and pods own nothing."""
    answer = vector((TEMP, A, 32), (TEMP, B, "3.3e1"), (UTIL, A, 7))
    for series in answer["data"]["result"]:
        series["metric"] |= {"pod": "dcgm-exporter-zxgzh", "container": "exporter", "instance": "10.0.0.7:9400", "modelName": "NVIDIA L40S"}

    (frame,) = recorded(tmp_path, json.dumps(answer))

    assert [(0.0, {A: 32.0, B: 33.0})] == told([frame])
    assert 7.0 == frame.reading(A, "utilization_percent")
    assert ("node-a", "NVIDIA L40S", {}) == (frame.host, frame.devices[0].name, dict(frame.processes))


def test_a_matrix_is_a_recording(tmp_path: Path) -> None:
    """Series after series becomes moment after moment; a GPU whose series ends is missing from then on."""
    answer = matrix((TEMP, A, [40, 41, 42]), (TEMP, B, [50, 51, None]), (UTIL, A, [1, 2, 3]))

    frames = recorded(tmp_path, json.dumps(answer))

    assert [(0.0, {A: 40.0, B: 50.0}), (15.0, {A: 41.0, B: 51.0}), (30.0, {A: 42.0})] == told(frames)
    assert [1.0, 2.0, 3.0] == [frame.reading(A, "utilization_percent") for frame in frames]


ANSWERS = [vector((TEMP, A, 40 + n), second=15.0 * n) for n in (1, 0, 2)]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(json.dumps(answer) for answer in ANSWERS),
        "".join(json.dumps(answer) for answer in ANSWERS),
        json.dumps(ANSWERS),
        "\n".join(json.dumps(answer, indent=2) for answer in ANSWERS),
        json.dumps(ANSWERS[0]["data"]["result"] + ANSWERS[1]["data"]["result"] + ANSWERS[2]["data"]["result"]),
    ],
    ids=["one a line", "without line ends", "an array", "indented", "results only"],
)
def test_many_answers_in_one_file(tmp_path: Path, text: str) -> None:
    """However they were put together, in whichever order, they are one timeline."""
    assert [(0.0, {A: 40.0}), (15.0, {A: 41.0}), (30.0, {A: 42.0})] == told(recorded(tmp_path, text))


def test_a_query_for_each_metric(tmp_path: Path) -> None:
    """Answers within half a second of each other are one look."""
    answers = [vector((TEMP, A, 40)), vector((UTIL, A, 9), second=0.2)]

    (frame,) = recorded(tmp_path, "\n".join(map(json.dumps, answers)))

    assert (40.0, 9.0) == (frame.reading(A, "temperature_celsius"), frame.reading(A, "utilization_percent"))


def test_an_export_of_victoriametrics(tmp_path: Path) -> None:
    """Numbers beside their milliseconds."""
    line = json.dumps({"metric": named(TEMP), "values": [40, 41], "timestamps": [START * 1000, START * 1000 + 15000]})

    assert [(0.0, {A: 40.0}), (15.0, {A: 41.0})] == told(recorded(tmp_path, line))


def test_a_series_may_be_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    """An indented answer comes in pieces."""
    text = json.dumps(matrix((TEMP, A, [n % 90 for n in range(15_000)]), (TEMP, B, [1, 2])), indent=1)

    frames = recorded(tmp_path, text)

    assert len(text) > 2 * CHUNK
    assert 15_000 == len(frames)
    assert (15.0, {A: 1.0, B: 2.0}) == told(frames)[1]


def test_labels_of_another_exporter(tmp_path: Path) -> None:
    """nvidia_gpu_exporter gives the uuid without its beginning, ratios for percents and Hertz for Megahertz."""
    labels = {"uuid": A.removeprefix("GPU-"), "instance": "box:9835"}
    told = {"nvidia_smi_utilization_gpu_ratio": "0.41", "nvidia_smi_clocks_current_sm_clock_hz": "1.41e+09", "nvidia_smi_gpu_info": "1"}
    result = [{"metric": {"__name__": name, **labels, "name": "RTX 4090"}, "value": [START, value]} for name, value in told.items()]

    (frame,) = recorded(tmp_path, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}))

    assert ("box", [(A, "RTX 4090")]) == (frame.host, [(device.uuid, device.name) for device in frame.devices])
    assert (41.0, 1410.0) == (frame.reading(A, "utilization_percent"), frame.reading(A, "sm_clock_mhz"))


# -- Xids -----------------------------------------------------------------------------------------------------------------------
def test_an_xid_in_a_range_is_an_event(tmp_path: Path) -> None:
    """It happened when the gauge changed."""
    frames = recorded(tmp_path, json.dumps(matrix((XID, A, [0, 0, 48, 48]), (TEMP, A, [40] * 4))))

    assert [(30.0, 48, A)] == [(e.at - START, e.code, e.uuid) for frame in frames for e in frame.events]


def test_an_answer_about_xids_alone_is_history(tmp_path: Path) -> None:
    """A query for other fields first does not make the code that is shown since days an event of today."""
    answers = [vector((TEMP, A, 40)), vector((XID, A, 31), second=5.0), vector((XID, A, 31), second=65.0)]

    assert [] == [e for frame in recorded(tmp_path, "\n".join(map(json.dumps, answers))) for e in frame.events]


# -- what is not whole ----------------------------------------------------------------------------------------------------------
def test_an_answer_that_was_cut_off_loses_its_last_series(tmp_path: Path) -> None:
    """The rest is read, and the loss is said."""
    problems = Problems()
    text = json.dumps(matrix((TEMP, A, [40, 41]), (TEMP, B, [50, 51])))

    assert [(0.0, {A: 40.0}), (15.0, {A: 41.0})] == told(recorded(tmp_path, text[:-40], problems))
    assert [f"{tmp_path / 'answer.json'}, line 1: a series is cut off or damaged"] == problems.lines()


def test_damage_in_the_middle_loses_one_series(tmp_path: Path) -> None:
    """What begins after it is found again, and the line is right."""
    problems = Problems()
    lines = [json.dumps(answer) for answer in ANSWERS]
    lines[1] = lines[1].replace('"value": [', '"value": [[[')

    assert [(15.0, {A: 41.0}), (30.0, {A: 42.0})] == told(recorded(tmp_path, "\n".join(lines), problems))
    assert [f"{tmp_path / 'answer.json'}, line 2: a series is cut off or damaged"] == problems.lines()


@pytest.mark.parametrize("bad", [[START, "x"], [START], ["x", "1"], [None, "1"], [5, "1"], [START, None], "ab", {}, 7, [True, "1"]])
def test_a_bad_sample_is_one_sample_lost(tmp_path: Path, bad: object) -> None:
    """The others of its series are read."""
    problems = Problems()
    answer = matrix((TEMP, A, [40, 41, 42]))
    answer["data"]["result"][0]["values"][1] = bad

    assert [(0.0, {A: 40.0}), (30.0, {A: 42.0})] == told(recorded(tmp_path, json.dumps(answer), problems))
    assert 1 == len(problems)


@pytest.mark.parametrize(
    "series", [{"metric": {"gpu": "0"}, "value": [START, "1"]}, {"metric": named(TEMP)}, {"metric": named(TEMP), "values": 3}]
)
def test_a_bad_series_is_one_series_lost(tmp_path: Path, series: Told) -> None:
    """One without a name (the result of an expression) or without values is said; the others are read."""
    problems = Problems()
    answer = vector((TEMP, A, 40))
    answer["data"]["result"].insert(0, series)

    assert [(0.0, {A: 40.0})] == told(recorded(tmp_path, json.dumps(answer), problems))
    assert 1 == len(problems)


def test_an_error_is_repeated(tmp_path: Path) -> None:
    """Where the answer is that there is none, the reason is what Prometheus says."""
    answer = {"status": "error", "errorType": "bad_data", "error": 'invalid parameter "query"'}

    with pytest.raises(SourceError, match=r"answered with an error: invalid parameter"):
        recorded(tmp_path, json.dumps(answer))


def test_an_error_among_answers_is_one_answer_lost(tmp_path: Path) -> None:
    """It is said once, with its line, and the others are read."""
    problems = Problems()
    error = {"status": "error", "errorType": "timeout", "error": "query timed out"}
    lines = [json.dumps(answer) for answer in (ANSWERS[1], ANSWERS[0], error, ANSWERS[2])]

    assert [(0.0, {A: 40.0}), (15.0, {A: 41.0}), (30.0, {A: 42.0})] == told(recorded(tmp_path, "\n".join(lines), problems))
    assert [f"{tmp_path / 'answer.json'}, line 3: Prometheus answered with an error: query timed out"] == problems.lines()


@pytest.mark.parametrize("result", ["[]", '[{"metric":{"__name__":"up"},"value":[1772438400,"1"]}]'])
def test_an_answer_without_gpus_is_refused(tmp_path: Path, result: str) -> None:
    """An empty answer, or one about other things."""
    with pytest.raises(SourceError, match=r"answer\.json"):
        recorded(tmp_path, f'{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}')


@pytest.mark.parametrize(
    "head",
    [
        '{"status": "success"}',
        '{"at": 1.0, "devices": [{"uuid": "GPU-a", "readings": {}}], "metric": {}}',
        '{"54": {"host-a": {"0": {"dcgm_gpu_utilization": "0"}}}}',
        "timestamp, index\n",
        f'{TEMP}{{metric="a"}} 4\n',
        "",
    ],
)
def test_other_formats_are_left_to_others(head: str) -> None:
    """Only an answer, or a series of one, is an answer."""
    assert prometheus_json.sniff(head) is False


@given(cut=st.integers(0, 400), gap=st.integers(0, 60), junk=st.sampled_from(["", '"', "}", "]", "[" * 50, '{"metric":{', "\n", "\\"]))
def test_damage_never_makes_a_reading(tmp_path_factory: pytest.TempPathFactory, cut: int, gap: int, junk: str) -> None:
    """A hole or junk anywhere: what is still read of a GPU was in the file, or the file is refused."""
    text = json.dumps(matrix((TEMP, A, [41, 42]), (TEMP, B, [51, 52])))
    damaged = text[:cut] + junk + text[cut + gap :]

    with suppress(SourceError):
        for at, readings in told(recorded(tmp_path_factory.mktemp("damage"), damaged, format="prometheus-json")):
            if at in (0.0, 15.0) and gap == 0:
                assert {reading for reading in readings.values() if not math.isnan(reading)} <= {41.0, 42.0, 51.0, 52.0}
