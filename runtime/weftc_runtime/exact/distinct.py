"""Whether no two rows of an array are equal: by hashes, which proves it, and by sorting the rows where hashes meet."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.plan.slots import blocks

MIX = (0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64))  # odd, of 64 bits


def are_distinct(rows: Tensor) -> bool:
    """Whether all rows (n, width) differ; 0.0 and -0.0 are equal."""
    if len(rows) < 2:
        return True
    hashes = torch.cat([_hashes(rows[block]) for block in blocks(len(rows), rows.shape[1])])
    ordered = np.sort(hashes.cpu().numpy())  # several times faster than torch
    if bool((ordered[1:] != ordered[:-1]).all()):  # equal rows would have equal hashes
        return True
    return len(torch.unique(rows + 0.0, dim=0)) == len(rows)


def _hashes(rows: Tensor) -> Tensor:
    """A number for every row, the same for equal rows."""
    bits = (rows.to(torch.float64) + 0.0).contiguous().view(torch.int64)
    total = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    for column in bits.T:
        total = (total ^ column) * MIX[0]
        total = (total ^ (total >> 29)) * MIX[1]
    return total ^ (total >> 32)
