"""A quick refutation: polynomials at random values modulo a prime. It can only show that two differ.

Atoms get values that obey the rules of the algebra: exponentials are powers in a group of prime order, so that rational
exponents have a meaning; roots are roots; indicators are 0 or 1; quotients are inverses. Atoms for which that fails
under one choice of values (a number without a root) are tried with another.
"""

from __future__ import annotations

from fractions import Fraction
from hashlib import sha256

from weft.proof.algebra import Algebra
from weft.proof.atoms import INDICATORS
from weft.proof.polynomials import Number, Poly

PRIME = 2305843009213691579  # = 2 q + 1 with q prime: the squares form a group of prime order q
ORDER = (PRIME - 1) // 2
TRIES = 12


class _Unlucky(Exception):
    """These values give an atom none."""


def differ(algebra: Algebra, gap: Poly) -> bool:
    """Whether a polynomial is certainly not zero."""
    for seed in range(TRIES):
        try:
            return _Values(algebra, seed).of(gap) != 0
        except _Unlucky:
            continue
    return False


class _Values:
    def __init__(self, algebra: Algebra, seed: int) -> None:
        self.algebra, self.seed = algebra, seed
        self._known: dict[int, int] = {}

    def of(self, p: Poly) -> int:
        total = 0
        for mono, coefficient in p.items():
            term = _residue(coefficient)
            for a, power in mono:
                term = term * self._power(a, power) % PRIME
            total += term
        return total % PRIME

    def _power(self, a: int, power: Number) -> int:
        value = self.atom(a)
        if isinstance(power, int):
            if power < 0 and value == 0:
                raise _Unlucky
            return pow(value, power, PRIME)
        if power.denominator % ORDER == 0:
            raise _Unlucky
        return pow(value, power.numerator * pow(power.denominator, -1, ORDER), PRIME)

    def atom(self, a: int) -> int:
        if a not in self._known:
            self._known[a] = self._value(a)
        return self._known[a]

    def _value(self, a: int) -> int:
        atom = self.algebra.atoms[a]
        free = self._random(a)
        match atom.kind:
            case "exp":
                return free * free % PRIME  # in the group of squares
            case "field" if a in self.algebra.special:
                row = self._random(f"{atom.data[0]} {atom.data[2]} {atom.tokens}")
                return int(atom.data[1] == row % 3)
            case "nothing":
                return 0
            case kind if kind in INDICATORS:
                return free % 2
            case "inverse" | "sqrt" | "relu":
                inside = self.of(self.algebra.open(atom.data, atom.tokens))
                if atom.kind == "relu":
                    return inside if free % 2 else 0
                if atom.kind == "inverse":
                    if inside == 0:
                        raise _Unlucky
                    return pow(inside, -1, PRIME)
                root = pow(inside, (PRIME + 1) // 4, PRIME)
                if root * root % PRIME != inside:
                    raise _Unlucky
                return root
        return free

    def _random(self, what: int | str) -> int:
        digest = sha256(f"{self.seed} {what}".encode()).digest()
        return int.from_bytes(digest[:16], "big") % (PRIME - 2) + 1


def _residue(value: Number) -> int:
    if isinstance(value, int):
        return value % PRIME
    exact = Fraction(value)
    return exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME
