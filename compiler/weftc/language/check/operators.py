"""Arithmetic, functions and `else`: widths that fit, signs that follow, values that may be undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftc.core import syntax as ast
from weftc.core.types import Type
from weftc.core.vocabulary import FUNCTIONS
from weftc.core.words import declared_at, width_words
from weftc.language.check.constants import is_zero
from weftc.language.check.ranges import Range
from weftc.language.check.simplex import same

if TYPE_CHECKING:
    from weftc.language.check.expressions import Typing

LONGEST_QUOTED = 24  # characters of a sub-expression that a message repeats


def otherwise(typing: Typing, expr: ast.Else, bound: frozenset[str]) -> Type | None:
    """`body else fallback`: defined where the fallback is."""
    body, fallback = typing.of(expr.body, bound), typing.of(expr.fallback, bound)
    if body is None or fallback is None:
        return None
    if isinstance(body.undefined, ast.Call) and body.undefined is not expr.body:
        typing.unit_alone(body.undefined)
    if body.width != fallback.width and not is_zero(expr.fallback):
        label = f"this is {width_words(fallback.width)}, but {width_words(body.width)} is expected"
        typing.problems.add("C220", expr.fallback.span, "`else` must give the same kind of value", label)
        return None
    weights = body.kind and fallback.kind and typing.weights_over(expr.body) == typing.weights_over(expr.fallback)
    return Type(
        body.width,
        body.indices | fallback.indices,
        fallback.undefined,
        body.positive and fallback.positive,
        body.nonnegative and fallback.nonnegative,
        "" if not weights else "onehot" if body.kind == fallback.kind == "onehot" else "simplex",
        body.symbols if body.symbols == fallback.symbols else (),
    )


def binary(typing: Typing, expr: ast.Binary, bound: frozenset[str]) -> Type | None:
    """`a + b`, `a - b`, `a * b`, `a / b`."""
    left, right = typing.of(expr.left, bound), typing.of(expr.right, bound)
    if left is None or right is None:
        return None
    if not _sides_fit(typing, expr, left, right):
        return None
    if expr.op in (".*", "./"):
        return Type(left.width, left.indices | right.indices, left.undefined or right.undefined)
    numbers = left.width is None and right.width is None
    known = typing.range(expr) if numbers else Range()
    positive, nonnegative = known.positive, known.nonnegative
    if numbers and expr.op == "+":
        nonnegative |= left.nonnegative and right.nonnegative
        positive |= nonnegative and ((left.positive and right.nonnegative) or (right.positive and left.nonnegative))
    elif numbers and expr.op in "*/":
        positive |= left.positive and right.positive
        nonnegative |= left.nonnegative and right.nonnegative
    width = left.width if left.width is not None else right.width
    undefined = left.undefined or right.undefined
    return Type(width, left.indices | right.indices, undefined, positive, nonnegative or positive)


def _sides_fit(typing: Typing, expr: ast.Binary, left: Type, right: Type) -> bool:
    problems = typing.problems
    if expr.op in (".*", "./"):
        if left.width is not None and left.width == right.width:
            return True
        message = f"`{expr.op}` joins two vectors of the same width, coordinate by coordinate"
        note = f"with a number write {expr.op[1]}" if None in (left.width, right.width) else ""
        sides = _sides(typing, expr.left, left, expr.right, right)
        problems.add("C222", expr.span, message, sides, note, _declared(typing, expr.left, expr.right))
        return False
    if expr.op in "+-":
        if left.width == right.width or is_zero(expr.left) or is_zero(expr.right):
            return True  # the number 0 fits any width
        both = left.width is not None and right.width is not None
        verb = "add" if expr.op == "+" else "subtract"
        message = f"cannot {verb} {'vectors of different width' if both else 'a number and a vector'}"
        declared = _declared(typing, expr.left, expr.right)
        # `where a > b + 1` ends at the plus, so that `mean[i] x[i] where m + 1` can be read at all
        cut = isinstance(expr.left, ast.Reduce | ast.Weigh) and bool(expr.left.where)
        why = "a condition ends at + and -; put a sum in it in parentheses: where a > (b + c)" if cut else ""
        problems.add("C221", expr.span, message, _sides(typing, expr.left, left, expr.right, right), declared, why)
        return False
    if expr.op == "*" and left.width is not None and right.width is not None:
        note = "write <a, b> for the inner product, a .* b for the products of coordinates"
        problems.add("C222", expr.span, "vector times vector is not defined", "both sides are vectors", note)
        return False
    if expr.op == "/" and right.width is not None:
        note = "divide by a number, such as its length |v|, or each coordinate by another one: a ./ b"
        label = f"this is {width_words(right.width)}"
        problems.add("C223", expr.right.span, "cannot divide by a vector", label, note)
        return False
    if expr.op == "/" and is_zero(expr.right):
        problems.add("C225", expr.right.span, "division by zero", "this is 0")
        return False
    return True


def inner(typing: Typing, expr: ast.Inner, bound: frozenset[str]) -> Type | None:
    """`<a, b>`: of vectors or of numbers."""
    left, right = typing.of(expr.left, bound), typing.of(expr.right, bound)
    if left is None or right is None:
        return None
    if left.width != right.width:
        typing.problems.add(
            "C226",
            expr.span,
            "the two sides of <a, b> must have the same width",
            _sides(typing, expr.left, left, expr.right, right),
            _declared(typing, expr.left, expr.right),
        )
        return None
    number = left.width is None
    return Type(
        None,
        left.indices | right.indices,
        left.undefined or right.undefined,
        number and left.positive and right.positive,
        same(expr.left, expr.right) or (number and left.nonnegative and right.nonnegative),
    )


def single(typing: Typing, expr: ast.Expr, bound: frozenset[str]) -> Type | None:
    """Operators on one value."""
    assert isinstance(expr, ast.Neg | ast.Power | ast.Norm | ast.Square | ast.Call)
    body = typing.of(expr.base if isinstance(expr, ast.Power) else expr.body, bound)
    if body is None:
        return None
    match expr:
        case ast.Neg():
            return Type(body.width, body.indices, body.undefined)
        case ast.Norm() | ast.Square():
            return Type(None, body.indices, body.undefined, body.positive and body.width is None, True)
        case ast.Power():
            return _power(typing, expr, body)
        case ast.Call():
            return _call(typing, expr, body)


def _power(typing: Typing, expr: ast.Power, body: Type) -> Type | None:
    if body.width is not None:
        label, note = f"the base is {width_words(body.width)}", "write |v|^2 for the squared length, v .^ 2 for squares"
        typing.problems.add("C227", expr.span, "a power of a vector is not defined", label, note)
        return None
    even = expr.exponent % 2 == 0
    return Type(None, body.indices, body.undefined, body.positive or expr.exponent == 0, body.nonnegative or even)


def _call(typing: Typing, expr: ast.Call, body: Type) -> Type | None:
    name, vector = expr.function, body.width is not None
    traits = FUNCTIONS[name]
    if not traits.numbers and not vector:
        typing.problems.add("C228", expr.span, f"{name} needs a vector", "this is a number")
        return None
    if traits.vectors == "whole":
        return Type(body.width, body.indices, expr)
    known = Range() if vector else typing.range(expr.body)
    if (traits.domain == "positive" and known.high <= 0) or (traits.domain == "nonnegative" and known.high < 0):
        where = "positive" if traits.domain == "positive" else ">= 0"
        typing.problems.add("C225", expr.span, f"{name} of a number that is never {where}", "this has no value")
        return None
    if vector:
        return Type(body.width, body.indices, body.undefined)
    above = body.positive if traits.zero == 0 else traits.zero is not None and known.low > traits.zero
    least = body.nonnegative if traits.zero == 0 else traits.zero is not None and known.low >= traits.zero
    positive = traits.sign == "positive" or above
    return Type(None, body.indices, body.undefined, positive, positive or traits.sign == "nonnegative" or least)


# ---- words -----------------------------------------------------------------------------------------------------------


def _sides(typing: Typing, left: ast.Expr, a: Type, right: ast.Expr, b: Type) -> str:
    return f"{_side(typing, left, a, 'the left side')}, but {_side(typing, right, b, 'the right side')}"


def _side(typing: Typing, expr: ast.Expr, found: Type, otherwise_called: str) -> str:
    text = " ".join(typing.problems.source.at(expr.span).split())
    shown = text if len(text) <= LONGEST_QUOTED else otherwise_called
    return f"{shown} is {'a number' if found.width is None else f'R^{found.width}'}"


def _declared(typing: Typing, *exprs: ast.Expr) -> str:
    """Where the fields among some expressions are declared."""
    spans = []
    for expr in exprs:
        if isinstance(expr, ast.Ref) and (found := typing.names.declared(expr.name)):
            spans.append(found.target.span)
    return declared_at(typing.problems.source, *dict.fromkeys(spans)) if spans else ""
