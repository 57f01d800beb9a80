"""Declared inputs -> cases to compare on: random data, and data that make decisions hard.

Everything follows from the declared types and ranges, from the seed and from the number of the case; no input is
known by name. A family (`families`) shapes all inputs of a case together; whatever it makes is then made to fit its
declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weftc.core.types import Checked, FieldType
from weftc.verification.cases.families import FAMILIES, REAL

__all__ = ["FAMILIES", "NOISES", "PAIRS", "REAL", "Case", "Shape", "cases", "conform", "draw", "open_sizes"]

Array = NDArray[Any]

ALL = {**FAMILIES, **REAL}
PAIRS = ("onehot", "simplex", "real", "symbol")  # fields whose rows are drawn, not derived from a cloud
NOISES = ("gumbel", "normal", "uniform")
ULPS = 16  # near-ties are this many units in the last place away from a tie, at most
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


# ---- cases -----------------------------------------------------------------------------------------------------------


def cases(
    checked: Checked,
    dims: Mapping[str, int],
    count: int,
    seed: int = 0,
    dtype: Any = np.float64,
    given: Mapping[str, Array] | None = None,
    first: int = 0,
    families: Sequence[str] = tuple(FAMILIES),
) -> Iterator[Case]:
    """`count` cases for a model of these dimensions, through all families and the sizes at which things go wrong.

    `given` inputs are kept as they are; the others are made to fit them. `first` is the number of the first case.
    """
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
    drawn = ALL[family](rng, free) if free else {}
    inputs = {
        name: np.asarray(given[name], dtype=dtype)
        if given and name in given
        else conform(one, drawn.get(name), shape.of(checked, one), family, rng, dtype)
        for name, one in declared.items()
    }
    for pairs in checked.spec.pairs:  # entries are at tokens; some at none
        for name, home in ((pairs.row, pairs.rows), (pairs.column, pairs.columns)):
            if not given or name not in given:
                most = shape.sizes[home]
                inputs[name] = np.asarray(rng.integers(0, most + 1, len(inputs[name])), dtype=dtype)
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
    """The values, about half of them moved by a few units in the last place of their own precision; zero stays."""
    steps = rng.integers(1, most + 1, values.shape) * rng.choice((-1, 0, 0, 1), values.shape)
    moved = values + steps.astype(values.dtype) * np.spacing(np.abs(values))
    return np.where(np.abs(values) < np.finfo(values.dtype).smallest_normal, values, moved)


def _pairs(kind: str, shape: tuple[int, ...], family: str, rng: Generator) -> Array:
    rows, columns = shape
    if kind in ("onehot", "symbol"):
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
