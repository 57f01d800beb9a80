"""The compiled kernels as Python functions on tensors' memory; None where they cannot be had, with one message."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from weft_runtime.native.building import NotBuilt, built, cached
from weft_runtime.native.layers import MEMORY, Costs, Layers


class NativeWarning(UserWarning):
    """The kernels in C++ are not available; everything runs, slower."""


class Whole(ctypes.Structure):
    """`WeftWhole` of table.h."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("table", c_void_p),
        ("bias", c_void_p),
        ("scale", c_double),
        ("reach", c_double),
        ("most", c_double),
        ("error", c_double),
    ]


class Table(ctypes.Structure):
    """`WeftTable` of table.h."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("keys", c_void_p),
        ("offset", c_void_p),
        ("centre", c_void_p),
        ("count", c_int32),
        ("features", c_int32),
        ("distance", c_int32),
        ("power", c_double),
        ("both", c_double),
        ("length", c_double),
        ("top", c_double),
        ("table", c_void_p),
        ("bias", c_void_p),
        ("shorts", Whole),
        ("reach", c_double),
        ("most", c_double),
        ("peak", c_double),
        ("whole", c_int32),
    ]


class Searched(ctypes.Structure):
    """`WeftSearch` of searcher.h."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("data", c_void_p),
        ("stride", c_int64),
        ("rows", c_int64),
        ("is_double", c_int32),
        ("features", c_int32),
        ("centre", c_void_p),
        ("power", c_double),
        ("table", c_void_p),
        ("bias", c_void_p),
        ("shorts", Whole),
        ("keys", c_int32),
        ("ties", c_int32),
        ("e0", c_float),
        ("e1", c_float),
        ("distance", c_int32),
        ("threads", c_int32),
        ("exact", c_void_p),
        ("offset", c_void_p),
        ("tolerance", c_double),
        ("grow", c_double),
        ("upper", c_void_p),
        ("lower", c_void_p),
        ("before", c_void_p),
        ("previous", c_void_p),
        ("drift", c_void_p),
        ("spread", c_double),
        ("label", c_void_p),
        ("doubt", c_void_p),
        ("room", c_int64),
        ("scanned", c_int64),
        ("refined", c_int64),
        ("doubled", c_int64),
        ("doubtful", c_int64),
    ]


class _Groups(ctypes.Structure):
    """`WeftGroups` of nearest.cpp."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("data", c_void_p),
        ("stride", c_int64),
        ("is_double", c_int32),
        ("features", c_int32),
        ("groups", c_int64),
        ("starts", c_void_p),
        ("keys", c_void_p),
        ("count", c_int32),
        ("distance", c_int32),
        ("power", c_double),
        ("key_power", c_double),
        ("threads", c_int32),
        ("label", c_void_p),
        ("doubt", c_void_p),
        ("room", c_int64),
        ("doubled", c_int64),
        ("doubtful", c_int64),
    ]


class Segments(ctypes.Structure):
    """`WeftSegments` of segment.cpp."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("data", c_void_p),
        ("stride", c_int64),
        ("rows", c_int64),
        ("is_double", c_int32),
        ("columns", c_int32),
        ("before", c_void_p),
        ("labels", c_void_p),
        ("before_weights", c_void_p),
        ("weights", c_void_p),
        ("base", c_void_p),
        ("segments", c_int32),
        ("top", c_int32),
        ("levels", c_int32),
        ("threads", c_int32),
        ("divide", c_int32),
        ("sums", c_void_p),
        ("counts", c_void_p),
        ("work", c_void_p),
        ("rounded", c_void_p),
        ("out", c_void_p),
        ("moved", c_int64),
        ("empty", c_int64),
    ]


