"""Outliers pull means; trimming lets go of them. Plain and trimmed k-means on data with more and more dirt in it.

    python examples/outliers_and_trimming.py

Three round clusters of 200 points; 0 to 20 percent more points lie far out, all beside the same cluster. Every
transformer starts from the same three points and runs until nothing moves. Printed, for each share of outliers: their
share in the cluster they fall into, and how far the worst center ends up from the mean it should find, for `lloyd`
(which drops nothing) and `trimmed_kmeans` that drops the farthest 10 and 30 percent of every cluster. Trimming holds as
long as it may drop at least as much as there is dirt; the table shows where it breaks, and what it costs on clean data.
"""

from __future__ import annotations

import sys

import numpy as np

import weftc

MEANS = np.array([[0.0, 0.0], [8.0, 0.0], [4.0, 7.0]])
EACH = 200
SHARES = (0, 3, 10, 20)  # outliers per 100 clean points
DROPPED = (0, 10, 30)  # percent of its members, farthest first, that a center does not listen to; 0: plain k-means


def contaminated(share: int) -> np.ndarray:
    """Clean points first, then outliers: to the right of the second cluster, far out."""
    rng = np.random.default_rng(share)
    clean = np.concatenate([rng.normal(mean, 1.0, size=(EACH, 2)) for mean in MEANS])
    dirt = rng.uniform([15, -10], [40, 10], size=(len(clean) * share // 100, 2))
    return np.concatenate([clean, dirt])


def main() -> int:
    sizes = {"d": 2, "k": len(MEANS)}
    models = {0: weftc.load(weftc.compile("lloyd", sizes))}
    for dropped in DROPPED[1:]:
        models[dropped] = weftc.load(weftc.compile("trimmed_kmeans", sizes, {"tau": 100 - dropped}))
    print("worst distance of a center to its mean")
    print("outliers  in their cluster" + "".join(f"  drop {dropped:2}%" for dropped in DROPPED))
    wrong = []
    for share in SHARES:
        x = contaminated(share)
        start = x[[0, EACH, 2 * EACH]]  # one clean point of each cluster
        dirt = (len(x) - 3 * EACH) / (len(x) - 2 * EACH)
        row = f"{share:7}%  {dirt:17.0%}"
        for dropped, model in models.items():
            centers = model(x=x, c=start, until_stable=True)["centers"].numpy()
            error = float(np.linalg.norm(centers - MEANS, axis=1).max())
            row += f"{error:10.2f}"
            if (error < 0.5) != (100 * dirt <= dropped):
                wrong.append(f"dropping {dropped}% at {share}% outliers: {error:.2f}")
        print(row)
    print(f"unexpected: {'; '.join(wrong)}" if wrong else "a center is within 0.5 exactly when it may drop the dirt")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
