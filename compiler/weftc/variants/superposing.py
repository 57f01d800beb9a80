"""Slots in fewer dimensions: what other columns already say has no column of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from weftc.variants.drawing import Array
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import Program, Slot, Stream
from weftc_runtime.format.writes import stated


def superposed(checkpoint: Checkpoint) -> Checkpoint:
    """The model without the constant 1 where tokens have one-hot names: it is the sum of the name's columns.

    With z = S z' (a row of ones over the name in place of the 1) and z' = R z (the 1 left out), Q z is (Q S) z', and
    what is written is R W. R S = I, so that residuals stay equal, step by step. A stream is left as it is where adding
    columns would round, where the file has given it a basis, or where its 1 is more than a constant.
    """
    program, tensors = checkpoint.program, dict(checkpoint.tensors)
    for stream in program.streams:
        places = {embed.kind: embed.slot for embed in program.embedding if embed.stream == stream.name}
        if stream.name in program.basis or not {"one", "identity"} <= places.keys() or stream.null:
            continue
        made = _without(program, tensors, stream, stream.slot(places["one"]), stream.slot(places["identity"]))
        if made is not None:
            program, tensors = made
    used = program.tensors()
    return replace(checkpoint, program=program, tensors={name: tensors[name] for name in tensors if name in used})


def _without(
    program: Program, tensors: Mapping[str, Array], stream: Stream, one: Slot, name: Slot
) -> tuple[Program, dict[str, Array]] | None:
    """The program without the slot `one` of a stream; None where a number would be rounded."""
    if any(output.slot == one.name and output.stream == stream.name for output in program.answers()):
        return None
    kept = [column for column in range(stream.width) if column != one.offset]
    back = np.eye(stream.width)[:, kept]
    back[one.offset, [kept.index(column) for column in range(name.offset, name.offset + name.width)]] = 1.0
    made = dict(tensors)
    for tensor, uses in program.tensors().items():
        array = np.asarray(tensors[tensor])
        sides = {(use.rows == stream.name, use.columns == stream.name) for use in uses}
        if len(sides) > 1:
            return None
        rows, columns = sides.pop()
        if columns:
            moved = array @ back
            if not np.array_equal(
                moved[..., name_columns(kept, name)] - array[..., [one.offset]], array[..., name.columns]
            ):
                return None
            array = moved
        if rows:
            array = array[kept]
        made[tensor] = array
    slots, at = [], 0
    for slot in stream.slots:
        if slot != one:
            slots.append(replace(slot, offset=at))
            at += slot.width
    streams = tuple(replace(s, slots=tuple(slots)) if s == stream else s for s in program.streams)
    embedding = tuple(e for e in program.embedding if (e.stream, e.slot) != (stream.name, one.name))
    return stated(replace(program, streams=streams, embedding=embedding), made), made


def name_columns(kept: list[int], name: Slot) -> list[int]:
    """Where the columns of a name are among those that are kept."""
    return [kept.index(column) for column in range(name.offset, name.offset + name.width)]
