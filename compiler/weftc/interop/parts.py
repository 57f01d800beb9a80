"""The functions that exported modules are made of. Plain torch; the writer copies those that a module calls into it.

Tokens are on the second to last axis, numbers of a token on the last; any number of axes before them are problems of a
batch. `score` is (..., queries, keys), `eligible` the same as booleans. Weights of a query that has no candidate, or
no mass, are 0, and the query is told in `none` (..., queries, 1).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def number_of(mask: Tensor | None, tokens: int, one: Tensor) -> Tensor:
    """How many tokens there are in every problem of a batch."""
    return one * tokens if mask is None else mask.sum(-1).to(one.dtype)[..., None, None]


def squared_distance(q: Tensor, k: Tensor) -> Tensor:
    """|q - k|^2 of every query and key, from their differences."""
    return (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)


def inner_product(q: Tensor, k: Tensor) -> Tensor:
    """<q, k> of every query and key."""
    return q @ k.transpose(-1, -2)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, eligible: Tensor | None) -> tuple[Tensor, Tensor]:
    """Ordinary softmax attention with scale 1 and a bias, and which queries have no eligible key."""
    none = torch.zeros_like(q[..., :1], dtype=torch.bool)
    if eligible is not None:
        eligible = eligible.expand(*q.shape[:-1], k.shape[-2])
        none = ~eligible.any(-1, keepdim=True)
        bias = torch.zeros_like(eligible, dtype=q.dtype) if bias is None else bias
        bias = torch.where(none, torch.zeros_like(bias), masked(bias, eligible))
    mask = None if bias is None else bias.reshape(-1, 1, q.shape[-2], k.shape[-2])
    a, b, c = (z.reshape(-1, 1, *z.shape[-2:]) for z in (q, k, v))
    read = F.scaled_dot_product_attention(a, b, c, attn_mask=mask, scale=1.0)
    return read.reshape(*q.shape[:-1], v.shape[-1]), none


def least(a: Tensor) -> Tensor:
    """The smallest of all numbers."""
    return a.reshape(-1).amin(0)


def everywhere(eligible: Tensor | None, score: Tensor) -> Tensor:
    """Which keys count, for every query; all of them where nothing is said."""
    return torch.ones_like(score, dtype=torch.bool) if eligible is None else eligible.expand_as(score)


def masked(score: Tensor, eligible: Tensor) -> Tensor:
    """Scores of candidates; minus infinity for everything else."""
    return torch.where(eligible, score, torch.full_like(score, -torch.inf))


def gap(score: Tensor, eligible: Tensor, kept: Tensor) -> Tensor:
    """How clear a decision is: the least lead of what is kept over what is not, relative to the largest score."""
    worst = torch.where(kept, score, torch.full_like(score, torch.inf)).amin(-1)
    best = masked(score, eligible & ~kept).amax(-1)
    size = torch.where(eligible, score, torch.zeros_like(score)).abs().amax(-1)
    lead = (worst - best) / torch.where(size == 0, torch.ones_like(size), size)
    return least(lead)


def argmax(score: Tensor, eligible: Tensor, ties: str) -> tuple[Tensor, Tensor, Tensor]:
    """Weight 1 on the best key; of equal ones on the first, or evenly on all (`split`)."""
    kept = eligible & (score >= masked(score, eligible).amax(-1, keepdim=True))
    clear = gap(score, eligible, kept)
    if ties != "split":
        several = kept.sum(-1) > 1
        clear = torch.where(several.any(), torch.zeros_like(clear), clear)
        kept = kept & (kept.cumsum(-1) == 1)
    weights = kept.to(score.dtype)
    return weights / weights.sum(-1, keepdim=True).clamp_min(1), ~eligible.any(-1, keepdim=True), clear


def argmax_within(score: Tensor, eligible: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weight 1 on the first key whose score is at most epsilon below the best."""
    kept = eligible & (score >= masked(score, eligible).amax(-1, keepdim=True) - epsilon)
    clear = gap(score, eligible, kept)
    weights = (kept & (kept.cumsum(-1) == 1)).to(score.dtype)
    return weights, ~eligible.any(-1, keepdim=True), clear


