"""Matrices in float64 with a rigorous bound of their error: products, inverses.

The bound is zero where nothing can round: sums of at most one term whose factors are powers of two up to sign, and
numbers on a common grid that fit into 53 bits together. Then a product is the product, and an inverse the inverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

U = 2.0**-53
WIDER = 1 + 2.0**-30  # bounds are computed in float64 as well
GRID = 2.0**20


@dataclass(frozen=True, slots=True, eq=False)
class ErrorMatrix:
    """What is meant lies within `error` of `value`, entry by entry."""

    value: Array
    error: Array

    @classmethod
    def exactly(cls, value: Array) -> ErrorMatrix:
        """A matrix that is what it is."""
        return cls(value, np.zeros_like(value))

    @property
    def is_exact(self) -> bool:
        return not self.error.any()

    @property
    def size(self) -> Array:
        """Bounds of the magnitudes."""
        return np.asarray((np.abs(self.value) + self.error) * WIDER)

    def __matmul__(self, other: ErrorMatrix) -> ErrorMatrix:
        value = self.value @ other.value
        passed = self.size @ other.error + self.error @ np.abs(other.value)
        if not _no_rounding(self.value, other.value):
            terms = self.value.shape[-1] + 2
            passed = passed + terms * U * (np.abs(self.value) @ np.abs(other.value)) + terms * 2.0**-1074
        return ErrorMatrix(value, np.asarray(passed * WIDER))

    @property
    def turned(self) -> ErrorMatrix:
        """The transpose."""
        return ErrorMatrix(self.value.T, self.error.T)


def inverse(matrix: Array) -> ErrorMatrix | None:
    """The inverse of a square matrix; None where float64 cannot bound it."""
    try:
        guess = np.asarray(np.linalg.inv(matrix), np.float64)
    except np.linalg.LinAlgError:
        return None
    unit = np.eye(len(matrix))
    for tried in (_reciprocal(matrix), np.round(guess * GRID) / GRID):
        if tried is not None and _no_rounding(matrix, tried) and np.array_equal(matrix @ tried, unit):
            return ErrorMatrix.exactly(tried)
    # With R = I - X B the inverse is X + R X + R^2 X + ...; rows of |R| add up to at most rho.
    product = ErrorMatrix.exactly(guess) @ ErrorMatrix.exactly(matrix)
    rest = (np.abs(unit - product.value) + product.error + U) * WIDER
    rho = float(rest.sum(1).max()) * WIDER
    if not rho < 0.5:
        return None
    size = np.abs(guess)
    error = rest @ size + rho * rho / (1 - rho) * size.max(0)
    return ErrorMatrix(guess, np.asarray(error * WIDER))


def _reciprocal(matrix: Array) -> Array | None:
    """The inverse of a matrix with one entry per row and column."""
    filled = matrix != 0
    if not ((filled.sum(0) == 1).all() and (filled.sum(1) == 1).all()):
        return None
    found = np.zeros_like(matrix)
    found.T[filled] = 1 / matrix[filled]
    return found


def _no_rounding(a: Array, b: Array) -> bool:
    """Whether no product and no sum of a @ b can round."""
    if _is_power(a) or _is_power(b):
        terms = (a != 0).astype(np.float64) @ (b != 0).astype(np.float64)
        if bool((terms <= 1).all()):
            return True
    fine_a, fine_b = a * GRID, b * GRID
    if not (np.array_equal(fine_a, np.round(fine_a)) and np.array_equal(fine_b, np.round(fine_b))):
        return False
    return float((np.abs(fine_a) @ np.abs(fine_b)).max(initial=0.0)) < 2.0**53


def _is_power(matrix: Array) -> bool:
    """Whether every entry is zero or a power of two up to sign, and far from the ends of the range."""
    filled = np.abs(matrix[matrix != 0])
    return bool((np.frexp(filled)[0] == 0.5).all() and ((filled > 2.0**-200) & (filled < 2.0**200)).all())
