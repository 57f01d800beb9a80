"""The numbers of an example block: exact fractions in nested rows, and how precisely they were written.

Each rule gives `(value, decimals, end)`; `end` is where the value ends, without the comma behind it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from weftc.core.source import Span
from weftc.core.syntax import Value
from weftc.language.parse.lexer import in_range

if TYPE_CHECKING:
    from weftc.language.parse.tree import Builder

Written: TypeAlias = tuple[Value, int, int]


def fraction(b: Builder, span: Span, parts: list[Any]) -> Written:
    """`-5/3`, or a decimal as the exact fraction it denotes."""
    numbers = [part for part in parts if part.text != "-"]
    value = Fraction(numbers[0].text)
    for divisor in numbers[1:]:
        below = Fraction(divisor.text)
        if below == 0:
            b.problems.add("P119", divisor.span, "division by zero", "a fraction needs another denominator")
            below = Fraction(1)
        value /= below
    if not in_range(value):
        b.problems.add("P113", span, "this number is outside the range of float64")
        value = Fraction(1)
    mantissa, _, exponent = numbers[0].text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return (value if len(numbers) == len(parts) else -value), decimals, span.end


def symbol(_: Builder, span: Span, parts: list[Any]) -> Written:
    """`a`, or `"("`."""
    (word,) = parts
    return word.text[1:-1] if word.type == "STRING" else word.text, 0, span.end


def values(b: Builder, span: Span, parts: list[Any]) -> Written:
    """`[1, 2], [3, 4]`: the values side by side."""
    return tuple(value for value, _, _ in parts), max(decimals for _, decimals, _ in parts), span.end


def rows(b: Builder, span: Span, parts: list[Any]) -> Written:
    """`[1, 2]`: a row, or rows in rows."""
    if parts[0] is None:
        return (), 0, span.end
    value, decimals, _ = parts[0]
    return value, decimals, span.end


def whole(written: Written) -> Written:
    """What a name is set to: a lone number is itself and `[[0], [1]]` the rows in it, while `[0]` is one row."""
    value, decimals, end = written
    assert isinstance(value, tuple)
    lone = value[0] if len(value) == 1 else None
    bare = isinstance(lone, Fraction | str) or (
        isinstance(lone, tuple) and any(isinstance(item, tuple) for item in lone)
    )
    return (value[0] if bare else value), decimals, end
