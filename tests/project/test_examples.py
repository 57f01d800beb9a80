"""The scripts in examples/ run, their own checks pass, and they print what examples/README.md quotes."""

from __future__ import annotations

import ast
import runpy
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from pages import ROOT, Session, fenced, misquoted, requote

FOLDER = ROOT / "examples"
PAGE = FOLDER / "README.md"
SCRIPTS = sorted(FOLDER.glob("*.py"))
SLOW = {"compile_times", "a_million_points", "larger_than_memory"}  # processes of their own; half a minute of k-means
LINES = 95


def quotations() -> dict[str, Session]:
    """What the page says each script prints, by the script's name."""
    found = {}
    for block in fenced("examples/README.md"):
        line, *quoted = block.text.splitlines()
        assert line.startswith("$ python examples/"), f"a block of the page does not run an example: {line}"
        found[Path(line).stem] = Session(line, tuple(quoted))
    return found


@pytest.mark.parametrize(
    "script",
    [pytest.param(p, marks=pytest.mark.slow) if p.stem in SLOW else p for p in SCRIPTS],
    ids=lambda path: path.stem,
)
def test_succeeds_and_prints_what_is_quoted(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)  # what they write goes to a folder of its own
    monkeypatch.setattr(sys, "argv", [str(script)])
    threads = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(threads))  # an example may ask for fewer
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr()
    assert end.value.code == 0, printed.out
    assert printed.err == ""
    if script.stem in SLOW:
        return
    session = quotations()[script.stem]
    if request.config.getoption("--update-golden"):
        requote(PAGE, session, printed.out)
    else:
        assert misquoted(session.quoted, printed.out) == ""


def test_the_page_lists_every_example_and_no_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = [line.split("](")[0].removeprefix("| [") for line in text.splitlines() if line.startswith("| [")]
    assert sorted(listed) == [script.name for script in SCRIPTS]
    assert sorted(quotations()) == [script.stem for script in SCRIPTS if script.stem not in SLOW]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_is_short_and_says_what_it_shows(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES
    explained = ast.get_docstring(ast.parse(text)) or ""
    assert f"python examples/{script.name}" in explained
    assert len(explained.splitlines()) >= 5


def test_the_picture_is_a_picture(tmp_path: Path) -> None:
    """What colours_of_an_image.py writes by hand holds its pixels, in chunks whose sums are right."""
    example = runpy.run_path(str(FOLDER / "colours_of_an_image.py"))
    picture = example["sunset"]()
    example["write_png"](tmp_path / "picture.png", picture)
    data = (tmp_path / "picture.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + body),)
        chunks[kind] = body
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, 1 + 3 * width)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:].reshape(height, width, 3) == picture).all()
