"""The configuration: what it reads, and above all what it says of mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from detector.config import (
    Config,
    DcgmSource,
    EngineSettings,
    ModelSettings,
    Notifier,
    NvmlSource,
    PrometheusSource,
    RecordingSource,
    Service,
    SimulatorSource,
    load,
)
from detector.durations import seconds
from detector.errors import ConfigError
from detector.frame import Device, Process
from detector.incident import Severity
from detector.rule import EventRule, Rule
from detector.ruleset import Match


@dataclass(frozen=True)
class Overheating(Rule):
    severity: Severity = "warning"
    hold: float = 60.0
    limit_celsius: float = 90.0
    margin_celsius: float = 5.0
    lookback: float = 60.0
    quiet_lookback: float = 600.0
    warmup_seconds: float = 300.0
    samples: int = 3
    sensor: str = "core"
    codes: tuple[int, ...] = ()
    hosts: frozenset[str] = frozenset()
    share: Annotated[float, Field(ge=0, le=1, description="a share from 0 to 1")] = 0.5

    def __post_init__(self) -> None:
        if self.limit_celsius < self.margin_celsius:
            raise ValueError("limit_celsius must not be below margin_celsius")


@dataclass(frozen=True)
class IdleGpu(Rule):
    hold: float = 1200.0


@dataclass(frozen=True)
class Xid(EventRule):
    pass


RULES: dict[str, type[Rule] | type[EventRule]] = {"overheating": Overheating, "idle_gpu": IdleGpu, "xid": Xid}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, for files that are named as an operator names them."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of gpuwarden.toml in the current folder, with *text* in it."""
    path = Path("gpuwarden.toml")
    path.write_text(text, encoding="utf-8")
    return load(path, environ or {}, RULES)


def problems(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(text, environ)
    return str(raised.value).split("\n")


def of_environment(**variables: str) -> Config:
    return load(None, {f"GPUWARDEN_{name}": text for name, text in variables.items()}, RULES)


# -- what is read -----------------------------------------------------------------------------------------------------------------
def test_nothing_configured_is_a_service_on_this_machine() -> None:
    """Without a file and without variables every setting has a default that an operator can defend."""
    config = load(None, {"HOME": "/home/ada"}, RULES)

    assert Service(data=Path("/home/ada/.local/state/gpuwarden")) == config.service
    assert ("127.0.0.1", 9500, None) == (config.service.host, config.service.port, config.service.timezone)
    assert "sqlite:////home/ada/.local/state/gpuwarden/gpuwarden.db" == config.service.database_url.get_secret_value()
    assert NvmlSource(interval=1.0) == config.source
    assert ({}, (), ()) == (config.rules, config.overrides, config.notifiers)
    assert ModelSettings(enabled=True) == config.model
    assert EngineSettings(tick=5.0, cool_down=600.0) == config.engine
    assert [Overheating(), IdleGpu(), Xid()] == [configured.default for configured in config.ruleset().values()]


@pytest.mark.parametrize(
    ("environ", "data"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/ada"}, "/state/gpuwarden"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/ada"}, "/home/ada/.local/state/gpuwarden"),
        ({}, "gpuwarden-data"),
    ],
)
def test_data_is_kept_where_the_user_keeps_state(environ: dict[str, str], data: str) -> None:
    """The XDG state folder counts where it is absolute; a service without a home keeps its data in the current folder."""
    assert Path(data) == load(None, environ, RULES).service.data


def test_every_table_is_read(folder: Path) -> None:
    """All tables in one file, durations in each spelling, and each value in its type."""
    (folder / "my_rules").mkdir()
    config = read("""
        [service]
        host = "::1"
        port = 0
        data = "data"
        database = "postgresql+psycopg://ada:secret@db/gpus"
        timezone = "Europe/Berlin"
        rules_folder = "my_rules"
        [source]
        type = "simulator"
        gpus = 64
        speed = 60
        seed = 7
        faults = ["overheating", "xid"]
        [rules.overheating]
        severity = "critical"
        hold = "1h30m"
        keep_firing = 90
        lookback = "90s"
        quiet_lookback = "1d"
        warmup_seconds = "500ms"
        escalate_after = "never"
        limit_celsius = 80
        samples = 5
        codes = [79, 119]
        hosts = ["node-a"]
        share = 0.25
        [rules.xid]
        enabled = false
        [[overrides]]
        match = { host = "node-a", device = "0", name = "*L40S*", pod = "p", namespace = "n", job = "j" }
        rules.overheating.hold = "5m"
        rules.xid.enabled = true
        [[notifiers]]
        name = "ops"
        type = "slack"
        url = "https://hooks.example.com/T0/B0"
        min_severity = "critical"
        rules = ["xid"]
        labels = { team = "ml" }
        [model]
        enabled = "shadow"
        [engine]
        tick = 2
        cool_down = "1h"
    """)

    assert config.service == Service(
        host="::1",
        port=0,
        data=Path("data"),
        database=SecretStr("postgresql+psycopg://ada:secret@db/gpus"),
        timezone=ZoneInfo("Europe/Berlin"),
        rules_folder=Path("my_rules"),
    )
    assert config.service.database_url == config.service.database
    assert SimulatorSource(gpus=64, speed=60.0, seed=7, faults=("overheating", "xid")) == config.source
    assert config.rules["overheating"] == {
        "severity": "critical",
        "hold": 5400.0,
        "keep_firing": 90.0,
        "lookback": 90.0,
        "quiet_lookback": 86_400.0,
        "warmup_seconds": 0.5,
        "escalate_after": None,
        "limit_celsius": 80.0,
        "samples": 5,
        "codes": (79, 119),
        "hosts": frozenset({"node-a"}),
        "share": 0.25,
    }
    match = Match(host="node-a", device="0", name="*L40S*", pod="p", namespace="n", job="j")
    assert ((match, {"overheating": {"hold": 300.0}, "xid": {"enabled": True}}),) == config.overrides
    assert config.notifiers == (
        Notifier(
            name="ops",
            type="slack",
            url=SecretStr("https://hooks.example.com/T0/B0"),
            min_severity="critical",
            rules=("xid",),
            labels={"team": "ml"},
        ),
    )
    assert ModelSettings(enabled="shadow") == config.model
    assert EngineSettings(tick=2.0, cool_down=3600.0) == config.engine


