"""Matrices -> what they do to numbers, vectors and rows, whatever the basis.

A residual is known as z = sum of E f: `Feature`s f with their directions E. A matrix M that reads z gives M E f, and
two that are multiplied give f' E' Q' K E f: products of which a change of basis, or of queries and keys, shows nothing.
Such a block says something in terms of vectors when it is a multiple of the identity (of rows: plus one of all ones).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from weftc.decompiler.terms import (
    FIXED,
    KEY,
    LITERAL,
    ONE,
    PAIR,
    SELF,
    Poly,
    Vec,
    add,
    add_vec,
    atom,
    coordinate,
    free,
    freeze,
    freeze_vec,
    inner,
    moved,
    moved_vec,
    multiply,
    number,
    rolled,
    scale,
    scale_vec,
    total,
    total_vec,
)

Array: TypeAlias = npt.NDArray[np.float64]

FINE, COARSE = 1e-11, 1e-8  # relative sizes of what is taken for rounding: of float64, of weights with noise
ROUNDING = ContextVar("rounding", default=COARSE)
MOST_TOKENS = 64  # of a set whose tokens are told apart
LARGEST = 10**5  # numerators of fractions that are no decimals
FRACTION = re.compile(r"Fraction\((-?\d+), (\d+)\)")


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """What is in some directions of a residual. `kind` is number, vector, or the set of a row's second index."""

    directions: Array  # width of the residual x rows
    kind: str
    number: Poly = field(default_factory=dict)
    vector: Vec = field(default_factory=dict)

    def key(self) -> tuple[object, ...]:
        return self.kind, freeze(self.number), freeze_vec(self.vector)

    @property
    def is_nothing(self) -> bool:
        return not (self.number or self.vector)


@dataclass(frozen=True, slots=True, eq=False)
class Unread:
    """A matrix that means nothing in terms of whole vectors, and what is known of it."""

    where: str
    matrix: Array

    def __str__(self) -> str:
        array = np.atleast_2d(self.matrix)
        known = [f"{array.shape[0]} x {array.shape[1]}", f"rank {np.linalg.matrix_rank(array)}"]
        if array.shape[0] == array.shape[1]:
            square = array @ array.T
            known += ["symmetric"] * np.allclose(array, array.T, atol=noise())
            size = square[0, 0]
            known += [f"{size**0.5:.6g} times a rotation"] * bool(
                size > 0 and np.allclose(square, size * np.eye(len(array)), atol=noise() * size)
            )
        rows = "\n".join("    " + "  ".join(f"{value:10.6g}" for value in row) for row in array)
        return f"{self.where}: {', '.join(known)}\n{rows}"


def noise() -> float:
    """The relative size of what is taken for rounding; what it hides, the proof shows."""
    return ROUNDING.get()


def nice(value: float, size: float = 1.0) -> Fraction:
    """The number that a weight stands for: 0, a short fraction or decimal very near to it, or what it is.

    >>> print(nice(0.1), nice(2.0000000000000004), nice(1 / 3))
    1/10 2 1/3
    """
    if abs(value) <= noise() * size:
        return Fraction(0)
    exact = Fraction(repr(float(value)))
    if LITERAL.get():
        return exact
    for digits in range(1, 8):
        short = Fraction(f"{float(value):.{digits}g}")
        if abs(short - exact) <= (noise() if digits <= 4 else noise() / 100) * abs(exact):
            return short
    for largest in (64, 1000):
        short = exact.limit_denominator(largest)
        near = noise() * abs(exact) / (largest if largest < 1000 else 10**5)
        if abs(short - exact) <= near and abs(short.numerator) < LARGEST:
            return short
    return exact


def settled(p: Poly) -> Poly:
    """A number whose coefficients came out of products of rounded ones, with those that they stand for."""
    size = max((abs(float(c)) for c in p.values()), default=0.0)
    return {mono: short for mono, c in p.items() if (short := nice(float(c), size))}


def magnitude(array: Array) -> float:
    return float(np.abs(array).max(initial=0.0))


