"""Soft weightings: scores -> numerators and their denominator, in torch, differentiable.

Every weighting is kept as t_k with a common denominator, so that a head divides once, after an exact sum. Scores are
shifted by the best one before they are exponentiated or compared with 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from weftc_runtime.exact.bounds import FUNCTION_ULPS, U, widen
from weftc_runtime.exact.sums import exact_sum


@dataclass(slots=True)
class Soft:
    """Weights t / mass of the candidates (q, k); mass None: t itself. `empty`: rows without candidates or mass."""

    numerators: Tensor
    mass: Tensor | None
    empty: Tensor


def soften(kind: str, scores: Tensor, eligible: Tensor) -> Soft:
    """softmax, sparsemax, entmax15, normalize, sum or exp of the eligible scores."""
    none = ~eligible.any(1)
    if kind in ("sum", "exp"):
        numbers = scores.exp() if kind == "exp" else scores
        return Soft(torch.where(eligible, numbers, 0.0), None, torch.zeros_like(none))
    if kind == "normalize":
        numbers = torch.where(eligible, scores, 0.0)
        mass = exact_sum(numbers, 1)
        empty = none | (mass.detach() == 0)
        return Soft(numbers, torch.where(empty, 1.0, mass), empty)
    shifted = scores - _peak(scores, eligible)
    if kind == "softmax":
        numbers = torch.where(eligible, shifted, -torch.inf).exp()
        return Soft(numbers, torch.where(none, 1.0, exact_sum(numbers, 1)), none)
    numbers = {"sparsemax": sparsemax, "entmax15": _entmax15}[kind](shifted, eligible)
    return Soft(numbers, torch.where(none, 1.0, exact_sum(numbers, 1)), none)  # they are rounded: about 1


def _peak(scores: Tensor, eligible: Tensor) -> Tensor:
    """The best eligible score of every row, as a constant; 0 where there is none."""
    peak = scores.detach().masked_fill(~eligible, -torch.inf).amax(1, keepdim=True)
    return torch.where(torch.isfinite(peak), peak, 0.0)


def sparsemax(shifted: Tensor, eligible: Tensor) -> Tensor:
    """The projection of the scores onto the simplex: max(0, s - t), t such that the weights sum to 1."""
    ordered = shifted.detach().masked_fill(~eligible, -torch.inf).sort(1, descending=True).values
    rank = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
    # A score of -1 or less is never in the support, and leaving it out keeps the running sums small and exact enough.
    candidate = ordered > -1
    inside = candidate & (1 + rank * ordered > torch.where(candidate, ordered, 0.0).cumsum(1))
    count = inside.sum(1, keepdim=True).clamp_min(1)
    floor = ordered.gather(1, count - 1)
    support = eligible & (shifted.detach() >= floor)
    size = support.sum(1, keepdim=True).clamp_min(1)
    threshold = (exact_sum(torch.where(support, shifted, 0.0), 1)[:, None] - 1) / size
    return torch.where(support, (shifted - threshold).clamp_min(0.0), 0.0)


def _entmax15(shifted: Tensor, eligible: Tensor) -> Tensor:
    """max(0, u - t)^2 of half the scores u, t such that the weights sum to 1.

    The m best have weight if the squares of their leads over the m-th add up to less than 1; with their mean and the
    sum of squares around it, t = mean - sqrt((1 - squares) / m).
    """
    half = shifted / 2
    ordered = half.detach().masked_fill(~eligible, -torch.inf).sort(1, descending=True).values
    rank = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
    candidate = ordered > -1
    best = torch.where(candidate, ordered, 0.0)
    leads = best.square().cumsum(1) - 2 * best * best.cumsum(1) + rank * best.square()
    count = (candidate & (leads < 1)).sum(1, keepdim=True).clamp_min(1)
    support = eligible & (half.detach() >= ordered.gather(1, count - 1))
    size = support.sum(1, keepdim=True).clamp_min(1)
    mean = exact_sum(torch.where(support, half, 0.0), 1)[:, None] / size
    apart = exact_sum(torch.where(support, half - mean, 0.0).square(), 1)[:, None]
    threshold = mean - ((1 - apart).clamp_min(0.0) / size).sqrt()
    return torch.where(support, (half - threshold).clamp_min(0.0).square(), 0.0)


def log_sum_exp(scores: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """log of the sum of exp of the eligible scores (0 where there are none), and which rows have none."""
    none = ~eligible.any(1)
    peak = _peak(scores, eligible)
    numbers = torch.where(eligible, scores - peak, -torch.inf).exp()
    mass = torch.where(none, 1.0, exact_sum(numbers, 1))
    return torch.where(none, 0.0, peak[:, 0] + mass.log()), none


def best_score(scores: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """The best eligible score (0 where there is none), and which rows have none."""
    none = ~eligible.any(1)
    best = scores.masked_fill(~eligible, -torch.inf).amax(1)
    return torch.where(none, 0.0, best), none


def spread(kind: str, scores: Tensor, radius: Tensor, eligible: Tensor, numerators: Tensor) -> Tensor:
    """Radius of the numerators, from the radius of the scores.      all (q, k)"""
    radius = torch.where(eligible, radius, 0.0)
    if kind in ("sum", "normalize"):
        return radius
    if kind == "sparsemax":  # a projection: |p - p'| <= |s - s'|; its own arithmetic is on numbers in [-1, 0]
        length = torch.linalg.vector_norm(radius, dim=1, keepdim=True)
        own = 4 * U * (scores.shape[1] + 4) + 2 * U * (scores - _peak(scores, eligible)).abs().clamp_max(1)
        return widen(torch.where(eligible, length + own, 0.0))
    if kind == "entmax15":  # a weight moves by at most twice the largest move of a score
        moved = 2 * radius.amax(1, keepdim=True) + 16 * U * (scores.shape[1] + 4)
        return widen(torch.where(eligible, moved, 0.0))
    if kind == "softmax":
        radius = radius + 2 * U * (scores - _peak(scores, eligible)).abs()
    return widen(torch.where(eligible, numerators * (torch.expm1(radius) + FUNCTION_ULPS * U) + 2.0**-1074, 0.0))


def number_spread(scores: Tensor, radius: Tensor, eligible: Tensor, number: Tensor) -> Tensor:
    """Radius of `log_sum_exp` and `best_score` (both change by no more than the worst of their scores)."""
    worst = torch.where(eligible, radius, 0.0).amax(1)
    own = torch.where(eligible, (scores - _peak(scores, eligible)).abs(), 0.0).amax(1).clamp_max(800.0)
    return widen(worst + 8 * U * (number.abs() + _peak(scores, eligible)[:, 0].abs() + own + 1))


TIED = 1e-6  # sharpened scores this close have weights that agree to as much


def lead(scores: Tensor, eligible: Tensor, split: bool) -> float:
    """By how much the best eligible score leads, in the worst row; with `split`, over the first that is not tied."""
    best = scores.masked_fill(~eligible, -torch.inf).amax(1, keepdim=True)
    behind = (best - scores).masked_fill(~eligible, torch.inf)
    if split:
        return float(behind.masked_fill(behind <= TIED, torch.inf).min())
    return float(behind.topk(2, 1, largest=False).values[:, 1].min()) if scores.shape[1] > 1 else torch.inf
