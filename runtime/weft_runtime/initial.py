"""How an input starts when the user gives none: rows picked from another input, as a function of the seed alone.

All picks work on the distinct rows in lexicographic order with their multiplicities, so the order in which the rows
are given does not matter (except for `first`).

`spread` takes squared distances relative to the largest one left, each computed at a power of two of its own: no range
of the data makes one overflow, or all of them vanish.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from weft_runtime.errors import RunError, shown
from weft_runtime.noise import uniforms

Array = npt.NDArray[np.float64]
LEAST = 4096  # a power of two below which everything is zero beside 1
UNREACHED = 2**20  # a power of two that no squared distance has


def start(
    method: str, rows: Array, size: int | None, name: str, source: str, seed: int, mass: Array | None = None
) -> Array:
    """The rows (size, width) an input starts with; `rows` (n, width) are those of its source.

    `mass` (n,), all > 0: how often every row counts; picks are those of rows that are repeated as often.
    """
    if method == "copy":
        if size is not None and size != len(rows):
            raise RunError(f"{shown(name)} has {size} rows, but {shown(source)}, which it copies, has {len(rows)}")
        return rows.copy()
    if size is None:
        raise RunError(f"give {shown(name)}: how many rows it has is not known, so it cannot start by itself")
    values, first, place = np.unique(rows + 0.0, axis=0, return_index=True, return_inverse=True)  # -0.0 is 0.0
    if len(values) < size:
        raise RunError(
            f"{shown(name)} starts from {size} different rows of {shown(source)}, which has only {len(values)}; "
            f"give {shown(name)} yourself, or more data"
        )
    if method == "first":
        return rows[np.sort(first)[:size]]
    weights = np.bincount(place.ravel(), weights=mass, minlength=len(values)).astype(np.float64)
    u = uniforms(seed, "init:" + name, 0, size, 1)[0][:, 0]
    picks = _random(weights, u) if method == "random" else _spread(values, weights, u)
    return np.asarray(values[picks])


def _pick(mass: Array, u: float) -> int:
    """The smallest index whose cumulative mass exceeds u times the total."""
    cumulative = np.cumsum(mass)
    index = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(mass)[-1]))  # u * total may round up to the total


def _random(weights: Array, u: Array) -> list[int]:
    left = weights.copy()
    picks: list[int] = []
    for target in u:
        picks.append(_pick(left, float(target)))
        left[picks[-1]] = 0.0
    return picks


def _spread(values: Array, weights: Array, u: Array) -> list[int]:
    """Each next row with probability proportional to its squared distance to the nearest row picked before."""
    picks = [_pick(weights, float(u[0]))]
    mantissa, power = _squared_distance(values, values[picks[0]])
    for target in u[1:]:
        mass = weights * np.ldexp(mantissa, np.maximum(power - power.max(), -LEAST))
        picks.append(_pick(mass, float(target)))
        other, its_power = _squared_distance(values, values[picks[-1]])
        farther = (power > its_power) | ((power == its_power) & (mantissa > other))
        mantissa, power = np.where(farther, other, mantissa), np.where(farther, its_power, power)
    return picks


def _squared_distance(values: Array, row: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """Squared distances as mantissa (0, or from 1/2 to 1) and power of two."""
    with np.errstate(over="ignore"):
        difference = values - row
    wide = ~np.isfinite(difference).all(axis=1)  # then halves differ by a finite number
    difference[wide] = values[wide] / 2 - row / 2
    scale = np.frexp(np.abs(difference).max(axis=1))[1].astype(np.int64)
    total = np.zeros(len(values))
    for column in range(values.shape[1]):  # left to right, so that every implementation gets the same bits
        total += np.square(np.ldexp(difference[:, column], -scale))
    mantissa, power = np.frexp(total)
    return mantissa, np.where(total > 0, power + 2 * (scale + wide), -UNREACHED)
