"""A checkpoint without its words: spec, parameters, and names of streams, slots, heads, inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

from weftc.decompiler.labels import Renaming
from weftc_runtime import Checkpoint
from weftc_runtime.format.codec import decode_program, encode
from weftc_runtime.format.program import Program


def anonymous(made: Checkpoint) -> Checkpoint:
    """The same weights and wiring; every name is a number, no text is left."""
    names: dict[str, str] = {}
    program = made.program
    for stream in program.streams:
        names[stream.name] = f"stream{len(names)}"
    for given in (*program.inputs, *program.noises):
        names[given.name] = f"given{len(names)}"
    slots = {(s.name, slot.name): f"z{n}" for s in program.streams for n, slot in enumerate(s.slots)}
    return replace(
        made,
        program=_renamed(program, names, slots),
        spec_name="",
        spec_text="",
        dims={},
        params={},
    )


def _renamed(program: Program, names: dict[str, str], slots: dict[tuple[str, str], str]) -> Program:
    outputs = {one.name: f"answer{n}" for n, one in enumerate(program.outputs)}
    changed = Renaming(names, names, slots, outputs).program(program)
    return decode_program(encode(replace(changed, name="nothing", options={})))
