"""Scores of query tokens against key tokens, in blocks of queries, with their error bounds.

l2 parts are computed in difference form: squares of differences never cancel, whatever the offset of the data. Features
are added one after the other, so a score depends on its two tokens only, not on their place in the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from weftc_runtime.exact.bounds import TINY, U, added, function_radius, product_radius, widen
from weftc_runtime.exact.sums import scale_by_power
from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import Part, Score
from weftc_runtime.reference.feed_forward import TOKENWISE

GRID = 10  # multiples of 2^-10 are looked for: data on such a grid has exact scores
FEW = 1 << 15  # numbers that one operation makes faster than a loop over features
SAFE = 480  # operands up to 2^480 have squares that can be added without overflow


def in_order(q: Tensor, k: Tensor, squares: bool) -> Tensor:
    """Sum over the last axis of products or squared differences, added up from the first to the last."""
    return ((q - k).square() if squares else q * k).cumsum(-1)[..., -1]


class _Pairs(torch.autograd.Function):
    """Sum over features of products or squared differences of all pairs.      (q, r), (k, r) -> (q, k)"""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, squares: bool) -> Tensor:
        ctx.save_for_backward(q, k)
        ctx.squares = squares
        if 0 < len(q) * k.numel() <= FEW:
            return in_order(q[:, None], k[None], squares)
        total = torch.zeros(len(q), len(k), dtype=q.dtype, device=q.device)
        for a, b in zip(q.T[:, :, None], k.T[:, None, :], strict=True):
            total += (a - b).square() if squares else a * b
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (q, k), grad = ctx.saved_tensors, grads[0]
        if not ctx.squares:
            return grad @ k, grad.T @ q, None
        to_q, to_k = [], []
        for a, b in zip(q.T[:, :, None], k.T[:, None, :], strict=True):
            part = 2 * grad * (a - b)
            to_q.append(part.sum(1))
            to_k.append(-part.sum(0))
        return torch.stack(to_q, 1), torch.stack(to_k, 1), None


def products_in_order(q: Tensor, k: Tensor) -> Tensor:
    """Inner products of all pairs, each added up from the first feature to the last."""
    return _Pairs.apply(q, k, False)  # type: ignore[no-untyped-call, no-any-return]


@dataclass(slots=True)
class _Part:
    kind: Literal["dot", "l2"]
    q: Tensor
    k: Tensor
    coefficient: Tensor | None
    side: str | None
    scale: Tensor | None
    exponent: int  # l2: q and k were multiplied by 2 ** exponent
    eq: Tensor | None = None  # radii; None when no bounds are wanted
    ek: Tensor | None = None
    escale: Tensor | None = None
    rounds: bool = True  # False when every product and sum is exact, whatever the order
    tiny: float = TINY  # what a product may lose by underflow
    factors: tuple[tuple[str, Scorer], ...] = ()  # functions, and the scores they are of


class Scorer:
    """One score between two streams: features made once, scores in blocks of query rows."""

    def __init__(
        self,
        score: Score,
        weights: Weights,
        query: Tensor,
        keys: Tensor,
        radii: tuple[Tensor, Tensor] | None = None,
        ordered: bool = True,
    ) -> None:
        self.queries, self.keys = query, keys
        self.ordered = ordered  # False when scores are only decided upon, so that the order of their sums does not show
        self.parts = [_prepare(part, weights, query, keys, radii) for part in score.parts]
        for made, part in zip(self.parts, score.parts, strict=True):
            made.factors = tuple(
                (one.function, Scorer(one.score, weights, query, keys, radii, ordered)) for one in part.factors
            )

    def features(self) -> dict[str, Tensor]:
        """Queries and keys, the features of all parts side by side."""
        found = {}
        for name, tokens in (("q", self.queries), ("k", self.keys)):
            made = [scale_by_power(getattr(part, name), -part.exponent) for part in self.parts]
            found[f"hook_{name}"] = torch.cat(made, 1) if made else tokens[:, :0]
        return found

    def replace(self, q: Tensor | None, k: Tensor | None) -> None:
        """Takes other queries or keys, side by side as `features` gives them."""
        start = 0
        for part in self.parts:
            stop = start + part.q.shape[1]
            old = (scale_by_power(one, -part.exponent) for one in (part.q, part.k))
            new = [was if one is None else one[:, start:stop] for was, one in zip(old, (q, k), strict=True)]
            part.exponent = _exponent(*new) if part.kind == "l2" else 0
            part.q, part.k = (scale_by_power(one, part.exponent) for one in new)
            start = stop

    def values(self, rows: slice) -> Tensor:
        """Scores of these query rows with all keys."""
        total = torch.zeros(len(self.queries[rows]), len(self.keys), dtype=torch.float64, device=self.queries.device)
        for part in self.parts:
            value = self._scaled(part, self._raw(part, rows), rows)
            for function, scorer in part.factors:
                value = value * function_of_scores(function, scorer.values(rows))
            total = total + value
        return total

    def sizes(self, rows: slice) -> Tensor:
        """For these query rows and all keys: the sum of the magnitudes of everything that a score adds up."""
        total = torch.zeros(len(self.queries[rows]), len(self.keys), dtype=torch.float64, device=self.queries.device)
        for part in self.parts:
            q, k = part.q[rows].detach(), part.k.detach()
            raw = self._raw(part, rows).detach() if part.kind == "l2" else q.abs() @ k.abs().T
            size = self._scaled(part, raw, rows).detach().abs()
            for function, scorer in part.factors:
                size = size * function_of_scores(function, scorer.values(rows).detach()).abs()
            total = total + size
        return total

    def bounded_values(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Scores and their radii; where one is not finite, the score is 0 and its radius infinite."""
        total = torch.zeros(len(self.queries[rows]), len(self.keys), dtype=torch.float64, device=self.queries.device)
        radius = torch.zeros_like(total)
        for part in self.parts:
            raw = self._raw(part, rows)
            value = self._scaled(part, raw, rows)
            spread = self._radius(part, raw, value, rows)
            for function, scorer in part.factors:
                inside, error = scorer.bounded_values(rows)
                factor = function_of_scores(function, inside)
                bound = widen(function_radius(function, inside, error))
                value, spread = value * factor, product_radius(value, factor, spread, bound)
            before, total = total, total + value
            radius = radius + spread + added(total, before, value)
        radius = widen(radius)
        unknown = ~(torch.isfinite(total) & torch.isfinite(radius))
        return total.masked_fill(unknown, 0.0), radius.masked_fill(unknown, torch.inf)

    def _raw(self, part: _Part, rows: slice) -> Tensor:
        if part.kind == "dot" and not self.ordered:
            return part.q[rows] @ part.k.T
        return _Pairs.apply(part.q[rows], part.k, part.kind == "l2")  # type: ignore[no-untyped-call, no-any-return]

    def _scaled(self, part: _Part, raw: Tensor, rows: slice) -> Tensor:
        value = raw if part.coefficient is None else raw * part.coefficient
        if part.scale is not None:
            value = value * (part.scale[rows, None] if part.side == "query" else part.scale[None])
        return scale_by_power(value, -2 * part.exponent) if part.exponent else value

    def _radius(self, part: _Part, raw: Tensor, value: Tensor, rows: slice) -> Tensor:
        assert part.eq is not None
        assert part.ek is not None
        eq, terms = part.eq[rows], part.q.shape[1]
        if part.kind == "l2":
            radius = ((terms + 4) * U if part.rounds else 0.0) * raw + terms * part.tiny
            for a in _uncertain(part.eq, part.ek):
                error = eq[:, a, None] + part.ek[None, :, a]
                gap = (part.q[rows][:, a, None] - part.k[None, :, a]).abs()
                radius = radius + error * (2 * gap + error)
        else:
            size_q, size_k = part.q[rows].abs(), part.k.abs()
            radius = torch.zeros_like(raw)
            if part.rounds:
                radius = (terms + 2) * U * (size_q @ size_k.T) + terms * part.tiny
            if _uncertain(part.eq, part.ek):
                radius = radius + eq @ (size_k + part.ek).T + size_q @ part.ek.T
        if part.coefficient is not None:
            size = part.coefficient.abs()
            exact = (raw == 0) | ((torch.frexp(size).mantissa == 0.5) & (size > 2.0**-200) & (part.tiny == 0))
            radius = radius * size + torch.where(exact, 0.0, U * size * raw.abs() + TINY)
        if part.scale is not None and part.escale is not None:
            shape = (slice(rows.start, rows.stop), None) if part.side == "query" else (None, slice(None))
            inner = raw if part.coefficient is None else raw * part.coefficient
            radius = product_radius(inner, part.scale[shape], radius, part.escale[shape])
        # Scaled back down, a value may round to a subnormal number or to zero.
        return scale_by_power(radius, -2 * part.exponent) + TINY if part.exponent else radius


