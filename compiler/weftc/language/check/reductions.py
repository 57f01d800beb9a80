"""Sums, means, maxima, minima and logsumexp over an index, with `weighted`, `by` and `where`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftc.core import syntax as ast
from weftc.core.types import Type
from weftc.core.unparse import same
from weftc.core.words import width_words
from weftc.language.check.conditions import conditions
from weftc.language.check.weightings import weighting

if TYPE_CHECKING:
    from weftc.language.check.expressions import Typing

PLAIN = Type(positive=True, nonnegative=True)  # the weights of a mean without `weighted` or `by`
LONGEST_QUOTED = 60


def reduction(typing: Typing, expr: ast.Reduce, bound: frozenset[str]) -> Type | None:
    """The type of a reduction: undefined where nothing is left to reduce, except for a sum."""
    if not typing.index(expr.index, expr.span):
        return None
    inside = bound | {expr.index}
    body = _body(typing, expr, inside)
    indices = conditions(typing, expr.where, inside)
    weights = _weights(typing, expr, inside)
    if body is None or indices is None or weights is None:
        return None
    indices |= body.indices | weights.indices
    if not _depends(typing, expr, indices):
        return None
    signed = expr.kind != "logsumexp"
    positive, nonnegative = body.positive and signed, body.nonnegative and signed
    undefined = body.undefined
    if expr.by is not None:
        undefined = weights.undefined or undefined
    elif expr.kind == "sum":
        positive = positive and not expr.where
    elif not all(map(ast.is_among, expr.where)) or weights.undefined is not None or not weights.positive:
        undefined = expr
    symbols = body.symbols if expr.kind == "mean" and (weights.kind == "onehot" or _one_token(expr)) else ()
    return Type(body.width, indices - {expr.index}, undefined, positive, nonnegative, symbols=symbols)


def _one_token(expr: ast.Reduce) -> bool:
    """Whether the conditions say which token is meant: that at a position."""
    here = [c for c in expr.where if isinstance(c, ast.Compare) and same(c.left, ast.Position(c.span, expr.index))]
    fixed = [c for c in here if not any(_names(part, expr.index) for part in ast.walk(c.right))]
    both = [(a, b) for a in fixed for b in fixed if (a.op, b.op) == ("<=", ">=") and same(a.right, b.right)]
    return bool(both) or any(c.op == "=" for c in fixed)


def _names(node: ast.Node, index: str) -> bool:
    return (
        index in node.indices if isinstance(node, ast.Ref) else isinstance(node, ast.Position) and node.index == index
    )


def _depends(typing: Typing, expr: ast.Reduce, indices: frozenset[str]) -> bool:
    if expr.index in indices:
        return True
    home = typing.names.index[expr.index]
    how = f"the number of {home} tokens is count({home})" if expr.kind == "sum" else "write the value itself"
    label = f"so {expr.kind}[{expr.index}] is not needed"
    typing.problems.add("C232", expr.body.span, f"this does not depend on {expr.index}", label, how)
    return False


def _body(typing: Typing, expr: ast.Reduce, inside: frozenset[str]) -> Type | None:
    body = typing.of(expr.body, inside)
    if body is None:
        return None
    if isinstance(body.undefined, ast.Call):
        typing.unit_alone(body.undefined)
        return None
    if body.width is not None and expr.kind not in ("sum", "mean"):
        label, note = f"this is {width_words(body.width)}", "vectors have no order; take |v|^2 or <a, b>"
        typing.problems.add("C233", expr.body.span, f"{expr.kind} is over numbers", label, note)
        return None
    return body


def _weights(typing: Typing, expr: ast.Reduce, inside: frozenset[str]) -> Type | None:
    """What a mean is weighted with."""
    problems, i = typing.problems, expr.index
    guilty = expr.weighted if expr.weighted is not None else expr.by
    if guilty is None:
        return PLAIN
    if expr.kind != "mean":
        word, factor = ("weighted", f"w[{i}]") if expr.weighted is not None else ("by", f"W[{i}](...)")
        how = f"for a sum, multiply: sum[{i}] {factor} * v[{i}]" if expr.kind == "sum" else ""
        typing.of(guilty, inside)
        problems.add("C234", guilty.span, f"`{word}` goes with mean, not with {expr.kind}", "", how)
        return None
    if expr.by is not None:
        return _by(typing, expr, expr.by, inside)
    found = typing.number(guilty, inside, "a weight", "for vectors take |v|^2 or <a, b>")
    if found is None:
        return None
    if isinstance(found.undefined, ast.Call):
        typing.unit_alone(found.undefined)
        return None
    if not found.nonnegative:
        note = "declare the field `: R >= 0` (numbers of pairs `: real >= 0`), or use exp(...), squares, "
        note += "a simplex or onehot field"
        message, label = "weights must be known to be >= 0", "the sign of this is not known"
        problems.add("C236", guilty.span, message, label, note)
        return None
    return found


def _by(typing: Typing, expr: ast.Reduce, by: ast.Weigh, inside: frozenset[str]) -> Type | None:
    problems, i = typing.problems, expr.index
    if expr.where:
        span = expr.where[0].span.to(expr.where[-1].span)
        text = " ".join(problems.source.at(span).split())
        problems.add(
            "C237",
            span,
            "together with `by`, `where` belongs inside the weighting",
            f"should {by.kind} see the tokens that are left out, or not?",
            f"write by {by.kind}[{by.index}](... where {text if len(text) <= LONGEST_QUOTED else '...'} ...)",
        )
        return None
    if by.index != i:
        label = f"{by.kind}[{by.index}] weighs {by.index}"
        problems.add("C238", by.span, f"`by` must weigh the tokens of {i}", label, f"write by {by.kind}[{i}](...)")
        return None
    return weighting(typing, by, inside)
