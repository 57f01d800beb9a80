"""What becomes of a slot in an attention sub-layer: what the carry leaves of it, plus what the heads add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.rows import Rows, blocks
from weftc_runtime.machines.head_task import HeadOutput, HeadTask
from weftc_runtime.machines.heads_query import literal_rows
from weftc_runtime.machines.heads_stream import shared_rows
from weftc_runtime.machines.heads_stream_joined import joined_shared_rows
from weftc_runtime.plan.instructions import AttendPlan, SlotWrite
from weftc_runtime.plan.prepared import Prepared
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, LazySlot, SlotValue, UniformSlot
from weftc_runtime.threads import each


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes slots as a plan says."""

    prepared: Prepared
    device: torch.device
    deterministic: bool = False

    def write(
        self,
        write: SlotWrite,
        plan: AttendPlan,
        residual: Residual,
        calls: list[HeadTask],
        given: Mapping[int, HeadOutput],
    ) -> SlotValue:
        slot = residual.stream.slot(write.slot)
        columns = range(slot.offset, slot.offset + slot.width)
        if write.form in ("deferred", "sparse") and write.carry != "clear" and write.heads:
            before = residual.slot(write.slot)  # the plan counts on a slot that is still empty
            if not isinstance(before, UniformSlot) or bool(before.row.any()):
                raise Uncovered(f"slot {write.slot} of {write.stream} is not empty")
        if write.form == "deferred" and write.heads:
            return self.deferred([calls[i] for i in write.heads], columns)
        if write.form == "sparse" and len(write.heads) == 1:
            held = given[write.heads[0]].held
            assert isinstance(held, IndexSlot)
            return held
        total: Tensor | None = None
        if write.carry != "clear" or not write.heads:
            base = self._carried(write, plan, residual)
            if not write.heads:
                return base
            total = base.row if isinstance(base, UniformSlot) else base.rows(slice(0, len(residual)))
        for index in write.heads:
            out = given[index].out
            assert out is not None
            part = _columns_of(out, calls[index].narrow.writes, columns)
            if total is not None:
                total = total + part
            else:  # sums over segments are nobody else's; -0.0 becomes 0.0
                total = part.add_(0.0) if calls[index].plan.strategy == "segment" else part + 0.0
        assert total is not None
        if write.form == "uniform" and len(total) == 1:
            return UniformSlot(total, len(residual))
        return DenseSlot(total if len(total) == len(residual) else total.expand(len(residual), -1))

    def _carried(self, write: SlotWrite, plan: AttendPlan, residual: Residual) -> SlotValue:
        """A slot after the carry, before the heads."""
        slot = residual.stream.slot(write.slot)
        if write.carry == "clear":
            return UniformSlot(torch.zeros(1, slot.width, dtype=torch.float64, device=self.device), len(residual))
        if write.carry == "keep":
            return residual.slot(write.slot)
        narrow, weights = self.prepared.carry(plan.attend.carry[write.stream], write.slot, slot.columns)
        if all(isinstance(residual.slot(name), UniformSlot) for name in narrow.slots(residual.stream)):
            return UniformSlot(weights.linear(narrow.read(residual, slice(0, 1)), "carry"), len(residual))

        def carry(rows: slice) -> Tensor:
            return weights.linear(narrow.read(residual, rows), "carry")

        rows = blocks(len(residual), max(len(narrow.columns), slot.width))
        return DenseSlot(torch.cat(each(carry, rows, self.device)))

    def deferred(self, calls: list[HeadTask], columns: range) -> LazySlot:
        """A slot that heads with few keys fill: rows are made when they are read."""
        makers: list[Callable[[Rows], list[Tensor]]] = []
        groups = calls[0].groups
        if groups is not None:  # states of many problems are not kept for what is read of them
            calls = [call.alone() for call in calls]
            makers.append(joined_shared_rows(calls, groups))

        def make(rows: Rows) -> Tensor:
            if not makers:
                makers.append(literal_rows(calls) if self.deterministic else shared_rows(calls))
            total: Tensor | None = None
            try:
                found = makers[0](rows)
            except Uncovered:
                found = literal_rows(calls)(rows)
            for call, out in zip(calls, found, strict=True):
                part = _columns_of(out, call.narrow.writes, columns)
                total = part + 0.0 if total is None else total + part
            assert total is not None
            return total

        return LazySlot(len(calls[0].query), len(columns), make, self.device)


def _columns_of(out: Tensor, writes: tuple[int, ...], columns: range) -> Tensor:
    """The columns of a slot in what a head wrote; those it does not write are zero."""
    # both are in order and name no column twice
    if len(columns) == len(writes) and columns.start == writes[0] and columns.stop == writes[-1] + 1:
        return out
    place = {column: at for at, column in enumerate(writes)}
    wanted = [place.get(column, -1) for column in columns]
    if all(at >= 0 for at in wanted):
        return out[:, wanted]
    padded = torch.cat([out, out.new_zeros(len(out), 1)], 1)
    return padded[:, wanted]
