"""The configuration: a TOML file and the environment in, typed settings out.

Every table is a frozen dataclass, and so is every rule: their fields are the keys, their types say what is allowed. A field of a rule
is a duration ("90s", "15m", "1h30m" or seconds) where it is a float whose name ends in hold, keep_firing, escalate_after, lookback or
_seconds; "never" is allowed where it is `float | None`.

Any key can be set by an environment variable, which goes over the file: `GPUWARDEN_SERVICE__PORT=9500`,
`GPUWARDEN_RULES__OVERHEATING__HOLD=90s`, `GPUWARDEN_NOTIFIERS__1__URL=https://...` (of the first one). Its text is taken as it is where
the key takes text, else as TOML.

Whatever is wrong ends in one ConfigError with all problems, one a line. Values of secrets are in no message and no repr.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from fnmatch import translate
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from zoneinfo import ZoneInfo, available_timezones

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PydanticUserError,
    SecretStr,
    Strict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo

from detector.discover import did_you_mean, discover
from detector.durations import DURATION, seconds
from detector.errors import ConfigError
from detector.incident import Severity
from detector.rule import AnyRule
from detector.ruleset import Match, RuleSet, Settings

PREFIX: Final = "GPUWARDEN_"

T = TypeVar("T")
Tree = dict[str, Any]


# -- what keys take: a type, what else must hold, and how a message says it -------------------------------------------------------
def _duration_or_never(value: object) -> float | None:
    return None if value == "never" else seconds(value)


def _path(value: object, info: ValidationInfo) -> Path:
    """A path in a file is relative to the file's folder, so that it means the same wherever gpuwarden is started."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a path")
    try:
        return Path(info.context or "", Path(value).expanduser())
    except RuntimeError:
        raise ValueError("begins with the home folder of a user who is not known") from None


def _folder(path: Path) -> Path:
    if not os.path.isdir(path):
        raise ValueError("must be a folder, and there is none")
    return path


def _glob(glob: str) -> str:
    if "[" in re.sub(r"\[!?\]?[^\]]*\]", "", glob):
        raise ValueError("must be a shell glob; this one has an unclosed [, and [[] is the character itself")
    if "(?!)" in translate(glob):
        raise ValueError("must be a shell glob; this one has a range that runs backwards, and matches nothing")
    return glob


def _zone(name: object) -> ZoneInfo:
    try:
        return ZoneInfo(str(name))
    except (LookupError, ValueError, OSError):
        raise ValueError(f'must be a time zone such as "Europe/Berlin"{did_you_mean(str(name), available_timezones())}') from None


def _database(url: SecretStr) -> SecretStr:
    scheme, separator, _ = url.get_secret_value().partition("://")
    if not separator or scheme.partition("+")[0] not in ("sqlite", "postgresql"):
        raise ValueError("must be a URL that begins with sqlite:/// or postgresql://")
    return url


def _url(url: SecretStr) -> SecretStr:
    scheme, separator, rest = url.get_secret_value().partition("://")
    if not (scheme and separator and rest):
        raise ValueError("must be a URL, such as https://host/path")
    return url


Text = Annotated[str, Field(min_length=1, description="text, not empty")]
Glob = Annotated[Text, AfterValidator(_glob), Field(description="a shell glob, not empty")]
Duration = Annotated[float, BeforeValidator(seconds), Field(description=DURATION)]
DurationOrNever = Annotated[float | None, BeforeValidator(_duration_or_never), Field(description=f'{DURATION}, or "never"')]
Location = Annotated[Path, BeforeValidator(_path), Field(description="a path")]
Paths = Annotated[tuple[Location, ...], Strict(False), Field(min_length=1, description='a list of paths, such as ["node-a.jsonl.gz"]')]
Folder = Annotated[Location, AfterValidator(_folder)]
Zone = Annotated[ZoneInfo, BeforeValidator(_zone), Field(description='a time zone, such as "Europe/Berlin"')]
Port = Annotated[int, Field(ge=0, le=65_535, description="a whole number from 0 to 65535")]
Period = Annotated[Duration, Field(gt=0, description=DURATION.replace("a duration", "a duration above 0"))]
Positive = Annotated[float, Field(gt=0, description="a number above 0")]
Secret = Annotated[SecretStr, Field(min_length=1, description="text, not empty")]
Url = Annotated[SecretStr, AfterValidator(_url), Field(description="a URL")]
Database = Annotated[SecretStr, AfterValidator(_database), Field(description="a database URL")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="the name of an environment variable")]
RuleNames = Annotated[tuple[str, ...], Strict(False), Field(description='a list of rule names, such as ["overheating"]')]
Format = Literal[
    "auto", "trace", "nvidia-smi-csv", "nvidia-smi-query", "nvidia-smi-xml", "nvidia-smi-dmon", "nvidia-smi-pmon", "nvidia-smi-table",
    "dcgm", "prometheus-json", "kernel-log", "gpustat", "wandb", "parquet",
]  # fmt: skip


