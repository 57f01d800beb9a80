"""A program -> the tensors it names, each with the shape every use of it needs; and the slots that sub-layers read.

The number of rows of Q, K, A and B is not written in the program; it is a free dimension that the uses of one score
part or one feed-forward share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from weftc_runtime.format.basis import Basis
from weftc_runtime.format.program import (
    FFN,
    Attend,
    Head,
    Program,
    ProgramOutput,
    ProgramStep,
    Score,
    SelfKey,
    Stream,
    Sublayer,
    TensorUse,
)

NUMBER_HEADS = frozenset({"lse", "max"})  # their value is a column: the head returns one number per query

Uses = Iterator[tuple[str, TensorUse]]


def tensor_uses(program: Program) -> Mapping[str, tuple[TensorUse, ...]]:
    """Every tensor name of the program with all its uses, in order of first appearance."""
    width = {stream.name: stream.width for stream in program.streams}
    found: dict[str, list[TensorUse]] = {}
    for name, use in _all(program, width):
        found.setdefault(name, []).append(use)
    return {name: tuple(uses) for name, uses in found.items()}


def _all(program: Program, width: Mapping[str, int]) -> Uses:
    for name, tensor in program.basis.items():
        yield tensor, TensorUse(f"basis.{name}", (width[name], width[name]))
    for stream in program.streams:
        for index, ffn in enumerate(stream.derived):
            yield from _ffn(ffn, f"streams.{stream.name}.derived.{index}", width)
    for path, step in program.places():
        for index, sublayer in enumerate(step.sublayers):
            where = f"{path}.{index}"
            if isinstance(sublayer, FFN):
                yield from _ffn(sublayer, where, width)
            else:
                yield from _attend(sublayer, where, width)
    for answer in program.answers():
        where = f"outputs.{answer.name}"
        if answer.head is not None:
            yield from _head(answer.head, f"{where}.{answer.head.name}", width)
            if answer.scale is not None:
                yield answer.scale, TensorUse(f"{where}.scale", (width[answer.head.query],), columns=answer.head.query)


def _attend(attend: Attend, where: str, width: Mapping[str, int]) -> Uses:
    for stream, name in attend.carry.items():
        yield name, TensorUse(f"{where}.carry.{stream}", (width[stream], width[stream]), stream, stream)
    for head in attend.heads:
        yield from _head(head, f"{where}.{head.name}", width)


def _ffn(ffn: FFN, where: str, width: Mapping[str, int]) -> Uses:
    size, rows, stream = width[ffn.stream], f"{where}.hidden", ffn.stream
    yield ffn.carry, TensorUse(f"{where}.carry", (size, size), stream, stream)
    yield ffn.a, TensorUse(f"{where}.a", ((rows, 0), size), columns=stream)
    if ffn.b is not None:
        flag = 1 if ffn.function == "select" else 0  # the last row of b is the flag
        yield ffn.b, TensorUse(f"{where}.b", ((rows, flag), size), columns=stream)
    yield ffn.out, TensorUse(f"{where}.out", (size, (rows, 0)), stream)


def _head(head: Head, where: str, width: Mapping[str, int]) -> Uses:
    query, keys = width[head.query], width[head.keys]
    yield from _score(head.score, f"{where}.score", head, width)
    for index, mask in enumerate(head.masks):
        yield from _score(mask.score, f"{where}.masks.{index}", head, width)
    if head.value:
        number = head.weighting.kind in NUMBER_HEADS
        shape, side = (query, 1 if number else keys), None if number else head.keys
        yield head.value, TensorUse(f"{where}.value", shape, head.query, side)
    if head.self_key is not None:
        if head.self_key.value:
            yield head.self_key.value, TensorUse(f"{where}.self.value", (query, query), head.query, head.query)
        if head.self_key.row is not None:
            yield head.self_key.row, TensorUse(f"{where}.self.row", (query,), columns=head.query)


def _score(score: Score, where: str, head: Head, width: Mapping[str, int]) -> Uses:
    query, keys = width[head.query], width[head.keys]
    for index, part in enumerate(score.parts):
        place = f"{where}.{index}"
        yield part.q, TensorUse(f"{place}.q", ((f"{place}.rows", 0), query), columns=head.query)
        yield part.k, TensorUse(f"{place}.k", ((f"{place}.rows", 0), keys), columns=head.keys)
        if part.coefficient is not None:
            yield part.coefficient, TensorUse(f"{place}.coefficient", ())
        if part.scale is not None:
            side, name = part.scale
            stream = head.query if side == "query" else head.keys
            yield name, TensorUse(f"{place}.scale", (width[stream],), columns=stream)
        for number, factor in enumerate(part.factors):
            yield from _score(factor.score, f"{place}.factors.{number}", head, width)


def slots_read(
    sublayers: tuple[Sublayer, ...],
    streams: Mapping[str, Stream],
    tensors: Mapping[str, Any],
    bases: Mapping[str, Basis] | None = None,
) -> set[tuple[str, str]]:
    """The (stream, slot) that some matrix of these sub-layers reads; a slot carried along as it is does not count."""
    found: set[tuple[str, str]] = set()
    for sublayer in sublayers:
        for stream, name, is_carry in _matrices(sublayer):
            matrix = tensors[name]
            if getattr(matrix, "is_meta", False):  # nothing is known of it: it may read everything
                found.update((stream, slot.name) for slot in streams[stream].slots)
                continue
            if bases and stream in bases:
                plain = matrix.detach().cpu() if hasattr(matrix, "detach") else matrix
                matrix = bases[stream].over_slots(np.asarray(plain), between=is_carry)
            used = matrix != 0 if matrix.ndim == 2 else (matrix != 0)[None]
            for slot in streams[stream].slots:
                block = used[:, slot.columns]
                if is_carry:
                    block[slot.columns] &= False
                if bool(block.any()):
                    found.add((stream, slot.name))
    return found


def pattern_reads(
    output: ProgramOutput,
    streams: Mapping[str, Stream],
    tensors: Mapping[str, Any],
    bases: Mapping[str, Basis] | None = None,
) -> set[tuple[str, str]]:
    """The (stream, slot) that the weights of a pattern are made of; of another output: none."""
    if output.head is None:
        return set()
    scaled = () if output.scale is None else (replace(output.head, self_key=SelfKey("", output.scale)),)
    return slots_read((Attend({}, (output.head, *scaled)),), streams, tensors, bases)


def writes(step: ProgramStep) -> Iterator[tuple[str, str]]:
    """Every (stream, slot) that the sub-layers of a step set or clear."""
    for sublayer in step.sublayers:
        if isinstance(sublayer, FFN):
            yield from ((sublayer.stream, slot) for slot in sublayer.writes)
        else:
            yield from sublayer.writes
            yield from ((head.query, slot) for head in sublayer.heads for slot in head.writes)


def _matrices(sublayer: Sublayer) -> Iterator[tuple[str, str, bool]]:
    """Every matrix of a sub-layer with the stream it is applied to, and whether it carries a residual."""
    if isinstance(sublayer, FFN):
        yield sublayer.stream, sublayer.carry, True
        yield from ((sublayer.stream, name, False) for name in (sublayer.a, sublayer.b) if name is not None)
        return
    yield from ((stream, name, True) for stream, name in sublayer.carry.items())
    for head in sublayer.heads:
        for score in (head.score, *(mask.score for mask in head.masks)):
            for part in score.nested():
                yield head.query, part.q, False
                yield head.keys, part.k, False
                if part.scale is not None:
                    yield (head.query if part.scale[0] == "query" else head.keys), part.scale[1], False
        if head.value and head.weighting.kind not in NUMBER_HEADS:
            yield head.keys, head.value, False
        if head.self_key is not None:
            yield from ((head.query, name, False) for name in (head.self_key.value, head.self_key.row) if name)