@pytest.mark.parametrize(
    ("table", "source"),
    [
        ('type = "nvml"\ninterval = "500ms"', NvmlSource(interval=0.5)),
        ('type = "recording"\npaths = ["a.jsonl", "/b.csv"]\nspeed = 10\nformat = "dcgm"',
         RecordingSource(paths=(Path("a.jsonl"), Path("/b.csv")), speed=10.0, format="dcgm")),
        ('type = "dcgm"', DcgmSource(url=SecretStr("http://127.0.0.1:9400/metrics"), interval=15.0)),
        ('type = "prometheus"\nurl = "https://prom:9090"\ninterval = "1m"',
         PrometheusSource(url=SecretStr("https://prom:9090"), interval=60.0)),
    ],
)  # fmt: skip
def test_each_source_has_its_own_keys(folder: Path, table: str, source: object) -> None:
    """The type says which keys [source] takes."""
    assert source == read(f"[source]\n{table}").source


def test_overrides_reach_the_engine(folder: Path) -> None:
    """A host that is declared idle by purpose is not judged, its neighbour is."""
    rules = read("""
        [rules.idle_gpu]
        hold = "30m"
        [[overrides]]
        match = { host = "node-a" }
        rules.idle_gpu.enabled = false
    """).ruleset()

    assert IdleGpu(hold=1800.0, enabled=False) == rules["idle_gpu"].for_("node-a", Device("GPU-a"), (Process(1),))
    assert IdleGpu(hold=1800.0) == rules["idle_gpu"].for_("node-b", Device("GPU-b"))


def test_paths_of_a_file_lie_beside_it(folder: Path) -> None:
    """A file means the same wherever gpuwarden is started; a variable's path is relative to where that is."""
    (folder / "etc").mkdir()
    path = folder / "etc" / "gpuwarden.toml"
    path.write_text('[service]\ndata = "kept"\n[source]\ntype = "recording"\npaths = ["a.jsonl"]')

    assert folder / "etc" / "kept" == load(path, {}, RULES).service.data
    assert RecordingSource(paths=(folder / "etc" / "a.jsonl",)) == load(path, {}, RULES).source
    assert Path("kept") == load(path, {"GPUWARDEN_SERVICE__DATA": "kept"}, RULES).service.data


def test_a_byte_order_mark_is_no_mistake(folder: Path) -> None:
    """Some editors begin a UTF-8 file with one."""
    assert 80 == read("\ufeff[service]\nport = 80").service.port


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("90s", 90.0),
        ("15m", 900.0),
        ("1h", 3600.0),
        ("1d", 86_400.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        (0, 0.0),
        (2.5, 2.5),
    ],
)
def test_durations_are_read_as_people_write_them(duration: object, expected: float) -> None:
    """A number is seconds; text names its units."""
    assert expected == seconds(duration)


@pytest.mark.parametrize(
    "text", ["", " ", "90", "5 min", "1m1h", "1s1s", "s", "1H", "\N{FULLWIDTH DIGIT ONE}m", "1e3s", "-", None, True, [1]]
)
def test_what_is_no_duration_is_said(text: object) -> None:
    """Text without a unit, units in the wrong order and other types are refused."""
    with pytest.raises(ValueError, match=r'^must be a duration: seconds, or text such as "90s", "15m", "1h30m" or "1d"$'):
        seconds(text)


@pytest.mark.parametrize("text", ["9" * 400 + "d", float("nan"), float("inf"), 10**400])
def test_a_duration_ends(text: object) -> None:
    """What no float can hold is refused."""
    with pytest.raises(ValueError, match=r"^must be finite$"):
        seconds(text)


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, secs: int, ms: int) -> None:
    """Whichever units are used, they add up."""
    parts = {"d": days, "h": hours, "m": minutes, "s": secs, "ms": ms}
    text = "".join(f"{count}{unit}" for unit, count in parts.items() if count)

    assert pytest.approx(((days * 24 + hours) * 60 + minutes) * 60 + secs + ms / 1000) == seconds(text or "0s")


# -- the environment --------------------------------------------------------------------------------------------------------------
def test_the_environment_goes_over_the_file(folder: Path) -> None:
    """A variable replaces what the file says, key by key, and leaves the rest of the table."""
    config = read(
        '[service]\nhost = "::1"\nport = 1\n[rules.overheating]\nhold = 1\nsamples = 9',
        {"GPUWARDEN_SERVICE__PORT": "9501", "GPUWARDEN_RULES__OVERHEATING__HOLD": "90s"},
    )

    assert ("::1", 9501) == (config.service.host, config.service.port)
    assert {"hold": 90.0, "samples": 9} == config.rules["overheating"]


