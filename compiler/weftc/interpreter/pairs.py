"""Matrices for inputs of pairs of two open sets, as the meaning of a spec takes them: a list of entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weftc.core.errors import InputError
from weftc.core.syntax import PairInput, Spec


def with_entries(spec: Spec, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, with entries in place of matrices."""
    out = dict(given)
    for pairs in spec.pairs:
        if pairs.row not in out and pairs.column not in out and any(name in out for name in pairs.values):
            out.update(_entries(pairs, {name: _dense(name, out[name]) for name in pairs.values if name in out}))
    return out


def _dense(name: str, value: Any) -> np.ndarray[Any, Any]:
    for method in ("to_dense", "toarray"):
        if hasattr(value, method):
            value = getattr(value, method)()
    matrix = np.asarray(value, dtype=np.float64)
    if matrix.ndim != 2:
        raise InputError(
            f"{name} must be a matrix: a row for each row token, a column for each column token", input=name
        )
    return matrix


def _entries(pairs: PairInput, given: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    filled = sum(np.asarray(matrix != 0, dtype=int) for matrix in given.values())
    listed = [place for place, many in np.ndenumerate(filled) if many or pairs.complete] or [(-1, -1)]
    rows, columns = (np.array([place[side] + 1.0 for place in listed]) for side in (0, 1))
    numbers = {
        name: np.array([matrix[place] if place[0] >= 0 else 0.0 for place in listed]) for name, matrix in given.items()
    }
    return {pairs.row: rows, pairs.column: columns, **numbers}
