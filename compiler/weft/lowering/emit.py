"""Attention normal form -> transformer program and its weights.

Slots get columns, steps become sub-layers, linear forms become dense matrices. When a step has one level of heads and
no token-wise maps, its commit is folded into them: E := M, V := M V, and the scratch slots disappear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from weft.errors import InputError
from weft.lowering.conditions import conditions
from weft.lowering.lower import NormalForm
from weft.lowering.matrices import Array, Columned, float_parts, into, lifted
from weft.lowering.normal import (
    EXACT,
    NAME,
    ONE,
    POSITION,
    Derived,
    Form,
    Forms,
    NormalHead,
    NormalScore,
    NormalStep,
    counted,
)
from weft.source import Source, Span
from weft_runtime import ir


@dataclass(frozen=True, slots=True)
class Block:
    """Heads that run side by side, after folding: what they and the carry write."""

    heads: tuple[NormalHead, ...]
    sets: Mapping[str, Forms] = field(default_factory=dict)  # stream -> slot -> form of the old residual


def blocks(step: NormalStep) -> Iterator[Block | Derived]:
    """The sub-layers of a step in order."""
    heads = [h for h in step.heads if h.writes]
    scratch = {(h.query, s) for h in heads for s in h.writes}
    if not step.local and all(h.level == 1 for h in heads):
        yield _folded(step, heads, scratch)
        return
    for level in range(1, max([h.level for h in heads] + [d.level for d in step.local]) + 1):
        side_by_side = tuple(h for h in heads if h.level == level)
        if side_by_side:
            yield Block(side_by_side)
        yield from (d for d in step.local if d.level == level)
    sets: dict[str, Forms] = {stream: dict(forms) for stream, forms in step.commit.items()}
    for stream, slot in sorted(scratch | {(d.stream, d.slot) for d in step.local}):
        sets.setdefault(stream, {})[slot] = {}
    yield Block((), sets)


def _folded(step: NormalStep, heads: list[NormalHead], scratch: set[tuple[str, str]]) -> Block:
    sets: dict[str, Forms] = {}
    for stream, forms in step.commit.items():
        sets[stream] = {t: {s: c for s, c in f.items() if (stream, s) not in scratch} for t, f in forms.items()}
    folded = []
    for h in heads:
        commit = step.commit.get(h.query, {})
        values = {t: _through(f, h.values) for t, f in commit.items()}
        own = {t: _through(f, h.own) for t, f in commit.items()}
        number = {
            t: sum((c * h.number[s] for s, c in f.items() if s in h.number), Fraction(0)) for t, f in commit.items()
        }
        folded.append(
            replace(
                h,
                values={t: f for t, f in values.items() if f},
                own={t: f for t, f in own.items() if f},
                number={t: c for t, c in number.items() if c},
            )
        )
    return Block(tuple(h for h in folded if h.writes), sets)


def _through(form: Form, table: Mapping[str, Form]) -> Form:
    """A form of scratch slots, each replaced by what is written to it."""
    out: dict[str, Fraction] = {}
    for slot, c in form.items():
        for source, v in table.get(slot, {}).items():
            out[source] = out.get(source, Fraction(0)) + c * v
    return {s: c for s, c in out.items() if c}


class Emitter:
    """Writes the program of one normal form."""

    def __init__(self, normal: NormalForm) -> None:
        self.normal = normal
        self.source: Source = normal.algorithm.checked.spec.source
        self.tensors: dict[str, Array] = {}
        self.distinct: dict[str, None] = {}  # open streams that are erased by self-attention
        self.sharp: dict[tuple[str, int | None], Fraction] = {}  # choices at finite temperature: stream, candidates
        self.used: dict[str, dict[str, None]] = {stream: {} for stream in normal.algorithm.checked.sets}
        self.sections = {
            "start": [list(blocks(s)) for s in normal.prelude],
            "layer": [list(blocks(s)) for s in normal.layer],
            "outputs": [list(blocks(s)) for s in normal.readout],
        }
        self._collect()
        self.columns = {stream: Columned(self._layout(stream)) for stream in normal.algorithm.checked.sets}
        self.ffns = {key: self._ffn(d, f"derived.{d.stream}.{n}") for n, (key, d) in enumerate(self.kept.items())}

    # ---- which slots there are

    def _collect(self) -> None:
        """Notes every slot that is read or written; derived slots that nobody reads are left out."""
        for name, f in self.normal.algorithm.checked.fields.items():
            self.used[f.home][name] = None
        if self.normal.styles.erase == "attention":
            self.used = {stream: {**slots, **self._names(stream)} for stream, slots in self.used.items()}
        for section in self.sections.values():
            for step in section:
                for block in step:
                    self._note(block)
        for normal_step in self.normal.readout:
            for pattern in normal_step.patterns:
                self._note(Block((pattern.head,)))
                self.used[pattern.head.query].update(dict.fromkeys(pattern.scale))
        wanted: dict[tuple[str, str], Derived] = {}
        for key, d in reversed(list(self.normal.derived.items())):  # later ones read earlier ones
            if d.slot in self.used[d.stream]:
                self.used[d.stream].update(dict.fromkeys(d.sources))
                wanted[key] = d
        self.kept = dict(reversed(list(wanted.items())))
        for slots in self.used.values():
            if not slots:  # tokens that nobody reads are still there to be counted
                slots[ONE] = None

    def _names(self, stream: str) -> dict[str, None]:
        """What tokens find themselves by: their one-hot names, or what they look like."""
        if stream not in self.normal.looks:
            return {NAME: None}
        looks, squares = self.normal.looks[stream]
        return dict.fromkeys((*looks, *squares, *([ONE] if squares else [])))

    def _note(self, block: Block | Derived) -> None:
        if isinstance(block, Derived):
            self.used[block.stream].update(dict.fromkeys((block.slot, *block.sources)))
            return
        for stream, forms in block.sets.items():
            for target, form in forms.items():
                self.used[stream].update(dict.fromkeys((target, *form)))
        for h in block.heads:
            sides = {"query": h.query, "key": h.keys}
            for score in (h.score, *(m.score for m in h.masks)):
                for side, slot in score.slots():
                    self.used[sides[side]][slot] = None
            self.used[h.query].update(dict.fromkeys(h.writes))
            for form in h.values.values():
                self.used[h.keys].update(dict.fromkeys(form))
            for form in (*h.own.values(), *((h.self_key,) if isinstance(h.self_key, Mapping) else ())):
                self.used[h.query].update(dict.fromkeys(form))

    def role(self, stream: str, slot: str) -> ir.Roles:
        if slot in self.normal.algorithm.checked.fields and self.normal.algorithm.checked.fields[slot].home == stream:
            return "field"
        constant = slot in (ONE, NAME, POSITION) or (stream, slot) in self.normal.shifts
        sets = self.normal.algorithm.checked.sets
        if constant or counted(slot, sets) or slot in self.normal.nulls.get(stream, {}):
            return "constant"
        return "derived" if (stream, slot) in self.kept else "scratch"

    def _layout(self, stream: str) -> dict[str, tuple[int, int]]:
        order = ("field", "constant", "derived", "scratch")
        names = sorted(self.used[stream], key=lambda s: order.index(self.role(stream, s)))
        widths, out, at = self.normal.widths[stream], {}, 0
        for name in names:
            out[name] = (at, widths[name])
            at += widths[name]
        return out

    # ---- tensors

    def put(self, name: str, array: Array) -> str:
        self.tensors[name] = np.asarray(array, dtype=np.float64, order="C")
        return name

    def origin(self, span: Span) -> str:
        """Where in the spec something comes from: line and text, no file name (a checkpoint has no paths in it)."""
        line, _ = self.source.position(span.start)
        return f"line {line}: {self.source.said(span)}"

    def _ffn(self, d: Derived, name: str) -> ir.FFN:
        columns = self.columns[d.stream]
        widths = {slot: w for slot, (_, w) in columns.columns.items()}
        one = Fraction(1)
        function, b = d.function, None
        if function in ("outer", "product", "dot", "contract"):
            a = columns.rows([({d.a: one}, widths[d.a])])
            b = columns.rows([({d.b: one}, widths[d.b])])
            if function == "outer":
                a, b, mix = np.repeat(a, len(b), 0), np.tile(b, (len(a), 1)), np.eye(d.width)
            elif function == "contract":
                a, mix = np.repeat(a, d.width, 0), np.tile(np.eye(d.width), widths[d.a])
            else:
                mix = np.ones((1, len(a))) if function == "dot" else np.eye(d.width)
            function = "product"
            if self.normal.styles.square == "relu2" and np.array_equal(a, b):
                function, a, b, mix = "relu2", np.concatenate([a, -a]), None, np.concatenate([mix, mix], axis=1)
        else:
            a, mix = columns.rows([(d.form, d.width)]), np.eye(d.width)
            if function == "unit" and d.fallback is not None:
                b = columns.rows([(d.fallback, d.width)])
            if function == "unit" and self.normal.styles.norm == "layer":
                mix = lifted(np.eye(d.width)).T
                function, a, b = "layer", lifted(a), None if b is None else lifted(b)
            elif function == "select":
                b = columns.rows([(d.fallback or {}, d.width), ({d.flag: one}, 1)])
        out = np.zeros((columns.width, mix.shape[1]))
        columns.write(out, d.slot, mix)
        return ir.FFN(
            d.stream,
            function,  # type: ignore[arg-type]
            self.put(f"{name}.carry", columns.carry([d.slot])),
            self.put(f"{name}.a", a),
            None if b is None else self.put(f"{name}.b", b),
            self.put(f"{name}.out", out),
            (d.slot,),
            self.origin(d.span),
        )

    def _score(self, score: NormalScore, h: NormalHead, name: str, exact: bool) -> ir.Score:
        """Dot parts are stacked into one Q and K; a coefficient that is no float gets further rows, if it decides."""
        query, key = self.columns[h.query], self.columns[h.keys]
        parts: list[ir.Part] = []
        pairs: list[tuple[Form, Form, int]] = []
        for dot in score.dots:
            queries = float_parts(dot.query) if exact else [dot.query]
            keys = float_parts(dot.key) if exact else [dot.key]
            pairs += [(qf, kf, dot.width) for qf in queries for kf in keys]
        if pairs:
            q = self.put(f"{name}.q", query.rows([(p[0], p[2]) for p in pairs]))
            k = self.put(f"{name}.k", key.rows([(p[1], p[2]) for p in pairs]))
            parts.append(ir.Part("dot", q, k))
        for n, l2 in enumerate(score.l2s):
            q = self.put(f"{name}.l2.{n}.q", query.rows([(form, width) for form, _, width in l2.rows]))
            k = self.put(f"{name}.l2.{n}.k", key.rows([(form, width) for _, form, width in l2.rows]))
            scale = None
            if l2.scale:
                side, slot = l2.scale
                row = (query if side == "query" else key).row({slot: Fraction(1)})
                scale = side, self.put(f"{name}.l2.{n}.scale", row)
            coefficients = float_parts({ONE: l2.coefficient}) if exact else [{ONE: l2.coefficient}]
            for m, c in enumerate(coefficients):
                value = self.put(f"{name}.l2.{n}.c{m or ''}", np.array(float(c[ONE])))
                parts.append(ir.Part("l2", q, k, value, scale))
        return ir.Score(tuple(parts))

    def head(self, h: NormalHead, name: str) -> ir.Head:
        query, key = self.columns[h.query], self.columns[h.keys]
        rule = h.rule
        score = self._score(h.score, h, name, rule.kind in EXACT)
        masks = tuple(ir.Mask(m.op, self._score(m.score, h, f"{name}.mask.{n}", True)) for n, m in enumerate(h.masks))
        if rule.kind in ("lse", "max"):
            column = np.zeros((query.width, 1))
            for slot, c in h.number.items():
                query.write(column, slot, np.full((query.columns[slot][1], 1), float(c)))
            value = self.put(f"{name}.v", column)
        else:
            value = self.put(f"{name}.v", into(query, key, h.values))
        self_key = None
        if h.self_key is not None:
            own = self.put(f"{name}.self.v", into(query, query, h.own))
            row = None if h.self_key == "last" else self.put(f"{name}.self.q", query.row(h.self_key))
            self_key = ir.SelfKey(own, row)
        weighting = ir.Weighting(
            rule.kind,  # type: ignore[arg-type]
            rule.ties,
            rule.epsilon,
            rule.count,
            rule.percent,
            rule.gamma,
            rule.sharpness,
        )
        if rule.sharpness is not None:
            size = self.normal.algorithm.checked.sets[h.keys]
            keys = self.normal.dims[size] if isinstance(size, str) else size
            self.sharp[h.query, keys] = rule.sharpness
        short = name.rsplit(".", 1)[-1]
        return ir.Head(short, h.query, h.keys, score, weighting, value, masks, self_key, h.writes, self.origin(h.span))

    def _self_attention(self, stream: str, slots: tuple[str, ...], value: Array, name: str) -> ir.Head:
        """A head by which every token finds itself: by its name, or if no other looks the same, by -|x - x'|^2 or
        <x, 2x'> - |x'|^2."""
        columns, one = self.columns[stream], Fraction(1)
        widths = {slot: width for slot, (_, width) in columns.columns.items()}
        looks, squares = ((NAME,), ()) if stream not in self.normal.looks else self._looks(stream)
        query = key = [({slot: one}, widths[slot]) for slot in looks]
        if squares:
            query = [*query, ({ONE: -one}, 1)]
            key = [*(({slot: 2 * one}, widths[slot]) for slot in looks), (dict.fromkeys(squares, one), 1)]
        q, k = self.put(f"{name}.q", columns.rows(query)), self.put(f"{name}.k", columns.rows(key))
        part = ir.Part("dot", q, k)
        if stream in self.normal.looks:
            self.distinct[stream] = None
            if not squares:
                part = ir.Part("l2", q, k, self.put(f"{name}.c", np.array(-1.0)))
        masks: tuple[ir.Mask, ...] = ()
        if stream in self.normal.nulls:  # a token at the origin looks like the null token
            rows = columns.rows([({ONE: one}, 1)])
            ones = ir.Part("dot", self.put(f"{name}.mask.q", rows), self.put(f"{name}.mask.k", rows.copy()))
            masks = (ir.Mask(">", ir.Score((ones,))),)
        short = name.rsplit(".", 2)[-2]
        weighting, values = ir.Weighting("argmax", "split"), self.put(f"{name}.v", value)
        return ir.Head(f"{short}.{stream}", stream, stream, ir.Score((part,)), weighting, values, masks, writes=slots)

    def _looks(self, stream: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = self.normal.looks[stream]
        if not found[0]:
            raise InputError(
                f"erase=attention needs tokens that differ, but {stream} has no input of its own; use erase=linear"
            )
        return found

    @property
    def conditions(self) -> tuple[ir.Condition, ...]:
        """What has to hold for the program to equal its spec; complete once all sub-layers are written."""
        looks = {stream: self._looks(stream)[0] for stream in self.distinct}
        return conditions(self.normal.bounded, self.sharp, looks)

    def sublayer(self, block: Block | Derived, name: str) -> ir.Sublayer:
        if isinstance(block, Derived):
            return self._ffn(block, name)
        streams = [s for s in self.columns if s in block.sets or any(h.query == s for h in block.heads)]
        carry = {}
        named: dict[str, int] = {}
        heads = []
        for stream in streams:
            columns, sets = self.columns[stream], block.sets.get(stream, {})
            kept, moved = columns.carry(sets), into(columns, columns, sets)
            if self.normal.styles.erase == "attention" and sets:
                # what a slot held is taken off before anything is added: only then nothing is rounded away
                old = kept - np.eye(columns.width)
                heads.append(self._self_attention(stream, tuple(sets), old, f"{name}.erase.{stream}"))
                if moved.any():
                    filled = tuple(slot for slot, form in sets.items() if form)
                    heads.append(self._self_attention(stream, filled, moved, f"{name}.move.{stream}"))
                kept, moved = np.eye(columns.width), np.zeros_like(moved)
            carry[stream] = self.put(f"{name}.carry.{stream}", kept + moved)
        for h in block.heads:
            base = "+".join(h.writes).replace(" ", "_")
            named[base] = named.get(base, 0) + 1
            heads.append(self.head(h, f"{name}.{base}" + (f"'{named[base]}" if named[base] > 1 else "")))
        writes = tuple((s, t) for s, forms in block.sets.items() for t in forms)
        return ir.Attend(carry, tuple(heads), writes)
