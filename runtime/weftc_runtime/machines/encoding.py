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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import frexp
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch

from weftc_runtime.errors import Uncovered
from weftc_runtime.format.program import FFN, Head, Program, ProgramStep, Stream
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.machines.head_task import HeadTask, classes
from weftc_runtime.machines.heads_segment import classes_of, grouping_of
from weftc_runtime.plan.instructions import AttendPlan, FFNPlan, HeadPlan, SlotWrite, SublayerPlan
from weftc_runtime.plan.narrow import NarrowHead, NarrowMatrices
from weftc_runtime.plan.prepared import Prepared
from weftc_runtime.plan.structure import copies, table
from weftc_runtime.reference.feed_forward import NORMS

VERSION = 1  # CODE_VERSION of machine.cpp
DENSE, UNIFORM, INDEX, LAZY, NOISE, IDENTITY = range(6)
MAP, WRITE, CHOOSE, GATHER, RANK, SOFT, MAKE_LAZY, MEMBER_SOFT, MAP_WHEN_READ, OWN, KEPT_SOFT = range(1, 12)
BLOCKED = ("sparse", "deferred")  # forms of what a feed-forward makes when it is read
RANKED = ("top", "normmax", "sparsemax")
KINDS = {"softmax": 0, "exp": 1, "sum": 2, "normalize": 3, "lse": 4, "max": 5}
NAMES = "product reciprocal log exp sqrt relu relu2 tanh copy unit layer abs select sigmoid softplus"
FUNCTIONS = {name: number for number, name in enumerate(NAMES.split())}
NOISES = {"gumbel": 1, "uniform": 2}
FORMS = {"uniform": UNIFORM, "sparse": INDEX, "deferred": LAZY}
Place = tuple[str, str]  # stream and slot
Row = tuple[tuple[int, int, float], ...]  # slot, column, coefficient


@dataclass(slots=True)
class Code:
    """What is written so far."""

    whole: list[int] = field(default_factory=list)
    real: list[float] = field(default_factory=list)

    def add(self, *numbers: int) -> None:
        self.whole.extend(map(int, numbers))

    def rows(self, rows: Iterable[Row], exact: bool = True) -> None:
        """Rows of a matrix; `exact`: sums are rounded once."""
        every = list(rows)
        self.add(len(every), exact)
        for row in every:
            self.add(len(row))
            for slot, column, factor in row:
                self.add(slot, column)
                self.real.append(factor)

    def join(self, other: Code) -> None:
        self.whole += other.whole
        self.real += other.real


