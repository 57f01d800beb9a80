"""Families of numbers: shapes of all inputs of a case -> arrays that make decisions hard, or that are real.

A family shapes all inputs of a case together, because decisions become hard by relations between fields: rows of one
that are copies of, or half way between, rows of another. It knows the shapes, not the names, and not what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]
Family = Callable[[Generator, Mapping[str, tuple[int, ...]]], Arrays]

WIDEST = 6  # exponent of ten of the largest scale and offset


def _normal(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    return {name: rng.normal(size=shape) for name, shape in fields.items()}


def _grid(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Small integers: distances and products are integers too, so ties are exact and many."""
    reach = int(rng.integers(1, 4))
    return {name: rng.integers(-reach, reach + 1, shape).astype(float) for name, shape in fields.items()}


def _positive(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Nothing is zero or negative: logarithms and quotients have values."""
    return {name: rng.uniform(0.1, 2.0, shape) for name, shape in fields.items()}


def _near_ties(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Rows half way between two rows of another field; `conform` then moves them by a few units in the last place."""
    arrays = _grid(rng, fields) if rng.random() < 0.5 else _normal(rng, fields)
    for name, values in arrays.items():
        others = [a for n, a in arrays.items() if n != name and a.shape[1:] == values.shape[1:] and len(a) > 1]
        if others and values.ndim == 2 and rng.random() < 0.7:
            other = others[int(rng.integers(len(others)))]
            picks = rng.integers(len(other), size=(2, len(values)))
            arrays[name] = (other[picks[0]] + other[picks[1]]) / 2
    return arrays


def _duplicates(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Equal rows, within fields and across fields of one width."""
    arrays = _normal(rng, fields)
    for name, values in arrays.items():
        same = [a for n, a in arrays.items() if n != name and a.shape[1:] == values.shape[1:]]
        pool = same[int(rng.integers(len(same)))] if same and rng.random() < 0.5 else values
        arrays[name] = pool[rng.integers(max(1, (len(pool) + 1) // 2), size=len(values))]
    return arrays


def _far(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """One row of a field far from everything: it is chosen by nothing."""
    arrays = _normal(rng, fields)
    name = list(arrays)[int(rng.integers(len(arrays)))]
    row = int(rng.integers(len(arrays[name])))
    arrays[name][row] = arrays[name][row] + 10.0 ** rng.integers(1, WIDEST + 1)
    return arrays


def _abandoned(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Every second row of one field, or all but one, far from everything: many are chosen by nothing."""
    arrays = _normal(rng, fields)
    name = list(arrays)[int(rng.integers(len(arrays)))]
    rows = slice(1, None, int(rng.integers(1, 3)))
    arrays[name][rows] = arrays[name][rows] + 10.0 ** rng.integers(2, WIDEST + 1)
    return arrays


def _collinear(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """All vectors of one width on one line, at small multiples of one direction."""
    lines = {shape[1]: rng.normal(size=shape[1]) for shape in fields.values() if len(shape) == 2}
    arrays: Arrays = {}
    for name, shape in fields.items():
        steps = rng.integers(-4, 5, shape[:1]).astype(float)
        arrays[name] = steps[:, np.newaxis] * lines[shape[1]] if len(shape) == 2 else steps
    return arrays


def _offset(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """A common shift, up to a million times the spread."""
    by = 10.0 ** rng.integers(2, WIDEST + 1)
    return {name: values + by for name, values in _normal(rng, fields).items()}


def _scaled(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Very large or very small numbers."""
    by = 10.0 ** (rng.integers(1, WIDEST + 1) * rng.choice((-1, 1)))
    return {name: values * by for name, values in _normal(rng, fields).items()}


def _equal(rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Every row of a field the same; sometimes zero."""
    arrays = _grid(rng, fields)
    return {name: np.repeat(a[:1] * rng.integers(0, 2), len(a), axis=0) for name, a in arrays.items()}


FAMILIES: Mapping[str, Family] = {
    "random": _normal,
    "exact ties on a grid": _grid,
    "near-ties of 1 to 16 ulp": _near_ties,
    "duplicates": _duplicates,
    "a far row": _far,
    "collinear": _collinear,
    "offset up to 1e6": _offset,
    "scale 1e-6 to 1e6": _scaled,
    "positive": _positive,
    "all rows equal": _equal,
    "abandoned rows": _abandoned,
}


# ---- real data -------------------------------------------------------------------------------------------------------


@cache
def _table(name: str) -> Array:
    from sklearn import datasets  # a second to import, and few need it

    return np.asarray(getattr(datasets, f"load_{name}")(return_X_y=True)[0], dtype=np.float64)


def _real(name: str, rng: Generator, fields: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Rows of a data set, in its own units or standardised; columns are repeated, or left out, to fit the width.

    A field that has as many tokens as there are rows gets them in order; others get some of them, so that rows of one
    field are often rows of another.
    """
    rows = _table(name)
    if rng.random() < 0.5:
        rows = (rows - rows.mean(0)) / np.where(rows.std(0) > 0, rows.std(0), 1.0)
    first = int(rng.integers(rows.shape[1]))
    arrays: Arrays = {}
    for key, shape in fields.items():
        width = shape[1] if len(shape) == 2 else 1
        columns = (first + np.arange(width)) % rows.shape[1]
        picks = np.arange(len(rows)) if shape[0] == len(rows) else rng.integers(len(rows), size=shape[0])
        arrays[key] = rows[picks][:, columns].reshape(shape)
    return arrays


REAL: Mapping[str, Family] = {name: partial(_real, name) for name in ("iris", "wine", "digits", "breast_cancer")}
