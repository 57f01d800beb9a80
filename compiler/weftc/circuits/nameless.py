"""A model without its words: no spec, no equations, and `a1, s1, h1, t1` for sets, slots, heads and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
    FFN,
    Attend,
    Embed,
    Head,
    Input,
    Part,
    Program,
    ProgramOutput,
    SelfKey,
    Slot,
    Stream,
)

SETS = {"stream", "query", "keys"}  # fields that name a token set
TENSORS = {FFN: {"carry", "a", "b", "out"}, Part: {"q", "k", "coefficient"}, SelfKey: {"value", "row"}}
TENSORS |= {Head: {"value"}, ProgramOutput: {"scale"}}
TEXTS = {"origin", "meaning", "text"}


def nameless(checkpoint: Checkpoint) -> Checkpoint:
    """The same matrices with the same wiring, under names that say nothing."""
    words = _Words(checkpoint)
    program = words.program(checkpoint.program)
    tensors = {words.tensors[name]: checkpoint.tensors[name] for name in checkpoint.tensors}
    return Checkpoint(program, tensors, compiler=checkpoint.compiler)


def _numbered(names: Any, letter: str) -> dict[Any, str]:
    return {name: f"{letter}{number}" for number, name in enumerate(dict.fromkeys(names), start=1)}


class _Words:
    def __init__(self, checkpoint: Checkpoint) -> None:
        program = checkpoint.program
        self.sets = _numbered((stream.name for stream in program.streams), "a")
        places = _numbered(((stream.name, slot.name) for stream in program.streams for slot in stream.slots), "s")
        self.slots = {home: {slot: new for (one, slot), new in places.items() if one == home} for home in self.sets}
        self.tensors = _numbered(program.tensors(), "t")
        self.inputs = _numbered((one.name for one in (*program.inputs, *program.noises)), "i")
        self.outputs = _numbered((one.name for one in program.answers()), "o")
        self.heads = 0

    def program(self, program: Program) -> Program:
        basis = {self.sets[name]: self.tensors[tensor] for name, tensor in program.basis.items()}
        renamed: Program = self.part(program, "")
        return replace(renamed, basis=basis, options={"weights": "unrolled"} if program.unrolled else {})

    def part(self, item: Any, home: str) -> Any:
        """Any part of a program, renamed. `home` is the set whose slots it names."""
        if isinstance(item, tuple):
            return tuple(self.part(one, home) for one in item)
        if not is_dataclass(item):
            return item
        if isinstance(item, Stream):
            home = item.name
        elif not isinstance(item, Program):
            home = getattr(item, "query", getattr(item, "stream", home))
        changed: dict[str, Any] = {}
        for field in fields(item):
            changed[field.name] = self.field(item, field.name, getattr(item, field.name), home)
        return replace(item, **changed)  # type: ignore[type-var]

    def field(self, item: Any, name: str, value: Any, home: str) -> Any:
        if name in TEXTS or value in ("", None):
            return "" if name in TEXTS else value
        if name in TENSORS.get(type(item), ()):
            return self.tensors[value]
        if name in SETS:
            return self.sets[value]
        match name:
            case "equations":
                return ()
            case "name":
                return self.name(item, value, home)
            case "slot":
                return self.slots[home][value]
            case "slots" if isinstance(value, tuple) and all(isinstance(one, str) for one in value):
                return tuple(self.slots[home][one] for one in value)
            case "writes" if isinstance(item, FFN | Head):
                return tuple(self.slots[home][one] for one in value)
            case "writes":
                return tuple((self.sets[stream], self.slots[stream][slot]) for stream, slot in value)
            case "carry" if isinstance(item, Attend):
                return {self.sets[stream]: self.tensors[tensor] for stream, tensor in value.items()}
            case "source" if isinstance(item, Embed):
                return self.inputs[value] if item.kind in ("input", "noise") else self.sets[value]
            case "scale" if isinstance(item, Part):
                return value[0], self.tensors[value[1]]
            case "init":
                return None
        return value if isinstance(value, Mapping) else self.part(value, home)

    def name(self, item: Any, value: str, home: str) -> str:
        if isinstance(item, Stream):
            return self.sets[value]
        if isinstance(item, Head):
            self.heads += 1
            return f"h{self.heads}"
        if isinstance(item, Input):
            return self.inputs[value]
        if isinstance(item, ProgramOutput):
            return self.outputs[value]
        return self.slots[home][value] if isinstance(item, Slot) else "model"
