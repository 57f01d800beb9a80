"""Clusters a file that is larger than the memory it may use, and holds the answer against another way to compute it.

python examples/larger_than_memory.py --rows 19531250 --limit 2e9      # 10 GB under 2 GB

`ulimit -d` sets the same limit: it counts memory that a process writes, not pages of the mapped file, which the
system takes back when memory is short. The other way is NumPy: of multiples of 2^-20, so that sums have no error.
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

WIDTH, CENTERS, LAYERS, BLOCK = 128, 64, 3, 1 << 14


def make(path: Path, rows: int) -> np.ndarray:
    drawn = np.random.default_rng(16)
    means = drawn.uniform(-5, 5, size=(CENTERS, WIDTH))
    data = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, WIDTH))
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        block = drawn.normal(means[drawn.integers(0, CENTERS, size)], 2).clip(-15, 15)
        data[start : start + size] = np.round(block * 2**20) / 2**20
    return data


def nearest(block: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The first nearest center of every row: float32 finds it, what is close goes on to float64, then to fractions."""
    labels, rows = np.zeros(len(block), dtype=np.int64), np.arange(len(block))
    for dtype, slack in ((np.float32, 1e-4), (np.float64, 1e-9)):
        x, c = block[rows].astype(dtype), centers.astype(dtype)
        scores = (c * c).sum(1) - 2 * x @ c.T
        labels[rows] = found = scores.argmin(1)
        every = np.arange(len(rows))
        best = scores[every, found]
        scores[every, found] = np.inf
        size = (np.sqrt((x * x).sum(1)) + np.sqrt((c * c).sum(1).max())) ** 2
        rows = rows[scores.min(1) - best <= slack * size]
    for row in rows:
        x, *every = (list(map(Fraction, one.tolist())) for one in (block[row], *centers))
        exact = [sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c in every]
        labels[row] = exact.index(min(exact))
    return labels


def layer(data: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels, sums, counts = np.empty(len(data), dtype=np.int64), np.zeros(centers.shape), np.zeros(len(centers))
    for start in range(0, len(data), BLOCK):
        block = data[start : start + BLOCK]
        found = labels[start : start + BLOCK] = nearest(block, centers)
        order = found.argsort(kind="stable")
        chosen, first = np.unique(found[order], return_index=True)
        sums[chosen] += np.add.reduceat(block[order].astype(np.float64), first, axis=0)
        counts += np.bincount(found, minlength=len(centers))
    means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)
    return labels, means.astype(np.float32)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--limit", type=float, default=2e9, help="bytes")
    options.add_argument("--file", type=Path, help="made by an earlier run, instead of --rows")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, size = Path(folder), int(given.limit)
        file = given.file or path / "big.npy"
        data = np.load(file, mmap_mode="r") if file.exists() else make(file, given.rows)
        np.save(path / "start.npy", data[:CENTERS])
        command = [sys.executable, "-m", "weftc", "run", "lloyd", "--data", str(file.resolve())]
        command += f"--init start.npy --layers {LAYERS} --dtype float32 --format npy -o out".split()
        limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (size, size))  # noqa: E731
        begun = time.monotonic()
        subprocess.run(command, cwd=path, check=True, preexec_fn=limit)
        print(f"{data.nbytes / 1e9:.2f} GB under {size / 1e9:.2f} GB: {time.monotonic() - begun:.0f} s", flush=True)
        centers = np.array(data[:CENTERS])
        for _ in range(LAYERS):
            centers = layer(data, centers)[1]
        wrong = int((np.load(path / "out" / "labels.npy") != layer(data, centers)[0]).sum())
        same = np.load(path / "out" / "centers.npy").tobytes() == centers.tobytes()
        print(f"labels that differ from NumPy's: {wrong}; centers have {'the same' if same else 'other'} bits")
        raise SystemExit(int(wrong > 0 or not same))


if __name__ == "__main__":
    main()
