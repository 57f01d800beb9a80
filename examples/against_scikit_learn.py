"""Lloyd's k-means as a transformer, beside scikit-learn: the same centers after every layer, the same labels.

    python examples/against_scikit_learn.py

10,000 points in the plane, 5 clusters, the same start. After t layers the centers must equal those of
KMeans(max_iter=t, tol=0, algorithm="lloyd") to 1e-10, and its labels_ the assignment to those centers.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import weftc

TOLERANCE = 1e-10


def main() -> int:
    rng = np.random.default_rng(0)
    means = rng.uniform(-6, 6, size=(5, 2))
    x = np.concatenate([rng.normal(m, 1.0, size=(2000, 2)) for m in means])
    start = x[rng.choice(len(x), size=5, replace=False)]
    model = weftc.load(weftc.compile("lloyd", dims={"d": 2, "k": 5}))
    worst, wrong = 0.0, 0
    print("layers  largest difference of a center  different labels")
    for t in range(1, 11):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            judge = KMeans(5, init=start, n_init=1, max_iter=t, tol=0, algorithm="lloyd").fit(x)
        ours = model.final(x=torch.as_tensor(x), c=torch.as_tensor(start), layers=t)
        gap = float(np.abs(ours["centers"].numpy() - judge.cluster_centers_).max())
        differ = int((ours["labels"].indices.numpy() != judge.labels_).sum())
        print(f"{t:6}  {gap:30.1e}  {differ:16}")
        worst, wrong = max(worst, gap), wrong + differ
    ok = worst <= TOLERANCE and wrong == 0
    if ok:
        print(f"equal: centers within {TOLERANCE:g}, no label differs")
    else:
        print(f"NOT EQUAL: centers differ by up to {worst:.1e}, {wrong} labels differ")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
