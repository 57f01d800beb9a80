"""The same function in other weights: a checkpoint -> checkpoints that compute what it computes.

    rotated(checkpoint)         every residual in a random basis, which the file carries
    mixed_heads(checkpoint)     Q -> A Q, K -> A^-T K in every score
    split_heads(checkpoint)     every head as two that decide alike and write half each
    permuted_heads(checkpoint)  the heads of every sub-layer in another order

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

from weftc.variants.bases import rotated
from weftc.variants.heads import mixed_heads, permuted_heads, split_heads

__all__ = ["mixed_heads", "permuted_heads", "rotated", "split_heads"]
