"""Sums over one axis: each monomial splits into query factors, the pair part (a head) and the value of the key.

    pair part                 head        value                                        afterwards
    a weighting               that one    key factors * key vectors of the products    contract with the query vectors
    exp(S)                    exp         the same                                     the same
    products, vector value    sum         the free vector of the key                   multiply query factors
    products, number          sum         key factors * the other key vectors          contract
    nothing                   sum of 1    key factors, vector                          multiply

Functions of two tokens of open sets are factors of the score.

Factors that belong to no token (counts) go into the value, so that the head alone finishes the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from weftc.graph.node import Axis
from weftc.normal.slots import Map
from weftc.passes.context import IN_PAIRS, Context, NoAttentionForm, slot_poly
from weftc.passes.cost import cost_of
from weftc.passes.entries import entries_product
from weftc.passes.heads import (
    beside_distances,
    crowded_distances,
    has_functions,
    linear,
    merge_rows,
    multiplied_out,
    resolve,
    tabulate,
    total,
)
from weftc.passes.polynomial import (
    Applied,
    Atom,
    Dot,
    Entries,
    Exp,
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
    VectorAtom,
    Weight,
    axes,
    monomial,
    thaw,
    weigh,
)

MOST_COORDINATES = 64  # of a vector with a head for each
STORE_FIRST = "store an intermediate field first, in a step of its own"


def mask_axes(masks: Iterable[MaskRule]) -> frozenset[Axis]:
    return frozenset().union(*(m.axes for m in masks))


def query_of(cx: Context, on: frozenset[Axis], k: Axis, what: str) -> Axis:
    """The token that a sum over k is for."""
    others = on - {k}
    if len(others) > 1:
        raise NoAttentionForm(
            f"{what} relates three tokens ({cx.said(others | {k})}); attention relates two", STORE_FIRST, crowded=True
        )
    return next(iter(others), cx.home)


def sum_over(cx: Context, body: Poly, k: Axis, masks: tuple[MaskRule, ...] = ()) -> Poly:
    """sum[k] body, for each token of the one remaining axis (or of the context's home when there is none)."""
    body, named = _name_third(cx, resolve(cx, body, k), k, masks)
    on = (body.axes | mask_axes(masks)) - ({named} if named else set())
    q = query_of(cx, on, k, "this sum")
    if q == k:
        raise NoAttentionForm(
            f"a sum over {cx.said([k])} has to land on another token",
            f"declare a second index over the set of {cx.said([k])} and use it on one side",
        )
    if not masks and named is None and has_functions(body):
        body, masks = _with_masks_apart(cx, body)
    if named is None and _mixes(body, q, k):
        return _of_differences(cx, body, q, k, masks)
    out = Poly()
    for (scalars, v), c in _separate(cx, body, q, k).frozen:
        out = out + _one(cx, scalars, v, c, q, k, named, masks)
    return out


def _with_masks_apart(cx: Context, body: Poly) -> tuple[Poly, tuple[MaskRule, ...]]:
    """A softmax with conditions, beside functions of scores, as exp(S - lse S) of the keys that meet them."""
    shared = set.intersection(*({a for a, n in s if n == 1 and isinstance(a, Weight)} for s, _ in body.terms))
    weights = [a for a in shared if isinstance(a, Weight) and a.rule.kind == "softmax" and a.rule.masks]
    if len(weights) != 1 or weights[0].rule.how.sharpness is not None:
        return body, ()
    (weight,) = weights
    rule = weigh("lse", weight.rule.score, weight.rule.masks).with_last()
    lse = total(replace(cx, noted=[]), PendingSum(weight.query, weight.key, rule))
    share = Poly.atom(Exp(resolve(cx, thaw(weight.rule.score) - lse).frozen))
    return body.replace(lambda a: share if a == weight else None), weight.rule.masks


def _mixes(body: Poly, q: Axis, k: Axis) -> bool:
    """Whether values of both tokens are added up beside functions of scores: such terms may nearly cancel."""
    terms = [(s, v) for s, v in body.terms if any(isinstance(a, Applied) for a, _ in s)]
    if not terms or len(terms) < len(body.terms) or any(isinstance(a, Weight) for a in body.atoms):
        return False
    sides = {frozenset(axes(v)) for _, v in terms if v} or {
        frozenset().union(*(axes(a) for a, _ in s if not isinstance(a, Applied))) for s, _ in terms
    }
    return len(sides) > 1


def _of_differences(cx: Context, body: Poly, q: Axis, k: Axis, masks: tuple[MaskRule, ...]) -> Poly:
    """A sum whose terms hold values of both tokens: the score of a head is the whole number, so that a difference of
    near values is taken before it is added up; of vectors, with a head for every coordinate."""

    def whole(p: Poly) -> Poly:
        shared = set.intersection(*(set(scalars) for scalars, _ in p.terms))
        of_key = monomial(z for z in shared if axes(z[0]) == {k})[0]
        of_query = monomial(z for z in shared if axes(z[0]) == {q})[0]
        rest = Poly({(tuple(z for z in s if z not in (*of_key, *of_query)), v): c for (s, v), c in p.terms.items()})
        score = _separate(cx, rest, q, k).frozen
        return Poly.term((of_query, None)) * total(cx, PendingSum(q, k, weigh("sum", score, masks), of_key))

    if not body.width:
        return whole(body)
    if body.width > MOST_COORDINATES:
        raise NoAttentionForm(
            f"differences of {body.width} coordinates beside a function of two tokens need a head each;"
            f" the most is {MOST_COORDINATES}",
            "take the difference apart: (sum[l] w * v[l]) - (sum[l] w) * v[i]",
        )
    forms = []
    for place in range(body.width):
        p = Poly()
        for (scalars, v), c in body.frozen:
            assert v is not None
            if not isinstance(v, Vector):
                raise NoAttentionForm(IN_PAIRS, STORE_FIRST)
            p = p + Poly.term(monomial((*scalars, (Scalar(cx.pick(v.slot, place), v.axis), 1))), c)
        forms.append(linear(cx, whole(p), q))
    return slot_poly(cx.derive(q.set, body.width, Map("stack", forms=tuple(forms))), q, body.width)


def _separate(cx: Context, body: Poly, q: Axis, k: Axis) -> Poly:
    """Stores what a single head cannot hold: distances beside another pair part, second weightings."""
    body = beside_distances(cx, body)
    far = crowded_distances(body)
    fixed = cx.tokens(q) or cx.tokens(k)
    if fixed:  # tabulated distances never cancel; expanded ones do
        body = body.replace(lambda a: tabulate(cx, Poly.atom(a)) if a in far else None)
    else:
        body = body.replace(lambda a: multiplied_out(cx, a) if a in far and isinstance(a, KeptDistance) else None)
    if not fixed:
        body = _as_exponentials(cx, body)
    body = _weighted_exponentials(cx, body, q, k)
    crowded = {
        a
        for scalars, _ in body.terms
        for a, _ in scalars
        if isinstance(a, Weight) and (a.key != k or sum(n for b, n in scalars if isinstance(b, Weight)) > 1)
    }
    if crowded and not fixed:
        raise NoAttentionForm(
            "a product of two weightings over open sets has no attention form",
            "a product of softmaxes and exponentials has: it is one exponential",
            "otherwise store one of them in a pair field first: its second set must be fixed",
        )
    if crowded:
        keep = next((a for a in body.atoms if a in crowded and isinstance(a, Weight) and a.key == k), None)
        body = body.replace(lambda a: tabulate(cx, Poly.atom(a)) if a in crowded and a != keep else None)
    return resolve(cx, merge_rows(cx, body), k)


def _as_exponentials(cx: Context, body: Poly) -> Poly:
    """Softmaxes beside other weights as exp(S - lse S): a product of exponentials is one exponential."""

    def several(scalars: Scalars) -> bool:
        return sum(n for a, n in scalars if isinstance(a, Weight | Exp | Applied)) > 1

    found = {a for scalars, _ in body.terms if several(scalars) for a, _ in scalars if isinstance(a, Weight)}

    def swap(a: Atom) -> Poly | None:
        if a not in found or not isinstance(a, Weight) or a.rule.kind != "softmax" or a.rule.masks:
            return None
        if a.rule.self_key is not None or a.rule.how.sharpness is not None:
            return None
        lse = total(cx, PendingSum(a.query, a.key, weigh("lse", a.rule.score)))
        return Poly.atom(Exp(resolve(cx, thaw(a.rule.score) - lse).frozen))

    return body.replace(swap) if found else body


def _weighted_exponentials(cx: Context, body: Poly, q: Axis, k: Axis) -> Poly:
    """Exponentials beside a weighting are values of its keys: rows, if one of the sets is fixed."""
    beside = {
        a
        for scalars, _ in body.terms
        for a, _ in scalars
        if isinstance(a, Exp | Applied) and any(isinstance(b, Weight) for b, _ in scalars)
    }
    if beside and cx.tokens(q) is None and cx.tokens(k) is None:
        raise NoAttentionForm(
            "a weighting times a function of two tokens of open sets has no attention form",
            "a softmax without `where` times such a function has; else store one of the two first, in a pair field",
        )
    return body.replace(lambda a: tabulate(cx, Poly.atom(a)) if a in beside else None) if beside else body


@dataclass(slots=True)
class _Factors:
    """The factors of one monomial, by what becomes of them."""

    rule: HeadRule | None = None
    of_query: list[tuple[Atom, int]] = field(default_factory=list)
    of_key: list[tuple[Atom, int]] = field(default_factory=list)
    pairs: list[Dot] = field(default_factory=list)
    columns: list[Dot] = field(default_factory=list)  # of rows on the key, named by a third token
    distance: KeptDistance | None = None
    exponent: Poly = field(default_factory=Poly)
    functions: list[tuple[Atom, int]] = field(default_factory=list)


def _factors(cx: Context, scalars: Scalars, q: Axis, k: Axis, named: Axis | None) -> _Factors:
    out = _Factors()
    for atom, power in scalars:
        on = axes(atom)
        if isinstance(atom, Weight):
            if out.rule is not None or power != 1:
                raise NoAttentionForm(
                    "a product of two weightings has no attention form",
                    "store one of them in a pair field first (its second set must be fixed)",
                )
            if atom.key != k:
                of, over = cx.said([atom.key]), cx.said([k])
                raise NoAttentionForm(f"the weighting runs over {of} but the sum over {over}", STORE_FIRST)
            out.rule = atom.rule
        elif isinstance(atom, Exp):
            out.exponent = out.exponent + thaw(atom.body).scale(power)
        elif isinstance(atom, Applied):
            out.functions.append((atom, power))
        elif isinstance(atom, KeptDistance):
            out.distance = atom
        elif named and on == {k, named} and isinstance(atom, Dot):
            out.columns += [atom] * power
        elif named and on == {q, named}:
            out.of_query.append((atom, power))
        elif isinstance(atom, Dot) and len(on) == 2:
            if power < 0:
                raise NoAttentionForm("dividing by an expression of two tokens has no attention form here", STORE_FIRST)
            out.pairs += [atom] * power
        elif on == {k} or isinstance(atom, Size):
            out.of_key.append((atom, power))
        elif on <= {q}:
            out.of_query.append((atom, power))
        else:
            raise NoAttentionForm("this sum relates three tokens; attention relates two", STORE_FIRST, crowded=True)
    return out


def _one(
    cx: Context,
    scalars: Scalars,
    v: VectorAtom | None,
    c: Fraction,
    q: Axis,
    k: Axis,
    named: Axis | None,
    masks: tuple[MaskRule, ...],
) -> Poly:
    """The sum of one monomial."""
    found = _factors(cx, scalars, q, k, named)
    if found.columns and (v or len(found.columns) > 1):
        message = "this sum relates three tokens; store the product of the pair fields first"
        raise NoAttentionForm(message, crowded=True)
    mine, v = _apart(v, k)
    free: tuple[VectorAtom, ...] = (v,) if v and axes(v) == {k} else ()
    column: VectorAtom | None = None
    if found.columns:  # the row stored on k is the value; its column is named afterwards
        left, right = found.columns[0].left, found.columns[0].right
        column, row = (left, right) if axes(left) == {named} else (right, left)
        free = (row,)
    if found.distance is not None:
        score = Poly.term(monomial([(found.distance, 1), *found.functions]))
        rule, pulled = weigh("sum", score.frozen, masks), list[Dot]()
    else:
        rule, pulled = _rule(found, bool(free), masks)
    query_vectors = [d.left if axes(d.left) == {q} else d.right for d in pulled]
    key_vectors = [d.right if axes(d.left) == {q} else d.left for d in pulled]
    out = total(cx, PendingSum(q, k, rule, tuple(found.of_key), (*key_vectors, *free)))
    if query_vectors and free:
        out = _contract(cx, out, query_vectors, q, free[0].width)
    elif query_vectors:
        out = out.dot(Poly.atom(Vector(cx.slot_for(q.set, (), query_vectors), q)))
    if column is not None:
        out = out.dot(Poly.atom(column))
    if mine is not None:
        out = entries_product(cx, out, Poly.atom(mine))
    return Poly.term(monomial(found.of_query, v if v and not free else None), c) * out


def _apart(v: VectorAtom | None, k: Axis) -> tuple[VectorAtom | None, VectorAtom | None]:
    """A product of two vectors as that of the query and that of the key; of anything else the first is None."""
    if not isinstance(v, Entries) or k not in axes(v):
        return None, v
    return (v.right, v.left) if v.left.axis == k else (v.left, v.right)


def _rule(found: _Factors, has_vector: bool, masks: tuple[MaskRule, ...]) -> tuple[HeadRule, list[Dot]]:
    """How the head weighs its keys, and the products that are pulled out of the score into the value."""
    pairs = found.pairs
    if found.rule is not None:
        if masks:
            raise NoAttentionForm("write the `where` inside the weighting")
        return found.rule, pairs
    functions = found.functions
    if found.exponent.terms and not functions:
        return weigh("exp", found.exponent.frozen, masks), pairs
    if found.exponent.terms:
        functions = [(Applied("exp", found.exponent.frozen), 1), *functions]
    named = [d for d in pairs if isinstance(d.left, OneHotId) or isinstance(d.right, OneHotId)]
    widest = sorted(pairs, key=lambda d: -d.left.width)[:1]  # what stays in the score makes no value wider
    keep = pairs if has_vector else (named or widest)
    pulled = list(pairs)
    for d in keep:
        pulled.remove(d)
    return weigh("sum", Poly.term(monomial([*((d, 1) for d in keep), *functions])).frozen, masks), pulled


def _contract(cx: Context, total_: Poly, vectors: list[VectorAtom], q: Axis, width: int) -> Poly:
    """Contracts the table that came back with the query's own vectors."""
    (table,) = resolve(cx, total_).atoms
    assert isinstance(table, Vector)
    a = cx.slot_for(q.set, (), vectors)
    return Poly.atom(Vector(cx.derive(q.set, width, Map("contract", a, table.slot)), q))


# ---- three tokens ----------------------------------------------------------------------------------------------------


def _name_third(cx: Context, body: Poly, k: Axis, masks: tuple[MaskRule, ...]) -> tuple[Poly, Axis | None]:
    """sum[k] a[q,k] * B[k,j]: a third axis j over a fixed set is fine when it only names columns of rows.

    What is no row yet may have to be stored as one; the axis for which that costs least is taken.
    """
    on = body.axes - {k}
    if len(on) != 2:
        return body, None
    ways = []
    for j in sorted(on - mask_axes(masks)):
        uses = [a for a in body.atoms if j in axes(a)]
        missing = [a for a in uses if not _is_row(a, j)]
        if cx.tokens(j) and uses and all(_can_be_row(a, k, j) for a in missing):
            try:
                made = body.replace(_into_rows(cx, missing, k, j))
            except NoAttentionForm:
                continue
            ways.append((len(missing), cost_of(made), j, made))
    if not ways:
        return body, None
    _, _, j, made = min(ways, key=lambda way: way[:3])
    return made, j


def _is_row(a: Atom, j: Axis) -> bool:
    """Whether an atom is column j of a row that another token holds."""
    return isinstance(a, Dot) and any(isinstance(v, OneHotId) and v.axis == j for v in (a.left, a.right))


def _can_be_row(a: Atom, k: Axis, j: Axis) -> bool:
    return axes(a) == {k, j} and isinstance(a, Exp | KeptDistance | Weight | Dot)


def _into_rows(cx: Context, atoms: list[Atom], k: Axis, j: Axis):  # type: ignore[no-untyped-def]
    return lambda a: tabulate(cx, Poly.atom(a), "copy", (k, j)) if a in atoms else None
