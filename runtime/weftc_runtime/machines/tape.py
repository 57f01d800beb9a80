"""Layers of heads over kept exponentials as a tape of native operations, which runs many layers in one call.

`taping` makes it. The numbers are those of one layer at a time, up to rounding in float64; fields are rounded to the
storage dtype at the end of every step. When the terms of some keys have moved too far for the exponentials that are
kept, the call comes back, others are made, and it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, c_double, c_int32, c_int64, c_void_p
from ctypes import cast as pointer
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.data.results import Tiers
from weftc_runtime.errors import Uncovered
from weftc_runtime.kernels.native import layers as native
from weftc_runtime.kernels.native.library import Library, address
from weftc_runtime.machines import heads_kept
from weftc_runtime.machines.affine import Affine, Numbers
from weftc_runtime.machines.exponentials import Kept
from weftc_runtime.machines.head_task import HeadTask
from weftc_runtime.plan.slots import DenseSlot, SlotValue
from weftc_runtime.threads import cores

LONG = 1 << 32  # entries of matrices to pass over in one call, so that a run can be interrupted
Place: TypeAlias = tuple[str, str, int]  # stream, slot, column of the slot
KINDS = {"lse": 0, "softmax": 1, "exp": 2}


@dataclass(slots=True)
class HeadTape:
    """One head: its terms, what it adds, and the exponentials it uses."""

    call: HeadTask
    own: Affine
    other: Affine
    value: list[float]  # per write
    self_score: Affine | None
    self_value: list[Affine]
    kept: Kept | None = None


@dataclass(slots=True)
class WriteTape:
    """One cell after a step."""

    cell: int
    tokens: int
    carry: Affine
    adds: list[tuple[int, int]]  # head, and which of the columns it writes


@dataclass(slots=True)
class StepTape:
    """One step."""

    heads: list[HeadTape]
    writes: list[WriteTape]


@dataclass(slots=True)
class Tape:
    """The layers of one problem."""

    cells: list[Numbers]
    places: list[Place]  # stream, slot and column of every cell
    tokens: list[int]
    steps: list[StepTape]
    dtype: torch.dtype
    kernels: Library
    at: int = 0  # the step that comes next
    tiers: dict[str, Tiers] = field(default_factory=dict)  # nothing is decided
    settled: list[Tiers] = field(default_factory=list)  # by layer
    _alive: list[Any] = field(default_factory=list)  # what the structures point to

    @property
    def entries(self) -> int:
        """Of the matrices that a layer passes over, at most."""
        return sum(head.call.queries * len(head.call.keys) for step in self.steps for head in step.heads)

    def run(self, many: int, until_stable: bool, still: Sequence[bool] = (False,)) -> tuple[list[int], list[bool]]:
        """Runs layers of one problem: how many it ran, and whether the last one changed nothing."""
        before = [np.zeros_like(cell) for cell in self.cells] if until_stable else []
        done, stable, stuck = 0, False, 0
        self._choose()
        while done < many and not stable:
            plan = self._structure(min(many - done, max(1, LONG // max(1, self.entries))), until_stable, before)
            outcome = self.kernels.layers(plan)
            stuck = stuck + 1 if (plan.layers, plan.at) == (0, self.at) else 0
            done, stable, self.at = done + plan.layers, bool(plan.stable), plan.at
            if outcome == native.OVERFLOWN or stuck > 2:
                raise Uncovered("a number does not fit its dtype")
            if outcome == native.MOVED:
                self._choose(anew=stuck > 1)
        self.settled = [Tiers() for _ in range(done)]
        return [done], [stable]

    def _choose(self, anew: bool = False) -> None:
        """Chooses exponentials for all heads. Those of the next step must serve; others are tried when used."""
        for step in self.steps:
            for head in step.heads:
                head.kept = None  # those that no longer serve are let go before others are made
        following = self.steps[self.at]
        for step in (following, *(step for step in self.steps if step is not following)):
            for head in step.heads:
                known = [] if step is following else heads_kept.every_kept(heads_kept.still(head.call))
                if known:
                    turned = head.call.plan.transposed
                    head.kept = next((kept for kept in known if kept.turned == turned), known[0])
                    continue
                other = torch.from_numpy(head.other.at(self.cells, len(head.call.keys)))
                head.kept = heads_kept.serving(head.call, other, self.dtype, self.kernels, anew)

    def slots(self) -> dict[str, dict[str, SlotValue]]:
        """The slots that the cells make up."""
        found: dict[str, dict[str, list[Tensor]]] = {}
        for (stream, slot, _), cell, tokens in zip(self.places, self.cells, self.tokens, strict=True):
            column = torch.from_numpy(cell)[:tokens, None].to(self.dtype, copy=True)
            found.setdefault(stream, {}).setdefault(slot, []).append(column)
        return {
            stream: {
                slot: DenseSlot(columns[0] if len(columns) == 1 else torch.cat(columns, 1))
                for slot, columns in slots.items()
            }
            for stream, slots in found.items()
        }

    # ------------------------------------------------------------------ structures
    def _structure(self, many: int, until_stable: bool, before: list[Numbers]) -> native.Layers:
        self._alive = []
        steps = [self._step(step) for step in self.steps]
        plan = native.Layers(is_double=self.dtype == torch.float64, single=self.dtype == torch.float32)
        plan.steps, plan.cells, plan.threads, plan.until_stable = len(steps), len(self.cells), cores(), until_stable
        plan.step = self._array(native.StepStruct, steps)
        plan.cell = self._array(c_void_p, [cell.ctypes.data for cell in self.cells])
        plan.before = self._array(c_void_p, [cell.ctypes.data for cell in before])
        plan.tokens = self._array(c_int64, self.tokens)
        plan.reach, plan.layers, plan.at = 2 * heads_kept.REACH, many, self.at
        return plan

    def _array(self, kind: Any, items: list[Any]) -> Any:
        array = (kind * max(1, len(items)))(*items)
        self._alive.append(array)
        return pointer(array, POINTER(kind))

    def _affine(self, affine: Affine) -> native.AffineStruct:
        out = native.AffineStruct(constant=affine.constant, terms=len(affine.terms))
        if affine.base is not None:
            out.base = affine.base.ctypes.data
        if affine.terms:
            out.cells = self._array(c_int32, list(affine.terms))
            out.factors = self._array(c_double, list(affine.terms.values()))
        return out

    def _step(self, step: StepTape) -> native.StepStruct:
        heads = [self._head(head) for head in step.heads]
        writes = []
        for write in step.writes:
            out = native.Write(tokens=write.tokens, cell=write.cell, adds=len(write.adds))
            out.carry = self._affine(write.carry)
            out.heads = self._array(c_int32, [head for head, _ in write.adds])
            out.columns = self._array(c_int32, [column for _, column in write.adds])
            writes.append(out)
        passes = self._passes(step)
        found = native.StepStruct(heads=len(heads), writes=len(writes), passes=len(passes))
        found.head, found.write = self._array(native.HeadStruct, heads), self._array(native.Write, writes)
        found.pass_ = self._array(native.Pass, passes)
        return found

    def _head(self, head: HeadTape) -> native.HeadStruct:
        kept, call = head.kept, head.call
        assert kept is not None
        query_base, key_base = kept.bases(call.plan.transposed)
        out = native.HeadStruct(queries=call.queries, keys=len(call.keys), kind=KINDS[call.plan.head.weighting.kind])
        out.writes, out.own_key = len(head.value), head.self_score is not None
        out.own, out.other = self._affine(head.own), self._affine(head.other)
        if head.self_score is not None:
            out.self = self._affine(head.self_score)
            out.self_value = self._array(native.AffineStruct, [self._affine(value) for value in head.self_value])
        out.value = self._array(c_double, head.value)
        out.key_base, out.query_base = address(key_base), address(query_base)
        out.slack = kept.room(call.plan.transposed)
        return out

    def _passes(self, step: StepTape) -> list[native.Pass]:
        """The passes over matrices; two heads that use one from both sides share theirs."""
        passes: list[tuple[Kept, list[int]]] = []
        for index, head in enumerate(step.heads):
            assert head.kept is not None
            side = 0 if head.call.plan.transposed == head.kept.turned else 1
            free = next((pair for kept, pair in passes if kept is head.kept and pair[side] < 0), None)
            if free is None:
                free = [-1, -1]
                passes.append((head.kept, free))
            free[side] = index
        found = []
        for kept, (along, across) in passes:
            rows, stride = len(kept.matrix), kept.matrix.stride(0)
            found.append(native.Pass(address(kept.matrix), rows, len(kept.column_base), stride, along, across))
        return found
