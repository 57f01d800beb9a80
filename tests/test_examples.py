"""The scripts in examples/ run, and their own checks pass."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
SLOW = {"compile_times", "a_million_points"}  # a process for every spec; half a minute of k-means


@pytest.mark.parametrize(
    "script",
    [pytest.param(p, marks=pytest.mark.slow) if p.stem in SLOW else p for p in SCRIPTS],
    ids=lambda path: path.stem,
)
def test_example_succeeds(script: Path) -> None:
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == 0
