"""Attention normal form -> the whole transformer program: streams, embedding, steps with their refreshes, outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from weftc.core import syntax as ast
from weftc.core.types import FieldType
from weftc.emit.layout import is_constant, layouts
from weftc.emit.matrices import Array
from weftc.emit.sublayers import Emitter
from weftc.language.check.check import type_of
from weftc.normal.form import NormalForm, is_leaf
from weftc.normal.slots import OBJECTIVE, Leaf, NormalSlot, sources
from weftc.passes.allocate import Allocated, allocate
from weftc.passes.schedule import ScheduledHead
from weftc_runtime.format import program as ir
from weftc_runtime.format.structure import Tensors

EMBEDDED: dict[str, Literal["one", "identity", "position"]] = {
    "one": "one",
    "name": "identity",
    "position": "position",
}


@dataclass(frozen=True, slots=True)
class Transformer:
    """A program and its weights."""

    program: ir.Program
    tensors: Mapping[str, Array]


def build(normal: NormalForm, layers: int | None) -> Transformer:
    """Writes the program of a normal form. `layers` None: nobody asked for a number, so it is 1."""
    return _Builder(normal).build(1 if layers is None else layers, asked=layers is not None)


class _Builder:
    def __init__(self, normal: NormalForm) -> None:
        self.normal, self.checked = normal, normal.checked
        self.sections = allocate(normal)
        self.layout = layouts(normal, self.sections)
        self.emitter = Emitter(normal, self.layout)
        self.own = [slot for layout in self.layout.values() for slot in layout.names]

    def build(self, layers: int, asked: bool) -> Transformer:
        checked, normal = self.checked, self.normal
        fields = checked.fields.values()
        start, layer_, outputs = self.sections
        ready = {s for s in self.own if is_constant(s) or self._role(s) == "input"}
        prelude = self._refresh_step(ready, ready)
        prelude += self._steps("start", start, ready)
        noisy = {s for s in self.own if self._role(s) == "random"}
        ready |= noisy
        first = self._refresh_step(noisy, ready) if noisy else ()
        unrolled = normal.styles.weights == "unrolled"
        layer: tuple[ir.ProgramStep, ...] = ()
        for n in range(layers if unrolled else 1):
            layer += first + self._steps(f"layer.{n}" if unrolled else "layer", layer_, ready)
        readout = self._steps("outputs", outputs, ready, refresh=False)
        objective = None
        if normal.objective:
            slot, is_sum = normal.objective
            objective = ir.ProgramOutput(OBJECTIVE, "total" if is_sum else "common", slot.stream, OBJECTIVE)
        program = ir.Program(
            name=checked.spec.name,
            streams=tuple(self._stream(name) for name in checked.sets),
            inputs=tuple(self._input(f) for f in fields if f.role == "input"),
            noises=tuple(self._input(f) for f in fields if f.role == "random"),
            embedding=self._embedding(),
            prelude=prelude,
            layer=layer,
            readout=readout,
            outputs=tuple(self._output(o, len(first)) for o in checked.spec.outputs),
            layers=layers,
            objective=objective,
            conditions=self.emitter.conditions,
            options={**normal.styles.recorded, "layers": "asked" if asked else "default"},
            pairs=tuple(
                ir.PairEntries(p.values, p.row, p.column, p.rows, p.columns, p.complete) for p in checked.spec.pairs
            ),
        )
        return Transformer(program, Tensors(self.emitter.tensors))

    def _role(self, slot: NormalSlot) -> str:
        """How a slot gets its values, if it is a field."""
        assert isinstance(slot.content, Leaf) or not is_leaf(slot, "field")
        return self.checked.fields[slot.content.name].role if is_leaf(slot, "field") else ""  # type: ignore[union-attr]

    # ---- steps

    def _steps(
        self, prefix: str, steps: tuple[Allocated, ...], ready: set[NormalSlot], refresh: bool = True
    ) -> tuple[ir.ProgramStep, ...]:
        """The steps of a section, each followed by the derived slots it has to refresh; `ready` grows."""
        out = []
        for n, step in enumerate(steps):
            at = self.emitter.step(step)
            sublayers: list[ir.Sublayer] = [
                at.sublayer(part, f"{prefix}.{n}.{m}") for m, part in enumerate(step.schedule)
            ]
            written = {*step.step.writes, *(t for t, _ in step.step.commit if is_leaf(t, "centre"))}
            ready |= written
            if refresh:
                sublayers += self._refresh(written, ready)
            names = tuple((s.stream, at.name(s)) for s in step.step.writes)
            out.append(ir.ProgramStep(tuple(sublayers), names, step.step.equations))
        return tuple(out)

    def _refresh_step(self, changed: set[NormalSlot], ready: set[NormalSlot]) -> tuple[ir.ProgramStep, ...]:
        ffns = self._refresh(changed, ready)
        return (ir.ProgramStep(tuple(ffns)),) if ffns else ()

    def _refresh(self, changed: set[NormalSlot], ready: set[NormalSlot]) -> list[ir.FFN]:
        """Derived slots that read something changed, once all they read is there."""
        bases = ((ffn, _leaves(slot)) for slot, ffn in self.emitter.ffns.items())
        return [ffn for ffn, base in bases if (base & changed or not base) and base <= ready]

    # ---- declarations

    def _stream(self, name: str) -> ir.Stream:
        derived = tuple(ffn for slot, ffn in self.emitter.ffns.items() if slot.stream == name)
        return ir.Stream(name, self.normal.size(name), self.layout[name].slots, derived, name in self.normal.nulls)

    def _input(self, f: FieldType) -> ir.Input:
        declared = next(d for d in (*self.checked.spec.inputs, *self.checked.spec.random) if d.target.name == f.name)
        low, high = (f.bound.low, f.bound.high) if f.bound else (None, None)
        init = (declared.init.kind, declared.init.of) if declared.init else None
        kind = "onehot" if f.kind == "symbol" else f.kind
        return ir.Input(f.name, f.home, f.name, kind, low, high, init, f.symbols)

    def _embedding(self) -> tuple[ir.Embed, ...]:
        out = []
        for f in self.checked.fields.values():
            if f.role in ("input", "random"):
                out.append(ir.Embed("input" if f.role == "input" else "noise", f.home, f.name, f.name))
        for slot in filter(is_constant, self.own):
            leaf, name = slot.content, self.layout[slot.stream].names[slot]
            assert isinstance(leaf, Leaf)
            if leaf.kind == "null":
                out.append(ir.Embed("null", slot.stream, name, leaf.name, leaf.power))
            elif leaf.kind == "count":
                out.append(ir.Embed("count", slot.stream, name, leaf.name))
            else:
                out.append(ir.Embed(EMBEDDED[leaf.kind], slot.stream, name))
        return tuple(out)

    # ---- outputs

    def _output(self, o: ast.Output, shift: int) -> ir.ProgramOutput:
        name = o.target.name
        if not o.target.indices:
            assert isinstance(o.body, ast.Ref)
            field = self.checked.fields[o.body.name]
            stale = self.normal.graph.is_stale(field.name)
            again = None if stale is None else stale + shift
            return ir.ProgramOutput(name, _shape(field), field.home, field.name, again=again, symbols=field.symbols)
        stream = self.checked.index[o.target.indices[0]]
        for step in self.sections[2]:
            for n, pattern in enumerate(step.step.patterns):
                if pattern.name == name:
                    at, place = self.emitter.step(step), f"outputs.pattern.{n}.{name}"
                    head = at.head(ScheduledHead(pattern.head, {}), place)
                    scale = self.emitter.put(f"{place}.scale", at.columns[stream].row(pattern.scale))
                    return ir.ProgramOutput(name, "pattern", stream, head=head, scale=scale)
        if len(o.target.indices) == 2:
            return ir.ProgramOutput(name, "pair", stream, f"={name}")
        found = type_of(self.checked, o.body, o.target.indices)
        kind: Literal["number", "vector", "onehot"] = "number" if found.width is None else "vector"
        kind = "onehot" if found.symbols else kind
        return ir.ProgramOutput(name, kind, stream, f"={name}", symbols=found.symbols)


def _leaves(slot: NormalSlot) -> set[NormalSlot]:
    """The fields and constants a derived slot goes back to."""
    return {slot} if isinstance(slot.content, Leaf) else set().union(*(_leaves(s) for s in sources(slot)))


def _shape(f: FieldType) -> Literal["number", "vector", "pair", "onehot"]:
    if f.is_pair:
        return "onehot" if f.kind == "onehot" else "pair"
    if f.symbols:
        return "onehot"
    return "number" if f.width is None else "vector"