@pytest.mark.parametrize(
    ("text", "enabled"),
    [("true", True), ("True", True), ("FALSE", False), ("shadow", "shadow")],
)
def test_a_variables_text_is_what_its_key_takes(text: str, enabled: object) -> None:
    """Text stays text where text is allowed, and is read as TOML where it is not."""
    assert enabled == of_environment(MODEL__ENABLED=text).model.enabled


def test_variables_of_every_type() -> None:
    """Numbers, durations, lists and texts that look like numbers."""
    config = of_environment(
        SOURCE__TYPE="simulator",
        SOURCE__GPUS="16",
        SOURCE__SPEED="0.5",
        SOURCE__FAULTS='["xid"]',
        RULES__OVERHEATING__SENSOR="12",
        RULES__OVERHEATING__ESCALATE_AFTER="never",
        RULES__OVERHEATING__CODES="[1, 2]",
        RULES__OVERHEATING__LOOKBACK="30",
        ENGINE__COOL_DOWN="1h",
    )

    assert SimulatorSource(gpus=16, speed=0.5, faults=("xid",)) == config.source
    assert {"sensor": "12", "escalate_after": None, "codes": (1, 2), "lookback": 30.0} == config.rules["overheating"]
    assert 3600.0 == config.engine.cool_down


def test_variables_reach_into_lists(folder: Path) -> None:
    """A number says which of the tables is meant, counted from 1 as in messages; the next number adds one."""
    config = read(
        '[[notifiers]]\nname = "ops"\ntype = "webhook"\nurl = "https://old"',
        {
            "GPUWARDEN_NOTIFIERS__1__URL": "https://new",
            "GPUWARDEN_NOTIFIERS__1__LABELS__TEAM": "ml",
            "GPUWARDEN_NOTIFIERS__2__NAME": "pager",
            "GPUWARDEN_NOTIFIERS__2__TYPE": "pagerduty",
            "GPUWARDEN_NOTIFIERS__2__SECRET": "12345",
            **{f"GPUWARDEN_OVERRIDES__{n}__MATCH__HOST": f"node-{n}" for n in range(1, 12)},
            **{f"GPUWARDEN_OVERRIDES__{n}__RULES__IDLE_GPU__ENABLED": "false" for n in range(1, 12)},
        },
    )

    assert config.notifiers == (
        Notifier(name="ops", type="webhook", url=SecretStr("https://new"), labels={"team": "ml"}),
        Notifier(name="pager", type="pagerduty", secret=SecretStr("12345")),
    )
    assert [f"node-{n}" for n in range(1, 12)] == [match.host for match, _ in config.overrides]


def test_a_variable_that_names_another_source_replaces_the_table(folder: Path) -> None:
    """The file's keys belong to the source that is not used."""
    text = '[source]\ntype = "recording"\npaths = ["a.jsonl"]'

    assert SimulatorSource(gpus=2) == read(text, {"GPUWARDEN_SOURCE__TYPE": "simulator", "GPUWARDEN_SOURCE__GPUS": "2"}).source
    assert RecordingSource(paths=(Path("a.jsonl"),)) == read(text, {"GPUWARDEN_SOURCE__TYPE": "recording"}).source


def test_what_kubernetes_sets_is_no_setting() -> None:
    """In every pod beside a service named gpuwarden there are variables that begin as ours do."""
    config = of_environment(
        SERVICE_HOST="10.0.0.1", SERVICE_PORT="80", SERVICE_PORT_HTTP="80", PORT="tcp://10.0.0.1:80", PORT_80_TCP_ADDR="10.0.0.1"
    )

    assert ("127.0.0.1", 9500) == (config.service.host, config.service.port)


