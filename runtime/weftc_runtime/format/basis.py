"""The basis of a residual: a tensor B of a file -> what its matrices read in terms of slots. NumPy only.

A residual with a basis holds B z, where z is what the slots describe. A basis with one power of two per row and column,
up to sign, moves numbers without touching them: then every statement about slots is exact. Any other basis mixes slots,
and rounding with them; which slots a matrix reads is then told up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weftc_runtime.errors import need, shown
from weftc_runtime.format.program import Program

Array = npt.NDArray[np.float64]

WORST = 1e8  # condition number up to which a basis is one: beyond it, half of the digits of a slot are lost
NOISE = 2.0**-36  # an entry this small beside the terms it is the sum of is what rounding has left of zero


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """B, its inverse, and whether both only move, scale by powers of two, and change signs."""

    matrix: Array
    inverse: Array
    exact: bool

    def over_slots(self, matrix: Array, between: bool = False) -> Array:
        """A matrix over the residual as one over slots; `between`: its rows are the residual too. Noise is cleared."""
        over, terms = matrix @ self.matrix, np.abs(matrix) @ np.abs(self.matrix)
        if between:
            over, terms = self.inverse @ over, np.abs(self.inverse) @ terms
        return np.where(np.abs(over) <= NOISE * terms, 0.0, over)

    @property
    def places(self) -> npt.NDArray[np.intp]:
        """Of an exact basis: the column of the residual that holds each column of the slots."""
        return np.asarray(np.argmax(self.matrix != 0, axis=0))


def basis_of(matrix: Array, name: str) -> Basis:
    """A tensor as a basis; it must have an inverse worth the name."""
    filled = matrix != 0
    single = bool((filled.sum(0) == 1).all() and (filled.sum(1) == 1).all())
    if single and bool((np.abs(np.frexp(matrix[filled])[0]) == 0.5).all()):
        inverse = np.zeros_like(matrix)
        inverse.T[filled] = 1 / matrix[filled]
        return Basis(matrix, inverse, True)
    condition = float(np.linalg.cond(matrix))
    sound = condition <= WORST  # also false for NaN
    need(sound, f"tensor {shown(name)} is no basis: its condition number is {condition:.2g}, the limit is {WORST:.0g}")
    return Basis(matrix, np.asarray(np.linalg.inv(matrix), np.float64), False)


def bases_of(program: Program, tensors: Mapping[str, Array]) -> dict[str, Basis]:
    """The bases of the streams that have one."""
    return {stream: basis_of(np.asarray(tensors[name]), name) for stream, name in program.basis.items()}
