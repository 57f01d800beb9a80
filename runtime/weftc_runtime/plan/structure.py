"""What a matrix does to slots, read from its numbers: selectors, identity blocks, heads that look at their token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import torch
from torch import Tensor

from weftc_runtime.format.program import Head, Slot, Stream


def table(matrix: Tensor) -> Tensor:
    """A vector is a matrix of one row."""
    return matrix if matrix.dim() == 2 else matrix[None]


def block(matrix: Tensor, slot: Slot) -> Tensor:
    """The columns of a matrix that read a slot."""
    return table(matrix)[:, slot.columns]


def slots_of(matrix: Tensor, stream: Stream) -> tuple[str, ...]:
    """The slots a matrix reads."""
    used = (table(matrix) != 0).any(0).tolist()
    return tuple(slot.name for slot in stream.slots if any(used[slot.columns]))


def slots_written(stream: Stream, columns: Sequence[int]) -> tuple[str, ...]:
    """The slots these columns belong to."""
    return tuple(s.name for s in stream.slots if any(s.offset <= column < s.offset + s.width for column in columns))


def is_identity(rows: Tensor, slot: Slot) -> bool:
    """Whether rows (width, columns) carry a slot as it is."""
    wanted = torch.zeros_like(rows)
    wanted[:, slot.columns] = torch.eye(slot.width, dtype=rows.dtype, device=rows.device)
    return torch.equal(rows, wanted)


def copies(matrix: Tensor, stream: Stream) -> tuple[str, float] | None:
    """The slot that a matrix copies whole, times a number; None when it does something else."""
    read = slots_of(matrix, stream)
    if len(read) != 1:
        return None
    slot = stream.slot(read[0])
    part = block(matrix, slot)
    if part.shape[0] != slot.width:
        return None
    factor = float(part[0, 0])
    whole = torch.eye(slot.width, dtype=part.dtype, device=part.device) * factor
    return (slot.name, factor) if factor and torch.equal(part, whole) else None


def query_is_key(head: Head, stream: Stream, names: Set[tuple[str, str]], tensors: Mapping[str, Tensor]) -> bool:
    """Whether the best key of every token is surely the token itself, given that tokens are distinct.

    So it is when Q and K are the same matrix of a distance: no other token is nearer than the token itself. Or when
    they copy the token's one-hot name; `names` are the slots that hold one throughout.
    """
    if head.weighting.kind != "argmax" or head.query != head.keys or head.masks or head.self_key is not None:
        return False
    if len(head.score.parts) != 1 or head.weighting.epsilon or not head.value:
        return False
    part = head.score.parts[0]
    if part.scale is not None or part.factors or not torch.equal(tensors[part.q], tensors[part.k]):
        return False
    if part.kind == "l2":
        return part.coefficient is not None and float(tensors[part.coefficient]) < 0
    source = copies(tensors[part.q], stream)
    return source is not None and (head.query, source[0]) in names
