"""Whether two polynomials are equal: as they are, or after multiplying out every quotient.

Multiplying by p what was divided by p is sound wherever p is not zero. Where p is zero a quotient has no value, unless
that case is caught (there is an indicator of it): then it is compared on its own, with the quotient read as zero.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.proof.algebra import Algebra
from weft.proof.polynomials import Mono, Number, Poly, TooLarge, add, number, subtract
from weft.proof.probing import differ

MOST_ROUNDS = 40


def equal(algebra: Algebra, p: Poly, q: Poly, absent: Iterable[Poly] = ()) -> bool:
    """Whether p = q; `absent` are indicators of cases that need not be covered (the spec has no value there)."""
    if p == q:
        return True
    gap = subtract(p, q)
    off = {
        a for one in absent if len(one) == 1 for mono, c in one.items() if len(mono) == 1 and c == 1 for a, _ in mono
    }
    if off:
        gap = algebra.substitute(gap, lambda a: {} if a in off else None)
    if _quotient(algebra, gap) is None or differ(algebra, gap):
        return not gap
    try:
        return is_zero(algebra, gap, frozenset(off))
    except TooLarge:
        return False


def is_zero(algebra: Algebra, gap: Poly, absent: frozenset[int] = frozenset()) -> bool:
    """Whether a polynomial is zero, by cases: a divisor is zero, and so is the quotient by it; or it is multiplied out.

    Atoms in `absent` are indicators of divisors that are not zero.
    """
    for _ in range(MOST_ROUNDS):
        if not gap:
            return True
        held = _quotient(algebra, gap)
        if held is None:
            return False
        atom = algebra.atoms[held]
        divisor = algebra.open(atom.data, atom.tokens)
        caught = algebra.intern("nothing", atom.data, atom.tokens)
        if caught not in absent and not algebra.is_positive(divisor):
            zero: dict[int, Poly] = {held: {}, caught: number(1)}
            if len(divisor) == 1:
                zero |= {a: {} for mono in divisor for a, _ in mono}
            if not is_zero(algebra, algebra.substitute(gap, zero.get), absent):
                return False
        gap = algebra.substitute(gap, {caught: dict[Mono, Number]()}.get)
        most = max((int(dict(mono).get(held, 0)) for mono in gap), default=0)
        raised: dict[int, Poly] = {n: algebra.power(divisor, n) for n in range(most + 1)}
        result: Poly = {}
        for mono, coefficient in gap.items():
            power: Number = dict(mono).get(held, 0)
            rest = tuple(part for part in mono if part[0] != held)
            result = add(result, algebra.multiply({rest: coefficient}, raised[most - int(power)]))
        gap = result
    return False


def _quotient(algebra: Algebra, gap: Poly) -> int | None:
    """The newest quotient in a polynomial: older ones may be inside it."""
    found = {a for mono in gap for a, power in mono if algebra.atoms[a].kind == "inverse" and power > 0}
    return max(found, default=None)
