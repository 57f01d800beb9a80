"""Layers in which queries choose keys, and keys become the means (or sums) of those that chose them, many in one call.

Such a layer has two steps. In the first, one head finds the best key of every query and writes its name. In the second,
one head adds up numbers of the queries by that name and writes them to the slot whose numbers the first one scores. All
of this is read from the plan. The native call (native/rounds.cpp) searches, adds up and rounds as one layer at a time
does, with the same bits; it comes back where rows are in doubt, which are settled here as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import pointer
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weft_runtime.affine import rows_of
from weft_runtime.calls import Call
from weft_runtime.heads_nearest import direct_slot, search_in_groups, search_of, settle
from weft_runtime.heads_segment import classes_of, grouping_of, native_sums
from weft_runtime.held import Dense, Held, Sparse
from weft_runtime.ir import Program
from weft_runtime.native.library import DOUBT, OVERFLOWN, WIDER, address
from weft_runtime.native.library import Rounds as Native
from weft_runtime.native.sums import NativeSums
from weft_runtime.nearest import Found
from weft_runtime.plan import AttendPlan, Uncovered
from weft_runtime.results import Tiers
from weft_runtime.search import Search
from weft_runtime.search_groups import GroupSearch
from weft_runtime.workers import cores

LONG = 1 << 33  # products to look at in one call at most, so that a run can be interrupted


@dataclass(slots=True, eq=False)
class Rounds:
    """The rounds of one problem, or of several that are joined."""

    chosen: tuple[str, str]  # stream and slot that names the best keys
    moved: tuple[str, str]  # stream and slot of the keys
    names: tuple[str, str]  # of the heads, as tiers know them
    search: Search | GroupSearch
    starts: Tensor  # the first query of every problem, and the end of the last (int64)
    sums: NativeSums
    keys: Tensor  # (count, features) float64, of all problems, as the storage dtype holds them
    known: Tensor | None  # the best keys before the first round
    divide: bool
    masked: bool  # whether sums are over keys that a mask allows
    dtype: torch.dtype
    at: Callable[[Held], Call]  # the search as a head, when the slot of the keys holds this
    tiers: dict[str, Tiers] = field(default_factory=dict)
    settled: list[Tiers] = field(default_factory=list)  # by layer
    _labels: tuple[Tensor, Tensor] | None = None
    _done: int = 0

    def run(self, many: int, until_stable: bool, still: Sequence[bool] = (False,)) -> tuple[list[int], list[bool]]:
        """Runs rounds: how many each problem ran, and whether its last one changed nothing.

        `still`: problems that stand still already. None runs where sums find no room.
        """
        search, sums = self.search, self.sums
        one = search.room.take()
        self._labels = labels = (one, search.room.take())
        out, doubled = torch.empty_like(self.keys), torch.zeros(many, dtype=torch.int64)
        ran, stable = torch.zeros(len(still), dtype=torch.int64), torch.tensor(still)
        native = Native(problems=len(still), count=len(self.keys), features=self.keys.shape[1])
        native.starts, native.ran, native.stable = address(self.starts), address(ran), address(stable)
        native.keys, native.doubled = address(self.keys), address(doubled)
        native.labels = address(labels[0]), address(labels[1])
        native.known = None if self.known is None else address(self.known)
        native.first, native.single = True, self.dtype == torch.float32
        native.until_stable, native.threads = until_stable, cores()
        search.enter(native, self.keys)
        sums.begin_rounds(out, self.divide)
        step = max(1, LONG // max(1, one.numel() * self.keys.numel() // len(still)))
        also = [Tiers() for _ in range(many)]  # settled outside the kernel
        while native.done < many and not native.all_stable:
            native.sums, native.last = pointer(sums.call), min(many, native.done + step)
            outcome = search.library.rounds(native)
            if outcome == OVERFLOWN:
                sums.start_anew()
                raise Uncovered("a number does not fit its dtype")
            if outcome == WIDER and not sums.widen(out, self.divide):
                break
            if outcome == DOUBT:
                self._settle(labels[native.done & 1], search.doubt(), also[native.done])
                native.settled = True
        self._done = int(native.done)
        last = labels[(self._done - 1) & 1]
        sums.end_rounds(last)
        search.leave(native, last)
        self._count(doubled.tolist(), also)
        return ran.tolist(), stable.tolist()

    def _settle(self, label: Tensor, doubt: Tensor | None, tiers: Tiers) -> None:
        """Settles the rows in doubt with the keys of the round under way."""
        call = self.at(Dense(self.keys.to(self.dtype)))
        _, found = settle(call, Found(label, doubt))
        tiers.include(found)

    def _count(self, doubled: list[int], also: list[Tiers]) -> None:
        rows, named = self.search.rows, (Tiers(), Tiers())
        for number in range(self._done):
            tiers = also[number]
            tiers.bound += doubled[number]
            tiers.fast = rows - tiers.bound - tiers.exact - tiers.undecided
            named[0].include(tiers)
            if self.masked:
                tiers.bound += len(self.keys)
                named[1].bound += len(self.keys)
            self.settled.append(tiers)
        self.tiers = {self.names[0]: named[0]}
        if self.masked:
            self.tiers[self.names[1]] = named[1]

    def slots(self) -> dict[str, dict[str, Held]]:
        """What the rounds have written."""
        assert self._labels is not None
        label, width = self._labels[(self._done - 1) & 1], len(self.keys) // (len(self.starts) - 1)
        return {
            self.chosen[0]: {self.chosen[1]: Sparse(len(label), width, label)},
            self.moved[0]: {self.moved[1]: Dense(self.keys.to(self.dtype))},
        }


def are_rounds(program: Program, attends: tuple[AttendPlan, ...]) -> bool:
    """Whether the steps of a layer look like a round."""
    if len(attends) != 2 or any(len(attend.heads) != 1 or len(attend.slots) != 1 for attend in attends):
        return False
    (choose, add), (chosen, moved) = (attend.heads[0] for attend in attends), (attend.slots[0] for attend in attends)
    if choose.strategy != "nearest" or choose.once or add.strategy != "segment" or add.once:
        return False
    weighting = choose.head.weighting
    if weighting.ties != "first" or weighting.epsilon or chosen.form != "sparse" or moved.form != "dense":
        return False
    streams = (choose.head.query, choose.head.keys)
    fields = all(program.stream(write.stream).slot(write.slot).role == "field" for write in (chosen, moved))
    return (
        fields
        and (add.head.keys, add.head.query) == streams == (chosen.stream, moved.stream)
        and add.index == chosen.slot
        and all(write.carry == "clear" and write.heads == (0,) for write in (chosen, moved))
    )


def rounds_of(
    attends: tuple[AttendPlan, ...],
    calls: tuple[Call, Call],
    names: tuple[str, str],
    dtype: torch.dtype,
    at: Callable[[Held], Call],
) -> Rounds | None:
    """The layers of a problem as rounds, where its state allows it; `attends` look like one."""
    choose, add = calls
    chosen, moved = (attend.slots[0] for attend in attends)
    written = {(chosen.stream, chosen.slot), (moved.stream, moved.slot)}
    read = {(choose.query.stream.name, name) for name in choose.reads("query")}
    read |= {(add.keys.stream.name, name) for name in add.reads("value")}
    read |= {(add.query.stream.name, name) for name in add.reads("query")}
    slot = add.query.stream.slot(moved.slot)
    whole = add.lens.writes == tuple(range(slot.offset, slot.offset + slot.width))
    if written & read or not whole or direct_slot(choose, "key") != moved.slot or choose.scan.type != "cpu":
        return None
    divide = add.plan.head.weighting.kind != "sum"
    if divide and not _stays(add, moved.slot):
        return None
    found, held = classes_of(add), choose.query.slot(chosen.slot)
    assert found.scores is not None
    grouping = grouping_of(add, found.eligible, found.scores)
    if not grouping.same or not grouping.ones:
        return None
    sums = native_sums(add)
    if sums is None or sums.full:
        return None
    search: Search | GroupSearch | None
    if choose.groups is not None:
        search, starts = search_in_groups(choose, choose.groups), choose.groups.places(choose.query.stream.name)
    else:
        search, starts = search_of(choose), torch.tensor([0, choose.queries])
        if search is None or not search.queries.plain or search.slack:
            return None
    keys = choose.keys.slot(moved.slot).rows(slice(0, len(choose.keys))).clone(memory_format=torch.contiguous_format)
    known = held.index.to(torch.int32).contiguous() if isinstance(held, Sparse) and held.one_hot else None
    places = (chosen.stream, chosen.slot), (moved.stream, moved.slot)
    masked = bool(add.plan.head.masks)
    return Rounds(*places, names, search, starts, sums, keys, known, divide, masked, dtype, at)


def _stays(call: Call, slot: str) -> bool:
    """Whether a query that no key counts for gets what the slot holds."""
    lens = call.lens
    if lens.head.self_key is None or not lens.own.matrices:
        return False
    rows = rows_of(lens.own, call.query, "own.value", lens.kept)
    return rows == tuple(((slot, column, 1.0),) for column in range(len(lens.writes)))
