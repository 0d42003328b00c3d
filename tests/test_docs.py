"""The documentation says what the code does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_reference_is_what_the_code_says() -> None:
    """`python docs/generate.py` would change nothing."""
    stale = {
        str(path.relative_to(ROOT))
        for path, text in runpy.run_path(str(ROOT / "docs/generate.py"))["pages"]().items()
        if text != path.read_text()
    }

    assert set() == stale, "run `python docs/generate.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link of a page is a file that is there."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text())

    assert [] == [link for link in links if not (page.parent / link).exists()]


def test_readme_commands_are_commands() -> None:
    """What README tells people to run is understood by the command line or the Makefile."""
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    blocks = re.findall(r"^```sh$(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    said = {word for block in blocks for word in re.findall(r"^gpuwarden (\w+)", block, re.MULTILINE)}

    assert {"demo", "test"} <= set(targets)
    assert {"replay", "serve"} == said
    assert [] == [word for word in said if f"## gpuwarden {word}" not in (ROOT / "docs/cli.md").read_text()]
