"""Which constants of a spec a float64 may be the rounded value of.

Weights are float64, and some constants of a spec are not: 1/3, 2/sqrt(6), log 2. Such a weight stands for the constant
if it is its correctly rounded value, found with 60 digits. With `slack`, weights within that relative error of a
constant are admitted too; how far they are off is told, and a proof that needs one holds only up to it.

Candidates are the numbers in the polynomials of the spec, their inverses, roots and logarithms, products of two of
them, and the entries 1/sqrt(m(m+1)), m/sqrt(m(m+1)) of an isometry onto the vectors whose coordinates add up to zero.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from weftc.prover.kernel.functions import Functions
from weftc.prover.kernel.polynomials import Mono, Number, Poly, constant, freeze, magnitude, number, scale
from weftc.prover.kernel.products import Products

DIGITS = 60
SHORT = 24  # bits of a float64 that is taken at its word
MOST = 400  # candidates that are combined with each other


class Constants:
    """The constants that weights are read as."""

    def __init__(self, algebra: Functions, slack: float = 0.0, others: frozenset[str] = frozenset()) -> None:
        self.algebra, self.slack, self.others = algebra, slack, others
        self.ambiguous: dict[str, None] = {}  # tensors with a number that the spec states and also rounds to
        self.rounded: dict[str, int] = {}  # constant -> how many weights are its correctly rounded value
        self.error = 0.0  # the largest error of a score whose coefficients are only near constants
        self._candidates: dict[float, Poly] = {}  # mantissa in [0.5, 1) -> the constant
        self._ordered: list[float] = []
        self._near_short: list[float] = []
        self._stated: set[float] = set()
        self._direct: dict[float, Poly] = {}  # those that the spec states, though its float64 is a short number

    # ---- candidates --------------------------------------------------------------------------------------------------

    def learn(self, found: Iterable[Number | Poly], widths: Iterable[int]) -> None:
        """Notes the constants of a spec, and the widths of its vectors."""
        base: list[Poly] = []
        seen: set[Any] = set()

        def note(p: Poly) -> None:
            key = tuple(sorted(p.items()))
            if p and key not in seen:
                seen.add(key)
                base.append(p)

        for one in found:
            note(one if isinstance(one, dict) else number(magnitude(one)))
        roots = [
            self.algebra.sqrt(number(Fraction(top, m * (m + 1))))
            for m in range(1, max(widths, default=0) + 1)
            for top in (1, m * m)
        ]
        for p in list(base):
            value = constant(p)
            if value is None or value <= 0:
                continue
            stated = float(value)
            if Fraction(stated) == value:
                self._stated.add(_mantissa(stated))
            note(number(1 / Fraction(value)))
            note(self.algebra.sqrt(number(value)))
            note(self.algebra.sqrt(number(1 / Fraction(value))))
            if value != 1:
                note(self.algebra.log(number(value)))
        for p in list(base):
            self._offer(p, direct=True)
        for p in roots:
            self._offer(p)
        plain = [p for p in base if constant(p) is not None][:MOST]
        for p in plain:
            for q in (*plain, *roots):
                self._offer(self.algebra.multiply(p, q))
        self._ordered, self._near_short = sorted(self._candidates), sorted(self._direct)

    def _offer(self, p: Poly, direct: bool = False) -> None:
        value = numeric(self.algebra, p)
        if value is None or value == 0:
            return
        nearest = float(value)  # Decimal -> float64 rounds correctly
        if not math.isfinite(nearest) or nearest == 0:
            return
        mantissa, exponent = math.frexp(abs(nearest))
        exact = constant(p)
        if exact is not None and Fraction(nearest) == exact:
            return
        one = scale(p, (-1 if nearest < 0 else 1) * Fraction(2) ** -exponent)
        if _bits(nearest) > SHORT:
            self._candidates.setdefault(mantissa, one)
        elif direct and mantissa != 0.5:  # a power of two is never taken for something near it
            self._direct.setdefault(mantissa, one)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def exact(self, value: float, where: str) -> Number | Poly:
        """The constant that a weight stands for."""
        return self.read(value, where)[0]

    def read(self, value: float, where: str, unit: float | None = None) -> tuple[Number | Poly, float]:
        """The constant that a weight stands for, and how far it is off beyond its rounding.

        `unit`: what a number must be small or near beside; without it, the constant itself.
        """
        plain: Number = int(value) if value.is_integer() else Fraction(value)
        mantissa, exponent = math.frexp(abs(value))
        factor = (1 if value > 0 else -1) * Fraction(2) ** exponent
        short = _bits(value) <= SHORT
        found = self._direct.get(mantissa) if short else self._candidates.get(mantissa)
        off = 0.0
        if mantissa in self._stated:
            if found is not None:
                self.ambiguous[where] = None
            if found is None or where not in self.others:
                return plain, 0.0
        if found is not None:
            read = scale(found, factor)
            text = shown(self.algebra, read)
            self.rounded[text] = self.rounded.get(text, 0) + 1
            self.algebra.journal.note("rounded", "reading", (value,), freeze(read))
        elif self.slack and not short:
            if unit is not None and abs(value) <= self.slack * unit:
                return 0, abs(value)
            near = self._near(value, mantissa, factor, unit)
            if near is None:
                return plain, 0.0
            read, off = near
        else:
            return plain, 0.0
        single = constant(read)
        return read if single is None else single, off

    def settled(self, p: Poly) -> Poly:
        """A score whose coefficients came out of products of rounded numbers, with the constants they are near to.

        `error` keeps the largest sum of what was added to the coefficients of one score: with all coordinates at most
        1 in magnitude, no score is further off.
        """
        if not self.slack or not p:
            return p
        sizes = {mono: abs(float(coefficient)) * self._size(mono) for mono, coefficient in p.items()}
        largest = max(sizes.values())
        result: Poly = {}
        total = 0.0
        for mono, coefficient in p.items():
            value = float(coefficient)
            if sizes[mono] <= self.slack * largest:
                total += sizes[mono]
                continue
            if _bits(value) <= SHORT and Fraction(value) == coefficient:
                result[mono] = coefficient
                continue
            mantissa, exponent = math.frexp(abs(value))
            unit = largest / self._size(mono)
            near = self._near(value, mantissa, (1 if value > 0 else -1) * Fraction(2) ** exponent, unit)
            single = None if near is None else constant(near[0])
            result[mono] = coefficient if single is None else single
            total += abs(float(result[mono] - coefficient)) * self._size(mono)
        self.error = max(self.error, total)
        return result

    def _size(self, mono: Mono) -> float:
        """The magnitude of the constants in a product: roots and logarithms of numbers."""
        fixed = tuple(part for part in mono if _atom(self.algebra, part[0]) is not None)
        value = numeric(self.algebra, {fixed: 1}) if fixed else None
        return 1.0 if value is None else abs(float(value))

    def _near(
        self, value: float, mantissa: float, factor: Fraction, unit: float | None = None
    ) -> tuple[Poly, float] | None:
        """A constant within the slack, and how far it is: one of the spec's, else a short number."""
        known = [scale(self._candidates[m], factor) for m in _beside(self._ordered, mantissa)]
        known += [scale(self._direct[m], factor) for m in _beside(self._near_short, mantissa)]
        known += [number(Fraction(math.copysign(m, value)) * abs(factor)) for m in self._stated]
        exponent = math.frexp(abs(value))[1]
        short = round(abs(value) * 2.0 ** (12 - exponent)) / 2.0 ** (12 - exponent) if abs(exponent) < 900 else value
        for options in (known, [number(Fraction(math.copysign(short, value)))]):
            best: tuple[Poly, float] | None = None
            least = self.slack
            for option in options:
                truth = numeric(self.algebra, option)
                if truth is None:
                    continue
                gap = abs(Decimal(value) - truth)
                error = float(gap / (abs(truth) if unit is None else Decimal(unit)))
                if error <= least:
                    best, least = (option, float(gap) * (1 + 2.0**-50)), error
            if best is not None:
                return best
        return None


