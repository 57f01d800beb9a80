"""Matrices for inputs of pairs of two open sets -> their entries, row by row.

A matrix is an array, a sparse matrix of SciPy or a sparse tensor of torch. Numbers that are zero are left out, entries
given twice are added up; inputs of the same pairs share the entries of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from weftc_runtime.errors import RunError, shown
from weftc_runtime.format.program import PairEntries, Program

MOST = 1 << 24  # entries where every pair needs one


def entered(program: Program, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, with entries in place of matrices."""
    out = dict(given)
    for pairs in program.pairs:
        matrices = {name: out[name] for name in pairs.values if out.get(name) is not None}
        if matrices and not any(place in out for place in (pairs.row, pairs.column)):
            out.update(listed_entries(pairs, matrices, _tokens(program, out, pairs)))
    return out


def _tokens(program: Program, given: Mapping[str, Any], pairs: PairEntries) -> dict[str, tuple[str, int]]:
    """Sets whose tokens other inputs count: the input, and how many."""
    found = {}
    for item in program.inputs:
        value = given.get(item.name)
        if item.stream in (pairs.rows, pairs.columns) and hasattr(value, "__len__"):
            found[item.stream] = item.name, len(value)  # type: ignore[arg-type]
    return found


def listed_entries(
    pairs: PairEntries, given: Mapping[str, Any], counted: Mapping[str, tuple[str, int]]
) -> dict[str, Any]:
    """Row, column and numbers of every entry; `counted`: sets whose tokens something else counts."""
    found = {name: _listed(name, value) for name, value in given.items()}
    shape = next(iter(found.values()))[2]
    for name, (_, _, other) in found.items():
        if other != shape:
            first = next(iter(found))
            text = f"{shown(name)} has shape {list(other)}, but {shown(first)} has {list(shape)}"
            raise RunError(f"{text}; both are for the same pairs", input=name)
        for size, stream in zip(shape, (pairs.rows, pairs.columns), strict=True):
            if stream in counted and counted[stream][1] != size:
                text = f"{shown(name)} has shape {list(shape)}, but {shown(counted[stream][0])} says that there are"
                raise RunError(f"{text} {counted[stream][1]} {stream}", input=name)
    rows, columns = shape
    if pairs.complete:
        if rows * columns > MOST:
            name = next(iter(found))
            text = (
                f"{shown(name)} is read where pairs without an entry count, too: that takes {rows * columns:,} entries"
            )
            how = f"more than {MOST:,}; restrict what reads it, as in: where {name}[i,l] > 0"
            raise RunError(f"{text}, {how}", input=name)
        places = np.arange(rows * columns, dtype=np.int64)
    else:
        places = np.unique(np.concatenate([place for place, _, _ in found.values()]))
    filled = {}
    for name, (own, numbers, _) in found.items():
        filled[name] = np.bincount(np.searchsorted(places, own), numbers, len(places))
    if not pairs.complete:
        kept = np.any([values != 0 for values in filled.values()], axis=0)
        places, filled = places[kept], {name: values[kept] for name, values in filled.items()}
    if len(places) == 0:  # sets are never empty: an entry at no place
        return {name: np.zeros(1) for name in (pairs.row, pairs.column, *filled)}
    at = {pairs.row: places // columns + 1.0, pairs.column: places % columns + 1.0}
    return {**at, **filled}


def _listed(name: str, value: Any) -> tuple[Any, Any, tuple[int, int]]:
    """The places (row * columns + column), numbers and shape of a matrix."""
    if isinstance(value, torch.Tensor) and value.layout != torch.strided:
        value = value.detach().to_sparse_coo().coalesce().cpu()  # type: ignore[no-untyped-call]
        shape, (rows, columns), numbers = tuple(value.shape), value.indices().numpy(), value.values().numpy()
    elif hasattr(value, "tocoo"):
        found = value.tocoo()
        shape, rows, columns, numbers = tuple(found.shape), found.row, found.col, found.data
    else:
        try:
            dense = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
        except ValueError:
            dense = np.zeros(())
        if dense.ndim == 3:
            raise RunError(f"{shown(name)} is a batch of matrices; give one problem at a time", input=name)
        if dense.ndim != 2 or dense.dtype.kind not in "fiub":
            text = f"{shown(name)} must be a matrix of numbers, dense or sparse"
            raise RunError(f"{text}: a row for each row token, a column for each column token", input=name)
        rows, columns = dense.nonzero()
        shape, numbers = dense.shape, dense[rows, columns]
    if len(shape) != 2 or 0 in shape:
        raise RunError(f"{shown(name)} has shape {list(shape)}; it must be a matrix with rows and columns", input=name)
    return rows.astype(np.int64) * shape[1] + columns.astype(np.int64), numbers.astype(np.float64), shape
