"""Every notebook runs from top to bottom and ends with its answer; none is kept with outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).parent.parent.joinpath("notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path: Path) -> None:
    """A notebook in the repository holds what was written, not what was computed."""
    cells = nbformat.read(path, as_version=4).cells

    assert [] == [cell.id for cell in cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)]


def executed(name: str, tmp_path: Path) -> nbformat.NotebookNode:
    notebook = nbformat.read(next(path for path in NOTEBOOKS if path.stem == name), as_version=4)
    return NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")


def test_what_happened_names_what_the_simulator_broke(tmp_path: Path) -> None:
    """The mission's faults are in the answer, their evidence is plotted, and nothing was said on standard error."""
    notebook = executed("what_happened", tmp_path)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    answer = printed(notebook.cells[-1])
    faults = ("driver_fault", "idle_gpu", "memory_leak", "overheating", "rising_double_bit_ecc", "stuck_training")

    assert [] == [fault for fault in faults if fault not in answer]
    assert answer.startswith("In 60 minutes")
    assert [] == [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    plots = sum("image/png" in output.get("data", {}) for output in notebook.cells[-3].outputs)
    assert len(faults) <= plots <= int(answer.split(" things went wrong")[0].split()[-1])