class BlockReader:
    """Blocks of matrices as terms; what cannot be read becomes a named matrix and is noted."""

    def __init__(self, sizes: Mapping[str, int | None], vocabularies: Iterable[int] = ()) -> None:
        self.sizes = sizes
        self.vocabularies = frozenset(vocabularies)  # how many symbols each has; of symbols, coordinates mean something
        fixed = [home for home, size in sizes.items() if size is not None and size <= MOST_TOKENS]
        self.bases = {home: at * FIXED for at, home in enumerate(fixed, 1)}
        self.unread: list[Unread] = []
        self.where = ""

    def opaque(self, matrix: Array, *indices: int) -> Poly:
        """A number of which only the matrix is known."""
        self.unread.append(Unread(self.where, np.asarray(matrix)))
        return atom("matrix", len(self.unread), tuple(indices))

    def opaque_vec(self, matrix: Array, *indices: int) -> Vec:
        self.unread.append(Unread(self.where, np.asarray(matrix)))
        return {("vmatrix", len(self.unread), tuple(indices)): ONE}

    # ---- vectors and rows ------------------------------------------------------------------------------------------

    def as_row(self, one: Feature, kind: str) -> Feature:
        """A vector as the row of its coordinates, one for each token of a set."""
        if one.kind != "vector" or kind in ("number", "vector") or one.directions.shape[1] != self.sizes[kind]:
            return one
        return Feature(one.directions, kind, coordinate(one.vector, PAIR))

    def alike(self, f: Feature, g: Feature) -> tuple[Feature, Feature]:
        """Two features, a vector beside a row as a row."""
        return self.as_row(f, g.kind), self.as_row(g, f.kind)

    def _own_row(self, one: Feature) -> Feature:
        """A vector as a row, where a fixed set has as many tokens as it has coordinates."""
        width = one.directions.shape[1]
        home = next((name for name, size in self.sizes.items() if size == width), "number")
        return one if width in self.vocabularies else self.as_row(one, home)

    def rolled(self, one: Feature) -> Feature:
        """With sums over sets in place of a term about every token."""
        return Feature(one.directions, one.kind, rolled(one.number, self.bases, self.sizes), one.vector)

    # ---- one residual ------------------------------------------------------------------------------------------------

    def along(self, home: str, weights: Array, index: int) -> Poly | None:
        """A number for every token of a fixed set, as a term: the same for all, evenly spaced, or told one by one."""
        size = max(magnitude(weights), 1e-300)
        filled = np.flatnonzero(np.abs(weights) > noise() * size)
        first, step = weights[0], (weights[-1] - weights[0]) / max(len(weights) - 1, 1)
        is_even = magnitude(weights - first - step * np.arange(len(weights))) <= noise() * size
        if is_even and not (len(filled) == 1 < len(weights)):
            slope = nice(step, size)
            return add(number(nice(first, size) - slope), scale(atom("position", index), slope))
        if home not in self.bases:
            return None
        each = {n: nice(float(weights[n]), size) for n in map(int, filled)}
        return add(*(scale(atom("same", home, index, self.bases[home] + n), c) for n, c in each.items()))

    def functional(self, weights: Array, feature: Feature, own: str, size: float) -> Poly:
        """A row of weights on a feature: a number. `own`: the stream of the token."""
        if magnitude(weights) <= noise() * size:
            return {}
        feature = self._own_row(feature)
        if feature.kind == "number":
            return scale(feature.number, nice(weights[0], size))
        if feature.kind == "vector":
            if len(weights) in self.vocabularies:
                return inner(feature.vector, symbols(weights, size))
            return self.opaque(weights, SELF)
        constant = self.constant_row(feature, own)
        along = self.along(feature.kind, weights, PAIR if constant is None else SELF)
        if along is None:
            return self.opaque(weights, SELF)
        if constant is not None:
            return scale(along, constant)
        return total(feature.kind, self.sizes[feature.kind], multiply(along, feature.number), PAIR)

    def constant_row(self, feature: Feature, own: str) -> Fraction | None:
        """c where a row is c times the name of the token itself."""
        if feature.kind != own or len(feature.number) != 1:
            return None
        ((mono, c),) = feature.number.items()
        return c if mono == ((("same", own, SELF, PAIR), 1),) else None

    def image(self, matrix: Array, feature: Feature, kind: str, own: str, size: float) -> Feature | None:
        """M f as a feature of a kind: without directions, None where it is not of that kind."""
        none = np.zeros((0, 0))
        if magnitude(matrix) <= noise() * size:
            return Feature(none, kind)
        feature = self.as_row(feature, kind)
        if kind == "number":
            feature = self._own_row(feature)
            if feature.kind == "vector" and matrix.shape[1] not in self.vocabularies:
                return None
            return Feature(none, kind, self.functional(matrix[0], feature, own, size))
        if kind == "vector":
            if feature.kind == "number" and len(matrix) in self.vocabularies:
                return Feature(none, kind, {}, scale_vec(symbols(matrix[:, 0], size), feature.number))
            found = multiple(matrix)
            vector = feature.vector if feature.kind == "vector" else row_vector(feature.number)
            if found is None or vector is None:
                return None
            return Feature(none, kind, {}, scale_vec(vector, number(found)))
        if feature.kind == "number":
            along = self.along(kind, matrix[:, 0], PAIR)
            return None if along is None else Feature(none, kind, multiply(along, feature.number))
        if feature.kind != kind:
            return None
        both = plus_ones(matrix)
        if both is None and kind in self.bases:
            rows = [(atom("same", kind, PAIR, self.bases[kind] + n), weights) for n, weights in enumerate(matrix)]
            entries = [multiply(mark, self.functional(weights, feature, own, size)) for mark, weights in rows]
            return Feature(none, kind, rolled(add(*entries), self.bases, self.sizes))
        if both is None:
            return None
        summed = total(kind, self.sizes[kind], feature.number, PAIR)
        return Feature(none, kind, add(scale(feature.number, both[0]), scale(summed, both[1])))

    # ---- two residuals -----------------------------------------------------------------------------------------------

    def bilinear(self, block: Array, f: Feature, g: Feature, streams: tuple[str, str], size: float) -> Poly:
        """f' M g, where g is about the token KEY already."""
        if magnitude(block) <= noise() * size:
            return {}
        if f.kind == g.kind == "vector" and (found := multiple(block)) is not None:
            return scale(inner(f.vector, g.vector), found)
        f, g = self.alike(f, g)
        f, g = self._own_row(f), self._own_row(g)
        widths = {width for one, width in zip((f, g), block.shape, strict=True) if one.kind == "vector"}
        if not widths <= self.vocabularies:
            return self.opaque(block, SELF, KEY)
        if f.kind == g.kind != "number" and (both := plus_ones(block)) is not None:
            every = self.sizes[f.kind]
            product = total(f.kind, every, multiply(f.number, g.number), PAIR)
            if not both[1]:
                return scale(product, both[0])
            sums = multiply(total(f.kind, every, f.number, PAIR), total(f.kind, every, g.number, PAIR))
            return add(scale(product, both[0]), scale(sums, both[1]))
        _left, values, _right = np.linalg.svd(block)
        if len(values) > 1 and values[1] > noise() * size:
            if len(values) > MOST_TOKENS // 4 or "vector" in (f.kind, g.kind):
                return self.opaque(block, SELF, KEY)
            marks = np.eye(len(block))
            return add(
                *(self.bilinear(np.outer(at, row), f, g, streams, size) for at, row in zip(marks, block, strict=True))
            )
        pivot = np.unravel_index(np.abs(block).argmax(), block.shape)
        u, v = block[:, pivot[1]], block[pivot[0]] / block[pivot]
        back = Feature(g.directions, g.kind, moved(g.number, {KEY: SELF}), moved_vec(g.vector, {KEY: SELF}))
        second = moved(self.functional(v, back, streams[1], 1.0), {SELF: KEY})
        return multiply(self.functional(u, f, streams[0], size), second)


