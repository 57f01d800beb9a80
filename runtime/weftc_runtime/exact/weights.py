"""The tensors of a program during one run: dense matrices applied to residuals, and the rounding that costs.

Most rows of a compiled matrix select one column, perhaps times a number. Such rows are a copy or one product; all
others are exact sums of rounded products. The structure is read from the numbers and kept as long as they stay the
same, so edited, trained or rotated weights need no special care.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from weftc_runtime.exact.bounds import TINY, U, widen
from weftc_runtime.exact.sums import exact_sum, weighted_sum

MANY = 1 << 16  # products that are made at once


@dataclass(slots=True)
class SeveralColumns:
    """Rows of a matrix that read the same number of columns each."""

    rows: Tensor  # (rows,)
    columns: Tensor  # (rows, terms)
    coefficients: Tensor  # (rows, terms)

    @classmethod
    def of(cls, matrix: Tensor, terms: Tensor, many: int) -> SeveralColumns:
        rows = (terms == many).nonzero()[:, 0]
        columns = (matrix[rows] != 0).nonzero()[:, 1].reshape(len(rows), many)
        return cls(rows, columns, matrix[rows[:, None], columns])


@dataclass(slots=True)
class MatrixStructure:
    """The structure of a matrix: per row the one column it reads, and which rows read several."""

    matrix: Tensor
    column: Tensor  # (rows,)
    coefficient: Tensor  # (rows,), 0 for rows that read nothing or several columns
    several: Tensor  # rows that read several columns
    sums: tuple[SeveralColumns, ...]  # the same rows, by how many they read
    size: Tensor  # |matrix|, (columns, rows)
    terms: Tensor  # (rows,)
    exact: bool  # every row copies one column, up to a power of two
    inexact: Tensor  # rows where that does not hold
    span: slice | None  # the columns, where the rows copy columns that stand side by side


def _structure(matrix: Tensor) -> MatrixStructure:
    filled = matrix != 0
    terms = filled.sum(1)
    column = filled.to(torch.int8).argmax(1)
    coefficient = torch.where(terms == 1, matrix.gather(1, column[:, None])[:, 0], 0.0)
    power = (torch.frexp(coefficient).mantissa.abs() == 0.5) & (coefficient.abs() > 2.0**-200)
    inexact = (terms > 1) | ((terms == 1) & ~power)
    several = (terms > 1).nonzero()[:, 0]
    exact = not bool(inexact.any())
    sums = tuple(SeveralColumns.of(matrix, terms, many) for many in sorted(set(terms.tolist()) - {0, 1}))
    return MatrixStructure(
        matrix, column, coefficient, several, sums, matrix.abs().T, terms, exact, inexact, _span(column, coefficient)
    )


def _span(column: Tensor, coefficient: Tensor) -> slice | None:
    """The columns that a matrix copies side by side, in order."""
    if column.is_meta or not len(column) or not bool((coefficient == 1).all()):
        return None
    first = int(column[0])
    side_by_side = bool((column == torch.arange(first, first + len(column), device=column.device)).all())
    return slice(first, first + len(column)) if side_by_side else None


class Weights(Mapping[str, Tensor]):
    """Tensors by name."""

    def __init__(self, tensors: Mapping[str, Tensor], known: dict[str, MatrixStructure] | None = None) -> None:
        self._tensors = tensors
        self._known = {} if known is None else known  # structure read in earlier runs; a changed tensor is read anew
        self._plans: dict[str, MatrixStructure] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def _matrix(self, name: str) -> Tensor:
        tensor = self._tensors[name]
        return tensor if tensor.dim() == 2 else tensor[None]

    def _planned(self, name: str) -> MatrixStructure:
        if name not in self._plans:
            matrix, known = self._matrix(name).detach(), self._known.get(name)
            if known is None or known.matrix.device != matrix.device or not torch.equal(known.matrix, matrix):
                known = self._known[name] = _structure(matrix.clone())
            self._plans[name] = known
        return self._plans[name]

    def linear(self, z: Tensor, name: str) -> Tensor:
        """z @ matrix.T, every sum rounded once.      (n, d), (r, d) -> (n, r); a vector is a matrix of one row"""
        matrix = self._matrix(name)
        if not matrix.shape[1]:
            return z.new_zeros(len(z), len(matrix))
        if matrix.is_meta or matrix.requires_grad:
            return weighted_sum(z, matrix.T)
        plan = self._planned(name)
        if plan.span is not None:
            return z[:, plan.span]  # a slice: no number is touched
        out = z[:, plan.column] * plan.coefficient
        if len(plan.several) == 0:
            return out
        if z.requires_grad or z.shape[0] * len(plan.several) * z.shape[1] > MANY:
            return out.index_copy(1, plan.several, weighted_sum(z, plan.matrix[plan.several].T))
        for group in plan.sums:
            out[:, group.rows] = exact_sum(z[:, group.columns] * group.coefficients)
        return out

    def product(self, z: Tensor, name: str) -> Tensor:
        """Like `linear`, but sums of several products are rounded as torch adds them: for what decides nothing."""
        matrix = self._matrix(name)
        if not matrix.shape[1] or matrix.is_meta or not len(self._planned(name).several):
            return self.linear(z, name)
        return z @ matrix.T

    def copies(self, name: str) -> bool:
        """Whether every row of a matrix copies one column, up to a power of two: no rounding."""
        return self._planned(name).exact

    def selected(self, name: str) -> list[tuple[int, float]]:
        """Column and coefficient of every row of a matrix that `copies`; coefficient 0 for rows that read nothing."""
        plan = self._planned(name)
        return list(zip(plan.column.tolist(), plan.coefficient.tolist(), strict=True))

    def radius(self, z: Tensor, error: Tensor, name: str) -> Tensor:
        """Radius of `linear(z, name)` when z is known to +-error."""
        if z.is_meta or not self._matrix(name).shape[1]:
            return z.new_zeros(len(z), len(self._matrix(name)))
        plan = self._planned(name)
        passed = torch.where(plan.coefficient == 0, 0.0, error[:, plan.column] * plan.coefficient.abs())
        if plan.exact:
            return widen(passed)
        if len(plan.several):
            passed[:, plan.several] = error @ plan.size[:, plan.several]
        rounding = 3 * U * (z.abs() @ plan.size) + plan.terms * TINY
        return widen(passed + torch.where(plan.inexact, rounding, 0.0))
