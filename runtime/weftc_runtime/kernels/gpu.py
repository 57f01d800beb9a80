"""Whether programs of Triton look for best keys on a device: where there are such, and they are tried out first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

Scan = Callable[[Sequence[Tensor], Tensor, Tensor, Sequence[float]], tuple[Tensor, Tensor]]
WIDEST = 128  # features that the programs take


def scan_of(device: torch.device, features: int) -> Scan | None:
    """The scan of a device, if it has one for so many features."""
    return _trusted(device) if device.type == "cuda" and features <= WIDEST else None


@cache
def _trusted(device: torch.device) -> Scan | None:
    """The scan, if it runs there and certifies nothing wrong of near-ties whose answers are known."""
    try:
        from weftc_runtime.kernels.triton.launch import scan

        return scan if is_right(scan, device) else None
    except Exception:  # no Triton, no compiler, no driver it knows: whatever it is, torch can do the same
        return None


def is_right(scan: Scan, device: torch.device) -> bool:
    """Near-ties, and equal scores: certain rows must be right, and most of those that differ certain."""
    drawn = torch.Generator().manual_seed(0)
    queries = torch.randn(512, 16, generator=drawn)
    keys = torch.randn(8, 16, generator=drawn, dtype=torch.float64).repeat(8, 1)
    keys = (keys + torch.randn(64, 16, generator=drawn, dtype=torch.float64) * 2.0**-10).to(torch.float32)
    wide, table = queries.to(torch.float64), keys.to(torch.float64)
    scores = table.square().sum(1) - 2 * wide @ table.T
    margin = float(2 * 22 * 2.0**-24 * (wide.square().sum(1).max().sqrt() + table.square().sum(1).max().sqrt()) ** 2)
    given = [part.to(device) for part in torch.split(queries, 200)]
    for times, bias in ((-2.0, table.square().sum(1)), (0.0, torch.zeros(64, dtype=torch.float64))):
        found = scan(given, (table * times).to(device), bias.to(device), [margin] * len(given))
        index, doubt = (one.cpu() for one in found)
        certain = torch.ones(512, dtype=torch.bool)
        certain[doubt] = False
        if times == 0:
            if bool(certain.any()):
                return False
        elif not bool((index == scores.argmin(1))[certain].all()) or int(certain.sum()) < 256:
            return False
    return True