# -- the tables ---------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Service:
    host: Text = "127.0.0.1"
    port: Port = 9500
    data: Location = Path("gpuwarden-data")
    """Folder of everything that is kept. `load` prefers the user's state folder: $XDG_STATE_HOME, else ~/.local/state."""
    database: Database | None = None
    """None: SQLite in `data`. A SecretStr, for it may hold a password."""
    timezone: Zone | None = None
    """Of times without a zone. None: the machine's own."""
    rules_folder: Folder | None = None
    """A user's own rules, one a file."""

    @property
    def database_url(self) -> SecretStr:
        return self.database or SecretStr(f"sqlite:///{self.data / 'gpuwarden.db'}")


@dataclass(frozen=True, kw_only=True)
class NvmlSource:
    type: Literal["nvml"] = "nvml"
    interval: Period = 1.0
    """Seconds between two passes."""


@dataclass(frozen=True, kw_only=True)
class SimulatorSource:
    type: Literal["simulator"] = "simulator"
    gpus: Annotated[int, Field(ge=1, le=100_000, description="a whole number from 1 to 100000")] = 8
    speed: Positive = 1.0
    """Simulated seconds a second."""
    seed: Annotated[int, Field(ge=0, lt=2**63, description="a whole number, 0 or more")] = 0
    faults: Annotated[Literal["all", "none"] | RuleNames, Field(description='"all", "none" or a list of rule names')] = "all"
    """Which conditions are staged, by the rules that should see them."""


@dataclass(frozen=True, kw_only=True)
class RecordingSource:
    type: Literal["recording"] = "recording"
    paths: Paths
    format: Format = "auto"
    speed: Positive = 1.0
    """Recorded seconds a second."""


@dataclass(frozen=True, kw_only=True)
class DcgmSource:
    """A dcgm-exporter's page of metrics."""

    type: Literal["dcgm"] = "dcgm"
    url: Url = field(default=SecretStr("http://127.0.0.1:9400/metrics"))
    interval: Period = 15.0


@dataclass(frozen=True, kw_only=True)
class PrometheusSource:
    """A Prometheus server that scrapes dcgm-exporters."""

    type: Literal["prometheus"] = "prometheus"
    url: Url
    interval: Period = 30.0


Source = NvmlSource | SimulatorSource | RecordingSource | DcgmSource | PrometheusSource


