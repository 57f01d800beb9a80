"""What a proof has to choose, chosen: how to factor, by how much to shift and scale, what to multiply out next.

Nothing here is trusted. The kernel checks what it is told, and any answer that passes is sound; these are the ones that
bring equal things to the same form.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from weftc.prover.kernel.polynomials import Frozen, Mono, Number, Poly, freeze, magnitude, monomial, scale, tidy
from weftc.prover.kernel.rules import Factors, Question
from weftc.prover.kernel.terms import Terms


def search(question: Question, about: Any, terms: Terms) -> Any:
    """The oracle of whoever looks for a proof."""
    match question:
        case "factors":
            return factors(terms, dict(about))
        case "shift":
            return shift(about)
        case "scale":  # the least coefficient, so that whole numbers mostly stay whole
            return Fraction(min(magnitude(coefficient) for _, coefficient in about))
        case "divisor":  # the newest quotient: older ones may be inside it
            found = {a for mono, _ in about for a, power in mono if terms.atoms[a].kind == "inverse" and power > 0}
            return max(found, default=None)


def factors(terms: Terms, p: Poly) -> Factors:
    """p as coefficient * common factors * roots * rest, the rest with leading coefficient 1 and no common factor.

    Of a positive atom the most frequent power is common (among equally frequent ones the least), so that multiples
    by such atoms have the same rest. Of any other atom the least power is common.
    """
    powers: dict[int, list[Number]] = {}
    roots: set[int] | None = None
    for mono in p:
        held = set()
        for a, power in mono:
            if a not in terms.special:
                if a in powers:
                    powers[a].append(power)
                else:
                    powers[a] = [power]
            elif terms.atoms[a].kind == "sqrt":
                held.add(a)
        roots = held if roots is None else roots & held
    common: dict[int, Number] = {}
    for a, found in powers.items():
        absent = len(p) - len(found)
        if a in terms.positive:
            low = _usual_power(found, absent) if absent <= len(found) else 0
        else:
            low = 0 if absent else min(found)
        if low:
            common[a] = low
    taken = sorted(roots or ())
    if common or taken:
        less = {a: -power for a, power in common.items()} | dict.fromkeys(taken, -1)
        p = {_less(mono, less): coefficient for mono, coefficient in p.items()}
    leading = p[min(p)]
    rest = tidy(scale(p, Fraction(1) / leading))
    return Factors(leading, tuple(common.items()), tuple(taken), freeze(rest))


def shift(rows: tuple[Frozen, ...]) -> Frozen:
    """Per term the coefficient that most rows have (0 where it does not occur); among equals that of the first."""
    seen: dict[Mono, dict[int, Number]] = {}
    for place, row in enumerate(rows):
        for mono, coefficient in row:
            seen.setdefault(mono, {})[place] = coefficient
    common: Poly = {}
    for mono, found in seen.items():
        if 2 * len(found) >= len(rows):
            usual = _usual_coefficient(found, len(rows))
            if usual:
                common[mono] = usual
    return freeze(common)


def _less(mono: Mono, less: dict[int, Number]) -> Mono:
    powers = dict(mono)
    for a, power in less.items():
        powers[a] = powers.get(a, 0) + power
    return monomial(powers)


def _usual_power(powers: list[Number], absent: int) -> Number:
    """The most frequent power of an atom, 0 where it is absent; among equally frequent ones the least."""
    counts: dict[Number, int] = {0: absent} if absent else {}
    for power in powers:
        counts[power] = counts.get(power, 0) + 1
    most = max(counts.values())
    return min(power for power, count in counts.items() if count == most)


def _usual_coefficient(found: dict[int, Number], size: int) -> Number:
    counts = Counter(found.values())
    if len(found) < size:
        counts[0] = size - len(found)
    most = max(counts.values())
    return next(c for place in range(size) if counts[c := found.get(place, 0)] == most)
