"""Other heads for the same attention: mixed queries and keys, heads in halves, heads in another order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from weftc.variants.drawing import Array, Kind, conditioned, drawn
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import Attend, Head, Program, ProgramStep, Score, Sublayer

Heads = Callable[[tuple[Head, ...]], tuple[Head, ...]]


def mixed_heads(checkpoint: Checkpoint, seed: int = 0, kind: Kind = "orthogonal") -> Checkpoint:
    """Queries and keys of every score and mask mixed: dot products by A and A^-T, distances by one rotation.

    `signed` permutes features and changes signs, without rounding. Scores that are divided by their sum stay as they
    are unless nothing is rounded: what is zero there must stay zero, or an empty sum would become one of roundings.
    """
    rng = np.random.default_rng(seed)
    tensors = dict(checkpoint.tensors)

    def mixed(score: Score) -> Score:
        parts = []
        for part in score.parts:
            q, k = tensors[part.q], tensors[part.k]
            if part.kind == "dot":
                there, back = conditioned(len(q), kind, rng)
            else:
                there = drawn(len(q), kind, rng)
                back = there.T
            new_q = _stored(tensors, f"{part.q}.mixed", there @ q)
            new_k = _stored(tensors, f"{part.k}.mixed", back.T @ k)
            parts.append(replace(part, q=new_q, k=new_k))
        return Score(tuple(parts))

    def both(heads: tuple[Head, ...]) -> tuple[Head, ...]:
        found = []
        for head in heads:
            exact = head.weighting.kind == "normalize" and kind == "orthogonal"
            score = head.score if exact else mixed(head.score)
            found.append(replace(head, score=score, masks=tuple(replace(m, score=mixed(m.score)) for m in head.masks)))
        return tuple(found)

    return _used(checkpoint, _with_heads(checkpoint.program, both), tensors)


def split_heads(checkpoint: Checkpoint, seed: int = 0, parts: int = 2) -> Checkpoint:
    """Every head as several that weigh alike and write some of the rows each; too few rows are written in halves.

    Weights depend on scores alone, and values are added: rows of V in several heads, or 1/2 and 1/2 of a row, are V.
    """
    rng = np.random.default_rng(seed)
    tensors = dict(checkpoint.tensors)

    def share(name: str, rows: Array, part: int) -> str:
        return name and _stored(tensors, f"{name}.{part}", tensors[name] * rows[:, None])

    def split(heads: tuple[Head, ...]) -> tuple[Head, ...]:
        found: list[Head] = []
        taken = {head.name for head in heads}
        for head in heads:
            if not head.value:
                found.append(head)
                continue
            filled = np.flatnonzero((tensors[head.value] != 0).any(1))
            shares = _shares(len(tensors[head.value]), filled, parts, rng)
            for part, rows in enumerate(shares, start=1):
                own = head.self_key
                if own is not None:
                    own = replace(own, value=share(own.value, rows, part))
                name = f"{head.name}_{part}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found.append(replace(head, name=name, value=share(head.value, rows, part), self_key=own))
        return tuple(found)

    return _used(checkpoint, _with_heads(checkpoint.program, split), tensors)


def _shares(rows: int, filled: npt.NDArray[np.intp], parts: int, rng: np.random.Generator) -> list[Array]:
    """What each part writes of every row: all of it or nothing; of filled rows that are too few, powers of two."""
    owner = rng.permutation(rows) % parts
    owner[filled] = rng.permutation(len(filled)) % parts
    shares = [(owner == part).astype(float) for part in range(parts)]
    for part in range(len(filled), parts):
        if len(filled):
            giver = shares[part - 1 if len(filled) == 1 else part % len(filled)]
            giver[filled] /= 2
            shares[part][filled] = giver[filled]
    return shares


def merged_heads(checkpoint: Checkpoint) -> Checkpoint:
    """Heads of a sub-layer that weigh alike as one: the sum of their values, where adding rounds nothing.

    Heads weigh alike when scores, masks, weightings and self keys are the same numbers, under whatever names.
    """
    tensors = dict(checkpoint.tensors)

    def same(one: Head, other: Head) -> bool:
        def numbers(head: Head) -> list[bytes]:
            parts = [part for score in (head.score, *(mask.score for mask in head.masks)) for part in score.nested()]
            named = [name for part in parts for name in (part.q, part.k, part.coefficient, (part.scale or ("", ""))[1])]
            named.append("" if head.self_key is None else head.self_key.row or "")
            return [np.asarray(tensors[name]).tobytes() if name else b"" for name in named]

        def layout(score: Score) -> object:
            functions = [[(f.function, layout(f.score)) for f in p.factors] for p in score.parts]
            return [(p.kind, p.scale and p.scale[0]) for p in score.parts], functions

        def shape(head: Head) -> object:
            kinds = layout(head.score)
            masks = [(m.op, m.weighting, layout(m.score)) for m in head.masks]
            own = None if head.self_key is None else (bool(head.self_key.value), head.self_key.row is None)
            return head.query, head.keys, head.weighting, kinds, masks, own

        return bool(one.value and other.value) and shape(one) == shape(other) and numbers(one) == numbers(other)

    def added(left: str, right: str) -> str | None:
        if not left:
            return left
        a, b = tensors[left], tensors[right]
        both = a + b
        if not (np.array_equal(both - a, b) and np.array_equal(both - b, a)):
            return None
        return _stored(tensors, f"{left}.merged", both)

    def merge(heads: tuple[Head, ...]) -> tuple[Head, ...]:
        found: list[Head] = []
        for head in heads:
            for at, other in enumerate(found):
                if not same(other, head):
                    continue
                value, own = added(other.value, head.value), other.self_key
                if own is not None and head.self_key is not None:
                    back = added(own.value, head.self_key.value)
                    own = own if back is None else replace(own, value=back)
                    value = None if back is None else value
                if value is not None:
                    found[at] = replace(other, value=value, self_key=own)
                    break
            else:
                found.append(head)
        return tuple(found)

    return _used(checkpoint, _with_heads(checkpoint.program, merge), tensors)


def permuted_heads(checkpoint: Checkpoint, seed: int = 0) -> Checkpoint:
    """The heads of every sub-layer in a random order."""
    rng = np.random.default_rng(seed)

    def permuted(heads: tuple[Head, ...]) -> tuple[Head, ...]:
        return tuple(heads[place] for place in rng.permutation(len(heads)))

    return replace(checkpoint, program=_with_heads(checkpoint.program, permuted))


def _stored(tensors: dict[str, Array], name: str, array: Array) -> str:
    """Adds a tensor under a name that no other has; returns it."""
    while name in tensors:
        name += "'"
    tensors[name] = array + 0.0  # no zero keeps a sign
    return name


def _with_heads(program: Program, change: Heads) -> Program:
    def sublayer(sub: Sublayer) -> Sublayer:
        return replace(sub, heads=change(sub.heads)) if isinstance(sub, Attend) else sub

    def steps(steps: tuple[ProgramStep, ...]) -> tuple[ProgramStep, ...]:
        return tuple(replace(step, sublayers=tuple(map(sublayer, step.sublayers))) for step in steps)

    return replace(program, prelude=steps(program.prelude), layer=steps(program.layer), readout=steps(program.readout))


def _used(checkpoint: Checkpoint, program: Program, tensors: dict[str, Array]) -> Checkpoint:
    """The checkpoint with another program, and the tensors that it names."""
    named = program.tensors()
    return replace(checkpoint, program=program, tensors={name: tensors[name] for name in tensors if name in named})
