"""Interval arithmetic over what is declared: `1 - rate` is not negative when rate lies in [0, 1].

Only signs are read off the intervals, so they need not be tight; they must contain the value.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from weftc.core import syntax as ast
from weftc.core.types import FieldType


@dataclass(frozen=True, slots=True)
class Range:
    """An interval; a strict end is not itself attained."""

    low: float = -math.inf
    high: float = math.inf
    low_strict: bool = False
    high_strict: bool = False

    @property
    def positive(self) -> bool:
        return self.low > 0 or (self.low == 0 and self.low_strict)

    @property
    def nonnegative(self) -> bool:
        return self.low >= 0

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low, self.high_strict, self.low_strict)

    def __add__(self, other: Range) -> Range:
        return Range(
            _outward(operator.add, self.low, other.low, -math.inf),
            _outward(operator.add, self.high, other.high, math.inf),
            self.low_strict or other.low_strict,
            self.high_strict or other.high_strict,
        )

    def __mul__(self, other: Range) -> Range:
        """The product, when both are non-negative; else nothing is claimed."""
        if not (self.nonnegative and other.nonnegative):
            if not self.nonnegative and (-self).nonnegative:
                return -((-self) * other)
            if not other.nonnegative and (-other).nonnegative:
                return -(self * (-other))
            return ANYTHING
        low = _outward(operator.mul, self.low, other.low, 0.0)
        high = 0.0 if 0 in (self.high, other.high) else _outward(operator.mul, self.high, other.high, math.inf)
        return Range(low, high, self.positive and other.positive, False)


ANYTHING = Range()
SHARE = Range(0.0, 1.0)


def _outward(operation: Callable[[Any, Any], Any], a: float, b: float, end: float) -> float:
    """A sum or a product of two ends, rounded towards `end`, which it is where there is no such number."""
    near: float = operation(a, b)
    if math.isnan(near):
        return end
    if not (math.isfinite(a) and math.isfinite(b)) or near == end:
        return near
    if math.isinf(near):
        return math.copysign(sys.float_info.max, near)
    exact = operation(Fraction(a), Fraction(b))
    inwards = exact < near if end < near else exact > near
    return math.nextafter(near, end) if inwards else near


def of_bound(bound: ast.ParamBound | None) -> Range:
    """A declared range as an interval."""
    if bound is None:
        return ANYTHING
    low, low_strict = bound.low or (-math.inf, False)
    high, high_strict = bound.high or (math.inf, False)
    return Range(low, high, low_strict, high_strict)


def range_of(expr: ast.Expr, params: Mapping[str, ast.Param], fields: Mapping[str, FieldType]) -> Range:
    """An interval that contains every value of a number expression; `ANYTHING` where no rule says more."""
    match expr:
        case ast.Num(value=value):
            return Range(value, value)
        case ast.Count() | ast.Position():
            return Range(1.0)
        case ast.Weigh():
            return SHARE
        case ast.Reduce(kind="mean" | "max" | "min", body=body):
            return range_of(body, params, fields)
        case ast.Neg(body=body):
            return -range_of(body, params, fields)
        case ast.Binary(op="+", left=left, right=right):
            return range_of(left, params, fields) + range_of(right, params, fields)
        case ast.Binary(op="-", left=left, right=right):
            return range_of(left, params, fields) + -range_of(right, params, fields)
        case ast.Binary(op="*", left=left, right=right):
            return range_of(left, params, fields) * range_of(right, params, fields)
        case ast.Power(base=base, exponent=exponent) if exponent in (1, 2):
            known = range_of(base, params, fields)
            return known if exponent == 1 else known * known if known.nonnegative else Range(0.0)
        case ast.Ref(name=name):
            return _of_name(name, params, fields)
    return ANYTHING


def _of_name(name: str, params: Mapping[str, ast.Param], fields: Mapping[str, FieldType]) -> Range:
    if name in params:
        return of_bound(params[name].bound)
    known = fields.get(name)
    if known is None:
        return ANYTHING
    if known.kind in ("onehot", "simplex", "uniform"):
        return Range(0.0, 1.0, known.positive)
    if known.positive or known.nonnegative:
        return Range(0.0, math.inf, known.positive)
    return ANYTHING
