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
SOFT_KEYS = 32  # keys that the program for soft weights adds up at a time
ROUNDING = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
# an exponential of x is off by this much of itself, and by so much for every unit of x: in float32 it is a power of two
# of a rounded product, made by an instruction that is 2^-22 off; in float64 the library's, one unit in the last place
EXPONENTIAL = {torch.float32: (2.0**-22, 2.0**-22), torch.float64: (2.0**-52, 0.0)}
FLUSHED = {torch.float32: 2.0**-100, torch.float64: 2.0**-960}  # far above what is lost below the smallest number


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


def soft_error(
    queries: Tensor, keys: Tensor, values: Tensor, factor: float, distance: bool, peak: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """How far the largest scores, the masses, and the weighted sums of soft weights may be from exact ones.

    `peak`: the largest scores as they were given: masses and sums are relative to these. With u the rounding of the
    type, a score of d features is a sum of d products times a number. A distance rounds its differences (twice in the
    square), the square, d - 1 sums, the number and the product with it; an inner product less: a score is off by at
    most (d + 4) u A, A being the sum of the sizes of its terms, and the largest one by the most of these.

    A weight is exp(score - peak so far), brought to later peaks by exp(peak before - peak after). These exponents add
    up to score - peak, with one sign, so that rounding them, and what an exponential is off for every unit of its
    exponent (b), costs (u + b) |score - peak| in all. There are as many factors as tiles of keys, t, and one more,
    each off by a and rounded once. A sum rounds every term as often as a tile has keys, and once a tile; a product
    once more:

        rho = (d + 4) u A + (u + b) |score - peak| + (t + 1) (a + 2 u) + (keys of a tile + t + 1) u

    A term is then off by exp(rho) - 1 of itself at most. Fused operations round less, and the order does not matter.
    What is below the smallest normal number may be lost.
    """
    u, (a, b), tiny = ROUNDING[queries.dtype], EXPONENTIAL[queries.dtype], FLUSHED[queries.dtype]
    x, c, v = (one.to(torch.float64) for one in (queries, keys, values))
    sizes = (x[:, None] - c).square().sum(2) if distance else x.abs() @ c.abs().T
    scores = factor * (sizes if distance else x @ c.T)
    tiles = -(-len(keys) // SOFT_KEYS)
    error = (x.shape[1] + 4) * u * abs(factor) * sizes + tiny
    gap = peak.to(torch.float64)[:, None] - scores
    rho = error + (u + b) * gap.abs() + (tiles + 1) * (a + 2 * u) + (SOFT_KEYS + tiles + 1) * u
    off = (-gap).exp() * rho.mul(1 + 2.0**-10).expm1() + tiny
    return error.amax(1), off.sum(1), off @ v.abs() + len(keys) * tiny


def is_soft(sums: SoftSums, device: torch.device) -> bool:
    """Weighted sums of keys that differ by little, and of some far away, are as good as `soft_error` says."""
    drawn = torch.Generator().manual_seed(0)
    queries, keys, values = (
        torch.randn(n, d, generator=drawn, dtype=torch.float64) for n, d in ((40, 5), (70, 5), (70, 3))
    )
    keys[50:] += 100.0
    for distance in (True, False):
        raw = (queries[:, None] - keys).square().sum(2) if distance else queries @ keys.T
        found = [one.cpu() for one in sums(queries.to(device), keys.to(device), values.to(device), -0.5, distance)]
        scores = raw * -0.5
        weights = (scores - found[0][:, None]).exp()  # itself rounded, by less than what is left of the bound
        wanted = scores.amax(1), weights.sum(1), weights @ values
        bounds = soft_error(queries, keys, values, -0.5, distance, found[0])
        if not all(bool(((a - b).abs() <= bound).all()) for a, b, bound in zip(found, wanted, bounds, strict=True)):
            return False
    return True
