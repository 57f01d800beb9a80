"""Scheduled steps -> sub-layers: linear forms become matrices over the columns of the streams."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from weftc.core.errors import InputError
from weftc.core.source import Span
from weftc.emit.conditions import conditions
from weftc.emit.layout import StreamLayout
from weftc.emit.matrices import Array, Columned, float_parts, into, lifted, number_parts
from weftc.normal.form import NormalForm
from weftc.normal.slots import (
    Form,
    MagnitudeCondition,
    Map,
    NormalFactor,
    NormalHead,
    NormalScore,
    NormalSlot,
    just,
    label,
)
from weftc.passes.allocate import Allocated, Register
from weftc.passes.heads import EXACT
from weftc.passes.schedule import AttentionBlock, ScheduledHead
from weftc_runtime.format import program as ir
from weftc_runtime.format.structure import ConstantRun, Structured


class Emitter:
    """Writes the tensors of one normal form, and collects what has to hold for them."""

    def __init__(self, normal: NormalForm, layout: Mapping[str, StreamLayout]) -> None:
        self.normal, self.layout = normal, layout
        self.source = normal.checked.spec.source
        self.tensors: dict[str, Array | Structured] = {}
        self.distinct: dict[str, None] = {}  # open streams that are erased by self-attention
        self.sharp: dict[tuple[str, int | None], Fraction] = {}  # choices at finite temperature: stream, candidates
        self.bounds: dict[MagnitudeCondition, None] = {}
        self.ffns = {
            slot: self.ffn(slot, f"derived.{slot.stream}.{n}", StepEmitter(self, {}))
            for n, slot in enumerate(normal.derived)
        }

    def put(self, name: str, matrix: Array | Structured) -> str:
        self.tensors[name] = matrix
        return name

    def origin(self, span: Span) -> str:
        """Where in the spec something comes from: line and text, no file name (a checkpoint has no paths in it)."""
        line, _ = self.source.position(span.start)
        return f"line {line}: {self.source.said(span)}"

    def step(self, step: Allocated) -> StepEmitter:
        return StepEmitter(self, step.registers)

    @property
    def conditions(self) -> tuple[ir.Condition, ...]:
        """What has to hold for the program to equal its spec; complete once all sub-layers are written."""
        looks = {s: tuple(label(x) for x in self.normal.identities[s].slots) for s in self.distinct}
        return conditions(self.bounds, self.sharp, looks)

    def ffn(self, slot: NormalSlot, name: str, at: StepEmitter) -> ir.FFN:
        """A token-wise map as a feed-forward."""
        made, styles = slot.content, self.normal.styles
        assert isinstance(made, Map)
        columns = at.columns[slot.stream]
        function, b = made.function, None
        mix = identity = Structured.identity(slot.width)
        if made.a is not None and made.b is not None:
            a, b = (columns.form(just(s), s.width) for s in (made.a, made.b))
            if function == "outer":
                a, b, mix = a.repeated(b.rows), b.tiled(a.rows), identity
            elif function == "contract":
                a, mix = a.repeated(slot.width), identity.tiled(made.a.width).transposed
            else:
                mix = Structured(1, a.rows, (ConstantRun(0, 0, a.rows, 0, 1, 1.0),)) if function == "dot" else identity
            function = "product"
            if styles.square == "relu2" and a == b:
                function, a, b = "relu2", Structured.stacked([a, a.negated]), None
                mix = Structured.stacked([mix.transposed, mix.transposed]).transposed
        elif made.function in ("pick", "stack"):
            a, function = self._selected(made, columns), "copy"
        else:
            a = columns.form(made.form, slot.width)
            if function == "unit" and made.fallback is not None:
                b = columns.form(made.fallback, slot.width)
            if function == "unit" and styles.norm == "layer" and slot.width > 1:  # a sign must not be rounded
                mix = lifted(identity).transposed
                function, a, b = "layer", lifted(a), None if b is None else lifted(b)
            elif function == "select":
                assert made.flag is not None
                b = columns.rows([(made.fallback or (), slot.width), (just(made.flag), 1)])
        return ir.FFN(
            slot.stream,
            function,  # type: ignore[arg-type]
            self.put(f"{name}.carry", columns.carry({slot: ()})),
            self.put(f"{name}.a", a),
            None if b is None else self.put(f"{name}.b", b),
            self.put(f"{name}.out", mix.placed(columns.columns[slot][0], columns.width)),
            (at.name(slot),),
            self.origin(slot.span),
        )

    @staticmethod
    def _selected(made: Map, columns: Columned) -> Structured:
        """The rows of a map that only moves numbers about."""
        if made.a is None:
            return columns.rows([(terms, 1) for terms in made.forms])
        at = columns.columns[made.a][0] + made.place
        return Structured(1, columns.width, (ConstantRun(0, at, 1, 0, 0, 1.0),))


class StepEmitter:
    """Writes the sub-layers of one step: there its own slots have registers."""

    def __init__(self, whole: Emitter, registers: Mapping[NormalSlot, Register]) -> None:
        self.whole, self.registers, self.normal = whole, registers, whole.normal
        self.columns: dict[str, Columned] = {}
        for stream, layout in whole.layout.items():
            places = {slot: layout.columns[name] for slot, name in layout.names.items()}
            places |= {s: layout.columns[r.name] for s, r in registers.items() if r.stream == stream}
            self.columns[stream] = Columned(places, layout.width)

    def name(self, slot: NormalSlot) -> str:
        if slot in self.registers:
            return self.registers[slot].name
        return self.whole.layout[slot.stream].names[slot]

    def sublayer(self, part: AttentionBlock | NormalSlot, name: str) -> ir.Sublayer:
        """A block as attention, a map as a feed-forward."""
        if isinstance(part, NormalSlot):
            return self.whole.ffn(part, name, self)
        carry: dict[str, str] = {}
        heads: list[ir.Head] = []
        for stream, columns in self.columns.items():
            sets = {t: f for t, f in part.sets.items() if t.stream == stream}
            if not sets and not any(run.head.query == stream for run in part.heads):
                continue
            carried = columns.carry(sets)
            if self.normal.styles.erase == "attention" and sets:
                # what a slot held is taken off before anything is added: only then nothing is rounded away
                moved, written = into(columns, columns, sets), tuple(self.name(t) for t in sets)
                old = into(columns, columns, {t: ((t, Fraction(-1)),) for t in sets})
                heads.append(self._self_attention(stream, written, old, f"{name}.erase.{stream}"))
                if moved.runs:
                    filled = tuple(self.name(t) for t, form in sets.items() if form)
                    heads.append(self._self_attention(stream, filled, moved, f"{name}.move.{stream}"))
                carried = Structured.identity(columns.width)
            carry[stream] = self.whole.put(f"{name}.carry.{stream}", carried)
        named: dict[str, int] = {}
        for run in part.heads:
            base = "+".join(self.name(t) for t in run.brings).replace(" ", "_")
            named[base] = named.get(base, 0) + 1
            heads.append(self.head(run, f"{name}.{base}" + (f"'{named[base]}" if named[base] > 1 else "")))
        return ir.Attend(carry, tuple(heads), tuple((t.stream, self.name(t)) for t in part.sets))

    # ---- heads

    def head(self, run: ScheduledHead, name: str) -> ir.Head:
        """A head with its values."""
        head, put = run.head, self.whole.put
        query, key = self.columns[head.query], self.columns[head.keys]
        how = head.how
        score = self._score(head.score, head, name, how.kind in EXACT)
        masks = tuple(
            ir.Mask(m.op, self._score(m.score, head, f"{name}.mask.{n}", True), m.how) for n, m in enumerate(head.masks)
        )
        if how.kind in ("lse", "max"):
            places = ((*query.columns[slot], float(v.number)) for slot, v in run.brings.items())
            filled = tuple(ConstantRun(at, 0, width, 1, 0, number) for at, width, number in places)
            value = put(f"{name}.v", Structured(query.width, 1, filled))
        else:
            value = put(f"{name}.v", into(query, key, {slot: v.value for slot, v in run.brings.items()}))
        self_key = None
        if head.self_key is not None:
            own = put(f"{name}.self.v", into(query, query, {slot: v.own for slot, v in run.brings.items()}))
            row = None if head.self_key == "last" else put(f"{name}.self.q", query.row(head.self_key))
            self_key = ir.SelfKey(own, row)
        if how.sharpness is not None:
            self.whole.sharp[head.query, self.normal.size(head.keys)] = how.sharpness
        self.whole.bounds |= dict.fromkeys(head.bounds)
        writes = tuple(self.name(t) for t in run.brings)
        origin = self.whole.origin(head.span)
        short = name.rsplit(".", 1)[-1]
        return ir.Head(short, head.query, head.keys, score, how, value, masks, self_key, writes, origin)

    def _score(self, score: NormalScore, head: NormalHead, name: str, exact: bool) -> ir.Score:
        """Dot parts are stacked into one Q and K; a coefficient that is no float gets further rows, if it decides."""
        query, key, put = self.columns[head.query], self.columns[head.keys], self.whole.put
        parts: list[ir.Part] = []
        pairs: dict[tuple[NormalFactor, ...], list[tuple[Form, Form, int]]] = {}
        for dot in score.dots:
            queries = float_parts(dot.query) if exact else [dot.query]
            keys = float_parts(dot.key) if exact else [dot.key]
            pairs.setdefault(dot.factors, []).extend((qf, kf, dot.width) for qf in queries for kf in keys)
        for number, (factors, rows) in enumerate(pairs.items()):
            place = f"{name}.{number}" if number else name
            q = put(f"{place}.q", query.rows([(p[0], p[2]) for p in rows]))
            k = put(f"{place}.k", key.rows([(p[1], p[2]) for p in rows]))
            parts.append(ir.Part("dot", q, k, factors=self._factors(factors, head, place, exact)))
        for n, l2 in enumerate(score.l2s):
            q = put(f"{name}.l2.{n}.q", query.rows([(form, width) for form, _, width in l2.rows]))
            k = put(f"{name}.l2.{n}.k", key.rows([(form, width) for _, form, width in l2.rows]))
            scale = None
            if l2.scale:
                side, slot = l2.scale
                row = (query if side == "query" else key).row(just(slot))
                scale = side, put(f"{name}.l2.{n}.scale", row)
            functions = self._factors(l2.factors, head, f"{name}.l2.{n}", exact)
            for m, c in enumerate(number_parts(l2.coefficient) if exact else [l2.coefficient]):
                value = put(f"{name}.l2.{n}.c{m or ''}", np.array(float(c)))
                parts.append(ir.Part("l2", q, k, value, scale, functions))
        return ir.Score(tuple(parts))

    def _factors(
        self, factors: tuple[NormalFactor, ...], head: NormalHead, name: str, exact: bool
    ) -> tuple[ir.Factor, ...]:
        return tuple(
            ir.Factor(factor.function, self._score(factor.score, head, f"{name}.{factor.function}.{n}", exact))
            for n, factor in enumerate(factors)
        )

    def _self_attention(self, stream: str, written: tuple[str, ...], value: Structured, name: str) -> ir.Head:
        """A head by which every token finds itself: by its one-hot id, or if no other looks the same, by -|x - x'|^2 or
        <x, 2x'> - |x'|^2."""
        columns, one, put = self.columns[stream], Fraction(1), self.whole.put
        found, is_open = self.normal.identities[stream], self.normal.size(stream) is None
        if not found.slots:
            raise InputError(
                f"erase=attention needs tokens that differ, but {stream} has no input of its own; use erase=linear"
            )
        query = key = [(just(slot), slot.width) for slot in found.slots]
        if found.one is not None:
            query = [*query, (((found.one, -one),), 1)]
            squares: Form = tuple((slot, one) for slot in found.squares)
            key = [*((((slot, 2 * one),), slot.width) for slot in found.slots), (squares, 1)]
        q, k = put(f"{name}.q", columns.rows(query)), put(f"{name}.k", columns.rows(key))
        part = ir.Part("dot", q, k)
        if is_open:
            self.whole.distinct[stream] = None
            if found.one is None:
                part = ir.Part("l2", q, k, put(f"{name}.c", np.array(-1.0)))
        masks: tuple[ir.Mask, ...] = ()
        if stream in self.normal.nulls:  # a token at the origin looks like the null token
            rows = columns.rows([(just(self.normal.ones[stream]), 1)])
            ones = ir.Part("dot", put(f"{name}.mask.q", rows), put(f"{name}.mask.k", rows))
            masks = (ir.Mask(">", ir.Score((ones,))),)
        short = name.rsplit(".", 2)[-2]
        weighting, values = ir.Weighting("argmax", "split"), put(f"{name}.v", value)
        return ir.Head(f"{short}.{stream}", stream, stream, ir.Score((part,)), weighting, values, masks, writes=written)
