"""Polynomials, forms and slots: what is done with them is what is done with their values, and equals are one."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from weftc.graph.node import Axis
from weftc.normal.form import reached
from weftc.normal.slots import Attended, Leaf, Map, NormalHead, NormalScore, NormalSlot, SlotTable, form, just, sources
from weftc.passes.polynomial import Atom, Dot, KeptDistance, Poly, Scalar, Vector, expand_distances, thaw
from weftc_runtime.format.program import Weighting

Value: TypeAlias = "Fraction | tuple[Fraction, ...]"
TABLE = SlotTable()
POINT, CENTER = Axis(0, 0, "points"), Axis(1, 0, "centers")
NUMBERS = [Scalar(TABLE.slot(axis.set, 1, Leaf("field", name)), axis) for axis in (POINT, CENTER) for name in "abc"]
VECTORS = [Vector(TABLE.slot(axis.set, 2, Leaf("field", name)), axis) for axis in (POINT, CENTER) for name in "xy"]
FRACTIONS = st.fractions(-3, 3, max_denominator=6)
VALUES = st.fixed_dictionaries(
    {**dict.fromkeys(NUMBERS, FRACTIONS), **dict.fromkeys(VECTORS, st.tuples(FRACTIONS, FRACTIONS))}
)


@st.composite
def polynomials(draw: st.DrawFn, vector: bool = False, degree: int = 2) -> Poly:
    """A sum of a few monomials; of vectors, each has one vector factor. Coefficients may be nearly equal."""
    out = Poly()
    for _ in range(draw(st.integers(0, 3))):
        term = Poly.const(draw(FRACTIONS) + draw(st.sampled_from([0, 0, Fraction(1, 10**9)])))
        for _ in range(draw(st.integers(0, degree))):
            term = term * Poly.atom(draw(st.sampled_from(NUMBERS)))
        if not vector and draw(st.booleans()):
            term = term * Poly.atom(draw(st.sampled_from(VECTORS))).dot(Poly.atom(draw(st.sampled_from(VECTORS))))
        if vector:
            term = term * Poly.atom(draw(st.sampled_from(VECTORS)))
        out = out + term
    return out


def value(p: Poly, at: dict[Atom, Value], vector: bool = False) -> Value:
    """A polynomial at given values of its slots, from its terms alone."""
    total = [Fraction(0)] * (2 if vector else 1)
    for (scalars, factor), c in p.terms.items():
        for atom, power in scalars:
            c *= number(atom, at) ** power
        parts = (Fraction(1),) if factor is None else at[factor]
        assert isinstance(parts, tuple)
        total = [t + c * part for t, part in zip(total, parts, strict=True)]
    return tuple(total) if vector else total[0]


def number(atom: Atom, at: dict[Atom, Value]) -> Fraction:
    if isinstance(atom, Dot):
        return inner(at[atom.left], at[atom.right])
    if isinstance(atom, KeptDistance):
        left, right = (value(thaw(side), at, vector=True) for side in (atom.left, atom.right))
        apart = added(left, right, -1)
        return inner(apart, apart)
    found = at[atom]
    assert isinstance(found, Fraction)
    return found


def inner(a: Value, b: Value) -> Fraction:
    assert isinstance(a, tuple)
    assert isinstance(b, tuple)
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def added(a: Value, b: Value, factor: int = 1) -> Value:
    assert isinstance(a, tuple)
    assert isinstance(b, tuple)
    return tuple(x + factor * y for x, y in zip(a, b, strict=True))


@given(polynomials(), polynomials(), FRACTIONS, VALUES)
@settings(max_examples=60, deadline=None)
def test_algebra_of_numbers_is_that_of_their_values(p: Poly, q: Poly, c: Fraction, at: dict[Atom, Value]) -> None:
    a, b = value(p, at), value(q, at)
    assert isinstance(a, Fraction)
    assert isinstance(b, Fraction)
    assert value(p + q, at) == a + b
    assert value(p - q, at) == a - b
    assert value(-p, at) == -a
    assert value(p * q, at) == a * b
    assert value(p.scale(c), at) == c * a
    assert value(p.power(3), at) == a**3
    assert (p * q).frozen == (q * p).frozen
    assert (p + q - q).frozen == p.frozen
    assert thaw(p.frozen).terms == p.terms
    assert hash((p + q).frozen) == hash((q + p).frozen)


@given(polynomials(vector=True), polynomials(vector=True), polynomials(), VALUES)
@settings(max_examples=60, deadline=None)
def test_algebra_of_vectors_is_that_of_their_values(v: Poly, w: Poly, p: Poly, at: dict[Atom, Value]) -> None:
    a, b = value(v, at, vector=True), value(w, at, vector=True)
    assert value(v + w, at, vector=True) == added(a, b)
    assert value(v.dot(w), at) == inner(a, b)
    assert v.dot(w).frozen == w.dot(v).frozen
    factor = value(p, at)
    assert isinstance(a, tuple)
    assert isinstance(factor, Fraction)
    assert value(v * p, at, vector=True) == tuple(factor * x for x in a)


@given(polynomials(vector=True), polynomials(vector=True), VALUES)
@settings(max_examples=60, deadline=None)
def test_a_distance_written_out_is_the_distance(v: Poly, w: Poly, at: dict[Atom, Value]) -> None:
    kept = Poly.atom(KeptDistance(v.frozen, w.frozen, POINT, CENTER))
    assert value(expand_distances(kept * kept), at) == value(kept, at) ** 2  # type: ignore[operator]


@given(polynomials(), polynomials(), VALUES)
@settings(max_examples=60, deadline=None)
def test_what_is_put_in_for_an_atom_is_its_value(p: Poly, q: Poly, at: dict[Atom, Value]) -> None:
    first = NUMBERS[0]
    inside = p.replace(lambda atom: q if atom == first else None)
    assert value(inside, at) == value(p, {**at, first: value(q, at)})
    assert p.replace(lambda atom: None) is p


@given(polynomials(), VALUES, VALUES)
@settings(max_examples=30, deadline=None)
def test_what_depends_on_one_token_alone_does_not_see_the_other(
    p: Poly, at: dict[Atom, Value], other: dict[Atom, Value]
) -> None:
    moved = {atom: found if atom.axis == POINT else other[atom] for atom, found in at.items()}  # type: ignore[union-attr]
    assert value(p.only(POINT), at) == value(p.only(POINT), moved)
    assert p.only(POINT).axes <= {POINT}


SLOTS = [TABLE.slot("points", 1, Leaf("field", name)) for name in "abcd"]


@given(st.lists(st.tuples(st.sampled_from(SLOTS), FRACTIONS)), st.randoms())
@settings(max_examples=50, deadline=None)
def test_a_form_has_every_slot_once_in_order_and_no_zeros(
    terms: list[tuple[NormalSlot, Fraction]], rng: object
) -> None:
    found = form(terms)
    shuffled = terms[:]
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert form(shuffled) == found
    assert all(c for _, c in found)
    numbers = [slot.number for slot, _ in found]
    assert numbers == sorted(set(numbers))
    for slot in SLOTS:
        assert dict(found).get(slot, 0) == sum(c for s, c in terms if s is slot)


@given(
    st.lists(st.tuples(st.sampled_from(["exp", "dot", "head"]), st.integers(0, 99), st.integers(0, 99)), max_size=12)
)
@settings(max_examples=50, deadline=None)
def test_a_computation_is_one_slot_with_as_many_levels_as_its_longest_chain_of_heads(
    steps: list[tuple[str, int, int]],
) -> None:
    table = SlotTable()
    made = [table.slot("points", 1, Leaf("field", name)) for name in "ab"]
    depth = dict.fromkeys(made, 0)
    for kind, m, n in steps:
        a, b = made[m % len(made)], made[n % len(made)]
        if kind == "head":
            head = NormalHead("points", "points", Weighting("sum"), NormalScore(), self_key=just(a))
            content: Map | Attended = Attended(head, just(b))
        else:
            content = Map("exp", form=just(a)) if kind == "exp" else Map("dot", a, b)
        slot = table.slot("points", 1, content)
        assert table.slot("points", 1, content) is slot
        reads = (a, b) if kind != "exp" else (a,)
        depth[slot] = max(depth[one] for one in reads) + (kind == "head")
        assert set(sources(slot)) == set(reads)
        made.append(slot)
    assert {slot: slot.level for slot in depth} == depth
    order = reached(made[-1:])
    assert all(order.index(one) < order.index(slot) for slot in order for one in sources(slot))
