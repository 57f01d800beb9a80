"""Products and quotients by the rules that atoms obey. Sums, and products of other atoms, are plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from weftc.prover.kernel.polynomials import (
    UNIT,
    Mono,
    Number,
    Poly,
    TooLarge,
    add,
    freeze,
    monomial,
    number,
    scale,
    tidy,
)
from weftc.prover.kernel.rules import Factors, NotAnInstance
from weftc.prover.kernel.terms import INDICATORS, MOST_ABSORBED, Terms

MOST_TERMS = 400_000  # of one polynomial
BOUND = 1_000_000  # the name of a bound token while one looks inside a sum


class Products(Terms):
    """The table of terms with multiplication and division."""

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
            if len(p) > 3 or len(q) > 3 or not (_is_linear(p, special) and (p is q or _is_linear(q, special))):
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
        """The squared length of a vector: from then on it, and sums of such, are known not to be negative."""
        found = self.dot(vector, vector)
        if found:
            self.squares.add(self.as_square(found))
        if len(vector) == 1 and len(vector[0]) > 1:
            self._is_power(found, vector[0], 2)
        return found

    def product(self, *factors: Poly) -> Poly:
        """The product of several."""
        result = number(1)
        for factor in factors:
            result = self.multiply(result, factor)
        return result

    def power(self, p: Poly, exponent: int) -> Poly:
        """p to a whole power that is not negative."""
        if exponent and exponent % 2 == 0 and len(p) > 1:
            return self.square([self.power(p, exponent // 2)])
        whole = self.product(*(p for _ in range(exponent)))
        if exponent > 2 and len(whole) > 1:
            self._is_power(whole, p, exponent)
        return whole

    def _is_power(self, whole: Poly, p: Poly, exponent: int) -> None:
        """Notes that a polynomial is a power of another one, so that it can be divided by as such."""
        names = {token: place for place, token in enumerate(sorted(self.tokens(whole)))}
        self.powers.setdefault(freeze(self.rename(whole, names)), (freeze(self.rename(p, names)), exponent))

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

    # ---- special atoms -----------------------------------------------------------------------------------------------

    def _reduced(self, mono: Mono) -> Poly:
        """A monomial with special atoms, by the rules they obey."""
        if len(mono) == 1 or (len(mono) == 2 and sum(a in self.special for a, _ in mono) == 1):
            ((a, power),) = [part for part in mono if part[0] in self.special]
            if power == 1 and self.atoms[a].kind not in ("nothing", "above", "inverse"):
                return {mono: 1}
        rule, found = self._by_bits(mono)
        if found is None:
            return self._noted(rule, mono, {})
        for a, power in found.items():
            atom = self.atoms[a]
            if atom.kind == "inverse" and power > 0:
                inside = self.open(atom.data, atom.tokens)
                b = next((one[0][0] for one, c in inside.items() if c == 1 and len(one) == 1 and one[0][1] == 1), -1)
                both = min(power, found.get(b, 0))
                if both > 0 and len(inside) == 1:
                    rest = {**found, a: power - both, b: found[b] - both}
                    there = add({UNIT: 1}, scale(self.holding("nothing", inside), -1))
                    return self._noted("quotient by itself", mono, self.multiply(self.settled(monomial(rest)), there))
            if atom.kind == "sqrt" and not 0 <= power <= 1:
                squared = self.open(atom.data, atom.tokens)
                squared = squared if self.is_nonnegative(squared) else self.relu(squared)
                rest = {**found, a: power - 2 if power > 0 else power + 2}
                factor = squared if power > 0 else self.inverse(squared)
                result = self.multiply(self.settled(monomial(rest)), factor)
                return self._noted("root squared", mono, result)
            if atom.kind == "relu" and power >= 2:
                rest = {**found, a: power - 1}
                result = self.multiply(self.settled(monomial(rest)), self.open(atom.data, atom.tokens))
                return self._noted("relu squared", mono, result)
            if atom.kind == "sign" and power >= 2:
                there = add(number(1), scale(self.nothing(self.open(atom.data, atom.tokens)), -1))
                result = self.multiply(self.settled(monomial({**found, a: power - 2})), there)
                return self._noted("sign squared", mono, result)
        result = {monomial(found): 1}
        return self._noted(rule, mono, result) if rule else result

    def settled(self, mono: Mono) -> Poly:
        """A monomial by the rules of its atoms."""
        return {mono: 1} if self.special.isdisjoint(a for a, _ in mono) else self._reduced(mono)

    def _by_bits(self, mono: Mono) -> tuple[str, dict[int, Number] | None]:
        """The powers of a monomial, those of 0-1 numbers 1; None where it is zero; and the rule that says so."""
        powers = dict(mono)
        rule = ""
        rows: dict[Any, int] = {}
        for a, power in mono:
            if a not in self.special:
                continue
            atom = self.atoms[a]
            if atom.kind == "field":
                if rows.setdefault((atom.data[0], atom.data[2], atom.tokens), a) != a:
                    return "one-hot", None
            elif atom.kind not in INDICATORS:
                continue
            if power != 1:
                powers[a], rule = 1, "bit"
            if atom.kind in ("above", "nothing", "atleast"):
                above, nothing = (self.index.get(replace(atom, kind=kind)) for kind in ("above", "nothing"))
                if above in powers and nothing in powers:
                    return "order", None
                if atom.kind == "atleast" and (above in powers or nothing in powers):
                    del powers[a]
                    rule = "order"
                    continue
            if atom.kind == "nothing":
                if any(powers.get(b, 0) > 0 for b in self.divided(a)):
                    return "no quotient", None
                if any(a in self.empties_of(b) for b in powers if self.atoms[b].kind in ("weight", "sum")):
                    return "no weight", None
                if any(self.atoms[b].kind == "sign" and a in self.zeros_of(b) for b in powers):
                    return "sign of nothing", None
                if self._has_term(a, powers):
                    return "zero term", None
            if atom.kind == "above" and self._has_term(a, powers):
                del powers[a]
                rule = "positive term"
        return rule, powers

    def _has_term(self, bit: int, powers: Mapping[int, Number]) -> bool:
        """Whether a product has a factor that is a term of what an indicator asks about, which is nowhere negative."""
        atom = self.atoms[bit]
        if len(atom.data) > MOST_ABSORBED:
            return False
        if bit not in self._terms_of:
            p = self.open(atom.data, atom.tokens)
            sure = self.is_termwise_nonnegative(p) or (atom.kind == "nothing" and len(p) == 1)
            self._terms_of[bit] = tuple(p) if sure else ()
        return any(self._contains(powers, term, bit) for term in self._terms_of[bit])

    def _contains(self, powers: Mapping[int, Number], term: Mono, bit: int) -> bool:
        """Whether a product is zero wherever a term is: each factor of the term is positive, there, or follows."""
        return all(
            a in self.positive
            or (a != bit and powers.get(a, 0) > 0)
            or (self.atoms[a].kind == "above" and a != bit and self._has_term(a, powers))
            for a, _ in term
        )

    def zeros_of(self, a: int) -> frozenset[int]:
        """The indicators at which the sign of something is zero."""
        if a not in self._zeros_of:
            atom = self.atoms[a]
            bits = self.zeros(self.open(atom.data, atom.tokens))
            atoms = [mono[0][0] for bit in bits for mono in bit if len(bit) == 1 and len(mono) == 1]
            self._zeros_of[a] = frozenset(b for b in atoms if self.atoms[b].kind == "nothing")
        return self._zeros_of[a]

    def empties_of(self, a: int) -> frozenset[int]:
        """The indicators at which a weight, or a sum that holds one, is zero by convention."""
        if a not in self._empty_of:
            atom = self.atoms[a]
            found: frozenset[int] = frozenset()
            if atom.kind == "weight":
                choice, places = atom.data[0], atom.data[1]
                closed = self.empties.get(choice)
                if closed is not None:
                    p = self.open(closed, atom.tokens[:places])
                    found = frozenset(b for mono in p for b, _ in mono if _is_one_at(p, b))
            elif atom.kind == "sum":
                names = {**dict(enumerate(atom.tokens)), len(atom.tokens): BOUND}
                inside = self.rename_mono(atom.data[1], names, tuple(sorted(names.items())))
                found = frozenset(e for b, _ in inside if self.atoms[b].kind == "weight" for e in self.empties_of(b))
            self._empty_of[a] = found
        return self._empty_of[a]

    def _noted(self, rule: str, mono: Mono, result: Poly) -> Poly:
        self.journal.note(rule, "product", (mono,), freeze(result))
        return result

    # ---- quotients ---------------------------------------------------------------------------------------------------

    def inverse(self, p: Poly) -> Poly:
        """1 / p. Of a single product: negative powers; else an atom, leading coefficient and common factors apart."""
        if not p:
            raise ZeroDivisionError
        return self.lifted(self._inverse, p)

    def _inverse(self, p: Poly) -> Poly:
        p = self.parted(p)
        filled = self.filled(p)
        if filled is not None:
            part, empty, c = filled
            whole = add(self.inverse(part), scale(empty, 1 / Fraction(c)))
            self.journal.note("quotient where there is one", "inverse", (freeze(p),), freeze(whole))
            return whole
        root = self.powers.get(freeze(p))
        if root is not None:
            result = self.power(self.inverse(dict(root[0])), root[1])
            self.journal.note("quotient by a power", "inverse", (freeze(p),), freeze(result))
            return result
        found = self.factors(p)
        result = {UNIT: Fraction(1) / found.coefficient}
        for a, power in found.common:
            result = self.multiply(result, self._inverse_factor(a, power))
        for a in found.roots:
            atom = self.atoms[a]
            result = self.multiply(result, {((a, 1),): 1})
            result = self.multiply(result, self.inverse(self.open(atom.data, atom.tokens)))
        if found.rest != ((UNIT, 1),):
            result = self.multiply(result, self.holding("inverse", dict(found.rest)))
        result = tidy(result)
        self.journal.note("quotient", "inverse", (freeze(p),), freeze(result))
        return result

    def _inverse_factor(self, a: int, power: Number) -> Poly:
        """1 / a^power. Only an atom that is never zero gets a negative power: then a cancels 1 / a."""
        atom = self.atoms[a]
        if a in self.positive and not (atom.kind == "inverse" and power > 0):
            return {((a, -power),): 1}
        once = self.open(atom.data, atom.tokens) if atom.kind == "inverse" else self.holding("inverse", {((a, 1),): 1})
        return self.power(once, int(power))

    def factors(self, p: Poly) -> Factors:
        """p as a product: proposed by the oracle, and multiplied out again."""
        found: Factors = self.asked("factors", freeze(p))
        apart = dict(found.common) | dict.fromkeys(found.roots, 1)
        whole = {monomial(_joined(dict(mono), apart)): found.coefficient * c for mono, c in found.rest}
        fit = all(a not in self.special and (power > 0 or a in self.positive) for a, power in found.common)
        if whole != p or not fit or any(self.atoms[a].kind != "sqrt" for a in found.roots):
            raise NotAnInstance("these factors have another product")
        return found

    def filled(self, p: Poly) -> tuple[Poly, Poly, Number] | None:
        """q, [q = 0] and c where p = q + c [q = 0], and q can be 0."""
        bits = {mono: c for mono, c in p.items() if mono and all(self.atoms[a].kind in INDICATORS for a, _ in mono)}
        for more in ({}, {UNIT: p[UNIT]} if UNIT in p else {}):
            flags = {**bits, **more}
            part = {mono: c for mono, c in p.items() if mono not in flags}
            if not bits or not part:
                return None
            empty = self.nothing(part)
            first = next(iter(bits))
            c = bits[first] / Fraction(empty[first]) if first in empty else Fraction(0)
            if c and flags == scale(empty, c):
                return part, empty, c
        return None

    def relu(self, p: Poly) -> Poly:
        """max(p, 0): see `functions`."""
        raise NotImplementedError

    def parted(self, p: Poly) -> Poly:
        """p, with [q >= 0] as a sum where [q > 0] stands beside it: see `functions`."""
        raise NotImplementedError

    def nothing(self, p: Poly) -> Poly:
        """1 where p = 0, else 0: see `functions`."""
        raise NotImplementedError

    def zeros(self, p: Poly) -> list[Poly]:
        """Where p = 0: see `functions`."""
        raise NotImplementedError


def _is_linear(p: Poly, special: set[int]) -> bool:
    """Whether every term is one plain atom."""
    return all(len(mono) == 1 and mono[0][1] == 1 and mono[0][0] not in special for mono in p)


def _joined(powers: Mapping[int, Number], more: Mapping[int, Number]) -> dict[int, Number]:
    return {a: powers.get(a, 0) + more.get(a, 0) for a in powers.keys() | more.keys()}


def _is_one_at(p: Poly, bit: int) -> bool:
    """Whether p is 1 wherever this bit is."""
    left: dict[Mono, Number] = {}
    for mono, coefficient in p.items():
        rest = tuple(part for part in mono if part[0] != bit)
        left[rest] = left.get(rest, 0) + coefficient
    return {mono: c for mono, c in left.items() if c} == {UNIT: 1}