@dataclass(frozen=True, kw_only=True)
class Notifier:
    """Who is told. `url` is a SecretStr, for with Slack and others it is the key to the channel."""

    name: Text
    type: Literal["webhook", "alertmanager", "slack", "pagerduty", "apprise"]
    url: Url | None = None
    """None with PagerDuty only: its own address."""
    secret: Secret | None = None
    secret_env: Variable | None = None
    secret_file: Location | None = None
    min_severity: Severity = "warning"
    rules: RuleNames = ()
    """Empty: all rules."""
    labels: Annotated[Mapping[str, str], Field(description="a table of texts")] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ways = [key for key in ("secret", "secret_env", "secret_file") if getattr(self, key) is not None]
        if len(ways) > 1:
            raise ValueError(f"has {' and '.join(ways)}: a secret comes from one place")
        if self.type == "pagerduty" and not ways:
            raise ValueError("needs the integration key of PagerDuty: secret, secret_env or secret_file")
        if self.type != "pagerduty" and self.url is None:
            raise ValueError('needs the key "url"')
        if self.type != "apprise" and self.url and not re.match("https?://", self.url.get_secret_value()):
            raise ValueError("url = (hidden): must begin with https:// or http://")

    def read_secret(self, environ: Mapping[str, str] = os.environ) -> SecretStr | None:
        """The secret from where it is kept, None where the notifier has none. A ConfigError says why it cannot be had.

        It is read when it is needed: a replay with the same configuration works where the secret is not.
        """
        if self.secret_env is not None:
            secret = environ.get(self.secret_env, "")
            if not secret:
                raise ConfigError(f'notifier "{self.name}": the environment variable {self.secret_env} (secret_env) is not set')
            return SecretStr(secret)
        if self.secret_file is not None:
            try:
                secret = self.secret_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise ConfigError(f'notifier "{self.name}": {self.secret_file} (secret_file) cannot be read: {reason}') from None
            if not secret:
                raise ConfigError(f'notifier "{self.name}": {self.secret_file} (secret_file) is empty')
            return SecretStr(secret)
        return self.secret


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The learned model behind the rule `anomaly`."""

    enabled: Annotated[bool | Literal["shadow"], Field(description='true, false or "shadow"')] = True
    """`shadow`: it scores, and raises nothing."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    tick: Period = 5.0
    """Seconds between two looks of the rules."""
    cool_down: Duration = 600.0
    """A resolved incident that returns within it reopens."""


@dataclass(frozen=True, kw_only=True)
class Config:
    service: Service
    source: Source
    rules: Mapping[str, Settings]
    """Rule name -> what is set of it, for all devices."""
    overrides: tuple[tuple[Match, Mapping[str, Settings]], ...]
    notifiers: tuple[Notifier, ...]
    model: ModelSettings
    engine: EngineSettings
    rule_types: Mapping[str, type[AnyRule]] = field(repr=False)
    """The rules that there are; everything above was checked against them."""

    def ruleset(self) -> RuleSet:
        """The rules as they are configured."""
        return RuleSet.build(self.rule_types, self.rules, self.overrides)


SOURCES: Final[dict[str, type[Source]]] = {
    "nvml": NvmlSource,
    "simulator": SimulatorSource,
    "recording": RecordingSource,
    "dcgm": DcgmSource,
    "prometheus": PrometheusSource,
}
_TABLES: Final = tuple(f.name for f in fields(Config) if f.name != "rule_types")
_LISTS: Final = ("overrides", "notifiers")
_KUBERNETES: Final = ("GPUWARDEN_SERVICE_HOST", "GPUWARDEN_SERVICE_PORT")
"""Kubernetes sets them in every pod beside a service named gpuwarden: they are addresses of others, not settings."""


def load(
    path: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    rule_types: Mapping[str, type[AnyRule]] | None = None,
    report: Callable[[ConfigError], None] | None = None,
) -> Config:
    """The configuration of the file at *path* (None: there is no file) and of *environ*, which goes over it.

    *rule_types* are the rules that may be configured; None: those that `discover` finds, in [service] rules_folder too. With *report*,
    a rule that cannot be loaded is told to it and left out, with all that is set of it; without, it is an error like any other.
    """
    check = _Check(path)
    tree = _read(path) if path is not None else {}
    _overlay(tree, environ, check)
    for name, content in tree.items():
        if name not in _TABLES:
            check.fail(content, f"there is no table [{_bare(name)}]{did_you_mean(name, _TABLES) or '.'} There are {', '.join(_TABLES)}.")
    service = {"data": _state_folder(environ)} | check.values("[service]", Service, tree.get("service", {}))
    if rule_types is None:
        rule_types, check.broken = discover(service.get("rules_folder"))
        for problem in check.broken.values():
            report(problem) if report is not None else check.problems.append(str(problem))
    check.rule_types = rule_types
    check.single_underscores(environ)
    source = check.source(tree.get("source", {}))
    rules = check.rules("[rules.{}]", tree.get("rules", {}), {})
    overrides = check.overrides(tree["overrides"], rules)
    notifiers = check.notifiers(tree["notifiers"])
    model = check.table("[model]", ModelSettings, tree.get("model", {}))
    engine = check.table("[engine]", EngineSettings, tree.get("engine", {}))
    if check.problems or source is None or model is None or engine is None:
        raise ConfigError("\n".join(check.problems))
    return Config(
        service=Service(**service),
        source=source,
        rules=rules,
        overrides=overrides,
        notifiers=notifiers,
        model=model,
        engine=engine,
        rule_types=rule_types,
    )