class Library:
    """The functions of the shared library. Tensors are passed as they lie in memory; the caller keeps them alive."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._nearest, self._segments = library.weft_nearest, library.weft_segments
        self._peak = library.weft_peak
        self._groups = library.weft_nearest_groups
        self._groups.argtypes = [POINTER(_Groups)]
        self._table = library.weft_table
        self._table.argtypes, self._table.restype = [POINTER(Table)], None
        self._nearest.argtypes, self._segments.argtypes = [POINTER(Searched)], [POINTER(Segments)]
        self._peak.argtypes = [c_void_p, c_int32, c_int64, c_int64, c_int32, c_int32]
        self._peak.restype = c_double
        self._product = library.weft_product
        self._product.argtypes = [c_void_p, c_int32, c_int64, c_int64, c_int64, c_int32, c_void_p, c_void_p, c_int32]
        self._costs, self._layers = library.weft_costs, library.weft_layers
        self._costs.argtypes, self._layers.argtypes = [POINTER(Costs)], [POINTER(Layers)]
        self.block_keys = int(library.weft_block_keys())  # keys of a block of the table

    def table(self, table: Table) -> None:
        """Makes keys ready."""
        self._table(byref(table))

    def nearest(self, search: Searched) -> None:
        """Carries out a search."""
        if self._nearest(byref(search)):
            raise MemoryError("a search ran out of memory")

    def nearest_groups(self, **fields: Any) -> tuple[int, int]:
        """Carries out many searches of one shape: how many rows float64 settled, and how many were left in doubt."""
        groups = _Groups(**_pointers(fields))
        if self._groups(byref(groups)):
            raise MemoryError("a search ran out of memory")
        return groups.doubled, groups.doubtful

    def segments(self, segments: Segments) -> bool:
        """Adds rows to their sums and rounds these; False if the numbers need more room."""
        return not self._segments(byref(segments))

    def product(self, matrix: Tensor, columns: int, vector: Tensor, turned: bool, threads: int) -> Tensor:
        """matrix[:, :columns] @ vector in float64, or with the transpose; rows are a multiple of 8, columns of 64."""
        out = torch.empty(columns if turned else len(matrix), dtype=torch.float64)
        given = (matrix.data_ptr(), matrix.element_size() == 8, len(matrix), columns, matrix.stride(0), turned)
        if self._product(*given, vector.data_ptr(), out.data_ptr(), threads):
            raise MemoryError("a product ran out of memory")
        return out

    def costs(self, costs: Costs) -> None:
        """Makes a matrix of exponentials."""
        if self._costs(byref(costs)):
            raise MemoryError("a matrix of exponentials ran out of memory")

    def layers(self, layers: Layers) -> int:
        """Runs layers: `DONE`, or why it stopped early."""
        outcome = int(self._layers(byref(layers)))
        if outcome == MEMORY:
            raise MemoryError("layers ran out of memory")
        return outcome

    def peak(self, data: Tensor, threads: int) -> float:
        """The largest size of the numbers of a matrix."""
        double = data.element_size() == 8
        found = self._peak(data.data_ptr(), double, data.stride(0), len(data), data.shape[1], threads)
        return float(found)


def _pointers(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value.data_ptr() if isinstance(value, Tensor) else value for name, value in fields.items()}


def library(build: bool = True) -> Library | None:
    """The kernels, or None. Without `build` only if they have been compiled before. `WEFT_NATIVE=off`: never."""
    return _known() or (_made() if build or _made.cache_info().currsize else None)


@cache
def _known() -> Library | None:
    """The kernels, if they lie in the cache."""
    if _off():
        return None
    try:
        path = cached()
        return None if path is None else Library(str(path))
    except (NotBuilt, OSError, AttributeError):
        return None


@cache
def _made() -> Library | None:
    """The kernels, compiled now."""
    if _off():
        return None
    try:
        return Library(str(built()))
    except (NotBuilt, OSError, AttributeError) as error:
        warnings.warn(f"no native kernels, torch runs instead: {error}", NativeWarning, stacklevel=2)
        return None


def forget() -> None:
    """Looks for the kernels anew."""
    _known.cache_clear()
    _made.cache_clear()


def _off() -> bool:
    return os.environ.get("WEFT_NATIVE", "").lower() in ("off", "0", "no")
