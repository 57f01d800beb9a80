"""A compiled transformer on a million points, beside scikit-learn: time as a ratio, memory, and the same centers.

    python examples/a_million_points.py [points]

16 dimensions, 64 clusters, 10 layers, float32, the same start, both in one process, one after the other, three times.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import weftc

WIDTH, CLUSTERS, LAYERS, ROUNDS = 16, 64, 10, 3


class Memory(threading.Thread):
    """The most memory this process held beyond what it held at the start, in MiB; 0 where the system does not say."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start_size, self.largest, self.watching = resident(), 0.0, True

    def run(self) -> None:
        while self.watching:
            self.largest = max(self.largest, resident() - self.start_size)
            time.sleep(0.01)


def resident() -> float:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * 4096 / 2**20 if pages.exists() else 0.0


def main() -> int:
    many = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 1_000_000
    chance = torch.Generator().manual_seed(0)
    means = torch.rand(CLUSTERS, WIDTH, generator=chance) * 10 - 5
    x = means[torch.randint(0, CLUSTERS, (many,), generator=chance)] + torch.randn(many, WIDTH, generator=chance)
    c = means + torch.randn(CLUSTERS, WIDTH, generator=chance) / 2  # no cluster is empty: scikit-learn would move it
    model = weftc.load(weftc.compile("lloyd", dims={"d": WIDTH, "k": CLUSTERS}, layers=LAYERS), dtype=torch.float32)
    ours, theirs, extra = [], [], 0.0
    for _ in range(ROUNDS):
        watch = Memory()
        watch.start()
        begun = time.perf_counter()
        answer = model(x=x, c=c)
        ours.append(time.perf_counter() - begun)
        watch.watching = False
        extra = max(extra, watch.largest)
        judge = KMeans(CLUSTERS, init=c.numpy(), n_init=1, max_iter=LAYERS, tol=0, algorithm="lloyd")
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            judge.fit(x.numpy())
        theirs.append((time.perf_counter() - begun) * LAYERS / judge.n_iter_)
    gap = float(np.abs(answer["centers"].numpy() - judge.cluster_centers_).max())
    tiers = model.report.total
    best, middle = min(ours) / min(theirs), np.median(ours) / np.median(theirs)
    print(f"{many} points, backend {model.report.backend} {model.report.why}")
    print(f"  time: {best:.2f} times scikit-learn's at its fastest, {middle:.2f} times in the median")
    print(f"  memory beyond the input: {extra:.0f} MiB")
    print(
        f"  decisions: {tiers.bound} certain in floating point, {tiers.exact} settled exactly, {tiers.undecided} open"
    )
    print(f"  centers: within {gap:.1e} of scikit-learn's, which adds up in float32")
    return 0 if gap < 1e-3 and tiers.undecided == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
