"""Rules and models are found wherever they lie, and nothing of a stranger is imported."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detector.discover import discover, model_class
from detector.errors import ConfigError
from detector.rule import EventRule, Rule, name_of

ROOT = Path(__file__).parents[1]
BUILT_IN = sorted(path.stem for path in (ROOT / "rules").glob("[!_]*.py"))

RULE = """
from dataclasses import dataclass
from typing import ClassVar
from detector.rule import EventRule, Rule
{before}
@dataclass(frozen=True)
class TooLoud(Rule):
    limit_percent: float = 90.0
    needs: ClassVar = ("fan_speed_percent",)
    uses: ClassVar = ("fan_speed_rpm",)
    {field}
    def check(self, window): ...
    def tell(self, window, verdict): ...
{after}
"""


def rule(before: str = "", field: str = "", after: str = "") -> str:
    """A file with a rule in it, and with something more at three places."""
    return RULE.format(before=before, field=field, after=after)


# -- built-in -----------------------------------------------------------------------------------------------------------------
def test_every_built_in_rule_is_found_and_sound() -> None:
    """Each file of rules/ is a rule of its name, and a file with an underscore is none."""
    rules, problems = discover()

    assert {} == {name: str(problem) for name, problem in problems.items()}
    assert BUILT_IN == sorted(rules)
    assert BUILT_IN == sorted(map(name_of, rules.values()))


def test_what_is_found_is_what_tests_import() -> None:
    """In a checkout a rule is the same object by `from rules.idle_gpu import IdleGpu` and by discovery."""
    found = discover().rules

    assert found == {name: getattr(importlib.import_module(f"rules.{name}"), kind.__name__) for name, kind in found.items()}
    assert found == discover().rules


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    """Importing the module of discovery loads neither a rule nor a model."""
    assert "[]" == python("import sys, detector.discover; print([n for n in sys.modules if n.startswith(('rules', 'models'))])", ROOT)


def test_a_model_is_the_class_with_the_name_of_its_file() -> None:
    """isolation_forest is IsolationForest."""
    assert "IsolationForest" == model_class("isolation_forest").__name__


def test_an_unknown_model_is_told_with_those_there_are() -> None:
    """The message names the nearest model."""
    with pytest.raises(ConfigError) as raised:
        model_class("isolation_forrest")

    assert 'there is no model "isolation_forrest"; did you mean "isolation_forest"? There are: isolation_forest.' == str(raised.value)


# -- two places, and strangers ------------------------------------------------------------------------------------------------
def python(code: str, cwd: Path, *path: Path) -> str:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


def lay_out(root: Path, place: str) -> Path:
    """A gpuwarden with one rule and one model, which lie in *place*: beside detector as in a checkout, or in it as in a wheel."""
    shutil.copytree(ROOT / "detector", root / "detector", ignore=shutil.ignore_patterns("__pycache__"))
    for folder, file, text in (
        ("rules", "too_loud.py", rule(before="from ._limits import LIMIT")),
        ("rules", "_limits.py", "LIMIT = 3"),
        ("models", "echo.py", "from ._parts import Part\nclass Echo(Part): ..."),
        ("models", "_parts.py", "class Part: ..."),
    ):
        path = root / place / folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return root


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """A folder to start in, such as a training repository, that has packages with our folders' names."""
    for name in ("rules", "models"):
        (tmp_path / "training" / name).mkdir(parents=True)
        (tmp_path / "training" / name / "__init__.py").write_text("print('a stranger was imported')")
        (tmp_path / "training" / name / "too_loud.py").write_text("print('a stranger was imported')")
    return tmp_path / "training"


FIND = """
from detector.discover import discover, model_class
rules, problems = discover()
print(*(kind.__module__ for kind in (*rules.values(), model_class("echo"))), *map(str, problems.values()))
"""


@pytest.mark.parametrize("place", [".", "detector"])
def test_rules_lie_beside_detector_or_in_it(tmp_path: Path, place: str) -> None:
    """A checkout and a wheel find the same, each under the name by which it is imported there; helpers are imported with a dot."""
    home = lay_out(tmp_path / "home", place)
    prefix = "detector." if place == "detector" else ""

    assert f"{prefix}rules.too_loud {prefix}models.echo" == python(FIND, tmp_path, home)


@pytest.mark.parametrize("place", [".", "detector"])
def test_a_stranger_is_never_imported(tmp_path: Path, strangers: Path, place: str) -> None:
    """Packages named rules and models that come earlier on the path are left alone."""
    home = lay_out(tmp_path / "home", place)

    assert "detector.rules.too_loud detector.models.echo" == python(FIND, strangers, home)


