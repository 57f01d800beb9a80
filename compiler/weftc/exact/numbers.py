"""Real numbers: rationals, exactly; everything else as an enclosure by two rationals, 90 digits apart at most.

    exact(1) / exact(3)             the rational 1/3
    exact(2).sqrt()                 an enclosure of the root of 2; exact(4).sqrt() is the rational 2
    exact(2).sqrt() > exact(1)      True: the enclosure lies above
    exact(2).sqrt().square() > exact(2)    Undecided: no enclosure tells

A comparison that enclosures do not settle raises `Undecided`; nothing is ever guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, DecimalException
from fractions import Fraction
from math import isqrt
from typing import TypeAlias

Real: TypeAlias = "Fraction | int | float"

DIGITS = 100  # of what exp and log return
BITS = 320  # of the ends of an enclosure
LARGEST = 20_000  # exponents beyond this are not computed
_DOWN = Context(prec=DIGITS, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX)
_UP = Context(prec=DIGITS, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX)


class Undecided(Exception):
    """A comparison of numbers that are not rational and too close to be told apart."""


@dataclass(frozen=True, slots=True)
class Number:
    """A real number between `low` and `high`; exact where they are the same."""

    low: Fraction
    high: Fraction

    @property
    def is_exact(self) -> bool:
        """Whether the number is known as a rational."""
        return self.low is self.high or self.low == self.high

    def __float__(self) -> float:
        return float((self.low + self.high) / 2)

    def __add__(self, other: Number) -> Number:
        return _between(self.low + other.low, self.high + other.high, self.is_exact and other.is_exact)

    def __neg__(self) -> Number:
        return Number(-self.high, -self.low)

    def __sub__(self, other: Number) -> Number:
        return self + -other

    def __mul__(self, other: Number) -> Number:
        if self.is_exact and other.is_exact:
            return exact(self.low * other.low)
        ends = [one * two for one in (self.low, self.high) for two in (other.low, other.high)]
        return _between(min(ends), max(ends))

    def __truediv__(self, other: Number) -> Number:
        if other.sign() == 0:
            raise ZeroDivisionError
        return self * Number(1 / other.high, 1 / other.low)

    def sign(self) -> int:
        """-1, 0 or 1."""
        if self.low > 0 or self.high < 0:
            return 1 if self.low > 0 else -1
        if self.is_exact:
            return 0
        raise Undecided

    def __lt__(self, other: Number) -> bool:
        return (self - other).sign() < 0

    def __le__(self, other: Number) -> bool:
        return (self - other).sign() <= 0

    def __gt__(self, other: Number) -> bool:
        return other < self

    def __ge__(self, other: Number) -> bool:
        return other <= self

    def square(self) -> Number:
        """The number times itself, which is never negative."""
        if self.is_exact or self.low > 0 or self.high < 0:
            return self * self
        return _between(Fraction(0), max(self.low * self.low, self.high * self.high))

    def sqrt(self) -> Number:
        """The root of a number that is not negative."""
        if self.is_exact:
            top, bottom = isqrt(self.low.numerator), isqrt(self.low.denominator)
            if top * top == self.low.numerator and bottom * bottom == self.low.denominator:
                return exact(Fraction(top, bottom))
        return _between(_root(max(self.low, Fraction(0)), up=False), _root(self.high, up=True))

    def exp(self) -> Number:
        """e to the number."""
        if self.is_exact and self.low == 0:
            return ONE
        if self.high > LARGEST:
            raise Undecided
        return _between(_exp(self.low, up=False), _exp(self.high, up=True))

    def log(self) -> Number:
        """The logarithm of a positive number."""
        if self.is_exact and self.low == 1:
            return ZERO
        low, high = Fraction(_decimal(self.low, _DOWN).ln(_DOWN)), Fraction(_decimal(self.high, _UP).ln(_UP))
        return _between(low - _beside(low), high + _beside(high))

    def tanh(self) -> Number:
        """The hyperbolic tangent."""
        if self.is_exact and self.low == 0:
            return ZERO
        limit = exact(LARGEST // 4)
        if limit < self or self < -limit:
            near = 1 - Fraction(1, 10**DIGITS)
            return Number(near, Fraction(1)) if limit < self else Number(Fraction(-1), -near)
        return ONE - exact(2) / ((self + self).exp() + ONE)

    def clipped(self) -> Number:
        """The number, or 0 where it is negative."""
        return Number(max(self.low, Fraction(0)), max(self.high, Fraction(0)))

    def magnitude(self) -> Number:
        """The number without its sign."""
        if self.low >= 0:
            return self
        return -self if self.high <= 0 else Number(Fraction(0), max(-self.low, self.high))


def exact(value: Real) -> Number:
    """A rational, or the rational that a float64 is, as a number."""
    rational = value if isinstance(value, Fraction) else Fraction(value)
    return Number(rational, rational)


ZERO, ONE = exact(0), exact(1)


def total(numbers: list[Number]) -> Number:
    """The sum of numbers; of none, 0."""
    if not numbers:
        return ZERO
    low = sum((number.low for number in numbers), Fraction(0))
    if all(number.is_exact for number in numbers):
        return Number(low, low)
    return _between(low, sum((number.high for number in numbers), Fraction(0)))


def _between(low: Fraction, high: Fraction, precise: bool = False) -> Number:
    """An enclosure with ends that do not grow without end."""
    if precise:
        return Number(low, low)
    return Number(_short(low, up=False), _short(high, up=True))


def _short(value: Fraction, up: bool) -> Fraction:
    """A rational of BITS bits beside a number, below or above it."""
    shift = BITS - (value.numerator.bit_length() - value.denominator.bit_length())
    top = value.numerator << max(shift, 0)
    bottom = value.denominator << max(-shift, 0)
    cut = -(-top // bottom) if up else top // bottom
    return Fraction(cut, 1 << shift) if shift >= 0 else Fraction(cut << -shift)


def _root(value: Fraction, up: bool) -> Fraction:
    """A multiple of a small unit beside the root of a number, below or above it."""
    shift = max(BITS, BITS - (value.numerator.bit_length() - value.denominator.bit_length()) // 2)
    return Fraction(isqrt((value.numerator << 2 * shift) // value.denominator) + up, 1 << shift)


def _decimal(value: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _beside(value: Fraction) -> Fraction:
    """More than rounding to DIGITS digits can have changed a number."""
    return (abs(value) + Fraction(1, 10**DIGITS)) * Fraction(1, 10 ** (DIGITS - 2))


def _exp(value: Fraction, up: bool) -> Fraction:
    """A rational above or below e to a rational; the decimal library rounds exp to nearest, so one step beside it."""
    if value < -LARGEST:
        return Fraction(1, 10 ** (LARGEST // 3)) if up else Fraction(0)
    context = _UP if up else _DOWN
    try:
        found = context.exp(_decimal(value, context))
    except DecimalException:
        raise Undecided from None
    return Fraction(found.next_plus(context) if up else found.next_minus(context))
