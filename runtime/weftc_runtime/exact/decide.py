"""Decisions as exact arithmetic would make them: scores with radii -> the keys that are chosen.

Three tiers per query row. Where the intervals [score - radius, score + radius] leave one answer, float64 decides. Where
they do not, the candidates in doubt are compared as fractions. Where a score is no rational function of the data, the
candidates that the radius cannot tell apart count as tied, and the row is reported as undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from fractions import Fraction
from itertools import pairwise
from math import inf, nextafter

import torch
from torch import Tensor

from weftc_runtime.exact.rational import NotRational
from weftc_runtime.format.program import Weighting

BOUND, EXACT, UNDECIDED = 0, 1, 2  # the tier that settled a row

Oracle = Callable[[int, int], Fraction]  # exact score of (query row, candidate), or NotRational


def decide(
    weighting: Weighting,
    scores: Tensor,
    radius: Tensor,
    eligible: Tensor,
    oracle: Oracle,
    twins: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The chosen keys (q, k) and the tier of every row (q,). Rows without an eligible key choose none.

    `twins` (keys,) names for every key one that has the same score whatever the query: ties among such keys are ties.
    """
    low, high = interval(scores, radius, eligible)
    if weighting.kind == "argmax":
        return _Argmax(weighting, low, high, eligible, oracle, twins).run()
    if weighting.kind == "top":
        return _Top(weighting, low, high, eligible, oracle).run()
    return _Normmax(weighting, scores, radius, low, high, eligible, oracle).run()


