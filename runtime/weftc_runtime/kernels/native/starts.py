"""The distinct rows of a matrix and draws among them, by `starts.cpp`: the bits of `initial.PlainUrn`, on all cores.

For every row 4 bytes say which distinct row it is. Of every distinct row there are 4 bytes for where it stands, 8 for
its distance to the nearest pick, and 8 for its mass if not all are 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from ctypes import Structure, c_int32, c_int64, c_void_p
from math import frexp, inf
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from weftc_runtime.kernels.native.library import Library

Array = npt.NDArray[np.float64]
REPEATED = 2**32 - 1  # a row that equals an earlier one


class MatrixRows(Structure):
    """`WeftRows` of starts.cpp."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("data", c_void_p),
        ("row_step", c_int64),
        ("column_step", c_int64),
        ("rows", c_int64),
        ("columns", c_int32),
        ("is_double", c_int32),
        ("threads", c_int32),
    ]


class OutOfRange(Exception):
    """A squared distance is not zero and below 2^-900, or above 2^900; the kernels have no powers of two for these."""


def native_urn(rows: npt.NDArray[Any], mass: Array | None, build: bool = True) -> NativeUrn | None:
    """The distinct rows, if there are kernels for them; `build`: they may be compiled for it."""
    from weftc_runtime.kernels.native.library import library
    from weftc_runtime.threads import cores

    size = rows.itemsize
    if rows.dtype not in (np.float32, np.float64) or len(rows) >= REPEATED or any(step % size for step in rows.strides):
        return None
    kernels = library(build)
    if kernels is None:
        return None
    given = (rows.ctypes.data, *(step // size for step in rows.strides), *rows.shape, size == 8, cores())
    return NativeUrn(kernels, rows, MatrixRows(*given), mass)


class NativeUrn:
    """Distinct rows, drawn by kernels."""

    def __init__(self, kernels: Library, rows: npt.NDArray[Any], given: MatrixRows, mass: Array | None) -> None:
        self._kernels, self._rows, self._given = kernels, rows, given  # the rows stay alive
        out = np.empty(2 * len(rows), dtype=np.uint32)
        self.count = kernels.distinct(given, out)
        self._group, self._first = out[: len(rows)], out[len(rows) : len(rows) + self.count]
        self._weights = self._multiplicities(mass)
        self._nearest: Array | None = None
        self._largest = inf

    def _multiplicities(self, mass: Array | None) -> Array | None:
        """The mass of every distinct row; None: all are 1."""
        if mass is None and self.count == len(self._group):
            return None
        weights = np.bincount(self._group, weights=mass, minlength=self.count)
        again = np.ones(len(self._group), dtype=bool)
        again[self._first] = False
        self._group[again] = REPEATED
        return weights.astype(np.float64, copy=False)

    def full(self) -> NativeUrn:
        other = copy(self)
        other._weights = None if self._weights is None else self._weights.copy()
        return other

    def row(self, place: int) -> int:
        return int(self._first[place])

    def remove(self, place: int) -> None:
        if self._weights is None:
            self._weights = np.ones(self.count)
        self._weights[place] = 0.0

    def move_away(self, place: int) -> None:
        if self._nearest is None:
            self._nearest = np.full(self.count, inf)
        self._largest = self._kernels.nearer(self._given, self.row(place), self._group, self._nearest)
        if self._largest < 0:
            raise OutOfRange

    def draw(self, u: float) -> int:
        scale = 1.0 if self._nearest is None else 2.0 ** -frexp(self._largest)[1]
        return self._kernels.pick(self._weights, self._nearest, scale, self.count, u)
