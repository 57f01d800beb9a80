"""Slots and heads that compute something and change nothing: what they write is read by themselves alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weftc.variants.drawing import Array
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
    FFN,
    Attend,
    Head,
    Part,
    Program,
    Score,
    Slot,
    Stream,
    Sublayer,
    Weighting,
)
from weftc_runtime.format.writes import stated

ENTRIES = (-1.0, -0.5, 0.5, 1.0)  # of distractors: sums of few of them round nothing


def distracted(checkpoint: Checkpoint, count: int, seed: int = 0) -> Checkpoint:
    """The model with so many more slots, each in some stream, and as many more heads, which fill them in every layer.

    No matrix of the model has a weight in the new columns, and the new heads write nothing else: every old column of
    the residual is what it was. Only columns that the embedding fills are read, and slots are cleared before they are
    filled, so that nothing grows from layer to layer.
    """
    rng = np.random.default_rng(seed)
    program, tensors = checkpoint.program, dict(checkpoint.tensors)
    places = [program.streams[int(rng.integers(len(program.streams)))].name for _ in range(count)]
    before = {stream.name: stream.width for stream in program.streams}
    extra = {stream.name: places.count(stream.name) for stream in program.streams}
    basis = {stream: np.asarray(tensors[name]) for stream, name in program.basis.items()}
    streams = tuple(_longer(stream, extra[stream.name]) for stream in program.streams)
    program = replace(_padded(program, tensors, before, extra), streams=streams)
    attends = [
        (at, inside)
        for at, step in enumerate(program.layer)
        for inside, sublayer in enumerate(step.sublayers)
        if isinstance(sublayer, Attend)
    ]
    if not attends or not count:
        return replace(checkpoint, program=program, tensors=tensors)
    taken = dict.fromkeys(before, 0)
    for number, query in enumerate(places):
        place = before[query] + taken[query]
        taken[query] += 1
        at, inside = attends[int(rng.integers(len(attends)))]
        keys = program.streams[int(rng.integers(len(program.streams)))].name
        new = streams[[stream.name for stream in streams].index(query)].slots[-extra[query] + taken[query] - 1]
        head = _head(number, program, tensors, basis, before, query, keys, place, new.name, rng)
        step = program.layer[at]
        attend = step.sublayers[inside]
        assert isinstance(attend, Attend)
        width = before[query] + extra[query]
        carry = np.asarray(tensors[attend.carry[query]]) if query in attend.carry else np.eye(width)
        cleared = carry.copy()
        cleared[place] = 0.0
        name = _named(tensors, f"distractor.{number}.carry", cleared)
        attend = replace(attend, carry={**attend.carry, query: name}, heads=(*attend.heads, head))
        sublayers = (*step.sublayers[:inside], attend, *step.sublayers[inside + 1 :])
        layer = (*program.layer[:at], replace(step, sublayers=sublayers), *program.layer[at + 1 :])
        program = replace(program, layer=layer)
    program = stated(program, tensors)
    used = program.tensors()
    return replace(checkpoint, program=program, tensors={name: tensors[name] for name in tensors if name in used})


def _head(
    number: int,
    program: Program,
    tensors: dict[str, Array],
    basis: dict[str, Array],
    before: dict[str, int],
    query: str,
    keys: str,
    place: int,
    slot: str,
    rng: np.random.Generator,
) -> Head:
    def row(stream: str) -> Array:
        """A row that reads one or two columns of what the embedding fills."""
        width = program.stream(stream).width
        given = [
            column
            for embed in program.embedding
            if embed.stream == stream and embed.kind in ("input", "one", "identity")
            for column in range(*program.stream(stream).slot(embed.slot).columns.indices(width))
        ]
        found = np.zeros((1, width))
        for column in rng.permutation(given)[:2]:
            found[0, column] = rng.choice(ENTRIES)
        if stream in basis:
            size = before[stream]
            found[:, :size] = found[:, :size] @ np.linalg.inv(basis[stream])
        return found

    value = np.zeros((program.stream(query).width, program.stream(keys).width))
    value[place] = row(keys)[0]
    q = _named(tensors, f"distractor.{number}.q", row(query))
    k = _named(tensors, f"distractor.{number}.k", row(keys))
    v = _named(tensors, f"distractor.{number}.v", value)
    kind = Weighting("softmax") if rng.integers(2) else Weighting("argmax")
    return Head(f"distractor {number}", query, keys, Score((Part("dot", q, k),)), kind, v, writes=(slot,))


def _longer(stream: Stream, count: int) -> Stream:
    names = {slot.name for slot in stream.slots}
    slots, at = list(stream.slots), stream.width
    for number in range(count):
        name = f"distractor {number + 1}"
        while name in names:
            name += "'"
        names.add(name)
        slots.append(Slot(name, at + number, 1, "scratch"))
    return replace(stream, slots=tuple(slots))


def _named(tensors: dict[str, Array], name: str, array: Array) -> str:
    while name in tensors:
        name += "'"
    tensors[name] = array + 0.0
    return name


def _padded(program: Program, tensors: dict[str, Array], before: dict[str, int], extra: dict[str, int]) -> Program:
    """Every tensor with zeros for the new columns; carries and bases with ones, so that they are carried."""
    carries = {
        name
        for step in (*program.prelude, *program.layer, *program.readout)
        for sublayer in step.sublayers
        for name in _carries(sublayer)
    }
    carries |= {ffn.carry for stream in program.streams for ffn in stream.derived}
    widths = {name: (uses[0].rows, uses[0].columns) for name, uses in program.tensors().items()}
    for name, (rows, columns) in widths.items():
        array = np.asarray(tensors[name])
        if array.ndim == 1 and columns is not None:
            tensors[name] = np.pad(array, (0, extra[columns]))
        elif array.ndim == 2:
            down, right = extra.get(rows or "", 0), extra.get(columns or "", 0)
            tensors[name] = np.pad(array, ((0, down), (0, right)))
            if name in carries and rows is not None:
                tensors[name][before[rows] :, before[rows] :] = np.eye(down)
    for stream, name in program.basis.items():
        tensors[name] = np.pad(np.asarray(tensors[name]), (0, extra[stream]))
        tensors[name][before[stream] :, before[stream] :] = np.eye(extra[stream])
    return program


def _carries(sublayer: Sublayer) -> list[str]:
    return [sublayer.carry] if isinstance(sublayer, FFN) else list(sublayer.carry.values())