def _state_folder(environ: Mapping[str, str]) -> Path:
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if os.path.isabs(state):
        return Path(state, "gpuwarden")
    return Path(home, ".local", "state", "gpuwarden") if os.path.isabs(home) else Path("gpuwarden-data")


# -- the file and the environment, as one tree ------------------------------------------------------------------------------------
class _FromEnvironment(str):
    """The text of a variable: whether it means a text, a number or a list is for its key to say."""

    variable: str

    def __new__(cls, variable: str, text: str) -> _FromEnvironment:
        self = super().__new__(cls, text)
        self.variable = variable
        return self


def _read(path: Path) -> Tree:
    data = b""
    try:
        data = path.read_bytes()
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8: byte 0x{data[error.start]:02x} in line {line}"
    except RecursionError:
        reason = "is not TOML that can be read: it is nested too deeply"
    except IsADirectoryError:
        reason = "is a folder, not a file"
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except ValueError as error:
        reason = f"is not TOML: {error}"
    raise ConfigError(f"{path}: {reason}")


def _overlay(tree: Tree, environ: Mapping[str, str], check: _Check) -> None:
    """Put the variables of *environ* into *tree*."""
    kind = environ.get(f"{PREFIX}SOURCE__TYPE")
    if kind is not None and isinstance(tree.get("source"), dict) and tree["source"].get("type", "nvml") != kind:
        del tree["source"]  # its keys are those of a source that is not meant
    for name in _LISTS:
        tree.setdefault(name, [])
    variables = {name: name.removeprefix(PREFIX).lower().split("__") for name in environ if name.startswith(PREFIX)}
    # Number 2 of a list comes before number 10.
    for name, place in sorted(variables.items(), key=lambda item: [(len(part), part) for part in item[1]]):
        if len(place) > 1:
            try:
                _put(tree, place, _FromEnvironment(name, environ[name]))
            except ConfigError as error:
                check.problems.append(f"{name}: {error}")


def _put(node: Any, place: Sequence[str], value: _FromEnvironment) -> None:
    key: Any = place[0]
    if isinstance(node, list):
        if not re.fullmatch("[1-9][0-9]{0,4}", key) or int(key) > len(node) + 1:
            raise ConfigError(f"must say which one, by a number from 1 to {len(node) + 1}, not {_shown(key)}")
        key = int(key) - 1
        if key == len(node):
            node.append({})
    elif isinstance(node, dict):
        node.setdefault(key, {})
    else:
        raise ConfigError("cannot be set inside of something that is no table")
    if len(place) == 1:
        node[key] = value
    else:
        _put(node[key], place[1:], value)


