"""What the playground's page is told, asked here without a browser: all specs, drawn points, patterns, matrices."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftc
from weftc.cli import main
from weftc.editor import playground
from weftc.files.locate import builtin
from weftc.files.locate import names as spec_names

SPECS = Path(weftc.__file__).parents[2] / "specs"


def text_of(spec: str) -> str:
    return builtin(spec).text


def drawn(spec: str, count: int = 24) -> dict[str, Any]:
    """Points for every brush of a spec."""
    asks = playground.checked_text(text_of(spec))["asks"]
    draw = np.random.default_rng(5)
    return {brush["field"]: draw.normal(size=(count, 2)).round(3).tolist() for brush in asks["brushes"]}


@pytest.mark.parametrize("spec", spec_names())
def test_every_spec_runs_on_drawn_points(spec: str) -> None:
    told = playground.checked_text(text_of(spec), lower=True)
    assert told["problems"] == []
    assert "".join(piece for _, piece in told["pieces"]) == text_of(spec)
    found = playground.ran(text_of(spec), drawn(spec), {}, {}, 3)
    assert "error" not in found, found
    assert len(found["frames"]) == 4
    json.dumps(found, allow_nan=False)
    for pattern in found["frames"][-1]["patterns"]:
        if "output" in pattern["told"] or pattern["told"].startswith(("plan", "projected")):
            continue
        sums = np.sum(pattern["weights"], axis=1)
        assert np.all((np.abs(sums - 1) < 1e-4) | (sums == 0)), pattern["told"]


def test_layers_are_those_of_the_interpreter() -> None:
    points = drawn("lloyd")["x"]
    found = playground.ran(text_of("lloyd"), {"x": points}, {"k": 4}, {}, 5, seed=3)
    run = weftc.interpret("lloyd", {"x": points}, 5, dims={"k": 4}, seed=3, trace=True)
    assert [frame["fields"]["c"] for frame in found["frames"][1:]] == [a.fields["c"].tolist() for a in run.layers]
    objectives = [frame["objective"] for frame in found["frames"]]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(objectives))


def test_patterns_are_read_when_their_step_reads_them() -> None:
    points = drawn("lloyd")["x"]
    found = playground.ran(text_of("lloyd"), {"x": points}, {"k": 3}, {}, 1)
    labels, mean = found["frames"][1]["patterns"]
    assert (labels["query"], labels["keys"]) == ("points", "centers")
    assert (mean["query"], mean["keys"]) == ("centers", "points")
    assert labels["weights"] == found["frames"][1]["fields"]["y"]
    moved = np.asarray(mean["weights"]) @ np.asarray(points)
    assert np.allclose(moved, found["frames"][1]["fields"]["c"], atol=1e-4)


def test_settings_reach_the_run() -> None:
    points = drawn("soft_kmeans")
    soft = playground.ran(text_of("soft_kmeans"), points, {"k": 2}, {"gamma": 0.01}, 1)["frames"][1]["fields"]["y"]
    hard = playground.ran(text_of("soft_kmeans"), points, {"k": 2}, {"gamma": 500.0}, 1)["frames"][1]["fields"]["y"]
    assert np.max(soft) < 0.75
    assert np.max(hard) > 0.99


@pytest.mark.parametrize(
    ("spec", "points", "dims", "params", "said"),
    [
        ("lloyd", {"x": []}, {"k": 3}, {}, "x"),
        ("lloyd", {"x": [[0, 0]]}, {"k": 3}, {}, "3"),
        ("soft_kmeans", {"x": [[0, 0], [1, 1]]}, {"k": 2}, {"gamma": -1}, "gamma"),
    ],
)
def test_what_cannot_run_is_said_in_words(spec: str, points: Any, dims: Any, params: Any, said: str) -> None:
    found = playground.ran(text_of(spec), points, dims, params, 2)
    assert said in found["error"]
    assert "Traceback" not in found["error"]


def test_mistakes_have_their_place_and_their_caret() -> None:
    text = text_of("lloyd").replace("argmin", "argmn")
    told = playground.checked_text(text)
    (problem,) = told["problems"]
    assert text[problem["start"] : problem["end"]] == "argmn"
    assert "^^^^^ did you mean 'argmin'?" in problem["shown"]
    assert told["asks"] is None
    assert "error[P103]" in playground.ran(text, {}, {}, {}, 1)["error"]


@pytest.mark.parametrize("spec", ["lloyd", "sinkhorn_log", "gmm_em"])
def test_matrices_are_those_of_inspect(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    checked = weftc.check(spec)
    sizes = {name: 2 if name == "d" else 3 for name in checked.dims}
    found = playground.matrices(text_of(spec), sizes, {})
    arguments = [word for name, value in sizes.items() for word in ("-D", f"{name}={value}")]
    assert main(["inspect", spec, "--stage", "weights", *arguments]) == 0
    assert found["text"].strip() == capsys.readouterr().out.strip()


def test_nothing_is_imported_that_a_browser_does_not_have() -> None:
    code = (
        "import sys; from weftc.editor import playground as p; import weftc; from weftc.files.locate import builtin;"
        "t = builtin('lloyd').text; p.checked_text(t, True); p.matrices(t, {}, {});"
        "assert 'frames' in p.ran(t, {'x': [[0, 0], [1, 1], [2, 0]]}, {}, {}, 2);"
        "print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    ours = {name for name in eval(found) if not name.startswith("_")}
    assert not ours & {"torch", "sklearn", "scipy", "ot", "safetensors", "jinja2", "matplotlib", "pandas"}
    assert {"numpy", "networkx", "weftc", "weftc_runtime"} <= ours
