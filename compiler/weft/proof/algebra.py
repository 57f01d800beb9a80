"""Exact sums of products over interned atoms: the terms in which a spec and a model are compared.

A polynomial maps monomials to rational coefficients; a monomial is a sorted tuple of (atom, power). Atoms are numbers
of a table, so that equal things are the same number wherever they occur. What an atom stands for:

    field      one coordinate of a field of a token (data: field, column, token of a fixed set or -1)
    kept       a number that the start has stored and no step changes
    count, position     number of tokens of an open set; place of a token in it
    sum        the sum of a monomial over all tokens of an open set
    weight     the weight that a choice gives to one key (see `weights`)
    best       the largest of several scores
    exp, log, sqrt, relu, tanh, inverse     functions of a polynomial
    above, atleast, nothing, differ         indicators: p > 0, p >= 0, p = 0, two tokens are not the same

Tokens of open sets are small integers: 0 is the token that is being described. What an atom holds is written in names
of its own (0, 1, ...), and `tokens` says which tokens these are, so that equal sums over other tokens are equal atoms.

Powers are whole numbers, except for `exp`, whose powers are rational: exp(a x + b y) is exp(x)^a exp(y)^b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

Number: TypeAlias = int | Fraction
Mono: TypeAlias = tuple[tuple[int, Number], ...]
Poly: TypeAlias = dict[Mono, Number]
Frozen: TypeAlias = tuple[tuple[Mono, Number], ...]

ZERO: Poly = {}
UNIT: Mono = ()
INDICATORS = frozenset({"above", "atleast", "nothing", "differ"})
SPECIAL = INDICATORS | {"sqrt", "relu"}
MOST_TERMS = 400_000  # of one polynomial


class TooLarge(Exception):
    """An expression grew beyond what is compared."""


@dataclass(frozen=True, slots=True)
class Atom:
    """What an atom is: its kind, what it holds (hashable, in its own token names), and the tokens it is about."""

    kind: str
    data: Any
    tokens: tuple[int, ...] = ()


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


def scale(p: Poly, factor: Number) -> Poly:
    """p times a number."""
    if factor == 1:
        return p
    return {mono: coefficient * factor for mono, coefficient in p.items()} if factor else {}


def subtract(p: Poly, q: Poly) -> Poly:
    """p - q."""
    return add(p, scale(q, -1))


def constant(p: Poly) -> Number | None:
    """The value of a polynomial without atoms."""
    if not p:
        return 0
    return p[UNIT] if len(p) == 1 and UNIT in p else None


@dataclass(frozen=True, slots=True)
class Content:
    """A polynomial as coefficient * common factors * square roots * rest."""

    coefficient: Number
    common: dict[int, Number]
    roots: tuple[int, ...]
    rest: Poly


class Algebra:
    """The table of atoms, and the operations that need to know what atoms are."""

    def __init__(self, onehot: Iterable[str] = (), positive: Iterable[str] = ()) -> None:
        self.atoms: list[Atom] = []
        self.index: dict[Atom, int] = {}
        self.onehot, self.positive_fields = frozenset(onehot), frozenset(positive)
        self.special: set[int] = set()  # atoms whose powers or products have rules of their own
        self.positive: set[int] = set()  # atoms known to be > 0
        self.choices: list[Any] = []  # what choices are: rule, scores, masks; a weight holds the number of its choice
        self.empties: dict[int, Frozen | None] = {}  # choice -> what is zero when it has no candidate, in its names
        self._choice_index: dict[Any, int] = {}
        self._renamed: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._empty_of: dict[int, frozenset[int]] = {}
        self._holds: dict[tuple[int, str], bool] = {}
        self._masses: dict[int, Mono] = {}  # `nothing` of a single product -> that product

    # ---- atoms -------------------------------------------------------------------------------------------------------

    def intern(self, kind: str, data: Any, tokens: tuple[int, ...] = ()) -> int:
        """The number of an atom."""
        atom = Atom(kind, data, tokens)
        found = self.index.get(atom)
        if found is None:
            found = self.index[atom] = len(self.atoms)
            self.atoms.append(atom)
            if kind in SPECIAL or (kind == "field" and data[0] in self.onehot):
                self.special.add(found)
            if self._known_positive(kind, data):
                self.positive.add(found)
        return found

    def _known_positive(self, kind: str, data: Any) -> bool:
        match kind:
            case "exp" | "count" | "position":
                return True
            case "field":
                return data[0] in self.positive_fields
            case "sum":
                return all(a in self.positive for a, _ in data[1])
            case "inverse" | "sqrt":
                return self.is_positive(dict(data))
        return False

    def choice(self, what: Any) -> int:
        """The number of a choice."""
        found = self._choice_index.get(what)
        if found is None:
            found = self._choice_index[what] = len(self.choices)
            self.choices.append(what)
        return found

    def atom(self, kind: str, data: Any, tokens: tuple[int, ...] = ()) -> Poly:
        """An atom as a polynomial."""
        return {((self.intern(kind, data, tokens), 1),): 1}

    def tokens(self, monos: Iterable[Mono]) -> set[int]:
        """The tokens that monomials are about."""
        atoms = self.atoms
        return {token for mono in monos for a, _ in mono for token in atoms[a].tokens}

    # ---- tokens ------------------------------------------------------------------------------------------------------

    def rename(self, p: Poly, names: Mapping[int, int]) -> Poly:
        """The same about other tokens."""
        names = {old: new for old, new in names.items() if old != new}
        if not names:
            return p
        key = tuple(sorted(names.items()))
        result: Poly = {}
        for mono, coefficient in p.items():
            moved = self.rename_mono(mono, names, key)
            result[moved] = result.get(moved, 0) + coefficient
        return result

    def rename_mono(self, mono: Mono, names: Mapping[int, int], key: tuple[tuple[int, int], ...]) -> Mono:
        """A monomial about other tokens."""
        atoms = self.atoms
        if not any(token in names for a, _ in mono for token in atoms[a].tokens):
            return mono
        return tuple(sorted((self._rename_atom(a, names, key), power) for a, power in mono))

    def _rename_atom(self, a: int, names: Mapping[int, int], key: tuple[tuple[int, int], ...]) -> int:
        atom = self.atoms[a]
        if not any(token in names for token in atom.tokens):
            return a
        found = self._renamed.get((a, key))
        if found is None:
            tokens = tuple(names.get(token, token) for token in atom.tokens)
            tokens = tuple(sorted(tokens)) if atom.kind == "differ" else tokens
            found = self._renamed[a, key] = self.intern(atom.kind, atom.data, tokens)
        return found

    def local(self, p: Poly, last: int | None = None) -> tuple[Poly, tuple[int, ...]]:
        """p in names of its own, and the tokens these are; `last` (a bound token) has the last name and is left out."""
        tokens = sorted(self.tokens(p) - ({last} if last is not None else set()))
        names = {token: place for place, token in enumerate(tokens)}
        if last is not None:
            names[last] = len(tokens)
        return self.rename(p, names), tuple(tokens)

    def open(self, frozen: Frozen, tokens: tuple[int, ...]) -> Poly:
        """A polynomial in names of its own, about these tokens."""
        return self.rename(dict(frozen), dict(enumerate(tokens)))

    def lifted(self, function: Callable[[Poly, tuple[int, ...]], Poly], p: Poly) -> Poly:
        """A function of p, worked out in names of its own so that it is the same whatever the tokens are."""
        inside, tokens = self.local(p)
        return self.rename(function(inside, tuple(range(len(tokens)))), dict(enumerate(tokens)))

    def holding(self, kind: str, p: Poly) -> Poly:
        """The atom of this kind that holds p."""
        inside, tokens = self.local(p)
        return self.atom(kind, freeze(inside), tokens)

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
        if len(mono) == 1 or (len(mono) == 2 and sum(a in self.special for a, _ in mono) == 1):
            ((a, power),) = [part for part in mono if part[0] in self.special]
            if power == 1 and self.atoms[a].kind != "nothing":
                return {mono: 1}
        powers = dict(mono)
        rows: dict[Any, int] = {}
        for a, _ in mono:
            if a not in self.special:
                continue
            atom = self.atoms[a]
            if atom.kind == "field":
                if rows.setdefault((atom.data[0], atom.data[2], atom.tokens), a) != a:
                    return {}  # two entries of a one-hot row are never both 1
                powers[a] = 1
            elif atom.kind in INDICATORS:
                powers[a] = 1
                if atom.kind == "nothing" and self._vanishes(a, powers):
                    return {}
        for a, power in mono:
            if a not in self.special:
                continue
            atom = self.atoms[a]
            if atom.kind == "sqrt" and not 0 <= power <= 1:
                squared = self.open(atom.data, atom.tokens)
                rest = {**powers, a: power - 2 if power > 0 else power + 2}
                return self.multiply({_mono(rest): 1}, squared if power > 0 else self.inverse(squared))
            if atom.kind == "relu" and power >= 2:  # relu(t)^2 = t relu(t)
                rest = {**powers, a: power - 1}
                return self.multiply({_mono(rest): 1}, self.open(atom.data, atom.tokens))
        return {_mono(powers): 1}

    def _vanishes(self, nothing: int, powers: Mapping[int, Number]) -> bool:
        """Whether a product is zero, by convention, where p is: it divides by p, or holds weights whose mass is p."""
        atom = self.atoms[nothing]
        if len(atom.data) == 1:
            mono = self._masses.get(nothing)
            if mono is None:
                mono = self._masses[nothing] = next(iter(self.open(atom.data, atom.tokens)))
            if all(powers.get(a, 0) < 0 for a, _ in mono):
                return True
        else:
            divided = self.index.get(Atom("inverse", atom.data, atom.tokens))
            if divided is not None and powers.get(divided, 0) > 0:
                return True
        return any(nothing in self.empties_of(a) for a in powers if self.atoms[a].kind in ("weight", "sum"))

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
                    found = frozenset(b for mono in p for b, _ in mono)
            elif atom.kind == "sum":
                names = {**dict(enumerate(atom.tokens)), len(atom.tokens): BOUND}
                inside = self.rename_mono(atom.data[1], names, tuple(sorted(names.items())))
                found = frozenset(e for b, _ in inside if self.atoms[b].kind == "weight" for e in self.empties_of(b))
            self._empty_of[a] = found
        return self._empty_of[a]

    # ---- inverse -----------------------------------------------------------------------------------------------------

    def inverse(self, p: Poly) -> Poly:
        """1 / p. Of a single product: negative powers; else an atom, leading coefficient and common factors apart."""
        if not p:
            raise ZeroDivisionError
        return self.lifted(self._inverse, p)

    def _inverse(self, p: Poly, names: tuple[int, ...]) -> Poly:
        content = self.content(p)
        result: Poly = {_mono({a: -power for a, power in content.common.items()}): Fraction(1) / content.coefficient}
        for root in content.roots:
            atom = self.atoms[root]
            result = self.multiply(result, {((root, 1),): 1})
            result = self.multiply(result, self.inverse(self.open(atom.data, atom.tokens)))
        if content.rest != {UNIT: 1}:
            result = self.multiply(result, self.holding("inverse", content.rest))
        return tidy(result)

    def content(self, p: Poly) -> Content:
        """p as coefficient * common factors * roots * rest, the rest with leading coefficient 1 and no common factor.

        Where an atom may be zero, products that divide by it are zero by convention, so it is taken out only if all
        terms divide by it or all are multiples of it.
        """
        least: dict[int, Number] = {}
        most: dict[int, Number] = {}
        seen: dict[int, int] = {}
        roots: set[int] | None = None
        for mono in p:
            held = set()
            for a, power in mono:
                if a not in self.special:
                    least[a] = min(least.get(a, power), power)
                    most[a] = max(most.get(a, power), power)
                    seen[a] = seen.get(a, 0) + 1
                elif self.atoms[a].kind == "sqrt":
                    held.add(a)
            roots = held if roots is None else roots & held
        assert roots is not None
        common: dict[int, Number] = {}
        for a, low in least.items():
            everywhere = seen[a] == len(p)
            if a in self.positive:
                low = low if everywhere else min(low, 0)
            elif not everywhere or low < 0 < most[a]:
                continue
            if low:
                common[a] = low
        if common or roots:
            less = {a: -power for a, power in common.items()} | dict.fromkeys(roots, -1)
            p = {_mono(_joined(dict(mono), less)): coefficient for mono, coefficient in p.items()}
        leading = p[min(p)]
        return Content(leading, common, tuple(sorted(roots)), tidy(scale(p, Fraction(1) / leading)))

    # ---- what is known -----------------------------------------------------------------------------------------------

    def is_positive(self, p: Poly) -> bool:
        """Whether p is known to be > 0: a sum of positive products."""
        return bool(p) and all(c > 0 and all(a in self.positive for a, _ in mono) for mono, c in p.items())

    def holds_kind(self, a: int, kind: str) -> bool:
        """Whether an atom is of a kind, or holds one that is."""
        if (a, kind) not in self._holds:
            atom = self.atoms[a]
            self._holds[a, kind] = atom.kind == kind or any(
                self.holds_kind(b, kind) for mono, _ in self.terms_inside(atom) for b, _ in mono
            )
        return self._holds[a, kind]

    def terms_inside(self, atom: Atom) -> Iterator[tuple[Mono, Number]]:
        """The terms of all polynomials that an atom holds, in its own names."""
        match atom.kind:
            case "field" | "count" | "position" | "other" | "differ" | "kept":
                return
            case "exp":
                yield atom.data, 1
            case "sum":
                yield atom.data[1], 1
            case "weight":
                yield from self.terms_of_choice(atom.data[0])
            case _:
                yield from atom.data

    def terms_of_choice(self, choice: int) -> Iterator[tuple[Mono, Number]]:
        """The terms of the scores and masks of a choice."""
        for part in self.choices[choice]:
            yield from _terms(part)

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
            result = add(result, self.multiply(term, {_mono(kept): 1}))
        return result


BOUND = 1_000_000  # the name of a bound token while one looks inside a sum


def tidy(p: Poly) -> Poly:
    """Whole coefficients as integers: they are faster."""
    return {mono: (c.numerator if isinstance(c, Fraction) and c.denominator == 1 else c) for mono, c in p.items()}


def _is_linear(p: Poly, special: set[int]) -> bool:
    """Whether every term is one plain atom."""
    return all(len(mono) == 1 and mono[0][1] == 1 and mono[0][0] not in special for mono in p)


def _joined(powers: dict[int, Number], more: Mapping[int, Number]) -> dict[int, Number]:
    return {a: powers.get(a, 0) + more.get(a, 0) for a in powers.keys() | more.keys()}


def _mono(powers: Mapping[int, Number]) -> Mono:
    return tuple(sorted((a, power) for a, power in powers.items() if power))


def _terms(part: Any) -> Iterator[tuple[Mono, Number]]:
    """The terms of a frozen polynomial, or of a tuple of them."""
    if isinstance(part, tuple):
        for one in part:
            if isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], int | Fraction):
                yield one
            else:
                yield from _terms(one)
