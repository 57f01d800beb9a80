"""The plan of a layer -> the instructions of the native machine, as flat arrays of whole numbers and doubles.

`kernels/native/machine.h` reads what is written here. An instruction is one of

    map          token by token: slots := carry z + out f(A z, B z), or what a carry leaves plus what heads add
    choose       the best key of every query by a polynomial score
    gather_sum   exact sums or means over the tokens that an index or a ranking names
    rank         the best N or P percent, supports of normmax and sparsemax, of all tokens or of those that an index has
    soft         softmax, exp, sum, normalize, log-sum-exp, max; over all tokens, or those that an index names; over
                 exponentials that are kept where scores stay but for terms of one side
    draw         random numbers, where an instruction reads them

`Uncovered` says what has no such form; then torch runs the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from weftc_runtime.errors import Uncovered
from weftc_runtime.format.program import Head, Program
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.machines.dataflow import Dataflow
from weftc_runtime.machines.head_code import HeadEncoder
from weftc_runtime.machines.head_task import HeadTask
from weftc_runtime.machines.native_code import (
    BLOCKED,
    DENSE,
    FUNCTIONS,
    IDENTITY,
    INDEX,
    KEPT_SOFT,
    KINDS,
    LAZY,
    MAKE_LAZY,
    MAP,
    MAP_WHEN_READ,
    NOISE,
    NOISES,
    SOFT,
    UNIFORM,
    VERSION,
    WRITE,
    Code,
    Encoded,
    Instruction,
    LazyWrite,
    Place,
    Row,
    SlotCode,
    StepGroup,
    tally,
)
from weftc_runtime.machines.slot_rows import SlotRows
from weftc_runtime.plan.instructions import AttendPlan, FFNPlan, HeadPlan, SlotWrite, SublayerPlan
from weftc_runtime.plan.prepared import Prepared
from weftc_runtime.plan.structure import table
from weftc_runtime.reference.feed_forward import NORMS


@dataclass(slots=True)
class _Group:
    """Lazy slots that heads with one score make."""

    head: Head
    score: Code
    slots: list[int] = field(default_factory=list)
    heads: list[Code] = field(default_factory=list)


class Encoder:
    """Writes the instructions of some steps; `calls` gives a head on one problem."""

    def __init__(
        self, program: Program, prepared: Prepared, single: bool, calls: Callable[[HeadPlan], HeadTask], part: StepGroup
    ) -> None:
        self.flow = Dataflow(program, prepared, part)
        self.rows = SlotRows(self.flow)
        self.heads = HeadEncoder(self.flow, self.rows, calls)
        self.single = single
        self.groups: list[_Group] = []
        self.lazies: list[LazyWrite] = []

    def encode(self) -> Encoded:
        """The instructions, or `Uncovered`."""
        fresh: set[Place] = set()  # derived slots that are up to date
        ends: list[int] = []
        block, path = self.flow.part.first, self.flow.part.path
        for sublayers, step in zip(self.flow.steps, self.flow.part.steps, strict=True):
            self._derive(sublayers, fresh)
            made: set[Place] = set()
            for at, sub in enumerate(sublayers):
                changed = self._attend(sub, f"{path}.{block + at}") if isinstance(sub, AttendPlan) else self._feed(sub)
                self.flow.check_order(sublayers[at + 1 :], changed)
                made |= changed
                ends.append(len(self.heads.instructions))
            block += len(step.sublayers)
            fresh -= {
                place for place, ffn in self.flow.derived.items() if place in made or self.flow.origins(ffn) & made
            }
        self._check_lazies()
        lasting = tuple(lazy for lazy in self.lazies if lazy.lasts)
        slots = tuple(self._slots())
        parts = self.flow.part, slots, tuple(self.heads.instructions), lasting, frozenset(self.flow.written)
        unrolled = self.flow.program.unrolled and not self.flow.part.alone
        layers = self.flow.program.layers if unrolled else 1
        if layers > 1 and (self.flow.program.noises or lasting):
            raise Uncovered(
                "every layer has weights of its own, and draws, or leaves rows to be made when they are read"
            )
        code = self._code(slots)
        numbers = np.array(code.whole, dtype=np.int64), np.array(code.real, dtype=np.float64)
        each = len(ends) // layers  # sub-layers
        counted = tally(parts[2], ends[each - 1 :: each] if each else [])
        return Encoded(*parts, tuple(ends), layers, *numbers, counted)

    def _check_lazies(self) -> None:
        """What the rows of lazy slots are made from, on their own side, must stay."""
        for place, number in self.rows.numbers.items():
            if number in self.rows.maps and self.flow.role(place) != "derived":
                raise Uncovered(f"slot {place[1]} is made when it is read, and lasts")
        for lazy in self.lazies:
            reads = self.flow.write_reads(lazy.attend, lazy.write) - {lazy.place}
            if lazy.lasts and any(self.flow.role(place) == "scratch" for place in reads):
                raise Uncovered(f"slot {lazy.write.slot} is made from what is gone when it is read")
            for index in lazy.write.heads if lazy.place in self.flow.needed else ():
                head = lazy.attend.heads[index].head
                read = {
                    (head.query, n) for n in self.flow.prepared.head(head).query.slots(self.flow.streams[head.query])
                }
                if any(self.flow.changes(place) for place in read):
                    raise Uncovered(f"slot {lazy.write.slot} is made from numbers that change")

    def _slots(self) -> list[SlotCode]:
        found = []
        for place in self.rows.places:
            kind, role = self.flow.kind(place), self.flow.role(place)
            single = self.single and role == "field" and kind != UNIFORM
            group, name = self.rows.lazy_of.get(place, 0), 0
            if kind == NOISE:
                group, name = NOISES.get(self.flow.noises[place].kind, 0), crc32(self.flow.noises[place].name.encode())
            found.append(SlotCode(place, kind, self.flow.width(place), single, role, group, name))
        return found

    def _derive(self, sublayers: tuple[SublayerPlan, ...], fresh: set[Place]) -> None:
        """Makes derived slots that a step reads."""
        wanted: set[Place] = set()
        for sub in sublayers:
            if isinstance(sub, FFNPlan):
                wanted |= set() if sub.dead else self.flow.origins(sub.ffn)
                continue
            for write in sub.slots:
                if (write.stream, write.slot) in self.flow.needed:
                    wanted |= self.flow.write_reads(sub, write)
        for place in [place for place in wanted if place in self.flow.derived]:
            wanted |= self.flow.origins(self.flow.derived[place])
        for stream in self.flow.program.streams:
            for ffn in stream.derived:  # in order of dependence
                places = {(stream.name, slot) for slot in ffn.writes}
                plan = self.flow.plan.derived[next(iter(places))]
                if places & wanted and not places <= fresh:
                    self._map(plan)
                    fresh |= places

    def _feed(self, plan: FFNPlan) -> set[Place]:
        places = set() if plan.dead else set(self.flow.targets(plan.ffn))
        if places & self.flow.needed:
            self._map(plan)
        return places

    def _map(self, plan: FFNPlan) -> None:
        ffn = plan.ffn
        stream, made, places = self.flow.streams[ffn.stream], self.flow.prepared.ffn(ffn), self.flow.targets(ffn)
        later = any(self.flow.kind(place) == LAZY for place in places)
        if later and (len(places) > 1 or ffn.function in NORMS or plan.form not in BLOCKED):
            raise Uncovered(f"slot {places[0][1]} is made in blocks")
        code = Code()
        once = all(self.flow.kind(place) == UNIFORM for place in places)
        code.add(MAP_WHEN_READ if later else MAP, self.flow.order[stream.name], once, FUNCTIONS[ffn.function])
        a = self.rows.of(stream.name, made.reads, "a")
        b = self.rows.of(stream.name, made.reads, "b") if ffn.b is not None else []
        code.rows(a)
        code.rows(b)
        carried = dict(zip(made.writes, self.rows.of(stream.name, made.reads, "carry"), strict=True))
        hidden = dict(zip(made.writes, table(made.weights["out"]).tolist(), strict=True))
        targets = [(place, column) for place in places for column in range(self.flow.width(place))]
        rows, outs = [], []
        for place, column in targets:
            at = stream.slot(place[1]).offset + column
            rows.append(carried[at] if at in carried else ((self.rows.numbers[place], column, 1.0),))
            outs.append([(h, factor) for h, factor in enumerate(hidden.get(at, ())) if factor])
        code.rows(rows)
        if later:
            self.rows.number_map(places[0], plan, {slot for row in (*a, *b, *rows) for slot, _, _ in row})
        else:
            self.rows.overwrite(places)
        for (place, column), out in zip(targets, outs, strict=True):
            code.add(self.rows.numbers[place], column, len(out))
            for number, factor in out:
                code.add(number)
                code.real.append(factor)
        names = ", ".join(f"{stream}.{slot}" for stream, slot in places)
        text = f"{names} := {ffn.function}{', in blocks when it is read' if later else ''}"
        self.heads.instructions.append(Instruction("map", text, code, streams=frozenset({stream.name})))

    def _attend(self, plan: AttendPlan, path: str) -> set[Place]:
        needed = [write for write in plan.slots if (write.stream, write.slot) in self.flow.needed or not write.heads]
        for write in needed:
            if self._is_lazy(write):
                self._lazy(plan, write)
            elif self._is_index(write):
                self.heads.choose(plan.heads[write.heads[0]], self.rows.own_numbers[write.stream, write.slot], -1, path)
        outs: dict[int, int] = {}  # where each head puts its result
        soft: dict[tuple[str, str, bool], list[int]] = {}  # with the same queries and keys
        kept: list[int] = []
        adding = [write for write in needed if not self._is_lazy(write) and not self._is_index(write)]
        for index in sorted({i for write in adding for i in write.heads}):
            outs[index] = self.heads.outs
            self.heads.outs += 1
            head = plan.heads[index]
            if head.kept and not self.flow.is_diagonal(head):
                kept.append(index)
            elif head.strategy == "stream":
                soft.setdefault((head.head.query, head.head.keys, head.uniform_query), []).append(index)
            else:
                self.heads.head(head, outs[index], path)
        for same in soft.values():
            code = Code()
            code.add(SOFT, len(same))
            for index in same:
                code.join(self.heads.soft_head(plan.heads[index], outs[index]))
            self._note_soft([plan.heads[index].head for index in same], code)
        if kept:
            code = Code()
            code.add(KEPT_SOFT, len(kept))
            for index in kept:
                code.join(self.heads.kept_head(plan.heads[index], outs[index]))
            self._note_soft([plan.heads[index].head for index in kept], code, ", exponentials kept")
        if needed:
            code = Code()
            code.add(WRITE, len(needed))
            for write in needed:
                self._write(plan, write, outs, code)
            text = ", ".join(f"{write.stream}.{write.slot}" for write in needed)
            text, streams = f"{text} := what is carried, plus what heads add", {write.stream for write in needed}
            self.heads.instructions.append(Instruction("map", text, code, streams=frozenset(streams)))
        changed = {(write.stream, write.slot) for write in plan.slots}
        self.rows.overwrite(changed)
        made = [write for write in plan.slots if self._is_lazy(write)]
        self.lazies = [
            *(LazyWrite(lazy.attend, lazy.write, lazy.later | changed) for lazy in self.lazies),
            *(LazyWrite(plan, write, frozenset(changed - {(write.stream, write.slot)})) for write in made),
        ]
        return changed

    def _note_soft(self, heads: list[Head], code: Code, how: str = "") -> None:
        text = ", ".join(f"{head.name}: {head.weighting.kind} of {head.keys}{how}" for head in heads)
        streams, keys = frozenset(head.query for head in heads), heads[0].keys
        self.heads.instructions.append(Instruction("soft", text, code, streams=streams, keys=keys, adds=not how))

    def _is_lazy(self, write: SlotWrite) -> bool:
        """Whether rows are made when they are read. Scratch that holds numbers at other times holds them always."""
        return bool(write.heads) and write.form == "deferred" and self.flow.kind((write.stream, write.slot)) == LAZY

    def _is_index(self, write: SlotWrite) -> bool:
        """Whether what is written is one token of another set for each."""
        return bool(write.heads) and write.form == "sparse" and self.flow.kind((write.stream, write.slot)) == INDEX

    def _write(self, plan: AttendPlan, write: SlotWrite, outs: Mapping[int, int], code: Code) -> None:
        place = (write.stream, write.slot)
        slot = self.flow.streams[write.stream].slot(write.slot)
        code.add(self.rows.own_numbers[place])
        if self._is_lazy(write) or self._is_index(write):
            code.add(2)
            return
        if not write.heads and write.carry == "clear":
            code.add(1)
            return
        if self.flow.kind(place) not in (DENSE, UNIFORM):
            raise Uncovered(f"slot {write.slot} of {write.stream} is held in two ways")
        code.add(0, self.flow.kind(place) == UNIFORM, write.carry != "clear")
        if write.carry == "keep":
            code.rows(((self.rows.numbers[place], column, 1.0),) for column in range(slot.width))
        elif write.carry == "mix":
            code.rows(self.rows.of(write.stream, self.flow.carry(plan, write), "carry"))
        code.add(len(write.heads))
        for index in write.heads:
            writes = self.flow.prepared.head(plan.heads[index].head).writes
            where = {column: at for at, column in enumerate(writes)}
            code.add(outs[index], len(writes), slot.width)
            code.add(*(where.get(slot.offset + column, -1) for column in range(slot.width)))

    def _lazy(self, plan: AttendPlan, write: SlotWrite) -> None:
        """Notes what the rows of a slot are made from when they are read."""
        place, first = (write.stream, write.slot), plan.heads[write.heads[0]]
        if write.carry == "mix" or place in self.rows.lazy_of:
            raise Uncovered(f"slot {write.slot} adds to what it holds")
        group = self._group(plan, first, write)
        self.rows.lazy_of[place] = group
        made = self.groups[group]
        made.slots.append(self.rows.own_numbers[place])
        slot = self.flow.streams[write.stream].slot(write.slot)
        columns = range(slot.offset, slot.offset + slot.width)
        for index in write.heads:
            head, kind = plan.heads[index].head, plan.heads[index].head.weighting.kind
            if plan.heads[index].score_group != first.score_group or head.self_key is not None or kind not in KINDS:
                raise Uncovered(f"slot {write.slot} is made by several scores")
            narrow, code = self.flow.prepared.head(head), Code()
            code.add(KINDS[kind], self.rows.own_numbers[place])
            if kind in NUMBER_HEADS:
                factors = dict(zip(narrow.writes, table(narrow.weights["value"])[:, 0].tolist(), strict=True))
                code.add(-1, slot.width)
                code.real.extend(factors.get(column, 0.0) for column in columns)
                code.rows([])
            else:
                rows = dict(zip(narrow.writes, self.rows.values(head, narrow), strict=True))
                listed = [rows.get(column, ()) for column in columns]
                names = self._names(head, listed)
                code.add(names, 0)
                code.rows([] if names >= 0 else listed, exact=False)
            made.heads.append(code)

    def _group(self, plan: AttendPlan, first: HeadPlan, write: SlotWrite) -> int:
        shares = {id(head.head): head.score_group for head in plan.heads}
        for number, known in enumerate(self.groups):
            if shares.get(id(known.head)) == first.score_group:
                return number
        score, _, _, noise = self.rows.score(first.head, self.flow.prepared.head(first.head))
        self.heads.check_lead(first.head)
        if noise:
            raise Uncovered("random numbers are weighed")
        self.groups.append(_Group(first.head, score))
        code = Code()
        code.add(MAKE_LAZY, len(self.groups) - 1)
        text = (
            f"{write.stream}.{write.slot}: {first.head.weighting.kind} of {first.head.keys}, in blocks when it is read"
        )
        streams, keys = frozenset({first.head.query}), first.head.keys
        self.heads.instructions.append(Instruction("soft", text, code, streams=streams, keys=keys))
        return len(self.groups) - 1

    def _names(self, head: Head, rows: list[Row]) -> int:
        """Where the one-hot names of the keys stand among the columns, if these are the values; or -1."""
        filled = [at for at, row in enumerate(rows) if row]
        if len(filled) != self.flow.streams[head.keys].size or filled != list(
            range(filled[0], filled[0] + len(filled))
        ):
            return -1
        for number, at in enumerate(filled):
            (slot, column, factor), *rest = rows[at]
            if rest or (column, factor) != (number, 1.0) or self.flow.kind(self.rows.places[slot]) != IDENTITY:
                return -1
        return filled[0]

    def _code(self, slots: tuple[SlotCode, ...]) -> Code:
        code = Code()
        code.add(VERSION, len(self.flow.order), len(slots))
        for slot in slots:
            code.add(slot.kind, self.flow.order[slot.place[0]], slot.width, slot.single, slot.role == "field")
            code.add(slot.group, slot.name)
        code.add(len(self.groups))
        for group in self.groups:
            code.add(self.flow.order[group.head.query], self.flow.order[group.head.keys])
            code.join(group.score)
            code.add(len(group.slots), *group.slots, len(group.heads))
            for head in group.heads:
                code.join(head)
        code.add(self.heads.outs, self.heads.rankings, 0, len(self.heads.instructions))
        for instruction in self.heads.instructions:
            code.join(instruction.code)
        return code
