"""Other heads for the same attention: mixed queries and keys, heads in halves, heads in another order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from weftc.variants.drawing import Array, Kind, conditioned, drawn
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import Attend, Head, Mask, Program, ProgramStep, Score, Sublayer

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
            exact = head.weighting.kind == "normalize" and kind != "signed"
            score = head.score if exact else mixed(head.score)
            found.append(replace(head, score=score, masks=tuple(Mask(m.op, mixed(m.score)) for m in head.masks)))
        return tuple(found)

    return _used(checkpoint, _with_heads(checkpoint.program, both), tensors)


def split_heads(checkpoint: Checkpoint, seed: int = 0) -> Checkpoint:
    """Every head as two heads that weigh alike: each writes some of the rows; of a single row, each writes half."""
    rng = np.random.default_rng(seed)
    tensors = dict(checkpoint.tensors)

    def halves(name: str, share: Array, part: int) -> str:
        return name and _stored(tensors, f"{name}.{part}", tensors[name] * share[:, None])

    def split(heads: tuple[Head, ...]) -> tuple[Head, ...]:
        found: list[Head] = []
        taken = {head.name for head in heads}
        for head in heads:
            if not head.value:
                found.append(head)
                continue
            rows = len(tensors[head.value])
            filled = np.flatnonzero((tensors[head.value] != 0).any(1))
            first = np.full(rows, 0.5)
            if len(filled) > 1:
                first = (rng.permutation(rows) % 2).astype(float)
                first[filled] = rng.permutation(len(filled)) % 2
            for part, share in enumerate((first, 1 - first), start=1):
                own = head.self_key
                if own is not None:
                    own = replace(own, value=halves(own.value, share, part))
                name = f"{head.name}_{part}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found.append(replace(head, name=name, value=halves(head.value, share, part), self_key=own))
        return tuple(found)

    return _used(checkpoint, _with_heads(checkpoint.program, split), tensors)


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
