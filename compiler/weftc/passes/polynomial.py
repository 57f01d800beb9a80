"""Polynomials over token atoms: the canonical form in which every expression is compared, split and lowered.

A `Poly` maps monomials to exact rational coefficients. A monomial is (scalars, vector): scalars is a sorted tuple of
(atom, power), vector is None or one free vector atom. Coefficients become floats only when matrices are written.

A pair field is an inner product with a name: `y[i,j] = <y_i, e_j>` with e_j the one-hot id of token j, so every rule
for inner products covers pair fields unseen. Atoms are ordered by the numbers of slots and axes, never by names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, TypeAlias

from weftc.core.source import NOWHERE, Span
from weftc.core.tied import exact
from weftc.graph.node import Axis
from weftc.normal.slots import NormalSlot
from weftc_runtime.format.program import ScoreFunction, Weighting

Frozen: TypeAlias = "tuple[tuple[Monomial, Fraction], ...]"
Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar slot of a token."""

    slot: NormalSlot
    axis: Axis


@dataclass(frozen=True, slots=True)
class Size:
    """The number of tokens of an open set."""

    rank: int
    set: str


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector slot of a token."""

    slot: NormalSlot
    axis: Axis

    @property
    def width(self) -> int:
        return self.slot.width


@dataclass(frozen=True, slots=True)
class OneHotId:
    """The one-hot id of a token of a fixed set."""

    axis: Axis
    width: int


@dataclass(frozen=True, slots=True)
class PendingSum:
    """sum over keys of weight * value, for each query: a head will compute it. `own` is the value of the self key.

    The value is the product of `scalars` and the outer product of `vectors`, all of the key token; `empty` is the width
    of a value that is zero for every key (only the self key counts).
    """

    query: Axis
    key: Axis
    rule: HeadRule
    scalars: Scalars = ()
    vectors: tuple[VectorAtom, ...] = ()
    own: Frozen = ()
    empty: int | None = None
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def axis(self) -> Axis:
        return self.query

    @property
    def width(self) -> int:
        """0 means a number."""
        if self.empty is not None:
            return self.empty
        out = 1
        for v in self.vectors:
            out *= v.width
        return out if self.vectors else 0


@dataclass(frozen=True, slots=True)
class Entries:
    """The product, coordinate by coordinate, of two vectors of different tokens."""

    left: Vector
    right: Vector

    @property
    def width(self) -> int:
        return self.left.width


VectorAtom: TypeAlias = Vector | OneHotId | PendingSum | Entries


@dataclass(frozen=True, slots=True)
class Dot:
    """Inner product of two vector atoms, in canonical order."""

    left: VectorAtom
    right: VectorAtom


@dataclass(frozen=True, slots=True)
class KeptDistance:
    """|A - B|^2 kept whole, A of token `i` and B of token `j`: the difference form never cancels."""

    left: Frozen
    right: Frozen
    i: Axis
    j: Axis


@dataclass(frozen=True, slots=True)
class Exp:
    """exp of a pair expression."""

    body: Frozen


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of an expression of two tokens of open sets: a head computes it of its scores."""

    function: ScoreFunction
    body: Frozen


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight that query token `query` gives to key token `key`."""

    rule: HeadRule
    query: Axis
    key: Axis


Atom: TypeAlias = Scalar | Size | Vector | OneHotId | PendingSum | Entries | Dot | KeptDistance | Exp | Applied | Weight
Scalars: TypeAlias = tuple[tuple[Atom, int], ...]
Monomial: TypeAlias = tuple[Scalars, VectorAtom | None]
ONE: Monomial = ((), None)


@dataclass(frozen=True, slots=True)
class MaskRule:
    """Eligible where the polynomial is > 0 (`strict`) or >= 0; `other`: where two axes name different tokens.

    `member`: the polynomial is y[i,j] - 1/2 of a onehot field.
    """

    poly: Frozen = ()
    strict: bool = True
    other: tuple[Axis, Axis] | None = None
    member: bool = False

    @property
    def axes(self) -> frozenset[Axis]:
        return frozenset(self.other) if self.other else thaw(self.poly).axes


@dataclass(frozen=True, slots=True)
class HeadRule:
    """How one query weighs its keys. `self_key`: None, "last" (when nothing else counts), or a score polynomial."""

    how: Weighting
    score: Frozen
    masks: tuple[MaskRule, ...] = ()
    self_key: Literal["last"] | Frozen | None = None
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def kind(self) -> str:
        return self.how.kind

    @property
    def may_be_empty(self) -> bool:
        """Whether a query may be left with no weight at all."""
        if self.self_key is not None or self.kind in ("sum", "exp"):
            return False
        if self.kind == "normalize":
            score = thaw(self.score)
            return bool(self.masks) or not (score.is_const and score.constant > 0)
        return bool(self.masks)

    def with_last(self) -> HeadRule:
        return replace(self, self_key="last")


def weigh(kind: str, score: Frozen, masks: tuple[MaskRule, ...] = (), span: Span = NOWHERE, **more: Any) -> HeadRule:
    """A rule without a self key."""
    return HeadRule(Weighting(kind, **more), score, masks, None, span)  # type: ignore[arg-type]


def axes(atom: Atom) -> frozenset[Axis]:
    """The axes an atom depends on."""
    match atom:
        case Scalar() | Vector() | OneHotId() | PendingSum():
            return frozenset((atom.axis,))
        case Dot(left, right) | Entries(left, right):
            return axes(left) | axes(right)
        case KeptDistance():
            return frozenset((atom.i, atom.j))
        case Weight():
            return frozenset((atom.query, atom.key))
        case Exp(body) | Applied(_, body):
            return thaw(body).axes
    return frozenset()


def is_vector(atom: Atom) -> bool:
    """Whether an atom stands for a vector."""
    return isinstance(atom, Vector | OneHotId | Entries) or (isinstance(atom, PendingSum) and atom.width > 0)


# ---- a canonical order -----------------------------------------------------------------------------------------------


def key(atom: Atom) -> Key:
    """Where an atom stands among others: by what it is made of."""
    match atom:
        case KeptDistance(left, right, i, j):
            return (0, frozen_key(left), frozen_key(right), i, j)
        case Dot(left, right):
            return (1, key(left), key(right))
        case Exp(body):
            return (2, frozen_key(body))
        case Applied(function, body):
            return (10, function, frozen_key(body))
        case OneHotId(axis, _):
            return (3, axis)
        case Scalar(slot, axis):
            return (4, slot.number, axis)
        case Size(rank, _):
            return (5, rank)
        case PendingSum():
            value = (tuple((key(a), n) for a, n in atom.scalars), tuple(key(v) for v in atom.vectors))
            empty = -1 if atom.empty is None else atom.empty
            return (6, _rule_key(atom.rule), atom.query, atom.key, value, frozen_key(atom.own), empty)
        case Vector(slot, axis):
            return (7, slot.number, axis)
        case Entries(left, right):
            return (9, key(left), key(right))
        case Weight(rule, query, of):
            return (8, _rule_key(rule), query, of)


def frozen_key(frozen: Frozen) -> Key:
    return tuple((_monomial_key(m), c) for m, c in frozen)


def _monomial_key(m: Monomial) -> Key:
    return tuple((key(a), n) for a, n in m[0]), () if m[1] is None else key(m[1])


def _rule_key(rule: HeadRule) -> Key:
    how = rule.how
    numbers = tuple(-1 if x is None else x for x in (how.epsilon, how.count, how.percent, how.gamma, how.sharpness))
    masks = tuple((frozen_key(m.poly), m.strict, m.other or (), m.member) for m in rule.masks)
    own = (0,) if rule.self_key is None else (1,) if rule.self_key == "last" else (2, frozen_key(rule.self_key))
    return how.kind, how.ties, numbers, frozen_key(rule.score), masks, own


def monomial(scalars: Iterable[tuple[Atom, int]], vector: VectorAtom | None = None) -> Monomial:
    """The canonical monomial: equal atoms joined, powers of zero dropped, sorted."""
    powers: dict[Atom, int] = {}
    for atom, power in scalars:
        powers[atom] = powers.get(atom, 0) + power
    kept = [(a, n) for a, n in powers.items() if n]
    return tuple(sorted(kept, key=lambda z: key(z[0])) if len(kept) > 1 else kept), vector


def dot_atom(left: VectorAtom, right: VectorAtom) -> Dot:
    """The inner product of two vector atoms in canonical order."""
    return Dot(left, right) if key(left) <= key(right) else Dot(right, left)


class Poly:
    """An immutable polynomial."""

    def __init__(self, terms: Mapping[Monomial, Fraction] | None = None) -> None:
        self.terms: dict[Monomial, Fraction] = {m: c for m, c in (terms or {}).items() if c}

    @staticmethod
    def const(value: Fraction | int | float) -> Poly:
        return Poly({ONE: exact(value)})

    @staticmethod
    def atom(atom: Atom) -> Poly:
        if is_vector(atom):
            return Poly({((), atom): Fraction(1)})  # type: ignore[dict-item]
        return Poly({(((atom, 1),), None): Fraction(1)})

    @staticmethod
    def term(mono: Monomial, coefficient: Fraction | int = 1) -> Poly:
        return Poly({mono: exact(coefficient)})

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
        """Every atom once, in canonical order."""
        found: dict[Atom, None] = {}
        for scalars, vector in self.terms:
            found.update((a, None) for a, _ in scalars)
            if vector:
                found[vector] = None
        return tuple(sorted(found, key=key) if len(found) > 1 else found)

    @cached_property
    def axes(self) -> frozenset[Axis]:
        return frozenset().union(*(axes(a) for a in self.atoms))

    @cached_property
    def frozen(self) -> Frozen:
        """A hashable canonical form, a constant last; `thaw` undoes it."""
        items = self.terms.items()
        return tuple(sorted(items, key=lambda z: (z[0] == ONE, _monomial_key(z[0]))) if len(items) > 1 else items)

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

    def only(self, axis: Axis) -> Poly:
        """The monomials that depend on no other axis."""
        return Poly({m: c for m, c in self.terms.items() if Poly.term(m).axes <= {axis}})

    def replace(self, swap: Callable[[Atom], Poly | None]) -> Poly:
        """Substitutes atoms: `swap` gives what an atom becomes, or None to leave it."""
        swapped = {a: swap(a) for a in self.atoms}
        if not any(r is not None for r in swapped.values()):
            return self
        out = Poly()
        for (scalars, vector), c in self.frozen:
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
        if not isinstance(a, KeptDistance):
            return None
        left, right = thaw(a.left), thaw(a.right)
        return left.dot(left) - left.dot(right).scale(2) + right.dot(right)

    return p.replace(swap)
