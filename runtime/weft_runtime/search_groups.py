"""Many small searches of one shape in one native call: every group of queries has keys of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from weft_runtime.native.library import Library
from weft_runtime.nearest import exponent
from weft_runtime.plan import Uncovered
from weft_runtime.scores import SAFE
from weft_runtime.workers import cores


def nearest_in_groups(
    library: Library, data: Tensor, keys: Tensor, distance: bool, starts: Tensor, peak: float
) -> tuple[Tensor, Tensor, int]:
    """Best keys where every group of queries has as many keys of its own: indices, rows in doubt, rows by float64.

    `starts`: the first query of every group, and the end of the last (int64).
    """
    if not peak < 2.0**SAFE:
        raise Uncovered("squares of the data may overflow")
    rows, groups = len(data), len(starts) - 1
    power = 2.0 ** -exponent(2 * peak)
    if not 2.0**-100 < power < 2.0**100:
        data = data.to(torch.float64)
    key_power = power if distance else 2.0 ** -exponent(float(keys.abs().max()) if keys.numel() else 0.0)
    label, doubt = torch.empty(rows, dtype=torch.int32), torch.empty(rows, dtype=torch.int64)
    doubled, doubtful = library.nearest_groups(
        data=data,
        stride=data.stride(0),
        is_double=data.dtype == torch.float64,
        features=data.shape[1],
        groups=groups,
        starts=starts,
        keys=keys.contiguous(),
        count=len(keys) // groups,
        distance=distance,
        power=power,
        key_power=key_power,
        threads=cores(),
        label=label,
        doubt=doubt,
        room=rows,
    )
    return label, doubt[:doubtful], doubled
