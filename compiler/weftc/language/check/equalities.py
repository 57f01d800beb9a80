"""`=` and `!=` in conditions -> comparisons that need no sense of type, once the checker knows what is compared.

numbers     a = b     a <= b and a >= b           a != b     (a - b)^2 > 0
vectors     u = v     |u - v|^2 <= 0              u != v     |u - v|^2 > 0
symbols     s = t     <s, t> > 1/2                s != t     <s, t> < 1/2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from weftc.core import syntax as ast
from weftc.core.trees import inside, rewritten

Compared = Literal["numbers", "vectors", "symbols"]


def spelled_out(spec: ast.Spec, compared: Mapping[int, Compared]) -> ast.Spec:
    """The spec without `=` and `!=` in its conditions; `compared`: id of a condition -> what stands on its sides."""

    def rewrite(node: Any) -> Any:
        if isinstance(node, ast.Reduce | ast.Weigh) and any(_equality(one) for one in node.where):
            where = tuple(part for one in node.where for part in parts(one))
            return replace(inside(replace(node, where=()), rewrite), where=where)
        return inside(node, rewrite)

    def parts(condition: ast.Condition) -> tuple[ast.Condition, ...]:
        if not _equality(condition):
            return (rewrite(condition),)
        assert isinstance(condition, ast.Compare)
        left, right = rewrite(condition.left), rewrite(condition.right)
        return _comparisons(condition, left, right, compared[id(condition)])

    return rewritten(spec, rewrite)


def _equality(condition: ast.Condition) -> bool:
    return isinstance(condition, ast.Compare) and condition.op in ("=", "!=")


def _comparisons(node: ast.Compare, left: ast.Expr, right: ast.Expr, sides: Compared) -> tuple[ast.Condition, ...]:
    span, equal = node.span, node.op == "="
    if sides == "numbers" and equal:
        return ast.Compare(span, "<=", left, right), ast.Compare(span, ">=", left, right)
    if sides == "symbols":
        both = ast.Inner(span, left, right)
        return (ast.Compare(span, ">" if equal else "<", both, ast.Num(span, 0.5)),)
    apart = ast.Square(span, ast.Binary(span, "-", left, right))
    return (ast.Compare(span, "<=" if equal else ">", apart, ast.Num(span, 0.0)),)
