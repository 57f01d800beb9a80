"""Polynomials over numbered atoms, as plain dictionaries: a monomial (sorted pairs of atom and power) -> coefficient.

Nothing here knows what an atom stands for. Polynomials are never changed once they are made, so they may be shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

Number: TypeAlias = int | Fraction
Mono: TypeAlias = tuple[tuple[int, Number], ...]
Poly: TypeAlias = dict[Mono, Number]
Frozen: TypeAlias = tuple[tuple[Mono, Number], ...]

ZERO: Poly = {}
UNIT: Mono = ()


class TooLarge(Exception):
    """An expression grew beyond what is compared."""


def number(value: Number) -> Poly:
    """A constant."""
    return {UNIT: value} if value else {}


def magnitude(value: Number) -> Number:
    """|value|."""
    return value if value >= 0 else -value


def freeze(p: Poly) -> Frozen:
    """A hashable form, the same for equal polynomials."""
    return tuple(sorted(p.items()))


def add(*terms: Poly) -> Poly:
    """The sum."""
    if not terms:
        return {}
    if len(terms) == 2:
        return _added(*terms)
    start = max(range(len(terms)), key=lambda place: len(terms[place]))
    result = dict(terms[start])
    for place, term in enumerate(terms):
        if place == start:
            continue
        for mono, coefficient in term.items():
            total = result.get(mono, 0) + coefficient
            if total:
                result[mono] = total
            else:
                del result[mono]
    return result


def _added(p: Poly, q: Poly) -> Poly:
    """p + q; polynomials are never changed, so that a sum with nothing is the other summand itself."""
    if not p or not q:
        return p or q
    if len(p) < len(q):
        p, q = q, p
    result = dict(p)
    for mono, coefficient in q.items():
        total = result.get(mono, 0) + coefficient
        if total:
            result[mono] = total
        else:
            del result[mono]
    return result


def scale(p: Poly, factor: Number) -> Poly:
    """p times a number."""
    if factor == 1:
        return p
    return {mono: coefficient * factor for mono, coefficient in p.items()} if factor else {}


def subtract(p: Poly, q: Poly) -> Poly:
    """p - q."""
    if not q:
        return p
    result = dict(p)
    for mono, coefficient in q.items():
        total = result.get(mono, 0) - coefficient
        if total:
            result[mono] = total
        else:
            del result[mono]
    return result


def constant(p: Poly) -> Number | None:
    """The value of a polynomial without atoms."""
    if not p:
        return 0
    return p[UNIT] if len(p) == 1 and UNIT in p else None


def tidy(p: Poly) -> Poly:
    """Whole coefficients as integers: they are faster."""
    return {mono: (c.numerator if isinstance(c, Fraction) and c.denominator == 1 else c) for mono, c in p.items()}


def monomial(powers: Mapping[int, Number]) -> Mono:
    return tuple(sorted((a, power) for a, power in powers.items() if power))
