"""Feed-forwards under a plan: over the columns they read and write, in blocks of rows, their result held as planned."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from weftc_runtime.exact.rational import NotRational, RationalScores
from weftc_runtime.exact.rows import Rows, blocks
from weftc_runtime.exact.weights import Weights
from weftc_runtime.plan.instructions import FFNPlan
from weftc_runtime.plan.narrow import NarrowFFN, NarrowMatrices
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, LazySlot, SlotValue, UniformSlot, sparse
from weftc_runtime.plan.structure import slots_written
from weftc_runtime.reference import feed_forward as tokenwise
from weftc_runtime.threads import each


def feed(
    plan: FFNPlan, narrow: NarrowFFN, residual: Residual, exact: RationalScores, tensors: Mapping[str, Tensor]
) -> dict[str, SlotValue]:
    """The slots that a feed-forward writes."""
    stream, tokens = residual.stream, len(residual)
    slots = slots_written(stream, narrow.writes)
    if plan.form == "sparse" and plan.number:
        return {slots[0]: _scaled(plan, narrow, residual, tensors)}
    if plan.form == "deferred" and len(slots) == 1:

        def make(rows: Rows) -> Tensor:
            return apply_rows(narrow, residual, exact, rows)[0]

        return {slots[0]: LazySlot(tokens, stream.slot(slots[0]).width, make, residual.device)}
    uniform = all(isinstance(residual.slot(name), UniformSlot) for name in narrow.reads.slots(stream))
    if uniform:
        whole = apply_rows(narrow, residual, exact, slice(0, 1))[0]
    else:
        wide = max(1, len(narrow.reads.columns), len(narrow.writes))
        parts = each(lambda rows: apply_rows(narrow, residual, exact, rows)[0], blocks(tokens, wide), residual.device)
        whole = torch.cat(parts)
    found: dict[str, SlotValue] = {}
    for name in slots:
        slot = stream.slot(name)
        where = {column: at for at, column in enumerate(narrow.writes)}
        columns = range(slot.offset, slot.offset + slot.width)
        old = None
        if any(column not in where for column in columns):
            old = residual.slot(name).rows(slice(0, 1) if uniform else slice(0, tokens))
        pieces = [
            whole[:, where[column]] if column in where else _column(old, column - slot.offset) for column in columns
        ]
        contiguous = [where.get(column, -1) for column in columns]
        value = torch.stack(pieces, 1) if old is not None else whole[:, contiguous]
        found[name] = UniformSlot(value, tokens) if uniform else DenseSlot(value)
    return found


def _column(old: Tensor | None, column: int) -> Tensor:
    assert old is not None
    return old[:, column]


def _scaled(plan: FFNPlan, narrow: NarrowFFN, residual: Residual, tensors: Mapping[str, Tensor]) -> IndexSlot:
    """A stored index, times a number of each token."""
    held, matrix = sparse(residual.slot(plan.index)), tensors[plan.number]
    if narrow.kept.get("number", (None,))[0] is not matrix:
        reads = NarrowMatrices.of({"number": matrix[:1]})
        narrow.kept["number"] = matrix, reads, Weights(reads.matrices)
    _, reads, weights = narrow.kept["number"]
    numbers = weights.linear(reads.read(residual), "number")[:, 0]
    numbers = numbers if held.place is None else numbers[held.place]
    values = numbers if held.values is None else numbers * held.values
    return IndexSlot(held.tokens, held.width, held.index, held.place, values.contiguous())


def apply_rows(narrow: NarrowFFN, residual: Residual, exact: RationalScores, rows: Rows) -> tuple[Tensor, Tensor]:
    """The written columns of these rows, and which rows a norm found to be zero."""
    z = narrow.reads.read(residual, rows)
    return tokenwise.apply(narrow.ffn, narrow.weights, z, _direction(narrow, z, exact, rows))


def _direction(narrow: NarrowFFN, z: Tensor, exact: RationalScores, rows: Rows) -> tokenwise.Direction:
    def direction(row: int) -> list[float] | None:
        token = (rows.start or 0) + row if isinstance(rows, slice) else int(rows[row])
        try:
            return exact.direction(narrow.source, token)
        except NotRational:
            return tokenwise.computed(narrow.ffn, narrow.weights, z[row : row + 1])

    return direction


def derived_radius(narrow: NarrowFFN, residual: Residual, exact: RationalScores, slot: str) -> Tensor:
    """Bounds of the errors of a derived slot."""
    where = residual.stream.slot(slot)
    columns = [narrow.writes.index(column) for column in range(where.offset, where.offset + where.width)]

    def bound(rows: slice) -> Tensor:
        z, error = narrow.reads.read(residual, rows), narrow.reads.radius(residual, rows)
        zero = torch.zeros(len(z), dtype=torch.bool, device=z.device)
        if narrow.ffn.function in tokenwise.NORMS:
            zero = apply_rows(narrow, residual, exact, rows)[1]
        return tokenwise.radius(narrow.ffn, narrow.weights, z, error, zero)[:, columns]

    uniform = all(isinstance(residual.slot(name), UniformSlot) for name in narrow.reads.slots(residual.stream))
    if uniform:
        return bound(slice(0, 1))
    return torch.cat(each(bound, blocks(len(residual), max(1, len(narrow.reads.columns))), residual.device))
