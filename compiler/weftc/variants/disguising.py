"""`disguise`: a checkpoint -> one that computes the same and no longer looks like it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weftc.core.errors import InputError
from weftc.variants.bases import rotated, scaled
from weftc.variants.distractors import distracted
from weftc.variants.drawing import Kind, is_short
from weftc.variants.heads import merged_heads, mixed_heads, permuted_heads, split_heads
from weftc.variants.superposing import superposed
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import FFN, Attend, Program

MOST_NOISE = 1e-10  # relative: beyond it, constants would not be near enough to be proved
MOST_PARTS = 64


def disguise(
    checkpoint: Checkpoint,
    *,
    superpose: bool = False,
    distract: int = 0,
    merge: bool = False,
    split: int = 1,
    gauge: bool = False,
    permute: bool = False,
    scale: bool = False,
    rotate: bool = False,
    dense: bool = False,
    noise: float = 0.0,
    seed: int = 0,
) -> Checkpoint:
    """The same function in other weights: the changes that are asked for, in the order of the parameters.

    Each is equal to what it changes, as its own docstring shows. `gauge` and `rotate` mix columns by fours, which is
    exact, if all weights are short binary fractions; else, and with `dense`, all columns. Where that rounds, and for
    `noise`, the proof says how far scores and values may be off. The spec stays in the file: `weftc verify` proves
    the disguised model.

    >>> import weftc
    >>> from weftc.prover import prove
    >>> model = weftc.compile("lloyd", dims={"d": 2, "k": 3})
    >>> prove(disguise(model, rotate=True, gauge=True, split=2, distract=2, seed=1)).verdict
    'proved'
    """
    kind: Kind = "orthogonal" if dense or not is_short(*map(np.asarray, checkpoint.tensors.values())) else "dyadic"
    for name, number in (("distract", distract), ("split", split)):
        if not 0 <= number <= MOST_PARTS:
            raise InputError(f"{name}={number}: a number from 0 to {MOST_PARTS} is expected")
    if not 0 <= noise <= MOST_NOISE:
        raise InputError(f"noise={noise:g}: a relative error from 0 to {MOST_NOISE:g} is expected; more is not proved")
    seeds = np.random.SeedSequence(seed).generate_state(7).tolist()
    made = superposed(checkpoint) if superpose else checkpoint
    made = distracted(made, distract, seeds[0]) if distract else made
    made = merged_heads(made) if merge else made
    made = split_heads(made, seeds[1], split) if split > 1 else made
    made = mixed_heads(made, seeds[2], kind) if gauge else made
    if permute:
        made = rotated(permuted_heads(made, seeds[3]), seeds[3], "signed")
    made = scaled(made, seeds[4]) if scale else made
    made = rotated(made, seeds[5], kind) if rotate else made
    return noisy(made, noise, seeds[6]) if noise else made


def noisy(checkpoint: Checkpoint, size: float, seed: int = 0) -> Checkpoint:
    """Every weight of heads and feed-forwards that is not 0 off by a factor of at most 1 + size.

    A sum of products of such weights with anything is off by at most `size` of the sum of their magnitudes. What
    carries a residual from one sub-layer to the next, and the bases, stay as they are: nothing drifts.
    """
    rng = np.random.default_rng(seed)
    kept = set(_carries(checkpoint.program)) | set(checkpoint.program.basis.values())
    tensors = {
        name: array if name in kept else array * (1 + size * rng.uniform(-1, 1, np.shape(array)))
        for name, array in sorted(checkpoint.tensors.items())
    }
    return replace(checkpoint, tensors=tensors)


def _carries(program: Program) -> list[str]:
    found = [ffn.carry for stream in program.streams for ffn in stream.derived]
    for step in program.steps():
        for sublayer in step.sublayers:
            if isinstance(sublayer, FFN):
                found.append(sublayer.carry)
            elif isinstance(sublayer, Attend):
                found += sublayer.carry.values()
    return found
