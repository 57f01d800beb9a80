"""Initialisers: how an input starts when none is given, from the rows of another input and the seed.

The distinct rows are sorted, so that the choice depends on the data and the seed, not on the order of the tokens
(except for `first`, which is about that order). Pick p uses the number U(seed, "init:" + name, layer 0, p, 0).
"""

from __future__ import annotations

import numpy as np

from weft.errors import InputError
from weft.meaning.noise import uniforms
from weft.meaning.tables import Floats


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
    numbers, _ = uniforms(seed, f"init:{name}", 0, np.arange(count), 0)
    remaining = weights.astype(np.float64)
    # a power of two changes no choice, and keeps squares in the range of float64
    scaled = np.ldexp(distinct, -np.frexp(np.abs(distinct).max())[1])
    nearest = np.full(len(distinct), np.inf)
    picks: list[int] = []
    for number in numbers.tolist():
        chances = remaining * nearest if kind == "spread" and picks else remaining
        cumulative = np.cumsum(chances)
        if cumulative[-1] == 0:
            raise InputError(
                f"{name} cannot start with `init spread({source})`: the rows left differ by less than float64 can "
                f"square beside the largest; scale {source}, or give {name} itself"
            )
        # the smallest place whose cumulative chance exceeds the target; the last possible one if rounding leaves none
        place = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
        picks.append(min(place, int(np.flatnonzero(chances)[-1])))
        remaining[picks[-1]] = 0.0
        nearest = np.minimum(nearest, _squared_distances(scaled, scaled[picks[-1]]))
    return distinct[picks]


def _squared_distances(rows: Floats, point: Floats) -> Floats:
    """Squared differences, added from the first coordinate to the last."""
    total = np.zeros(len(rows))
    for coordinate in range(rows.shape[1]):
        total = total + (rows[:, coordinate] - point[coordinate]) ** 2
    return total
