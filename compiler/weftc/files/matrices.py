"""Files of numbers for pairs of tokens -> the entries of a matrix.

.mtx   Matrix Market, coordinates or an array
.npz   a sparse matrix as `scipy.sparse.save_npz` writes it
.npy   a dense matrix
other  text: rows of a dense matrix; or, under a line of names, an entry in each line: row, column (counted from 1) and
       its number, which is 1 where there is none
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weftc.core.errors import InputError
from weftc.core.source import printable


@dataclass(frozen=True, slots=True)
class MatrixEntries:
    """Entries by row and column, counted from 0; without a shape where the file does not say one."""

    row: Any
    col: Any
    data: Any
    shape: tuple[int, int] | None

    def tocoo(self) -> MatrixEntries:
        return self

    def within(self, rows: int | None, columns: int | None) -> MatrixEntries:
        """The same with a shape: the one it has, or that of the tokens as far as they are known."""
        if self.shape is not None:
            return self
        most = (int(side.max()) + 1 if len(side) else 1 for side in (self.row, self.col))
        shape = tuple(known or found for known, found in zip((rows, columns), most, strict=True))
        return MatrixEntries(self.row, self.col, self.data, (shape[0], shape[1]))


def read_matrix(name: str, path: str) -> MatrixEntries:
    """The entries in a file; an `InputError` says what is wrong with it."""
    shown = printable(path)
    try:
        found = _read(Path(path))
    except FileNotFoundError:
        raise InputError(f"there is no file {shown}", input=name) from None
    except (OSError, ValueError, KeyError, UnicodeDecodeError) as error:
        kinds = "a matrix: Matrix Market (.mtx), a sparse .npz of SciPy, .npy, or text"
        raise InputError(f"{shown} is not {kinds} ({printable(str(error))})", input=name) from None
    for side, what in ((found.row, "row"), (found.col, "column")):
        if len(side) and int(side.min()) < 0:
            raise InputError(f"{shown}: a {what} is {int(side.min()) + 1}; they are counted from 1", input=name)
        if found.shape is None and (side != np.round(side)).any():
            raise InputError(f"{shown}: a {what} is no whole number", input=name)
    return MatrixEntries(found.row.astype(np.int64), found.col.astype(np.int64), found.data, found.shape)


def _read(path: Path) -> MatrixEntries:
    kind = path.suffix.lower()
    if kind == ".npy":
        return _dense(np.load(path, allow_pickle=False))
    if kind == ".npz":
        return _compressed(dict(np.load(path, allow_pickle=False)))
    text = path.read_text(encoding="utf-8")
    if text.startswith("%%MatrixMarket"):
        return _market(text)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = [line.replace(",", " ").replace(";", " ").split() for line in lines]
    if not rows:
        raise ValueError("it is empty")
    if all(map(_is_number, rows[0])):
        return _dense(np.array([[float(cell) for cell in row] for row in rows]))
    table = np.array([[float(cell) for cell in row] for row in rows[1:]]).reshape(len(rows) - 1, -1)
    if table.size and table.shape[1] not in (2, 3):
        raise ValueError("an entry is a row, a column and perhaps a number")
    return _listed(table)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _listed(table: Any, shape: tuple[int, int] | None = None) -> MatrixEntries:
    numbers = table[:, 2] if table.size and table.shape[1] > 2 else np.ones(len(table))
    row, column = (table[:, 0] - 1, table[:, 1] - 1) if table.size else (np.zeros(0), np.zeros(0))
    return MatrixEntries(row, column, numbers, shape)


def _dense(matrix: Any) -> MatrixEntries:
    if matrix.ndim != 2:
        raise ValueError(f"it has {matrix.ndim} axes, not two")
    rows, columns = matrix.nonzero()
    return MatrixEntries(rows, columns, matrix[rows, columns].astype(float), matrix.shape)


def _compressed(found: dict[str, Any]) -> MatrixEntries:
    """What `scipy.sparse.save_npz` writes: coordinates, or rows or columns that are compressed."""
    kind, shape = found["format"].item(), tuple(int(size) for size in found["shape"])
    kind = kind.decode() if isinstance(kind, bytes) else kind
    if kind == "coo":
        return MatrixEntries(found["row"], found["col"], found["data"], (shape[0], shape[1]))
    if kind not in ("csr", "csc"):
        raise ValueError(f"the format {kind} is none of coo, csr, csc")
    outer = np.repeat(np.arange(len(found["indptr"]) - 1), np.diff(found["indptr"]))
    row, column = (outer, found["indices"]) if kind == "csr" else (found["indices"], outer)
    return MatrixEntries(row, column, found["data"], (shape[0], shape[1]))


def _market(text: str) -> MatrixEntries:
    """Matrix Market: general or symmetric, with numbers or without."""
    head, *rest = text.splitlines()
    words = head.lower().split()
    if len(words) < 5 or words[3] == "complex" or words[4] not in ("general", "symmetric"):
        raise ValueError("only real, integer and pattern matrices, general or symmetric, are read")
    lines = [line.split() for line in rest if line.strip() and not line.startswith("%")]
    sizes = [int(cell) for cell in lines[0]]
    table = np.array([[float(cell) for cell in line] for line in lines[1:]]).reshape(len(lines) - 1, -1)
    if words[2] == "array":
        if words[4] == "symmetric":
            raise ValueError("a symmetric array is not read; write coordinates")
        return _dense(table.reshape(sizes[1], sizes[0]).T)
    found = _listed(table, (sizes[0], sizes[1]))
    if words[4] == "general":
        return found
    apart = found.row != found.col
    row, column = np.append(found.row, found.col[apart]), np.append(found.col, found.row[apart])
    return MatrixEntries(row, column, np.append(found.data, found.data[apart]), found.shape)
