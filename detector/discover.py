"""Finds rules and models: those that come with gpuwarden, a user's own folder of rules, and rules that other packages offer.

In a checkout `rules/` and `models/` lie beside `detector/`; in a wheel they lie inside it. Nothing else knows that there are two
places. A `rules` or `models` package of somebody else that is earlier on the path is never imported.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import traceback
from collections.abc import Collection, Iterator
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, get_type_hints

from detector.errors import ConfigError, DetectorError
from detector.metrics import METRICS
from detector.rule import AnyRule, EventRule, Rule

ENTRY_POINTS: Final = "gpuwarden.rules"
"""A package offers rules as entry points of this group, each naming a module: `too_loud = "acme_gpus.too_loud"`."""

_HERE: Final = Path(__file__).resolve().parent
_NAME: Final = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)*")
_ANSWERS: Final[dict[type, tuple[str, ...]]] = {Rule: ("check", "tell"), EventRule: ("judge",)}


class Discovered(NamedTuple):
    """What was found. A rule that could not be loaded never keeps the others from it, so whoever takes `rules` has `problems` in hand."""

    rules: dict[str, type[AnyRule]]
    """Rule name (the name of its file) -> class."""
    problems: dict[str, ConfigError]
    """Rule name -> why the rule of that name, or a second one, is not among `rules`; one problem a line, each with its file."""


def discover(folder: Path | None = None) -> Discovered:
    """All rules: the built-in ones, those of a user's *folder* of `*.py` files, and those that installed packages offer.

    Files that begin with an underscore are helpers; a rule beside them imports them with a dot (`from ._limits import ...`).
    A ConfigError is raised only where *folder* is no folder, a DetectorError where gpuwarden's own rules are missing.
    """
    importlib.invalidate_caches()  # the folder may have been filled a moment ago
    found = Discovered({}, {})
    package = _package("rules")
    for file in _files(_folder("rules")):
        _add(found, file.stem, str(file), f"{package}.{file.stem}")
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder of rules")
        package = _mount(f"{__package__}.user_rules_{sha256(bytes(folder.resolve())).hexdigest()[:12]}", folder.resolve())
        for file in _files(folder):
            _add(found, file.stem, str(file), f"{package}.{file.stem}")
    for point in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)):
        _add(found, point.name, f"entry point {point.name} = {point.value!r}", point.value.partition(":")[0].strip())
    return found


def model_class(name: str) -> type[Any]:
    """The class of the model *name*: `IsolationForest` of models/isolation_forest.py. A ConfigError says what there is instead."""
    names = [file.stem for file in _files(_folder("models"))]
    if name not in names:
        raise ConfigError(f'there is no model "{name}"{did_you_mean(name, names) or "."} There are: {", ".join(names) or "none"}.')
    module = importlib.import_module(f"{_package('models')}.{name}")
    kind = vars(module).get("".join(word.capitalize() for word in name.split("_")))
    if not isinstance(kind, type) or kind.__module__ != module.__name__:
        raise ConfigError(f"{module.__file__}: a model is a class with the name of its file, isolation_forest.py: IsolationForest")
    return kind


def did_you_mean(word: str, names: Collection[str]) -> str:
    """A question to append to a message, `; did you mean "x"?`, or nothing where no name is like *word*."""
    spellings = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), spellings, n=1, cutoff=0.55)
    return f'; did you mean "{spellings[near[0]]}"?' if near else ""


# -- where things lie -----------------------------------------------------------------------------------------------------------
def _folder(name: str) -> Path:
    for folder in (_HERE / name, _HERE.parent / name):
        if folder.is_dir():
            return folder
    raise DetectorError(f"{_HERE / name} is missing: gpuwarden is not completely installed")


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.glob("*.py")) if not file.name.startswith("_"))


def _package(name: str) -> str:
    """The dotted name by which the modules of our folder *name* are imported."""
    folder = _folder(name)
    if folder.parent == _HERE:
        return f"{__package__}.{name}"
    return name if _leads_to(name, folder) else _mount(f"{__package__}.{name}", folder)


def _leads_to(name: str, folder: Path) -> bool:
    """Whether `import name` gives the package in *folder*. Finding out imports nothing."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # somebody put a module without a spec into sys.modules
        return False
    places = spec.submodule_search_locations if spec is not None else None
    return places is not None and [Path(place).resolve() for place in places] == [folder]


