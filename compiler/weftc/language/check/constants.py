"""The value of an expression made of numbers and named constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from weftc.core import syntax as ast

VALUES: Mapping[str, Callable[[float], float]] = {
    "log": math.log,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "relu": lambda value: max(value, 0.0),
    "abs": abs,
    "sigmoid": lambda value: 1 / (1 + math.exp(-value)) if value > 0 else math.exp(value) / (1 + math.exp(value)),
    "softplus": lambda value: max(value, 0.0) + math.log1p(math.exp(-abs(value))),
}


def is_zero(expr: ast.Expr) -> bool:
    """Whether an expression is the number 0, which fits a vector of any width."""
    return isinstance(expr, ast.Num) and expr.value == 0


class NotConstant(Exception):
    """The expression needs a value that is not there."""


def constant(
    expr: ast.Expr, known: Mapping[str, float] | None = None, counts: Mapping[str, float] | None = None
) -> float:
    """The float64 value of an expression; names come from `known`, sizes of sets from `counts`.

    Raises `NotConstant` for anything else, and ArithmeticError or ValueError where the arithmetic has no answer.
    """

    def of(part: ast.Expr) -> float:
        match part:
            case ast.Num(value=value):
                return value
            case ast.Ref(name=name, indices=()) if known is not None and name in known:
                return float(known[name])
            case ast.Count(set=name) if counts is not None and name in counts:
                return float(counts[name])
            case ast.Neg(body=body):
                return -of(body)
            case ast.Binary(op="+", left=left, right=right):
                return of(left) + of(right)
            case ast.Binary(op="-", left=left, right=right):
                return of(left) - of(right)
            case ast.Binary(op="*", left=left, right=right):
                return of(left) * of(right)
            case ast.Binary(op="/", left=left, right=right):
                return of(left) / of(right)
            case ast.Power(base=base, exponent=exponent):
                return float(of(base) ** exponent)
            case ast.Norm(body=body):
                return abs(of(body))
            case ast.Square(body=body):
                return of(body) ** 2
            case ast.Inner(left=left, right=right):
                return of(left) * of(right)
            case ast.Call(function=function, body=body) if function in VALUES:
                return VALUES[function](of(body))
        raise NotConstant

    return of(expr)
