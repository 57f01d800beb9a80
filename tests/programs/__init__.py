"""Transformer programs built by hand, for tests of the runtime that need no compiler.

Each function returns a `Checkpoint` with weights as docs/papers.md has them, corrected: dense matrices over the
residual of each stream, built from named slots.
"""

from programs.clustering import hard_clustering, soft_clustering, with_objective
from programs.deciding import PERCENT, largest, nearest_to_mean, neighbours
from programs.laboratory import laboratory
from programs.matching import dual_ascent
from programs.tokenwise import countdown, normed

__all__ = [
    "PERCENT",
    "countdown",
    "dual_ascent",
    "hard_clustering",
    "laboratory",
    "largest",
    "nearest_to_mean",
    "neighbours",
    "normed",
    "soft_clustering",
    "with_objective",
]
