"""The compiled kernels as Python functions on tensors' memory; None where they cannot be had, with one message."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.kernels.native.building import OFF, NotBuilt, built, cached, shipped
from weftc_runtime.kernels.native.starts import MatrixRows

_MACHINE, _MACHINE_ALL = ("stop", "doubt", "settle"), ("slots", "line_up", "tiers")


class NativeWarning(UserWarning):
    """The kernels in C++ are not available; everything runs, slower."""


class QueriesStruct(ctypes.Structure):
    """`WeftQueries` of finder.h."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("data", c_void_p),
        ("stride", c_int64),
        ("rows", c_int64),
        ("is_double", c_int32),
        ("features", c_int32),
        ("distance", c_int32),
        ("shorts", c_int32),
        ("bounds", c_int32),
        ("many", c_int32),
        ("whole", c_int32),
        ("centre", c_void_p),
        ("power", c_double),
        ("peak", c_double),
        ("top", c_double),
        ("length", c_double),
        ("slack", c_double),
        ("constant", c_double),
    ]


class Find(ctypes.Structure):
    """`WeftFind` of finder.h."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("keys", c_void_p),
        ("offset", c_void_p),
        ("count", c_int32),
        ("first", c_int32),
        ("longest", c_double),
        ("radius", c_double),
        ("tolerance", c_double),
        ("threads", c_int32),
        ("label", c_void_p),
        ("looked", c_int32),
        ("carried", c_int32),
        ("scanned", c_int64),
        ("refined", c_int64),
        ("settled_f64", c_int64),
        ("doubtful", c_int64),
        ("doubt", c_void_p),
        ("upper", c_void_p),
        ("lower", c_void_p),
    ]


class GroupsStruct(ctypes.Structure):
    """`WeftGroups` of groups.h."""

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
        ("settled_f64", c_int64),
        ("doubtful", c_int64),
    ]


class Segments(ctypes.Structure):
    """`WeftSegments` of adder.h."""

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
        ("total", c_int64),
        ("divide", c_int32),
        ("sums", c_void_p),
        ("counts", c_void_p),
        ("work", c_void_p),
        ("rounded", c_void_p),
        ("out", c_void_p),
        ("moved", c_int64),
        ("empty", c_int64),
    ]


TOGETHER = ctypes.CFUNCTYPE(c_int32, c_int32, c_void_p, c_int64, c_void_p)  # `Together` of machine.h


class Library:
    """The functions of the shared library. Tensors are passed as they lie in memory; the caller keeps them alive."""

    def __init__(self, path: str) -> None:
        self.path = path
        library = ctypes.CDLL(path)
        self._segments, self._peak = library.weftc_segments, library.weftc_peak
        self._groups = library.weftc_nearest_groups
        self._groups.argtypes, self._segments.argtypes = [POINTER(GroupsStruct)], [POINTER(Segments)]
        self._finder, self.free = library.weftc_finder, library.weftc_finder_free
        self._finder.argtypes, self._finder.restype = [POINTER(QueriesStruct)], c_void_p
        self.free.argtypes, self.free.restype = [c_void_p], None
        self._find = library.weftc_find
        self._find.argtypes = [c_void_p, POINTER(Find)]
        self._peak.argtypes = [c_void_p, c_int32, c_int64, c_int64, c_int32, c_int32]
        self._peak.restype = c_double
        self._machine, self.free_machine = library.weftc_machine, library.weftc_machine_free
        self._machine.argtypes = [c_void_p] * 4 + [c_int64, c_void_p, c_void_p, c_int32, c_int32, c_int64, c_void_p]
        self._machine.restype, self.free_machine.argtypes, self.free_machine.restype = c_void_p, [c_void_p], None
        self.share = library.weftc_machine_share
        self.share.argtypes, self.share.restype = [c_void_p, c_void_p, c_void_p, c_int32, c_int32, TOGETHER], None
        self._run = library.weftc_machine_run
        self._run.argtypes = [c_void_p, c_int64, c_int64, c_int64, c_int32, c_int32, c_int64, c_void_p]
        self.limit = library.weftc_machine_limit
        self.limit.argtypes, self.limit.restype = [c_void_p, c_int64, c_double, c_double], None
        self.stop, self.doubt, self.settle = (getattr(library, f"weftc_machine_{name}") for name in _MACHINE)
        self.slots, self.line_up, self.tiers = (getattr(library, f"weftc_machine_{name}") for name in _MACHINE_ALL)
        self.stop.argtypes, self.doubt.argtypes = [c_void_p, c_int64], [c_void_p, c_int64, c_void_p]
        self.settle.argtypes = [c_void_p, c_int64, c_void_p, c_int64, c_int64]
        self.slots.argtypes, self.line_up.argtypes = [c_void_p, c_int64, c_void_p], [c_void_p, c_void_p]
        self.tiers.argtypes = [c_void_p, c_int64, c_void_p]
        for call in (self.stop, self.doubt, self.settle, self.slots, self.line_up, self.tiers):
            call.restype = None
        self._store, self.free_store = library.weftc_store, library.weftc_store_free
        self._store.argtypes, self._store.restype = [c_int64, c_int64, c_double, c_int64], c_void_p
        self.free_store.argtypes, self.free_store.restype = [c_void_p], None
        self._counts = library.weftc_store_counts
        self._counts.argtypes, self._counts.restype = [c_void_p, c_void_p], None
        self._exponentials, self._product = library.weftc_exponentials, library.weftc_product
        self._exponentials.argtypes, self._exponentials.restype = [c_void_p, c_int64, c_int32, c_void_p], None
        self._product.argtypes = [c_void_p, c_int32, c_int64, c_int64, c_int64, c_int32, c_void_p, c_void_p, c_int32]
        self._product.restype = None
        self._distinct, self._nearer, self._pick = library.weftc_distinct, library.weftc_nearer, library.weftc_pick
        self._distinct.argtypes, self._distinct.restype = [POINTER(MatrixRows), c_void_p], c_int64
        self._nearer.argtypes, self._nearer.restype = [POINTER(MatrixRows), c_int64, c_void_p, c_void_p], c_double
        self._pick.argtypes, self._pick.restype = [c_void_p, c_void_p, c_double, c_int64, c_double], c_int64

    def finder(self, queries: QueriesStruct) -> int:
        """Queries to be searched; to be given to `free` in the end."""
        made = self._finder(byref(queries))
        if not made:
            raise MemoryError("a search ran out of memory")
        return cast(int, made)

    def find(self, finder: int, ask: Find) -> None:
        """Carries out a search."""
        if self._find(finder, byref(ask)):
            raise MemoryError("a search ran out of memory")

    def machine(self, *given: Any) -> int:
        """A machine for a plan and the arrays of a batch; to be given to `free_machine` in the end."""
        made = self._machine(*given)
        if not made:
            raise MemoryError("the machine ran out of memory")
        return cast(int, made)

    def run(
        self,
        machine: int,
        first: int,
        last: int,
        stop: int,
        until_stable: bool,
        work: int,
        status: npt.NDArray[np.int64],
    ) -> None:
        """Runs problems from `first` on to a layer, or an instruction; where each stands, to `status` (problems, 5)."""
        past = first + len(status)
        if self._run(machine, first, past, last, stop, until_stable, work, status.ctypes.data):
            raise MemoryError("layers ran out of memory")

    def nearest_groups(self, groups: GroupsStruct) -> None:
        """Carries out many searches of one shape."""
        if self._groups(byref(groups)):
            raise MemoryError("a search ran out of memory")

    def segments(self, segments: Segments) -> bool:
        """Adds rows to their sums and rounds these; False if the numbers need more room."""
        return not self._segments(byref(segments))

    def store(self, problems: int, costs: int, reach: float, limit: int) -> int:
        """Room for exponentials that are kept; to be given to `free_store` in the end."""
        made = self._store(problems, costs, reach, limit)
        if not made:
            raise MemoryError("exponentials ran out of memory")
        return cast(int, made)

    def counts(self, store: int) -> list[int]:
        """Matrices of exponentials that were made, passes over them; how many there are, and their bytes."""
        found = np.zeros(4, dtype=np.int64)
        self._counts(store, found.ctypes.data)
        return found.tolist()

    def exponentials(self, x: npt.NDArray[np.float64], single: bool) -> npt.NDArray[np.float64]:
        """exp of numbers, a multiple of 64 of them, as they are kept."""
        out = np.empty_like(x)
        self._exponentials(x.ctypes.data, len(x), single, out.ctypes.data)
        return out

    def product(self, matrix: Tensor, columns: int, vector: Tensor, turned: bool, threads: int) -> Tensor:
        """matrix[:, :columns] @ vector in float64, or with the transpose; rows are a multiple of 8, columns of 64."""
        out = torch.empty(columns if turned else len(matrix), dtype=torch.float64)
        given = (address(matrix), matrix.element_size() == 8, len(matrix), columns, matrix.stride(0), turned)
        self._product(*given, address(vector), address(out), threads)
        return out

    def peak(self, data: Tensor, threads: int) -> float:
        """The largest size of the numbers of a matrix."""
        double = data.element_size() == 8
        found = self._peak(address(data), double, data.stride(0), len(data), data.shape[1], threads)
        return float(found)

    def distinct(self, rows: MatrixRows, out: npt.NDArray[np.uint32]) -> int:
        """How many distinct rows there are; which one each row is, and where each stands, to `out` (2 * rows)."""
        found = int(self._distinct(byref(rows), out.ctypes.data))
        if found < 0:
            raise MemoryError("sorting rows ran out of memory")
        return found

    def nearer(
        self, rows: MatrixRows, row: int, group: npt.NDArray[np.uint32], nearest: npt.NDArray[np.float64]
    ) -> float:
        """Lowers squared distances to those to one row: the largest one left, or -1 beyond the range of the kernel."""
        found = float(self._nearer(byref(rows), row, group.ctypes.data, nearest.ctypes.data))
        if found < -1:
            raise MemoryError("distances ran out of memory")
        return found

    def pick(
        self,
        weight: npt.NDArray[np.float64] | None,
        nearest: npt.NDArray[np.float64] | None,
        scale: float,
        count: int,
        u: float,
    ) -> int:
        """The smallest place whose cumulative mass exceeds u times the total."""
        given = (None if one is None else one.ctypes.data for one in (weight, nearest))
        found = int(self._pick(*given, scale, count, u))
        if found < 0:
            raise MemoryError("a draw ran out of memory")
        return found


def library(build: bool = True) -> Library | None:
    """The kernels, or None. Without `build` only if they are there already. `WEFTC_NATIVE=off`: never."""
    return _known() or (_made() if build or _made.cache_info().currsize else None)


def address(array: Tensor) -> int:
    """Where the numbers of an array lie, for kernels that run on the CPU and read no other memory."""
    if array.device.type != "cpu":
        raise Uncovered(f"native kernels run on the CPU, not on {array.device}")
    return array.data_ptr()


@cache
def _known() -> Library | None:
    """The kernels, if they came with the package or lie in the cache."""
    if _off():
        return None
    try:
        path = shipped() or cached()
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
    return os.environ.get("WEFTC_NATIVE", "").lower() in OFF
