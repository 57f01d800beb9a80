"""Functions of polynomials, comparisons, and where a polynomial is zero, by the rules of `rules`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isqrt
from typing import Literal

from weftc.prover.kernel.polynomials import (
    UNIT,
    Frozen,
    Mono,
    Number,
    Poly,
    add,
    constant,
    freeze,
    monomial,
    number,
    scale,
    subtract,
    tidy,
)
from weftc.prover.kernel.products import Products
from weftc.prover.kernel.rules import Oracle
from weftc.prover.kernel.terms import INDICATORS

MOST_FACTORS = 1000  # small primes whose squares are taken out of a root


class Functions(Products):
    """The algebra with functions."""

    def __init__(
        self,
        oracle: Oracle,
        onehot: Iterable[str] = (),
        positive: Iterable[str] = (),
        nonnegative: Iterable[str] = (),
    ) -> None:
        super().__init__(oracle, onehot, positive, nonnegative)
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
            case "abs":
                return self.absolute(p)
            case "sigmoid" | "softplus":
                return self.lifted(lambda inside: self.holding(function, inside), p)
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
        result, rule = number(1), "exponential"
        known = self._exponentials
        for mono, coefficient in p.items():
            atom = known.get(mono)
            if atom is None:
                factor = self._unlogged(mono, coefficient)
                if factor is not None:
                    result, rule = self.multiply(result, factor), "exponential of a logarithm"
                    continue
                local, tokens = self.local({mono: 1})
                atom = self.intern("exp", next(iter(local)), tokens)
                if self._logarithm_of(mono) is None:
                    known[mono] = atom
            powers[atom] = coefficient
        result = self.multiply(result, {tuple(sorted(powers.items())): 1})
        self.journal.note(rule, "exp", (freeze(p),), freeze(result))
        return result

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
        return self.lifted(self._log, p)

    def _log(self, p: Poly) -> Poly:
        if not p:
            return self.holding("log", p)
        domain = self.domain(p)
        if domain is not None:
            part, there = domain
            known = self.multiply(there, self.log(part))
            self.journal.note("logarithm where there is one", "log", (freeze(p),), freeze(known))
            return known
        found = self.factors(p)
        coefficient, rest = found.coefficient, dict(found.rest)
        result: Poly = {}
        exponents: Poly = {}
        kept: dict[int, Number] = dict.fromkeys(found.roots, 1)
        for a, power in found.common:
            if self.atoms[a].kind == "exp":
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
        result = result if rest == {UNIT: 1} else add(result, self.holding("log", rest))
        self.journal.note("logarithm", "log", (freeze(p),), freeze(result))
        return result

    def domain(self, p: Poly) -> tuple[Poly, Poly] | None:
        """q and where q > 0, if p is q there and 1 elsewhere; or where q is not 0, if p is q there and 1 elsewhere."""
        filled = self.filled(p)
        if filled is not None:
            return (filled[0], subtract(number(1), filled[1])) if filled[2] == 1 else None
        for mono, coefficient in p.items():
            if len(mono) == 1 and self.atoms[mono[0][0]].kind == "relu" and coefficient > 0:
                inside = self._held_by("relu", {mono: 1})
                assert inside is not None
                there = self.compare(">", inside)
                if add(scale({mono: 1}, coefficient), number(1), scale(there, -1)) == p:
                    return scale(inside, coefficient), there
        return None

    def _inside_exp(self, a: int) -> Mono:
        if a not in self._exponents:
            atom = self.atoms[a]
            self._exponents[a] = next(iter(self.open(((atom.data, 1),), atom.tokens)))
        return self._exponents[a]

    # ---- roots -------------------------------------------------------------------------------------------------------

    def sqrt(self, p: Poly) -> Poly:
        """The square root of p."""
        value = constant(p)
        return self.lifted(self._sqrt, p) if value is None else self._sqrt_number(Fraction(value))

    def _sqrt(self, p: Poly) -> Poly:
        size, rest = _apart(p)
        inside = self._held_by("relu", rest) if size > 0 else None
        if inside is not None:
            result = self.multiply(self._sqrt_number(size), self.sqrt(inside))
            self.journal.note("root of relu", "sqrt", (freeze(p),), freeze(result))
            return result
        result = self.multiply(self._sqrt_number(abs(size)), self.holding("sqrt", scale(rest, 1 if size > 0 else -1)))
        self.journal.note("root", "sqrt", (freeze(p),), freeze(result))
        return result

    def _sqrt_number(self, value: Fraction) -> Poly:
        if value < 0:
            return self.atom("sqrt", freeze(number(value)))
        square, free = _squares(value.numerator * value.denominator)
        root = self.atom("sqrt", freeze(number(free))) if free != 1 else number(1)
        result = tidy(scale(root, Fraction(square, value.denominator))) if value else {}
        self.journal.note("root of a number", "sqrt", (freeze(number(value)),), freeze(result))
        return result

    # ---- functions with a sign ---------------------------------------------------------------------------------------

    def relu(self, p: Poly) -> Poly:
        """max(p, 0)."""
        value = constant(p)
        return self.lifted(self._relu, p) if value is None else number(max(value, 0))

    def _relu(self, p: Poly) -> Poly:
        for sign, result in ((1, p), (-1, {})):
            if self.is_nonnegative(scale(p, sign)):
                self.journal.note("relu of what has a sign", "relu", (freeze(p),), freeze(result))
                return result
        size, rest = _apart(p)
        inside = self._held_by("sign", rest)
        if inside is not None:
            result = tidy(scale(self.compare(">" if size > 0 else "<", inside), abs(size)))
            self.journal.note("relu of a sign", "relu", (freeze(p),), freeze(result))
            return result
        held = self.holding("relu", rest)
        result = tidy(scale(held if size > 0 else subtract(held, rest), abs(size)))
        self.journal.note("relu", "relu", (freeze(p),), freeze(result))
        return result

    def _held_by(self, kind: str, p: Poly) -> Poly | None:
        """What p is a function of, if it is an atom of this kind."""
        (mono, *more) = p
        if more or len(mono) != 1 or mono[0][1] != 1 or self.atoms[mono[0][0]].kind != kind:
            return None
        atom = self.atoms[mono[0][0]]
        return self.open(atom.data, atom.tokens)

    def absolute(self, p: Poly) -> Poly:
        """|p|."""
        result = subtract(scale(self.relu(p), 2), p)
        self.journal.note("absolute", "abs", (freeze(p),), freeze(result))
        return result

    def tanh(self, p: Poly) -> Poly:
        """tanh(p)."""
        return self.lifted(self._tanh, p) if p else {}

    def _tanh(self, p: Poly) -> Poly:
        sign = 1 if p[min(p)] > 0 else -1
        result = scale(self.holding("tanh", scale(p, sign)), sign)
        self.journal.note("tanh", "tanh", (freeze(p),), freeze(result))
        return result

    def unit(self, rows: Sequence[Poly]) -> tuple[list[Poly], Poly]:
        """A vector over its length, which is 0 where the vector is; and what is zero there."""
        if len(rows) == 1:
            return [self.sign(rows[0])], rows[0]
        square = self.square(rows)
        if not square:
            return list(rows), square
        factor = self.multiply(self.sqrt(square), self.inverse(square))
        return [self.multiply(p, factor) for p in rows], square

    def sign(self, p: Poly) -> Poly:
        """1, 0 or -1."""
        value = constant(p)
        return self.lifted(self._sign, p) if value is None else number((value > 0) - (value < 0))

    def _sign(self, p: Poly) -> Poly:
        for sign in (1, -1):
            if self.is_nonnegative(scale(p, sign)):
                result = scale(subtract(number(1), self.nothing(p)), sign)
                self.journal.note("sign of what has one", "sign", (freeze(p),), freeze(result))
                return result
        found = self.factors(p)
        kept: Poly = {monomial({a: power for a, power in found.common if a not in self.positive}): 1}
        rest = self.multiply(kept, {monomial(dict.fromkeys(found.roots, 1)): 1})
        result = scale(self.holding("sign", self.multiply(rest, dict(found.rest))), 1 if found.coefficient > 0 else -1)
        self.journal.note("sign", "sign", (freeze(p),), freeze(result))
        return result

    # ---- indicators --------------------------------------------------------------------------------------------------

    def compare(self, op: Literal[">", ">=", "<", "<="], p: Poly) -> Poly:
        """1 where `p op 0` holds, else 0."""
        if op in ("<", "<="):
            return subtract(number(1), self.compare(">=" if op == "<" else ">", p))
        table = self._truth_table(op, p)
        if table is None:
            return self.lifted(lambda inside: self._compare(op, inside), p)
        if constant(p) is None:
            self.journal.note("comparison of a bit", op, (freeze(p),), freeze(table))
        return table

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
        """Whether an atom is 0 or 1: an indicator, or an entry of a one-hot row."""
        atom = self.atoms[a]
        return atom.kind in INDICATORS or (atom.kind == "field" and atom.data[0] in self.onehot)

    def _compare(self, op: str, p: Poly) -> Poly:
        size, rest = _apart(p)
        rule = "comparison"
        if self.is_positive(rest) or self._is_filled_up(rest):
            rule, result = "comparison of what is positive", number(1 if size > 0 else 0)
        elif size > 0:
            result = self.holding("above" if op == ">" else "atleast", rest)
        else:
            result = subtract(number(1), self.holding("atleast" if op == ">" else "above", rest))
        self.journal.note(rule, op, (freeze(p),), freeze(result))
        return result

    def _is_filled_up(self, p: Poly) -> bool:
        """Whether p is positive because it is 1 wherever what it stands for is not."""
        domain = self.domain(p)
        return domain is not None and (self.is_nonnegative(domain[0]) or self.filled(p) is None)

    def parted(self, p: Poly) -> Poly:
        """p, with [q >= 0] as [q > 0] + [q = 0] where it also holds [q > 0]: then [q >= 0] - [q > 0] is [q = 0]."""
        held = {a for mono in p for a, _ in mono if self.atoms[a].kind in ("above", "atleast")}
        sums: dict[int, Poly] = {}
        for a in held:
            atom = self.atoms[a]
            above = self.index.get(replace(atom, kind="above"))
            if atom.kind == "atleast" and above in held:
                sums[a] = add({((above, 1),): 1}, self.nothing(self.open(atom.data, atom.tokens)))
        if not sums:
            return p
        result = self.substitute(p, sums.get)
        self.journal.note("at least", "parted", (freeze(p),), freeze(result))
        return result

    def nothing(self, p: Poly) -> Poly:
        """1 where p = 0, else 0."""
        there = number(1)
        for one in self.zeros(p):
            there = self.multiply(there, subtract(number(1), one))
        return subtract(number(1), there)

    def zeros(self, p: Poly) -> list[Poly]:
        """Where p = 0: somewhere in this list there is a 1. A product is zero where one of its factors is."""
        p = self.parted(p)
        value = constant(p)
        if value is not None:
            return [number(1)] if value == 0 else []
        flag = self._zero_of_a_bit(p)
        if flag is not None:
            self.journal.note("zero of a bit", "zeros", (freeze(p),), (freeze(flag),) if flag else ())
            return [flag] if flag else []
        inside, tokens = self.local(p)
        root = self.powers.get(freeze(inside))
        if root is not None:
            return [self.rename(one, dict(enumerate(tokens))) for one in self.zeros(dict(root[0]))]
        if self.is_positive(inside) or self.filled(inside) is not None:
            rule, found = "never zero", []
        else:
            rule, found = "zero of a product", self._zeros(inside)
        self.journal.note(rule, "zeros", (freeze(inside),), tuple(freeze(one) for one in found))
        return [self.rename(one, dict(enumerate(tokens))) for one in found]

    def _zero_of_a_bit(self, p: Poly) -> Poly | None:
        """1 where a + c b = 0, of an indicator b."""
        (mono, *more) = (mono for mono in p if mono)
        if more or len(mono) != 1 or self.atoms[mono[0][0]].kind not in INDICATORS:
            return None
        low = p.get(UNIT, 0)
        return add(number(int(low == 0)), scale({mono: 1}, int(low + p[mono] == 0) - int(low == 0)))

    def _zeros(self, p: Poly) -> list[Poly]:
        factors = self.factors(p)
        found: list[Poly] = []
        for a, _ in factors.common:
            atom = self.atoms[a]
            if a in self.positive:
                continue
            if atom.kind == "inverse":
                found += self.zeros(self.open(atom.data, atom.tokens))
            else:
                found.append(self.holding("nothing", {((a, 1),): 1}))
        for root in factors.roots:
            found += self._zeros_of_root(self.open(self.atoms[root].data, self.atoms[root].tokens))
        if factors.rest != ((UNIT, 1),):
            rest = dict(factors.rest)
            if not self.is_positive(rest):
                found.append(self.holding("nothing", self.support(rest)))
        return found

    def _zeros_of_root(self, p: Poly) -> list[Poly]:
        """Where the root of p is zero: where p is, or is negative."""
        return self.zeros(p) if self.is_nonnegative(p) else [self.compare("<=", p)]

    # ---- where something has no value --------------------------------------------------------------------------------

    def somewhere(self, p: Poly) -> Frozen:
        """Whether p is not zero for some tokens, whatever they are called, less what is positive in it: 0 for never."""
        if not p:
            return ()
        found = self.factors(self.local(p)[0])
        kept = {a: 1 for a in (*dict(found.common), *found.roots) if a not in self.positive}
        rest = number(1) if self.is_positive(dict(found.rest)) else dict(found.rest)
        return freeze(self.local(self.multiply(rest, {tuple(sorted(kept.items())): 1}))[0])


def _apart(p: Poly) -> tuple[Fraction, Poly]:
    """p as a number times a polynomial whose first coefficient is 1."""
    size = Fraction(p[min(p)])
    return size, tidy(scale(p, 1 / size))


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
