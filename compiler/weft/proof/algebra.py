"""Exact sums of products over interned atoms: the terms in which a spec and a model are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from weft.proof.indicators import Indicators
from weft.proof.polynomials import UNIT, Mono, Number, Poly, TooLarge, add, monomial, number, scale, tidy

MOST_TERMS = 400_000  # of one polynomial


@dataclass(frozen=True, slots=True)
class Content:
    """A polynomial as coefficient * common factors * square roots * rest."""

    coefficient: Number
    common: dict[int, Number]
    roots: tuple[int, ...]
    rest: Poly


class Algebra(Indicators):
    """Products and quotients by the rules that atoms obey."""

    # ---- products ----------------------------------------------------------------------------------------------------

    def multiply(self, p: Poly, q: Poly) -> Poly:
        """The product."""
        if not p or not q:
            return {}
        if len(p) == 1 and UNIT in p:
            return scale(q, p[UNIT])
        if len(q) == 1 and UNIT in q:
            return scale(p, q[UNIT])
        if len(p) * len(q) > MOST_TERMS:
            raise TooLarge
        result: Poly = {}
        special = self.special
        for m, c in p.items():
            for n, e in q.items():
                if not m or not n:
                    mono = m or n
                elif len(m) == 1 == len(n) and m[0][0] != n[0][0] and m[0][0] not in special and n[0][0] not in special:
                    mono = m + n if m < n else n + m
                else:
                    powers = dict(m)
                    for a, power in n:
                        total = powers.get(a, 0) + power
                        if total:
                            powers[a] = total
                        else:
                            del powers[a]
                    mono = tuple(sorted(powers.items()))
                    if not special.isdisjoint(powers):
                        for term, factor in self._reduced(mono).items():
                            value = result.get(term, 0) + c * e * factor
                            if value:
                                result[term] = value
                            else:
                                result.pop(term, None)
                        continue
                value = result.get(mono, 0) + c * e
                if value:
                    result[mono] = value
                else:
                    del result[mono]
        return result

    def dot(self, left: Sequence[Poly], right: Sequence[Poly]) -> Poly:
        """The sum of the products of two vectors."""
        result: Poly = {}
        special = self.special
        for p, q in zip(left, right, strict=True):
            if not p or not q:
                continue
            square = p is q
            if len(p) > 3 or len(q) > 3 or not (_is_linear(p, special) and (square or _is_linear(q, special))):
                for mono, value in self.multiply(p, q).items():
                    total = result.get(mono, 0) + value
                    if total:
                        result[mono] = total
                    else:
                        del result[mono]
                continue
            for m, c in p.items():
                a = m[0][0]
                for n, e in q.items():
                    b = n[0][0]
                    mono = ((a, 2),) if a == b else ((a, 1), (b, 1)) if a < b else ((b, 1), (a, 1))
                    total = result.get(mono, 0) + c * e
                    if total:
                        result[mono] = total
                    else:
                        del result[mono]
        return result

    def square(self, vector: Sequence[Poly]) -> Poly:
        """The squared length of a vector, which is known not to be negative from then on."""
        found = self.dot(vector, vector)
        if found:
            self.squares.add(self.as_square(found))
        return found

    def product(self, *factors: Poly) -> Poly:
        """The product of several."""
        result = number(1)
        for factor in factors:
            result = self.multiply(result, factor)
        return result

    def power(self, p: Poly, exponent: int) -> Poly:
        """p to a whole power that is not negative."""
        result = number(1)
        for _ in range(exponent):
            result = self.multiply(result, p)
        return result

    def _reduced(self, mono: Mono) -> Poly:
        """A monomial with special atoms, by the rules they obey."""
        if self.special.isdisjoint(a for a, _ in mono):
            return {mono: 1}
        if len(mono) == 1 or (len(mono) == 2 and sum(a in self.special for a, _ in mono) == 1):
            ((a, power),) = [part for part in mono if part[0] in self.special]
            if power == 1 and self.atoms[a].kind != "nothing":
                return {mono: 1}
        powers = self.settled_bits(mono)
        if powers is None:
            return {}
        for a, power in mono:
            if a not in self.special:
                continue
            atom = self.atoms[a]
            if atom.kind == "sqrt" and not 0 <= power <= 1:
                squared = self.open(atom.data, atom.tokens)
                squared = squared if self.is_nonnegative(squared) else self.relu(squared)
                rest = {**powers, a: power - 2 if power > 0 else power + 2}
                factor = squared if power > 0 else self.inverse(squared)
                return self.multiply(self._reduced(monomial(rest)), factor)
            if atom.kind == "relu" and power >= 2:  # relu(t)^2 = t relu(t)
                rest = {**powers, a: power - 1}
                return self.multiply(self._reduced(monomial(rest)), self.open(atom.data, atom.tokens))
        return {monomial(powers): 1}

    def relu(self, p: Poly) -> Poly:
        """max(p, 0): see `functions`."""
        raise NotImplementedError

    # ---- inverse -----------------------------------------------------------------------------------------------------

    def inverse(self, p: Poly) -> Poly:
        """1 / p. Of a single product: negative powers; else an atom, leading coefficient and common factors apart."""
        if not p:
            raise ZeroDivisionError
        return self.lifted(self._inverse, p)

    def _inverse(self, p: Poly, names: tuple[int, ...]) -> Poly:
        content = self.content(p)
        result: Poly = {UNIT: Fraction(1) / content.coefficient}
        for a, power in content.common.items():
            result = self.multiply(result, self._inverse_factor(a, power))
        for root in content.roots:
            atom = self.atoms[root]
            result = self.multiply(result, {((root, 1),): 1})
            result = self.multiply(result, self.inverse(self.open(atom.data, atom.tokens)))
        if content.rest != {UNIT: 1}:
            result = self.multiply(result, self.holding("inverse", content.rest))
        return tidy(result)

    def _inverse_factor(self, a: int, power: Number) -> Poly:
        """1 / a^power. Only an atom that is never zero gets a negative power: then a cancels 1 / a."""
        if a in self.positive:
            return {((a, -power),): 1}
        atom = self.atoms[a]
        once = self.open(atom.data, atom.tokens) if atom.kind == "inverse" else self.holding("inverse", {((a, 1),): 1})
        return self.power(once, int(power))

    def content(self, p: Poly) -> Content:
        """p as coefficient * common factors * roots * rest, the rest with leading coefficient 1 and no common factor.

        Of a positive atom the most frequent power is common (among equally frequent ones the least), so that multiples
        by such atoms have the same rest. Of any other atom the least power is common.
        """
        powers: dict[int, list[Number]] = {}
        roots: set[int] | None = None
        special = self.special
        for mono in p:
            held = set()
            for a, power in mono:
                if a not in special:
                    if a in powers:
                        powers[a].append(power)
                    else:
                        powers[a] = [power]
                elif self.atoms[a].kind == "sqrt":
                    held.add(a)
            roots = held if roots is None else roots & held
        assert roots is not None
        common: dict[int, Number] = {}
        for a, found in powers.items():
            absent = len(p) - len(found)
            if a in self.positive:
                if absent > len(found):
                    continue
                low = _usual(found, absent)
            elif absent:
                continue
            else:
                low = min(found)
            if low:
                common[a] = low
        if common or roots:
            less = {a: -power for a, power in common.items()} | dict.fromkeys(roots, -1)
            p = {monomial(_joined(dict(mono), less)): coefficient for mono, coefficient in p.items()}
        leading = p[min(p)]
        return Content(leading, common, tuple(sorted(roots)), tidy(scale(p, Fraction(1) / leading)))

    def substitute(self, p: Poly, values: Callable[[int], Poly | None]) -> Poly:
        """p with some atoms (to whole powers) replaced; `values` gives None for the others."""
        result: Poly = {}
        for mono, coefficient in p.items():
            term: Poly = {UNIT: coefficient}
            kept: dict[int, Number] = {}
            for a, power in mono:
                value = values(a)
                if value is None:
                    kept[a] = power
                else:
                    factor = value if power > 0 else self.inverse(value)
                    term = self.multiply(term, self.power(factor, abs(int(power))))
            result = add(result, self.multiply(term, {monomial(kept): 1}))
        return result


def _is_linear(p: Poly, special: set[int]) -> bool:
    """Whether every term is one plain atom."""
    return all(len(mono) == 1 and mono[0][1] == 1 and mono[0][0] not in special for mono in p)


def _usual(powers: list[Number], absent: int) -> Number:
    """The most frequent power of an atom, 0 where it is absent; among equally frequent ones the least."""
    counts: dict[Number, int] = {0: absent} if absent else {}
    for power in powers:
        counts[power] = counts.get(power, 0) + 1
    most = max(counts.values())
    return min(power for power, count in counts.items() if count == most)


def _joined(powers: dict[int, Number], more: Mapping[int, Number]) -> dict[int, Number]:
    return {a: powers.get(a, 0) + more.get(a, 0) for a in powers.keys() | more.keys()}
