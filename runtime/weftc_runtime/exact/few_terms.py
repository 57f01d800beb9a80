"""The sum of a few tensors, entry by entry, rounded once.

Adding two numbers leaves an error that is a number itself. With s the rounded sum, e the rounded sum of its errors, and
the errors of that at most `lost` together, the exact sum is s + e where nothing is lost, and rounded once if that is
rounded. Elsewhere it lies between s + (e - slack) and s + (e + slack), with slack = 2 lost + 2^-51 |e| for the rounding
of these. Where both are the same number once rounded, it is the sum; the few other entries are added exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from weftc_runtime.exact.sums import exact_sum


def rounded_sum(terms: Sequence[Tensor]) -> Tensor:
    """The same bits as `exact_sum` of the terms side by side; they are finite and far from overflow."""
    total = terms[0] + 0.0
    if len(terms) == 1:
        return total
    if len(terms) == 2:
        return total + terms[1]
    rest = lost = torch.zeros_like(total)
    for term in terms[1:]:
        total, error = _added(total, term)
        rest, error = _added(rest, error)
        lost = lost + error.abs()
    slack = torch.where(lost > 0, 2 * lost + 2.0**-51 * rest.abs(), 0.0)
    low, high = total + (rest - slack), total + (rest + slack)
    unclear = low != high
    if bool(unclear.any()):
        low[unclear] = exact_sum(torch.stack([term[unclear] for term in terms], -1), -1)
    return low


def _added(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Their sum, rounded, and what that leaves out."""
    total = one + other
    seen = total - one
    return total, (one - (total - seen)) + (other - seen)
