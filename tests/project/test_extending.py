"""docs/extending.md tells the truth: its changes apply to a copy of the project, and there do what the page says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pages import ROOT, Block, fenced
from weftc.compiling import compile

BLOCKS = fenced("docs/extending.md")
PROGRAM = """
import json, sys
import numpy as np
import weftc
from weftc.tools.doc_tables.tables import TABLES

spec = open(sys.argv[1]).read()
points = np.random.default_rng(5).normal(size=(9, 2))
weftc.compile(spec, {"d": 2, "k": 3}).save("ramps.safetensors")
model = weftc.load("ramps.safetensors")
found, meant = model(x=points), weftc.interpret(spec, {"x": points}, layers=1, dims={"k": 3})
tied = model(x=np.array([[0.0, 0.0]]), c=np.array([[1.0, 0.0], [-1.0, 0.0], [9.0, 9.0]]), layers=1)
squares = "algorithm squares tokens i in points inputs x[i] : R^d layer a[i] = relu(|x[i]|^2) outputs a"
decided = "algorithm decided tokens i, l in points j in centers : k inputs u[l] : R, v[l] : R, c[j] : R "
decided += "layer y[i,j] = argmin[j] |sum[l] ramp[l](-|u[l] - u[i]|^2) * v[l] - c[j]|^2 outputs y"
middle = {"u": np.ones(2), "v": np.array([0.0, 1.0]), "c": np.array([1.0, 0.0])}  # half way between two centers
streams = weftc.compile(squares, {"d": 2}).program.streams
print(json.dumps({
    "error": float(np.abs(found["m"].numpy() - meant["m"]).max()),
    "weights": found["y"].numpy().tolist(),
    "start": model.start(x=points)["c"].tolist() == points[-3:].tolist(),
    "verdict": weftc.verify(weftc.compile(spec, {"d": 2, "k": 3}), cases=3).verdict,
    "styles": sorted({one.name for one in weftc.verify(spec, {"d": 2, "k": 3}, cases=3).checks if not one.passed}),
    "tied": tied["y"].numpy().tolist(),
    "decided": weftc.load(weftc.compile(decided, {"k": 2}))(middle)["y"].indices.tolist(),
    "listed": "ramp[j](S)" in TABLES["weightings"]() and "last(x)" in TABLES["starts"](),
    "functions": [kept.function for stream in streams for kept in stream.derived],
    "relu": float(weftc.interpret(squares, {"x": [[3, 4]]})["a"][0]),
}))
"""


def change(folder: Path, block: Block) -> None:
    """Applies the hunks of a diff block: what they show as it was must stand there exactly once."""
    path = folder / block.file
    text = path.read_text(encoding="utf-8")
    for hunk in block.text.split("@@\n"):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines()]
        old, new = ("\n".join(text for mark, text in lines if mark in kept) for kept in (" -", " +"))
        assert text.count(old) == 1, f"{block.file} has {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


CHANGES = [block for block in BLOCKS if block.language == "diff"]


def changed(folder: Path, changes: list[Block]) -> subprocess.CompletedProcess[str]:
    """The program, run on a copy of the project with some changes of the page."""
    for part in ("compiler/weftc", "runtime/weftc_runtime"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "specs", folder / "compiler" / "weftc" / "specs")
    for block in changes:
        change(folder, block)
    (spec,) = (block for block in BLOCKS if block.file == "changed/ramps.weft")
    (folder / "ramps.weft").write_text(spec.text, encoding="utf-8")
    paths = os.pathsep.join(str(folder / part) for part in ("compiler", "runtime"))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-c", PROGRAM, "ramps.weft"]
    return subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What the program says with all of them."""
    done = changed(tmp_path_factory.mktemp("changed"), CHANGES)
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("at", range(len(CHANGES)), ids=[Path(block.file or "").stem for block in CHANGES])
def test_every_change_is_needed(at: int, answer: dict[str, object], tmp_path: Path) -> None:
    done = changed(tmp_path, CHANGES[:at] + CHANGES[at + 1 :])
    assert done.returncode != 0 or json.loads(done.stdout) != answer


def test_the_new_weighting_runs_as_it_means(answer: dict[str, object]) -> None:
    error, weights = answer["error"], answer["weights"]
    assert isinstance(error, float)
    assert isinstance(weights, list)
    assert error < 1e-15 * 64
    assert all(abs(sum(row) - 1) < 1e-15 * 4 for row in weights)
    assert any(0.0 in row for row in weights)


def test_the_new_weighting_is_proved(answer: dict[str, object]) -> None:
    assert answer["verdict"] == "proved"


def test_the_new_weighting_works_in_every_style_and_on_ties(answer: dict[str, object]) -> None:
    assert answer["styles"] == []
    assert answer["tied"] == [[0.5, 0.5, 0.0]]
    assert answer["decided"] == [0, 0]


def test_the_new_start_is_used(answer: dict[str, object]) -> None:
    assert answer["start"] is True


def test_the_reference_finds_the_new_words(answer: dict[str, object]) -> None:
    assert answer["listed"] is True


def test_the_new_rule_saves_a_feed_forward(answer: dict[str, object]) -> None:
    squares = "algorithm squares tokens i in points inputs x[i] : R^d layer a[i] = relu(|x[i]|^2) outputs a"
    before = [kept.function for stream in compile(squares, {"d": 2}).program.streams for kept in stream.derived]
    assert "relu" in before
    assert answer["functions"] == [name for name in before if name != "relu"]
    assert answer["relu"] == 25.0
