"""The plan of a layer and the state of a problem -> a tape, where it covers them.

It covers a layer of which every step is one attention sub-layer, all heads keep their exponentials, their values are
the same for all keys, and all that is written are fields of numbers per token: the cells. Terms of the scores, own keys
and what the carry leaves are then affine in the cells of one token (`affine`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch

from weftc_runtime.format.program import Program
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.kernels.native.library import library
from weftc_runtime.machines import heads_kept
from weftc_runtime.machines.affine import Affine, Frame, NotAffine, Numbers, Row, padded, rows_of
from weftc_runtime.machines.head_task import HeadTask
from weftc_runtime.machines.tape import HeadTape, Place, StepTape, Tape, WriteTape
from weftc_runtime.plan.instructions import AttendPlan, FFNPlan, Plan, SlotWrite
from weftc_runtime.plan.narrow import NarrowMatrices
from weftc_runtime.plan.residual import Residual

MOST = 8  # heads of a step, columns that a head or a step writes: MOST_WRITES of layers.cpp
NATIVE = 1 << 24  # entries of matrices to pass over from which compiling the native kernels pays


def steps_of(program: Program, plan: Plan) -> tuple[AttendPlan, ...]:
    """The attention sub-layers of a layer that has one in every step, and no other; none where it has not."""
    found = []
    for index in range(len(program.layer)):
        attends = [sub for sub in plan.steps[f"layer.{index}"] if not (isinstance(sub, FFNPlan) and sub.dead)]
        if len(attends) != 1 or not isinstance(attends[0], AttendPlan):
            return ()
        found.append(attends[0])
    return tuple(found)


def may_tape(program: Program, attends: tuple[AttendPlan, ...]) -> bool:
    """Whether a tape may cover the steps of a layer."""
    for attend in attends:
        if len(attend.heads) > MOST or not all(head.kept and head.head.value for head in attend.heads):
            return False
        for write in attend.slots:
            slot = program.stream(write.stream).slot(write.slot)
            if slot.role != "field" or write.form != "dense" or not write.heads:
                return False
        if sum(program.stream(write.stream).slot(write.slot).width for write in attend.slots) > MOST:
            return False
    return bool(attends)


@dataclass(slots=True)
class Maker:
    """What a tape is made from: the plan of a layer and the state of a problem."""

    program: Program
    attends: tuple[AttendPlan, ...]
    state: Mapping[str, Residual]
    sources: Mapping[str, Mapping[str, tuple[str, ...]]]  # of derived slots
    calls: list[list[HeadTask]]
    carry: Any  # name, slot, columns -> Lens, Weights
    dtype: torch.dtype

    def tape(self, many: int) -> Tape | None:
        """The tape of the layer, or None where it is not covered; `many`: how many layers are to run."""
        calls = [call for step in self.calls for call in step]
        if not all(heads_kept.fits(call, self.dtype) and call.device.type == "cpu" for call in calls):
            return None
        size = sum(call.queries * len(call.keys) for call in calls)
        kernels = library(build=size >= heads_kept.NATIVE or size * many >= NATIVE)
        if kernels is None:
            return None
        places, cells = self._cells()
        index = {place: number for number, place in enumerate(places)}
        frames = {}
        for name, residual in self.state.items():
            written = {slot for stream, slot, _ in places if stream == name}
            mine = {(slot, column): number for (stream, slot, column), number in index.items() if stream == name}
            frames[name] = Frame(residual, mine, self._stale(name, written))
        try:
            steps = [
                self._step(attend, step, frames, index) for attend, step in zip(self.attends, self.calls, strict=True)
            ]
        except NotAffine:
            return None
        if any(len(head.value) > MOST for step in steps for head in step.heads):
            return None
        tokens = [len(self.state[stream]) for stream, _, _ in places]
        return Tape(cells, places, tokens, steps, self.dtype, kernels)

    def _cells(self) -> tuple[list[Place], list[Numbers]]:
        places: dict[Place, Numbers] = {}
        for attend in self.attends:
            for write in attend.slots:
                residual = self.state[write.stream]
                held = residual.slot(write.slot)
                for column in range(residual.stream.slot(write.slot).width):
                    place = (write.stream, write.slot, column)
                    if place not in places:
                        places[place] = padded(held.column(column).numpy())
        return list(places), list(places.values())

    def _stale(self, stream: str, written: set[str]) -> frozenset[str]:
        """Derived slots that change with what is written."""
        found = set(written)
        for slot, read in self.sources[stream].items():  # in order of dependence
            if found & set(read):
                found.add(slot)
        return frozenset(found)

    def _step(
        self,
        attend: AttendPlan,
        calls: list[HeadTask],
        frames: Mapping[str, Frame],
        index: Mapping[Place, int],
    ) -> StepTape:
        heads = [self._head(call, frames) for call in calls]
        writes = []
        for write in attend.slots:
            slot = self.program.stream(write.stream).slot(write.slot)
            carried = self._carried(attend, write, frames[write.stream], index)
            for column in range(slot.width):
                adds = []
                for number in write.heads:
                    columns = calls[number].narrow.writes
                    if slot.offset + column in columns:
                        adds.append((number, columns.index(slot.offset + column)))
                cell = index[write.stream, write.slot, column]
                writes.append(WriteTape(cell, len(self.state[write.stream]), carried[column], adds))
        return StepTape(heads, writes)

    def _carried(self, attend: AttendPlan, write: SlotWrite, frame: Frame, index: Mapping[Place, int]) -> list[Affine]:
        """What the carry leaves of a slot."""
        slot = self.program.stream(write.stream).slot(write.slot)
        if write.carry == "clear":
            return [Affine() for _ in range(slot.width)]
        if write.carry == "keep":
            return [Affine(terms={index[write.stream, write.slot, c]: 1.0}) for c in range(slot.width)]
        narrow, _ = self.carry(attend.attend.carry[write.stream], write.slot, slot.columns)
        rows: tuple[Row, ...] = rows_of(cast(NarrowMatrices, narrow), frame.residual, "carry", {})
        return [frame.affine(row) for row in rows]

    def _head(self, call: HeadTask, frames: Mapping[str, Frame]) -> HeadTape:
        narrow, known = call.narrow, call.narrow.kept
        query, keys = frames[call.query.stream.name], frames[call.keys.stream.name]
        own, other = Affine(), Affine()
        for part, numbers in heads_kept.terms(call):
            left = rows_of(narrow.query, call.query, part.q, known)
            right = rows_of(narrow.keys, call.keys, part.k, known)
            for number in numbers:
                q, k = query.affine(left[number]), keys.affine(right[number])
                if q.is_number:
                    other.add(k, q.constant)
                elif k.is_number:
                    own.add(q, k.constant)
                else:
                    raise NotAffine(call.plan.head.name)
        self_score, self_value = None, []
        key = narrow.head.self_key
        if key is not None and key.row is not None:
            self_score = query.affine(rows_of(narrow.query, call.query, key.row, known)[0])
            rows = rows_of(narrow.query, call.query, key.value, known) if key.value else ((),) * len(narrow.writes)
            self_value = [query.affine(row) for row in rows]
        return HeadTape(call, own, other, self._value(call, keys), self_score, self_value)

    def _value(self, call: HeadTask, keys: Frame) -> list[float]:
        narrow = call.narrow
        if call.plan.head.weighting.kind in NUMBER_HEADS:
            return cast(list[float], narrow.weights["value"][:, 0].tolist())
        values = [keys.affine(row) for row in rows_of(narrow.value, call.keys, "value", narrow.kept)]
        if not all(value.is_number for value in values):
            raise NotAffine(call.plan.head.name)
        return [value.constant for value in values]