def _mount(name: str, folder: Path) -> str:
    """Make *folder* importable as the package *name*, wherever it lies. Its `__init__.py` is not run."""
    if name not in sys.modules:
        spec = ModuleSpec(name, loader=None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[name] = importlib.util.module_from_spec(spec)
    return name


# -- from a module to its rule --------------------------------------------------------------------------------------------------
def _add(found: Discovered, name: str, source: str, module: str) -> None:
    """Put the rule of *module* into what was found, or the reason why it cannot be, which begins with *source*."""
    try:
        if name in found.rules:
            raise ConfigError(f'there is a rule "{name}" already ({_origin(found.rules[name])}); rename this one')
        if not _NAME.fullmatch(name) or name != module.rpartition(".")[2]:
            raise ConfigError("a rule's name is its module's: lower-case words joined by single underscores")
        rule = _only_rule(_load(module))
        _check(rule)
    except ConfigError as error:
        earlier = [str(found.problems[name])] if name in found.problems else []
        found.problems[name] = ConfigError("\n".join([*earlier, f"{source}: {' '.join(str(error).split())}"]))
    else:
        found.rules[name] = rule


def _origin(rule: type[AnyRule]) -> str:
    return str(getattr(sys.modules[rule.__module__], "__file__", rule.__module__))


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        # A user's file may fail in any way, and may even want to end the process.
        raise ConfigError(f"{type(error).__name__}: {error}{_line(error, name)}") from error


def _line(error: BaseException, module: str) -> str:
    """` (line 3)`: where in *module* it went wrong. A syntax error says it itself."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).stem == module.rpartition(".")[2]]
    return f" (line {lines[-1]})" if lines else ""


def _only_rule(module: ModuleType) -> type[AnyRule]:
    """The one rule that *module* defines; rules that it imports, and classes that begin with an underscore, are not counted."""
    rules = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Rule | EventRule)
        and kind.__module__ == module.__name__
        and not kind.__name__.startswith("_")
    ]
    if len(rules) != 1:
        names = ", ".join(kind.__name__ for kind in rules) or "none"
        raise ConfigError(f"a file defines one rule, a subclass of detector.rule.Rule or EventRule; here: {names}")
    return rules[0]


def _check(rule: type[AnyRule]) -> None:
    """Whether *rule* can be configured and asked at all; a ConfigError says why not."""
    made = vars(rule).get("__dataclass_params__")
    if made is None or not made.frozen:
        raise ConfigError(f"{rule.__name__} must be a frozen dataclass: write @dataclass(frozen=True) above it")
    try:
        get_type_hints(rule)
        rule()
    except Exception as error:
        raise ConfigError(f"{rule.__name__}() fails, and every field needs a type and a default: {error}") from error
    for base, answers in _ANSWERS.items():
        for answer in answers:
            if issubclass(rule, base) and getattr(rule, answer) is getattr(base, answer):
                raise ConfigError(f"{rule.__name__} does not define {answer}()")
    for kind in ("needs", "uses"):
        metrics = getattr(rule, kind, ())
        if not isinstance(metrics, tuple):
            raise ConfigError(f'{rule.__name__}.{kind} must be a tuple of metric names, such as ("power_watts",), not {metrics!r}')
        for metric in metrics:
            if str(metric) not in METRICS:
                raise ConfigError(f'{rule.__name__}.{kind} names "{metric}", which is no metric{did_you_mean(str(metric), METRICS)}')
