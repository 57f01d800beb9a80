"""Whether an expression is known to be non-negative and to sum to one over an index.

Covers what people write: weightings, simplex fields, the even start `1/k`, means of simplices over another index, and
convex combinations `(1 - a) * p + a * q` with a in [0, 1].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftc.core import syntax as ast

if TYPE_CHECKING:
    from weftc.language.check.expressions import Typing


def sums_to_one(typing: Typing, expr: ast.Expr, bound: frozenset[str], over: str) -> bool:
    """Whether the values of an expression over one index are weights with sum one."""
    match expr:
        case ast.Else(body=body, fallback=fallback):
            return all(sums_to_one(typing, side, bound, over) for side in (body, fallback))
        case ast.Binary(op="/", left=ast.Num(value=1), right=right):
            return _is_size(typing, right, typing.names.index[over])
        case ast.Binary(op="+", left=ast.Binary(op="*") as left, right=ast.Binary(op="*") as right):
            return _convex(typing, left, right, bound, over)
        case ast.Reduce(kind="mean", index=index, weighted=weighted, body=body) if index != over:
            steady = weighted is None or over not in _indices(typing, weighted, bound | {index})
            return steady and expr.by is None and not expr.where and sums_to_one(typing, body, bound | {index}, over)
    if isinstance(expr, ast.Weigh | ast.Ref):
        found = typing.of(expr, bound)
        return found is not None and bool(found.kind) and typing.weights_over(expr) == over
    return False


def _indices(typing: Typing, expr: ast.Expr, bound: frozenset[str]) -> frozenset[str]:
    found = typing.of(expr, bound)
    return found.indices if found else bound


def _is_size(typing: Typing, expr: ast.Expr, home: str) -> bool:
    """Whether an expression is the number of tokens of a set."""
    size = typing.names.sets[home]
    match expr:
        case ast.Count(set=name):
            return name == home
        case ast.Ref(name=name, indices=()):
            return name == size
        case ast.Num(value=value):
            return value == size
    return False


def _convex(typing: Typing, left: ast.Binary, right: ast.Binary, bound: frozenset[str], over: str) -> bool:
    for p, q in ((left, right), (right, left)):
        match p.left:
            case ast.Binary(op="-", left=ast.Num(value=1), right=share) if same(share, q.left):
                known = typing.range(share)
                if known.low >= 0 and known.high <= 1 and over not in _indices(typing, share, bound):
                    return all(sums_to_one(typing, side.right, bound, over) for side in (p, q))
    return False


def same(a: ast.Expr, b: ast.Expr) -> bool:
    """Whether two expressions read alike, wherever they stand."""
    if type(a) is not type(b):
        return False
    if isinstance(a, ast.Num) and isinstance(b, ast.Num):
        return a.value == b.value
    if isinstance(a, ast.Ref) and isinstance(b, ast.Ref):
        return (a.name, a.indices) == (b.name, b.indices)
    return False
