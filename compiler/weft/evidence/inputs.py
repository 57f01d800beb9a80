"""Declared inputs -> cases to compare on: random data, and data that make decisions hard.

Everything follows from the declared types and ranges, from the seed and from the number of the case; no input is
known by name. A family shapes all inputs of a case together, because decisions become hard by relations between
fields: rows of one that are copies of, or half way between, rows of another. Whatever a family makes is then made to
fit its declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.types import Checked, FieldType

Array = NDArray[Any]
Arrays = dict[str, Array]

PAIRS = ("onehot", "simplex", "real")
NOISES = ("gumbel", "normal", "uniform")
ULPS = 16  # near-ties are this many units in the last place away from a tie, at most
WIDEST = 6  # exponent of ten of the largest scale and offset
MANY = 9  # tokens of an open set in an ordinary case


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs, in the precision the model stores. `noise` replaces random fields: name -> [layers, ...]."""

    family: str
    inputs: Mapping[str, Array]
    layers: int = 2
    seed: int = 0
    noise: Mapping[str, Array] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """The rows of the longest input."""
        return max((len(values) for values in self.inputs.values()), default=0)


@dataclass(frozen=True, slots=True)
class Shape:
    """How large everything is in one case."""

    dims: Mapping[str, int]
    sizes: Mapping[str, int]  # every token set

    def of(self, checked: Checked, one: FieldType) -> tuple[int, ...]:
        """The shape of a field."""
        if one.columns is not None:
            return self.sizes[one.home], self.sizes[one.columns]
        if one.width is not None:
            return self.sizes[one.home], self._number(one.width)
        return (self.sizes[one.home],)

    def _number(self, dimension: str | int) -> int:
        return self.dims[dimension] if isinstance(dimension, str) else dimension


# ---- families --------------------------------------------------------------------------------------------------------


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


FAMILIES: Mapping[str, Callable[[Generator, Mapping[str, tuple[int, ...]]], Arrays]] = {
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
}


# ---- cases -----------------------------------------------------------------------------------------------------------


def cases(
    checked: Checked,
    dims: Mapping[str, int],
    count: int,
    seed: int = 0,
    dtype: Any = np.float64,
    given: Mapping[str, Array] | None = None,
    first: int = 0,
) -> Iterator[Case]:
    """`count` cases for a model of these dimensions, through all families and the sizes at which things go wrong.

    `given` inputs are kept as they are; the others are made to fit them. `first` is the number of the first case.
    """
    families = list(FAMILIES)
    for number in range(first, first + count):
        rng = np.random.default_rng((seed, number))
        sizes = open_sizes(checked, dims, number, rng)
        for name, values in (given or {}).items():
            sizes[checked.fields[name].home] = len(values)
        yield draw(checked, Shape(dims, sizes), families[number % len(families)], rng, dtype, given)


def open_sizes(checked: Checked, dims: Mapping[str, int], number: int, rng: Generator) -> dict[str, int]:
    """A size for every token set: fixed ones as they are; open ones 1, as many as a fixed set, fewer, or more."""
    sizes = {name: dims[size] if isinstance(size, str) else size for name, size in checked.sets.items() if size}
    special = [1, *(s + by for s in sizes.values() for by in (0, -1, 1) if 1 <= s + by <= 4 * MANY)]
    for place, name in enumerate(name for name in checked.sets if checked.is_open(name)):
        # every third case, and 3 does not divide the number of families: each of them meets every special size
        if number % 3 == place % 3:
            sizes[name] = special[(number // 3) % len(special)]
        else:
            sizes[name] = int(rng.integers(2, MANY + 1))
    return sizes


def draw(
    checked: Checked,
    shape: Shape,
    family: str,
    rng: Generator,
    dtype: Any = np.float64,
    given: Mapping[str, Array] | None = None,
) -> Case:
    """One case of a family."""
    declared = {f.target.name: checked.fields[f.target.name] for f in checked.spec.inputs}
    free = {name: shape.of(checked, one) for name, one in declared.items() if one.kind not in PAIRS}
    drawn = FAMILIES[family](rng, free) if free else {}
    inputs = {
        name: np.asarray(given[name], dtype=dtype)
        if given and name in given
        else conform(one, drawn.get(name), shape.of(checked, one), family, rng, dtype)
        for name, one in declared.items()
    }
    layers = int(rng.choice((1, 2, 2, 3)))
    seed = int(rng.integers(2**32))
    noise = {}
    if "grid" in family:  # random fields that tie, too
        for one in (checked.fields[f.target.name] for f in checked.spec.random):
            values = rng.integers(-1, 2, (layers, *shape.of(checked, one)))
            noise[one.name] = np.asarray(np.abs(values) / 2 + 0.25 if one.kind == "uniform" else values, dtype=dtype)
    return Case(family, inputs, layers, seed, noise)


def conform(
    one: FieldType, values: Array | None, shape: tuple[int, ...], family: str, rng: Generator, dtype: Any
) -> Array:
    """Values that the declaration of an input admits, near the ones given."""
    if values is None:
        values = _pairs(one.kind, shape, family, rng)
    if one.kind == "unit":
        values = _directions(values)
    rounded = np.asarray(values, dtype=dtype)
    if "ulp" in family and one.kind not in PAIRS:
        rounded = _nudged(rng, rounded, 2 if one.kind == "unit" else ULPS)
    return _bounded(one, rounded) if one.bound is not None else rounded


def _nudged(rng: Generator, values: Array, most: int) -> Array:
    """The values, about half of them moved by a few units in the last place of their own precision."""
    steps = rng.integers(1, most + 1, values.shape) * rng.choice((-1, 0, 0, 1), values.shape)
    return np.asarray(values + steps.astype(values.dtype) * np.spacing(np.abs(values)))


def _pairs(kind: str, shape: tuple[int, ...], family: str, rng: Generator) -> Array:
    rows, columns = shape
    if kind == "onehot":
        return np.eye(columns)[rng.integers(columns, size=rows)]
    if kind == "real":
        values = rng.integers(-2, 3, shape).astype(float) if "grid" in family else rng.normal(size=shape)
        return np.asarray(values)
    if "grid" in family:  # whole shares of a power of two: zeros, and sums without rounding
        parts = rng.integers(columns, size=(rows, 4))
        return np.asarray((parts[:, :, np.newaxis] == np.arange(columns)).mean(axis=1))
    weights = rng.exponential(size=shape) + 1e-3
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _directions(values: Array) -> Array:
    """Rows of length one; a zero row becomes the first axis."""
    rows = np.where((values == 0).all(axis=1, keepdims=True), np.eye(1, values.shape[1]), values)
    rows = rows / np.max(np.abs(rows), axis=1, keepdims=True)
    return np.asarray(rows / np.sqrt(np.sum(rows * rows, axis=1, keepdims=True)))


def _bounded(one: FieldType, values: Array) -> Array:
    """Values inside a declared range: reflected at one end, folded between two, ends themselves where they belong."""
    assert one.bound is not None
    low, high = one.bound.low, one.bound.high
    inside: Array = values
    if low is not None and high is not None:
        width = high[0] - low[0]
        step = np.abs(values) % 4 / 4 if not (low[1] or high[1]) else (np.abs(values) % 3 + 0.5) / 4
        inside = low[0] + width * step
    elif low is not None:
        inside = low[0] + np.abs(values - low[0])
        inside = np.where(inside == low[0], low[0] + 1, inside) if low[1] else inside
    elif high is not None:
        inside = high[0] - np.abs(values - high[0])
        inside = np.where(inside == high[0], high[0] - 1, inside) if high[1] else inside
    return np.asarray(inside, dtype=values.dtype)
