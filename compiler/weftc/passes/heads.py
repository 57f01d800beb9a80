"""Sums over keys -> heads, and pair expressions -> rows stored on a token.

A `PendingSum` is a sum that some head will compute. `resolve` makes the head and replaces the atom by the slot it
fills. Sums with the same query, key and rule share one head, because equal heads are equal.

Tabulation: a pair expression over (i, j) with j fixed is a vector of |j| numbers on token i, read back as <row_i, e_j>;
any function then acts on it coordinate by coordinate.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Literal, cast

from weftc.core.source import NOWHERE
from weftc.graph.node import Axis
from weftc.normal.slots import (
    Attended,
    Form,
    Leaf,
    MagnitudeCondition,
    Map,
    NormalHead,
    NormalMask,
    NormalScore,
    NormalSlot,
    just,
)
from weftc.passes.context import Context, NoAttentionForm, slot_poly
from weftc.passes.members import SelfKey, offset, unmasked
from weftc.passes.polynomial import (
    Applied,
    Atom,
    Dot,
    Exp,
    Frozen,
    HeadRule,
    KeptDistance,
    MaskRule,
    OneHotId,
    PendingSum,
    Poly,
    Scalar,
    Scalars,
    Size,
    Vector,
    Weight,
    axes,
    monomial,
    thaw,
    weigh,
)
from weftc.passes.scores import cleared, linear_form, score_of
from weftc_runtime.format.program import SHIFT_FREE, ScoreFunction

EXACT = frozenset({"argmax", "top", "normmax"})  # these decide: their scores must not be rounded
BELONGS = (
    "only softmax and normalize without `where` can be stored on the other token; inside a sum it lowers: "
    "(sum[i] W[i](...) * w[i] * v[i]) / (sum[i] W[i](...) * w[i]) is the mean of v[i] by both weights"
)
ANY = -1  # number of the axis of a token that stands for its whole set


# ---- pending sums ----------------------------------------------------------------------------------------------------


def total(cx: Context, s: PendingSum) -> Poly:
    """The polynomial that stands for a sum over keys."""
    if s.rule.span == NOWHERE:
        s = replace(s, rule=replace(s.rule, span=cx.span))
    note(cx, s.rule, s.query, s.key)
    return Poly.atom(s)


def is_positive(cx: Context, p: Poly) -> bool:
    """Whether a polynomial is known to be > 0: positive coefficients on counts and positive fields."""

    def sure(a: Atom) -> bool:
        name = field_of(a)
        return isinstance(a, Size) or (isinstance(a, Scalar) and name is not None and cx.checked.fields[name].positive)

    return bool(p.terms) and all(c > 0 and not v and all(sure(a) for a, _ in s) for (s, v), c in p.terms.items())


def field_of(a: Atom) -> str | None:
    """The field of the spec that an atom is a value of, or None."""
    if isinstance(a, Scalar | Vector) and isinstance(a.slot.content, Leaf) and a.slot.content.kind == "field":
        return a.slot.content.name
    return None


def note(cx: Context, rule: HeadRule, query: Axis, key: Axis) -> None:
    """Notes a rule that may leave a query without weight: some `else` has to see it."""
    if rule.may_be_empty and (rule.masks or not is_positive(cx, thaw(rule.score))):
        cx.note((rule, query, key))


def resolve(cx: Context, p: Poly, only: Axis | None = None) -> Poly:
    """Replaces pending sums by the slots their heads fill (only those that land on token `only`, if given)."""

    def swap(a: Atom) -> Poly | None:
        if only is not None and (not isinstance(a, PendingSum | Dot) or only not in axes(a)):
            return None
        if isinstance(a, PendingSum):
            return slot_poly(slot_of(cx, a), a.axis, a.width)
        if isinstance(a, Dot) and (isinstance(a.left, PendingSum) or isinstance(a.right, PendingSum)):
            return resolve(cx, Poly.atom(a.left)).dot(resolve(cx, Poly.atom(a.right)))
        if isinstance(a, KeptDistance):
            left, right = resolve(cx, thaw(a.left)).frozen, resolve(cx, thaw(a.right)).frozen
            return Poly.atom(KeptDistance(left, right, a.i, a.j)) if (left, right) != (a.left, a.right) else None
        if isinstance(a, Exp | Applied):
            body = resolve(cx, thaw(a.body)).frozen
            return Poly.atom(replace(a, body=body)) if body != a.body else None
        return None

    return p.replace(swap)


def linear(cx: Context, p: Poly, i: Axis) -> Form:
    """A polynomial of token i, pending sums included, as a linear form."""
    return linear_form(cx, resolve(cx, p), i)


def resolved(cx: Context, a: Atom) -> Atom:
    """The stored atom a pending sum becomes."""
    (atom,) = resolve(cx, Poly.atom(a)).atoms
    return atom


def slot_of(cx: Context, s: PendingSum) -> NormalSlot:
    """The slot that receives a sum over keys."""
    key = (cx.guarded, s)
    if key not in cx.landed:
        inside = replace(cx, noted=[])
        cx.landed[key] = _landed(inside, s), inside.noted
    slot, notes = cx.landed[key]
    cx.note(*notes)
    return slot


def _landed(cx: Context, s: PendingSum) -> NormalSlot:
    if cx.guarded and s.rule.may_be_empty:
        s = replace(s, rule=s.rule.with_last())
    own = linear(cx, thaw(s.own), s.query)
    value: Form | None = ()
    if s.rule.kind in ("lse", "max"):
        value = None
    elif s.empty is None:
        value = just(cx.slot_for(s.key.set, s.scalars, s.vectors))
    head = head_of(cx, s.query, s.key, s.rule)
    return cx.table.slot(s.query.set, max(1, s.width), Attended(head, value, own), cx.span)


# ---- heads -----------------------------------------------------------------------------------------------------------


def head_of(cx: Context, q: Axis, k: Axis, rule: HeadRule) -> NormalHead:
    """The head of a rule."""
    try:
        return _make_head(cx, q, k, rule)
    except NoAttentionForm as refused:
        if rule.span != NOWHERE:
            refused.span = refused.span or rule.span
        raise


def _make_head(cx: Context, q: Axis, k: Axis, rule: HeadRule) -> NormalHead:
    span = cx.span if rule.span == NOWHERE else rule.span
    rule, members = unmasked(cx, rule)
    own: SelfKey = "last" if rule.self_key == "last" else None
    if isinstance(rule.self_key, tuple):
        own = linear(cx, thaw(rule.self_key), q)
    shift_free = rule.kind in SHIFT_FREE and not isinstance(own, tuple) and not members
    exact = rule.kind in EXACT
    score = _score(cx, rule.score, q, k, shift_free=shift_free, exact=exact)
    how = rule.how
    if exact:
        score, factor = cleared(score)
        how = replace(how, epsilon=how.epsilon * factor, gamma=how.gamma and how.gamma / factor)
    bounds: tuple[MagnitudeCondition, ...] = ()
    if members:
        score, own, bounds = offset(cx, score, members, own, q)
    masks = tuple(_mask(cx, m, q, k, rule.masks[:n]) for n, m in enumerate(rule.masks))
    return NormalHead(q.set, k.set, how, score, masks, own, bounds, span)


def _mask(cx: Context, m: MaskRule, q: Axis, k: Axis, before: tuple[MaskRule, ...]) -> NormalMask:
    if m.other:
        return NormalMask("other")
    ranking = next((a for a in thaw(m.poly).atoms if isinstance(a, Weight)), None)
    if ranking is not None and cx.tokens(k) is None:
        return _best(cx, m, ranking, q, k, before)
    score, _ = cleared(_score(cx, m.poly, q, k, shift_free=False, exact=True))
    op: Literal[">", ">="] = ">" if m.strict else ">="
    return NormalMask(op, score)


def _best(cx: Context, m: MaskRule, ranking: Weight, q: Axis, k: Axis, before: tuple[MaskRule, ...]) -> NormalMask:
    """Where a choice gives weight to a key, of the keys that the masks before leave."""
    alone = m.strict and [mono for mono, c in m.poly if c > 0] == [(((ranking, 1),), None)] and len(m.poly) == 1
    rule = ranking.rule
    if not alone or rule.kind not in EXACT or (ranking.query, ranking.key) != (q, k) or set(rule.masks) != set(before):
        raise NoAttentionForm(
            "this condition on a weighting over an open set has no attention form",
            "a head can choose among the keys that its other conditions leave: where ... among highest[l](S, 3)",
        )
    score, factor = cleared(_score(cx, rule.score, q, k, shift_free=True, exact=True))
    how = replace(rule.how, epsilon=rule.how.epsilon * factor, gamma=rule.how.gamma and rule.how.gamma / factor)
    return NormalMask("best", score, how)


def _score(cx: Context, frozen: Frozen, q: Axis, k: Axis, *, shift_free: bool, exact: bool) -> NormalScore:
    """A score over stored values; `exact`: it decides."""
    inside = replace(cx, deciding=exact)

    def inner(body: Frozen) -> NormalScore:
        return _score(cx, body, q, k, shift_free=False, exact=exact)

    p = stored(inside, resolve(inside, thaw(frozen)))
    return score_of(cx, p, q, k, inner, shift_free=shift_free, exact=exact)


# ---- centre: differences that have to be multiplied out --------------------------------------------------------------


def multiplied_out(cx: Context, a: KeptDistance) -> Poly:
    """A distance where no head holds it whole: |left - right|^2 multiplied out, both sides centred."""
    left, right = centred(cx, resolve(cx, thaw(a.left)), resolve(cx, thaw(a.right)), a.i, a.j)
    return left.dot(left) - left.dot(right).scale(2) + right.dot(right)


def centred(cx: Context, left: Poly, right: Poly, i: Axis, j: Axis) -> tuple[Poly, Poly]:
    """The two sides of a difference, each less the same number or vector s near both: left - s and right - s.

    Their difference is the same, and sums of its products lose little when they are multiplied out:

        sum[i] (x[i] - m[g])^2   ->   sum[i] X[i]^2 - 2 * M[g] * sum[i] X[i] + n * M[g]^2,   X = x - s,  M = m - s

    s is a value of the data, so that X and M are exact wherever numbers are stored as finely as they differ (whole
    numbers stay whole). The error is that of the spec as written while |x - s| and |m - s| are about as large as
    |x - m|; where groups lie farther apart than they are wide, by a factor r, it is r times that for every factor.
    """
    if cx.styles.centre == "off":
        return left, right
    shift = _stored_shift(cx, (left, right), (i, j)) or _shift_of(cx, left, i, j)
    if shift is None:
        return left, right
    return _less(cx, left, shift[0], i), _less(cx, right, shift[1], j)


def _less(cx: Context, p: Poly, shift: Poly, i: Axis) -> Poly:
    return slot_poly(cx.function(i.set, "copy", linear(cx, p - shift, i)), i, p.width)


def _stored_shift(cx: Context, sides: tuple[Poly, Poly], on: tuple[Axis, Axis]) -> tuple[Poly, Poly] | None:
    """The shift of a space that has inputs: found once, before the first layer, and stored on every token."""
    for side in sides:
        for atom in side.atoms:
            name = field_of(atom)
            source = None if name is None else cx.spaces.source(name)
            factor = _degree(cx, side, source) if source else Fraction(0)
            if source and factor:
                return _shift_slot(cx, source, on[0], factor), _shift_slot(cx, source, on[1], factor)
    return None


def _degree(cx: Context, p: Poly, source: str) -> Fraction:
    """How often a side moves when the whole space moves by one."""
    space = cx.spaces.of(source)
    terms = ((s, v, c) for (s, v), c in p.terms.items())
    plain = ((v or s[0][0], c) for s, v, c in terms if (v and not s) or (not v and len(s) == 1 and s[0][1] == 1))
    return sum((c for a, c in plain if field_of(a) in space), Fraction(0))


def _shift_slot(cx: Context, source: str, i: Axis, factor: Fraction) -> Poly:
    slot = cx.leaf(i.set, Leaf("centre", source), cx.field(source).width)
    return slot_poly(slot, i, 0 if cx.checked.fields[source].width is None else slot.width).scale(factor)


def _shift_of(cx: Context, p: Poly, i: Axis, j: Axis) -> tuple[Poly, Poly] | None:
    """The shift of what no input stands for: found in this step, from the numbers themselves. Positions and counts
    are small anyhow, and decisions are exact anyhow."""

    def small(a: Atom) -> bool:
        leaf = a.slot.content if isinstance(a, Scalar) else None
        return isinstance(a, Size) or (isinstance(leaf, Leaf) and leaf.kind == "position")

    if cx.deciding or all(small(a) for a in p.atoms):
        return None
    value = slot_poly(cx.function(i.set, "copy", linear(cx, p, i)), i, p.width)
    return typical(cx, value, i), typical(cx, value, j)


def typical(cx: Context, value: Poly, query: Axis) -> Poly:
    """A slot of the first token of its set, as every token `query` reads it: all keys tie, the first wins."""
    (atom,) = value.atoms
    assert isinstance(atom, Scalar | Vector)
    k = Axis(atom.axis.rank, ANY, atom.axis.set)
    own = replace(atom, axis=k)
    scalars, vectors = (((own, 1),), ()) if isinstance(own, Scalar) else ((), (own,))
    return resolve(cx, total(cx, PendingSum(query, k, weigh("argmax", ()), scalars, vectors)))


# ---- rows ------------------------------------------------------------------------------------------------------------


def fixed_side(cx: Context, on: frozenset[Axis]) -> tuple[Axis, Axis]:
    """Two axes as (i, j) with j over a fixed set."""
    i, j = sorted(sorted(on), key=lambda axis: cx.tokens(axis) is not None)
    if cx.tokens(j) is None:
        raise NoAttentionForm(
            f"a function of two tokens of open sets ({cx.said([i])}, {cx.said([j])}) has no attention form",
            "only exp of a sum of products has, inside a sum over one of the tokens",
            f"with a size for one of the two it lowers, one slot per token of it: tokens {cx.said([j])} in {j.set} : n",
        )
    return i, j


def tabulate(cx: Context, p: Poly, function: str = "copy", order: tuple[Axis, Axis] | None = None) -> Poly:
    """A pair expression, perhaps under a function, as a row stored on the token that is not fixed."""
    i, j = order or fixed_side(cx, p.axes)
    form = linear(cx, rows(cx, p, i, j), i)
    if function == "copy" and [c for _, c in form] == [1]:
        return cx.row(form[0][0], i, j)
    return cx.row(cx.function(i.set, function, form), i, j)


def function_of_pair(cx: Context, function: str, p: Poly) -> Poly:
    """A function of two tokens: a row, if one of their sets is fixed; else the head computes it that needs it."""
    return (
        tabulate(cx, p, function)
        if any(map(cx.tokens, p.axes))
        else Poly.atom(Applied(cast(ScoreFunction, function), p.frozen))
    )


def has_functions(p: Poly) -> bool:
    """Whether functions of two tokens of open sets are factors in a polynomial."""
    return any(isinstance(a, Applied) for a in p.atoms)


def has_open_distances(cx: Context, p: Poly) -> bool:
    """Whether distances of two tokens of open sets are factors that a head can keep whole, beside functions only."""
    return cx.styles.scores == "l2" and any(
        isinstance(a, KeptDistance) and cx.tokens(a.i) is None and cx.tokens(a.j) is None for a in p.atoms
    )


def beside_distances(cx: Context, p: Poly) -> Poly:
    """exp(S) * |A - B|^2 of open sets, with exp as a function that the head takes: the distance is kept whole."""
    found = {
        a
        for scalars, v in p.terms
        if has_open_distances(cx, Poly.term((scalars, None)))
        for a, _ in scalars
        if isinstance(a, Exp)
    }
    return p.replace(lambda a: Poly.atom(Applied("exp", a.body)) if a in found and isinstance(a, Exp) else None)


def apart(cx: Context, p: Poly) -> Poly:
    """A pair expression with rows of their own for distances that are multiplied out: what is added comes after."""
    if cx.styles.scores == "l2" or len(p.terms) < 2:
        return p
    return p.replace(lambda a: tabulate(cx, Poly.atom(a)) if isinstance(a, KeptDistance) else None)


def stored(cx: Context, p: Poly) -> Poly:
    """Tabulates what stands where only stored values may: weights, exponentials, distances that are multiplied."""
    p = beside_distances(cx, p)
    far = crowded_distances(p) | (set() if cx.deciding else scaled_distances(p))
    if any(cx.tokens(i) for i in p.axes):
        p = p.replace(lambda a: tabulate(cx, Poly.atom(a)) if a in far else None)

    def swap(a: Atom) -> Poly | None:
        if isinstance(a, KeptDistance) and (cx.styles.scores == "dot" or a in far):
            return multiplied_out(cx, a)
        if isinstance(a, Exp) and not any(cx.tokens(i) for i in axes(a)):
            return Poly.atom(Applied("exp", a.body))
        return tabulate(cx, Poly.atom(a)) if isinstance(a, Weight | Exp) else None

    return resolve(cx, merge_rows(cx, p.replace(swap)))


def crowded_distances(p: Poly) -> set[Atom]:
    """Distances that stand beside another function of two tokens (or themselves), but for what a head multiplies."""

    def crowds(b: Atom) -> bool:
        return len(axes(b)) > 1 and not isinstance(b, Applied)

    return {
        a
        for scalars, _ in p.terms
        for a, n in scalars
        if isinstance(a, KeptDistance) and (n != 1 or any(crowds(b) for b, _ in scalars if b != a))
    }


def scaled_distances(p: Poly) -> set[Atom]:
    """Distances times factors of both of their tokens: a part of a score has a factor of one."""
    return {
        a
        for scalars, _ in p.terms
        for a, _ in scalars
        if isinstance(a, KeptDistance)
        and axes(a) <= frozenset().union(*(axes(b) for b, _ in scalars if b != a and len(axes(b)) == 1))
    }


def merge_rows(cx: Context, p: Poly) -> Poly:
    """<y, e_j> <z, e_j> = <y.z, e_j>: products of rows over the same fixed set go coordinate by coordinate."""
    out = Poly()
    for (scalars, v), c in p.frozen:
        found: dict[OneHotId, list[tuple[Atom, Vector]]] = {}
        for atom, power in scalars:
            if isinstance(atom, Dot) and power > 0 and len(axes(atom)) == 2:
                name, other = (atom.left, atom.right) if isinstance(atom.left, OneHotId) else (atom.right, atom.left)
                if isinstance(name, OneHotId) and isinstance(other, Vector):
                    found.setdefault(name, []).extend([(atom, other)] * power)
        for name, beside in found.items():
            first = beside[0][1]
            if len(beside) < 2 or any(v.axis != first.axis for _, v in beside):
                continue
            slot = first.slot
            for _, other in beside[1:]:
                slot = cx.derive(first.axis.set, first.width, Map("product", slot, other.slot))
            gone = {a for a, _ in beside}
            merged = Poly.atom(Vector(slot, first.axis)).dot(Poly.atom(name))
            scalars = tuple(z for z in scalars if z[0] not in gone) + next(iter(merged.terms))[0]
        out = out + Poly.term(monomial(scalars, v), c)
    return out


def rows(cx: Context, p: Poly, i: Axis, j: Axis) -> Poly:
    """A pair expression as a vector over j on token i: stored rows, and heads whose value is the id of j."""
    name = cx.one_hot(j)
    p = p.replace(lambda a: _transposed(cx, a, i, j) if isinstance(a, Weight) and a.query == j else None)
    score, out = Poly(), Poly()
    for (scalars, v), c in merge_rows(cx, p).frozen:
        if v:
            raise NoAttentionForm("a pair field holds one number per pair, not a vector")
        weights = [a for a, _ in scalars if isinstance(a, Weight | Exp)]
        own = [a for a, n in scalars if isinstance(a, Dot) and name in (a.left, a.right) and n == 1 and i in axes(a)]
        others = tuple(z for z in scalars if z[0] not in weights and z[0] not in own[:1])
        if not weights and own and all(axes(a) <= {i} for a, _ in others):
            row = own[0].left if own[0].right == name else own[0].right
            out = out + Poly.term((others, row), c)
        elif weights:
            out = out + _weighted_row(cx, scalars, c, weights, i, j)
        else:
            score = score + Poly.term((scalars, v), c)
    if score.terms:
        out = out + total(cx, PendingSum(i, j, weigh("sum", score.frozen), (), (name,)))
    return out


def _weighted_row(cx: Context, scalars: Scalars, c: Fraction, weights: list[Weight | Exp], i: Axis, j: Axis) -> Poly:
    """One monomial with a weight or an exponential in it."""
    (first, *more) = weights
    others = tuple(z for z in scalars if z[0] != first)
    if more or any(len(axes(a)) > 1 for a, _ in others) or dict(scalars)[first] != 1:
        p = Poly.const(c)
        for atom, power in scalars:
            one = tabulate(cx, Poly.atom(atom)) if atom in weights else Poly.atom(atom) if power > 0 else None
            p = p * (one.power(power) if one is not None else Poly.term((((atom, power),), None)))
        return rows(cx, p, i, j)
    rule = first.rule if isinstance(first, Weight) else weigh("exp", first.body)
    of_key = tuple(z for z in others if axes(z[0]) == {j})
    of_query = tuple(z for z in others if axes(z[0]) != {j})
    return Poly.term((of_query, None), c) * total(cx, PendingSum(i, j, rule, of_key, (cx.one_hot(j),)))


def _transposed(cx: Context, a: Weight, i: Axis, j: Axis) -> Poly:
    """Weights chosen by j over the tokens i, needed on i: exp(S - lse_j) for softmax, S / sum for normalize."""
    rule = a.rule
    if rule.masks or rule.kind not in ("softmax", "normalize") or rule.how.sharpness is not None:
        mine, theirs = cx.said([i]), cx.said([j])
        raise NoAttentionForm(f"this choice runs over {mine}, so its weights belong to {theirs}", BELONGS)
    score = thaw(rule.score)
    if rule.kind == "softmax":
        lse = total(cx, PendingSum(j, i, weigh("lse", rule.score)))
        return Poly.atom(Exp(resolve(cx, score - lse).frozen))
    mass = total(cx, PendingSum(j, i, weigh("sum", rule.score)))
    if rule.self_key == "last":  # where the mass is 0 an `else` counts, and all weights are 0 whatever divides them
        empty = total(cx, PendingSum(j, i, rule, own=Poly.const(1).frozen, empty=0))
        slot = cx.function(j.set, "reciprocal", linear(cx, mass + empty, j))
        return score * Poly.atom(Scalar(slot, j))
    (atom,) = mass.atoms
    return score * Poly.term((((resolved(cx, atom), -1),), None))
