"""Initialisers: how an input starts when none is given, from the rows of another input and the seed.

The distinct rows are sorted, so that the choice depends on the data and the seed, not on the order of the tokens
(except for `first`, which is about that order). Pick p uses the number U(seed, "init:" + name, layer 0, p, 0).

`spread` picks with chances in proportion to squared distances. A squared distance is a float64 and a power of two apart
from it, so that neither very large nor very small ones are lost; before a pick all are taken relative to the power of
two of the largest. Where nothing would overflow or underflow, that changes no bit of a choice.

`spectral` does so with the rows' images along the leading eigenvectors. Once all images are picked, only copies count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import InputError
from weftc.interpreter.noise import uniforms
from weftc.interpreter.tables import Floats


def initial_rows(kind: str, name: str, source: str, rows: Floats, count: int, seed: int) -> Floats:
    """`count` rows for the input `name`, from the rows (n, width) of the input `source`."""
    if kind == "copy":
        if len(rows) != count:
            raise InputError(f"{name} starts as a copy of {source}, which has {len(rows)} rows, but needs {count}")
        return rows.copy()
    distinct, places, weights = np.unique(rows + 0.0, axis=0, return_index=True, return_counts=True)
    if len(distinct) < count:
        raise InputError(
            f"{name} starts from {count} different rows of {source} (`init {kind}`), but {source} has only "
            f"{len(distinct)} different {'row' if len(distinct) == 1 else 'rows'}; ask for fewer, or give {name} itself"
        )
    if kind == "first":
        return rows[np.sort(places)[:count]]
    seen = _along_leading(rows, distinct, count) if kind == "spectral" else distinct
    numbers, _ = uniforms(seed, f"init:{name}", 0, np.arange(count), 0)
    remaining = weights.astype(np.float64)
    nearest = np.zeros(len(distinct)), np.full(len(distinct), FARTHEST)
    picks: list[int] = []
    for number in numbers.tolist():
        chances = remaining * _relative(*nearest) if kind in ("spread", "spectral") and picks else remaining
        chances = chances if chances.any() else remaining
        cumulative = np.cumsum(chances)
        # the smallest place whose cumulative chance exceeds the target; the last possible one if rounding leaves none
        place = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
        picks.append(min(place, int(np.flatnonzero(chances)[-1])))
        remaining[picks[-1]] = 0.0
        nearest = _smaller(nearest, _squared_distances(seen, seen[picks[-1]]))
    return distinct[picks]


def _along_leading(rows: Floats, distinct: Floats, count: int) -> Floats:
    """The distinct rows along the `count` leading eigenvectors of the sum of x x^T, up to a power of two."""
    _, exponent = np.frexp(np.abs(rows).max())
    small = np.ldexp(rows, -exponent)
    _, vectors = np.linalg.eigh(small.T @ small)  # eigenvalues rise
    return np.asarray(np.ldexp(distinct, -exponent) @ vectors[:, -count:])


Scaled = tuple[Floats, NDArray[np.int64]]  # fraction in [1/2, 1), or 0, and exponent of two
FARTHEST, NEAREST = 2**20, -(2**20)  # exponents beyond those of all squared distances


def _squared_distances(rows: Floats, point: Floats) -> Scaled:
    """Squared differences, added from the first coordinate to the last; each row at a scale of its own."""
    with np.errstate(over="ignore"):
        gaps = rows - point
    halved = np.asarray(np.isinf(gaps).any(axis=1))
    gaps = np.where(halved[:, np.newaxis], rows / 2 - point / 2, gaps)
    _, exponent = np.frexp(np.abs(gaps).max(axis=1))
    total = np.zeros(len(rows))
    for coordinate in range(rows.shape[1]):
        total = total + np.ldexp(gaps[:, coordinate], -exponent) ** 2
    fraction, more = np.frexp(total)
    return fraction, np.where(total == 0, NEAREST, 2 * (exponent.astype(np.int64) + halved) + more)


def _smaller(a: Scaled, b: Scaled) -> Scaled:
    first = (a[1] < b[1]) | ((a[1] == b[1]) & (a[0] < b[0]))
    return np.where(first, a[0], b[0]), np.where(first, a[1], b[1])


def _relative(fraction: Floats, exponent: NDArray[np.int64]) -> Floats:
    """Numbers in proportion, the largest between 1/2 and 1."""
    return np.asarray(np.ldexp(fraction, np.maximum(exponent - exponent.max(), -2000)))
