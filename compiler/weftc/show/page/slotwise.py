"""A checkpoint -> the same checkpoint with every matrix over slots, also where a residual has a basis of its own.

Pictures, formulas and the search for the parts of an equation speak of slots. Where the file holds Q B^-1 for a basis B
they are shown Q; entries that are only what rounding has left of zero are cleared.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weftc.emit.matrices import Array
from weftc_runtime.format.basis import NOISE, Basis, bases_of
from weftc_runtime.format.checkpoint import Checkpoint


def slotwise(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as its slots see it; itself when every residual is its slots side by side."""
    if not checkpoint.program.basis:
        return checkpoint
    bases = bases_of(checkpoint.program, checkpoint.tensors)
    tensors = dict(checkpoint.tensors)
    for name, uses in checkpoint.program.tensors().items():
        rows, columns = bases.get(uses[0].rows or ""), bases.get(uses[0].columns or "")
        tensors[name] = _over_slots(np.asarray(tensors[name], np.float64), rows, columns)
    return replace(checkpoint, tensors=tensors)


def _over_slots(matrix: Array, rows: Basis | None, columns: Basis | None) -> Array:
    over, terms = matrix, np.abs(matrix)
    if columns is not None:
        over, terms = over @ columns.matrix, terms @ np.abs(columns.matrix)
    if rows is not None:
        over, terms = rows.inverse @ over, np.abs(rows.inverse) @ terms
    if over is matrix:
        return matrix
    cleared: Array = np.where(np.abs(over) <= NOISE * terms, 0.0, over)
    near = np.round(cleared, 9)  # an identity is drawn as one although the last digits are gone
    return np.where(np.abs(cleared - near) <= NOISE * np.maximum(terms, 1.0), near, cleared)
