"""Tensors of a checkpoint -> sparse rows of exact coefficients.

A float64 is a rational number and is read as it stands. A long one may be the correctly rounded value of a constant
that the spec states (1/3, log 2, 1/sqrt(6)): `Constants` knows these, and says so in its notes. A coefficient is then a
polynomial without tokens, else a plain number.

Where weights need only be near constants, `deviations` says how far each entry may be off. Of a score only the products
of queries and keys mean anything, so there its coefficient arrays are what is near: `forms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from weftc.prover.kernel.polynomials import Number, Poly, add, scale
from weftc.prover.kernel.products import Products
from weftc.prover.near.constants import SHORT, Constants
from weftc.prover.near.error_matrix import Array, ErrorMatrix

EXPLAINED = 4  # times the bound of its error: whoever made the file has rounded as well

Coefficient: TypeAlias = Number | Poly
Row: TypeAlias = tuple[tuple[int, Coefficient], ...]
Vector: TypeAlias = list[Poly]


@dataclass(frozen=True, slots=True)
class SparseMatrix:
    """Rows of (column, coefficient), and whether it is the identity."""

    rows: tuple[Row, ...]
    identity: bool
    plans: tuple[int | Row, ...]  # the column that a row copies, or the row

    def columns(self) -> set[int]:
        """The columns with an entry."""
        return {column for row in self.rows for column, _ in row}


@dataclass(slots=True)
class ProgramMatrices:
    """The tensors of one checkpoint, read when they are asked for."""

    algebra: Products
    tensors: Mapping[str, Array]
    constants: Constants
    errors: Mapping[str, Array] = field(default_factory=dict)  # of tensors that are known up to a bound
    deviations: dict[str, Array] = field(default_factory=dict)  # of tensors that have been read
    _known: dict[str, SparseMatrix] = field(default_factory=dict)
    _equal: dict[str, str] = field(default_factory=dict)
    _first: dict[tuple[tuple[int, ...], bytes, str], str] = field(default_factory=dict)

    @property
    def near(self) -> bool:
        """Whether weights need only be near constants."""
        return self.constants.slack > 0

    def bounded(self, name: str) -> ErrorMatrix:
        """A tensor with the bound of its error, as a matrix."""
        array = np.atleast_2d(self.tensors[name])
        error = self.errors.get(name)
        return ErrorMatrix(array, np.zeros_like(array) if error is None else np.atleast_2d(error))

    def rows(self, known: ErrorMatrix, name: str) -> tuple[tuple[Row, ...], Array]:
        """The rows of a matrix as coefficients, and how far each entry of the matrix may be off them."""
        array, off = known.value, known.error.copy()
        unit = float(np.abs(array).max(initial=0.0)) if self.near else None
        rows: list[list[tuple[int, Coefficient]]] = [[] for _ in range(array.shape[0])]
        if self.near:
            array, off = cleared(known, 0.0)
        for r, c in zip(*(axis.tolist() for axis in np.nonzero(array)), strict=True):
            coefficient, gap = self.constants.read(float(array[r, c]), name, unit)
            off[r, c] += gap
            if coefficient:
                rows[r].append((c, coefficient))
        return tuple(map(tuple, rows)), off

    def __getitem__(self, name: str) -> SparseMatrix:
        if name not in self._known:
            array = np.atleast_2d(self.tensors[name])
            done, self.deviations[name] = self.rows(self.bounded(name), name)
            square = array.shape[0] == array.shape[1]
            identity = square and bool((array == np.eye(array.shape[0])).all())
            plans = tuple(row[0][0] if len(row) == 1 and row[0][1] == 1 else row for row in done)
            self._known[name] = SparseMatrix(done, identity, plans)
        return self._known[name]

    def first_equal(self, name: str) -> str:
        """The first tensor with the same numbers that is read in the same way."""
        if name not in self._equal:
            array = self.tensors[name] if name else np.zeros(0)
            key = (array.shape, array.tobytes(), name if name in self.constants.others else "")
            self._equal[name] = self._first.setdefault(key, name)
        return self._equal[name]

    def scalar(self, name: str) -> Coefficient:
        """A tensor of one number."""
        ((row,), self.deviations[name]) = self.rows(self.bounded(name), name)
        return row[0][1] if row else 0

    def apply(self, name: str, z: Vector) -> Vector:
        """The matrix times a vector."""
        matrix = self[name]
        if matrix.identity:
            return z
        combine, nothing = self.combine, {}  # type: ignore[var-annotated]
        return [z[plan] if isinstance(plan, int) else combine(plan, z) if plan else nothing for plan in matrix.plans]

    def combine(self, row: Row, z: Vector) -> Poly:
        """One row times a vector."""
        if len(row) == 1:
            ((column, coefficient),) = row
            return self.times(coefficient, z[column])
        terms = [self.times(coefficient, z[column]) for column, coefficient in row if z[column]]
        return add(*terms) if terms else {}

    def times(self, coefficient: Coefficient, p: Poly) -> Poly:
        """A coefficient times a polynomial."""
        return self.algebra.multiply(coefficient, p) if isinstance(coefficient, dict) else scale(p, coefficient)


def cleared(known: ErrorMatrix, slack: float) -> tuple[Array, Array]:
    """A matrix without what rounding has left of zero, and how far it is off then.

    That is what the error bound of an entry explains; or what is long, and less than `slack` beside the largest entry.
    """
    size = np.abs(known.value)
    mantissa = np.frexp(known.value)[0] * 2.0**SHORT
    long = mantissa != np.round(mantissa)
    rest = (size <= EXPLAINED * known.error) | (long & (size <= slack * size.max(initial=0.0)))
    return np.where(rest, 0.0, known.value), known.error + np.where(rest, size, 0.0)


def plain(value: float) -> Number:
    """A float64 as the rational number it is."""
    return int(value) if value.is_integer() else Fraction(value)
