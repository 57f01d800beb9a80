"""Exponentials that are never formed: expressions as plain * exp(log).

Where only the ratios of weights matter (a weighted mean, `normalize`), or the logarithm of a sum, exponentials are
taken relative to the largest one. So weights made of `exp` and `softmax` do not vanish, or overflow, all at once.

A field that is a softmax keeps its logarithms until the end of the layer, for the same reason: a mean weighted by it
has a value however small its weights are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.meaning import tables
from weft.meaning.sums import both, extreme, nonzero, only, summed
from weft.meaning.tables import Table, constant
from weft.syntax import Binary, Call, Expr, Reduce, Ref, Weigh

if TYPE_CHECKING:
    from weft.meaning.expressions import Evaluator


def parts(evaluator: Evaluator, node: Expr, fields: bool = False) -> tuple[Table | None, Table | None]:
    """An expression as plain * exp(log); either part may be missing (then it is 1, or no exponential was found).

    With `fields`, stored softmax fields count as exponentials too.
    """
    match node:
        case Ref(name=name) if fields and name in evaluator.world.logs:
            return None, evaluator.field(node, evaluator.world.logs[name])
        case Call(function="exp", body=body):
            return None, evaluator.table(body)
        case Weigh(kind="softmax", where=()):
            return None, _log_softmax(evaluator, node)
        case Binary(op=("*" | "/") as op, left=left, right=right):
            (p, a), (q, b) = parts(evaluator, left, fields), parts(evaluator, right, fields and op == "*")
            if op == "/":
                return tables.divided(p or constant(1.0), q) if q else p, _joined(a, b and tables.negated(b))
            return tables.multiplied(p, q) if p and q else p or q, _joined(a, b)
        case Reduce(kind="sum", weighted=None, by=None):
            inner = evaluator.opened(node.index)
            size = inner.world.size(node.index)
            plain, log = parts(inner, node.body)
            if log is not None:
                counted = inner.conditions(node.where)
                shift = largest(log, node.index, size, counted)
                terms = shifted_exp(log, shift)
                return summed(tables.multiplied(plain, terms) if plain else terms, node.index, size, counted), shift
        case Ref(name=name) if name in evaluator.world.checked.lets:
            body, inner, names = evaluator.inside(node)
            plain, log = parts(inner, body, fields)
            return plain and tables.renamed(plain, names), log and tables.renamed(log, names)
    return evaluator.table(node), None


def _joined(a: Table | None, b: Table | None) -> Table | None:
    return tables.added(a, b) if a and b else a or b


def _log_softmax(evaluator: Evaluator, node: Weigh) -> Table:
    inner = evaluator.opened(node.index)
    size = inner.world.size(node.index)
    scores = inner.table(node.score)
    shift = largest(scores, node.index, size, None)
    mass = tables.applied("log", summed(shifted_exp(scores, shift), node.index, size))
    logs = tables.added(tables.added(scores, tables.negated(shift)), tables.negated(mass))
    return tables.taken(logs, node.index, evaluator.domain[node.index]) if node.index in evaluator.domain else logs


def largest(exponents: Table, index: str, size: int, counted: Table | None) -> Table:
    """What to shift exponents by. Any number would do, so it has no error, and where nothing counts it is 0."""
    found = extreme(exponents, index, size, counted, 1)
    return Table(found.axes, found.data, np.zeros_like(found.error), np.ones_like(found.defined))


def shifted_exp(exponents: Table, shift: Table) -> Table:
    """exp(exponents - shift)."""
    return tables.applied("exp", tables.added(exponents, tables.negated(shift)))


def ratio_weights(evaluator: Evaluator, node: Expr, index: str, size: int, counted: Table | None) -> Table:
    """Weights of which only the ratios over `index` matter: exponentials are taken relative to the largest."""
    plain, log = parts(evaluator, node, fields=True)
    if log is None:
        assert plain is not None
        return plain
    if plain is not None:
        counted = both(counted, nonzero(plain))
    weights = only(shifted_exp(log, largest(log, index, size, counted)), counted)
    return tables.multiplied(plain, weights) if plain else weights


def logarithm(evaluator: Evaluator, node: Expr) -> Table:
    """log of an expression; of sums and products of exponentials without forming them."""
    plain, log = parts(evaluator, node)
    if plain is None:
        assert log is not None
        return log
    found = tables.applied("log", plain)
    return tables.added(found, log) if log else found
