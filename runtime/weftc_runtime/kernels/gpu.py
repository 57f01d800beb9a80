"""The programs of Triton that a device is given: where there are such, and they are tried out first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

Scan = Callable[[Sequence[Tensor], Tensor, Tensor, Sequence[float]], tuple[Tensor, Tensor]]
Sums = Callable[[Tensor, Tensor, int], tuple[list[tuple[Tensor, int]], Tensor] | None]
SoftSums = Callable[[Tensor, Tensor, Tensor, float, bool], tuple[Tensor, Tensor, Tensor]]
WIDEST = 128  # features that the programs take


def scan_of(device: torch.device, features: int) -> Scan | None:
    """The scan of a device, if it has one for so many features."""
    return _trusted(device) if device.type == "cuda" and features <= WIDEST else None


def sums_of(device: torch.device, columns: int) -> Sums | None:
    """What adds rows up by label on a device, exactly, if it has such for so many columns."""
    return _trusted_sums(device) if device.type == "cuda" and columns <= WIDEST else None


def soft_sums_of(device: torch.device, features: int, columns: int) -> SoftSums | None:
    """What makes soft weights and adds up by them on a device, if it has such for so many features and columns."""
    return _trusted_soft_sums(device) if device.type == "cuda" and max(features, columns) <= WIDEST else None


@cache
def _trusted_sums(device: torch.device) -> Sums | None:
    try:
        from weftc_runtime.kernels.triton.launch import segment_sums

        return segment_sums if adds_up(segment_sums, device) else None
    except Exception:
        return None


@cache
def _trusted_soft_sums(device: torch.device) -> SoftSums | None:
    try:
        from weftc_runtime.kernels.triton.launch import soft_sums

        return soft_sums if is_soft(soft_sums, device) else None
    except Exception:
        return None


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


def adds_up(sums: Sums, device: torch.device) -> bool:
    """Numbers of many sizes that nearly cancel: their sums are known without rounding."""
    drawn = torch.Generator().manual_seed(0)
    whole = torch.randint(-(2**50), 2**50, (1000, 3), generator=drawn) << torch.randint(
        0, 3, (1000, 1), generator=drawn
    )
    labels = torch.randint(-1, 5, (1000,), generator=drawn)
    found = sums((whole.to(torch.float64) * 2.0**-40).to(device), labels.to(torch.int32).to(device), 5)
    if found is None:
        return False
    wanted = torch.zeros(5, 3, dtype=torch.int64).index_add_(0, labels[labels >= 0], whole[labels >= 0])
    pieces = sum(
        sum_.cpu() << (power + 40) if power >= -40 else sum_.cpu() >> (-40 - power) for sum_, power in found[0]
    )
    counts = torch.bincount(labels[labels >= 0], minlength=5)
    return torch.equal(torch.as_tensor(pieces), wanted) and torch.equal(found[1].cpu(), counts)


def is_soft(sums: SoftSums, device: torch.device) -> bool:
    """Weighted sums of keys that differ by little, and of some far away, as float64 makes them."""
    drawn = torch.Generator().manual_seed(0)
    queries, keys, values = (
        torch.randn(n, d, generator=drawn, dtype=torch.float64) for n, d in ((40, 5), (70, 5), (70, 3))
    )
    keys[50:] += 100.0
    for distance in (True, False):
        raw = (queries[:, None] - keys).square().sum(2) if distance else queries @ keys.T
        scores = raw * -0.5
        weights = (scores - scores.amax(1, keepdim=True)).exp()
        wanted = scores.amax(1), weights.sum(1), weights @ values
        found = sums(queries.to(device), keys.to(device), values.to(device), -0.5, distance)
        if not all(torch.allclose(a.cpu(), b, rtol=1e-13, atol=1e-13) for a, b in zip(found, wanted, strict=True)):
            return False
    return True
