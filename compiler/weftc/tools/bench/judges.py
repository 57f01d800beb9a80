"""Exact answers by a path of their own, in NumPy: nearest centers in rational arithmetic where float64 does not decide,
transport potentials in float64.

A label is right when it is the first nearest of the centers that came with it, as exact arithmetic finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
BLOCK = 2**22  # scores held at a time
UNIT = 2.0**-53
TINY = 1e-300  # more than what underflow can take away


def nearest(x: NDArray[Any], centers: NDArray[Any]) -> tuple[NDArray[np.int64], float]:
    """The index of the first nearest center of every point, exactly, and the sum of the squared distances."""
    c = centers.astype(np.float64)
    squares = (c**2).sum(1)
    largest = float(np.sqrt(squares.max()))
    growth = (c.shape[1] + 8) * UNIT * 1.01
    labels, total = np.empty(len(x), dtype=np.int64), 0.0
    for rows in _blocks(len(x), max(1, BLOCK // len(c))):
        points = x[rows].astype(np.float64)
        lengths = np.sqrt((points**2).sum(1))
        scores = squares - 2 * (points @ c.T)
        best = scores.argmin(1)
        lowest = scores[np.arange(len(best)), best]
        slack = 2 * growth * (largest**2 + 2 * lengths * largest) + TINY
        close = scores <= (lowest + slack)[:, None]
        for row in np.flatnonzero(close.sum(1) > 1):
            best[row] = _first_nearest(points[row], c, np.flatnonzero(close[row]))
        labels[rows] = best
        total += float((lowest + lengths**2).sum())
    return labels, total


def _blocks(many: int, block: int) -> Iterator[slice]:
    for at in range(0, many, block):
        yield slice(at, min(at + block, many))


def _first_nearest(point: Reals, c: Reals, candidates: NDArray[np.intp]) -> int:
    exact = [Fraction(value) for value in point.tolist()]

    def distance(candidate: int) -> Fraction:
        pairs = zip(exact, c[candidate].tolist(), strict=True)
        return sum(((value - Fraction(other)) ** 2 for value, other in pairs), Fraction(0))

    return min((int(one) for one in candidates), key=lambda one: (distance(one), one))


# ---- transport -------------------------------------------------------------------------------------------------------


def _costs(x: NDArray[Any], y: NDArray[Any]) -> Reals:
    a, b = x.astype(np.float64), y.astype(np.float64)
    return np.asarray(np.maximum(0, (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T))


def soft_means(x: NDArray[Any], start: NDArray[Any], sharpness: float, iterations: int) -> Reals:
    """Centers after steps of soft k-means: shares are a softmax of minus `sharpness` times the squared distance."""
    points, c = x.astype(np.float64), start.astype(np.float64)
    for _ in range(iterations):
        shares = -sharpness * _costs(points, c)
        shares -= _logsumexp(shares, 1)[:, None]
        shares -= shares.max(0)  # a far center keeps its weights
        np.exp(shares, out=shares)
        c = (shares.T @ points) / shares.sum(0)[:, None]
    return c


def dual_steps(
    x: NDArray[Any], y: NDArray[Any], regularisation: float, step: float, iterations: int
) -> tuple[Reals, Reals]:
    """Gradient steps on the dual, as the spec states them."""
    costs, many = _costs(x, y), len(x)
    u, v = np.zeros(many), np.zeros(many)
    for _ in range(iterations):
        kernel = (u[:, None] + v - costs) / regularisation
        kernel -= 1
        np.exp(kernel, out=kernel)
        rows, columns = kernel.sum(1), kernel.sum(0)
        u = u + step * (1 / many - rows) / (1 + rows)
        v = v + step * (1 / many - columns) / (1 + columns)
    return u, v


def sweeps(
    x: NDArray[Any], y: NDArray[Any], regularisation: float, iterations: int, columns_first: bool
) -> tuple[Reals, Reals]:
    """Alternating exact updates with masses 1/n, in the log domain; which side goes first is the caller's."""
    if columns_first:
        g, f = sweeps(y, x, regularisation, iterations, columns_first=False)
        return f, g
    scaled, many = -_costs(x, y) / regularisation, len(x)
    f, g = np.zeros(many), np.zeros(many)
    for _ in range(iterations):
        f = -np.log(many) - _logsumexp(scaled + g, 1)
        g = -np.log(many) - _logsumexp(scaled + f[:, None], 0)
    return f * regularisation, g * regularisation


def _logsumexp(values: Reals, axis: int) -> Reals:
    top = values.max(axis, keepdims=True)
    return np.asarray(np.log(np.exp(values - top).sum(axis)) + top.squeeze(axis))


def potential_error(
    found: tuple[NDArray[Any], NDArray[Any]], wanted: tuple[Reals, Reals], regularisation: float
) -> float:
    """The largest relative error of an entry of the plan exp((f + g - C) / regularisation)."""
    f, g = (np.asarray(a, dtype=np.float64) - b for a, b in zip(found, wanted, strict=True))
    extremes = (f.max() + g.max(), f.min() + g.min())
    return float(np.expm1(max(abs(value) for value in extremes) / regularisation))
