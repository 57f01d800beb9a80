"""Why an expression has no value at a token: the smallest part of it that has none, and the reason in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from weftc.core.syntax import Binary, Call, Condition, Else, Expr, Node, Reduce, Ref, Weigh, children
from weftc.interpreter.environment import EvaluationError
from weftc.interpreter.sums import both, indicator
from weftc.interpreter.tables import ValueTable, constant, turned, union

if TYPE_CHECKING:
    from weftc.interpreter.expressions import Evaluator

Env = Mapping[str, int]


def no_value(evaluator: Evaluator, target: Ref, body: Expr, at: Env) -> EvaluationError:
    """The error for `target` at these tokens, which cannot be stored because `body` has no value there.

    Tokens are counted from one in messages, as `index(i)` counts them.
    """
    node, env = _guilty(evaluator, body, at)
    undefined = not _seen(evaluator, node, env).defined.all()
    reason = _why_undefined(node) if undefined else _why_infinite(node)
    tokens = ",".join(str(at[index] + 1) for index in target.indices)
    what = f"{target.name}[{tokens}]" if tokens else target.name
    state = "undefined" if undefined else "too large for float64"
    label = "" if dict(env) == dict(at) else "for " + ", ".join(f"{i} = {t + 1}" for i, t in sorted(env.items()))
    fix = "`else` gives a value to use instead" if undefined else "scale the data or the parameters"
    return evaluator.world.error(node.span, f"{what} is {state}: {reason}", label, fix)


def _seen(evaluator: Evaluator, node: Expr, at: Env) -> ValueTable:
    """The value at these tokens; indices that are not named run over all of theirs."""
    return evaluator.over({index: np.array([token]) for index, token in at.items()}).table(node)


def _guilty(evaluator: Evaluator, node: Expr, at: Env) -> tuple[Expr, Env]:
    """The deepest expression below `node` that has no value although everything it is made of has one."""
    for part, env in _made_of(evaluator, node, at):
        table = _seen(evaluator, part, env)
        if not (table.defined.all() and table.finite.all()):
            return _guilty(evaluator, part, env)
    return node, at


def _made_of(evaluator: Evaluator, node: Expr, at: Env) -> Iterator[tuple[Expr, Env]]:
    if isinstance(node, Ref):
        let = evaluator.world.checked.lets.get(node.name)
        if let is not None:
            yield let.body, {own: at[i] for own, i in zip(let.target.indices, node.indices, strict=True) if i in at}
    elif isinstance(node, Else):
        yield node.fallback, at
        if _seen(evaluator, node.body, at).defined.all():
            yield node.body, at
    elif isinstance(node, Reduce | Weigh):
        outer = {i: t for i, t in at.items() if i != node.index}
        seen = evaluator.over({i: np.array([t]) for i, t in outer.items()})
        counted = both(seen.conditions(node.where), constant(1.0))
        for part in _over_keys(node):
            table = seen.table(part)
            lost = both(indicator(table.axes, ~(table.defined & table.finite)[..., 0]), counted)
            lost = turned(lost, union((node.index,), lost.axes))
            keys = np.flatnonzero(lost.data.reshape(len(lost.data), -1).any(axis=1))
            yield from ((part, {**outer, node.index: int(key)}) for key in keys[:1])
    else:
        yield from ((part, at) for part in children(node) if not isinstance(part, Condition))  # type: ignore[misc]


def _over_keys(node: Reduce | Weigh) -> Iterator[Expr]:
    if isinstance(node, Weigh):
        yield node.score
        return
    if node.weighted is not None:
        yield node.weighted
    if node.by is not None:
        yield node.by
    yield node.body


def _why_undefined(node: Node) -> str:
    match node:
        case Binary(op="/" | "./"):
            return "this divides by zero"
        case Call(function="log"):
            return "the logarithm needs a positive number"
        case Call(function="sqrt"):
            return "the root needs a number that is not negative"
        case Call(function="unit"):
            return "the zero vector has no direction"
        case Reduce(weighted=weight) if weight is not None:
            return "the weights of this mean add up to exactly 0 (nothing carries weight, or all of it underflowed)"
        case Weigh(kind="normalize"):
            return "these numbers add up to exactly 0, or there are none"
        case Weigh() | Reduce():
            return "no token meets the condition"
    return "this has no value"


def _why_infinite(node: Node) -> str:
    return "the exponential overflows" if isinstance(node, Call) and node.function == "exp" else "the number overflows"
