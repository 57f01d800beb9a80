"""The README tells the truth: its commands and its Python run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pages import ROOT, commands, fenced
from weftc.cli import main

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = fenced("README.md")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the project's example data in it."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "points.csv").write_bytes((ROOT / "examples" / "points.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_run_in_the_order_they_are_shown(workplace: Path) -> None:
    shown = commands(BLOCKS)
    assert len(shown) >= 6
    for words in shown:
        assert main(words) == 0, shlex.join(words)
    assert (workplace / "clusters" / "centers.csv").exists()


def test_python_runs(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    programs = [block.text for block in BLOCKS if block.language == "python"]
    assert programs
    for program in programs:
        exec(compile(program, "README.md", "exec"), {})
    assert "proved" in capsys.readouterr().out


def test_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("run", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, re.M)
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").strip().endswith("make test")


def test_every_dependency_is_in_the_table() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = set(re.findall(r'^\s*"([A-Za-z][\w-]*)>=', project, re.M)) | set(
        re.findall(r'"([A-Za-z][\w-]*)>=', project)
    )
    table = README[README.index("## Dependencies") :]
    missing = {name for name in named if name not in table and name not in ("setuptools", "python")}
    assert not missing
