"""A run that is ended at any moment goes on and ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weftc
from weftc.cli import main
from weftc_runtime.data.results import OneHot
from weftc_runtime.errors import RunError
from weftc_runtime.machines.saved_run import SavedRun

ROWS = np.random.default_rng(1).normal(size=(3000, 4)).astype(np.float32)


class Ended(Exception):
    """The run is ended."""


def bits(outputs: Any) -> dict[str, bytes]:
    found = {name: outputs[name] for name in outputs}
    return {
        name: (value.indices if isinstance(value, OneHot) else value).numpy().tobytes() for name, value in found.items()
    }


SPECS = {
    "lloyd": {"x": ROWS},
    "lloyd_split": {"x": np.round(ROWS)},
    "trimmed_kmeans": {"x": ROWS},
    "kmedoids": {"x": ROWS},
    "soft_kmeans": {"x": ROWS},
    "gmm_em": {"x": ROWS},
    "sinkhorn_log": {"x": ROWS[:60], "y": ROWS[60:150], "a": np.full(60, 1 / 60), "b": np.full(90, 1 / 90)},
    "sort": {"x": ROWS[:50, 0]},
}


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("spec", SPECS)
def test_a_run_goes_on_after_every_layer(
    spec: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SavedRun, "due", lambda _: True)
    given = {name: rows[:300] for name, rows in SPECS[spec].items()} if backend == "reference" else SPECS[spec]
    sizes = {"sort": {}, "sinkhorn_log": {"d": 4}}.get(spec, {"d": 4, "k": 3})
    compiled = weftc.compile(spec, sizes)
    model = weftc.load(compiled, backend=backend)
    kept = (
        {"resume": tmp_path / "never ended"} if spec in ("sinkhorn_log", "sort") else {}
    )  # exponentials are made anew
    whole = model.final(given, layers=6, seed=3, **kept)
    layers = model.report.layers

    def ends_at(last: int) -> Any:
        def tell(what: str, done: int, total: int | None) -> None:
            if what == "layer" and done == last:
                raise Ended

        return tell

    for last in (2, 5):  # before the state of that layer is written
        with pytest.raises(Ended):
            model.final(given, layers=6, seed=3, resume=tmp_path / "state", progress=ends_at(last))
    found = model.final(given, layers=6, seed=3, resume=tmp_path / "state")
    assert bits(found) == bits(whole)
    assert model.report.layers == layers


def test_a_state_belongs_to_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavedRun, "due", lambda _: True)
    model = weftc.load(weftc.compile("lloyd", {"d": 4, "k": 3}))
    model(x=ROWS, layers=3, seed=1, resume=tmp_path)
    other = ROWS.copy()
    other[7] += 1
    for changed in ({"seed": 2}, {"x": other}, {"x": ROWS[:-1]}, {"x": ROWS.astype(np.float64)}):
        with pytest.raises(RunError, match="holds the state of another run"):
            model(**{"x": ROWS, "seed": 1, "layers": 3, "resume": tmp_path} | changed)
    assert model(x=ROWS, layers=9, seed=1, resume=tmp_path)["centers"].shape == (3, 4)  # more layers are the same run
    (next(tmp_path.glob("layer-*")) / "state.json").write_text("{")
    with pytest.raises(RunError, match="is not the state of a run"):
        model(x=ROWS, layers=3, seed=1, resume=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is not a folder"):
        model(x=ROWS, layers=3, seed=1, resume=tmp_path / "file")
    with pytest.raises(RunError, match="not of a batch"):
        model(x=np.stack([ROWS, ROWS]), layers=3, seed=1, resume=tmp_path / "batch")


def test_an_index_is_kept_as_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that are made anew are not kept at all."""
    monkeypatch.setattr(SavedRun, "due", lambda _: True)
    sizes = {}
    for spec in ("lloyd", "soft_kmeans"):
        model = weftc.load(weftc.compile(spec, {"d": 4, "k": 50}))
        model(x=ROWS, layers=2, resume=tmp_path / spec)
        sizes[spec] = sum(file.stat().st_size for file in (tmp_path / spec).glob("layer-*/*.npy"))
    assert sizes["lloyd"] < 4 * len(ROWS) + 10_000
    assert sizes["soft_kmeans"] < 10_000


SLOW = """
import sys, time
from weftc.cli import main
from weftc_runtime.machines.run import Run
from weftc_runtime.machines.saved_run import SavedRun
SavedRun.due = lambda _: True
for name in ("layer", "run_many"):
    def slowed(*given, _original=getattr(Run, name), **more):
        time.sleep(0.02)
        return _original(*given, **more)
    setattr(Run, name, slowed)
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_command_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    shared = ["run", "lloyd", "--data", str(tmp_path / "x.npy"), "-D", "k=40", "--layers", "30", "--format", "npy"]
    assert main([*shared, "-o", str(tmp_path / "whole")]) == 0
    command = [*shared, "--resume", str(tmp_path / "state"), "-o", str(tmp_path / "out")]
    generator, killed = np.random.default_rng(0), 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", SLOW, *command], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (tmp_path / "state").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(float(generator.uniform(0.05, 0.5)))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed
    assert not (tmp_path / "out").exists() or killed < 3
    if not (tmp_path / "out").exists():
        assert main(command) == 0
    for name in ("centers.npy", "labels.npy"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "state").exists()
    capsys.readouterr()
    assert main([*shared, "--n-init", "2", "--resume", str(tmp_path / "state"), "-o", str(tmp_path / "more")]) == 2
    assert "--resume keeps the state of one run" in capsys.readouterr().err


def test_until_stable_goes_on_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavedRun, "due", lambda _: True)
    model = weftc.load(weftc.compile("lloyd", {"d": 4, "k": 5}))
    whole = model(x=ROWS, until_stable=True)
    layers, stable = model.report.layers, model.report.stable
    assert stable == (True,)
    model(x=ROWS, until_stable=True, limit=4, resume=tmp_path)
    found = model(x=ROWS, until_stable=True, resume=tmp_path)
    assert (model.report.layers, model.report.stable) == (layers, stable)
    assert torch.equal(found["centers"], whole["centers"])
