"""Attention normal form -> the whole transformer program: streams, embedding, steps with their refreshes, outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from weft import syntax as ast
from weft.language.check import type_of
from weft.lowering.emit import Emitter
from weft.lowering.lower import OBJECTIVE, NormalForm
from weft.lowering.matrices import Array
from weft.lowering.normal import NAME, ONE, POSITION, NormalStep, counted
from weft.types import FieldType
from weft_runtime import ir

Place = tuple[str, str]  # stream, slot


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
        self.normal, self.checked = normal, normal.algorithm.checked
        self.emitter = Emitter(normal)

    def build(self, layers: int, asked: bool) -> Transformer:
        checked, emitter = self.checked, self.emitter
        fields = checked.fields.values()
        ready = {(f.home, f.name) for f in fields if f.role == "input"} | set(self._constants())
        prelude = self._refresh_step(ready, ready)
        prelude += self._steps("start", self.normal.prelude, ready)
        noisy = {(f.home, f.name) for f in fields if f.role == "random"}
        ready |= noisy
        first = self._refresh_step(noisy, ready) if noisy else ()
        unrolled = self.normal.styles.weights == "unrolled"
        layer: tuple[ir.Step, ...] = ()
        for n in range(layers if unrolled else 1):
            layer += first + self._steps("layer", self.normal.layer, ready, f"layer.{n}" if unrolled else "layer")
        shift = len(first)
        readout = self._steps("outputs", self.normal.readout, ready)
        objective = None
        if self.normal.objective:
            stream, slot, is_sum = self.normal.objective
            objective = ir.Output(OBJECTIVE, "total" if is_sum else "common", stream, slot)
        program = ir.Program(
            name=checked.spec.name,
            streams=tuple(self._stream(name) for name in checked.sets),
            inputs=tuple(self._input(f) for f in fields if f.role == "input"),
            noises=tuple(self._input(f) for f in fields if f.role == "random"),
            embedding=self._embedding(),
            prelude=prelude,
            layer=layer,
            readout=readout,
            outputs=tuple(self._output(o, shift) for o in checked.spec.outputs),
            layers=layers,
            objective=objective,
            conditions=emitter.conditions,
            options={**self.normal.styles.recorded, "layers": "asked" if asked else "default"},
        )
        return Transformer(program, MappingProxyType(emitter.tensors))

    # ---- steps

    def _steps(
        self, title: str, steps: tuple[NormalStep, ...], ready: set[Place], prefix: str = ""
    ) -> tuple[ir.Step, ...]:
        """The steps of a section, each followed by the derived slots it has to refresh; `ready` grows."""
        out = []
        for n, (step, blocks) in enumerate(zip(steps, self.emitter.sections[title], strict=True)):
            sublayers: list[ir.Sublayer] = [
                self.emitter.sublayer(b, f"{prefix or title}.{n}.{m}") for m, b in enumerate(blocks)
            ]
            written = set(step.writes) | (self.normal.shifts if title == "start" and n == 0 else frozenset())
            ready |= written
            if title != "outputs":
                sublayers += self._refresh(written, ready)
            out.append(ir.Step(tuple(sublayers), tuple(step.writes), tuple(step.equations)))
        return tuple(out)

    def _refresh_step(self, changed: set[Place], ready: set[Place]) -> tuple[ir.Step, ...]:
        ffns = self._refresh(changed, ready)
        return (ir.Step(tuple(ffns)),) if ffns else ()

    def _refresh(self, changed: set[Place], ready: set[Place]) -> list[ir.FFN]:
        """Derived slots that read something changed, once all they read is there."""
        out = []
        for key, ffn in self.emitter.ffns.items():
            base = self._base(*key)
            if base & changed and base <= ready:
                out.append(ffn)
        return out

    def _base(self, stream: str, slot: str) -> set[Place]:
        """The fields and constants a derived slot goes back to."""
        derived = self.emitter.kept.get((stream, slot))
        if derived is None:
            return {(stream, slot)}
        return set().union(*(self._base(stream, s) for s in derived.sources)) or {(stream, ONE)}

    # ---- declarations

    def _constants(self) -> list[Place]:
        return [
            (s, slot)
            for s in self.checked.sets
            for slot in self.emitter.used[s]
            if self.emitter.role(s, slot) == "constant" and (s, slot) not in self.normal.shifts
        ]

    def _stream(self, name: str) -> ir.Stream:
        columns = self.emitter.columns[name].columns
        slots = tuple(
            ir.Slot(slot, offset, width, self.emitter.role(name, slot), slot)
            for slot, (offset, width) in columns.items()
        )
        size = self.checked.sets[name]
        fixed = self.normal.dims[size] if isinstance(size, str) else size
        derived = tuple(ffn for (stream, _), ffn in self.emitter.ffns.items() if stream == name)
        return ir.Stream(name, fixed, slots, derived, name in self.normal.nulls)

    def _input(self, f: FieldType) -> ir.Input:
        declared = next(d for d in (*self.checked.spec.inputs, *self.checked.spec.random) if d.target.name == f.name)
        low, high = (f.bound.low, f.bound.high) if f.bound else (None, None)
        init = (declared.init.kind, declared.init.of) if declared.init else None
        return ir.Input(f.name, f.home, f.name, f.kind, low, high, init)

    def _embedding(self) -> tuple[ir.Embed, ...]:
        out = []
        for f in self.checked.fields.values():
            if f.role in ("input", "random"):
                out.append(ir.Embed("input" if f.role == "input" else "noise", f.home, f.name, f.name))
        for stream, slot in self._constants():
            if slot in self.normal.nulls.get(stream, {}):
                source, power = self.normal.nulls[stream][slot]
                out.append(ir.Embed("null", stream, slot, source, power))
            elif counted(slot, self.checked.sets):
                out.append(ir.Embed("count", stream, slot, slot[1:]))
            else:
                kinds = {ONE: "one", NAME: "identity", POSITION: "position"}
                out.append(ir.Embed(kinds[slot], stream, slot))  # type: ignore[arg-type]
        return tuple(out)

    # ---- outputs

    def _output(self, o: ast.Output, shift: int) -> ir.Output:
        name = o.target.name
        if not o.target.indices:
            assert isinstance(o.body, ast.Ref)
            field = self.checked.fields[o.body.name]
            stale = self.normal.algorithm.is_stale(field.name)
            return ir.Output(
                name, _shape(field), field.home, field.name, again=None if stale is None else stale + shift
            )
        stream = self.checked.index[o.target.indices[0]]
        for step in self.normal.readout:
            for n, pattern in enumerate(step.patterns):
                if pattern.name == name:
                    head = self.emitter.head(pattern.head, f"outputs.pattern.{n}.{name}")
                    row = self.emitter.columns[stream].row(pattern.scale)
                    scale = self.emitter.put(f"outputs.pattern.{n}.{name}.scale", row)
                    return ir.Output(name, "pattern", stream, head=head, scale=scale)
        slot = f"={name}"
        if len(o.target.indices) == 2:
            return ir.Output(name, "pair", stream, slot)
        number = type_of(self.checked, o.body, o.target.indices).width is None
        return ir.Output(name, "number" if number else "vector", stream, slot)


def _shape(f: FieldType) -> Literal["number", "vector", "pair", "onehot"]:
    if f.is_pair:
        return "onehot" if f.kind == "onehot" else "pair"
    return "number" if f.width is None else "vector"