# -- what is there against what is allowed ----------------------------------------------------------------------------------------
class _Check:
    """Checks one table after another, and collects what is wrong with them."""

    def __init__(self, path: Path | None) -> None:
        self.problems: list[str] = []
        self.rule_types: Mapping[str, type[AnyRule]] = {}
        self.broken: Mapping[str, ConfigError] = {}
        """Rules that cannot be loaded: what is set of them cannot be checked."""
        self._file = str(path) if path is not None else "configuration"
        self._folder = path.parent if path is not None else Path()

    def fail(self, value: object, problem: str) -> None:
        """Note a *problem* with *value*, which says where it comes from."""
        self.problems.append(f"{self._origin(value)}: {problem}")

    def _origin(self, value: object) -> str:
        if isinstance(value, _FromEnvironment):
            return value.variable
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        origins = {self._origin(item) for item in inner} or {self._file}
        return self._file if self._file in origins else min(origins)

    def values(self, label: str, table: type, raw: object) -> dict[str, Any]:
        """The values in *raw* for the keys of *table*. Those that are wrong are noted and left out."""
        if not isinstance(raw, dict):
            self.fail(raw, f"{label} must be a table, not {_kind(raw)}")
            return {}
        hints = _keys(table)
        self._only(label, raw, hints)
        values = {}
        for key, value in raw.items():
            try:
                if key in hints:
                    values[key] = _understood(hints[key], value, self._folder)
            except ValueError as error:
                hidden = "secret" in key or _is_secret(hints[key])  # secret_env with a secret in it, by mistake
                self.fail(value, f"{label} {key} = {'(hidden)' if hidden else _shown(value)}: {error}")
        for f in fields(table):
            if f.default is MISSING and f.default_factory is MISSING and f.name not in raw:
                self.fail(raw, f'{label} needs the key "{f.name}": {described(hints[f.name])}')
        return values

    def _only(self, label: str, raw: Tree, keys: Collection[str]) -> None:
        for key, value in raw.items():
            if key not in keys:
                self.fail(value, f"{label} has no key {_shown(key)}{did_you_mean(key, keys) or '.'} It has {', '.join(keys)}.")

    def table(self, label: str, table: type[T], raw: object) -> T | None:
        """The settings in *raw*; None where anything is wrong with them, which is then noted."""
        before = len(self.problems)
        values = self.values(label, table, raw)
        return self._made(label, table, values, raw) if len(self.problems) == before else None

    def _made(self, label: str, table: type[T], values: dict[str, Any], raw: object) -> T | None:
        try:
            return table(**values)
        except (ValueError, TypeError) as error:
            self.fail(raw, f"{label} {error}")
            return None

    def source(self, raw: object) -> Source | None:
        kind = raw.get("type", "nvml") if isinstance(raw, dict) else "nvml"
        if not isinstance(kind, str) or kind not in SOURCES:
            known = _either(_shown(name) for name in SOURCES)
            self.fail(kind, f"[source] type = {_shown(kind)}: must be {known}{did_you_mean(str(kind), SOURCES)}")
            return None
        source = self.table(f"[source] ({kind})", SOURCES[kind], raw)
        if isinstance(source, SimulatorSource) and isinstance(raw, dict) and not isinstance(source.faults, str):
            self._known("[source] faults", raw["faults"], source.faults)
        return source

    def rules(self, label: str, raw: object, beneath: Mapping[str, Settings]) -> dict[str, Settings]:
        """What *raw* sets of rules, over what is set *beneath*."""
        if not isinstance(raw, dict):
            self.fail(raw, f"{label.format('<name>')} must be tables, not {_kind(raw)}")
            return {}
        settings: dict[str, Settings] = {}
        for name, content in raw.items():
            place = label.format(_bare(name))
            if name in self.rule_types:
                before = len(self.problems)
                settings[name] = self.values(place, self.rule_types[name], content)
                if len(self.problems) == before:
                    self._made(place, self.rule_types[name], {**beneath.get(name, {}), **settings[name]}, content)
            else:
                self._known(place, content, [name])
        return settings

    def overrides(self, raw: object, rules: Mapping[str, Settings]) -> tuple[tuple[Match, Mapping[str, Settings]], ...]:
        overrides = []
        for label, item in self._numbered("overrides", raw):
            self._only(label, item, ("match", "rules"))
            match = self.table(f"{label}, match", Match, item.get("match", {}))
            if match == Match():
                self.fail(item, f'{label} needs a match, such as match = {{ host = "node-a" }}; [rules.<name>] is for all devices')
            content = item.get("rules", {})
            if isinstance(content, dict) and not any(content.values()):
                self.fail(item, f"{label} changes nothing: write rules.<name>.<parameter> = <value>")
            changed = self.rules(f"{label}, rules.{{}}", content, rules)
            if match is not None:
                overrides.append((match, changed))
        return tuple(overrides)

    def notifiers(self, raw: object) -> tuple[Notifier, ...]:
        notifiers: dict[str, Notifier] = {}
        for label, item in self._numbered("notifiers", raw):
            notifier = self.table(label, Notifier, item)
            if notifier is None:
                continue
            if notifier.name in notifiers:
                self.fail(item["name"], f"{label} name = {_shown(notifier.name)}: another one has it already")
            self._known(f"{label} rules", item.get("rules"), notifier.rules)
            notifiers[notifier.name] = notifier
        return tuple(notifiers.values())

    def _known(self, place: str, raw: object, names: Iterable[str]) -> None:
        """Note the *names*, given by *raw*, that no rule has."""
        for name in names:
            if name not in self.rule_types and name not in self.broken:
                near = did_you_mean(name, self.rule_types) or "; `gpuwarden rules` lists them"
                self.fail(raw, f"{place}: there is no rule {_shown(name)}{near}")

    def _numbered(self, name: str, raw: object) -> Iterator[tuple[str, Tree]]:
        if not isinstance(raw, list):
            self.fail(raw, f"{name} must be a list of tables, each written [[{name}]], not {_kind(raw)}")
            return
        for n, item in enumerate(raw, 1):
            if isinstance(item, dict):
                yield f"[[{name}]] no. {n}", item
            else:
                self.fail(item, f"[[{name}]] no. {n} must be a table, not {_kind(item)}")

    def single_underscores(self, environ: Mapping[str, str]) -> None:
        """Note variables that would be settings if they had two underscores between table and key."""
        sources = [("source", source) for source in SOURCES.values()]
        rules = [(f"rules__{name}", rule_type) for name, rule_type in self.rule_types.items()]
        for place, table in [("service", Service), *sources, *rules, ("model", ModelSettings), ("engine", EngineSettings)]:
            for f in fields(table):
                name = f"{PREFIX}{place}__{f.name}".upper()
                single = name.replace("__", "_")
                if single in environ and single not in _KUBERNETES:
                    self.problems.append(f"{single} is not read; write {name}")