def best_count(score: Tensor, eligible: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Even weights on the best `count` keys, the first of equal ones first."""
    last = (eligible.sum(-1, keepdim=True) - 1).clamp(0, count - 1)
    floor = masked(score, eligible).sort(dim=-1, descending=True).values.gather(-1, last)
    better, tied = eligible & (score > floor), eligible & (score == floor)
    kept = better | (tied & (tied.cumsum(-1) <= count - better.sum(-1, keepdim=True)))
    weights = kept.to(score.dtype)
    mass = weights.sum(-1, keepdim=True).clamp_min(1)
    return weights / mass, ~eligible.any(-1, keepdim=True), gap(score, eligible, kept)


def best_percent(score: Tensor, eligible: Tensor, numerator: int, denominator: int) -> tuple[Tensor, Tensor, Tensor]:
    """Even weights on the keys that at most numerator/denominator percent of the others are better than."""
    better = (numerator * (eligible.sum(-1, keepdim=True) - 1).clamp_min(0)) // (100 * denominator)
    floor = masked(score, eligible).sort(dim=-1, descending=True).values.gather(-1, better)
    kept = eligible & (score >= floor)
    weights = kept.to(score.dtype)
    mass = weights.sum(-1, keepdim=True).clamp_min(1)
    return weights / mass, ~eligible.any(-1, keepdim=True), gap(score, eligible, kept)


def normmax(score: Tensor, eligible: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Even weights on the best m keys, m smallest with gamma * sum of (score - next best) >= 1."""
    ordered = masked(score, eligible).sort(dim=-1, descending=True).values
    following = F.pad(ordered, (0, 1), value=-torch.inf)[..., 1:]
    first = ordered[..., :1]
    shifted = torch.where(ordered == -torch.inf, torch.zeros_like(ordered), ordered - first)
    rank = torch.arange(1, score.shape[-1] + 1, device=score.device).to(score.dtype)
    lead = gamma * (shifted.cumsum(-1) - rank * (following - first))
    enough = (lead >= 1) | (following == -torch.inf)
    stop = enough & (enough.cumsum(-1) == 1)
    floor = torch.where(stop, ordered, torch.full_like(ordered, torch.inf)).amin(-1, keepdim=True)
    kept = eligible & (score >= floor)
    weights = kept.to(score.dtype)
    mass = weights.sum(-1, keepdim=True).clamp_min(1)
    near = torch.where(following == -torch.inf, torch.full_like(lead, torch.inf), (lead - 1).abs())
    clear = torch.minimum(gap(score, eligible, kept), least(near))
    return weights / mass, ~eligible.any(-1, keepdim=True), clear


def sparsemax(score: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """The projection of the scores onto the simplex: max(0, s - t), t such that the weights add up to 1."""
    none = ~eligible.any(-1, keepdim=True)
    best = torch.where(none, torch.zeros_like(score[..., :1]), masked(score, eligible).amax(-1, keepdim=True))
    shifted = torch.where(eligible, score - best, torch.full_like(score, -2)).clamp_min(-2)
    ordered = shifted.sort(dim=-1, descending=True).values
    rank = torch.arange(1, score.shape[-1] + 1, device=score.device).to(score.dtype)
    inside = (ordered > -1) & (1 + rank * ordered > ordered.cumsum(-1))
    size = inside.sum(-1, keepdim=True).clamp_min(1)
    threshold = (ordered.cumsum(-1).gather(-1, size - 1) - 1) / size
    return torch.where(eligible, (shifted - threshold).clamp_min(0), torch.zeros_like(score)), none


def entmax15(score: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """max(0, s/2 - t)^2, t such that the weights add up to 1."""
    none = ~eligible.any(-1, keepdim=True)
    best = torch.where(none, torch.zeros_like(score[..., :1]), masked(score, eligible).amax(-1, keepdim=True))
    half = torch.where(eligible, score - best, torch.full_like(score, -4)).clamp_min(-4) / 2
    ordered = half.sort(dim=-1, descending=True).values
    rank = torch.arange(1, score.shape[-1] + 1, device=score.device).to(score.dtype)
    leads = ordered.square().cumsum(-1) - 2 * ordered * ordered.cumsum(-1) + rank * ordered.square()
    size = ((ordered > -1) & (leads < 1)).sum(-1, keepdim=True).clamp_min(1)
    inside = half >= ordered.gather(-1, size - 1)
    size = inside.sum(-1, keepdim=True).to(score.dtype)
    zero = torch.zeros_like(score)
    mean = torch.where(inside, half, zero).sum(-1, keepdim=True) / size
    apart = torch.where(inside, half - mean, zero).square().sum(-1, keepdim=True)
    threshold = mean - ((1 - apart) / size).sqrt()
    return torch.where(eligible & inside, (half - threshold).clamp_min(0).square(), zero), none


def softmax(score: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """exp(s) / sum of exp(s) over the candidates."""
    none = ~eligible.any(-1, keepdim=True)
    safe = torch.where(none, torch.zeros_like(score), masked(score, eligible))
    return torch.where(eligible, safe.softmax(-1), torch.zeros_like(score)), none


def normalize(score: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """s / sum of s over the candidates."""
    weights = torch.where(eligible, score, torch.zeros_like(score))
    mass = weights.sum(-1, keepdim=True)
    none = mass == 0
    clear = cancelled(mass, weights.abs().sum(-1, keepdim=True))
    return weights / torch.where(none, torch.ones_like(mass), mass), none, clear


def plain_sum(score: Tensor, eligible: Tensor) -> Tensor:
    """s itself, of the candidates."""
    return torch.where(eligible, score, torch.zeros_like(score))


def exponential(score: Tensor, eligible: Tensor) -> Tensor:
    """exp(s) itself, of the candidates."""
    return torch.where(eligible, score.exp(), torch.zeros_like(score))


def log_sum_exp(score: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """log of the sum of exp(s) over the candidates, one number per query."""
    none = ~eligible.any(-1, keepdim=True)
    safe = torch.where(none, torch.zeros_like(score), masked(score, eligible))
    return safe.logsumexp(-1, keepdim=True), none


def largest(score: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """The best score among the candidates, one number per query."""
    none = ~eligible.any(-1, keepdim=True)
    safe = torch.where(none, torch.zeros_like(score), masked(score, eligible))
    return safe.amax(-1, keepdim=True), none


def unless(none: Tensor, added: Tensor, instead: Tensor | None) -> Tensor:
    """What a head adds, or what it adds where there is no candidate; not a number where that is nothing."""
    return torch.where(none, torch.full_like(added, torch.nan) if instead is None else instead, added)


def unit(a: Tensor, instead: Tensor | None) -> Tensor:
    """a / |a|; `instead` where a is zero, not a number where there is none."""
    size = a.abs().amax(-1, keepdim=True)
    none = size == 0
    scaled = a / torch.where(none, torch.ones_like(size), size)
    length = scaled.square().sum(-1, keepdim=True).sqrt()
    return unless(none, scaled / torch.where(none, torch.ones_like(length), length), instead)


def centred(a: Tensor) -> Tensor:
    """The numbers of every token minus their mean."""
    return a - a.mean(-1, keepdim=True)


def select(a: Tensor, b: Tensor) -> Tensor:
    """a where the flag, the last number of b, is 1; the other numbers of b where it is 0."""
    return torch.where(b[..., -1:] * 2 > 1, a, b[..., :-1])


def settled(a: Tensor) -> Tensor:
    """Values that do not exist (yet), such as the logarithm of 0, as 0: nothing reads them."""
    return torch.where(torch.isfinite(a), a, torch.zeros_like(a))


def cancelled(a: Tensor, terms: Tensor) -> Tensor:
    """How clear it is that vectors are not zero: the least length, relative to what was added up."""
    length, size = a.abs().amax(-1), terms.amax(-1)
    ratio = length / torch.where(size == 0, torch.ones_like(size), size)
    return least(torch.where(size == 0, torch.full_like(ratio, torch.inf), ratio))


def different(queries: Tensor) -> Tensor:
    """Every pair of different tokens of one set."""
    return ~torch.eye(queries.shape[-2], dtype=torch.bool, device=queries.device)


def exact(a: Tensor, b: Tensor) -> Tensor:
    """Whether products and differences of these round nothing: short binary fractions, such as positions and names."""
    largest = (2.0**-20 / torch.finfo(a.dtype).eps / max(a.shape[-1], 1)) ** 0.5
    every = torch.cat([a.reshape(-1), b.reshape(-1)])
    return torch.all((every * 16 == (every * 16).round()) & (every.abs() <= largest))


def unless_exact(exactly: Tensor, clear: Tensor) -> Tensor:
    """How clear a decision is: beyond doubt where nothing was rounded."""
    return torch.where(exactly, torch.full_like(clear, torch.inf), clear)


def nearest_zero(score: Tensor) -> Tensor:
    """How clear a comparison with 0 is, relative to the largest score."""
    size = score.abs().reshape(-1).amax(0)
    return least(score.abs()) / torch.where(size == 0, torch.ones_like(size), size)