def function_of_scores(function: str, scores: Tensor) -> Tensor:
    """A function of scores; not a number where it has no value, and there without a gradient."""
    lost = {"reciprocal": scores == 0, "log": scores <= 0, "sqrt": scores < 0}.get(function)
    if lost is None:
        return TOKENWISE[function](scores)
    return TOKENWISE[function](scores.masked_fill(lost, 1.0)).masked_fill(lost, torch.nan)


def _uncertain(eq: Tensor, ek: Tensor) -> list[int]:
    """The features that are not known exactly."""
    if eq.is_meta:
        return [0]
    return [int(a) for a in ((eq != 0).any(0) | (ek != 0).any(0)).nonzero()[:, 0]]


def _prepare(part: Part, weights: Weights, query: Tensor, keys: Tensor, radii: tuple[Tensor, Tensor] | None) -> _Part:
    q, k = weights.linear(query, part.q), weights.linear(keys, part.k)
    eq = ek = escale = scale = None
    if radii is not None:
        eq, ek = weights.radius(query, radii[0], part.q), weights.radius(keys, radii[1], part.k)
    side = None
    if part.scale is not None:
        side, name = part.scale
        z = query if side == "query" else keys
        scale = weights.linear(z, name)[:, 0]
        if radii is not None:
            escale = weights.radius(z, radii[0] if side == "query" else radii[1], name)[:, 0]
    exponent = 0
    if part.kind == "l2":
        exponent = _exponent(q, k)
        if exponent:
            q, k = scale_by_power(q, exponent), scale_by_power(k, exponent)
            if eq is not None and ek is not None:
                eq, ek = scale_by_power(eq, exponent), scale_by_power(ek, exponent)
    coefficient = None if part.coefficient is None else weights[part.coefficient]
    made = _Part(part.kind, q, k, coefficient, side, scale, exponent, eq, ek, escale)
    if radii is not None and not q.is_meta:
        made.rounds, made.tiny = _rounding(q.detach(), k.detach())
    return made


