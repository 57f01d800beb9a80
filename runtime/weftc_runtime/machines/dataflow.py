"""What the steps of a plan read and write: which slots must be made, which last, and how each is held."""

from __future__ import annotations

from weftc_runtime.errors import Uncovered
from weftc_runtime.format.program import FFN, Program, Stream
from weftc_runtime.machines.native_code import BLOCKED, DENSE, FORMS, IDENTITY, LAZY, NOISE, Place, StepGroup
from weftc_runtime.plan.instructions import AttendPlan, FFNPlan, HeadPlan, SlotWrite, SublayerPlan
from weftc_runtime.plan.narrow import NarrowMatrices
from weftc_runtime.plan.prepared import Prepared
from weftc_runtime.plan.structure import copies


class Dataflow:
    """The steps that instructions are written for, slot by slot."""

    def __init__(self, program: Program, prepared: Prepared, part: StepGroup) -> None:
        self.program, self.prepared, self.plan, self.part = program, prepared, prepared.plan, part
        self.streams = {stream.name: stream for stream in program.streams}
        self.order = {stream.name: number for number, stream in enumerate(program.streams)}
        self.embedded = {(embed.stream, embed.slot): embed for embed in program.embedding}
        self.noises = {(item.stream, item.slot): item for item in program.noises}
        self.derived = {(s.name, slot): ffn for s in program.streams for ffn in s.derived for slot in ffn.writes}
        planned = {id(step): self.plan.steps[path] for path, step in program.places()}
        self.steps = [planned[id(step)] for step in part.steps]
        self.written = self._written()
        self.needed = self._needed()
        self.blocked = self._blocked()

    def _subs(self) -> list[SublayerPlan]:
        return [sub for sublayers in self.steps for sub in sublayers if not (isinstance(sub, FFNPlan) and sub.dead)]

    def _written(self) -> list[Place]:
        """Slots that a layer writes, but for derived ones."""
        found: dict[Place, None] = {}
        for sub in self._subs():
            if isinstance(sub, AttendPlan):
                found.update(((write.stream, write.slot), None) for write in sub.slots)
            else:
                found.update((place, None) for place in self.targets(sub.ffn) if self.role(place) != "derived")
        return list(found)

    def _blocked(self) -> set[Place]:
        """Slots that feed-forwards make when they are read."""
        feeds = [sub for sub in self._subs() if isinstance(sub, FFNPlan)] + list(self.plan.derived.values())
        return {place for plan in feeds if plan.form in BLOCKED for place in self.targets(plan.ffn)}

    def role(self, place: Place) -> str:
        return self.streams[place[0]].slot(place[1]).role

    def targets(self, ffn: FFN) -> list[Place]:
        """The slots that a feed-forward writes."""
        columns = set(self.prepared.ffn(ffn).writes)
        slots = self.streams[ffn.stream].slots
        return [(ffn.stream, s.name) for s in slots if columns & set(range(s.offset, s.offset + s.width))]

    def sources(self, ffn: FFN) -> set[Place]:
        return {(ffn.stream, name) for name in self.prepared.ffn(ffn).reads.slots(self.streams[ffn.stream])}

    def origins(self, ffn: FFN) -> set[Place]:
        """The sources of a feed-forward, through derived slots."""
        found = self.sources(ffn)
        for place in list(found):
            if place in self.derived and self.derived[place] is not ffn:
                found |= self.origins(self.derived[place])
        return found

    def head_reads(self, plan: HeadPlan) -> set[Place]:
        head, narrow = plan.head, self.prepared.head(plan.head)
        sides = ((head.query, (narrow.query, narrow.own)), (head.keys, (narrow.keys, narrow.value)))
        return {(name, slot) for name, read in sides for one in read for slot in one.slots(self.streams[name])}

    def carry_reads(self, attend: AttendPlan, write: SlotWrite) -> set[Place]:
        if write.carry != "mix":
            return {(write.stream, write.slot)} if write.carry == "keep" else set()
        narrow = self.carry(attend, write)
        return {(write.stream, name) for name in narrow.slots(self.streams[write.stream])}

    def carry(self, attend: AttendPlan, write: SlotWrite) -> NarrowMatrices:
        columns = self.streams[write.stream].slot(write.slot).columns
        return self.prepared.carry(attend.attend.carry[write.stream], write.slot, columns)[0]

    def write_reads(self, attend: AttendPlan, write: SlotWrite) -> set[Place]:
        return self.carry_reads(attend, write).union(*(self.head_reads(attend.heads[i]) for i in write.heads))

    def _needed(self) -> set[Place]:
        """Fields that the next layer, or an answer, may read, and all that they are made from."""
        lasting = [p for p in self.written if self.part.alone or self.role(p) == "field"]
        found = {place for place in lasting if self.plan.forms[place] != "deferred"}
        while True:
            before = len(found)
            for place in [place for place in found if place in self.derived]:
                found |= self.sources(self.derived[place])
            for sub in self._subs():
                if isinstance(sub, FFNPlan):
                    found |= self.sources(sub.ffn) if found & set(self.targets(sub.ffn)) else set()
                    continue
                for write in sub.slots:
                    if (write.stream, write.slot) in found:
                        found |= self.write_reads(sub, write)
            if len(found) == before:
                return found

    def check_order(self, later: tuple[SublayerPlan, ...], changed: set[Place]) -> None:
        """Fields are rounded when they are written here, not when the step ends: nothing may read them before."""
        fields = {place for place in changed if self.role(place) == "field"}
        for sub in later:
            if isinstance(sub, FFNPlan):
                read = set() if sub.dead else self.sources(sub.ffn)
            else:
                read = set[Place]().union(*(self.write_reads(sub, write) for write in sub.slots))
            if read & fields:
                raise Uncovered("a field is read in the step that sets it")

    def changes(self, place: Place) -> bool:
        """Whether a slot may hold something else after a layer; a derived one is made anew then."""
        made = self.derived.get(place)
        origins = {place} if made is None else self.origins(made) | {place}
        return any(each in self.written or self.kind(each) == NOISE for each in origins)

    def kind(self, place: Place) -> int:
        embed = self.embedded.get(place)
        if embed is not None and embed.kind == "noise":
            return NOISE
        if embed is not None and embed.kind == "identity" and place not in self.written:
            return IDENTITY
        if place in self.blocked and self.plan.forms[place] in BLOCKED:
            return LAZY
        return FORMS.get(self.plan.forms[place], DENSE)

    def width(self, place: Place) -> int:
        return self.streams[place[0]].slot(place[1]).width

    def is_diagonal(self, plan: HeadPlan) -> bool:
        """Whether of what token j gets only column j of one slot is ever read: all readers multiply by its name."""
        head, narrow = plan.head, self.prepared.head(plan.head)
        stream = self.streams[head.query]
        slot = next((s for s in stream.slots if tuple(range(s.offset, s.offset + s.width)) == narrow.writes), None)
        if slot is None or slot.role != "scratch" or slot.width < 2 or plan.uniform_query or head.self_key is not None:
            return False
        place, found = (stream.name, slot.name), False
        if any(place in self.sources(ffn) for ffn in self.derived.values()):
            return False
        for sub in self._subs():
            if isinstance(sub, AttendPlan):
                carried = [w for w in sub.slots if place in self.carry_reads(sub, w) and (w.stream, w.slot) != place]
                if carried or any(place in self.head_reads(other) for other in sub.heads):
                    return False
            elif place in self.sources(sub.ffn):
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
        return self.kind((stream.name, other)) == IDENTITY and slot not in rows.slots(stream) and bool(carry.columns)