# -- what is said of mistakes -----------------------------------------------------------------------------------------------------
TABLES = "There are service, source, rules, overrides, notifiers, model, engine."
OF_SERVICE = "It has host, port, data, database, timezone, rules_folder."
OF_OVERHEATING = f"It has {', '.join(f.name for f in fields(Overheating))}."
OF_MATCH = "It has host, device, name, pod, namespace, job."
DURATION = 'seconds, or text such as "90s", "15m", "1h30m" or "1d"'
PATHS = 'a list of paths, such as ["node-a.jsonl.gz"]'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[service\nport = 1", "is not TOML: Expected ']' at the end of a table declaration (at line 1, column 9)"),
        ("[model]\nenabled = 1\nenabled = 2\n", "is not TOML: Cannot overwrite a value (at line 3, column 12)"),
        ("[servce]\nport = 1", f'there is no table [servce]; did you mean "service"? {TABLES}'),
        ("port = 1", f"there is no table [port]. {TABLES}"),
        ("service = 1", "[service] must be a table, not a whole number"),
        ("rules = 5", "[rules.<name>] must be tables, not a whole number"),
        ("[rules]\noverheating = 5", "[rules.overheating] must be a table, not a whole number"),
        ("[rules.overheting]\nhold = 5", '[rules.overheting]: there is no rule "overheting"; did you mean "overheating"?'),
        ("[rules.zzz]", '[rules.zzz]: there is no rule "zzz"; `gpuwarden rules` lists them'),
        ('[rules."zz\\nz"]', '[rules."zz\\nz"]: there is no rule "zz\\nz"; `gpuwarden rules` lists them'),
        ("[rules.xid]\nhold = 5", '[rules.xid] has no key "hold". It has enabled, keep_firing.'),
        ("overrides = [3]", "[[overrides]] no. 1 must be a table, not a whole number"),
        ("[overrides]\nmatch.host = 'a'", "overrides must be a list of tables, each written [[overrides]], not a table"),
    ],
)
def test_a_file_of_the_wrong_shape_is_told(folder: Path, text: str, problem: str) -> None:
    """Syntax, tables and names: where it is, and what there is instead."""
    assert [f"gpuwarden.toml: {problem}"] == problems(text)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("limit = 5", f'has no key "limit"; did you mean "limit_celsius"? {OF_OVERHEATING}'),
        ('"a\\u2028b" = 1', f'has no key "a\\u2028b". {OF_OVERHEATING}'),
        ("hold = -5", "hold = -5: must not be negative"),
        ('hold = "-5m"', 'hold = "-5m": must not be negative'),
        ('hold = "5 min"', f'hold = "5 min": must be a duration: {DURATION}'),
        ("hold = true", f"hold = true: must be a duration: {DURATION}"),
        ("hold = inf", "hold = Infinity: must be finite"),
        ("lookback = 0", f"lookback = 0: must be a duration above 0: {DURATION}"),
        ('severity = "critcal"', 'severity = "critcal": must be "info", "warning" or "critical"; did you mean "critical"?'),
        ('enabled = "yes"', 'enabled = "yes": must be true or false'),
        ("enabled = 1", "enabled = 1: must be true or false"),
        ("limit_celsius = nan", "limit_celsius = NaN: must be a number"),
        ("limit_celsius = 07:32:00", 'limit_celsius = "07:32:00": must be a number'),
        ("samples = 2.0", "samples = 2.0: must be a whole number"),
        ("sensor = 1", "sensor = 1: must be text"),
        ('codes = ["79"]', 'codes = ["79"]: must be a list, each item a whole number'),
        ("share = 50", "share = 50: must be a share from 0 to 1"),
        ("limit_celsius = 4", "limit_celsius must not be below margin_celsius"),
    ],
)
def test_a_mistake_in_a_rule_is_told(folder: Path, line: str, problem: str) -> None:
    """Table, key, the bad value, what is allowed, and the nearest right name."""
    assert [f"gpuwarden.toml: [rules.overheating] {problem}"] == problems(f"[rules.overheating]\n{line}")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("prot = 1", f'has no key "prot"; did you mean "port"? {OF_SERVICE}'),
        ("port = 65536", "port = 65536: must be a whole number from 0 to 65535"),
        ('port = "9500"', 'port = "9500": must be a whole number from 0 to 65535'),
        ("port = true", "port = true: must be a whole number from 0 to 65535"),
        ('host = ""', 'host = "": must be text, not empty'),
        ("data = 1979-05-27", 'data = "1979-05-27": must be a path'),
        ('data = "~no-such-user/x"', 'data = "~no-such-user/x": begins with the home folder of a user who is not known'),
        ('rules_folder = "nowhere"', 'rules_folder = "nowhere": must be a folder, and there is none'),
        ('timezone = "Asia/Kolkatta"',
         'timezone = "Asia/Kolkatta": must be a time zone such as "Europe/Berlin"; did you mean "Asia/Kolkata"?'),
        ('database = "mysql://ada:hunter2@db/x"', "database = (hidden): must be a URL that begins with sqlite:/// or postgresql://"),
    ],
)  # fmt: skip
def test_a_mistake_in_service_is_told(folder: Path, line: str, problem: str) -> None:
    """Ports, paths, zones and addresses."""
    assert [f"gpuwarden.toml: [service] {problem}"] == problems(f"[service]\n{line}")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('type = "nvlm"', 'type = "nvlm": must be "nvml", "simulator", "recording", "dcgm" or "prometheus"; did you mean "nvml"?'),
        ("type = 3", 'type = 3: must be "nvml", "simulator", "recording", "dcgm" or "prometheus"'),
        ("gpus = 8", '(nvml) has no key "gpus". It has type, interval.'),
        ("interval = 0", f"(nvml) interval = 0: must be a duration above 0: {DURATION}"),
        ('type = "simulator"\ngpus = 0', "(simulator) gpus = 0: must be a whole number from 1 to 100000"),
        ('type = "simulator"\nspeed = -1', "(simulator) speed = -1: must be a number above 0"),
        ('type = "simulator"\nfaults = "al"',
         '(simulator) faults = "al": must be "all", "none" or a list of rule names; did you mean "all"?'),
        ('type = "simulator"\nfaults = ["idle_cpu"]', 'faults: there is no rule "idle_cpu"; did you mean "idle_gpu"?'),
        ('type = "recording"', f'(recording) needs the key "paths": {PATHS}'),
        ('type = "recording"\npaths = []', f"(recording) paths = []: must be {PATHS}"),
        ('type = "prometheus"\nurl = "prom"', "(prometheus) url = (hidden): must be a URL, such as https://host/path"),
    ],
)  # fmt: skip
def test_a_mistake_in_source_is_told(folder: Path, table: str, problem: str) -> None:
    """What a source takes depends on its type, which the message names."""
    assert [f"gpuwarden.toml: [source] {problem}"] == problems(f"[source]\n{table}")


NO_MATCH = ' needs a match, such as match = { host = "node-a" }; [rules.<name>] is for all devices'


