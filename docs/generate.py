"""Writes the reference pages from the code: `python docs/generate.py`. A test compares them, so they cannot drift.

docs/metrics.md, docs/rules/README.md and docs/cli.md are written whole; of docs/configuration.md the tables between the two marks.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from detector import cli, config
from detector.discover import discover
from detector.metrics import METRICS
from detector.schema import RuleOut

HERE = Path(__file__).resolve().parent
WRITTEN = "<!-- written by docs/generate.py -->"
BEGIN, END = "<!-- tables: written by docs/generate.py -->", "<!-- end of tables -->"


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Each generated page, as it should be."""
    by_hand = (HERE / "configuration.md").read_text(encoding="utf-8")
    before, _, rest = by_hand.partition(BEGIN)
    after = rest.partition(END)[2]
    return {
        HERE / "metrics.md": metrics(),
        HERE / "rules" / "README.md": rules(),
        HERE / "cli.md": commands(),
        HERE / "configuration.md": f"{before}{BEGIN}\n\n{settings()}\n\n{END}{after}",
    }


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines)


def code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def metrics() -> str:
    rows = [
        (f"`{m.name}`", m.kind, m.unit, m.description, f"{m.cadence:g} s", m.nvml, code(m.smi), code(field for field, _ in m.dcgm))
        for m in METRICS.values()
    ]
    head = ("metric", "kind", "unit", "what it is", "read every", "NVML", "nvidia-smi", "DCGM")
    return f"""{WRITTEN}

# Metrics

Every metric that gpuwarden knows, from the catalogue in `detector/metrics.py`. A reading that is not there is missing, never 0; of a
counter only what it rises by is judged. `read every` is the cadence of live sampling; recordings have their own.

{table(head, rows)}
"""


def rules() -> str:
    found = discover().rules
    rows = []
    for name, kind in sorted(found.items()):
        rule = RuleOut.of(kind())
        hold = rule.parameters.get("hold")
        fires = "at once" if not hold else f"{hold:g} s"
        page = f"[`{name}`]({name}.md)" if (HERE / "rules" / f"{name}.md").exists() else f"`{name}`"
        rows.append(
            (
                page,
                rule.severity or "by the event",
                "with the event" if rule.kind == "events" else fires,
                rule.description.partition("\n\n")[0],
            )
        )
    return f"""{WRITTEN}

# Rules

What gpuwarden detects. `gpuwarden rules` lists them as they are configured; every parameter can be set for all GPUs or for some
([configuration](../configuration.md)). "fires after" is how long the condition must hold once the rule sees it; the look-back that a rule
needs to see it comes on top and stands on its page.

{table(("rule", "severity", "fires after", "fires when"), rows)}
"""


def commands() -> str:
    os.environ["COLUMNS"] = "110"
    parser = cli._parser()
    parts = [f"## gpuwarden\n\n```text\n{parser.format_help().rstrip()}\n```"]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts += [f"## gpuwarden {name}\n\n```text\n{sub.format_help().rstrip()}\n```" for name, sub in action.choices.items()]
    text = "\n\n".join(parts)
    return f"{WRITTEN}\n\n# Command line\n\n{(cli.__doc__ or '').partition(chr(10) * 2)[2].strip()}\n\n{text}\n"


def settings() -> str:
    tables: list[tuple[str, type[Any]]] = [("[service]", config.Service)]
    tables += [(f'[source] with type = "{name}"', kind) for name, kind in config.SOURCES.items()]
    tables += [("[model]", config.ModelSettings), ("[engine]", config.EngineSettings), ("[[notifiers]]", config.Notifier)]
    return "\n\n".join(f"### {title}\n\n{_table_of(kind)}" for title, kind in tables)


def _table_of(kind: type[Any]) -> str:
    hints = get_type_hints(kind, include_extras=True)
    rows = []
    for field in dataclasses.fields(kind):
        if field.name != "type" or kind is config.Notifier:
            rows.append((f"`{field.name}`", config.described(hints[field.name]), _default(field)))
    return table(("key", "takes", "default"), rows)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "" if field.default_factory is dataclasses.MISSING else "empty"
    value = field.default
    if value is None or value == ():
        return "none"
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    main()
