"""Polynomials of stored values -> linear forms and scores.

A score is brought to sums of <query form, key form> and c * |query form - key form|^2 by algebra: each monomial splits
into query factors, key factors and inner products of the two; products become derived slots. What does not split is
refused.

    -|x[i] - c[j]|^2 + u[j]     ->     -1 * |x - c|^2 + <1, u>
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import Literal

from weftc.graph.node import Axis
from weftc.normal.slots import DotPart, Form, L2Part, Map, NormalFactor, NormalScore, NormalSlot, form, just, sources
from weftc.passes.context import IN_PAIRS, Context, NoAttentionForm
from weftc.passes.polynomial import (
    Applied,
    Atom,
    Dot,
    Frozen,
    KeptDistance,
    Poly,
    Scalar,
    Scalars,
    Size,
    Vector,
    VectorAtom,
    axes,
    expand_distances,
    thaw,
)

PARTIAL = ("reciprocal", "log", "sqrt")  # functions that have no value somewhere
INEXACT = "float64 cannot hold a factor of this decision exactly"
RESCALE = "write the numbers in other units, so that their products stay between 1e-300 and 1e300"


def is_float(value: Fraction) -> bool:
    """Whether a rational is a float exactly."""
    return Fraction(float(value)) == value


def is_sum_of_floats(value: Fraction) -> bool:
    """Whether a rational, its denominator made a power of two, is a sum of floats: no bit lies below the smallest."""
    return value.denominator & -value.denominator <= 2**1074


def odd_denominator(values: list[Fraction]) -> int:
    """The smallest whole number that turns all values into sums of powers of two."""
    out = 1
    for value in values:
        d = value.denominator
        out = lcm(out, d // (d & -d))
    return out


def cleared(score: NormalScore) -> tuple[NormalScore, int]:
    """The score times the smallest whole number that makes every coefficient a sum of powers of two; and the number."""
    factors = [c for p in score.dots for f in (p.query, p.key) for _, c in f] + [p.coefficient for p in score.l2s]
    m = odd_denominator(factors)
    if m == 1:
        return score, 1
    dots = []
    for p in score.dots:  # one side is a selector; the factor goes to the other
        if [c for _, c in p.query] == [1]:
            dots.append(replace(p, key=tuple((slot, c * m) for slot, c in p.key)))
        else:
            dots.append(replace(p, query=tuple((slot, c * m) for slot, c in p.query)))
    return NormalScore(tuple(dots), tuple(replace(p, coefficient=p.coefficient * m) for p in score.l2s)), m


def linear_form(cx: Context, p: Poly, i: Axis) -> Form:
    """A polynomial of stored values of token i as a linear form over the slots of its stream."""
    terms, entries = [], dict[int, list[tuple[NormalSlot, Fraction]]]()
    for (scalars, vector), c in expand_distances(p).frozen:
        for atom in [a for a, _ in scalars] + ([vector] if vector else []):
            if len(axes(atom)) > 1 and i in axes(atom):
                raise NoAttentionForm(IN_PAIRS)
            if not axes(atom) <= {i}:
                other = cx.said(axes(atom) - {i})
                message = f"this reads token {other} outside a sum, mean or weighting over it"
                raise NoAttentionForm(message, crowded=True)
        known = constants(vector) if scalars else None
        if known is not None:  # a number times a constant vector: an entry of a matrix for every coordinate
            slot = cx.slot_for(i.set, scalars)
            for at, constant in enumerate(known):
                entries.setdefault(at, []).append((slot, c * constant))
            continue
        terms.append((cx.slot_for(i.set, scalars, (vector,) if vector else ()), c))
    if entries:
        rows = tuple(form(entries[at]) for at in range(len(entries)))
        terms.append((cx.derive(i.set, len(rows), Map("stack", forms=rows)), Fraction(1)))
    return form(terms)


def constants(vector: VectorAtom | None) -> list[Fraction] | None:
    """The coordinates of a vector that is the same for all tokens, known when the spec compiles."""
    made = vector.slot.content if isinstance(vector, Vector) else None
    if not isinstance(made, Map) or made.function != "stack" or made.a is not None:
        return None
    if not all(slot.is_one for terms in made.forms for slot, _ in terms):
        return None
    return [sum((c for _, c in terms), Fraction(0)) for terms in made.forms]


def score_of(
    cx: Context,
    p: Poly,
    q: Axis,
    k: Axis,
    inner: Callable[[Frozen], NormalScore],
    *,
    shift_free: bool,
    exact: bool,
) -> NormalScore:
    """The score of query q and key k. Terms of the query alone are dropped when the weighting does not see them
    (`shift_free`). `exact` scores decide, so differences are kept only if their coefficients are floats exactly.
    `inner` is the score that a function is of."""
    if p.width:
        raise NoAttentionForm("a score must be a number, not a vector")
    if exact and not all(is_sum_of_floats(c) for c in p.terms.values()):
        raise NoAttentionForm(INEXACT, RESCALE, code="L302")
    l2s: list[L2Part] = []
    rest: dict[tuple[NormalFactor, ...], Poly] = {}
    for (scalars, vector), c in p.frozen:
        plain = tuple(z for z in scalars if not isinstance(z[0], Applied))
        factors = tuple(_factor(a, inner, exact) for a, n in scalars if isinstance(a, Applied) for _ in range(n))
        part = _difference(cx, plain, c, q, k, exact)
        if part:
            l2s.append(replace(part, factors=factors))
        else:
            rest[factors] = rest.get(factors, Poly()) + Poly.term((plain, vector), c)
    dots: list[DotPart] = []
    for factors, terms in rest.items():
        made = _products(cx, expand_distances(terms), q, k, shift_free and not factors)
        dots += [replace(part, factors=factors) for part in made]
    return NormalScore(tuple(dots), tuple(l2s))


def _factor(a: Applied, inner: Callable[[Frozen], NormalScore], exact: bool) -> NormalFactor:
    """A function of a score; where it decides, the numbers in it cannot be cleared and have to be floats."""
    score = inner(a.body)
    numbers = [c for part in score.dots for side in (part.query, part.key) for _, c in side]
    if exact and not all(map(is_float, (*numbers, *(part.coefficient for part in score.l2s)))):
        raise NoAttentionForm(INEXACT, RESCALE, code="L302")
    return NormalFactor(a.function, score)


def _difference(cx: Context, scalars: Scalars, c: Fraction, q: Axis, k: Axis, exact: bool) -> L2Part | None:
    """c * |A - B|^2, perhaps times factors of one side, kept in difference form."""
    kept = [a for a, n in scalars if isinstance(a, KeptDistance) and n == 1]
    others = tuple((a, n) for a, n in scalars if a not in kept)
    sides: frozenset[Axis] = frozenset().union(*(axes(a) for a, _ in others))
    plain = all(isinstance(a, Scalar | Size | Dot) for a, _ in others)
    if len(kept) != 1 or not plain or not (sides <= {q} or sides <= {k}):
        return None
    distance = kept[0]
    left, right = thaw(distance.left), thaw(distance.right)
    if distance.i != q:
        left, right = right, left
    clear = odd_denominator([*left.terms.values(), *right.terms.values()])
    query, key = linear_form(cx, left.scale(clear), q), linear_form(cx, right.scale(clear), k)
    if exact and not all(is_float(value) for side in (query, key) for _, value in side):
        return None
    width = max(s.width for s, _ in (*query, *key))
    scale: tuple[Literal["query", "key"], NormalSlot] | None = None
    if others:
        side: Literal["query", "key"] = "key" if k in sides else "query"
        scale = side, cx.slot_for((k if side == "key" else q).set, others)
    return L2Part(query, key, width, c / clear**2, scale)


def _products(cx: Context, p: Poly, q: Axis, k: Axis, shift_free: bool) -> tuple[DotPart, ...]:
    """Sums of query slot times key slot, grouped so that one side of each block is a plain selector.

    A term of the query alone is dropped, unless it is all that tells that the score has no value."""
    triples: list[tuple[NormalSlot, NormalSlot, Fraction]] = []
    split = [(*_split(scalars, q, k), c) for (scalars, _), c in p.frozen]
    read = {slot for query, key, _ in split if key[0] or key[1] for slot in _partial(query)}
    for query, key, c in split:
        if shift_free and not key[0] and not key[1] and _partial(query) <= read:
            continue
        triples.append((cx.slot_for(q.set, *query), cx.slot_for(k.set, *key), c))
    by_query = sum(a.width for a in {t[0] for t in triples}) <= sum(b.width for b in {t[1] for t in triples})
    groups: dict[NormalSlot, list[tuple[NormalSlot, Fraction]]] = {}
    for a, b, c in triples:
        base, other = (a, b) if by_query else (b, a)
        groups.setdefault(base, []).append((other, c))
    made = [(base, form(others)) for base, others in groups.items()]
    if by_query:
        return tuple(DotPart(just(base), other, base.width) for base, other in made)
    return tuple(DotPart(other, just(base), base.width) for base, other in made)


def _partial(side: tuple[Scalars, tuple[VectorAtom, ...]]) -> set[NormalSlot]:
    """The slots without a value on some inputs that factors of one token are computed from."""
    atoms = [atom for atom, _ in side[0]] + list(side[1])
    atoms += [one for atom in atoms if isinstance(atom, Dot) for one in (atom.left, atom.right)]
    left = [atom.slot for atom in atoms if isinstance(atom, Scalar | Vector)]
    seen = set(left)
    while left:
        fresh = set(sources(left.pop())) - seen
        seen |= fresh
        left += fresh
    return {slot for slot in seen if isinstance(slot.content, Map) and slot.content.function in PARTIAL}


def _split(
    scalars: Scalars, q: Axis, k: Axis
) -> tuple[tuple[Scalars, tuple[VectorAtom, ...]], tuple[Scalars, tuple[VectorAtom, ...]]]:
    """The factors of a monomial on the query's side and on the key's side."""
    qs: list[tuple[Atom, int]] = []
    ks: list[tuple[Atom, int]] = []
    qv: list[VectorAtom] = []
    kv: list[VectorAtom] = []
    for atom, power in scalars:
        on = axes(atom)
        if isinstance(atom, Dot) and len(on) == 2:
            if on != {q, k}:
                raise NoAttentionForm("a score relates exactly two tokens", crowded=True)
            if power < 0:
                raise NoAttentionForm("dividing by an expression of two tokens has no bilinear form")
            mine, theirs = (atom.left, atom.right) if axes(atom.left) == {q} else (atom.right, atom.left)
            qv += [mine] * power
            kv += [theirs] * power
        elif on <= {q}:
            qs.append((atom, power))
        elif on == {k}:
            ks.append((atom, power))
        else:
            raise NoAttentionForm("a score relates exactly two tokens", crowded=True)
    return (tuple(qs), tuple(qv)), (tuple(ks), tuple(kv))
