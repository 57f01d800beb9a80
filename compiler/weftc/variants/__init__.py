"""The same function in other weights: a checkpoint -> checkpoints that compute what it computes.

    rotated(checkpoint)         every residual in a random basis, which the file carries
    mixed_heads(checkpoint)     Q -> A Q, K -> A^-T K in every score
    split_heads(checkpoint)     every head as two that decide alike and write half each
    merged_heads(checkpoint)    heads that weigh alike as one
    permuted_heads(checkpoint)  the heads of every sub-layer in another order
    scaled(checkpoint)          every column of a residual in another unit, a power of two
    distracted(checkpoint, n)   n more slots, and n heads that fill them
    superposed(checkpoint)      slots in fewer dimensions
    noisy(checkpoint, eps)      weights off by a factor of at most 1 + eps

`weftc.disguise` makes any of these, one after the other.

For tools that look for an algorithm in weights: the answer is known, and no longer aligned with coordinates. With
`kind="signed"` (permutations and signs) nothing is rounded, and `weftc verify` proves the variant; a dense variant is
proved up to the rounding of its weights, and decides only as finely as its residual can tell.

>>> import weftc
>>> from weftc.variants import rotated
>>> dense = rotated(weftc.compile("lloyd", dims={"d": 2, "k": 3}), seed=1)
>>> sorted(dense.program.basis)
['centers', 'points']
"""

from __future__ import annotations

from weftc.variants.bases import rotated, scaled
from weftc.variants.disguising import noisy
from weftc.variants.distractors import distracted
from weftc.variants.heads import merged_heads, mixed_heads, permuted_heads, split_heads
from weftc.variants.superposing import superposed

__all__ = [
    "distracted",
    "merged_heads",
    "mixed_heads",
    "noisy",
    "permuted_heads",
    "rotated",
    "scaled",
    "split_heads",
    "superposed",
]
