"""A program and the numbers in its tensors -> a plan: which slots are indices, which heads are sums over segments ...

Every decision rests on structure that is read from the matrices (selectors, identity blocks, zero blocks) and on how
the slots they read are held. The forms of slots and the strategies of heads depend on each other, so the program is
walked through until the forms no longer change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.format.program import FFN, HARD, Attend, Head, Program, ProgramStep, Score, Stream
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.format.writes import Matrices
from weftc_runtime.plan.equal import KINDS, Constant, all_in, equal_masks
from weftc_runtime.plan.instructions import (
    TILED,
    AttendPlan,
    FFNPlan,
    Form,
    HeadPlan,
    Plan,
    SlotWrite,
    SublayerPlan,
)
from weftc_runtime.plan.narrow import NarrowFFN
from weftc_runtime.plan.reads import Reads
from weftc_runtime.plan.staying import Staying
from weftc_runtime.plan.structure import copies, is_identity, query_is_key, slots_of, slots_written

WIDE: frozenset[Form] = frozenset({"sparse", "deferred"})  # forms that are never materialised whole

Forms = dict[tuple[str, str], Form]


def make_plan(program: Program, tensors: Mapping[str, Tensor]) -> Plan:
    """The plan of a program, or `Uncovered` with the reason."""
    return _Planner(program, tensors).plan()


class _Planner:
    def __init__(self, program: Program, tensors: Mapping[str, Tensor]) -> None:
        self.program, self.tensors = program, {name: tensor.detach() for name, tensor in tensors.items()}
        self.streams = {stream.name: stream for stream in program.streams}
        self.reads = Reads(self.streams, self.tensors)
        self.matrices = Matrices(
            self.streams, {name: tensor.cpu().numpy() for name, tensor in self.tensors.items()}, {}
        )
        names = {(e.stream, e.slot) for e in program.embedding if e.kind == "identity"}
        self.identity = names.difference(*map(self.matrices.step, program.steps()))  # one-hot names, never changed
        self.forms: Forms = {}
        self.derived: dict[tuple[str, str], FFNPlan] = {}
        self.zero: set[tuple[str, str]] = set()  # slots that hold nothing at this point of the walk
        self.changing = self._changing()
        self.staying = Staying(self.streams, self.tensors, self.forms, self.changing)

    def plan(self) -> Plan:
        for stream in self.program.streams:
            if getattr(stream, "null", None):
                raise Uncovered(f"stream {stream.name} has a null token")
        self._embed()
        steps: dict[str, tuple[SublayerPlan, ...]] = {}
        empty = set(self.zero)
        while True:
            before = dict(self.forms), set(empty)
            self.zero = {place for place, form in self.forms.items() if form == "zero"} | empty
            for path, step in self.program.places():
                steps[path] = self._step(step)
                self._derived()
            empty &= self.zero  # a slot that any layer leaves filled may be filled when the next one starts
            if (self.forms, empty) == before:
                return Plan(steps, dict(self.forms), dict(self.derived))

    # ------------------------------------------------------------------ forms
    def _embed(self) -> None:
        for stream in self.program.streams:
            for slot in stream.slots:
                self.forms[stream.name, slot.name] = "zero"
        for embed in self.program.embedding:
            wide = embed.kind == "noise" and self.streams[embed.stream].slot(embed.slot).width > 1
            form: Form = "uniform" if embed.kind in ("one", "count") else "deferred" if wide else "dense"
            self.forms[embed.stream, embed.slot] = form
        self.zero = {place for place, form in self.forms.items() if form == "zero"}
        self._derived()

    def _join(self, stream: str, slot: str, form: Form) -> None:
        old = self.forms[stream, slot]
        if form != "zero":  # a slot of any form can be zero
            self.forms[stream, slot] = form if old in ("zero", form) else "dense"

    def _derived(self) -> None:
        """Derived slots are made when they are read, in the form that their sources allow."""
        for stream in self.program.streams:
            for ffn in stream.derived:
                plan = self._ffn(ffn)
                for slot in ffn.writes:
                    self.derived[stream.name, slot] = plan
                    self.forms[stream.name, slot] = plan.form  # follows from its sources, whatever a step made of it
                    if any(self.tensors[ffn.carry][stream.slot(slot).columns][:, stream.slot(slot).columns].any(1)):
                        raise Uncovered(f"derived slot {slot} of {stream.name} adds to its own old value")

    # ------------------------------------------------------------------ steps
    def _step(self, step: ProgramStep) -> tuple[SublayerPlan, ...]:
        plans: list[SublayerPlan] = []
        fresh: set[tuple[str, str]] = set()  # what earlier sub-layers of the step have set
        for index, sublayer in enumerate(step.sublayers):
            if isinstance(sublayer, Attend):
                plan = self._attend(sublayer, fresh)
                fresh.update((write.stream, write.slot) for write in plan.slots)
                plans.append(plan)
                continue
            made = self._ffn(sublayer)
            stream = self.streams[sublayer.stream]
            written_slots = slots_written(stream, NarrowFFN.of(sublayer, self.tensors).writes)
            derived = all(stream.slot(name).role == "derived" for name in written_slots)
            later = self._read_later(step.sublayers[index + 1 :], sublayer.stream)
            dead = derived and not later & set(written_slots)
            plans.append(FFNPlan(sublayer, made.form, dead, made.number, made.index))
            fresh.update((sublayer.stream, name) for name in written_slots)
            for name in written_slots:
                self.zero.discard((sublayer.stream, name))
                if stream.slot(name).role != "derived":
                    self._join(sublayer.stream, name, made.form)
        return tuple(plans)

    def _read_later(self, sublayers: Iterable[Attend | FFN], stream: str) -> set[str]:
        """Slots of a stream that later sub-layers of the same step read, other than to refresh derived slots."""
        found: set[str] = set()
        for sublayer in sublayers:
            if isinstance(sublayer, FFN):
                if sublayer.stream == stream:
                    made = NarrowFFN.of(sublayer, self.tensors)
                    if any(
                        self.streams[stream].slot(n).role != "derived"
                        for n in slots_written(self.streams[stream], made.writes)
                    ):
                        found.update(made.reads.slots(self.streams[stream]))
                continue
            for head in sublayer.heads:
                if head.query == stream:
                    found |= self.reads.query(head) | self.reads.own(head)
                if head.keys == stream:
                    found |= self.reads.keys(head) | self.reads.values(head)
            if stream in sublayer.carry:
                found |= self._mixed(sublayer, stream)
        return found

    def _mixed(self, attend: Attend, stream: str) -> set[str]:
        """Slots that a carry moves into other slots."""
        carry, layout = self.tensors[attend.carry[stream]], self.streams[stream]
        found = set()
        for slot in layout.slots:
            rows = carry[slot.columns]
            if not is_identity(rows, slot):
                found |= set(slots_of(rows, layout))
        return found

    # ------------------------------------------------------------------ feed-forwards
    def _ffn(self, ffn: FFN) -> FFNPlan:
        stream = self.streams[ffn.stream]
        narrow = NarrowFFN.of(ffn, self.tensors)
        read = {self.forms[stream.name, name] for name in narrow.reads.slots(stream)}
        slots = slots_written(stream, narrow.writes)
        if read <= {"uniform", "zero"} and ffn.function not in ("unit", "layer"):
            return FFNPlan(ffn, "uniform")
        if ffn.function == "product" and len(slots) == 1 and ffn.b is not None:
            for number, index in ((ffn.a, ffn.b), (ffn.b, ffn.a)):
                source = copies(self.tensors[index], stream)
                if source is not None and self._scales_index(ffn, number, source, stream, slots[0]):
                    return FFNPlan(ffn, "sparse", number=number, index=source[0])
        wide = [
            n for n in narrow.reads.slots(stream) if self.forms[stream.name, n] in WIDE and stream.slot(n).width > 1
        ]
        pair = len(slots) == 1 and any(stream.slot(n).width == stream.slot(slots[0]).width for n in wide)
        if pair and stream.slot(slots[0]).role != "field":
            return FFNPlan(ffn, "deferred")
        return FFNPlan(ffn, "dense")

    def _scales_index(self, ffn: FFN, number: str, source: tuple[str, float], stream: Stream, slot: str) -> bool:
        """Whether a product is one number of a token times a stored index."""
        rows = self.tensors[number]
        columns = stream.slot(slot).columns
        return bool(
            source[1] == 1.0
            and self.forms[stream.name, source[0]] == "sparse"
            and (rows == rows[:1]).all()
            and not {self.forms[stream.name, name] for name in slots_of(rows, stream)} & WIDE
            and torch.equal(self.tensors[ffn.out][columns], torch.eye(len(rows), dtype=rows.dtype, device=rows.device))
            and not self.tensors[ffn.carry][columns].any()
        )

    # ------------------------------------------------------------------ attention
    def _attend(self, attend: Attend, fresh: set[tuple[str, str]]) -> AttendPlan:
        shares: dict[tuple[object, ...], int] = {}
        heads = []
        for head in attend.heads:
            key = (head.query, head.keys, self.reads.fingerprint(head.score))
            heads.append(self._head(head, shares.setdefault(key, len(shares)), fresh))
        made = []
        for stream in self.program.streams:
            for slot in stream.slots:
                write = self._write(attend, heads, stream, slot.name)
                if write is not None:
                    made.append(write)
        for write in made:
            place = (write.stream, write.slot)
            self.zero = self.zero | {place} if write.form == "zero" else self.zero - {place}
            if self.streams[write.stream].slot(write.slot).role != "derived":
                self._join(write.stream, write.slot, write.form)
        return AttendPlan(attend, tuple(heads), tuple(made))

    def _write(self, attend: Attend, heads: list[HeadPlan], stream: Stream, name: str) -> SlotWrite | None:
        slot = stream.slot(name)
        width = stream.width
        carry = self.tensors.get(attend.carry.get(stream.name, ""))
        rows = torch.eye(width, dtype=torch.float64)[slot.columns] if carry is None else carry[slot.columns].cpu()
        adding = []
        for index, plan in enumerate(heads):
            if plan.head.query != stream.name:
                continue
            value = self.tensors[plan.head.value][slot.columns] if plan.head.value else None
            if plan.strategy == "self":
                assert value is not None
                folded = rows + value.cpu()
                if bool(value.any()) and (is_identity(folded, slot) or not bool(folded.any())):
                    rows = folded  # the carry and the erase cancel without rounding
                elif bool(value.any()):
                    adding.append(index)
                continue
            own = plan.head.self_key
            own_value = self.tensors[own.value][slot.columns] if own is not None and own.value else None
            if any(part is not None and bool(part.any()) for part in (value, own_value)):
                adding.append(index)
        kept, cleared = is_identity(rows, slot), not bool(rows.any())
        if kept and not adding:
            return None
        form: Form = "zero" if cleared else "dense"
        if adding and (cleared or (kept and (stream.name, name) in self.zero)):
            form = self._made(attend, [heads[i] for i in adding], stream, name)
        elif not adding and not kept and not cleared:
            read = {self.forms[stream.name, n] for n in slots_of(rows, stream)}
            form = "uniform" if read <= {"uniform", "zero"} else "dense"
        elif adding and not cleared:
            base = {self.forms[stream.name, n] for n in slots_of(rows, stream)}
            if base <= {"uniform", "zero"} and all(heads[i].uniform_query for i in adding):
                form = "uniform"
        return SlotWrite(stream.name, name, "keep" if kept else "clear" if cleared else "mix", tuple(adding), form)

    def _made(self, attend: Attend, heads: list[HeadPlan], stream: Stream, slot: str) -> Form:
        """How a slot that heads alone fill is held."""
        if all(plan.uniform_query for plan in heads):
            return "uniform"
        pairs = [plan for plan in heads if self._is_pair(plan.head, stream, slot)]
        first = heads[0]
        if len(heads) == 1 and pairs and first.strategy == "nearest" and first.head.self_key is None:
            return "sparse"
        small = all(self.streams[plan.head.keys].size is not None and not plan.uniform_query for plan in heads)
        tiled = all(plan.strategy in ("stream", "best") for plan in heads)
        thin = all(not self._any_wide(plan.head.query, self.reads.query(plan.head)) for plan in heads)
        if pairs and small and tiled and thin and stream.size is None:
            return "deferred"
        return "dense"

    def _is_pair(self, head: Head, stream: Stream, slot: str) -> bool:
        """Whether a head writes the weights of its keys themselves: its value is the keys' one-hot name."""
        if not head.value or head.weighting.kind in NUMBER_HEADS:
            return False
        rows = self.tensors[head.value][stream.slot(slot).columns]
        source = copies(rows, self.streams[head.keys])
        return bool(source and source[1] == 1.0 and (head.keys, source[0]) in self.identity)

    # ------------------------------------------------------------------ heads
    def _head(self, head: Head, share: int, fresh: set[tuple[str, str]]) -> HeadPlan:
        kind, stream = head.weighting.kind, self.streams[head.query]
        query, keys = self.reads.query(head), self.reads.keys(head)
        decides = kind in HARD or any(mask.op != "other" for mask in head.masks)
        read = {(head.query, name) for name in query} | {(head.keys, name) for name in keys}
        if decides and read & fresh:
            raise Uncovered(f"head {head.name} decides on numbers that the same step has computed")
        functions = {name for score in (head.score, *(mask.score for mask in head.masks)) for name in score.functions}
        if any(mask.op == "best" for mask in head.masks):
            return HeadPlan(head, "literal", "among the best keys of a ranking", score_group=share)
        if functions:
            why = f"functions of scores ({', '.join(sorted(functions))})"
            if kind in TILED and not decides:
                return HeadPlan(head, "stream", f"{why}, in tiles", score_group=share)
            return HeadPlan(head, "literal", why, score_group=share)
        if query_is_key(head, self.streams[head.query], self.identity, self.tensors):
            return HeadPlan(head, "self", "a token is nearest to itself; needs distinct tokens", score_group=share)
        other = any(mask.op == "other" for mask in head.masks)
        uniform = all(self.forms[head.query, name] in ("uniform", "zero") for name in query)
        once = uniform and head.self_key is None and not other
        index = self._index_slot(head, keys)
        few = once or stream.size is not None
        if index is not None and few and self._sums(head, keys, index):
            why = f"keys count by {index}" if index else "all keys count alike"
            return HeadPlan(head, "segment", f"{why}: exact sums", once, share, index)
        if head.weighting.sharpness is not None and (head.masks or head.self_key is not None):
            raise Uncovered(f"head {head.name} stands for an argmax among members at finite temperature")
        if index and head.masks and few:
            return HeadPlan(head, "members", f"only the keys that {index} names", once, share, index)
        if self._equal(head):
            return HeadPlan(head, "equal", "keys count where numbers are equal", once, share)
        plain = not head.masks and head.self_key is None
        thin = not self._any_wide(head.query, query) and not self._any_wide(head.keys, keys)
        if plain and kind in ("argmax", "max") and self._fast(head.score) and thin and stream.size is None:
            return HeadPlan(head, "nearest" if kind == "argmax" else "best", _score_text(head.score), once, share)
        if kind in TILED and not decides and not other:
            kept = () if once or head.weighting.sharpness is not None else self.staying.parts(head)
            if not kept:
                return HeadPlan(head, "stream", "soft weights in tiles", once, share)
            why = "soft weights in tiles; exponentials of costs that stay are kept"
            return HeadPlan(head, "stream", why, once, share, "", kept, *self.staying.costs(head, kept))
        if few and not other and self._any_wide(head.keys, keys):
            return HeadPlan(head, "queries", "one query reads few columns of the keys", once, share)
        return HeadPlan(head, "literal", f"{kind} has no faster form here", once, share)

    def _changing(self) -> set[tuple[str, str]]:
        """Slots that a layer writes, and derived slots made from them."""
        found: set[tuple[str, str]] = set()
        for step in self.program.layer:
            found.update(self.matrices.step(step))
        found.update((item.stream, item.slot) for item in self.program.noises)
        for stream in self.program.streams:
            for ffn in stream.derived:  # in order of dependence
                read = NarrowFFN.of(ffn, self.tensors).reads.slots(stream)
                if any((stream.name, name) in found for name in read):
                    found.update((stream.name, name) for name in ffn.writes)
        return found

    def _fast(self, score: Score) -> bool:
        parts = score.parts
        if not parts or any(part.scale is not None for part in parts):
            return False
        if len(parts) == 1 and parts[0].kind == "l2":
            assert parts[0].coefficient is not None
            return float(self.tensors[parts[0].coefficient]) < 0
        return all(part.kind == "dot" for part in parts)

    def _index_slot(self, head: Head, keys: set[str]) -> str | None:
        """The stored index that masks (or sums) of a head read; "" when they read constants only, None when more."""
        masks = [mask for mask in head.masks if mask.op != "other"]
        read = set().union(*(self.reads.score(mask.score, head.keys, "key") for mask in masks)) if masks else keys
        if len(masks) != len(head.masks):
            return None
        indices = [name for name in read if self.forms[head.keys, name] == "sparse"]
        rest = [name for name in read if name not in indices]
        if len(indices) > 1 or any(self.forms[head.keys, name] not in ("uniform", "zero") for name in rest):
            return None
        return indices[0] if indices else "" if not masks else None

    def _equal(self, head: Head) -> bool:
        """Whether keys count where stored numbers are equal, and what else is asked of them is not the query's."""
        weighting, own = head.weighting, head.self_key
        if weighting.kind not in KINDS or weighting.sharpness is not None or (own is not None and own.row is not None):
            return False
        if weighting.kind == "argmax" and weighting.ties != "first":
            return False
        streams = self.streams[head.query], self.streams[head.keys]

        def constant(stream: Stream) -> Constant:
            def value(row: Tensor) -> Tensor | None:
                return row.sum() if all_in(slots_of(row, stream), self.forms, stream.name) else None

            return value

        found = equal_masks(head, self.tensors, self.tensors, (constant(streams[0]), constant(streams[1])))
        if found is None:
            return False
        first, second, both = found
        stored = (*((streams[0], n) for n in slots_of(both.query, streams[0])),)
        stored += (*((streams[1], n) for n in slots_of(both.key, streams[1])),)
        others = [mask for number, mask in enumerate(head.masks) if number not in (first, second)]
        asked = [head.score, *(mask.score for mask in others)]
        alike = (all_in(self.reads.score(score, head.query, "query"), self.forms, head.query) for score in asked)
        return (
            all(stream.slot(name).role in ("field", "constant") for stream, name in stored)
            and all(mask.op not in ("other", "best") for mask in others)
            and all(alike)
        )

    def _sums(self, head: Head, keys: set[str], index: str) -> bool:
        """Whether the weights of a head are constants of the segments of its keys."""
        if head.weighting.kind not in ("normalize", "sum") or any(part.kind != "dot" for part in head.score.parts):
            return False
        if head.self_key is not None and head.self_key.row is not None:
            return False
        if any(part.scale is not None for part in head.score.parts):
            return False
        return all(name == index or self.forms[head.keys, name] in ("uniform", "zero") for name in keys)

    def _any_wide(self, stream: str, slots: Iterable[str]) -> bool:
        return any(self.forms[stream, name] in WIDE for name in slots)


def _score_text(score: Score) -> str:
    kinds = " + ".join(part.kind for part in score.parts)
    return f"{kinds} scores in blocks, best and second best"
