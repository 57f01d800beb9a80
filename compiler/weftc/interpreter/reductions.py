"""Sums, means, extremes over an index.

The rule that fixes every rounding: a weighting is numerators over one denominator, and a sum of weights times values
adds the products of numerators and values exactly and divides once, at the end. So a mean of kept values is their exact
sum, rounded, divided by their count: whether it is written `mean ... where`, `mean ... by` or `sum W * ...`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weftc.core.syntax import Binary, Expr, Neg, Reduce, Ref, Weigh
from weftc.interpreter import tables
from weftc.interpreter.exponentials import largest, ratio_weights, shifted_exp
from weftc.interpreter.sums import both, extreme, indicator, nonzero, summed
from weftc.interpreter.tables import ValueTable, constant
from weftc.interpreter.weightings import WeightTable, weigh

LEAST = 2.0**-960  # of a mass: below it, weights may have underflowed

if TYPE_CHECKING:
    from weftc.interpreter.expressions import Evaluator


def reduce(evaluator: Evaluator, node: Reduce) -> ValueTable:
    """The value of a reduction."""
    index = node.index
    inner = evaluator.opened(index)
    size = inner.world.size(index)
    if node.by is not None:
        weights = weigh(inner, node.by, node.where)
        return _total(weights.numerator, inner.table(node.body), index, size, None, weights.denominator, whole=True)
    counted = inner.conditions(node.where)
    if node.kind in ("max", "min"):
        return extreme(inner.table(node.body), index, size, counted, 1 if node.kind == "max" else -1)
    if node.kind == "logsumexp":
        exponents = inner.table(node.body)
        shift = largest(exponents, index, size, counted)
        mass = summed(shifted_exp(exponents, shift), index, size, counted)
        return tables.added(tables.applied("log", mass), shift)
    found = split(inner, node.body, index)
    chosen, body = found or (None, inner.table(node.body))
    numerator = chosen.numerator if chosen else None
    divisor = chosen.denominator if chosen else None
    weight = constant(1.0)
    if node.weighted is not None:
        ratios = node.kind == "mean"
        weight = ratio_weights(inner, node.weighted, index, size, counted) if ratios else inner.table(node.weighted)
        numerator = weight if numerator is None else tables.multiplied(numerator, weight)
    if node.kind == "mean":
        mass = summed(weight, index, size, counted)
        if node.weighted is not None:
            mass = evaluator.settled(replace(node, kind="sum", body=node.weighted, weighted=None), mass)
            tiny = mass.defined[..., 0] & (np.abs(mass.data[..., 0]) < LEAST)
        divisor = mass if divisor is None else tables.multiplied(divisor, mass)
    whole = node.weighted is None and chosen is not None if node.kind == "sum" else chosen is None
    total = _total(numerator, body, index, size, counted, divisor, whole)
    if node.kind != "mean" or node.weighted is None or not tiny.any():
        return total
    # weights that underflow have lost their ratios
    doubt = tables.laid_out(tiny[..., np.newaxis], mass.axes, total.axes)[..., 0]
    return evaluator.exactly(node, total, np.broadcast_to(doubt, total.data.shape[:-1]))


def _total(
    numerator: ValueTable | None,
    body: ValueTable,
    index: str,
    size: int,
    counted: ValueTable | None,
    divisor: ValueTable | None,
    whole: bool = False,
) -> ValueTable:
    """The sum of numerator * body over the counted keys, divided once. Keys of weight exactly zero do not count.

    `whole`: the weights add up to one, so that what does not depend on the key is its own mean.
    """
    if whole and index not in body.axes and divisor is not None:
        weights = constant(1.0) if numerator is None else numerator
        share, body = tables.aligned(summed(weights, index, size, counted, divisor), body)
        shape = np.broadcast_shapes(share.data.shape, body.data.shape)
        data, error = (np.where(share.defined, np.broadcast_to(a, shape), 0.0) for a in (body.data, body.error))
        doubt = np.where(np.isfinite(share.error), 0.0, np.inf)
        return ValueTable(
            body.axes, data, error + doubt, np.broadcast_to(share.defined & body.defined, (*shape[:-1], 1))
        )
    if numerator is None:
        return summed(body, index, size, counted, divisor)
    if ((numerator.data == 0) | (numerator.data == 1)).all() and not numerator.error.any():
        return summed(body, index, size, both(counted, nonzero(numerator)), divisor)
    terms = tables.multiplied(numerator, body)
    # a weight that is zero only in float64 adds nothing but its error
    return summed(terms, index, size, both(counted, _counts(numerator, body)), divisor)


def _counts(numerator: ValueTable, body: ValueTable) -> ValueTable:
    numerator, body = tables.aligned(numerator, body)
    slight = (numerator.error > 0) & body.defined & np.isfinite(body.data)
    counts = ((numerator.data != 0) | slight)[..., 0]
    return indicator(numerator.axes, counts, np.broadcast_to(numerator.defined[..., 0], counts.shape))


def split(evaluator: Evaluator, node: Expr, index: str) -> tuple[WeightTable, ValueTable] | None:
    """A product as (a weighting over `index`, the product of the other factors), or None if it has no such factor."""
    match node:
        case Weigh() if node.index == index:
            return weigh(evaluator, node), constant(1.0)
        case Neg(body=body):
            found = split(evaluator, body, index)
            return found and (found[0], tables.negated(found[1]))
        case Binary(op=("*" | "/") as op, left=left, right=right):
            found = split(evaluator, left, index)
            if found:
                other = evaluator.settled(right) if op == "/" else evaluator.table(right)
                rest = tables.multiplied(found[1], other) if op == "*" else tables.divided(found[1], other)
                return found[0], rest
            found = split(evaluator, right, index) if op == "*" else None
            return found and (found[0], tables.multiplied(evaluator.table(left), found[1]))
        case Ref(name=name) if name in evaluator.world.checked.lets:
            body, inner, names = evaluator.inside(node)
            own = [formal for formal, given in names.items() if given == index]
            found = split(inner, body, own[0]) if len(own) == 1 else None
            return found and (found[0].renamed(names), tables.renamed(found[1], names))
    return None
