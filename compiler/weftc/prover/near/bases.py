"""A file whose residuals have bases of their own -> the same model over slots, with a bound of what that rounds.

With residuals B z, a matrix M that reads the residual of one stream and writes to that of another does to slots what
B^-1 M B does. Where the basis only moves columns, scales by powers of two and changes signs, nothing is rounded and the
result is as good as the file; elsewhere every tensor comes with a bound of its error, entry by entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from weftc.prover.kernel.rules import Unproved
from weftc.prover.near.error_matrix import Array, ErrorMatrix, inverse
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import TensorUse


@dataclass(frozen=True, slots=True)
class OverSlots:
    """A model over slots, and bounds of the errors of its tensors; tensors without one are exact."""

    checkpoint: Checkpoint
    errors: Mapping[str, Array] = field(default_factory=dict)


def over_slots(checkpoint: Checkpoint) -> OverSlots:
    """The model over slots; as it is when no residual has a basis."""
    program = checkpoint.program
    if not program.basis:
        return OverSlots(checkpoint)
    there = {
        stream: ErrorMatrix.exactly(np.asarray(checkpoint.tensors[name])) for stream, name in program.basis.items()
    }
    back: dict[str, ErrorMatrix] = {}
    for stream, basis in there.items():
        found = inverse(basis.value)
        if found is None:
            raise Unproved(f"the basis of {stream} has no inverse that float64 can bound")
        back[stream] = found
    plain = replace(program, basis={})
    tensors: dict[str, Array] = {}
    errors: dict[str, Array] = {}
    for name, uses in plain.tensors().items():
        sides = {_sides(use, there) for use in uses}
        if len(sides) > 1:
            raise Unproved(f"the tensor {name} is used for residuals with different bases")
        rows, columns = sides.pop()
        array = np.asarray(checkpoint.tensors[name])
        tensors[name] = array
        if rows is not None and rows == columns and np.array_equal(array, np.eye(len(array))):
            continue  # an identity is one in every basis
        moved = _moved(array, back.get(rows or ""), there.get(columns or ""))
        tensors[name] = moved.value
        if not moved.is_exact:
            errors[name] = moved.error
    return OverSlots(replace(checkpoint, program=plain, tensors=tensors), errors)


def _sides(use: TensorUse, bases: Mapping[str, ErrorMatrix]) -> tuple[str | None, str | None]:
    """The streams with a basis whose residuals the rows and columns of a tensor belong to."""
    rows, columns = (side if side in bases else None for side in (use.rows, use.columns))
    return rows, columns


def _moved(array: Array, left: ErrorMatrix | None, right: ErrorMatrix | None) -> ErrorMatrix:
    flat = array.ndim == 1
    found = ErrorMatrix.exactly(array[None] if flat else array)
    if right is not None:
        found = found @ right
    if left is not None:
        found = left @ found
    return ErrorMatrix(found.value[0], found.error[0]) if flat else found
