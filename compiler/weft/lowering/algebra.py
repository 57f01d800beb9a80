"""Polynomials over token atoms: the canonical form in which every expression is compared, split and lowered.

A `Poly` maps monomials to exact rational coefficients. A monomial is (scalars, vector): scalars is a sorted tuple of
(atom, power), vector is None or one free vector atom. Coefficients become floats only when matrices are written.

A pair field is an inner product with a name: `y[i,j] = <y_i, e_j>` with e_j the one-hot name of token j, so every rule
for inner products covers pair fields unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

Frozen: TypeAlias = "tuple[tuple[Monomial, Fraction], ...]"


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar slot of a token."""

    slot: str
    index: str


@dataclass(frozen=True, slots=True)
class Size:
    """The number of tokens of an open set."""

    set: str


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector slot of a token."""

    slot: str
    index: str
    width: int


@dataclass(frozen=True, slots=True)
class Name:
    """The one-hot name of a token of a fixed set."""

    set: str
    index: str
    width: int


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over keys that a head will compute for token `index`; `id` names it. `width` 0 means a number."""

    id: int
    index: str
    width: int = 0


VectorAtom: TypeAlias = Vector | Name | Total


@dataclass(frozen=True, slots=True)
class Dot:
    """Inner product of two vector atoms, in canonical order."""

    left: VectorAtom
    right: VectorAtom


@dataclass(frozen=True, slots=True)
class Distance:
    """|A - B|^2 kept whole, A of token `i` and B of token `j`: the difference form never cancels."""

    left: Frozen
    right: Frozen
    i: str
    j: str


