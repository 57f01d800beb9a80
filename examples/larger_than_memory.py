"""Clusters a file that is larger than the memory it may use, and holds the answer against another way to compute it.

python examples/larger_than_memory.py --rows 19531250 --limit 2e9      # 10 GB under 2 GB

The limit is that of `ulimit -d`: it counts what a process writes to memory of its own. It does not count pages of the
mapped file, which the system can take back whenever memory is short. The other way is NumPy in float64: the numbers are
multiples of 2^-20, so that their sums there have no error; what float64 cannot tell apart is settled by fractions.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

WIDTH, CENTERS, LAYERS, BLOCK = 128, 64, 3, 1 << 16


def make(path: Path, rows: int) -> np.ndarray:
    """Clusters that overlap, written block by block."""
    drawn = np.random.default_rng(16)
    means = drawn.uniform(-5, 5, size=(CENTERS, WIDTH))
    data = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, WIDTH))
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        block = drawn.normal(size=(size, WIDTH)) * 2 + means[drawn.integers(0, CENTERS, size)]
        data[start : start + size] = np.round(block.clip(-15, 15) * 2**20) / 2**20
    return data


def nearest(block: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The first nearest center of every row."""
    scores = (centers**2).sum(1) - 2 * block @ centers.T
    labels = scores.argmin(1)
    best = np.partition(scores, 1, axis=1)
    for row in np.flatnonzero(best[:, 1] - best[:, 0] <= 1e-9 * np.abs(best[:, :2]).max()):
        gaps = [[Fraction(x) - Fraction(c) for x, c in zip(block[row], center, strict=True)] for center in centers]
        exact = [sum(gap * gap for gap in one) for one in gaps]
        labels[row] = exact.index(min(exact))
    return labels


def layer(data: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labels of all rows, and the means of those with the same label."""
    labels = np.empty(len(data), dtype=np.int64)
    sums, counts = np.zeros(centers.shape), np.zeros(len(centers))
    for start in range(0, len(data), BLOCK):
        block = data[start : start + BLOCK].astype(np.float64)
        found = labels[start : start + BLOCK] = nearest(block, centers.astype(np.float64))
        chosen = (found[:, None] == np.arange(len(centers))).astype(np.float64)
        sums, counts = sums + chosen.T @ block, counts + chosen.sum(0)
    means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)
    return labels, means.astype(np.float32)


def main() -> None:
    """Makes, runs, compares."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--limit", type=float, default=2e9, help="bytes")
    options.add_argument("--file", type=Path, help="made by an earlier run, instead of --rows")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        file = given.file or path / "big.npy"
        data = np.load(file, mmap_mode="r") if file.exists() else make(file, given.rows)
        np.save(path / "start.npy", data[:CENTERS])
        command = [sys.executable, "-m", "weftc", "run", "lloyd", "--data", str(file.resolve()), "--init", "start.npy"]
        command += ["--layers", str(LAYERS), "--dtype", "float32", "--format", "npy", "-o", "out"]
        size = int(given.limit)
        begun = time.monotonic()
        subprocess.run(
            command, cwd=path, check=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (size, size))
        )
        seconds = time.monotonic() - begun
        centers = np.array(data[:CENTERS])
        for _ in range(LAYERS):
            centers = layer(data, centers)[1]
        labels = layer(data, centers)[0]
        print(f"{data.nbytes / 1e9:.2f} GB under a limit of {given.limit / 1e9:.2f} GB, {seconds:.0f} s")
        wrong = int((np.load(path / "out" / "labels.npy") != labels).sum())
        same = np.load(path / "out" / "centers.npy").tobytes() == centers.tobytes()
        print(f"labels that differ from NumPy's: {wrong}; centers have {'the same' if same else 'other'} bits")
        raise SystemExit(int(wrong > 0 or not same))


if __name__ == "__main__":
    main()
