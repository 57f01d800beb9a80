"""Numbers that know how they follow from parameters: a compiler that only calculates carries the formulas along.

    h = symbols({"h": 2.0})["h"];  1 / (2 * h**2)  ->  a fraction, 1/8, that is also  1/2 h^-2

A `Tied` is the fraction it stands for at the values it was made with: it has that sign and size where something asks.
But it equals only what is the same formula, and it is never zero: structure does not depend on accidents of the values.
Formulas are sums of products of powers of parameters and of functions of such sums; the sum that is divided by is one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from weftc.core.vocabulary import FUNCTIONS

RECIPROCAL = "reciprocal"


@dataclass(frozen=True, slots=True)
class AppliedFunction:
    """A function of a formula, where that is no product of powers."""

    function: str
    formula: Formula


Factor: TypeAlias = "str | AppliedFunction"
Powers: TypeAlias = "frozenset[tuple[Factor, int]]"
Formula: TypeAlias = "frozenset[tuple[Powers, Fraction]]"
PLAIN: Powers = frozenset()


@dataclass(slots=True)
class Tracing:
    """What was asked of the numbers of one compilation: the formulas behind the floats that it wrote down."""

    floats: dict[float, Formula] = field(default_factory=dict)


class Tied(Fraction):
    """A number with its formula."""

    __slots__ = ("formula", "trace")
    formula: Formula
    trace: Tracing

    def __new__(cls, value: Fraction, formula: Formula, trace: Tracing) -> Tied:
        made = super().__new__(cls, value.numerator, value.denominator)
        made.formula, made.trace = formula, trace
        return made

    def __float__(self) -> float:
        value = self.numerator / self.denominator
        self.trace.floats[value] = self.formula
        return value

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tied) and self.formula == other.formula

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.formula)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tied, (plain(self), self.formula, self.trace)

    def __copy__(self) -> Tied:
        return self

    def __deepcopy__(self, memo: Any) -> Tied:
        return self

    # ---- arithmetic

    def _made(self, value: Fraction, terms: Mapping[Powers, Fraction]) -> Fraction:
        formula = frozenset((powers, c) for powers, c in terms.items() if c)
        if all(powers == PLAIN for powers, _ in formula):
            return Fraction(sum(c for _, c in formula))
        return Tied(value, formula, self.trace)

    def __add__(self, other: Any) -> Fraction:  # type: ignore[override]
        terms = dict(self.formula)
        for powers, c in formula_of(other):
            terms[powers] = terms.get(powers, Fraction(0)) + c
        return self._made(plain(self) + plain(other), terms)

    def __mul__(self, other: Any) -> Fraction:  # type: ignore[override]
        terms: dict[Powers, Fraction] = {}
        theirs = formula_of(other)
        for one, c in self.formula:
            for two, e in theirs:
                powers = _times(one, two)
                terms[powers] = terms.get(powers, Fraction(0)) + c * e
        return self._made(plain(self) * plain(other), terms)

    def inverse(self) -> Fraction:
        """1 over it."""
        if len(self.formula) == 1:
            ((powers, c),) = self.formula
            turned = frozenset((factor, -power) for factor, power in powers)
            return self._made(1 / plain(self), {turned: 1 / c})
        return self.applied(RECIPROCAL, lambda value: 1 / value)

    def applied(self, function: str, compute: Callable[[float], float]) -> Fraction:
        """A function of it."""
        assert function == RECIPROCAL or function in FUNCTIONS, function
        value = Fraction(compute(self.numerator / self.denominator))
        return Tied(
            value, frozenset({(frozenset({(AppliedFunction(function, self.formula), 1)}), Fraction(1))}), self.trace
        )

    def __pow__(self, exponent: Any) -> Fraction:  # type: ignore[override]
        base: Fraction = self if exponent >= 0 else self.inverse()
        out = Fraction(1)
        for _ in range(abs(exponent)):
            out = base * out
        return out

    def __neg__(self) -> Fraction:
        return self.__mul__(-1)

    def __abs__(self) -> Fraction:
        return self.__neg__() if self < 0 else self

    def __sub__(self, other: Any) -> Fraction:  # type: ignore[override]
        return self.__add__(other * -1)

    def __rsub__(self, other: Any) -> Fraction:  # type: ignore[override]
        found: Fraction = self.__neg__() + other
        return found

    def __truediv__(self, other: Any) -> Fraction:  # type: ignore[override]
        return self.__mul__(other.inverse() if isinstance(other, Tied) else 1 / Fraction(other))

    def __rtruediv__(self, other: Any) -> Fraction:  # type: ignore[override]
        found: Fraction = self.inverse() * other
        return found

    __radd__ = __add__  # type: ignore[assignment]
    __rmul__ = __mul__  # type: ignore[assignment]


def plain(number: Any) -> Fraction:
    """A number without its formula."""
    return Fraction(number.numerator, number.denominator) if isinstance(number, Tied) else Fraction(number)


def formula_of(number: Any) -> Formula:
    """The formula of any number."""
    return number.formula if isinstance(number, Tied) else frozenset({(PLAIN, Fraction(number))})


def exact(number: Any) -> Fraction:
    """A number as a fraction; one that has a formula keeps it."""
    return number if isinstance(number, Fraction) else Fraction(number)


def symbols(values: Mapping[str, float]) -> dict[str, Tied]:
    """Parameters as numbers of one compilation, at the values at which it decides what depends on them."""
    trace = Tracing()
    one = Fraction(1)
    return {
        name: Tied(Fraction(value), frozenset({(frozenset({(name, 1)}), one)}), trace) for name, value in values.items()
    }


def nearby(value: float, seed: int, low: float | None, high: float | None) -> float:
    """A value near another one and within its range, with digits that no formula has by accident."""
    toss = random.Random(seed).uniform(0.5, 1.0)
    room = 1e-3 * max(abs(value), 1e-3)
    if high is not None:
        room = min(room, (high - value) / 2) or -room
    if low is not None and room < 0:
        room = max(room, (low - value) / 2)
    return value + toss * room


def _times(one: Powers, two: Powers) -> Powers:
    if not one or not two:
        return one or two
    powers = dict(one)
    for factor, power in two:
        powers[factor] = powers.get(factor, 0) + power
    return frozenset((factor, power) for factor, power in powers.items() if power)
