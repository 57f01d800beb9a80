"""A k-medoids of our own as judge, in plain loops and fractions.

Equality: for the same noise the drawn medoids are the same points, bit for bit, and so are the labels: a draw is the
first row with the largest score plus noise. The alternating method (each cluster takes the member with the smallest
total of squared distances to the others, which is the one nearest to their mean) must give the same medoids after every
iteration. The
package `kmedoids` would be the obvious judge, but is under the GPL; this judge was compared with its `alternating` by
hand: the same medoids on the data below.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import weftc
from judges.data_sets import Array, blobs, real, some_rows

ALTERNATING = """algorithm alternating_medoids
tokens i in points
       j in medoids : k
inputs x[i] : R^d
       c[j] : R^d init random(x)
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  m[j] = mean[i] x[i] where y[i,j] else c[j]
  then
  c[j] = sum[i] argmin[i](|x[i] - m[j]|^2 where y[i,j]) * x[i] else c[j]
outputs medoids = c, labels = y
"""


def squared(a: list[float], b: list[float]) -> Fraction:
    return sum(((Fraction(p) - Fraction(q)) ** 2 for p, q in zip(a, b, strict=True)), Fraction(0))


def assigned(x: Array, c: Array) -> list[int]:
    return [min(range(len(c)), key=lambda j: (squared(row, c[j].tolist()), j)) for row in x.tolist()]


def alternate(x: Array, c: Array, times: int) -> tuple[Array, list[int]]:
    labels: list[int] = []
    for _ in range(times):
        labels = assigned(x, c)
        c = c.copy()
        for j in range(len(c)):
            members = [i for i, label in enumerate(labels) if label == j]
            rows = x.tolist()
            if members:
                best = min(members, key=lambda i: (sum(squared(rows[i], rows[m]) for m in members), i))
                c[j] = x[best]
    return c, labels


@pytest.mark.parametrize("name", ["blobs", "iris"])
def test_alternating(name: str) -> None:
    x, c = blobs(40, 2, 3, seed=11) if name == "blobs" else (real("iris")[0][::4], some_rows(real("iris")[0], 3, 12))
    if name == "iris":
        x = x + np.random.default_rng(13).normal(size=x.shape) * 1e-3  # the mean is rounded; no ties
    model = weftc.load(weftc.compile(ALTERNATING, {"d": x.shape[1], "k": 3}))
    for t in (1, 2, 4):
        medoids, labels = alternate(x, c, t)
        ours = model(x=x, c=c, layers=t)
        assert np.array_equal(ours["medoids"], medoids)
        assert ours["labels"].indices.tolist() == labels


def draw_medoids(x: Array, c: Array, noise: Array, delta: Fraction) -> tuple[Array, list[int]]:
    labels: list[int] = []
    for g in noise:
        labels = assigned(x, c)
        new = c.copy()
        for j in range(len(c)):
            scores = [
                -squared(row, c[j].tolist()) - (0 if labels[i] == j else 2 * delta) + Fraction(float(g[i, j]))
                for i, row in enumerate(x.tolist())
            ]
            new[j] = x[scores.index(max(scores))]
        c = new
    return c, labels


@pytest.mark.parametrize("name", ["blobs", "wine", "grid"])
def test_the_same_noise_draws_the_same_medoids(name: str) -> None:
    """Also where whole numbers, in the data and in the noise, make most scores tie."""
    rng = np.random.default_rng(14)
    if name == "grid":
        x, noise = rng.integers(-2, 3, size=(30, 2)).astype(float), rng.integers(-2, 3, size=(3, 30, 3)).astype(float)
    else:
        x = blobs(60, 2, 3, seed=15)[0] if name == "blobs" else real("wine")[0][::3] / 100
        noise = rng.gumbel(size=(3, len(x), 3))
    c = some_rows(x, 3, seed=16)
    for scores in ("l2", "dot"):
        model = weftc.load(weftc.compile("kmedoids", {"d": x.shape[1], "k": 3}, {"delta": 2}, scores=scores))  # type: ignore[arg-type]
        ours = model(x=x, c=c, layers=3, noise={"g": noise})
        medoids, labels = draw_medoids(x, c, noise, Fraction(2))
        assert np.array_equal(ours["medoids"], medoids)
        assert ours["labels"].indices.tolist() == labels
