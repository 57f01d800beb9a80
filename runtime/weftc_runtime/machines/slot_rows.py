"""Rows of matrices -> terms of slots, by the numbers the native machine knows these by, and scores made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import frexp

from weftc_runtime.errors import Uncovered
from weftc_runtime.format.program import Head, Stream
from weftc_runtime.machines.dataflow import Dataflow
from weftc_runtime.machines.native_code import LAZY, NOISE, UNIFORM, Code, Place, Row
from weftc_runtime.plan.instructions import FFNPlan
from weftc_runtime.plan.narrow import NarrowHead, NarrowMatrices


class SlotRows:
    """The slots of some steps, numbered, and rows over them, as the instructions are written one after the other."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.places = [(stream.name, slot.name) for stream in flow.program.streams for slot in stream.slots]
        self.own_numbers = {place: number for number, place in enumerate(self.places)}
        self.numbers = dict(self.own_numbers)  # where to read slots now: maps made when read have numbers of their own
        self.maps: dict[int, FFNPlan] = {}  # by number: slots that are made when they are read
        self.origins: dict[int, set[int]] = {}  # of these: the slots they are made from, through others of them
        self.stale: set[int] = set()  # of these: made from what is gone
        self.lazy_of: dict[Place, int] = {}  # the group of heads that makes a slot when it is read

    def row(self, stream: Stream, columns: Iterable[int], row: Iterable[float]) -> Row:
        owner = {c: s for s in stream.slots for c in range(s.offset, s.offset + s.width)}
        return tuple(
            (self.numbers[stream.name, owner[c].name], c - owner[c].offset, value)
            for c, value in zip(columns, row, strict=True)
            if value
        )

    def of(self, stream: str, narrow: NarrowMatrices, name: str, bounded: bool = False) -> list[Row]:
        """The rows of a matrix of a lens over the slots of a stream; `bounded`: drawn numbers may be off a little."""
        rows = [self.row(self.flow.streams[stream], narrow.columns, row) for row in narrow.matrices[name].tolist()]
        return self.readable(rows, bounded)

    def readable(self, rows: list[Row], bounded: bool = False) -> list[Row]:
        if self.noise(rows) - ({"gumbel", "uniform"} if bounded else {"uniform"}):
            raise Uncovered("random numbers are read as they are")  # native ones may differ in the last place
        for number in {slot for row in rows for slot, _, _ in row}:
            place = self.places[number]
            known = number not in self.stale if number in self.maps else place in self.lazy_of
            if self.flow.kind(place) == LAZY and not known:
                raise Uncovered(f"slot {place[1]} of {place[0]} is made in blocks")
        return rows

    def read(self, rows: Iterable[Row]) -> set[Place]:
        return {self.places[slot] for row in rows for slot, _, _ in row}

    def noise(self, rows: Iterable[Row]) -> set[str]:
        """The kinds of noise that rows read."""
        return {self.flow.noises[place].kind for place in self.read(rows) if self.flow.kind(place) == NOISE}

    def nothing(self, narrow: NarrowHead) -> list[Row]:
        return [()] * len(narrow.writes)

    def values(self, head: Head, narrow: NarrowHead) -> list[Row]:
        return self.of(head.keys, narrow.value, "value") if narrow.value.matrices else self.nothing(narrow)

    def own(self, head: Head, narrow: NarrowHead) -> list[Row]:
        return self.of(head.query, narrow.own, "own.value") if narrow.own.matrices else self.nothing(narrow)

    def score(
        self, head: Head, narrow: NarrowHead, only: Mapping[int, Sequence[int]] | None = None
    ) -> tuple[Code, bool, bool, set[str]]:
        """A score, whether its features are stored numbers, or known sums of such, and the noise that its keys hold.

        `only`: the parts, and the rows of them, that are asked for.
        """
        if narrow.head.score.functions:
            raise Uncovered(f"head {head.name} has functions of scores")
        found, stored, bounded, noise = Code(), True, True, set[str]()
        parts = list(enumerate(narrow.head.score.parts))
        parts = parts if only is None else [(index, part) for index, part in parts if index in only]
        for index, part in parts:
            side = 0 if part.scale is None else 1 if part.scale[0] == "query" else 2
            found.add(part.kind == "l2", side)
            found.real.append(1.0 if part.coefficient is None else float(narrow.weights[part.coefficient]))
            q = self.of(head.query, narrow.query, part.q)
            k = self.of(head.keys, narrow.keys, part.k, bounded=True)
            if only is not None:
                q, k = ([rows[at] for at in only[index]] for rows in (q, k))
            scale: list[Row] = []
            found.rows(q)
            found.rows(k)
            if part.scale is not None:
                stream, own = (head.query, narrow.query) if side == 1 else (head.keys, narrow.keys)
                scale = self.of(stream, own, part.scale[1])
                found.rows(scale)
            if self.noise([*q, *scale]) or (self.noise(k) and (side or part.kind == "l2")):
                raise Uncovered("random numbers are multiplied")
            noise |= self.noise(k)
            stored = stored and all(map(self.is_stored, (*q, *k, *scale)))
            loose = part.kind == "dot" and all(map(self.is_stored, (*q, *scale))) and all(map(self.is_data, k))
            bounded = bounded and (loose or all(map(self.is_stored, (*q, *k, *scale))))
        code = Code()
        code.add(len(parts), stored and not noise - {"uniform"})
        code.join(found)
        return code, stored, bounded, noise

    def is_stored(self, row: Row) -> bool:
        """Whether a row is a stored number, up to a power of two."""
        short = all(abs(frexp(factor)[0]) == 0.5 and abs(factor) > 2.0**-200 for _, _, factor in row)
        return len(row) < 2 and short and self.is_data(row)

    def is_data(self, row: Row) -> bool:
        """Whether a row reads what was stored before the step, and nothing that was made from it."""
        places = self.read([row])
        return not any(
            p in self.flow.derived or self.flow.kind(p) == LAZY or self.flow.role(p) == "scratch" for p in places
        )

    def is_same(self, row: Row) -> bool:
        """Whether a row gives the same number for all tokens."""
        return all(
            self.flow.kind(place) == UNIFORM or self.flow.plan.forms[place] == "zero" for place in self.read([row])
        )

    def number_map(self, place: Place, plan: FFNPlan, read: set[int]) -> None:
        """Gives a slot that is made when it is read a number of its own: what it held may still be read by others."""
        number = self.numbers[place] = len(self.places)
        self.places.append(place)
        self.maps[number] = plan
        self.origins[number] = set[int]().union(*(self.origins.get(slot, {slot}) for slot in read))

    def overwrite(self, places: Iterable[Place]) -> None:
        """Notes that slots are written: what others are made from when they are read is gone."""
        gone = {self.own_numbers[place] for place in places}
        self.numbers.update((place, self.own_numbers[place]) for place in places)
        self.stale |= {number for number, read in self.origins.items() if read & gone}
