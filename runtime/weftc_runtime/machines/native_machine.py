"""The native machine on a state: arrays for its slots, many layers in one call, and what it leaves to the caller.

A state is one problem, or several that are joined: their tokens one after the other. Rows in doubt that the machine
cannot settle exactly are settled here, from its slots as they are; it then goes on with the same layer.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from weftc_runtime.data.results import Tiers
from weftc_runtime.data.stopping import Limit
from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.rational import RationalScores
from weftc_runtime.exact.rows import Rows
from weftc_runtime.format.program import ProgramStep
from weftc_runtime.kernels.collective import Collective
from weftc_runtime.kernels.native.library import Library, address, library
from weftc_runtime.machines import heads_kept
from weftc_runtime.machines.encoding import Encoder
from weftc_runtime.machines.head_task import HeadTask
from weftc_runtime.machines.heads_nearest import settle_rows
from weftc_runtime.machines.native_code import (
    DENSE,
    IDENTITY,
    INDEX,
    LAZY,
    NOISE,
    UNIFORM,
    Encoded,
    SlotCode,
    StepGroup,
)
from weftc_runtime.machines.native_shares import Exchange, confirms
from weftc_runtime.machines.problem_cache import ProblemCache
from weftc_runtime.plan.instructions import HeadPlan
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, LazySlot, SlotValue, UniformSlot, copied
from weftc_runtime.reference.state import Problem
from weftc_runtime.threads import cores

if TYPE_CHECKING:
    from weftc_runtime.machines.planned import PlannedBackend

_GOING, DOUBT, LAYER = range(3)  # how a problem stands after a call
MADE = (LAZY, NOISE, IDENTITY)  # kinds of slots that no array holds
Arrays = tuple[Tensor | None, Tensor | None, Tensor | None]  # what a slot holds at first, and two rooms to write it to
LONG = 1 << 33  # products in one call at most, so that a run can be interrupted
LOT = 1 << 16  # problems in one call at most


def encoded(engine: PlannedBackend, problem: Problem, part: StepGroup | None = None) -> Encoded:
    """The instructions of a layer, or of a part; kept with the plan: the state decides nothing about them but sizes."""
    state = cast(dict[str, Residual], problem.residuals)
    sizes = tuple((stream.name, stream.size) for stream in engine.program.streams)
    part = part or StepGroup(engine.program.layer)
    known, key = engine.prepared.encoded, (engine.dtype, sizes, *map(id, part.steps))
    if key not in known:
        exact = engine.exact(problem)

        def call(plan: HeadPlan) -> HeadTask:
            made = engine.call(plan, state, exact, problem.number)
            return made if made.groups is None else made.part(0)

        try:
            known[key] = Encoder(engine.program, engine.prepared, engine.dtype == torch.float32, call, part).encode()
        except Uncovered as reason:
            known[key] = reason
    found = known[key]
    if not isinstance(found, Encoded):
        raise Uncovered(str(found))
    return found


@dataclass(slots=True, eq=False)
class KeptStore:
    """Exponentials that a run keeps, from call to call."""

    kernels: Library
    handle: int

    @classmethod
    def of(cls, kernels: Library, problems: int, costs: int) -> KeptStore:
        return cls(kernels, kernels.store(problems, costs, heads_kept.REACH, heads_kept.MEMORY))

    def __del__(self) -> None:
        self.kernels.free_store(self.handle)

    def counts(self) -> list[int]:
        """Matrices that were made, passes over them; how many there are, and their bytes."""
        return self.kernels.counts(self.handle)


@dataclass(slots=True, eq=False)
class NativeMachine:
    """The layers of a state."""

    engine: PlannedBackend
    problem: Problem
    plan: Encoded
    kernels: Library
    starts: dict[str, list[int]]  # of every stream: the first token of each problem, and the end of the last
    tiers: dict[str, Tiers] = field(default_factory=dict)
    settled: list[Tiers] = field(default_factory=list)  # by layer
    store: KeptStore | None = None
    _arrays: list[Arrays] = field(default_factory=list)  # by slot
    _exchange: Exchange | None = None  # with other processes
    _handle: int = 0
    _done: int = 0
    _work: int = 0  # scores times features of a layer, roughly

    @classmethod
    def of(
        cls, engine: PlannedBackend, problem: Problem, base: int, seeds: Sequence[int], part: StepGroup | None = None
    ) -> NativeMachine:
        """The machine for the layers, or for a part, or `Uncovered`."""
        plan = encoded(engine, problem, part)
        kernels = library()
        if kernels is None:
            raise Uncovered("there are no native kernels")
        groups = engine.groups if problem.number < 0 else None
        starts = {name: [0, len(z)] for name, z in problem.residuals.items()} if groups is None else groups.starts
        others = engine.collective
        made = cls(engine, problem, plan, kernels, starts)
        made._bind(base, seeds)
        if others.size > 1:
            made._share(others)
        return made

    def _share(self, others: Collective) -> None:
        """Lets the machine ask what other processes know of sets that they share."""
        self._exchange = Exchange(others)
        names = [(stream.name, self.starts[stream.name][-1]) for stream in self.engine.program.streams]
        shared = array("B", [others.shares(name) for name, _ in names])
        totals = array("q", [others.total(name, tokens) for name, tokens in names])
        given = shared.buffer_info()[0], totals.buffer_info()[0], others.size, confirms(self.plan, others)
        self.kernels.share(self._handle, *given, self._exchange.call)

    @property
    def steps(self) -> tuple[ProgramStep, ...]:
        """The steps it carries out."""
        return self.plan.part.steps

    @property
    def finished(self) -> bool:
        """Whether layers have run."""
        return self._done > 0

    # ------------------------------------------------------------------ arrays
    @property
    def problems(self) -> int:
        return len(next(iter(self.starts.values()))) - 1

    def _bind(self, base: int, seeds: Sequence[int]) -> None:
        plan, problems, state = self.plan, self.problems, cast(dict[str, Residual], self.problem.residuals)
        cache = self.engine.cache[self.problem.number]
        if costs := self.engine.prepared.plan.costs:
            self.store = cache.store = cache.store or KeptStore.of(self.kernels, problems, costs)
        pointers, peaks = list[int](), list[float]()
        for slot in plan.slots:
            given = one = other = None
            if slot.kind not in MADE:
                residual = state[slot.place[0]]
                held = residual.stored.get(slot.place[1])
                given = None if held is None else self._given(slot, held, len(residual))
                if slot.place in plan.written or slot.role == "derived":
                    one, other = _rooms(slot, problems if slot.kind == UNIFORM else len(residual))
            self._arrays.append((given, one, other))
            pointers.extend([0 if room is None else address(room) for room in (given, one, other)])
            pointers.append(0)
            looked = problems == 1 and given is not None and slot.kind == DENSE
            peak = cache.peak(given) if looked and given is not None else None
            peaks.append(nan if peak is None else peak)
        starts = [array("q", self.starts[stream.name]) for stream in self.engine.program.streams]
        begins = array("Q", [each.buffer_info()[0] for each in starts])
        lists = array("Q", pointers), array("d", peaks), begins, array("Q", seeds)  # alive until the machine is made
        slots, known_peaks, tokens, drawn = (each.buffer_info()[0] for each in lists)
        read = plan.whole.ctypes.data, plan.real.ctypes.data
        more = self.engine.dtype == torch.float32, cores(), base, None if self.store is None else self.store.handle
        self._handle = self.kernels.machine(*read, slots, known_peaks, problems, tokens, drawn, *more)
        self._work = self._scores()

    def __del__(self) -> None:
        if self._handle:
            self.kernels.free_machine(self._handle)

    def _given(self, slot: SlotCode, held: SlotValue, tokens: int) -> Tensor | None:
        """What a slot holds, as the machine holds it."""
        dtype = torch.float32 if slot.single else torch.float64
        if slot.kind == INDEX:
            if isinstance(held, IndexSlot) and held.one_hot:
                return held.index.to(torch.int32).contiguous()
            if isinstance(held, UniformSlot) and not bool(held.row.any()):
                return None
            raise Uncovered(f"slot {slot.place[1]} is no index")
        if slot.kind == UNIFORM:
            if isinstance(held, UniformSlot):
                return held.row.to(dtype).expand(self.problems, -1).contiguous()
            first = torch.tensor(self.starts[slot.place[0]][:-1])
            return held.rows(first).contiguous()
        if isinstance(held, DenseSlot):
            return held.value.to(dtype).contiguous()
        if isinstance(held, UniformSlot) and not bool(held.row.any()):
            return None
        return held.rows(slice(0, tokens)).to(dtype).contiguous()

    # ------------------------------------------------------------------ running
    def limit(self, little: Mapping[tuple[str, str], Limit]) -> None:
        """Lets runs until stable end with a layer that changes these slots by little; or `Uncovered`."""
        places = {slot.place: (number, slot.kind) for number, slot in enumerate(self.plan.slots)}
        for place, limit in little.items():
            number, kind = places[place]
            if kind not in (DENSE, UNIFORM):
                raise Uncovered(f"slot {place[1]} is not held as numbers")
            self.kernels.limit(self._handle, number, limit.most, limit.share)

    def run(self, many: int, until_stable: bool, still: Sequence[bool] = (False,)) -> tuple[list[int], list[bool]]:
        """Runs layers: how many each problem ran, and whether its last one changed nothing."""
        for number, stands in enumerate(still):
            if stands:
                self.kernels.stop(self._handle, number)
        step, last = max(1, LONG // self._work), 0
        while True:
            last = min(many, last + step)
            status = self._to(last, -1, until_stable)
            stuck = bool((status[:, 0] == LAYER).any())
            if stuck and self.problems > 1:
                raise Uncovered("a problem of the batch meets what the native machine does not cover")
            if stuck or last >= many or bool(status[:, 2].all()):
                break
        ran = status[:, 1].tolist()
        self._done = max(ran)
        self._count()
        return ran, status[:, 2].astype(bool).tolist()

    def _to(self, last: int, stop: int, until_stable: bool = False) -> npt.NDArray[np.int64]:
        """Goes on to a layer, or an instruction, rows in doubt included; where every problem stands then."""
        status = np.zeros((self.problems, 5), dtype=np.int64)
        while True:
            for first in range(0, self.problems, LOT):  # a run can be interrupted between them
                lot, work = status[first : first + LOT], self._work * max(1, last)
                self._call(first, last, stop, until_stable, work, lot)
            waiting = (status[:, 0] == DOUBT).nonzero()[0].tolist()
            for number in waiting:
                self._settle(number, *status[number, 3:].tolist())
            if not waiting:
                return status

    def _call(self, *given: Any) -> None:
        try:
            self.kernels.run(self._handle, *given)
        except MemoryError:
            if self._exchange is None or self._exchange.error is None:
                raise
            raise self._exchange.error from None

    def sublayers(self) -> Iterator[dict[str, dict[str, SlotValue]]]:
        """One layer of one problem: what every sub-layer has written, but for lazy slots, as it goes by."""
        for number, stop in enumerate(self.plan.ends):
            last = number + 1 == len(self.plan.ends)
            before = self._now(0)
            if (self._to(1, -1 if last else stop)[:, 0] == LAYER).any():
                raise Uncovered("the layer meets what the native machine does not cover")
            now = self._now(0)
            found: dict[str, dict[str, SlotValue]] = {}
            for at, slot in enumerate(self.plan.slots):
                written = slot.place in self.plan.written and slot.kind != LAZY
                if written and (now[at] != before[at] or slot.role == "scratch"):  # scratch is written over in place
                    held = self._lying(at, now[at], 0)
                    found.setdefault(slot.place[0], {})[slot.place[1]] = copied(held)
            if last:
                self._done = 1
                self._count()
            yield found

    def _scores(self) -> int:
        """Scores times features of a layer, roughly."""
        total = 1
        for instruction in self.plan.instructions:
            if instruction.head is not None:
                head = instruction.head.head
                sizes = (self.starts[name][-1] // self.problems for name in (head.query, head.keys))
                total += max(1, next(sizes)) * max(1, next(sizes)) * self.problems
        return total * 8 + sum(ends[-1] for ends in self.starts.values()) * 8

    def _settle(self, number: int, at: int, many: int) -> None:
        """Settles the rows in doubt of one problem at one instruction."""
        plan = self.plan.instructions[at].head
        assert plan is not None
        rows = np.empty(many, dtype=np.int64)
        self.kernels.doubt(self._handle, number, rows.ctypes.data)
        state = self._state(number)
        exact = RationalScores(self.engine.derived_slots.exact_weights, cast(Any, state), self.engine.makers())
        call = HeadTask(
            plan, self.engine.prepared.head(plan.head), state[plan.head.query], state[plan.head.keys], exact,
            self.engine.prepared.tensors, ProblemCache(), self.engine.scan,
        )  # fmt: skip
        label, tiers = settle_rows(call, torch.from_numpy(rows))
        numbers = label.to(torch.int32).contiguous()
        self.kernels.settle(self._handle, number, address(numbers), tiers.bound, tiers.exact + tiers.undecided)
        if tiers.undecided:
            path = self.plan.instructions[at].path
            self.tiers.setdefault(path, Tiers()).include(Tiers(exact=-tiers.undecided, undecided=tiers.undecided))

    def _now(self, number: int) -> list[int]:
        """Where the slots of a problem lie; 0: nowhere."""
        now = np.zeros(len(self.plan.slots), dtype=np.uint64)
        self.kernels.slots(self._handle, number, now.ctypes.data)
        return now.tolist()

    def _lying(self, at: int, where: int, number: int) -> SlotValue:
        """What a slot of one problem holds that lies there."""
        slot = self.plan.slots[at]
        first, last = self.starts[slot.place[0]][number : number + 2]
        rows = slice(number, number + 1) if slot.kind == UNIFORM else slice(first, last)
        for room in self._arrays[at]:
            if where and room is not None and room[rows].data_ptr() == where:
                return self._held(slot, room[rows], last - first)
        return UniformSlot(torch.zeros(1, slot.width, dtype=torch.float64), last - first)

    def _state(self, number: int) -> dict[str, Residual]:
        """One problem as its slots are now."""
        found: dict[str, dict[str, SlotValue]] = {}
        for at, where in enumerate(self._now(number)):
            slot = self.plan.slots[at]
            if slot.role != "derived" and slot.kind not in (IDENTITY, LAZY, NOISE):
                found.setdefault(slot.place[0], {})[slot.place[1]] = self._lying(at, where, number)
        state = {}
        for stream, residual in cast(dict[str, Residual], self.problem.residuals).items():
            own = residual if self.problems == 1 else self.engine.part(residual, number)
            state[stream] = own.with_slots(found.get(stream, {}), self.engine.sources[stream])
        return state

    @staticmethod
    def _held(slot: SlotCode, array: Tensor, tokens: int) -> SlotValue:
        if slot.kind == INDEX:
            return IndexSlot(tokens, slot.width, array)
        return UniformSlot(array, tokens) if slot.kind == UNIFORM else DenseSlot(array)

    # ------------------------------------------------------------------ what came out
    def _count(self) -> None:
        """Counts the rows of every tier, by head and by layer."""
        counts = np.zeros((self._done, len(self.plan.instructions), 3), dtype=np.int64)
        self.kernels.tiers(self._handle, self._done, counts.ctypes.data)
        others = self.engine.collective
        for at, each in enumerate(self.plan.instructions):  # of queries that all hold one process tells
            if others.rank and not any(map(others.shares, each.streams)):
                counts[:, at] = 0
        for instruction, (bound, exact, ran) in zip(self.plan.instructions, counts.sum(0).tolist(), strict=True):
            if instruction.path and (bound or exact or ran):
                fast = ran - bound - exact if instruction.chooses else 0
                self.tiers.setdefault(instruction.path, Tiers()).include(Tiers(bound=bound, exact=exact, fast=fast))
        by_layer = (counts.reshape(self._done, len(self.plan.tally)) @ self.plan.tally).reshape(-1, 3).tolist()
        self.settled += [Tiers(bound=bound, exact=exact, fast=fast) for bound, exact, fast in by_layer]

    def slots(self) -> dict[str, dict[str, SlotValue]]:
        """The slots that the layers have written."""
        empty = np.zeros((self.problems, len(self.plan.slots)), dtype=np.uint8)
        self.kernels.line_up(self._handle, empty.ctypes.data)
        found: dict[str, dict[str, SlotValue]] = {}
        then: dict[tuple[str, str], SlotValue] = {}
        for slot, (_, now, before), gone in zip(
            self.plan.slots, self._arrays, empty.max(axis=0, initial=0).tolist(), strict=True
        ):
            if slot.place not in self.plan.written:
                continue
            stream, name = slot.place
            tokens = self.starts[stream][-1]
            held: SlotValue
            if now is None or gone:
                held = UniformSlot(torch.zeros(1, slot.width, dtype=torch.float64), tokens)
            else:
                held = self._whole(slot, now, tokens)
            found.setdefault(stream, {})[name] = held
            if slot.role == "field" and slot.kind != LAZY:
                then[slot.place] = held if before is None else self._whole(slot, before, tokens)
        for lazy in self.plan.lazies:
            stream, name = lazy.place
            found.setdefault(stream, {})[name] = self._lazy(lazy.attend, lazy.write, lazy.later, found, then)
        return found

    def _whole(self, slot: SlotCode, array: Tensor, tokens: int) -> SlotValue:
        if slot.kind == UNIFORM and self.problems > 1:
            sizes = torch.tensor(self.starts[slot.place[0]]).diff()
            return DenseSlot(array.repeat_interleave(sizes, 0))
        return self._held(slot, array, tokens)

    def _lazy(self, attend: Any, write: Any, later: frozenset[tuple[str, str]], found: Any, then: Any) -> LazySlot:
        """A slot whose rows are made when they are read, from what was there when its heads ran for the last time."""
        engine, start = self.engine, cast(dict[str, Residual], dict(self.problem.residuals))
        slot = engine.program.stream(write.stream).slot(write.slot)
        kept: list[LazySlot] = []

        def made() -> LazySlot:
            if not kept:
                state = {}
                for stream, residual in start.items():
                    changed = {
                        name: then[stream, name] if (stream, name) in later else held
                        for name, held in found.get(stream, {}).items()
                        if (stream, name) in then
                    }
                    state[stream] = residual.with_slots(changed, engine.sources[stream])
                problem = Problem(cast(dict[str, Tensor], state), self.problem.number)
                exact = engine.exact(problem)
                calls = [engine.call(attend.heads[i], state, exact, problem.number) for i in write.heads]
                kept.append(engine.writer.deferred(calls, range(slot.offset, slot.offset + slot.width)))
            return kept[0]

        def make(rows: Rows) -> Tensor:
            return made().make(rows)

        deferred = LazySlot(len(start[write.stream]), slot.width, make, engine.device)
        return deferred.rounded(engine.dtype) if slot.role == "field" else deferred


def _rooms(slot: SlotCode, tokens: int) -> tuple[Tensor, Tensor]:
    """Where a slot is written, in turn."""
    dtype = torch.float32 if slot.single else torch.float64

    def room() -> Tensor:
        if slot.kind == INDEX:
            return torch.empty(tokens, dtype=torch.int32)
        return torch.empty(tokens, slot.width, dtype=dtype)

    one = room()
    return one, one if slot.role in ("derived", "scratch") else room()