def _rounding(q: Tensor, k: Tensor) -> tuple[bool, float]:
    """Whether products or squared differences of these features, and their sums, can round; and may underflow.

    Multiples of 2^-g below 2^t have products that are multiples of 2^-2g, and sums of r of them stay below r 2^(2t+2):
    exact in float64 when that range fits 53 bits. So it is for whole numbers and short binary fractions.
    """
    fine = torch.cat([q.reshape(-1), k.reshape(-1)]) * 2.0**GRID
    peak = float(fine.abs().max()) if fine.numel() else 0.0
    if peak * peak * 4 * q.shape[1] < 2.0**53 and bool((fine == fine.round()).all()):
        return False, 0.0
    small = torch.where(fine == 0, 1.0, fine.abs()).min() if fine.numel() else 1.0
    return True, 0.0 if small > 2.0**-400 else TINY


def _exponent(q: Tensor, k: Tensor) -> int:
    """The power of two to scale by before squaring: down only as far as squares need it, up when all are tiny."""
    if q.is_meta or not len(q) or not len(k):
        return 0
    peak = torch.maximum(q.abs().max(), k.abs().max())
    if not bool(torch.isfinite(peak)) or bool(peak == 0):
        return 0
    top = int(torch.frexp(peak).exponent)
    return SAFE - top if top > SAFE else -top if top < -SAFE else 0
