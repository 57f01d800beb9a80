"""Tensors of a checkpoint -> sparse rows of exact coefficients.

A float64 is a rational number and is read as it stands. A long one may be the correctly rounded value of a constant
that the spec states (1/3, log 2, 1/sqrt(6)): `Constants` knows these, and says so in its notes. A coefficient is then a
polynomial without tokens, else a plain number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from weft.proof.algebra import Algebra, Number, Poly, add, scale
from weft.proof.constants import Constants

Coefficient: TypeAlias = Number | Poly
Row: TypeAlias = tuple[tuple[int, Coefficient], ...]
Vector: TypeAlias = list[Poly]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of (column, coefficient), and whether it is the identity."""

    rows: tuple[Row, ...]
    identity: bool
    plans: tuple[int | Row, ...]  # the column that a row copies, or the row

    def columns(self) -> set[int]:
        """The columns with an entry."""
        return {column for row in self.rows for column, _ in row}


@dataclass(slots=True)
class Matrices:
    """The tensors of one checkpoint, read when they are asked for."""

    algebra: Algebra
    tensors: Mapping[str, npt.NDArray[np.float64]]
    constants: Constants
    _known: dict[str, Matrix] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Matrix:
        if name not in self._known:
            array = np.atleast_2d(self.tensors[name])
            rows: list[list[tuple[int, Coefficient]]] = [[] for _ in range(array.shape[0])]
            for r, c in zip(*(axis.tolist() for axis in np.nonzero(array)), strict=True):
                rows[r].append((c, self.constants.exact(float(array[r, c]), name)))
            square = array.shape[0] == array.shape[1]
            identity = square and bool((array == np.eye(array.shape[0])).all())
            done: tuple[Row, ...] = tuple(map(tuple, rows))
            plans = tuple(row[0][0] if len(row) == 1 and row[0][1] == 1 else row for row in done)
            self._known[name] = Matrix(done, identity, plans)
        return self._known[name]

    def scalar(self, name: str) -> Coefficient:
        """A tensor of one number."""
        value = float(np.asarray(self.tensors[name]).reshape(-1)[0])
        return self.constants.exact(value, name) if value else 0

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


def plain(value: float) -> Number:
    """A float64 as the rational number it is."""
    return int(value) if value.is_integer() else Fraction(value)
