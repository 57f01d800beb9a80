"""Data that come in blocks -> one array that lies in a file and is mapped, so that memory never holds all of it.

What is read several times must lie somewhere: a mapped `.npy` lies in its own file; everything else (Parquet, Zarr,
iterators, numbers in another type) goes through once, block by block, into scratch space on disk. A scratch file has no
name, so nothing is left behind, whatever ends the process. It lies where temporary files do: TMPDIR says where.
"""

from __future__ import annotations

import errno
import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from weftc_runtime.errors import RunError

BYTES = 1 << 24  # of a block
LARGE = 1 << 28  # bytes from which numbers that are made anew are made in scratch space

Rows = npt.NDArray[Any]


class ScratchRows:
    """Rows (n, width) of float32 or float64, appended block by block to a file without a name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._file = tempfile.TemporaryFile(prefix="weftc-")  # noqa: SIM115
        self._shape: tuple[int, ...] = ()
        self._dtype: np.dtype[Any] | None = None
        self._rows = 0

    def append(self, block: npt.ArrayLike) -> None:
        """Some more rows, as wide and of the same type as those before."""
        rows = _floats(self._name, block)
        if self._dtype is None:
            self._dtype, self._shape = rows.dtype, rows.shape[1:]
        if rows.shape[1:] != self._shape or rows.dtype != self._dtype:
            seen, now = (f"{dtype}[n{''.join(f', {n}' for n in shape)}]" for dtype, shape in self._kinds(rows))
            raise RunError(f"{self._name}: row {self._rows} begins a block {now}, but the blocks before are {seen}")
        try:
            self._file.write(np.ascontiguousarray(rows).data if rows.size else b"")
        except OSError as error:
            raise self._no_room(error) from None
        self._rows += len(rows)

    def array(self) -> Rows:
        """All rows so far, mapped and read-only."""
        if not self._rows or self._dtype is None or 0 in self._shape:
            return np.zeros((self._rows, *self._shape), dtype=self._dtype or np.float64)
        try:
            self._file.flush()
        except OSError as error:
            raise self._no_room(error) from None
        view = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()  # the map keeps it
        return np.frombuffer(view, dtype=self._dtype).reshape(self._rows, *self._shape)

    def _kinds(self, rows: Rows) -> list[tuple[Any, tuple[int, ...]]]:
        return [(self._dtype, self._shape), (rows.dtype, rows.shape[1:])]

    def _no_room(self, error: OSError) -> RunError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        why = "is full" if full else f"cannot be written ({error.strerror})"
        return RunError(f"{self._name}: {tempfile.gettempdir()} {why}; TMPDIR says where scratch files lie")


def gathered(name: str, blocks: Iterable[npt.ArrayLike]) -> Rows:
    """The rows of all blocks, one after the other, as one array: in memory if they are few, else in scratch space."""
    first: list[Rows] = []
    found: ScratchRows | None = None
    for block in blocks:
        first.append(_floats(name, block))
        if found is None and sum(rows.nbytes for rows in first) < LARGE and _fit(first):
            continue
        found = found or ScratchRows(name)
        for rows in first:
            found.append(rows)
        first.clear()
    if found is not None:
        return found.array()
    return np.concatenate(first) if first else np.zeros((0, 0))


def _fit(blocks: list[Rows]) -> bool:
    return all(rows.shape[1:] == blocks[0].shape[1:] and rows.dtype == blocks[0].dtype for rows in blocks)


def in_type(name: str, rows: Rows, dtype: npt.DTypeLike, columns: list[int] | None = None) -> Rows:
    """Rows (some columns of them) in another type, contiguous; as they are where they can be, on disk if large."""
    wanted = np.dtype(dtype)
    if columns is None and rows.dtype == wanted and rows.flags.c_contiguous:
        return rows
    width = rows.shape[1] if columns is None else len(columns)
    if len(rows) * width * wanted.itemsize < LARGE:
        return np.ascontiguousarray(rows if columns is None else rows[:, columns], dtype=wanted)
    made = (rows[part] if columns is None else rows[part][:, columns] for part in parts(rows))
    return gathered(name, (block.astype(wanted) for block in made))


def parts(rows: Rows) -> Iterator[slice]:
    """The rows of an array, in blocks of about BYTES."""
    size = max(1, BYTES // max(1, 8 * int(np.prod(rows.shape[1:]))))
    return (slice(start, min(len(rows), start + size)) for start in range(0, len(rows), size))


def block_maker(value: Any) -> Callable[[], Iterator[Any]] | None:
    """How to get the blocks of something that is no array but comes in blocks; None where it is something else.

    An iterator or generator of arrays, a function that makes one, an Arrow table or data set, a Zarr or HDF5 array.
    """
    if callable(getattr(value, "to_batches", None)):  # Arrow: tables, data sets
        return lambda: (_columns(batch) for batch in value.to_batches())
    if isinstance(value, Iterator):
        return lambda: value
    chunked = all(hasattr(value, name) for name in ("chunks", "shape", "dtype", "__getitem__"))
    if chunked and not hasattr(value, "compute"):  # Zarr, HDF5; Dask computes when it is asked
        return lambda: chunks(value)
    if callable(value) and not hasattr(value, "__array__"):
        return lambda: iter(value())
    return None


def chunks(value: Any, first: int = 0, last: int | None = None) -> Iterator[Rows]:
    """The rows of a Zarr or HDF5 array from `first` to `last`, in blocks of whole chunks, about BYTES at a time."""
    each, end = int(value.chunks[0]) if value.chunks else 1, value.shape[0] if last is None else last
    step = max(1, BYTES // (8 * max(1, int(np.prod(value.shape[1:]))) * each)) * each
    cuts = [first, *range(first - first % each + step, end, step), end]
    return (np.asarray(value[start:stop]) for start, stop in pairwise(cuts) if start < stop)


def _columns(batch: Any) -> Rows:
    """A record batch as rows: one column each, or lists of equal length."""
    found = []
    for column in batch.columns:
        if column.null_count:
            raise RunError("a column of the Arrow data has missing values; fill them in or drop those rows")
        size = getattr(column.type, "list_size", None)
        values = column.flatten() if size else column
        made = values.to_numpy(zero_copy_only=False)
        found.append(made.reshape(-1, size) if size else made[:, None])
    single = all(part.dtype == np.float32 for part in found)
    return np.concatenate([part.astype(np.float32 if single else np.float64, copy=False) for part in found], axis=1)


def _floats(name: str, block: npt.ArrayLike) -> Rows:
    try:
        rows = np.asarray(block)
        if rows.ndim < 1 or rows.dtype.kind not in "fiub":
            raise TypeError
        return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)
    except (TypeError, ValueError):
        raise RunError(f"{name}: a block is not an array of numbers with rows of equal length") from None