@pytest.mark.parametrize(
    ("match", "rules", "problem"),
    [
        ("match = {}", "xid.enabled = false", NO_MATCH),
        ("", "xid.enabled = false", NO_MATCH),
        ("match.hots = 'a'", "xid.enabled = false", f', match has no key "hots"; did you mean "host"? {OF_MATCH}'),
        ("match = 3", "xid.enabled = false", ", match must be a table, not a whole number"),
        ("match.device = 0", "xid.enabled = false", ", match device = 0: must be a shell glob, not empty"),
        ("match.host = ''", "xid.enabled = false", ', match host = "": must be a shell glob, not empty'),
        ("match.host = 'n[0-9'", "xid.enabled = false",
         ', match host = "n[0-9": must be a shell glob; this one has an unclosed [, and [[] is the character itself'),
        ("match.host = 'n[9-0]'", "xid.enabled = false",
         ', match host = "n[9-0]": must be a shell glob; this one has a range that runs backwards, and matches nothing'),
        ("match.host = 'a'", "xid = {}", " changes nothing: write rules.<name>.<parameter> = <value>"),
        ("match.host = 'a'", "xdi.enabled = false", ', rules.xdi: there is no rule "xdi"; did you mean "xid"?'),
        ("match.host = 'a'", "xid.enable = false",
         ', rules.xid has no key "enable"; did you mean "enabled"? It has enabled, keep_firing.'),
        ("match.host = 'a'\nxid.enabled = false", "xid.enabled = false", ' has no key "xid". It has match, rules.'),
        ("match.host = 'a'", "overheating.limit_celsius = 4", ", rules.overheating limit_celsius must not be below margin_celsius"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_override_is_told(folder: Path, match: str, rules: str, problem: str) -> None:
    """The message says which of the overrides it is, counted from 1."""
    text = f"[[overrides]]\nmatch.host = 'fine'\nrules.xid.keep_firing = 5\n[[overrides]]\n{match}\nrules.{rules}"

    assert [f"gpuwarden.toml: [[overrides]] no. 2{problem}"] == problems(text)


def test_an_override_is_checked_over_what_is_set_for_all(folder: Path) -> None:
    """Values that are right by themselves may be wrong together."""
    text = "[rules.overheating]\nmargin_celsius = 50\n[[overrides]]\nmatch.host = 'a'\nrules.overheating.limit_celsius = 40"

    assert ["gpuwarden.toml: [[overrides]] no. 1, rules.overheating limit_celsius must not be below margin_celsius"] == problems(text)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("type = 'webhok'",
         'type = "webhok": must be "webhook", "alertmanager", "slack", "pagerduty" or "apprise"; did you mean "webhook"?'),
        ("", 'needs the key "type": "webhook", "alertmanager", "slack", "pagerduty" or "apprise"'),
        ("type = 'webhook'", 'needs the key "url"'),
        ("type = 'pagerduty'", "needs the integration key of PagerDuty: secret, secret_env or secret_file"),
        ("type = 'slack'\nurl = 'hunter2'", "url = (hidden): must be a URL, such as https://host/path"),
        ("type = 'slack'\nurl = 'ftp://hunter2'", "url = (hidden): must begin with https:// or http://"),
        ("type = 'pagerduty'\nsecret = 2", "secret = (hidden): must be text, not empty"),
        ("type = 'pagerduty'\nsecret_env = 'hunter-2'", "secret_env = (hidden): must be the name of an environment variable"),
        ("type = 'pagerduty'\nsecret = 'hunter2'\nsecret_env = 'X'", "has secret and secret_env: a secret comes from one place"),
        ("type = 'apprise'\nurl = 'x://x'\nrules = ['xdi']", 'rules: there is no rule "xdi"; did you mean "xid"?'),
        ("type = 'apprise'\nurl = 'x://x'\nlabels = { a = 1 }", 'labels = {"a": 1}: must be a table of texts'),
        ("type = 'apprise'\nurl = 'x://x'\n[[notifiers]]\nname = 'ops'\ntype = 'apprise'\nurl = 'x://x'",
         'name = "ops": another one has it already'),
    ],
)  # fmt: skip
def test_a_mistake_in_a_notifier_is_told(folder: Path, lines: str, problem: str) -> None:
    """What must be given depends on the type; what may be secret is not shown."""
    told = problems(f"[[notifiers]]\nname = 'ops'\n{lines}")

    assert [f"gpuwarden.toml: [[notifiers]] no. {lines.count('[[') + 1} {problem}"] == told


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[model]\nenabled = 'shade'", '[model] enabled = "shade": must be true, false or "shadow"; did you mean "shadow"?'),
        ("[engine]\ntick = '0s'", f'[engine] tick = "0s": must be a duration above 0: {DURATION}'),
    ],
)
def test_a_mistake_in_model_or_engine_is_told(folder: Path, text: str, problem: str) -> None:
    """The small tables."""
    assert [f"gpuwarden.toml: {problem}"] == problems(text)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("SERVICE__PORT", "95oo", '[service] port = "95oo": must be a whole number from 0 to 65535'),
        ("SERVICE__PROT", "1", f'[service] has no key "prot"; did you mean "port"? {OF_SERVICE}'),
        ("SERVICE__", "1", f'[service] has no key "". {OF_SERVICE}'),
        ("SERIVCE__PORT", "1", f'there is no table [serivce]; did you mean "service"? {TABLES}'),
        ("RULES__IDLE_GPU__HOLD", "-5", '[rules.idle_gpu] hold = "-5": must not be negative'),
        ("RULES__IDEL_GPU__HOLD", "5", '[rules.idel_gpu]: there is no rule "idel_gpu"; did you mean "idle_gpu"?'),
        ("RULES__IDLE_GPU", "5", "[rules.idle_gpu] must be a table, not text"),
        ("SOURCE__TYPE", "recording", f'[source] (recording) needs the key "paths": {PATHS}'),
        ("MODEL__ENABLED", "maybe", '[model] enabled = "maybe": must be true, false or "shadow"'),
        ("MODEL__ENABLED", "true\nx = 1", '[model] enabled = "true\\nx = 1": must be true, false or "shadow"'),
        ("NOTIFIERS__2__URL", "https://hunter2", 'must say which one, by a number from 1 to 1, not "2"'),
        ("NOTIFIERS__0__URL", "https://hunter2", 'must say which one, by a number from 1 to 1, not "0"'),
        ("NOTIFIERS__OPS__URL", "https://hunter2", 'must say which one, by a number from 1 to 1, not "ops"'),
        ("NOTIFIERS__1", "hunter2", "[[notifiers]] no. 1 must be a table, not text"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(name: str, text: str, problem: str) -> None:
    """What is wrong with a variable is said of the variable, not of a file."""
    with pytest.raises(ConfigError) as raised:
        of_environment(**{name: text})

    assert f"GPUWARDEN_{name}: {problem}" == str(raised.value)


def test_a_single_underscore_is_told() -> None:
    """The most likely slip of all would leave a setting without effect."""
    with pytest.raises(ConfigError) as raised:
        of_environment(RULES_IDLE_GPU_HOLD="5", SERVICE_DATA="x", SOURCE_GPUS="4")

    assert {
        "GPUWARDEN_RULES_IDLE_GPU_HOLD is not read; write GPUWARDEN_RULES__IDLE_GPU__HOLD",
        "GPUWARDEN_SERVICE_DATA is not read; write GPUWARDEN_SERVICE__DATA",
        "GPUWARDEN_SOURCE_GPUS is not read; write GPUWARDEN_SOURCE__GPUS",
    } == set(str(raised.value).split("\n"))


def test_a_variable_inside_of_a_value_is_told(folder: Path) -> None:
    """A key that is a number has no keys of its own."""
    assert ["GPUWARDEN_SERVICE__PORT__X: cannot be set inside of something that is no table"] == problems(
        "[service]\nport = 1", {"GPUWARDEN_SERVICE__PORT__X": "1"}
    )


def test_all_mistakes_are_told_at_once(folder: Path) -> None:
    """One run is enough to repair a file: each problem is a line of its own, in the order of the tables."""
    text = """
        [engine]
        tick = 0
        [rules.idle_gpu]
        hold = "x"
        holdd = 1
        [[overrides]]
        match.hots = "a"
        rules.xid.x = 1
        [service]
        port = -1
    """
    told = [line.partition(": ")[2] for line in problems(text, {"GPUWARDEN_ENGINE__COOL_DOWN": "later"})]
    expected = [
        "[service] port = -1",
        '[rules.idle_gpu] has no key "holdd"',
        '[rules.idle_gpu] hold = "x"',
        '[[overrides]] no. 1, match has no key "hots"',
        '[[overrides]] no. 1, rules.xid has no key "x"',
        "[engine] tick = 0",
        '[engine] cool_down = "later"',
    ]

    assert expected == [line[: len(start)] for line, start in zip(told, expected, strict=True)]


def test_a_file_that_is_none(folder: Path) -> None:
    """No such file, a folder, and bytes that are not UTF-8, each in one line."""
    (folder / "latin1.toml").write_bytes(b"[service]\nhost = 'caf\xe9'\n")
    (folder / "deep.toml").write_text("x = " + "[" * 100_000)

    def said(name: str) -> str:
        with pytest.raises(ConfigError) as raised:
            load(Path(name), {}, RULES)
        return str(raised.value)

    assert "absent.toml: cannot be read: No such file or directory" == said("absent.toml")
    assert f"{folder}: is a folder, not a file" == said(str(folder))
    assert "latin1.toml: is not UTF-8: byte 0xe9 in line 2" == said("latin1.toml")
    assert said("deep.toml").startswith("deep.toml: is not TOML")


def test_a_parameter_that_toml_cannot_hold_is_told(folder: Path) -> None:
    """A rule may have a field that only code can set; every other field of it can be configured."""

    @dataclass(frozen=True)
    class Odd(Rule):
        weights: np.random.Generator | None = None

    path = folder / "gpuwarden.toml"
    path.write_text("[rules.odd]\nhold = 1\nweights = 3")
    with pytest.raises(ConfigError, match=r"^\S+: \[rules.odd\] weights = 3: cannot be set: the rule wants .*Generator") as raised:
        load(path, {}, {"odd": Odd})

    assert 1 == len(str(raised.value).splitlines())


# -- rules of the user's own --------------------------------------------------------------------------------------------------------
RULE = """
from dataclasses import dataclass
from detector.rule import Rule

@dataclass(frozen=True)
class Mine(Rule):
    limit_celsius: float = 1.0
    def check(self, window): ...
    def tell(self, window, verdict): ...
"""


def test_rules_of_the_users_folder_can_be_configured(folder: Path) -> None:
    """Without given rules, those of [service] rules_folder and the built-in ones are what there is."""
    (folder / "own").mkdir()
    (folder / "own" / "mine.py").write_text(RULE)
    path = folder / "gpuwarden.toml"
    path.write_text("[service]\nrules_folder = 'own'\n[rules.mine]\nlimit_celsius = 7")
    config = load(path, {}, report=lambda problem: None)

    assert 7.0 == config.ruleset()["mine"].default.limit_celsius  # type: ignore[union-attr]
    assert {"mine"} < set(config.rule_types)


def test_a_broken_rule_is_reported_and_left_out(folder: Path) -> None:
    """With someone to report to, the others work, and what is set of the broken one is no second problem; without, it is an error."""
    (folder / "own").mkdir()
    (folder / "own" / "mine.py").write_text(RULE)
    (folder / "own" / "broken.py").write_text("1 / 0")
    path = folder / "gpuwarden.toml"
    path.write_text(
        "[service]\nrules_folder = 'own'\n[rules.broken]\nx = 1\n[[overrides]]\nmatch.host = 'a'\nrules.broken.x = 1\n"
        "[[notifiers]]\nname = 'n'\ntype = 'apprise'\nurl = 'mailto://x'\nrules = ['broken']"
    )
    told: list[str] = []
    config = load(path, {}, report=lambda problem: told.append(str(problem)))
    broken = f"{folder / 'own' / 'broken.py'}: ZeroDivisionError: division by zero (line 1)"

    assert broken in told
    assert "mine" in config.ruleset()
    assert "broken" not in config.ruleset()
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    assert broken in str(raised.value).splitlines()


# -- secrets ------------------------------------------------------------------------------------------------------------------------
def test_a_secret_is_read_where_it_is_kept(folder: Path) -> None:
    """In the configuration, in a variable or in a file, whose last line break does not count; and none is none."""
    (folder / "key").write_text("from-file\n")
    ways = ["secret = 'plain'", "secret_env = 'KEY'", "secret_file = 'key'", ""]
    tables = [f"[[notifiers]]\nname = '{n}'\ntype = 'webhook'\nurl = 'https://x'\n{way}\n" for n, way in enumerate(ways)]
    secrets = [notifier.read_secret({"KEY": "from-variable"}) for notifier in read("".join(tables)).notifiers]

    assert ["plain", "from-variable", "from-file", None] == [secret and secret.get_secret_value() for secret in secrets]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("secret_env = 'KEY'", "the environment variable KEY (secret_env) is not set"),
        ("secret_file = 'absent'", "absent (secret_file) cannot be read: No such file or directory"),
        ("secret_file = 'empty'", "empty (secret_file) is empty"),
        ("secret_file = 'binary'", "binary (secret_file) cannot be read: it is not UTF-8"),
    ],
)
def test_a_secret_that_cannot_be_had_is_told_when_it_is_needed(folder: Path, where: str, reason: str) -> None:
    """A replay needs no secrets, so a missing one is no mistake of the configuration."""
    (folder / "empty").write_text("\n")
    (folder / "binary").write_bytes(b"\xff")
    [notifier] = read(f"[[notifiers]]\nname = 'ops'\ntype = 'webhook'\nurl = 'https://x'\n{where}").notifiers
    with pytest.raises(ConfigError) as raised:
        notifier.read_secret({})

    assert f'notifier "ops": {reason}' == str(raised.value)


