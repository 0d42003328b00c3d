"""What an installed gpuwarden is: one import name, that works beside a stranger's rules/ and models/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"detector": "detector", "models": "detector/models", "rules": "detector/rules"}
"""Where each folder of the checkout lies in a wheel."""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What *command* prints on standard output; what it says on the other is the message where it fails."""
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is made of."""
    tree = tmp_path_factory.mktemp("tree")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tree)
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path) -> Path:
    """The wheel as the checkout builds it."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", cwd=tree)
    [wheel] = (tree / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment that has the wheel and this environment's libraries, but not the checkout."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    # A folder that a .pth names is searched, yet its own .pth files are not read: so the editable checkout stays out of sight.
    (packages / "libraries.pth").write_text("\n".join(dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))))
    return home / "bin"


@pytest.fixture
def training_repository(tmp_path: Path) -> Path:
    """A folder such as people start training in, with packages of its own that bear our folders' names."""
    for name in ("models", "rules"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('a stranger was imported')")
    return tmp_path


def test_a_wheel_claims_one_import_name(wheel: Path) -> None:
    """Nothing lies at the top of a wheel but detector and the metadata."""
    top = {name.partition("/")[0] for name in ZipFile(wheel).namelist()}

    assert {"detector", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"} == top


def test_a_wheel_holds_every_file_of_the_packages(tree: Path, wheel: Path) -> None:
    """Code, types marker, migrations and pages: what is in the checkout's folders is in the wheel, each at its place."""
    files = [(place, tree / name, path) for name, place in PACKAGES.items() for path in (tree / name).rglob("*") if path.is_file()]
    expected = {f"{place}/{path.relative_to(folder)}" for place, folder, path in files}

    assert expected == {name for name in ZipFile(wheel).namelist() if name.startswith("detector/")}


def test_a_source_distribution_builds_the_same_wheel(tree: Path, wheel: Path) -> None:
    """Whoever builds from the source distribution gets the files that the checkout gives."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "from-sdist", cwd=tree)

    assert wheel.read_bytes() == (tree / "from-sdist" / wheel.name).read_bytes()


@pytest.mark.parametrize("command", [["gpuwarden"], ["python", "-m", "detector"]], ids=" ".join)
def test_the_command_works_beside_a_strangers_folders(command: list[str], installed: Path, training_repository: Path) -> None:
    """All rules are found, and nothing of the folder that the command is started in is imported."""
    program, *arguments = command
    rules = run(installed / program, *arguments, "rules", "--json", cwd=training_repository, PYTHONPATH=str(training_repository))

    assert [] == [name for name in rule_names() if f'"{name}"' not in rules]


def rule_names() -> list[str]:
    names = [path.stem for path in sorted((ROOT / "rules").glob("*.py")) if not path.stem.startswith("_")]
    assert names
    return names
