"""Models in many threads and processes at once: forked, spawned, by joblib, in workers of a data loader.

Every test is a program of its own, with two cores for torch, that must end by itself and give the same bits everywhere.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

START = """
import os, sys, warnings
import numpy as np, torch
import weftc
from weftc.sklearn import WeftClusterer

SPECS = {"lloyd": {"k": 16}, "soft_kmeans": {"k": 4}, "trimmed_kmeans": {"k": 4}}

def points(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)

def model(name, backend="auto"):
    return weftc.load(weftc.compile(name, dims={"d": 4, **SPECS[name]}), dtype=torch.float32, backend=backend)

def answer(made, n, seed=0):
    found = made(x=points(n, seed), seed=seed, layers=6)
    return found["centers"].numpy().tobytes()

def fitted(seed):
    found = WeftClusterer("lloyd", 5, random_state=seed, n_init=2).fit(points(400, seed))
    return found.cluster_centers_.tobytes(), found.labels_.tobytes(), found.inertia_
"""

FORK = """
def main():
    torch.set_num_threads(2)
    for name in SPECS:
        for backend, n in (("auto", 60_000), ("planned", 500), ("reference", 200)):
            made = model(name, backend)
            here = answer(made, n)
            child = os.fork()
            if not child:
                fresh = model(name, backend)
                os._exit(0 if answer(made, n) == here == answer(fresh, n) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, (name, backend)
            assert answer(made, n) == here
"""

FORK_WHILE_RUNNING = """
from threading import Thread

def main():
    torch.set_num_threads(2)
    made = model("lloyd")
    here, ended = answer(made, 60_000), []

    def work():
        while not ended:
            answer(made, 60_000)

    busy = Thread(target=work)
    busy.start()
    try:
        for _ in range(5):
            child = os.fork()
            if not child:
                os._exit(0 if answer(model("lloyd"), 60_000) == here else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        ended.append(True)
        busy.join()
"""

POOLS = """
from multiprocessing import get_context

def main():
    torch.set_num_threads(2)
    here = [fitted(seed) for seed in range(3)]
    for way in ("fork", "spawn"):
        with get_context(way).Pool(2) as pool:
            assert pool.map(fitted, range(3)) == here, way
"""

JOBLIB = """
from joblib import Parallel, delayed

def main():
    here = [fitted(seed) for seed in range(3)]
    for way in ("threading", "loky", "multiprocessing"):
        assert Parallel(n_jobs=2, backend=way)(delayed(fitted)(seed) for seed in range(3)) == here, way
"""

DATA_LOADER = """
from torch.utils.data import DataLoader, Dataset

class Clustered(Dataset):
    def __init__(self, made):
        self.made = made
    def __len__(self):
        return 6
    def __getitem__(self, number):
        found = self.made(x=points(20_000, number), seed=number, layers=4)
        return found["centers"], found["labels"].indices

def main():
    torch.set_num_threads(2)
    data = Clustered(model("lloyd"))
    here = [data[number] for number in range(len(data))]
    for way in ("fork", "spawn"):
        found = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=way)
        rows = [row for pair in found for row in zip(*pair)]
        assert all(torch.equal(a, b) for one, other in zip(rows, here, strict=True) for a, b in zip(one, other)), way
"""

THREADS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

def main():
    torch.set_num_threads(2)
    for name in SPECS:
        for backend, n in (("planned", 20_000), ("planned", 300), ("reference", 100)):
            here = [answer(model(name, backend), n, seed) for seed in range(6)]
            for _ in range(3):
                made, together = model(name, backend), Barrier(6)  # one that nobody has called yet
                def work(seed):
                    together.wait()
                    return answer(made, n, seed)
                with ThreadPoolExecutor(6) as pool:
                    assert list(pool.map(work, range(6))) == here, (name, backend)
"""

PROGRAMS = {
    "forked after a run": FORK,
    "forked during a run": FORK_WHILE_RUNNING,
    "pools": POOLS,
    "joblib": JOBLIB,
    "workers of a data loader": DATA_LOADER,
    "threads": THREADS,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_answers_are_the_same(name: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{START}\n{PROGRAMS[name]}\nif __name__ == '__main__':\n    main()\n")
    command = [sys.executable, "-W", "ignore", str(program)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