@dataclass(frozen=True, slots=True)
class Exp:
    """exp of a pair expression."""

    body: Frozen


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight that query token `query` gives to key token `key`; `rule` says how (see `normal.Rule`)."""

    rule: object
    query: str
    key: str


Atom: TypeAlias = Number | Size | Vector | Name | Total | Dot | Distance | Exp | Weight
Scalars: TypeAlias = tuple[tuple[Atom, int], ...]
Monomial: TypeAlias = tuple[Scalars, VectorAtom | None]
ONE: Monomial = ((), None)


def indices(atom: Atom) -> frozenset[str]:
    """The index variables an atom depends on."""
    match atom:
        case Number() | Vector() | Name() | Total():
            return frozenset((atom.index,))
        case Dot(left, right):
            return indices(left) | indices(right)
        case Distance():
            return frozenset((atom.i, atom.j))
        case Weight():
            return frozenset((atom.query, atom.key))
        case Exp(body):
            return thaw(body).indices
    return frozenset()


def is_vector(atom: Atom) -> bool:
    """Whether an atom stands for a vector."""
    return isinstance(atom, Vector | Name) or (isinstance(atom, Total) and atom.width > 0)


def monomial(scalars: Iterable[tuple[Atom, int]], vector: VectorAtom | None = None) -> Monomial:
    """The canonical monomial: equal atoms joined, powers of zero dropped, sorted."""
    powers: dict[Atom, int] = {}
    for atom, power in scalars:
        powers[atom] = powers.get(atom, 0) + power
    kept = [(a, n) for a, n in powers.items() if n]
    return tuple(sorted(kept, key=repr) if len(kept) > 1 else kept), vector


def dot_atom(left: VectorAtom, right: VectorAtom) -> Dot:
    """The inner product of two vector atoms in canonical order."""
    return Dot(left, right) if repr(left) <= repr(right) else Dot(right, left)


class Poly:
    """An immutable polynomial."""

    def __init__(self, terms: Mapping[Monomial, Fraction] | None = None) -> None:
        self.terms: dict[Monomial, Fraction] = {m: c for m, c in (terms or {}).items() if c}

    @staticmethod
    def const(value: Fraction | int | float) -> Poly:
        return Poly({ONE: Fraction(value)})

    @staticmethod
    def atom(atom: Atom) -> Poly:
        if is_vector(atom):
            return Poly({((), atom): Fraction(1)})  # type: ignore[dict-item]
        return Poly({(((atom, 1),), None): Fraction(1)})

    @staticmethod
    def term(mono: Monomial, coefficient: Fraction | int = 1) -> Poly:
        return Poly({mono: Fraction(coefficient)})

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for m, c in other.terms.items():
            terms[m] = terms.get(m, Fraction(0)) + c
        return Poly(terms)

    def __sub__(self, other: Poly) -> Poly:
        return self + other.scale(-1)

    def __neg__(self) -> Poly:
        return self.scale(-1)

    def scale(self, factor: Fraction | int) -> Poly:
        return Poly({m: c * factor for m, c in self.terms.items()})

    def __mul__(self, other: Poly) -> Poly:
        terms: dict[Monomial, Fraction] = {}
        for (s1, v1), c1 in self.terms.items():
            for (s2, v2), c2 in other.terms.items():
                assert v1 is None or v2 is None, "vector times vector"
                m = monomial(s1 + s2, v1 or v2)
                terms[m] = terms.get(m, Fraction(0)) + c1 * c2
        return Poly(terms)

    def dot(self, other: Poly) -> Poly:
        """Inner product; numbers count as vectors of width one."""
        terms: dict[Monomial, Fraction] = {}
        for (s1, v1), c1 in self.terms.items():
            for (s2, v2), c2 in other.terms.items():
                extra: Scalars = ((dot_atom(v1, v2), 1),) if v1 and v2 else ()
                m = monomial(s1 + s2 + extra)
                terms[m] = terms.get(m, Fraction(0)) + c1 * c2
        return Poly(terms)

    def power(self, exponent: int) -> Poly:
        out = Poly.const(1)
        for _ in range(exponent):
            out = out * self
        return out

    @cached_property
    def atoms(self) -> tuple[Atom, ...]:
        """Every atom once, in order of appearance (never in hash order: the same spec must give the same bytes)."""
        found: dict[Atom, None] = {}
        for scalars, vector in self.terms:
            found.update((a, None) for a, _ in scalars)
            if vector:
                found[vector] = None
        return tuple(found)

    @cached_property
    def indices(self) -> frozenset[str]:
        return frozenset().union(*(indices(a) for a in self.atoms))

    @cached_property
    def frozen(self) -> Frozen:
        """A hashable canonical form; `thaw` undoes it."""
        return tuple(sorted(self.terms.items(), key=repr))

    @property
    def is_const(self) -> bool:
        return all(m == ONE for m in self.terms)

    @property
    def constant(self) -> Fraction:
        return self.terms.get(ONE, Fraction(0))

    @property
    def width(self) -> int:
        """Width of the vector it stands for; 0 for a number."""
        return next((v.width for _, v in self.terms if v), 0)

    @property
    def single(self) -> tuple[Scalars, VectorAtom | None, Fraction] | None:
        """The only monomial and its coefficient, if there is just one."""
        if len(self.terms) != 1:
            return None
        (((scalars, vector), c),) = self.terms.items()
        return scalars, vector, c

    def only(self, index: str) -> Poly:
        """The monomials that depend on no other index."""
        return Poly({m: c for m, c in self.terms.items() if Poly.term(m).indices <= {index}})

    def replace(self, swap: Callable[[Atom], Poly | None]) -> Poly:
        """Substitutes atoms: `swap` gives what an atom becomes, or None to leave it."""
        swapped = {a: swap(a) for a in self.atoms}
        if not any(r is not None for r in swapped.values()):
            return self
        out = Poly()
        for (scalars, vector), c in self.terms.items():
            p = Poly.const(c)
            for a, n in scalars:
                r = swapped[a]
                if r is None:
                    p = p * Poly.term((((a, n),), None))
                else:
                    assert n > 0, "only positive powers can be substituted"
                    p = p * r.power(n)
            if vector:
                p = p * (swapped[vector] or Poly.atom(vector))
            out = out + p
        return out


def thaw(frozen: Frozen) -> Poly:
    """The polynomial of a frozen form."""
    return Poly(dict(frozen))


def expand_distances(p: Poly) -> Poly:
    """Every |A - B|^2 kept whole, written out as AA - 2AB + BB."""

    def swap(a: Atom) -> Poly | None:
        if not isinstance(a, Distance):
            return None
        left, right = thaw(a.left), thaw(a.right)
        return left.dot(left) - left.dot(right).scale(2) + right.dot(right)

    return p.replace(swap)


# ---- printing --------------------------------------------------------------------------------------------------------


def show_number(c: Fraction) -> str:
    """A coefficient as people write it: exact when short, else the float."""
    if c.denominator == 1:
        return str(c.numerator)
    return f"{c.numerator}/{c.denominator}" if c.denominator < 100 and abs(c.numerator) < 1000 else f"{float(c):.6g}"


def show_atom(a: Atom) -> str:
    """An atom without its index, as slots are named."""
    match a:
        case Number() | Vector():
            return a.slot
        case Name():
            return "id"
        case Size():
            return f"#{a.set}"
        case Dot(left, right):
            x, y = show_atom(left), show_atom(right)
            return f"|{x}|^2" if x == y else f"<{x},{y}>"
        case Distance():
            return f"|{show(thaw(a.left))} - {show(thaw(a.right))}|^2"
        case Exp():
            return f"exp({show(thaw(a.body))})"
        case Total():
            return f"sum{a.id}"
    return str(a.rule)


def show(p: Poly) -> str:
    """A polynomial as text, index variables left out."""
    out: list[str] = []
    for (scalars, vector), c in sorted(p.terms.items(), key=repr):
        factors = [show_atom(a) + (f"^{n}" if n != 1 else "") for a, n in scalars]
        factors += [show_atom(vector)] if vector else []
        head = "" if factors and c == 1 else "-" if factors and c == -1 else show_number(c)
        joined = "*".join([head, *factors] if head not in ("", "-") else factors)
        out.append(("-" if head == "-" else "") + joined)
    return " + ".join(out).replace("+ -", "- ") or "0"