def interval(scores: Tensor, radius: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper ends, rounded outwards; -inf for keys that do not compete."""
    low, high = scores - radius, scores + radius
    away = radius > 0  # with radius 0 the score is exact and so are its ends
    low = torch.where(away, torch.nextafter(low, low.new_tensor(-torch.inf)), low)
    high = torch.where(away, torch.nextafter(high, high.new_tensor(torch.inf)), high)
    return low.masked_fill(~eligible, -torch.inf), high.masked_fill(~eligible, -torch.inf)


def wanted_of(weighting: Weighting, many: Tensor) -> Tensor:
    """How many keys lie at or above the boundary: a count, or floor(percent * (m - 1) / 100) + 1 of m."""
    if weighting.count is not None:
        return many.clamp_max(weighting.count)
    assert weighting.percent is not None
    share = weighting.percent / 100
    top, bottom = share.numerator, share.denominator
    return torch.tensor([(top * (m - 1)) // bottom + 1 if m else 0 for m in many.tolist()], device=many.device)


def compare(op: str, scores: Tensor, radius: Tensor, oracle: Oracle) -> tuple[Tensor, Tensor]:
    """`score op 0` for every pair, and the tier of every row."""
    tiers = torch.zeros(len(scores), dtype=torch.int8, device=scores.device)
    signs = scores.sign().to(torch.int8)
    doubt = (scores.abs() <= radius) & (radius > 0)
    for row, key in doubt.nonzero().tolist():
        try:
            exact = oracle(row, key)
            signs[row, key] = (exact > 0) - (exact < 0)
            tiers[row] = max(int(tiers[row]), EXACT)
        except NotRational:
            signs[row, key] = 0
            tiers[row] = UNDECIDED
    truth = {">": signs > 0, ">=": signs >= 0, "<": signs < 0, "<=": signs <= 0}[op]
    return truth, tiers


class _Argmax:
    """The best key; the first of the best, all of them, or the first within a tolerance of the best."""

    def __init__(
        self,
        weighting: Weighting,
        low: Tensor,
        high: Tensor,
        eligible: Tensor,
        oracle: Oracle,
        twins: Tensor | None,
    ) -> None:
        self.weighting, self.low, self.high, self.eligible, self.oracle = weighting, low, high, eligible, oracle
        self.twins = twins

    def run(self) -> tuple[Tensor, Tensor]:
        epsilon = self.weighting.epsilon
        best_low, best_high = self.low.amax(1, keepdim=True), self.high.amax(1, keepdim=True)
        leaders = self.eligible & (self.high >= best_low)  # who may be the best
        if epsilon:
            floor_low = torch.nextafter(best_low - nextafter(float(epsilon), inf), best_low.new_tensor(-torch.inf))
            floor_high = torch.nextafter(best_high - nextafter(float(epsilon), -inf), best_high.new_tensor(torch.inf))
            near = self.eligible & (self.high >= floor_low)  # who may be within the tolerance
            first = _first(near)
            sure = self.low.gather(1, first[:, None]) >= floor_high
        else:
            near, first = leaders, _first(leaders)
            exact_ties = leaders & (self.low == self.high)
            sure = (leaders.sum(1, keepdim=True) == 1) | (exact_ties == leaders).all(1, keepdim=True)
        chosen = torch.zeros_like(self.eligible)
        some = self.eligible.any(1)
        if self.weighting.ties == "split":
            chosen |= leaders
        else:
            chosen.scatter_(1, first[:, None], some[:, None])
        tiers = torch.zeros(len(chosen), dtype=torch.int8, device=chosen.device)
        doubt = some & ~sure[:, 0]
        if not epsilon and bool(doubt.any()):
            tied = self._tied(leaders, doubt)
            tiers[tied] = EXACT
            doubt = doubt & ~tied
        for row in doubt.nonzero()[:, 0].tolist():
            keys, tiers[row] = self._settle(row, _list(leaders[row]), _list(near[row]))
            chosen[row] = False
            chosen[row, keys] = True
        return chosen, tiers

    def _tied(self, leaders: Tensor, doubt: Tensor) -> Tensor:
        """Rows whose leaders are all the same key under different names: equal without computing anything.

        Only where scores are rational: the others are reported as undecided, ties or not.
        """
        none = torch.zeros_like(doubt)
        if self.twins is None or leaders.shape[1] != len(self.twins):
            return none
        twins, largest = self.twins.to(leaders.device).expand_as(leaders), len(self.twins)
        tied = torch.where(leaders, twins, largest).amin(1) == torch.where(leaders, twins, -1).amax(1)
        rows = (tied & doubt).nonzero()[:, 0]
        if len(rows) == 0:
            return none
        try:
            self.oracle(int(rows[0]), int(_first(leaders[rows[:1]])[0]))
        except NotRational:
            return none
        return tied & doubt

    def _settle(self, row: int, leaders: list[int], near: list[int]) -> tuple[list[int], int]:
        split = self.weighting.ties == "split"
        values = _exact_scores(self.low[row], self.high[row], {*leaders, *near})
        tier = EXACT if values is None else BOUND
        try:
            values = values or {key: self.oracle(row, key) for key in leaders}
            floor = max(values[key] for key in leaders) - self.weighting.epsilon
            if split:
                return [key for key in leaders if values[key] >= floor], tier
            return [next(k for k in near if (values[k] if k in values else self.oracle(row, k)) >= floor)], tier
        except NotRational:
            return leaders if split else near[:1], UNDECIDED


class _Top:
    """The best keys: exactly `count`, or all not worse than the one at the percentage."""

    def __init__(self, weighting: Weighting, low: Tensor, high: Tensor, eligible: Tensor, oracle: Oracle) -> None:
        self.weighting, self.low, self.high, self.eligible, self.oracle = weighting, low, high, eligible, oracle

    def run(self) -> tuple[Tensor, Tensor]:
        many = self.eligible.sum(1)
        wanted = wanted_of(self.weighting, many)
        # k is surely in when fewer than `wanted` others can reach it, surely out when that many surely beat it.
        rivals = _count_at_least(self.high, self.low) - 1
        beaten = _count_above(self.low, self.high)
        inside = self.eligible & (rivals < wanted[:, None])
        doubt = self.eligible & ~inside & (beaten < wanted[:, None])
        tiers = torch.zeros(len(inside), dtype=torch.int8, device=inside.device)
        for row in doubt.any(1).nonzero()[:, 0].tolist():
            left = int(wanted[row]) - int(inside[row].sum())
            keys, tiers[row] = self._settle(row, _list(doubt[row]), left)
            inside[row, keys] = True
        return inside, tiers

    def _settle(self, row: int, doubt: list[int], left: int) -> tuple[list[int], int]:
        keep_ties = self.weighting.percent is not None
        values = _exact_scores(self.low[row], self.high[row], doubt)
        if values is not None:
            return _best(values, left, keep_ties), BOUND
        try:
            values = {key: self.oracle(row, key) for key in doubt}
        except NotRational:
            return doubt if keep_ties else doubt[:left], UNDECIDED
        return _best(values, left, keep_ties), EXACT


class _Normmax:
    """The best m keys, m smallest with gamma * (sum of the m best - m * the next) >= 1."""

    def __init__(
        self,
        weighting: Weighting,
        scores: Tensor,
        radius: Tensor,
        low: Tensor,
        high: Tensor,
        eligible: Tensor,
        oracle: Oracle,
    ) -> None:
        assert weighting.gamma is not None
        self.gamma = weighting.gamma
        self.scores, self.radius, self.low, self.high = scores, radius, low, high
        self.eligible, self.oracle = eligible, oracle

    def run(self) -> tuple[Tensor, Tensor]:
        chosen = torch.zeros_like(self.eligible)
        tiers = torch.zeros(len(chosen), dtype=torch.int8, device=chosen.device)
        for row in self.eligible.any(1).nonzero()[:, 0].tolist():
            keys = _list(self.eligible[row])
            # Doubles are fractions: the rule itself is evaluated without rounding, only the scores have radii.
            middle = {key: Fraction(float(self.scores[row, key])) for key in keys}
            best = self._keep(middle)
            if not self._sure(row, best, keys):
                try:
                    best, tiers[row] = self._keep({key: self.oracle(row, key) for key in keys}), EXACT
                except NotRational:
                    tiers[row] = UNDECIDED
            chosen[row, best] = True
        return chosen, tiers

    def _keep(self, values: dict[int, Fraction]) -> list[int]:
        ordered = sorted(values, key=lambda key: -values[key])
        total = Fraction(0)
        for count, (key, following) in enumerate(pairwise(ordered), start=1):
            total += values[key]
            if self.gamma * (total - count * values[following]) >= 1:
                return ordered[:count]
        return ordered

    def _sure(self, row: int, best: list[int], keys: list[int]) -> bool:
        """Whether every score within its interval gives the same m best."""
        if all(self.radius[row, key] == 0 for key in keys):
            return True
        if not all(bool(torch.isfinite(self.high[row, key])) for key in keys):
            return False
        low = {key: Fraction(float(self.low[row, key])) for key in keys}
        high = {key: Fraction(float(self.high[row, key])) for key in keys}
        rest = [key for key in keys if key not in set(best)]
        worst, count = min(low[key] for key in best), len(best)
        # The gaps inside the kept block must stay below the budget, those to the next key must reach it.
        too_early = self.gamma * (sum(high[key] for key in best) - count * worst) >= 1
        if count > 1 and too_early:
            return False
        if not rest:
            return True
        following = max(high[key] for key in rest)
        # Together the two conditions put every kept score above every other one.
        return self.gamma * (sum(low[key] for key in best) - count * following) >= 1


def _best(values: dict[int, Fraction], left: int, keep_ties: bool) -> list[int]:
    """The `left` best, lower index first among equals; or all not worse than the last of them."""
    ordered = sorted(values, key=lambda key: (-values[key], key))
    if not keep_ties:
        return ordered[:left]
    boundary = values[ordered[left - 1]]
    return [key for key in ordered if values[key] >= boundary]


def _exact_scores(low: Tensor, high: Tensor, keys: Collection[int]) -> dict[int, Fraction] | None:
    """The scores of keys whose intervals are points: doubles are fractions. None where one is wider."""
    at = list(keys)
    if not bool((low[at] == high[at]).all()):
        return None
    return {key: Fraction(float(value)) for key, value in zip(at, low[at], strict=True)}


def _first(mask: Tensor) -> Tensor:
    """Index of the first True of every row (0 where there is none)."""
    return mask.to(torch.int8).argmax(1)


def _list(row: Tensor) -> list[int]:
    return [int(i) for i in row.nonzero()[:, 0]]


def _count_at_least(values: Tensor, floor: Tensor) -> Tensor:
    """For every entry of floor, how many values of its row are >= it."""
    ordered = values.sort(1).values
    return values.shape[1] - torch.searchsorted(ordered, floor.contiguous(), right=False)


def _count_above(values: Tensor, floor: Tensor) -> Tensor:
    """For every entry of floor, how many values of its row are > it."""
    ordered = values.sort(1).values
    return values.shape[1] - torch.searchsorted(ordered, floor.contiguous(), right=True)