def row_vector(row: Poly) -> Vec | None:
    """A row that is a field, times a number of its token: that field as a vector."""
    found: Vec = {}
    for mono, c in row.items():
        about = [a for a, power in mono if PAIR in free(a) for _ in range(power)]
        if len(about) != 1 or about[0][0] != "ref":
            return None
        rest = tuple(part for part in mono if part[0] != about[0])
        found = add_vec(found, {("vref", about[0][1], about[0][2][:1]): {rest: c}})
    return found


def symbols(weights: Array, size: float = 1.0) -> Vec:
    """Known coordinates as a sum of symbols, each times its weight."""
    each = {("symbol", len(weights), at): number(nice(float(weight), size)) for at, weight in enumerate(weights)}
    return {symbol: p for symbol, p in each.items() if p}


def multiple(matrix: Array) -> Fraction | None:
    """c where a matrix is c I."""
    if matrix.shape[0] != matrix.shape[1]:
        return None
    c = float(np.trace(matrix)) / len(matrix)
    size = magnitude(matrix)
    return nice(c, size) if magnitude(matrix - c * np.eye(len(matrix))) <= noise() * size else None


def plus_ones(matrix: Array) -> tuple[Fraction, Fraction] | None:
    """(a, b) where a matrix is a I + b J, J all ones."""
    n = len(matrix)
    if matrix.shape != (n, n):
        return None
    size = magnitude(matrix)
    b = 0.0 if n == 1 else float(matrix[0, 1])
    a = float(matrix[0, 0]) - b
    if magnitude(matrix - a * np.eye(n) - b) > noise() * size:
        return None
    return nice(a, size), nice(b, size)


