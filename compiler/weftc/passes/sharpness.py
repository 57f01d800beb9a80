"""How sharp a softmax must be to stand for an argmax.

If the best of m scores leads the others by D, softmax(G * scores) differs from the one-hot choice by

    |softmax - onehot|_1 = 2 r / (1 + r),   r <= (m - 1) exp(-G D)

so G D >= log((m - 1) (2 - eps) / eps) keeps it within eps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from weftc.core import syntax as ast
from weftc.core.types import Checked
from weftc.core.vocabulary import CHOICES

EPS = 1e-6  # how far from one-hot a row of weights may be
MARGIN = 1e-3  # the lead that `auto` counts on when there is no data to measure it on
MANY = 1_000_000  # candidates in a set whose size is not known yet


def lead(candidates: int, eps: float = EPS) -> float:
    """G D: by how much the best of the sharpened scores must lead."""
    return math.log(max(candidates - 1, 1) * (2 - eps) / eps)


def sharpness_for(margin: float, candidates: int, eps: float = EPS) -> float:
    """The sharpness that keeps weights within eps of one-hot wherever the best score leads by `margin`."""
    return lead(candidates, eps) / margin


def candidates(checked: Checked, dims: Mapping[str, int]) -> int:
    """The most tokens that any choice of a spec chooses from."""
    most = 1
    spec = checked.spec
    bodies = [e.body for step in spec.steps for e in step.equations] + [let.body for let in spec.lets]
    bodies += [output.body for output in spec.outputs]
    for body in bodies:
        for node in ast.walk(body):
            if isinstance(node, ast.Weigh) and (node.kind in CHOICES or node.sharpness is not None):
                size = checked.sets[checked.index[node.index]]
                known = dims[size] if isinstance(size, str) else size
                most = max(most, MANY if known is None else known)
    return most
