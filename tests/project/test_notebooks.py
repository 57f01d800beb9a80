"""Every notebook in examples/notebooks runs from top to bottom, and prints what is stored in it.

`pytest tests/project/test_notebooks.py --update-golden -n0` stores what it prints and shows now.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
PICTURE = re.compile(r"<\w+ size [\d.x]+ with \d+ Axes>")


def shown(notebook: Any) -> list[list[str]]:
    """What every cell prints and returns, as text; of a picture only that it is one."""
    return [
        [PICTURE.sub("a picture", one.get("text") or one.data.get("text/plain", "")) for one in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_what_it_says(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = FOLDER / f"{name}.ipynb"
    stored = nbformat.read(path, as_version=4)
    ran = nbformat.read(path, as_version=4)
    NotebookClient(
        ran, timeout=300, record_timing=False, coalesce_streams=True, resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    if request.config.getoption("--update-golden"):
        ran.metadata = {"kernelspec": ran.metadata["kernelspec"], "language_info": {"name": "python"}}
        nbformat.write(ran, path)
        return
    assert shown(ran) == shown(stored)


def test_what_a_notebook_shows_needs_no_magic() -> None:
    tutorial = nbformat.read(FOLDER / "tutorial.ipynb", as_version=4)
    shown = [one.data for cell in tutorial.cells for one in cell.get("outputs", ()) if "data" in one]
    assert {"image/png", "text/html"} <= {kind for data in shown for kind in data}
    assert any("<iframe" in data.get("text/html", "") for data in shown)
    assert not any(line.startswith("%") for cell in tutorial.cells for line in cell.source.splitlines())
