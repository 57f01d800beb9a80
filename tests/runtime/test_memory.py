"""Memory beyond the input: at most 24 bytes per point and 2 MiB per thread, results included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import weftc_runtime
from planned_cases import compiled
from weftc_runtime.kernels.native.library import Library, library
from weftc_runtime.machines import head_task as calls
from weftc_runtime.machines import planned as planned
from weftc_runtime.plan import slots as held
from weftc_runtime.plan.residual import Residual

PROGRAM = """
import resource, sys
import torch, weftc
from weftc.tools.bench.memory import Peak
from weftc.tools.bench.targets import MEMORY_PER_THREAD

torch.set_num_threads(1)
points, width, count, layers = map(int, sys.argv[1:])
model = weftc.load(weftc.compile("lloyd", dims={"d": width, "k": count}), dtype=torch.float32)
x = torch.randn(points, width, generator=torch.Generator().manual_seed(0))
c = x[:count].clone()
model.final(x=x[:20000], c=c, layers=layers)  # loads libraries
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
peak = Peak()
answer = model.final(x=x, c=c, layers=layers)
beyond = peak.beyond()
if beyond is None:  # a system that does not tell the peak since a moment
    beyond = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
assert model.report.backend == "planned", model.report.why
assert answer["labels"].indices.shape == (points,)
print(max(0, beyond - MEMORY_PER_THREAD) / points)
"""


def test_memory_per_point() -> None:
    sizes = ("300000", "16", "64", "8")  # enough layers for bounds to be kept
    run = subprocess.run([sys.executable, "-c", PROGRAM, *sizes], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) <= 24


COMMAND = """
import sys, threading, time
from pathlib import Path
from weftc.cli import main

status, peak, done = Path("/proc/self/status"), [0], threading.Event()

def own():  # memory that no file stands behind: what a limit counts even when the system takes mapped pages back
    return int(status.read_text().split("RssAnon:")[1].split()[0]) * 1024

def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], own())

watcher = threading.Thread(target=watch)
watcher.start()
code = main(["run", sys.argv[1], "--data", sys.argv[2], "-D", "k=16", "--layers", "2", "--dtype", "float32",
             "--format", "npy", "-o", sys.argv[2] + "-out"])
done.set()
watcher.join()
assert code == 0
print(max(peak[0], own()))
"""
ONE_PASS = (
    "lloyd", "soft_kmeans", "gmm_em_spherical",
    *(pytest.param(name, marks=pytest.mark.slow) for name in (
        "spherical_kmeans", "soft_spherical_kmeans", "trimmed_kmeans", "robust_kmeans", "robust_softmax",
        "trimmed_normmax", "kmedoids", "lloyd_split", "gmm_em",
    )),
)  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells memory of files apart")
@pytest.mark.parametrize("spec", ONE_PASS)
def test_a_run_of_a_mapped_file_takes_24_bytes_a_point(spec: str, tmp_path: Path) -> None:
    """24 bytes a point and 64 MiB, less than the file, with start, layers and results, beyond a run of few points."""
    points, width = 1_000_000, 32
    peaks = []
    for name, many in (("few.npy", 20_000), ("many.npy", points)):
        rows = np.random.default_rng(0).normal(size=(many, width)).astype(np.float32)
        if "spherical" in spec and "gmm" not in spec:
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        np.save(tmp_path / name, rows)
        command = [sys.executable, "-c", COMMAND, spec, str(tmp_path / name)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        peaks.append(int(run.stdout.split()[-1]))
    assert peaks[1] - peaks[0] <= 24 * points + 64 * 2**20
    assert peaks[1] - peaks[0] < 4 * points * width


def test_numbers_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they are finite and how large they are is one question, and nobody asks again."""
    kernels = library()
    assert kernels is not None
    model = weftc_runtime.load(compiled("lloyd", width=2, count=3), backend="planned")
    x = torch.randn(40_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    looks: list[int] = []
    peak = Library.peak

    def counted(self: Library, data: torch.Tensor, threads: int) -> float:
        looks.append(len(data))
        return peak(self, data, threads)

    monkeypatch.setattr(Library, "peak", counted)
    model(x=x, c=x[:3], layers=3)
    assert looks == [40_000]
    pair = torch.stack([x[:20_000], x[20_000:]])
    looks.clear()
    model(x=pair, c=torch.stack([x[:3], x[20_000:20_003]]), layers=3)
    assert looks == [40_000]
    for wrong in (torch.nan, torch.inf, -torch.inf):
        pair[1, 7, 1] = wrong
        with pytest.raises(weftc_runtime.RunError, match=r"x: problem 1, row 7, column 1 .* is not finite"):
            model(x=pair, c=x[:3], layers=1)


def test_names_of_tokens_are_indices() -> None:
    """k x k ones and zeros are never made: not for the state, and not again for every number of points."""
    model = weftc_runtime.load(compiled("lloyd", width=2, count=30), backend="planned")
    states: list[Residual] = []
    original = planned.PlannedBackend.embed

    def embed(self: planned.PlannedBackend, *given: object) -> object:
        made = original(self, *given)  # type: ignore[arg-type]
        states.append(made.residuals["centers"])  # type: ignore[arg-type]
        return made

    represented: list[int] = []
    look = calls._represented

    def counted(*given: object) -> object:
        represented.append(1)
        return look(*given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned.PlannedBackend, "embed", embed)
        patch.setattr(calls, "_represented", counted)
        for size in (100, 200, 300):
            x = torch.randn(size, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
            model(x=x, c=x[:30], layers=2)
    assert len(states) == 3
    for state in states:
        names = state.slot("id()")
        assert isinstance(names, held.IndexSlot)
        assert names.index.tolist() == list(range(30))
        assert torch.equal(names.rows(slice(0, 30)), torch.eye(30, dtype=torch.float64))
    assert represented == [1]