def test_a_stranger_that_is_there_already_is_left_alone(tmp_path: Path, strangers: Path) -> None:
    """A program that has imported its own rules package, or a module without a spec, gets ours beside it."""
    home = lay_out(tmp_path / "home", ".")
    code = f"import sys, types, rules\nsys.modules['models'] = types.ModuleType('models')\n{FIND}"

    assert "a stranger was imported\ndetector.rules.too_loud detector.models.echo" == python(code, strangers, home)


def test_an_installation_without_rules_is_told(tmp_path: Path) -> None:
    """No rules at all would look like no incidents at all."""
    shutil.copytree(ROOT / "detector", tmp_path / "detector", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from detector.discover import discover\ntry:\n    discover()\nexcept Exception as error:\n    print(error)"

    assert f"{tmp_path / 'detector' / 'rules'} is missing: gpuwarden is not completely installed" == python(code, tmp_path, tmp_path)


# -- a user's own -------------------------------------------------------------------------------------------------------------
def problem(folder: Path, text: str, name: str = "too_loud") -> str:
    """What is said of a file *name* with *text* in it, without the file's name."""
    file = folder / f"{name}.py"
    file.write_text(text)
    rules, problems = discover(folder)
    assert set(BUILT_IN) <= set(rules), "the other rules still load"
    assert f"{file}: " == str(problems[name])[: len(f"{file}: ")]
    return str(problems[name])[len(f"{file}: ") :]


def test_a_users_folder_is_searched(tmp_path: Path) -> None:
    """Rules and event rules of the user's own, with helpers beside them, imported rules not counted."""
    (tmp_path / "too_loud.py").write_text(rule(before="from ._helpers import Quiet as _\nfrom detector.rule import Finding"))
    (tmp_path / "noted.py").write_text(
        "from dataclasses import dataclass\nfrom detector.rule import EventRule\nfrom .too_loud import TooLoud\n"
        "@dataclass(frozen=True)\nclass _Base(EventRule): ...\n"
        "@dataclass(frozen=True)\nclass Noted(_Base):\n    def judge(self, event): ...\n"
    )
    (tmp_path / "_helpers.py").write_text("from detector.rule import Rule\nclass Quiet(Rule): ...")
    (tmp_path / "readme.txt").touch()
    rules, problems = discover(tmp_path)

    assert {"too_loud", "noted"} == set(rules) - set(BUILT_IN)
    assert not {"too_loud", "noted"} & set(problems)
    assert issubclass(rules["too_loud"], Rule)
    assert issubclass(rules["noted"], EventRule)
    assert ["noted", "too_loud"] == sorted(name_of(rules[name]) for name in ("too_loud", "noted"))


def test_two_folders_may_have_rules_of_the_same_name(tmp_path: Path) -> None:
    """What one folder was searched for does not stand in for another."""
    for limit in ("1", "2"):
        (tmp_path / limit).mkdir()
        (tmp_path / limit / "too_loud.py").write_text(rule(field=f"limit: float = {limit}"))

    assert [1, 2] == [discover(tmp_path / limit).rules["too_loud"]().limit for limit in ("1", "2")]  # type: ignore[union-attr]


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    """A misspelt folder is not an empty one."""
    with pytest.raises(ConfigError, match=f"^{tmp_path}/absent: there is no such folder of rules$"):
        discover(tmp_path / "absent")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def x(:\n", "SyntaxError: invalid syntax (too_loud.py, line 1)"),
        ("import os\n\n\n1 / 0", "ZeroDivisionError: division by zero (line 4)"),
        ("import sys\nsys.exit('bye\\nbye')", "SystemExit: bye bye (line 2)"),
        ("import no_such_module_of_anybody", "ModuleNotFoundError: No module named 'no_such_module_of_anybody' (line 1)"),
        ("", "a file defines one rule, a subclass of detector.rule.Rule or EventRule; here: none"),
        (rule(after="class Second(EventRule): ..."),
         "a file defines one rule, a subclass of detector.rule.Rule or EventRule; here: TooLoud, Second"),
        (rule().replace("(frozen=True)", ""), "TypeError: cannot inherit non-frozen dataclass from a frozen one (line 6)"),
        (rule().replace("@dataclass(frozen=True)", ""), "TooLoud must be a frozen dataclass: write @dataclass(frozen=True) above it"),
        (rule(field="_: 'Unheard' = 3"), "TooLoud() fails, and every field needs a type and a default: name 'Unheard' is not defined"),
        (rule(field="def __post_init__(self): raise ValueError('no\\nway')"),
         "TooLoud() fails, and every field needs a type and a default: no way"),
        (rule().replace("def check", "def chekc"), "TooLoud does not define check()"),
        (rule().replace("def tell", "def tel"), "TooLoud does not define tell()"),
        (rule(before="@dataclass(frozen=True)\nclass Noted(EventRule): ...").partition("@dataclass(frozen=True)\nclass TooLoud")[0],
         "Noted does not define judge()"),
        (rule().replace("fan_speed_percent", "fan_sped_percent"),
         'TooLoud.needs names "fan_sped_percent", which is no metric; did you mean "fan_speed_percent"?'),
        (rule().replace("fan_speed_rpm", "qqq"), 'TooLoud.uses names "qqq", which is no metric'),
        (rule().replace('("fan_speed_rpm",)', '("fan_speed_rpm")'),
         "TooLoud.uses must be a tuple of metric names, such as (\"power_watts\",), not 'fan_speed_rpm'"),
        (rule().replace('("fan_speed_rpm",)', "([1],)"), 'TooLoud.uses names "[1]", which is no metric'),
    ],
)  # fmt: skip
def test_a_broken_rule_is_told_and_harms_no_other(tmp_path: Path, text: str, said: str) -> None:
    """One line with the file, and where it is known the line in it; every other rule is found."""
    assert said == problem(tmp_path, text)


@pytest.mark.parametrize("name", ["TooLoud", "too-loud", "too__loud", "1loud"])
def test_a_rules_name_can_be_a_key_and_a_variable(tmp_path: Path, name: str) -> None:
    """A name that the environment could not spell is refused."""
    assert "a rule's name is its module's: lower-case words joined by single underscores" == problem(tmp_path, rule(), name)


def test_a_built_in_rule_is_not_replaced(tmp_path: Path) -> None:
    """A user's file with the name of a built-in rule is told, and the built-in one stays."""
    name = BUILT_IN[0]

    assert f'there is a rule "{name}" already ({ROOT / "rules" / name}.py); rename this one' == problem(tmp_path, rule(), name)
    assert f"rules.{name}" == discover(tmp_path).rules[name].__module__


# -- other packages -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with modules to offer; its entry points are still to be written."""
    (tmp_path / "acme_gpus-1.0.dist-info").mkdir()
    (tmp_path / "acme_gpus-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-gpus\nVersion: 1.0\n")
    (tmp_path / "acme_gpus").mkdir()
    (tmp_path / "acme_gpus" / "too_loud.py").write_text(rule())
    (tmp_path / "acme_gpus" / "broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_gpus"]:
        del sys.modules[name]


def test_rules_of_other_packages_are_found(package: Path) -> None:
    """Entry points of the group gpuwarden.rules name modules; one that fails is told by its own words."""
    (package / "acme_gpus-1.0.dist-info" / "entry_points.txt").write_text(
        "[gpuwarden.rules]\ntoo_loud = acme_gpus.too_loud\nbroken = acme_gpus.broken\nother = acme_gpus.too_loud\nabsent = acme.absent\n"
    )
    rules, problems = discover()

    assert "acme_gpus.too_loud" == rules["too_loud"].__module__
    assert {
        "entry point broken = 'acme_gpus.broken': ZeroDivisionError: division by zero (line 1)",
        "entry point other = 'acme_gpus.too_loud': a rule's name is its module's: lower-case words joined by single underscores",
        "entry point absent = 'acme.absent': ModuleNotFoundError: No module named 'acme'",
    } == {str(problems[name]) for name in ("broken", "other", "absent")}


def test_a_users_rule_goes_before_one_of_a_package(package: Path) -> None:
    """Two problems with one name are two lines, and what works is found."""
    (package / "acme_gpus-1.0.dist-info" / "entry_points.txt").write_text(
        "[gpuwarden.rules]\ntoo_loud = acme_gpus.too_loud\nbroken = acme_gpus.broken\n"
    )
    own = package / "own"
    own.mkdir()
    (own / "too_loud.py").write_text(rule())
    (own / "broken.py").write_text("")
    rules, problems = discover(own)

    assert str(own / "too_loud.py") == sys.modules[rules["too_loud"].__module__].__file__
    assert [
        f"entry point too_loud = 'acme_gpus.too_loud': there is a rule \"too_loud\" already ({own / 'too_loud.py'}); rename this one"
    ] == str(problems["too_loud"]).splitlines()
    assert [
        f"{own / 'broken.py'}: a file defines one rule, a subclass of detector.rule.Rule or EventRule; here: none",
        "entry point broken = 'acme_gpus.broken': ZeroDivisionError: division by zero (line 1)",
    ] == str(problems["broken"]).splitlines()