def ratio(one: Array, other: Array) -> float | None:
    """c where one = c * other, both not zero."""
    if one.shape != other.shape:
        return None
    c = float((one * other).sum() / (other * other).sum())
    return c if c and magnitude(one - c * other) <= noise() * magnitude(one) else None


def scaled(feature: Feature, c: Fraction) -> Feature:
    return Feature(feature.directions, feature.kind, scale(feature.number, c), scale_vec(feature.vector, number(c)))


def with_short_numbers(one: Feature) -> Feature:
    """A feature with the numbers that its coefficients stand for."""
    vector = {a: q for a, p in one.vector.items() if (q := settled(p))}
    return Feature(one.directions, one.kind, settled(one.number), vector)


def _rounded(fraction: re.Match[str]) -> str:
    return f"{int(fraction[1]) / int(fraction[2]):.8g}"


def joined(features: Iterable[Feature]) -> list[Feature]:
    """Equal things in one place, and without what has no direction or is zero."""
    found: dict[tuple[object, ...], Feature] = {}
    for one in features:
        if one.is_nothing:
            continue
        one = with_short_numbers(one)
        key = (one.kind, FRACTION.sub(_rounded, repr(one.key())))
        if key in found:
            old = found[key]
            one = Feature(old.directions + one.directions, one.kind, one.number, one.vector)
        found[key] = one
    return [one for one in found.values() if magnitude(one.directions) > noise()]


def about_key(feature: Feature) -> Feature:
    """What the key token has, in place of the query token."""
    names = {SELF: KEY}
    return Feature(feature.directions, feature.kind, moved(feature.number, names), moved_vec(feature.vector, names))


def sum_over(feature: Feature, weights: Poly, home: str, size: int | None) -> Feature:
    """The sum over the keys of what they have, weighted."""
    if feature.kind == "vector":
        return Feature(feature.directions, "vector", {}, total_vec(home, size, scale_vec(feature.vector, weights), KEY))
    return Feature(feature.directions, feature.kind, total(home, size, multiply(weights, feature.number), KEY))


def plus(features: Iterable[Feature]) -> Iterator[tuple[Poly, Vec]]:
    for one in features:
        yield one.number, one.vector


def combined(directions: Array, kind: str, features: Iterable[Feature]) -> Feature:
    """The sum of features of a kind."""
    parts = list(plus(features))
    return Feature(directions, kind, add(*(p for p, _ in parts)), add_vec(*(v for _, v in parts)))