def _beside(ordered: list[float], mantissa: float) -> list[float]:
    """The mantissas on either side."""
    place = bisect_left(ordered, mantissa)
    return ordered[max(0, place - 1) : place + 1]


def _bits(value: float) -> int:
    """How many significant bits a float64 has."""
    numerator = abs(value.as_integer_ratio()[0])
    return (numerator // (numerator & -numerator)).bit_length() if numerator else 0


def _mantissa(value: float) -> float:
    return math.frexp(abs(value))[0]


# ---- values of constants ---------------------------------------------------------------------------------------------


def numeric(algebra: Products, p: Poly) -> Decimal | None:
    """The value of a polynomial in constants, to 60 digits; None if it has other atoms."""
    with localcontext() as context:
        context.prec = DIGITS
        total = Decimal(0)
        for mono, coefficient in p.items():
            term = Decimal(Fraction(coefficient).numerator) / Decimal(Fraction(coefficient).denominator)
            for a, power in mono:
                value = _atom(algebra, a)
                if value is None:
                    return None
                whole = Decimal(Fraction(power).numerator) / Decimal(Fraction(power).denominator)
                term *= value**whole
            total += term
        return +total


def _atom(algebra: Products, a: int) -> Decimal | None:
    atom = algebra.atoms[a]
    if atom.tokens:
        return None
    match atom.kind:
        case "sqrt" | "log" | "inverse" | "tanh" | "sigmoid" | "softplus":
            value = numeric(algebra, dict(atom.data))
            if value is None or (atom.kind in ("sqrt", "log", "inverse") and value <= 0):
                return None
            if atom.kind in ("sigmoid", "softplus"):
                power = value.exp()
                return power / (1 + power) if atom.kind == "sigmoid" else (1 + power).ln()
            if atom.kind == "inverse":
                return 1 / value
            if atom.kind == "tanh":
                up, down = value.exp(), (-value).exp()
                return (up - down) / (up + down)
            return value.sqrt() if atom.kind == "sqrt" else value.ln()
        case "exp":
            value = numeric(algebra, {atom.data: 1})
            return None if value is None else value.exp()
    return None


def shown(algebra: Products, p: Poly) -> str:
    """A constant in readable form."""
    from weftc.prover.report.showing import show

    return show(algebra, p)
