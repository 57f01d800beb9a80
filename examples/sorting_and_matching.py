"""Sorting and matching as transport: a transformer that sorts, gives soft ranks, and pairs two clouds of points.

    python examples/sorting_and_matching.py

First eight numbers: sorted, and ranked, by the spec `sort` with one more output written behind it. With much blur
neighbours share places, with little it sorts. Then two clouds of 16 points, matched by `sinkhorn_log`, beside the exact
solution of scipy's linear_sum_assignment. Printed for smaller and smaller lambda: what the plan costs, how far its row
sums are from what they should be, and in how many pairs its rounding to a permutation differs from the best one.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.optimize import linear_sum_assignment

import weftc

RANKS = "\noutputs rank[s] = sum[t] softmax[t](S[s,t]) * index(t)\n"  # a section may stand more than once
POINTS, SWEEPS = 16, 60


def sorting() -> bool:
    numbers = np.array([0.62, 0.11, 0.97, 0.35, 0.48, 0.86, 0.23, 0.74])
    text = weftc.parse("sort").source.text
    print("numbers        ", *(f"{number:5.2f}" for number in numbers))
    for blur in (0.1, 0.001):
        model = weftc.load(weftc.compile(text + RANKS, params={"lambda": blur}))
        answer = {name: values.numpy() for name, values in model(x=numbers).items()}
        print(f"lambda = {blur}")
        for name in ("rank", "sorted"):
            print(f"         {name:6}", *(f"{value:5.2f}" for value in answer[name]))
    order = np.argsort(np.argsort(numbers)) + 1
    right = np.abs(answer["sorted"] - np.sort(numbers)).max() < 0.01 and (np.rint(answer["rank"]) == order).all()
    print("as numpy sorts" if right else "NOT as numpy sorts")
    return bool(right)


def matching() -> bool:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(POINTS, 2)), rng.normal((1, 0), size=(POINTS, 2))
    cost = ((x[:, None] - y[None]) ** 2).sum(axis=2)
    rows, best = linear_sum_assignment(cost)
    mass = np.full(POINTS, 1 / POINTS)
    print(f"\n{POINTS} points to {POINTS} points, exactly: mean cost {cost[rows, best].mean():.4f}")
    print(f"lambda  cost after {SWEEPS} sweeps  rows off by  pairs that differ")
    differ = {}
    for blur in (10.0, 1.0, 0.1, 0.01):
        model = weftc.load(weftc.compile("sinkhorn_log", {"d": 2}, {"lambda": blur}))
        plan = model(x=x, y=y, a=mass, b=mass, layers=SWEEPS)["plan"].numpy()
        _, pairs = linear_sum_assignment(-plan)
        off, differ[blur] = np.abs(POINTS * plan.sum(axis=1) - 1).max(), int((pairs != best).sum())
        print(f"{blur:6}  {(plan * cost).sum():21.4f}  {off:11.1%}  {differ[blur]:17}")
    print("small lambda: nearer to the exact cost, but more sweeps until it is a plan at all")
    return differ[1.0] == 0


def main() -> int:
    return 0 if all([sorting(), matching()]) else 1


if __name__ == "__main__":
    sys.exit(main())
