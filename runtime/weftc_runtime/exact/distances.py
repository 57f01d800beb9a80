"""Squared distances of many pairs, as exact as differences, at the speed of matrix products.

|x - y|^2 = |x|^2 + |y|^2 - 2 <x, y> cancels when x and y are close. So numbers are cut in two, x = h + l, h a multiple
of a unit so coarse that |h - h'|^2 comes out of one matrix product without any rounding. What is left,
2 <h - h', l - l'> + |l - l'|^2, is small and comes out of a second one; its rounding is below u * |x| units. Where that
could show beside 1 in a score, and for pairs with h = h', differences are formed one by one instead.

A column whose numbers all have the same sign and differ by less than a factor of two is shifted by one of them, which
rounds nothing (Sterbenz): an offset of the data costs no accuracy.

Several problems may stand side by side, along axes in front: each has a shift and a unit of its own.
"""

from __future__ import annotations

from math import ceil, log2

import torch
from torch import Tensor

from weftc_runtime.exact.bounds import U
from weftc_runtime.exact.sums import power_of_two


class Squares:
    """Squared distances between queries and keys whose features lie between `low` and `high` (.., 1, r)."""

    def __init__(self, low: Tensor, high: Tensor, factor: Tensor, direct: bool = False) -> None:
        """`factor` (.., 1, 1): what distances are multiplied by, at most. `direct`: differences alone will do."""
        terms = low.shape[-1]
        self.apart = (low != high).any()  # whether some distance may not be zero
        one_sided = ((low > 0) & (high <= 2 * low)) | ((high < 0) & (low >= 2 * high))
        self.shift = torch.where(one_sided, low, 0.0)
        away = torch.maximum((low - self.shift).abs(), (high - self.shift).abs())
        reach = away.amax(-1, keepdim=True) if terms else torch.zeros_like(factor)
        bits = (50 - ceil(log2(terms + 1))) // 2  # 4 r 2^(2 bits) stays below 2^53
        exponent = torch.frexp(reach).exponent.to(torch.int64) - bits  # of the unit
        self.unit = power_of_two(exponent.clamp(-500, 500))
        fine = factor * self.unit * self.unit * U * 4 * terms * 2.0**bits <= 2.0**-52
        self.direct = direct or not bool((fine & (exponent.abs() <= 400)).all())

    def query(self, features: Tensor) -> tuple[Tensor, ...]:
        """Features of queries as the factors of the products."""
        if self.direct:
            return (features,)
        high, low, square, rest = self._cut(features)
        one = torch.ones_like(square)
        return torch.cat([high, square, one], -1), torch.cat([high, low, rest, one], -1), features

    def key(self, features: Tensor) -> tuple[Tensor, ...]:
        """Features of keys as the factors of the products."""
        if self.direct:
            return (features,)
        high, low, square, rest = self._cut(features)
        one = torch.ones_like(square)
        moved = torch.cat([-2 * low, -2 * (high + low), one, rest], -1)
        return torch.cat([-2 * high, one, square], -1), moved, features

    def _cut(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        units = (features - self.shift) / self.unit
        high = units.round()
        low = units - high
        square = high.square().sum(-1, keepdim=True)  # a whole number below 2^53
        return high, low, square, (2 * high * low + low.square()).sum(-1, keepdim=True)

    def distances(self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...]) -> Tensor:
        """(.., queries, keys)."""
        if self.direct:
            return torch.cdist(query[0], keys[0], compute_mode="donot_use_mm_for_euclid_dist").square_()
        raw = query[0] @ keys[0].mT
        *front, one, other = close = (raw == 0).nonzero(as_tuple=True)
        raw += query[1] @ keys[1].mT  # not accumulated in place: the exact part is rounded once
        found = raw.clamp_min_(0.0).mul_(self.unit * self.unit)
        found[close] = (query[2][(*front, one)] - keys[2][(*front, other)]).square().sum(-1)
        return found