SECRET = "hunter2-correct-horse"
misplaced = st.sampled_from([SECRET, f"https://{SECRET}", [SECRET], {"x": SECRET}])
notifiers = st.dictionaries(st.sampled_from(["url", "secret", "secret_env", "secrt"]), misplaced, min_size=1)


@given(notifiers, st.sampled_from(["webhook", "pagerduty", "telegram"]), st.booleans())
def test_a_secret_is_never_shown(workshop: Path, values: dict[str, object], kind: str, by_environment: bool) -> None:
    """Not in a message, whatever is wrong, not in an error behind it, and not in the repr of what was read."""
    notifier = {"name": "ops", "type": kind}
    variables = {f"GPUWARDEN_NOTIFIERS__1__{key.upper()}": value for key, value in values.items() if isinstance(value, str)}
    tree = {"notifiers": [notifier if by_environment else notifier | values], "service": {"database": f"postgresql://ada:{SECRET}@db/x"}}
    answer = attempt(workshop, tree, variables if by_environment else {})

    assert SECRET not in repr(answer)
    assert answer.__context__ is None if isinstance(answer, ConfigError) else answer.service.database


# -- for all files ------------------------------------------------------------------------------------------------------------------
def toml(tree: Mapping[str, Any]) -> str:
    """*tree* as a TOML document, its tables as inline tables."""
    return "".join(f"{json.dumps(key, ensure_ascii=False)} = {_value(value)}\n" for key, value in tree.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + toml(value).rstrip("\n").replace("\n", ", ") + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def variables(tree: object, name: str) -> dict[str, str]:
    """*tree* as variables below *name*, tables of a list by their number."""
    if isinstance(tree, dict):
        parts = [(key.upper(), value) for key, value in tree.items()]
    elif isinstance(tree, list) and tree and isinstance(tree[0], dict):
        parts = [(str(n), value) for n, value in enumerate(tree, 1)]
    else:
        return {name: tree if isinstance(tree, str) else _value(tree)}
    return {variable: text for key, value in parts for variable, text in variables(value, f"{name}__{key}").items()}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the files of all examples of a property."""
    return tmp_path_factory.mktemp("workshop")


def attempt(folder: Path, tree: Mapping[str, Any] | bytes, environ: Mapping[str, str]) -> Config | ConfigError:
    path = folder / "gpuwarden.toml"
    path.write_bytes(tree if isinstance(tree, bytes) else toml(tree).encode(errors="replace"))
    try:
        return load(path, environ, RULES)
    except ConfigError as error:
        return error


def some(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A table with any of *keys*."""
    return st.fixed_dictionaries({}, optional=keys)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0\x7f["), min_size=1, max_size=20)
positive = st.floats(0.001, 1e9)
durations = st.floats(0, 1e9)
severities = st.sampled_from(["info", "warning", "critical"])
names = st.lists(st.sampled_from(list(RULES)), min_size=1)
rules = some(
    overheating=some(
        enabled=st.booleans(),
        severity=severities,
        hold=durations,
        lookback=positive,
        samples=st.integers(-9, 9),
        sensor=texts,
        codes=st.lists(st.integers(0, 999)),
        limit_celsius=st.floats(5, 1e6),
    ).filter(bool),
    idle_gpu=some(hold=durations).filter(bool),
)
override = st.fixed_dictionaries(
    {"match": st.dictionaries(st.sampled_from([f.name for f in fields(Match)]), texts, min_size=1), "rules": rules.filter(bool)}
)
notifier = st.fixed_dictionaries(
    {"name": texts, "type": st.just("webhook"), "url": st.just("https://example.com/")},
    optional={"secret": texts, "min_severity": severities, "rules": names, "labels": st.dictionaries(st.just("team"), texts, min_size=1)},
)
trees = some(
    service=some(host=texts, port=st.integers(0, 65_535), timezone=st.sampled_from(["UTC", "Asia/Kolkata"])),
    source=st.fixed_dictionaries(
        {"type": st.just("simulator")},
        optional={"gpus": st.integers(1, 100_000), "speed": positive, "faults": st.sampled_from(["all", "none"]) | names},
    ),
    rules=rules,
    overrides=st.lists(override, max_size=3),
    notifiers=st.lists(notifier, max_size=3, unique_by=lambda notifier: notifier["name"]),
    model=some(enabled=st.sampled_from([True, False, "shadow"])),
    engine=some(tick=positive, cool_down=durations),
)


def plain(value: object) -> object:
    """A setting as TOML has it, to compare with what was written."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, ZoneInfo):
        return value.key
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


@given(trees)
def test_valid_settings_survive_being_written_and_read(workshop: Path, tree: dict[str, Any]) -> None:
    """Every setting that is in the file is in the configuration, with its value; and nothing else is set of a rule."""
    config = attempt(workshop, tree, {})
    assert isinstance(config, Config), config

    for table in ("service", "source", "model", "engine"):
        for key, value in tree.get(table, {}).items():
            assert value == plain(getattr(getattr(config, table), key))
    assert tree.get("rules", {}) == plain(config.rules)
    assert [(Match(**override["match"]), override["rules"]) for override in tree.get("overrides", [])] == [
        (match, plain(changed)) for match, changed in config.overrides
    ]
    for written, read in zip(tree.get("notifiers", []), config.notifiers, strict=True):
        assert written == {key: plain(getattr(read, key)) for key in written}


@given(trees)
def test_the_environment_says_all_that_a_file_can_say(workshop: Path, tree: dict[str, Any]) -> None:
    """The same settings as variables are the same configuration."""
    environ = {
        variable: text
        for table, value in tree.items()
        if value
        for variable, text in variables(value, f"GPUWARDEN_{table.upper()}").items()
    }

    assert attempt(workshop, tree, {}) == load(None, environ, RULES)


words = st.sampled_from(
    [
        "service",
        "port",
        "host",
        "data",
        "timezone",
        "database",
        "rules_folder",
        "source",
        "type",
        "gpus",
        "faults",
        "paths",
        "rules",
        "overheating",
        "hold",
        "severity",
        "xid",
        "enabled",
        "overrides",
        "match",
        "device",
        "notifiers",
        "name",
        "url",
        "secret",
        "secret_file",
        "labels",
        "model",
        "engine",
        "tick",
    ]
)
oddities = st.sampled_from(
    ["simulator", "recording", "webhook", "90s", "~no-such-user/x", "\0", "a" * 5000, "Europe", "[", "[!]", "\x85", "\N{LINE SEPARATOR}"]
)
leaves = st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=8) | words | oddities
keys = words | st.text(max_size=5)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12)
places = st.lists(
    words.map(str.upper) | st.sampled_from(["", "0", "1", "2", "99999999", "\N{LATIN CAPITAL LETTER E WITH ACUTE}"]), min_size=1, max_size=5
)
environs = st.dictionaries(places.map(lambda parts: "GPUWARDEN_" + "__".join(parts)), leaves.map(str), max_size=5)


@given(st.dictionaries(keys, values, max_size=5), environs)
@example({"source": {"type": ["a"]}}, {})
@example({"source": {"type": "simulator", "faults": ["[" * 200]}}, {"GPUWARDEN_ENGINE__TICK": "[" * 2000})
def test_whatever_is_written_ends_in_a_configuration_or_in_lines(workshop: Path, tree: dict[str, Any], environ: dict[str, str]) -> None:
    """Random tables and variables raise nothing but a ConfigError, each line of which says where the problem is."""
    answer = attempt(workshop, tree, environ)

    assert isinstance(answer, Config) or all(line.startswith((f"{workshop}", "GPUWARDEN_")) for line in str(answer).splitlines())


@given(st.binary(max_size=60) | st.text(st.sampled_from("[]=.\"'{}#\n\\ax1-"), max_size=60).map(str.encode))
def test_random_bytes_are_no_crash(workshop: Path, data: bytes) -> None:
    """A file with anything in it is a configuration or a ConfigError that names the file."""
    answer = attempt(workshop, data, {})

    assert isinstance(answer, Config) or str(answer).startswith(f"{workshop / 'gpuwarden.toml'}: ")


def test_importing_the_configuration_loads_no_rule() -> None:
    """Rules are looked for when a configuration is read, not before."""
    code = "import sys, detector.config; print([name for name in sys.modules if name.partition('.')[0] in ('rules', 'models')])"

    assert "[]\n" == subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