@dataclass(frozen=True, slots=True)
class SlotCode:
    """A slot as the machine holds it."""

    place: Place
    kind: int
    width: int
    single: bool  # in float32
    role: str
    group: int  # lazy: of the heads that make it; noise: its kind
    name: int  # noise: the number of its name


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, and the head it stands for."""

    name: str
    text: str
    code: Code
    head: HeadPlan | None = None
    path: str = ""  # of the head in reports


@dataclass(frozen=True, slots=True)
class LazyWrite:
    """A slot whose rows are made when they are read, and the slots that are written after it or with it."""

    attend: AttendPlan
    write: SlotWrite
    later: frozenset[Place]

    @property
    def place(self) -> Place:
        return self.write.stream, self.write.slot

    @property
    def lasts(self) -> bool:
        """Whether the slot holds this at the end of the layer."""
        return self.place not in self.later


@dataclass(frozen=True, slots=True)
class StepGroup:
    """The steps that instructions are for: all of a layer, or one of those around the layers or of them."""

    steps: tuple[ProgramStep, ...]
    path: str = "blocks"
    first: int = 0  # the number of its first sub-layer there
    alone: bool = False  # one step: all that it writes counts, not only what lasts


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """The instructions of some steps."""

    part: StepGroup
    slots: tuple[SlotCode, ...]
    instructions: tuple[Instruction, ...]
    lazies: tuple[LazyWrite, ...]
    written: frozenset[Place]
    ends: tuple[int, ...]  # of every sub-layer: how many instructions there are up to here
    layers: int  # whose instructions these are: of one, or, where each has weights of its own, of all
    whole: npt.NDArray[np.int64]  # what the machine reads: see `Code`
    real: npt.NDArray[np.float64]
    chooses: npt.NDArray[np.bool_]  # by instruction
    told: npt.NDArray[np.bool_]  # by instruction: whether reports count its rows

    def __str__(self) -> str:
        return "\n".join(f"{each.name:<10} {each.text}" for each in self.instructions)


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
        self.program, self.prepared, self.plan, self.single, self.calls = (
            program,
            prepared,
            prepared.plan,
            single,
            calls,
        )
        self.streams = {stream.name: stream for stream in program.streams}
        self.order = {stream.name: number for number, stream in enumerate(program.streams)}
        self.embedded = {(embed.stream, embed.slot): embed for embed in program.embedding}
        self.noises = {(item.stream, item.slot): item for item in program.noises}
        self.derived = {(s.name, slot): ffn for s in program.streams for ffn in s.derived for slot in ffn.writes}
        self.places = [(stream.name, slot.name) for stream in program.streams for slot in stream.slots]
        self.own_numbers = {place: number for number, place in enumerate(self.places)}
        self.numbers = dict(self.own_numbers)  # where to read slots now: maps made when read have numbers of their own
        self.part = part
        planned = {id(step): self.plan.steps[path] for path, step in program.places()}
        self.steps = [planned[id(step)] for step in part.steps]
        self.written = self._written()
        self.needed = self._needed()
        self.blocked = self._blocked()
        self.maps: dict[int, FFNPlan] = {}  # by number: slots that are made when they are read
        self.origins: dict[int, set[int]] = {}  # of these: the slots they are made from, through others of them
        self.stale: set[int] = set()  # of these: made from what is gone
        self.groups: list[_Group] = []
        self.lazy_of: dict[Place, int] = {}
        self.outs = self.rankings = 0
        self.instructions: list[Instruction] = []
        self.lazies: list[LazyWrite] = []

    def encode(self) -> Encoded:
        """The instructions, or `Uncovered`."""
        fresh: set[Place] = set()  # derived slots that are up to date
        ends: list[int] = []
        block, path = self.part.first, self.part.path
        for sublayers, step in zip(self.steps, self.part.steps, strict=True):
            self._derive(sublayers, fresh)
            made: set[Place] = set()
            for at, sub in enumerate(sublayers):
                changed = self._attend(sub, f"{path}.{block + at}") if isinstance(sub, AttendPlan) else self._feed(sub)
                self._check_order(sublayers[at + 1 :], changed)
                made |= changed
                ends.append(len(self.instructions))
            block += len(step.sublayers)
            fresh -= {place for place, ffn in self.derived.items() if place in made or self._origins(ffn) & made}
        self._check_lazies()
        lasting = tuple(lazy for lazy in self.lazies if lazy.lasts)
        slots = tuple(self._slots())
        parts = self.part, slots, tuple(self.instructions), lasting, frozenset(self.written)
        unrolled = self.program.options.get("weights") == "unrolled" and not self.part.alone
        layers = self.program.layers if unrolled else 1
        if layers > 1 and (self.program.noises or lasting):
            raise Uncovered(
                "every layer has weights of its own, and draws, or leaves rows to be made when they are read"
            )
        code = self._code(slots)
        numbers = np.array(code.whole, dtype=np.int64), np.array(code.real, dtype=np.float64)
        chooses, told = [each.name == "choose" for each in parts[2]], [each.path != "" for each in parts[2]]
        return Encoded(
            *parts,
            tuple(ends),
            layers,
            *numbers,
            np.array(chooses, dtype=bool),
            np.array(told, dtype=bool),
        )

    # ------------------------------------------------------------------ what is read and written
    def _subs(self) -> list[SublayerPlan]:
        return [sub for sublayers in self.steps for sub in sublayers if not (isinstance(sub, FFNPlan) and sub.dead)]

    def _written(self) -> list[Place]:
        """Slots that a layer writes, but for derived ones."""
        found: dict[Place, None] = {}
        for sub in self._subs():
            if isinstance(sub, AttendPlan):
                found.update(((write.stream, write.slot), None) for write in sub.slots)
            else:
                found.update((place, None) for place in self._targets(sub.ffn) if self._role(place) != "derived")
        return list(found)

    def _blocked(self) -> set[Place]:
        """Slots that feed-forwards make when they are read."""
        feeds = [sub for sub in self._subs() if isinstance(sub, FFNPlan)] + list(self.plan.derived.values())
        return {place for plan in feeds if plan.form in BLOCKED for place in self._targets(plan.ffn)}

    def _role(self, place: Place) -> str:
        return self.streams[place[0]].slot(place[1]).role

    def _targets(self, ffn: FFN) -> list[Place]:
        """The slots that a feed-forward writes."""
        columns = set(self.prepared.ffn(ffn).writes)
        slots = self.streams[ffn.stream].slots
        return [(ffn.stream, s.name) for s in slots if columns & set(range(s.offset, s.offset + s.width))]

    def _sources(self, ffn: FFN) -> set[Place]:
        return {(ffn.stream, name) for name in self.prepared.ffn(ffn).reads.slots(self.streams[ffn.stream])}

    def _origins(self, ffn: FFN) -> set[Place]:
        """The sources of a feed-forward, through derived slots."""
        found = self._sources(ffn)
        for place in list(found):
            if place in self.derived and self.derived[place] is not ffn:
                found |= self._origins(self.derived[place])
        return found

    def _head_reads(self, plan: HeadPlan) -> set[Place]:
        head, narrow = plan.head, self.prepared.head(plan.head)
        sides = ((head.query, (narrow.query, narrow.own)), (head.keys, (narrow.keys, narrow.value)))
        return {(name, slot) for name, read in sides for one in read for slot in one.slots(self.streams[name])}

    def _carry_reads(self, attend: AttendPlan, write: SlotWrite) -> set[Place]:
        if write.carry != "mix":
            return {(write.stream, write.slot)} if write.carry == "keep" else set()
        narrow = self._carry(attend, write)
        return {(write.stream, name) for name in narrow.slots(self.streams[write.stream])}

    def _carry(self, attend: AttendPlan, write: SlotWrite) -> NarrowMatrices:
        columns = self.streams[write.stream].slot(write.slot).columns
        return self.prepared.carry(attend.attend.carry[write.stream], write.slot, columns)[0]

    def _write_reads(self, attend: AttendPlan, write: SlotWrite) -> set[Place]:
        return self._carry_reads(attend, write).union(*(self._head_reads(attend.heads[i]) for i in write.heads))

    def _needed(self) -> set[Place]:
        """Fields that the next layer, or an answer, may read, and all that they are made from."""
        lasting = [p for p in self.written if self.part.alone or self._role(p) == "field"]
        found = {place for place in lasting if self.plan.forms[place] != "deferred"}
        while True:
            before = len(found)
            for place in [place for place in found if place in self.derived]:
                found |= self._sources(self.derived[place])
            for sub in self._subs():
                if isinstance(sub, FFNPlan):
                    found |= self._sources(sub.ffn) if found & set(self._targets(sub.ffn)) else set()
                    continue
                for write in sub.slots:
                    if (write.stream, write.slot) in found:
                        found |= self._write_reads(sub, write)
            if len(found) == before:
                return found

    def _check_order(self, later: tuple[SublayerPlan, ...], changed: set[Place]) -> None:
        """Fields are rounded when they are written here, not when the step ends: nothing may read them before."""
        fields = {place for place in changed if self._role(place) == "field"}
        for sub in later:
            if isinstance(sub, FFNPlan):
                read = set() if sub.dead else self._sources(sub.ffn)
            else:
                read = set[Place]().union(*(self._write_reads(sub, write) for write in sub.slots))
            if read & fields:
                raise Uncovered("a field is read in the step that sets it")

    def _check_lazies(self) -> None:
        """What the rows of lazy slots are made from, on their own side, must stay."""
        for place, number in self.numbers.items():
            if number in self.maps and self._role(place) != "derived":
                raise Uncovered(f"slot {place[1]} is made when it is read, and lasts")
        for lazy in self.lazies:
            reads = self._write_reads(lazy.attend, lazy.write) - {lazy.place}
            if lazy.lasts and any(self._role(place) == "scratch" for place in reads):
                raise Uncovered(f"slot {lazy.write.slot} is made from what is gone when it is read")
            for index in lazy.write.heads if lazy.place in self.needed else ():
                head = lazy.attend.heads[index].head
                read = {(head.query, n) for n in self.prepared.head(head).query.slots(self.streams[head.query])}
                if any(self._changes(place) for place in read):
                    raise Uncovered(f"slot {lazy.write.slot} is made from numbers that change")

    def _changes(self, place: Place) -> bool:
        """Whether a slot may hold something else after a layer; a derived one is made anew then."""
        made = self.derived.get(place)
        origins = {place} if made is None else self._origins(made) | {place}
        return any(each in self.written or self._kind(each) == NOISE for each in origins)

    # ------------------------------------------------------------------ slots and rows
    def _kind(self, place: Place) -> int:
        embed = self.embedded.get(place)
        if embed is not None and embed.kind == "noise":
            return NOISE
        if embed is not None and embed.kind == "identity" and place not in self.written:
            return IDENTITY
        if place in self.blocked and self.plan.forms[place] in BLOCKED:
            return LAZY
        return FORMS.get(self.plan.forms[place], DENSE)

    def _slots(self) -> list[SlotCode]:
        found = []
        for place in self.places:
            kind, role = self._kind(place), self._role(place)
            single = self.single and role == "field" and kind != UNIFORM
            group, name = self.lazy_of.get(place, 0), 0
            if kind == NOISE:
                group, name = NOISES.get(self.noises[place].kind, 0), crc32(self.noises[place].name.encode())
            found.append(SlotCode(place, kind, self._width(place), single, role, group, name))
        return found

    def _width(self, place: Place) -> int:
        return self.streams[place[0]].slot(place[1]).width

    def _row(self, stream: Stream, columns: Iterable[int], row: Iterable[float]) -> Row:
        owner = {c: s for s in stream.slots for c in range(s.offset, s.offset + s.width)}
        return tuple(
            (self.numbers[stream.name, owner[c].name], c - owner[c].offset, value)
            for c, value in zip(columns, row, strict=True)
            if value
        )

    def _rows(self, stream: str, narrow: NarrowMatrices, name: str, bounded: bool = False) -> list[Row]:
        """The rows of a matrix of a lens over the slots of a stream; `bounded`: drawn numbers may be off a little."""
        rows = [self._row(self.streams[stream], narrow.columns, row) for row in narrow.matrices[name].tolist()]
        return self._readable(rows, bounded)

    def _readable(self, rows: list[Row], bounded: bool = False) -> list[Row]:
        if self._noise(rows) - ({"gumbel", "uniform"} if bounded else {"uniform"}):
            raise Uncovered("random numbers are read as they are")  # native ones may differ in the last place
        for number in {slot for row in rows for slot, _, _ in row}:
            place = self.places[number]
            known = number not in self.stale if number in self.maps else place in self.lazy_of
            if self._kind(place) == LAZY and not known:
                raise Uncovered(f"slot {place[1]} of {place[0]} is made in blocks")
        return rows

    def _read(self, rows: Iterable[Row]) -> set[Place]:
        return {self.places[slot] for row in rows for slot, _, _ in row}

    def _noise(self, rows: Iterable[Row]) -> set[str]:
        """The kinds of noise that rows read."""
        return {self.noises[place].kind for place in self._read(rows) if self._kind(place) == NOISE}

    def _nothing(self, narrow: NarrowHead) -> list[Row]:
        return [()] * len(narrow.writes)

    def _values(self, head: Head, narrow: NarrowHead) -> list[Row]:
        return self._rows(head.keys, narrow.value, "value") if narrow.value.matrices else self._nothing(narrow)

    def _own(self, head: Head, narrow: NarrowHead) -> list[Row]:
        return self._rows(head.query, narrow.own, "own.value") if narrow.own.matrices else self._nothing(narrow)

    # ------------------------------------------------------------------ maps
    def _derive(self, sublayers: tuple[SublayerPlan, ...], fresh: set[Place]) -> None:
        """Makes derived slots that a step reads."""
        wanted: set[Place] = set()
        for sub in sublayers:
            if isinstance(sub, FFNPlan):
                wanted |= set() if sub.dead else self._origins(sub.ffn)
                continue
            for write in sub.slots:
                if (write.stream, write.slot) in self.needed:
                    wanted |= self._write_reads(sub, write)
        for place in [place for place in wanted if place in self.derived]:
            wanted |= self._origins(self.derived[place])
        for stream in self.program.streams:
            for ffn in stream.derived:  # in order of dependence
                places = {(stream.name, slot) for slot in ffn.writes}
                plan = self.plan.derived[next(iter(places))]
                if places & wanted and not places <= fresh:
                    self._map(plan)
                    fresh |= places

    def _feed(self, plan: FFNPlan) -> set[Place]:
        places = set() if plan.dead else set(self._targets(plan.ffn))
        if places & self.needed:
            self._map(plan)
        return places

    def _map(self, plan: FFNPlan) -> None:
        ffn = plan.ffn
        stream, made, places = self.streams[ffn.stream], self.prepared.ffn(ffn), self._targets(ffn)
        later = any(self._kind(place) == LAZY for place in places)
        if later and (len(places) > 1 or ffn.function in NORMS or plan.form not in BLOCKED):
            raise Uncovered(f"slot {places[0][1]} is made in blocks")
        code = Code()
        once = all(self._kind(place) == UNIFORM for place in places)
        code.add(MAP_WHEN_READ if later else MAP, self.order[stream.name], once, FUNCTIONS[ffn.function])
        a = self._rows(stream.name, made.reads, "a")
        b = self._rows(stream.name, made.reads, "b") if ffn.b is not None else []
        code.rows(a)
        code.rows(b)
        carried = dict(zip(made.writes, self._rows(stream.name, made.reads, "carry"), strict=True))
        hidden = dict(zip(made.writes, table(made.weights["out"]).tolist(), strict=True))
        targets = [(place, column) for place in places for column in range(self._width(place))]
        rows, outs = [], []
        for place, column in targets:
            at = stream.slot(place[1]).offset + column
            rows.append(carried[at] if at in carried else ((self.numbers[place], column, 1.0),))
            outs.append([(h, factor) for h, factor in enumerate(hidden.get(at, ())) if factor])
        code.rows(rows)
        if later:
            self._number_map(places[0], plan, {slot for row in (*a, *b, *rows) for slot, _, _ in row})
        else:
            self._overwrite(places)
        for (place, column), out in zip(targets, outs, strict=True):
            code.add(self.numbers[place], column, len(out))
            for number, factor in out:
                code.add(number)
                code.real.append(factor)
        names = ", ".join(f"{stream}.{slot}" for stream, slot in places)
        text = f"{names} := {ffn.function}{', in blocks when it is read' if later else ''}"
        self.instructions.append(Instruction("map", text, code))

    def _number_map(self, place: Place, plan: FFNPlan, read: set[int]) -> None:
        """Gives a slot that is made when it is read a number of its own: what it held may still be read by others."""
        number = self.numbers[place] = len(self.places)
        self.places.append(place)
        self.maps[number] = plan
        self.origins[number] = set[int]().union(*(self.origins.get(slot, {slot}) for slot in read))

    def _overwrite(self, places: Iterable[Place]) -> None:
        """Notes that slots are written: what others are made from when they are read is gone."""
        gone = {self.own_numbers[place] for place in places}
        self.numbers.update((place, self.own_numbers[place]) for place in places)
        self.stale |= {number for number, read in self.origins.items() if read & gone}

    # ------------------------------------------------------------------ attention
    def _attend(self, plan: AttendPlan, path: str) -> set[Place]:
        needed = [write for write in plan.slots if (write.stream, write.slot) in self.needed or not write.heads]
        for write in needed:
            if self._is_lazy(write):
                self._lazy(plan, write)
            elif self._is_index(write):
                self._choose(plan.heads[write.heads[0]], self.own_numbers[write.stream, write.slot], -1, path)
        outs: dict[int, int] = {}  # where each head puts its result
        soft: dict[tuple[str, str, bool], list[int]] = {}  # with the same queries and keys
        kept: list[int] = []
        adding = [write for write in needed if not self._is_lazy(write) and not self._is_index(write)]
        for index in sorted({i for write in adding for i in write.heads}):
            outs[index] = self.outs
            self.outs += 1
            head = plan.heads[index]
            if head.kept and not self._is_diagonal(head):
                kept.append(index)
            elif head.strategy == "stream":
                soft.setdefault((head.head.query, head.head.keys, head.uniform_query), []).append(index)
            else:
                self._head(head, outs[index], path)
        for same in soft.values():
            code = Code()
            code.add(SOFT, len(same))
            for index in same:
                code.join(self._soft_head(plan.heads[index], outs[index]))
            self._note_soft([plan.heads[index].head for index in same], code)
        if kept:
            code = Code()
            code.add(KEPT_SOFT, len(kept))
            for index in kept:
                code.join(self._kept_head(plan.heads[index], outs[index]))
            self._note_soft([plan.heads[index].head for index in kept], code, ", exponentials kept")
        if needed:
            code = Code()
            code.add(WRITE, len(needed))
            for write in needed:
                self._write(plan, write, outs, code)
            text = ", ".join(f"{write.stream}.{write.slot}" for write in needed)
            self.instructions.append(Instruction("map", f"{text} := what is carried, plus what heads add", code))
        changed = {(write.stream, write.slot) for write in plan.slots}
        self._overwrite(changed)
        made = [write for write in plan.slots if self._is_lazy(write)]
        self.lazies = [
            *(LazyWrite(lazy.attend, lazy.write, lazy.later | changed) for lazy in self.lazies),
            *(LazyWrite(plan, write, frozenset(changed - {(write.stream, write.slot)})) for write in made),
        ]
        return changed

    def _note_soft(self, heads: list[Head], code: Code, how: str = "") -> None:
        text = ", ".join(f"{head.name}: {head.weighting.kind} of {head.keys}{how}" for head in heads)
        self.instructions.append(Instruction("soft", text, code))

    def _is_lazy(self, write: SlotWrite) -> bool:
        """Whether rows are made when they are read. Scratch that holds numbers at other times holds them always."""
        return bool(write.heads) and write.form == "deferred" and self._kind((write.stream, write.slot)) == LAZY

    def _is_index(self, write: SlotWrite) -> bool:
        """Whether what is written is one token of another set for each."""
        return bool(write.heads) and write.form == "sparse" and self._kind((write.stream, write.slot)) == INDEX

    def _write(self, plan: AttendPlan, write: SlotWrite, outs: Mapping[int, int], code: Code) -> None:
        place = (write.stream, write.slot)
        slot = self.streams[write.stream].slot(write.slot)
        code.add(self.own_numbers[place])
        if self._is_lazy(write) or self._is_index(write):
            code.add(2)
            return
        if not write.heads and write.carry == "clear":
            code.add(1)
            return
        if self._kind(place) not in (DENSE, UNIFORM):
            raise Uncovered(f"slot {write.slot} of {write.stream} is held in two ways")
        code.add(0, self._kind(place) == UNIFORM, write.carry != "clear")
        if write.carry == "keep":
            code.rows(((self.numbers[place], column, 1.0),) for column in range(slot.width))
        elif write.carry == "mix":
            code.rows(self._rows(write.stream, self._carry(plan, write), "carry"))
        code.add(len(write.heads))
        for index in write.heads:
            writes = self.prepared.head(plan.heads[index].head).writes
            where = {column: at for at, column in enumerate(writes)}
            code.add(outs[index], len(writes), slot.width)
            code.add(*(where.get(slot.offset + column, -1) for column in range(slot.width)))

    # ------------------------------------------------------------------ scores
    def _score(
        self, head: Head, narrow: NarrowHead, only: Mapping[int, Sequence[int]] | None = None
    ) -> tuple[Code, bool, bool, set[str]]:
        """A score, whether its features are stored numbers, or known sums of such, and the noise that its keys hold.

        `only`: the parts, and the rows of them, that are asked for.
        """
        found, stored, bounded, noise = Code(), True, True, set[str]()
        parts = list(enumerate(narrow.head.score.parts))
        parts = parts if only is None else [(index, part) for index, part in parts if index in only]
        for index, part in parts:
            side = 0 if part.scale is None else 1 if part.scale[0] == "query" else 2
            found.add(part.kind == "l2", side)
            found.real.append(1.0 if part.coefficient is None else float(narrow.weights[part.coefficient]))
            q = self._rows(head.query, narrow.query, part.q)
            k = self._rows(head.keys, narrow.keys, part.k, bounded=True)
            if only is not None:
                q, k = ([rows[at] for at in only[index]] for rows in (q, k))
            scale: list[Row] = []
            found.rows(q)
            found.rows(k)
            if part.scale is not None:
                stream, own = (head.query, narrow.query) if side == 1 else (head.keys, narrow.keys)
                scale = self._rows(stream, own, part.scale[1])
                found.rows(scale)
            if self._noise([*q, *scale]) or (self._noise(k) and (side or part.kind == "l2")):
                raise Uncovered("random numbers are multiplied")
            noise |= self._noise(k)
            stored = stored and all(map(self._is_stored, (*q, *k, *scale)))
            loose = part.kind == "dot" and all(map(self._is_stored, (*q, *scale))) and all(map(self._is_data, k))
            bounded = bounded and (loose or all(map(self._is_stored, (*q, *k, *scale))))
        code = Code()
        code.add(len(parts), stored and not noise - {"uniform"})
        code.join(found)
        return code, stored, bounded, noise

    def _is_stored(self, row: Row) -> bool:
        """Whether a row is a stored number, up to a power of two."""
        short = all(abs(frexp(factor)[0]) == 0.5 and abs(factor) > 2.0**-200 for _, _, factor in row)
        return len(row) < 2 and short and self._is_data(row)

    def _is_data(self, row: Row) -> bool:
        """Whether a row reads what was stored before the step, and nothing that was made from it."""
        places = self._read([row])
        return not any(p in self.derived or self._kind(p) == LAZY or self._role(p) == "scratch" for p in places)

    # ------------------------------------------------------------------ heads that decide
    def _head(self, plan: HeadPlan, out: int, path: str) -> None:
        if plan.strategy == "segment":
            self._gather(plan, out, path)
        elif plan.strategy == "members":
            self._members(plan, out, path)
        elif plan.strategy == "self":  # tokens are distinct: conditions say so
            narrow, code = self.prepared.head(plan.head), Code()
            code.add(OWN, self.order[plan.head.query], out)
            code.rows(self._values(plan.head, narrow))
            text = f"{plan.head.name}: what the token itself adds"
            self.instructions.append(Instruction("map", text, code))
        elif plan.head.weighting.kind == "argmax":
            self._choose(plan, -1, out, path)
        elif plan.head.weighting.kind in RANKED and not plan.head.masks:
            everyone = Code()
            everyone.add(-1, 0, True)
            self._rank(plan, everyone, -1, out, path)
        else:
            raise Uncovered(f"head {plan.head.name} has no native form")

    def _note(self, name: str, plan: HeadPlan, code: Code, path: str) -> None:
        text = f"{plan.head.name}: {plan.head.weighting.kind}, {plan.why}"
        self.instructions.append(Instruction(name, text, code, plan, f"{path}.{plan.head.name}"))

    def _choose(self, plan: HeadPlan, slot: int, out: int, path: str) -> None:
        head, narrow = plan.head, self.prepared.head(plan.head)
        if head.weighting.ties != "first" or head.weighting.epsilon or head.masks or head.self_key is not None:
            raise Uncovered(f"head {head.name} may share a query among keys")
        if slot >= 0 and plan.uniform_query:
            raise Uncovered(f"head {head.name} has one query for all")
        score, stored, bounded, noise = self._score(head, narrow)
        few = plan.uniform_query or self.streams[head.query].size is not None  # keys are scanned for every query
        if not (stored or (bounded and few)) or noise - set(NOISES):
            raise Uncovered(f"head {head.name} compares computed numbers")
        code = Code()
        code.add(CHOOSE, self.order[head.query], self.order[head.keys], plan.uniform_query)
        code.add(self._is_searched(plan, narrow))
        code.add("gumbel" in noise, slot, out, len(narrow.writes))
        code.join(score)
        code.rows(self._values(head, narrow) if out >= 0 else [])
        self._note("choose", plan, code, path)

    def _is_searched(self, plan: HeadPlan, narrow: NarrowHead) -> bool:
        """Whether the certified search serves: many queries as they are stored, a distance or an inner product."""
        parts = narrow.head.score.parts
        if plan.strategy != "nearest" or plan.uniform_query or len(parts) != 1:
            return False
        rows = self._rows(plan.head.query, narrow.query, parts[0].q)
        if not rows or any(len(row) != 1 or row[0][2] != 1.0 for row in rows):
            return False
        slot, first, _ = rows[0][0]
        return self._kind(self.places[slot]) == DENSE and all(
            row[0][:2] == (slot, first + at) for at, row in enumerate(rows)
        )

    def _check_constant(self, plan: HeadPlan, scored: bool) -> None:
        """Refuses a head whose classes of keys depend on data, on either side; `scored`: by masks and scores."""
        head = self.prepared.head(plan.head)
        for narrow, called in ((head.query, plan.head.query), (head.keys, plan.head.keys)):
            stream = self.streams[called]
            counts = ("mask", "score", "self.row") if scored else ("mask",)
            read = {name: matrix for name, matrix in narrow.matrices.items() if name.startswith(counts)}
            for name in NarrowMatrices(narrow.columns, read).slots(stream):
                embed = self.embedded.get((called, name))
                constant = embed is not None and embed.kind in ("one", "identity")
                if (not constant or (called, name) in self.written) and (narrow is head.query or name != plan.index):
                    raise Uncovered(f"head {plan.head.name} counts keys by numbers that may change")

    def _gather(self, plan: HeadPlan, out: int, path: str) -> None:
        head, narrow = plan.head, self.prepared.head(plan.head)
        self._check_constant(plan, scored=True)
        call = self.calls(plan)
        found = classes_of(call)
        assert found.scores is not None
        grouping = grouping_of(call, found.eligible, found.scores)
        index, weight = plan.index, list[Row]()
        number = self.numbers.get((head.keys, index), -1)
        made = self.maps.get(number)
        if number in self.stale:
            raise Uncovered(f"head {head.name} counts keys by what is gone")
        if made is not None:  # an index times a number of every token
            if not made.number or not made.index or not grouping.ones:
                raise Uncovered(f"head {head.name} has weights of its own")
            stream, index = self.streams[head.keys], made.index
            numbers = table(self.prepared.tensors[made.number])[0].tolist()
            weight = self._readable([self._row(stream, range(stream.width), numbers)])
        if index and self._kind((head.keys, index)) != INDEX:
            raise Uncovered(f"head {head.name} counts keys by what is no index")
        code = self._gather_start(plan, narrow, out, head.weighting.kind != "sum", bool(head.masks))
        code.add(-1, self.numbers[head.keys, index] if index else -1, len(grouping.label) - 1, grouping.same)
        code.add(*(() if grouping.same else grouping.label.tolist()), not grouping.ones)
        code.real.extend(() if grouping.ones else grouping.number.tolist())
        code.rows(weight)
        code.rows(self._values(head, narrow))
        code.rows(self._own(head, narrow) if head.self_key is not None else [])
        self._note("gather_sum", plan, code, path)

    def _gather_start(self, plan: HeadPlan, narrow: NarrowHead, out: int, divide: bool, masked: bool) -> Code:
        code, head = Code(), plan.head
        code.add(GATHER, self.order[head.query], self.order[head.keys], len(narrow.writes), out)
        code.add(plan.uniform_query, divide, masked, head.self_key is not None)
        return code

    def _members(self, plan: HeadPlan, out: int, path: str) -> None:
        head, narrow, kind = plan.head, self.prepared.head(plan.head), plan.head.weighting.kind
        if self._kind((head.keys, plan.index)) != INDEX or (head.keys, plan.index) in self.derived:
            raise Uncovered(f"head {head.name} looks at members of what is no index")
        self._check_constant(plan, scored=False)
        eligible = classes(self.calls(plan), scored=False).eligible
        if bool(eligible[:, -1].any()) or bool((eligible.sum(0) > 1).any()):
            raise Uncovered("a key counts for several queries, or without an index")
        members = Code()
        members.add(self.numbers[head.keys, plan.index], eligible.shape[1] - 1)
        same = torch.equal(eligible[:, :-1], torch.eye(len(eligible), eligible.shape[1] - 1, dtype=torch.bool))
        members.add(same)
        if not same:
            members.add(len(eligible))
            for row in eligible:
                listed = row.nonzero()[:, 0].tolist()
                members.add(len(listed), *listed)
        code = Code()
        if kind in KINDS:
            code.add(MEMBER_SOFT)
            code.join(members)
            code.join(self._soft_head(plan, out))
            self._note("soft", plan, code, path)
            return
        sparse = kind == "sparsemax"
        ranking = -1 if sparse else self.rankings
        self._rank(plan, members, ranking, out if sparse else -1, path)
        if not sparse:
            self.rankings += 1
            code = self._gather_start(plan, narrow, out, True, False)
            code.add(ranking, -1, 0, True, False)
            code.rows([])
            code.rows(self._values(head, narrow))
            code.rows(self._own(head, narrow) if head.self_key is not None else [])
            self.instructions.append(Instruction("gather_sum", f"{head.name}: means of those", code))

    def _rank(self, plan: HeadPlan, members: Code, ranking: int, out: int, path: str) -> None:
        """Ranks members of an index, or all keys: to a ranking, or the mean of the values of the best to `out`."""
        head, narrow = plan.head, self.prepared.head(plan.head)
        score, stored, _, noise = self._score(head, narrow)
        if noise or not stored or (head.self_key is not None and head.self_key.row is not None):
            raise Uncovered(f"head {head.name} ranks computed numbers, or a key of its own")
        number, above, below = self._ranking(head)
        code = Code()
        code.add(RANK)
        code.join(members)
        code.add(self.order[head.query], self.order[head.keys], number, plan.uniform_query)
        code.add(ranking, out, len(narrow.writes), head.self_key is not None, above, below)
        code.join(score)
        code.rows(self._values(head, narrow))
        code.rows(self._own(head, narrow))
        self._note("rank", plan, code, path)

    @staticmethod
    def _ranking(head: Head) -> tuple[int, int, int]:
        """Which ranking, and its number as a fraction."""
        weighting = head.weighting
        if weighting.kind == "sparsemax":
            return 3, 1, 1
        if weighting.count is not None:
            return 0, weighting.count, 1
        normmax = weighting.kind == "normmax"
        share = Fraction((weighting.gamma if normmax else weighting.percent) or 0) / (1 if normmax else 100)
        if max(share.numerator, share.denominator) >= 1 << 62:
            raise Uncovered("a share has too many digits")
        return 2 if normmax else 1, share.numerator, share.denominator

    # ------------------------------------------------------------------ soft heads
    def _soft_head(self, plan: HeadPlan, out: int) -> Code:
        head, narrow, kind = plan.head, self.prepared.head(plan.head), plan.head.weighting.kind
        self._check_lead(head)
        own = 0 if head.self_key is None else 1 if head.self_key.row is None else 2
        code = Code()
        code.add(self.order[head.query], self.order[head.keys], KINDS[kind], len(narrow.writes), out)
        code.add(plan.uniform_query, False, self._is_diagonal(plan), own)
        score, _, _, noise = self._score(head, narrow)
        if noise - {"uniform"}:
            raise Uncovered("random numbers are weighed")
        code.join(score)
        if kind in NUMBER_HEADS:
            code.real.extend(table(narrow.weights["value"])[:, 0].tolist())
        else:
            code.rows(self._values(head, narrow), exact=False)
        if own == 2:
            code.rows(self._rows(head.query, narrow.query, "self.row"), exact=False)
        if own:
            code.rows(self._own(head, narrow), exact=False)
        return code

    def _kept_head(self, plan: HeadPlan, out: int) -> Code:
        """A head as any other, then what of its score stays, and the terms of each side alone."""
        head, narrow, kept = plan.head, self.prepared.head(plan.head), dict(plan.kept)
        own, other = (
            list[tuple[Row, Row]](),
            list[tuple[Row, Row]](),
        )  # what varies, and what is the same for all tokens
        for index, part in enumerate(narrow.head.score.parts):
            q, k = self._rows(head.query, narrow.query, part.q), self._rows(head.keys, narrow.keys, part.k)
            for at in set(range(len(q))).difference(kept.get(index, ())):
                (other if self._is_same(q[at]) else own).append(
                    (k[at], q[at]) if self._is_same(q[at]) else (q[at], k[at])
                )
        values = [] if head.weighting.kind in NUMBER_HEADS else self._values(head, narrow)
        code = self._soft_head(plan, out)
        code.add(plan.cost_group, plan.transposed, all(map(self._is_same, values)))
        code.join(self._score(head, narrow, kept)[0])
        for terms in (own, other):
            code.rows([varies for varies, _ in terms], exact=False)
            code.rows([same for _, same in terms], exact=False)
        return code

    def _is_same(self, row: Row) -> bool:
        """Whether a row gives the same number for all tokens."""
        return all(self._kind(place) == UNIFORM or self.plan.forms[place] == "zero" for place in self._read([row]))

    @staticmethod
    def _check_lead(head: Head) -> None:
        if head.weighting.sharpness is not None:
            raise Uncovered(f"the lead of head {head.name}, at finite temperature, is measured")

    def _is_diagonal(self, plan: HeadPlan) -> bool:
        """Whether of what token j gets only column j of one slot is ever read: all readers multiply by its name."""
        head, narrow = plan.head, self.prepared.head(plan.head)
        stream = self.streams[head.query]
        slot = next((s for s in stream.slots if tuple(range(s.offset, s.offset + s.width)) == narrow.writes), None)
        if slot is None or slot.role != "scratch" or slot.width < 2 or plan.uniform_query or head.self_key is not None:
            return False
        place, found = (stream.name, slot.name), False
        if any(place in self._sources(ffn) for ffn in self.derived.values()):
            return False
        for sub in self._subs():
            if isinstance(sub, AttendPlan):
                carried = [w for w in sub.slots if place in self._carry_reads(sub, w) and (w.stream, w.slot) != place]
                if carried or any(place in self._head_reads(other) for other in sub.heads):
                    return False
            elif place in self._sources(sub.ffn):
                found = True
                if not self._picks_own(sub.ffn, slot.name, stream):
                    return False
        return found

    def _picks_own(self, ffn: FFN, slot: str, stream: Stream) -> bool:
        """Whether a feed-forward multiplies a slot by the names of the tokens, and reads it nowhere else."""
        if ffn.function != "product" or ffn.b is None:
            return False
        sides = [copies(self.prepared.tensors[name], stream) for name in (ffn.a, ffn.b)]
        names = [side[0] for side in sides if side is not None]
        if len(names) != 2 or slot not in names or names[0] == names[1]:
            return False
        other = names[1 - names.index(slot)]
        carry = NarrowMatrices.of({"carry": self.prepared.tensors[ffn.carry]})
        kept = self.prepared.ffn(ffn).reads.matrices["carry"]
        rows = NarrowMatrices(self.prepared.ffn(ffn).reads.columns, {"carry": kept})
        return self._kind((stream.name, other)) == IDENTITY and slot not in rows.slots(stream) and bool(carry.columns)

    def _lazy(self, plan: AttendPlan, write: SlotWrite) -> None:
        """Notes what the rows of a slot are made from when they are read."""
        place, first = (write.stream, write.slot), plan.heads[write.heads[0]]
        if write.carry == "mix" or place in self.lazy_of:
            raise Uncovered(f"slot {write.slot} adds to what it holds")
        group = self._group(plan, first, write)
        self.lazy_of[place] = group
        made = self.groups[group]
        made.slots.append(self.own_numbers[place])
        slot = self.streams[write.stream].slot(write.slot)
        columns = range(slot.offset, slot.offset + slot.width)
        for index in write.heads:
            head, kind = plan.heads[index].head, plan.heads[index].head.weighting.kind
            if plan.heads[index].score_group != first.score_group or head.self_key is not None or kind not in KINDS:
                raise Uncovered(f"slot {write.slot} is made by several scores")
            narrow, code = self.prepared.head(head), Code()
            code.add(KINDS[kind], self.own_numbers[place])
            if kind in NUMBER_HEADS:
                factors = dict(zip(narrow.writes, table(narrow.weights["value"])[:, 0].tolist(), strict=True))
                code.add(-1, slot.width)
                code.real.extend(factors.get(column, 0.0) for column in columns)
                code.rows([])
            else:
                rows = dict(zip(narrow.writes, self._values(head, narrow), strict=True))
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
        score, _, _, noise = self._score(first.head, self.prepared.head(first.head))
        self._check_lead(first.head)
        if noise:
            raise Uncovered("random numbers are weighed")
        self.groups.append(_Group(first.head, score))
        code = Code()
        code.add(MAKE_LAZY, len(self.groups) - 1)
        text = (
            f"{write.stream}.{write.slot}: {first.head.weighting.kind} of {first.head.keys}, in blocks when it is read"
        )
        self.instructions.append(Instruction("soft", text, code))
        return len(self.groups) - 1

    def _names(self, head: Head, rows: list[Row]) -> int:
        """Where the one-hot names of the keys stand among the columns, if these are the values; or -1."""
        filled = [at for at, row in enumerate(rows) if row]
        if len(filled) != self.streams[head.keys].size or filled != list(range(filled[0], filled[0] + len(filled))):
            return -1
        for number, at in enumerate(filled):
            (slot, column, factor), *rest = rows[at]
            if rest or (column, factor) != (number, 1.0) or self._kind(self.places[slot]) != IDENTITY:
                return -1
        return filled[0]

    # ------------------------------------------------------------------ the arrays
    def _code(self, slots: tuple[SlotCode, ...]) -> Code:
        code = Code()
        code.add(VERSION, len(self.order), len(slots))
        for slot in slots:
            code.add(slot.kind, self.order[slot.place[0]], slot.width, slot.single, slot.role == "field")
            code.add(slot.group, slot.name)
        code.add(len(self.groups))
        for group in self.groups:
            code.add(self.order[group.head.query], self.order[group.head.keys])
            code.join(group.score)
            code.add(len(group.slots), *group.slots, len(group.heads))
            for head in group.heads:
                code.join(head)
        code.add(self.outs, self.rankings, 0, len(self.instructions))
        for instruction in self.instructions:
            code.join(instruction.code)
        return code
