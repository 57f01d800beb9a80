"""Weightings: scores over one index become non-negative weights, as numerators over one denominator per query.

    hard        argmax argmin sample lowest highest normmax: numerators 0 and 1, denominator the number of keys kept
    softmax     exp(score - largest score) over their sum
    normalize   scores over their sum
    sparsemax   the nearest point of the simplex, denominator 1
    entmax15    max(0, score/2 - t)^2 with t such that they add up to one, denominator 1

A query without an eligible key, or whose denominator is exactly zero, has no weights: its value is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from weftc.core.syntax import Binary, Call, Condition, Expr, Neg, Norm, Percent, Reduce, Square, Weigh, walk
from weftc.core.vocabulary import CHOICES, DECIDING, FUNCTIONS, WEIGHTINGS
from weftc.interpreter import tables
from weftc.interpreter.decisions import Decision, keep_budget, keep_through, keep_within
from weftc.interpreter.environment import free
from weftc.interpreter.exponentials import largest, ratio_weights, shifted_exp
from weftc.interpreter.rationals import Irrational
from weftc.interpreter.sums import candidates, indicator, only, summed
from weftc.interpreter.tables import ROUND, Bools, Floats, ValueTable, union

if TYPE_CHECKING:
    from weftc.interpreter.expressions import Evaluator


@dataclass(frozen=True, slots=True)
class WeightTable:
    """Weights over an index: `numerator` has an axis for it, `denominator` has not."""

    numerator: ValueTable
    denominator: ValueTable

    @property
    def value(self) -> ValueTable:
        return tables.divided(self.numerator, self.denominator)

    def renamed(self, names: Mapping[str, str]) -> WeightTable:
        return WeightTable(tables.renamed(self.numerator, names), tables.renamed(self.denominator, names))


def weigh(evaluator: Evaluator, node: Weigh, also: Sequence[Condition] = ()) -> WeightTable:
    """The weights of a weighting, whose index runs over its whole set in `evaluator`."""
    if also:
        return _weighed(evaluator, node, also)
    return evaluator.once("weights", node, lambda: _weighed(evaluator, node, ()))


def _weighed(evaluator: Evaluator, node: Weigh, also: Sequence[Condition]) -> WeightTable:
    counted = evaluator.conditions((*node.where, *also))
    if node.kind in DECIDING:
        return _hard(evaluator, node, counted)
    index, size = node.index, evaluator.world.size(node.index)
    if node.kind == "normalize":
        numerator = ratio_weights(evaluator, node.score, index, size, counted)
    else:
        scores = evaluator.table(node.score)
        shift = largest(scores, index, size, counted)
        if node.kind in _THRESHOLDS:
            shifted = tables.added(scores, tables.negated(shift))
            return _above_threshold(_THRESHOLDS[node.kind], shifted, index, size, counted)
        numerator = shifted_exp(scores, shift)
    denominator = summed(numerator, index, size, counted)
    if node.kind == "normalize":
        mass = Reduce(node.span, "sum", index, node.score, None, None, (*node.where, *also))
        denominator = evaluator.settled(mass, denominator)
    return WeightTable(only(numerator, counted), denominator)


def sharp(evaluator: Evaluator, node: Weigh) -> ValueTable:
    """The weights of a softmax that is all but a choice, with a bound that vanishes with the weight of the losers.

    If every score is known to +-r, w = 1 / (1 + R) with R known to a factor exp(+-2r), so w is off by at most
    w (1 - w) (exp(2r) - 1) exp(2r); 1 - w is what the others hold.
    """
    weights = weigh(evaluator, node)
    index, size = node.index, evaluator.world.size(node.index)
    counted = evaluator.conditions(node.where)
    scores, value = evaluator.table(node.score), weights.value
    rows = tuple(a for a in value.axes if a != index)
    _, error, keep, _ = candidates(scores, index, size, counted, rows)
    data, _, _, _ = candidates(value, index, size, counted, rows)
    with np.errstate(all="ignore"):
        radius = np.max(np.where(keep, error, 0.0), axis=-1, keepdims=True)
        place = np.argmax(data, axis=-1)[..., np.newaxis]
        losers = np.where(np.arange(size) == place, 0.0, data)
        others = np.where(np.arange(size) == place, np.sum(losers, axis=-1, keepdims=True), 1.0 - data)
        bound = np.minimum(data * others * np.expm1(2 * radius) * np.exp(2 * radius), 1.0) + 8 * size * ROUND * data
        bound = np.where(keep, np.where(np.isnan(bound), 1.0, bound + tables.TINY), 0.0)
    value = tables.turned(value, (*rows, index))
    return replace(value, error=np.broadcast_to(bound[..., np.newaxis], value.data.shape))


@dataclass(frozen=True, slots=True)
class _Threshold:
    """Weights f(z - t) of scores z >= t, with t such that they add up to one."""

    weight: Callable[[Floats], Floats]  # f
    solve: Callable[[list[float]], float]  # the scores from the best one down -> t
    slope: float  # a weight moves by at most this times the largest move of a score
    rounding: Callable[[int], float]  # of weights among so many scores; all numbers that matter are below one


def _sparse_threshold(ranked: list[float]) -> float:
    best = [m for m, (z, total) in enumerate(zip(ranked, accumulate(ranked), strict=True), 1) if 1 + m * z > total]
    m = max(best, default=1)
    return (math.fsum(ranked[:m]) - 1) / m


def _entmax_threshold(ranked: list[float]) -> float:
    """Half the scores, u: the m best have weight if the squares of their leads over the m-th add up to less than 1."""
    half = [z / 2 for z in ranked if z > -2]
    m = 1
    while m < len(half) and math.fsum((u - half[m]) ** 2 for u in half[:m]) < 1:
        m += 1
    mean = math.fsum(half[:m]) / m
    return 2 * (mean - math.sqrt((1 - math.fsum((u - mean) ** 2 for u in half[:m])) / m))


_THRESHOLDS = {
    "sparsemax": _Threshold(lambda z: z, _sparse_threshold, 2, lambda size: 16 * ROUND),
    "entmax15": _Threshold(lambda z: (z / 2) ** 2, _entmax_threshold, 2, lambda size: 16 * (size + 1) * ROUND),
}


def _above_threshold(
    rule: _Threshold, shifted: ValueTable, index: str, size: int, counted: ValueTable | None
) -> WeightTable:
    """Weights by a threshold, of scores whose largest is 0."""
    rows = tuple(a for a in union(shifted.axes, counted.axes if counted else ()) if a != index)
    z, error, keep, lost = candidates(shifted, index, size, counted, rows)
    ranked = -np.sort(-np.where(keep, z, -np.inf), axis=-1)
    threshold = np.zeros(ranked.shape[:-1])
    for at in np.ndindex(*threshold.shape):
        threshold[at] = rule.solve(ranked[at].tolist()) if np.isfinite(ranked[at][0]) else 0.0
    weights = np.where(keep, rule.weight(np.maximum(z - threshold[..., np.newaxis], 0.0)), 0.0)
    moved = rule.slope * np.max(np.where(keep, error, 0.0), axis=-1, keepdims=True)
    spread = np.where(keep, moved + rule.rounding(size), 0.0)
    everywhere = np.broadcast_to(True, (*weights.shape, 1))
    numerator = tables.made((*rows, index), weights[..., np.newaxis], spread[..., np.newaxis], everywhere)
    some = keep.any(axis=-1)
    return WeightTable(numerator, indicator(rows, some & ~lost, some & ~lost))


# ---- hard weightings -------------------------------------------------------------------------------------------------


def _hard(evaluator: Evaluator, node: Weigh, counted: ValueTable | None) -> WeightTable:
    """Equal weights on the keys that are kept."""
    world, index = evaluator.world, node.index
    score = ranking(evaluator, node)
    table = evaluator.table(score)
    if not any(part is node.score for part in walk(score)):
        # an increasing function decides as its argument does, but has a domain of its own
        table = _where_defined(table, evaluator.table(node.score))
    argument = _argument(evaluator, node)
    rows = tuple(
        a for a in union(table.axes, counted.axes if counted else (), argument.axes if argument else ()) if a != index
    )
    data, error, keep, lost = candidates(table, index, world.size(index), counted, rows)
    shape = np.broadcast_shapes(data.shape[:-1], _flat_shape(argument, rows))
    keys = data.shape[-1]
    keep = np.broadcast_to(keep & ~lost[..., np.newaxis], (*shape, keys)).reshape(-1, keys)

    def exact(row: int, among: list[int]) -> dict[int, Fraction]:
        at = evaluator.env(rows, shape, row)
        try:
            return {key: evaluator.exact.number(score, {**at, index: key}) for key in among}
        except Irrational:
            if not np.isfinite(contest.scores[row, among]).all():
                raise world.error(node.score.span, "a score is undefined, or too large for float64") from None
        return {key: evaluator.exact.varying(score, index, {**at, index: key}) for key in among}

    contest = Decision(
        np.broadcast_to(data, (*shape, keys)).reshape(-1, keys),
        np.broadcast_to(error, (*shape, keys)).reshape(-1, keys),
        keep,
        exact,
        evaluator.tally,
    )

    def textbook(row: int, scores: dict[int, Fraction]) -> set[int]:
        return evaluator.exact.kept(node, scores, evaluator.env(rows, shape, row))

    kept = _kept(evaluator, node, contest, argument, rows, shape, textbook).reshape(*shape, keys)
    some = np.asarray(keep.reshape(*shape, keys).any(axis=-1))
    count = np.maximum(kept.sum(axis=-1), 1).astype(np.float64)[..., np.newaxis]
    # where no key is left because scores are undefined, it depends on them how certain that is
    doubt = np.where(lost, np.max(np.where(np.isfinite(error), 0.0, error), axis=-1), 0.0)
    doubt = np.broadcast_to(doubt, shape)[..., np.newaxis]
    denominator = ValueTable(rows, count, np.where(some[..., np.newaxis], 0.0, doubt), some[..., np.newaxis])
    return WeightTable(indicator((*rows, index), kept), denominator)


def _where_defined(table: ValueTable, other: ValueTable) -> ValueTable:
    """The table, without a value where the other one has none."""
    table, other = tables.aligned(table, other)
    shape = np.broadcast_shapes(table.data.shape, other.data.shape)
    broken = other.defined & ~np.isfinite(other.data)
    data, error = np.where(broken, np.nan, table.data), np.where(broken, np.inf, table.error)
    return ValueTable(
        table.axes, np.broadcast_to(data, shape), error, np.broadcast_to(table.defined & other.defined, shape)
    )


def _flat_shape(argument: ValueTable | None, rows: tuple[str, ...]) -> tuple[int, ...]:
    return tables.turned(argument, rows).data.shape[:-1] if argument else (1,) * len(rows)


def _argument(evaluator: Evaluator, node: Weigh) -> ValueTable | None:
    """How many, which share, which budget, or within what distance; checked."""
    if node.ties is not None and node.ties.epsilon is not None:
        return evaluator.table(node.ties.epsilon)
    if node.kind not in ("lowest", "highest", "normmax"):
        return None
    (expr,) = node.arguments
    argument = evaluator.table(expr)
    values = np.where(argument.defined, argument.data, np.nan)
    if node.kind == "normmax":
        valid, needs = np.isfinite(values), "a finite number"
    elif isinstance(expr, Percent):
        valid, needs = (values >= 0) & (values <= 100), "a share between 0% and 100%"
    else:
        valid, needs = (values >= 1) & (values == np.floor(values)), "a whole number, at least 1"
    if not valid.all():
        raise evaluator.world.error(expr.span, f"`{node.kind}` needs {needs}", f"this is {values[~valid][0]:g}")
    return argument


def _kept(
    evaluator: Evaluator,
    node: Weigh,
    contest: Decision,
    argument: ValueTable | None,
    rows: tuple[str, ...],
    shape: tuple[int, ...],
    textbook: Callable[[int, dict[int, Fraction]], set[int]],
) -> Bools:
    present = contest.eligible.sum(axis=1)
    if argument is None:
        split = node.ties is not None and node.ties.rule in ("split", "average")
        return keep_through(contest, np.zeros_like(present), whole=split)
    given = tables.turned(argument, rows)
    values, errors = (np.broadcast_to(a[..., 0], shape).reshape(-1) for a in (given.data, given.error))
    if node.kind in CHOICES:
        return keep_within(contest, values, errors, textbook)
    if node.kind == "normmax":
        return keep_budget(contest, values, errors, textbook)
    (expr,) = node.arguments
    if not isinstance(expr, Percent):
        wanted = np.minimum(values, float(contest.eligible.shape[1]))
        return keep_through(contest, wanted.astype(np.intp) - 1, whole=False)
    # keep a key iff 100 * #{better} <= share * (m - 1): everything down to the rank at which the two sides meet
    if argument.axes:
        envs = (evaluator.env(rows, shape, row) for row in range(len(values)))
        shares = [_share(evaluator, expr, at, value) for at, value in zip(envs, values.tolist(), strict=True)]
    else:
        shares = [_share(evaluator, expr, {}, float(argument.data[0]))] * len(values)
    last = [int(share * (m - 1) // 100) for share, m in zip(shares, present.tolist(), strict=True)]
    return keep_through(contest, np.array(last, dtype=np.intp), whole=True)


def _share(evaluator: Evaluator, node: Percent, at: Mapping[str, int], value: float) -> Fraction:
    """A percentage as the decimal it is written as; as computed if it is not rational."""
    try:
        return evaluator.exact.share(node, at)
    except Irrational:
        return Fraction(value)


def ranking(evaluator: Evaluator, node: Weigh) -> Expr:
    """The expression that ranks the keys, larger ones better: with its noise, negated for the lowest, and without
    increasing functions around it where only the order counts."""
    score = node.score
    if node.noise is not None:
        score = Binary(score.span, "+", score, node.noise)
    elif node.kind != "normmax" and not (node.ties and node.ties.rule == "within"):
        score = _argument_of_monotone(evaluator, score)
    return Neg(score.span, score) if WEIGHTINGS[node.kind].lowest else score


def _argument_of_monotone(evaluator: Evaluator, node: Expr) -> Expr:
    """What a strictly increasing function is applied to, if it is one."""
    match node:
        case Call(function=function, body=body) if FUNCTIONS[function].increasing:
            return _argument_of_monotone(evaluator, body)
        case Norm(body=body):
            return Square(node.span, body)
        case Neg(body=body):
            inside = _argument_of_monotone(evaluator, body)
            return node if inside is body else Neg(node.span, inside)
        case Binary(op="*" | "/", left=left, right=right) if not free(right):
            return _scaled(evaluator, node, right, left)
        case Binary(op="*", left=left, right=right) if not free(left):
            return _scaled(evaluator, node, left, right)
    return node


def _scaled(evaluator: Evaluator, node: Expr, factor: Expr, body: Expr) -> Expr:
    """What ranks as `factor * body` does, for a constant factor: what `body` grows with, or its negative."""
    inside = _argument_of_monotone(evaluator, body)
    if inside is body:
        return node
    try:
        value = evaluator.exact.number(factor, {})
    except Irrational:
        return node
    return inside if value > 0 else Neg(node.span, inside) if value < 0 else node
