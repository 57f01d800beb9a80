"""Decisions over keys that are spread over processes: the same as `decide` takes over all of them, without gathering.

A rank among all scores is found by rounds of counts: numbers are looked at as 64 bits in their order, eight bits a
round, and every round adds up how many there are of each kind. What intervals leave open is settled by fractions: every
process sends those of its own candidates, equal ones once.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf, nextafter

import torch
from torch import Tensor

from weftc_runtime.exact.decide import EXACT, UNDECIDED, Oracle, decide, interval, wanted_of
from weftc_runtime.exact.rational import NotRational
from weftc_runtime.format.program import Weighting
from weftc_runtime.kernels.collective import Collective

DIGIT = 8  # bits of a round
LOWEST = -(1 << 63)


def decide_together(
    weighting: Weighting, scores: Tensor, radius: Tensor, eligible: Tensor, oracle: Oracle, others: Collective
) -> tuple[Tensor, Tensor]:
    """Which of the keys of this process are chosen (q, k), and the tier of every row (q,), the same in all."""
    together = _Together(weighting, scores, radius, eligible, oracle, others)
    if weighting.kind == "argmax":
        return together.argmax()
    return together.top() if weighting.kind == "top" else together.normmax()


class _Together:
    def __init__(
        self,
        weighting: Weighting,
        scores: Tensor,
        radius: Tensor,
        eligible: Tensor,
        oracle: Oracle,
        others: Collective,
    ) -> None:
        self.weighting, self.scores, self.radius, self.eligible = weighting, scores, radius, eligible
        self.oracle, self.others, self.rows = oracle, others, len(scores)
        self.low, self.high = interval(scores, radius, eligible)
        self.tiers = torch.zeros(self.rows, dtype=torch.int8, device=scores.device)

    # ------------------------------------------------------------------ the best
    def argmax(self) -> tuple[Tensor, Tensor]:
        """The best key; the first of the best, all of them, or the first within a tolerance of the best."""
        epsilon, split = self.weighting.epsilon, self.weighting.ties == "split"
        low, high = self.others.max(torch.stack([_most(self.low), _most(self.high)]))[:, :, None]
        leaders = self.eligible & (self.high >= low)
        near = leaders
        if epsilon:
            floor_low = torch.nextafter(low - nextafter(float(epsilon), inf), low.new_tensor(-torch.inf))
            floor_high = torch.nextafter(high - nextafter(float(epsilon), -inf), high.new_tensor(torch.inf))
            near = self.eligible & (self.high >= floor_low)
        first = self._first(near)
        some, many, inexact = self.others.sum(
            torch.stack([self.eligible.sum(1), leaders.sum(1), (leaders & (self.low != self.high)).sum(1)])
        )
        sure = (many == 1) | (inexact == 0)
        if epsilon:
            sure = ~self._any((first & (self.low < floor_high)).any(1))
        chosen = leaders.clone() if split else first
        for row in ((some > 0) & ~sure).nonzero()[:, 0].tolist():
            chosen[row], self.tiers[row] = self._settled(row, leaders[row], near[row], first[row])
        return chosen, self.tiers

    def _settled(self, row: int, leaders: Tensor, near: Tensor, first: Tensor) -> tuple[Tensor, int]:
        split, epsilon = self.weighting.ties == "split", self.weighting.epsilon
        values = self._exactly(row, leaders)
        told = self.others.gather(None if values is None else max(values.values(), default=None))
        if None in told and self._any_failed(values):
            return (leaders if split else first), UNDECIDED
        floor = max(value for value in told if value is not None) - epsilon
        assert values is not None
        if split:
            return _marked(leaders, [key for key, value in values.items() if value >= floor]), EXACT
        found = self._exactly(row, near) if epsilon else values
        assert found is not None
        good = _marked(near, [key for key, value in found.items() if value >= floor])
        return self._first(good[None])[0], EXACT

    def _exactly(self, row: int, keys: Tensor) -> dict[int, Fraction] | None:
        try:
            return {key: self.oracle(row, key) for key in keys.nonzero()[:, 0].tolist()}
        except NotRational:
            return None

    def _any_failed(self, values: object | None) -> bool:
        return self.others.any(values is None)

    # ------------------------------------------------------------------ the best of many
    def top(self) -> tuple[Tensor, Tensor]:
        """The best keys: exactly `count`, or all not worse than the one at the percentage."""
        many = self.others.sum(self.eligible.sum(1))
        wanted = wanted_of(self.weighting, many)
        low, high = _ordered(self.low), _ordered(self.high)
        beaten = self._nth(low, self.eligible, wanted)
        rivals = self._nth(high, self.eligible, (wanted + 1).clamp_max(many))
        rivals = torch.where(wanted < many, rivals, LOWEST)
        inside = self.eligible & (low > rivals[:, None])
        doubt = self.eligible & ~inside & (high >= beaten[:, None])
        kept, open_, rough = self.others.sum(
            torch.stack([inside.sum(1), doubt.sum(1), (doubt & (self.low != self.high)).sum(1)])
        )
        left = (wanted - kept).clamp_min(0)
        exact = (open_ > 0) & (rough == 0)
        if bool(exact.any()):  # scores without error: ties are ties
            boundary = self._nth(low, doubt & exact[:, None], torch.where(exact, left, 0))[:, None]
            inside |= self._best(
                exact[:, None] & doubt & (low > boundary), exact[:, None] & doubt & (low == boundary), left
            )
        for row in ((open_ > 0) & ~exact).nonzero()[:, 0].tolist():
            inside[row], self.tiers[row] = self._ranked(row, inside[row], doubt[row], int(left[row]))
        return inside, self.tiers

    def _best(self, above: Tensor, level: Tensor, left: Tensor) -> Tensor:
        """Those above the boundary, and of those at it all, or as many as are left, in order."""
        if self.weighting.percent is not None:
            return above | level
        return above | self._firsts(level, left - self.others.sum(above.sum(1)))

    def _ranked(self, row: int, inside: Tensor, doubt: Tensor, left: int) -> tuple[Tensor, int]:
        """The best of the keys in doubt, by fractions."""
        values = self._exactly(row, doubt)
        if self._any_failed(values):
            whole = self.weighting.percent is not None
            rest = doubt if whole else self._firsts(doubt[None], torch.tensor([left]))[0]
            return inside | rest, UNDECIDED
        assert values is not None
        counts: dict[Fraction, int] = {}
        for value in values.values():
            counts[value] = counts.get(value, 0) + 1
        total: dict[Fraction, int] = {}
        for one in self.others.gather(counts):
            for value, count in one.items():
                total[value] = total.get(value, 0) + count
        seen = 0
        for boundary in sorted(total, reverse=True):
            seen += total[boundary]
            if seen >= left:
                break
        above = _marked(doubt, [key for key, value in values.items() if value > boundary])
        level = _marked(doubt, [key for key, value in values.items() if value == boundary])
        return inside | self._best(above[None], level[None], torch.tensor([left]))[0], EXACT

    def _nth(self, numbers: Tensor, among: Tensor, wanted: Tensor) -> Tensor:
        """The wanted-th largest number of every row, counted from 1, over all processes; anything where that is 0."""
        bits = numbers ^ LOWEST  # to be read as unsigned
        prefix = torch.zeros(self.rows, dtype=torch.int64, device=numbers.device)
        left, alive = wanted.clone(), among
        place = torch.arange(self.rows, device=numbers.device)[:, None] << DIGIT
        for shift in range(64 - DIGIT, -1, -DIGIT):
            digit = (bits >> shift) & ((1 << DIGIT) - 1)
            counts = torch.bincount((place + digit)[alive], minlength=self.rows << DIGIT)
            above = self.others.sum(counts).reshape(self.rows, -1).flip(1).cumsum(1)  # from the largest digit on
            at = (above < left[:, None]).sum(1).clamp_max((1 << DIGIT) - 1)
            left = left - torch.where(at > 0, above.gather(1, (at - 1).clamp_min(0)[:, None])[:, 0], 0)
            chosen = (1 << DIGIT) - 1 - at
            prefix = (prefix << DIGIT) | chosen
            alive = alive & (digit == chosen[:, None])
        return prefix ^ LOWEST

    # ------------------------------------------------------------------ supports
    def normmax(self) -> tuple[Tensor, Tensor]:
        """The best m keys: all of them score within 1 / gamma of the best, so that those alone are compared."""
        gamma = self.weighting.gamma
        assert gamma is not None
        reach = nextafter(float(1 / gamma), inf)
        best = self.others.max(_most(self.low))[:, None]
        floor = torch.nextafter(best - reach, best.new_tensor(-torch.inf))
        close = self.eligible & (self.high >= floor)
        at = close.nonzero()
        mine = [at.tolist(), self.scores[close].tolist(), self.radius[close].tolist()]
        told = self.others.gather(mine)
        widths = torch.tensor([[sum(row == at for at, _ in one[0]) for one in told] for row in range(self.rows)])
        width = max(1, int(widths.sum(1).max())) if self.rows else 1
        scores, radius = (
            torch.zeros(self.rows, width, dtype=torch.float64),
            torch.zeros(self.rows, width, dtype=torch.float64),
        )
        eligible, own = torch.zeros(self.rows, width, dtype=torch.bool), list[tuple[int, int, int]]()
        filled = [0] * self.rows
        for rank, (places, values, radii) in enumerate(told):
            for (row, key), value, error in zip(places, values, radii, strict=True):
                column = filled[row]
                filled[row] += 1
                scores[row, column], radius[row, column], eligible[row, column] = value, error, True
                if rank == self.others.rank:
                    own.append((row, column, key))
        exact: dict[tuple[int, int], Fraction | None] = {}

        def lookup(row: int, column: int) -> Fraction:
            if (row, column) not in exact:
                exact.update(self._fractions(row, own))
            value = exact[row, column]
            if value is None:
                raise NotRational("a score of another process")
            return value

        found, tiers = decide(self.weighting, scores, radius, eligible, lookup)
        chosen = torch.zeros_like(self.eligible)
        for row, column, key in own:
            chosen[row, key] = found[row, column]
        return chosen, tiers

    def _fractions(self, row: int, own: list[tuple[int, int, int]]) -> dict[tuple[int, int], Fraction | None]:
        """The exact scores of the close keys of a row, those of all processes."""
        mine: dict[tuple[int, int], Fraction | None] = {}
        for at, column, key in own:
            if at == row:
                try:
                    mine[row, column] = self.oracle(row, key)
                except NotRational:
                    mine[row, column] = None
        return {place: value for one in self.others.gather(mine) for place, value in one.items()}

    # ------------------------------------------------------------------ order
    def _any(self, flags: Tensor) -> Tensor:
        return self.others.max(flags.to(torch.int64)) > 0

    def _first(self, mask: Tensor) -> Tensor:
        """The first True of every row in the order of all processes, as a mask of this one's."""
        return self._firsts(mask, torch.ones(len(mask), dtype=torch.int64))

    def _firsts(self, mask: Tensor, many: Tensor) -> Tensor:
        """The first so many of every row."""
        before = self.others.stack(mask.sum(1))[: self.others.rank].sum(0)
        return mask & (mask.cumsum(1) <= (many - before)[:, None])


def _most(numbers: Tensor) -> Tensor:
    """The largest number of every row; -inf where there is none."""
    return numbers.amax(1) if numbers.shape[1] else numbers.new_full((len(numbers),), -torch.inf)


def _ordered(numbers: Tensor) -> Tensor:
    """Integers in the order of the numbers; -0.0 is 0.0."""
    bits = (numbers + 0.0).contiguous().view(torch.int64)
    return torch.where(bits < 0, bits ^ 0x7FFFFFFFFFFFFFFF, bits)


def _marked(like: Tensor, keys: list[int]) -> Tensor:
    found = torch.zeros_like(like)
    found[keys] = True
    return found
