"""Exponentials that are never formed: expressions as plain * exp(log).

Where only the ratios of weights matter (a weighted mean, `normalize`), or the logarithm of a sum, exponentials are
taken relative to the largest one. So weights made of `exp` and `softmax` do not vanish, or overflow, all at once.

The same holds for a quotient of two sums over exponentials, each perhaps with terms that have none:
(a + sum w v) / (b + sum w) has a value however large or small the weights w are.

A field that is a softmax keeps its logarithms until the end of the layer, for the same reason: a mean weighted by it
has a value however small its weights are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weftc.core.syntax import Binary, Call, Expr, Neg, Reduce, Ref, Weigh
from weftc.interpreter import tables
from weftc.interpreter.sums import both, extreme, indicator, nonzero, only, summed
from weftc.interpreter.tables import ValueTable, constant

if TYPE_CHECKING:
    from weftc.interpreter.expressions import Evaluator


Parts = tuple[ValueTable | None, ValueTable | None]


def parts(evaluator: Evaluator, node: Expr, fields: bool = False, sums: bool = False) -> Parts:
    """An expression as plain * exp(log); either part may be missing (then it is 1, or no exponential was found).

    With `fields`, stored softmax fields count as exponentials too. With `sums`, terms are added relative to the
    largest of their exponentials.
    """
    match node:
        case Ref(name=name) if fields and name in evaluator.world.logs:
            table, radius = evaluator.field(node, evaluator.world.logs[name]), evaluator.world.log_radii.get(name)
            return None, table if radius is None else replace(table, error=evaluator.field(node, radius).data)
        case Call(function="exp", body=body):
            return None, evaluator.table(body)
        case Weigh(kind="softmax", where=()):
            return None, _log_softmax(evaluator, node)
        case Binary(op=("*" | "/") as op, left=left, right=right):
            (p, a) = parts(evaluator, left, fields, sums)
            (q, b) = parts(evaluator, right, fields and op == "*", sums)
            if op == "/":
                return _ratio(p, q), _joined(a, b and tables.negated(b))
            return tables.multiplied(p, q) if p and q else p or q, _joined(a, b)
        case Binary(op=op, left=left, right=right) if sums:
            first, second = parts(evaluator, left, fields, sums), parts(evaluator, right, fields, sums)
            if first[1] is not None or second[1] is not None:
                return _added(first, second, -1 if op == "-" else 1)
        case Neg(body=body) if sums:
            plain, log = parts(evaluator, body, fields, sums)
            return tables.negated(plain or constant(1.0)), log
        case Reduce(kind="sum", weighted=None, by=None):
            inner = evaluator.opened(node.index)
            size = inner.world.size(node.index)
            plain, log = parts(inner, node.body, sums=sums)
            if log is not None:
                counted = inner.conditions(node.where)
                shift = largest(log, node.index, size, counted)
                terms = shifted_exp(log, shift)
                return summed(tables.multiplied(plain, terms) if plain else terms, node.index, size, counted), shift
        case Ref(name=name) if name in evaluator.world.checked.lets:
            body, inner, names = evaluator.inside(node)
            plain, log = parts(inner, body, fields, sums)
            return plain and tables.renamed(plain, names), log and tables.renamed(log, names)
    return evaluator.table(node), None


def _ratio(p: ValueTable | None, q: ValueTable | None) -> ValueTable | None:
    return tables.divided(p or constant(1.0), q) if q else p


def _joined(a: ValueTable | None, b: ValueTable | None) -> ValueTable | None:
    return tables.added(a, b) if a and b else a or b


def _added(first: Parts, second: Parts, sign: int) -> Parts:
    """The sum of two expressions, or their difference, relative to the larger exponential."""
    (p, a), (q, b) = (tables.aligned(plain or constant(1.0), log or constant(0.0)) for plain, log in (first, second))
    p, a, q, b = tables.aligned(p, a, q if sign > 0 else tables.negated(q), b)
    # what is exactly zero has no size: its exponential is not the larger one, however large
    present = [indicator(t.axes, ((t.data != 0) | (t.error != 0)).any(axis=-1), t.defined[..., 0]) for t in (p, q)]
    found = [
        np.where((t.data != 0) & np.isfinite(log.data), log.data, -np.inf)
        for t, log in zip(present, (a, b), strict=True)
    ]
    largest = np.maximum(*found)
    shift = tables.stored(p.axes, np.where(np.isfinite(largest), largest, 0.0))
    terms = [
        tables.multiplied(plain, only(_factor(tables.added(log, tables.negated(shift))), there))
        for plain, log, there in zip((p, q), (a, b), present, strict=True)
    ]
    return tables.added(*terms), shift


def _factor(exponent: ValueTable) -> ValueTable:
    """exp, and exactly 1 where the exponent is exactly 0."""
    found = tables.applied("exp", exponent)
    return replace(found, error=np.where((exponent.data == 0) & (exponent.error == 0), 0.0, found.error))


def quotient(evaluator: Evaluator, left: Expr, right: Expr) -> ValueTable:
    """left / right; a quotient of two sums over exponentials without forming them."""
    if not (_sums_exponentials(evaluator, left) and _sums_exponentials(evaluator, right)):
        return tables.divided(evaluator.table(left), evaluator.settled(right))
    (p, a), (q, b) = parts(evaluator, left, sums=True), parts(evaluator, right, sums=True)
    ratio = _ratio(p, q) or constant(1.0)
    exponent = _joined(a, b and tables.negated(b))
    return tables.multiplied(ratio, _factor(exponent)) if exponent else ratio


def _sums_exponentials(evaluator: Evaluator, node: Expr, inside: bool = False) -> bool:
    """Whether an expression adds up products with exponentials over an index (`inside`: whether it is one)."""
    match node:
        case Call(function="exp"):
            return inside
        case Binary(left=left, right=right):
            return any(_sums_exponentials(evaluator, side, inside) for side in (left, right))
        case Neg(body=body):
            return _sums_exponentials(evaluator, body, inside)
        case Reduce(kind="sum", weighted=None, by=None, body=body):
            return _sums_exponentials(evaluator, body, True)
        case Ref(name=name) if name in evaluator.world.checked.lets:
            return _sums_exponentials(evaluator, evaluator.world.checked.lets[name].body, inside)
    return False


def _log_softmax(evaluator: Evaluator, node: Weigh) -> ValueTable:
    inner = evaluator.opened(node.index)
    size = inner.world.size(node.index)
    scores = inner.table(node.score)
    shift = largest(scores, node.index, size, None)
    mass = tables.applied("log", summed(shifted_exp(scores, shift), node.index, size))
    logs = tables.added(tables.added(scores, tables.negated(shift)), tables.negated(mass))
    return tables.taken(logs, node.index, evaluator.domain[node.index]) if node.index in evaluator.domain else logs


def largest(exponents: ValueTable, index: str, size: int, counted: ValueTable | None) -> ValueTable:
    """What to shift exponents by. Any number would do, so it has no error, and where nothing counts it is 0."""
    found = extreme(exponents, index, size, counted, 1)
    return ValueTable(found.axes, found.data, np.zeros_like(found.error), np.ones_like(found.defined))


def shifted_exp(exponents: ValueTable, shift: ValueTable) -> ValueTable:
    """exp(exponents - shift)."""
    return tables.applied("exp", tables.added(exponents, tables.negated(shift)))


def ratio_weights(evaluator: Evaluator, node: Expr, index: str, size: int, counted: ValueTable | None) -> ValueTable:
    """Weights of which only the ratios over `index` matter: exponentials are taken relative to the largest."""
    plain, log = parts(evaluator, node, fields=True)
    if log is None:
        assert plain is not None
        return plain
    if plain is not None:
        counted = both(counted, nonzero(plain))
    weights = only(shifted_exp(log, largest(log, index, size, counted)), counted)
    return tables.multiplied(plain, weights) if plain else weights


def logarithm(evaluator: Evaluator, node: Expr) -> ValueTable:
    """log of an expression; of sums and products of exponentials without forming them."""
    plain, log = parts(evaluator, node)
    if log is None:
        return tables.applied("log", evaluator.settled(node))
    return log if plain is None else tables.added(tables.applied("log", plain), log)
