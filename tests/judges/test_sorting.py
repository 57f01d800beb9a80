"""NumPy's sorting as judge.

Equality: `sort` gives the order of numpy.sort, its values blurred by lambda (to 0.01 for numbers 1/8 apart). Rankings
(`lowest`, `highest`, percentages) keep exactly the rows that a stable argsort puts first, so their means have the same
bits as the correctly rounded sum over those rows, divided once.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import weftc
from judges.data_sets import Array, real

RANKING = """algorithm ranking
tokens i in points
       q in queries
inputs x[i] : R^d, t[i] : R, z[q] : R^d
param  n = 3 >= 1, tau = 30 in [0, 100]
layer
  near[q]  = mean[i] t[i] by lowest[i](|z[q] - x[i]|^2, n)
  far[q]   = mean[i] t[i] by highest[i](|z[q] - x[i]|^2, n)
  share[q] = mean[i] t[i] by lowest[i](|z[q] - x[i]|^2, tau%)
outputs near, far, share
"""


def test_sorted_numbers() -> None:
    x = np.random.default_rng(6).permutation(np.arange(1, 9)) / 8
    ours = weftc.load(weftc.compile("sort"))(x=x)
    np.testing.assert_allclose(ours["sorted"], np.sort(x), rtol=0, atol=0.01)


def squared(a: list[float], b: list[float]) -> Fraction:
    return sum(((Fraction(p) - Fraction(q)) ** 2 for p, q in zip(a, b, strict=True)), Fraction(0))


def mean_of(t: Array, rows: list[int]) -> float:
    return math.fsum(t[rows].tolist()) / len(rows)


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", ["iris", "wine", "grid"])
def test_rankings_are_a_stable_argsort(name: str, scores: str) -> None:
    """Iris has duplicate rows and many exact ties; the grid has little else."""
    rng = np.random.default_rng(9)
    x = rng.integers(-2, 3, size=(60, 2)).astype(float) if name == "grid" else real(name)[0][::2]
    z, t = x[:6] + (0.5 if name == "grid" else 0.0), rng.normal(size=len(x))
    n, tau = 7, 30
    model = weftc.load(weftc.compile(RANKING, {"d": x.shape[1]}, {"n": n, "tau": tau}, scores=scores))  # type: ignore[arg-type]
    ours = model(x=x, t=t, z=z, layers=1)
    for q, point in enumerate(z.tolist()):
        exact = [squared(row, point) for row in x.tolist()]
        ranks = np.array([sorted(set(exact)).index(value) for value in exact])
        nearest = np.argsort(ranks, kind="stable")
        farthest = np.argsort(-ranks, kind="stable")
        assert float(ours["near"][q]) == mean_of(t, nearest[:n].tolist())
        assert float(ours["far"][q]) == mean_of(t, farthest[:n].tolist())
        kept = [i for i in range(len(x)) if 100 * (ranks < ranks[i]).sum() <= tau * (len(x) - 1)]
        assert float(ours["share"][q]) == mean_of(t, kept)