def _keys(table: type) -> dict[str, Any]:
    """Key -> type of what a table or a rule takes."""
    if table is Match:
        return {f.name: Glob for f in fields(Match)}
    hints = get_type_hints(table, include_extras=True)
    return {f.name: _accepted(f.name, hints[f.name]) for f in fields(table)}


def _accepted(name: str, hint: Any) -> Any:
    if name.endswith(("hold", "keep_firing", "escalate_after", "lookback", "_seconds")):
        if hint is float:
            return Period if name.endswith("lookback") else Duration
        if hint == float | None:
            return DurationOrNever
    # A TOML array is a list, whatever the field makes of it.
    return Annotated[hint, Strict(False)] if get_origin(hint) in (tuple, frozenset) else hint


def _understood(hint: Any, value: object, folder: Path) -> object:
    """*value* as *hint* wants it; a ValueError says what it must be."""
    readings = [value]
    if isinstance(value, _FromEnvironment):
        readings, folder = [str(value), *_as_toml(value)], Path()
    try:
        adapter = TypeAdapter(hint, config={"strict": True, "allow_inf_nan": False})
    except PydanticUserError:
        raise ValueError(f"cannot be set: the rule wants {described(hint)}") from None
    reasons: list[str] = []
    for reading in readings:
        try:
            return adapter.validate_python(reading, context=folder)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            reasons = [str(problem["ctx"]["error"]) for problem in found if problem["type"] == "value_error"]
    raise ValueError(reasons[0] if reasons else f"must be {described(hint)}{did_you_mean(str(value), _choices(hint))}")


def _as_toml(text: str) -> Iterator[object]:
    for spelling in (text, text.lower()):  # True, FALSE
        try:
            document = tomllib.loads(f"value = {spelling}")
        except (ValueError, RecursionError):
            continue
        if document.keys() == {"value"}:
            yield document["value"]


# -- words ------------------------------------------------------------------------------------------------------------------------
_WORDS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list", dict: "a table"}


def described(hint: Any) -> str:
    """What *hint* allows, in words."""
    for note in reversed(getattr(hint, "__metadata__", ())):
        if isinstance(note, FieldInfo) and note.description:
            return note.description
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return described(inner[0])
    if origin is Literal:
        return _either(_shown(choice) for choice in inner)
    if origin in (Union, UnionType):
        return _either(described(one) for one in inner if one is not NoneType)
    if origin in (tuple, frozenset):
        return f"a list, each item {described(inner[0])}"
    return _WORDS.get(hint, str(hint))


def _either(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [choice for choice in get_args(hint) if isinstance(choice, str)]
    return [choice for inner in get_args(hint) for choice in _choices(inner)]


def _is_secret(hint: Any) -> bool:
    return hint is SecretStr or any(_is_secret(inner) for inner in get_args(hint))


def _kind(value: object) -> str:
    """Of what kind *value* is, without the value: it might hold a secret."""
    return next((words for kind, words in _WORDS.items() if isinstance(value, kind)), "a date or time")


def _shown(value: object) -> str:
    """*value* on one line, much as TOML writes it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _bare(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _shown(key)
