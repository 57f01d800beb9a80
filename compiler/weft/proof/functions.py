"""Functions of polynomials in canonical form, with the identities they obey.

exp(a + b) = exp(a) exp(b),  exp(log p) = p      log(c exp(a) p) = log c + a + log p    (c > 0)
sqrt(c p) = sqrt(c) sqrt(p)  (c > 0),  sqrt(p)^2 = p
relu(c p) = c relu(p),  relu(-p) = relu(p) - p,  relu(p)^2 = p relu(p),  |p| = 2 relu(p) - p
tanh(-p) = -tanh(p)
[c p > 0] = [p > 0],  [-p > 0] = 1 - [p >= 0];  of a 0-1 number: its truth table      (c > 0)
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import isqrt
from typing import Literal

from weft.proof.algebra import Algebra
from weft.proof.polynomials import (
    UNIT,
    Frozen,
    Mono,
    Number,
    Poly,
    add,
    constant,
    freeze,
    number,
    scale,
    subtract,
    tidy,
)

MOST_FACTORS = 1000  # small primes whose squares are taken out of a root


class Functions(Algebra):
    """The algebra with functions."""

    def __init__(self, onehot: Iterable[str] = (), positive: Iterable[str] = ()) -> None:
        super().__init__(onehot, positive)
        self._exponentials: dict[Mono, int] = {}  # monomials that are no logarithms -> the atoms of their exponentials
        self._exponents: dict[int, Mono] = {}  # and back
        self._powers: dict[tuple[Mono, Number], Poly] = {}  # whole multiples of logarithms -> their exponentials

    def apply(self, function: str, p: Poly) -> Poly:
        """A function of one number by its name in the program or the spec."""
        match function:
            case "reciprocal":
                return self.inverse(p)
            case "log":
                return self.log(p)
            case "exp":
                return self.exp(p)
            case "sqrt":
                return self.sqrt(p)
            case "relu":
                return self.relu(p)
            case "relu2":
                return self.power(self.relu(p), 2)
            case "tanh":
                return self.tanh(p)
            case "absolute":
                return self.absolute(p)
            case "copy":
                return p
        raise KeyError(function)

    def without_value(self, function: str, p: Poly) -> list[Poly]:
        """Where a function has no value: somewhere in this list there is a 1."""
        match function:
            case "reciprocal":
                return self.zeros(p)
            case "log":
                return [one] if (one := self.compare("<=", p)) else []
            case "sqrt":
                return [] if self.is_nonnegative(p) else [one] if (one := self.compare("<", p)) else []
        return []

    # ---- exponentials and logarithms ---------------------------------------------------------------------------------

    def exp(self, p: Poly) -> Poly:
        """exp(p), a product of one factor per term."""
        powers: dict[int, Number] = {}
        result = number(1)
        known = self._exponentials
        for mono, coefficient in p.items():
            atom = known.get(mono)
            if atom is None:
                factor = self._unlogged(mono, coefficient)
                if factor is not None:
                    result = self.multiply(result, factor)
                    continue
                local, tokens = self.local({mono: 1})
                atom = self.intern("exp", next(iter(local)), tokens)
                if self._logarithm_of(mono) is None:
                    known[mono] = atom
            powers[atom] = coefficient
        return self.multiply(result, {tuple(sorted(powers.items())): 1})

    def _unlogged(self, mono: Mono, coefficient: Number) -> Poly | None:
        """exp of a whole multiple of a logarithm."""
        inside = self._logarithm_of(mono)
        if inside is None or Fraction(coefficient).denominator != 1 or not self.is_positive(inside):
            return None
        key, whole = (mono, coefficient), int(coefficient)
        if key not in self._powers:
            self._powers[key] = self.power(inside if whole > 0 else self.inverse(inside), abs(whole))
        return self._powers[key]

    def _logarithm_of(self, mono: Mono) -> Poly | None:
        """What a monomial is the logarithm of, if it is one."""
        if len(mono) == 1 and mono[0][1] == 1 and self.atoms[mono[0][0]].kind == "log":
            atom = self.atoms[mono[0][0]]
            return self.open(atom.data, atom.tokens)
        return None

    def log(self, p: Poly) -> Poly:
        """log(p)."""
        return self.lifted(lambda inside, _: self._log(inside), p)

    def _log(self, p: Poly) -> Poly:
        if not p:
            return self.holding("log", p)
        content = self.content(p)
        coefficient, rest = content.coefficient, content.rest
        result: Poly = {}
        exponents: Poly = {}
        kept: dict[int, Number] = dict.fromkeys(content.roots, 1)
        for a, power in content.common.items():
            atom = self.atoms[a]
            if atom.kind == "exp":
                inside = self._inside_exp(a)
                exponents[inside] = exponents.get(inside, 0) + power
            elif a in self.positive:
                result = add(result, scale(self.holding("log", {((a, 1),): 1}), power))
            else:
                kept[a] = power
        result = add(result, {mono: power for mono, power in exponents.items() if power})
        rest = self.multiply(rest, {tuple(sorted(kept.items())): 1})
        if coefficient < 0:
            coefficient, rest = -coefficient, scale(rest, -1)
        if coefficient != 1:
            result = add(result, self.holding("log", number(coefficient)))
        return result if rest == {UNIT: 1} else add(result, self.holding("log", rest))

    def _inside_exp(self, a: int) -> Mono:
        if a not in self._exponents:
            atom = self.atoms[a]
            self._exponents[a] = next(iter(self.open(((atom.data, 1),), atom.tokens)))
        return self._exponents[a]

    # ---- roots -------------------------------------------------------------------------------------------------------

    def sqrt(self, p: Poly) -> Poly:
        """The square root of p."""
        value = constant(p)
        if value is not None:
            return self._sqrt_number(Fraction(value))
        return self.lifted(lambda inside, _: self._sqrt(inside), p)

    def _sqrt(self, p: Poly) -> Poly:
        leading = Fraction(p[min(p)])
        size = abs(leading)
        rest = tidy(scale(p, 1 / size))
        return self.multiply(self._sqrt_number(size), self.holding("sqrt", rest))

    def _sqrt_number(self, value: Fraction) -> Poly:
        if value < 0:
            return self.atom("sqrt", freeze(number(value)))
        square, free = _squares(value.numerator * value.denominator)
        root = self.atom("sqrt", freeze(number(free))) if free != 1 else number(1)
        return tidy(scale(root, Fraction(square, value.denominator))) if value else {}

    # ---- functions with a sign ---------------------------------------------------------------------------------------

    def relu(self, p: Poly) -> Poly:
        """max(p, 0)."""
        value = constant(p)
        if value is not None:
            return number(max(value, 0))
        return self.lifted(lambda inside, _: self._relu(inside), p)

    def _relu(self, p: Poly) -> Poly:
        size = Fraction(p[min(p)])
        rest = tidy(scale(p, 1 / size))
        held = self.holding("relu", rest)
        return tidy(scale(held if size > 0 else subtract(held, rest), abs(size)))

    def absolute(self, p: Poly) -> Poly:
        """|p|."""
        return subtract(scale(self.relu(p), 2), p)

    def tanh(self, p: Poly) -> Poly:
        """tanh(p)."""
        if not p:
            return {}

        def odd(inside: Poly, _: tuple[int, ...]) -> Poly:
            sign = 1 if inside[min(inside)] > 0 else -1
            return scale(self.holding("tanh", scale(inside, sign)), sign)

        return self.lifted(odd, p)

    # ---- indicators --------------------------------------------------------------------------------------------------

    def compare(self, op: Literal[">", ">=", "<", "<="], p: Poly) -> Poly:
        """1 where `p op 0` holds, else 0."""
        if op in ("<", "<="):
            return subtract(number(1), self.compare(">=" if op == "<" else ">", p))
        table = self._truth_table(op, p)
        return self.lifted(lambda inside, _: self._compare(op, inside), p) if table is None else table

    def _truth_table(self, op: str, p: Poly) -> Poly | None:
        """A comparison of a number, or of a linear function of one number that is 0 or 1."""
        base = p.get(UNIT, 0)
        others = [(mono, c) for mono, c in p.items() if mono != UNIT]

        def holds(value: Number) -> int:
            return int(value > 0 if op == ">" else value >= 0)

        if not others:
            return number(holds(base))
        ((mono, slope), *more) = others
        if more or len(mono) != 1 or not self.is_bit(mono[0][0]):
            return None
        low, high = holds(base), holds(base + slope)
        return add(number(low), scale({mono: 1}, high - low))

    def is_bit(self, a: int) -> bool:
        """Whether an atom is 0 or 1."""
        atom = self.atoms[a]
        return a in self.special and atom.kind not in ("sqrt", "relu")

    def _compare(self, op: str, p: Poly) -> Poly:
        size = Fraction(p[min(p)])
        rest = tidy(scale(p, 1 / size))
        if self.is_positive(rest):
            return number(1 if size > 0 else 0)
        if size > 0:
            return self.holding("above" if op == ">" else "atleast", rest)
        return subtract(number(1), self.holding("atleast" if op == ">" else "above", rest))

    def nothing(self, p: Poly) -> Poly:
        """1 where p = 0, else 0; for sums of terms that are not negative."""
        there = number(1)
        for one in self.zeros(p):
            there = self.multiply(there, subtract(number(1), one))
        return subtract(number(1), there)

    def zeros(self, p: Poly) -> list[Poly]:
        """Where p = 0: somewhere in this list there is a 1. A product is zero where one of its factors is."""
        value = constant(p)
        if value is not None:
            return [number(1)] if value == 0 else []
        if self.is_positive(p):
            return []
        inside, tokens = self.local(p)
        names = dict(enumerate(tokens))
        return [self.rename(one, names) for one in self._zeros(inside)]

    def _zeros(self, p: Poly) -> list[Poly]:
        content = self.content(p)
        found: list[Poly] = []
        for a in content.common:
            if a not in self.positive:
                atom = self.atoms[a]
                found += (
                    self.zeros(self.open(atom.data, atom.tokens))
                    if atom.kind == "inverse"
                    else [subtract(number(1), {((a, 1),): 1})]
                    if self.is_bit(a)
                    else [self.holding("nothing", {((a, 1),): 1})]
                )
        for root in content.roots:
            found += self.zeros(self.open(self.atoms[root].data, self.atoms[root].tokens))
        if content.rest != {UNIT: 1} and not self.is_positive(content.rest):
            found.append(self.holding("nothing", content.rest))
        return found

    # ---- where something has no value --------------------------------------------------------------------------------

    def somewhere(self, p: Poly) -> Frozen:
        """Whether p is not zero for some tokens, whatever they are called, less what is positive in it: 0 for never."""
        if not p:
            return ()
        content = self.content(self.local(p)[0])
        kept = {a: 1 for a in (*content.common, *content.roots) if a not in self.positive}
        rest = number(1) if self.is_positive(content.rest) else content.rest
        return freeze(self.local(self.multiply(rest, {tuple(sorted(kept.items())): 1}))[0])

    def covers(self, wide: Iterable[Frozen], narrow: Iterable[Frozen]) -> bool:
        """Whether everything in `narrow` is zero where everything in `wide` is: each has one of these as a factor."""
        known = set(wide)
        return all(not one or one in known or any(self._factor(w, one) for w in known) for one in set(narrow))

    def _factor(self, bit: Frozen, one: Frozen) -> bool:
        """Whether `one` is only not zero where `bit`, about the same tokens, is 1."""
        flag, p = dict(bit), dict(one)
        return bool(flag) and self.multiply(flag, flag) == flag and self.multiply(flag, p) == p


def _squares(value: int) -> tuple[int, int]:
    """value = square^2 * free, the free part without small squares."""
    root = isqrt(value)
    if root * root == value:
        return root, 1
    square, free = 1, value
    if value < MOST_FACTORS**2:
        for factor in range(2, isqrt(value) + 1):
            while free % (factor * factor) == 0:
                free //= factor * factor
                square *= factor
    return square, free
