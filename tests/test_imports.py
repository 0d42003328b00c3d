"""Who may import whom, and what importing the engine costs."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import detector

ROOT = Path(__file__).parents[1]

# From the ground up: a module imports from its own layer and from those before it.
LAYERS = (
    {"errors", "metrics", "numerics"},
    {"frame", "incident"},
    {"ring"},
    {"model", "window"},
    {"rule"},
    {"inventory", "ruleset", "tracker"},
    {"correlate", "evidence"},
    {"judging"},
    {"latching"},
    {"engine"},
    {"everything else"},  # feeds the engine, or carries away what it says
    {"service"},
    {"cli"},
    {"__main__", "__init__"},  # the package itself names what users import from it
)
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}

# All of detector that a rule or a model may know.
VOCABULARY = {"errors", "frame", "incident", "metrics", "model", "numerics", "rule", "window"}

HEAVY = {"alembic", "fastapi", "pandas", "pydantic", "pynvml", "rich", "scipy", "sklearn", "sqlalchemy", "uvicorn"}


def python(code: str, *arguments: str) -> str:
    """What *code* prints in a fresh interpreter that stands in the checkout."""
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Import(NamedTuple):
    file: Path
    name: str
    relative: bool

    def __str__(self) -> str:
        return f"{self.file} imports {self.name}"

    @property
    def module(self) -> str | None:
        """`window` where the name is `detector.window.Window`; None where it is no module of detector."""
        package, _, rest = self.name.partition(".")
        path = ROOT / "detector" / rest.partition(".")[0]
        return path.name if package == "detector" and rest and (path.is_dir() or path.with_suffix(".py").is_file()) else None


def imports(folder: str) -> Iterator[Import]:
    """Every import below *folder*, late ones and those for type checkers too, by the full dotted name."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (Import(file, alias.name, False) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                here = file.parts[: -node.level] if node.level else ()
                module = ".".join([*here, *filter(None, [node.module])])
                yield from (Import(file, f"{module}.{alias.name}", node.level > 0) for alias in node.names)


def rank(module: str) -> int:
    return RANK.get(module, RANK["everything else"])


def test_the_engine_loads_no_heavy_library() -> None:
    """Importing the engine costs the standard library and numpy, so that a replay or an agent starts fast and small."""
    code = "import sys, detector.engine; print(*sorted(set(sys.argv[1:]) & {name.partition('.')[0] for name in sys.modules}))"

    assert "" == python(code, *HEAVY)


def test_imports_go_one_way() -> None:
    """No module of detector imports from a layer above its own; a new module of the engine gets its place in LAYERS."""
    modules = [(found.file.with_suffix("").parts[1], found) for found in imports("detector")]
    upward = [str(found) for importer, found in modules if found.module and rank(found.module) > rank(importer)]

    assert [] == upward


@pytest.mark.parametrize("folder", ["rules", "models"])
def test_rules_and_models_know_the_vocabulary_only(folder: str) -> None:
    """A rule or a model imports what a reading, a window and a verdict are, and neither the engine nor the service."""
    beyond = [str(found) for found in imports(folder) if found.module and found.module not in VOCABULARY]

    assert [] == beyond


@pytest.mark.parametrize("folder", ["detector", "rules", "models"])
def test_rules_and_models_are_never_named(folder: str) -> None:
    """They are discovered, not imported: in a wheel they lie inside detector, where `import rules` would find a stranger's.

    Files of one folder may share with a dot: `from ._limits import slowdown`.
    """
    neighbours = [found for found in imports(folder) if found.name.partition(".")[0] in {"rules", "models"}]
    named = [str(found) for found in neighbours if not (found.relative and found.name.startswith(f"{folder}."))]

    assert [] == named


def test_public_names_are_what_they_say() -> None:
    """`from detector import replay` is the function, even where another import has loaded the module that defines it before."""
    code = """if True:
        import importlib, detector
        homes = [importlib.import_module(home) for home in detector._HOMES.values()]
        print(*(name for name, home in zip(detector._HOMES, homes) if getattr(detector, name) is not getattr(home, name)))
    """

    assert "" == python(code)


def test_version_is_that_of_the_project() -> None:
    """The version stands in pyproject.toml and nowhere else; where this fails, the installation is older than the file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["version"] == detector.__version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt import from the package fails as it does for any module."""
    with pytest.raises(AttributeError, match="read_recordings"):
        detector.read_recordings  # noqa: B018
