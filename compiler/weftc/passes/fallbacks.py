"""`A else B`: where A has no value, B.

one sum that may be empty        the self key of its head, which counts only when nothing else does, brings B
stored weights                   the weights of the real keys, plus B times the weight of the self key
anything else                    a flag says whether everything has a value, and a feed-forward selects
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from weftc.graph.node import Axis
from weftc.normal.slots import Form, Map, NormalSlot
from weftc.passes.context import Context, NoAttentionForm, Opening, slot_poly
from weftc.passes.heads import linear, rows, total
from weftc.passes.polynomial import (
    Applied,
    Atom,
    Dot,
    Exp,
    HeadRule,
    KeptDistance,
    MaskRule,
    OneHotId,
    PendingSum,
    Poly,
    Scalars,
    Weight,
)
from weftc.passes.ratios import belongs_to_a_pair, bit, reciprocal, sign
from weftc.passes.sums import sum_over

ONE_EACH = "give each its own `else`, in parentheses"
SEVERAL = "this `else` covers several things that can be undefined"


def over_keys(
    cx: Context,
    noted: Sequence[Opening],
    k: Axis,
    masks: tuple[MaskRule, ...],
    body: Poly | None = None,
    weights: Poly | None = None,
) -> None:
    """Turns what was noted about the keys of a sum, mean or weighting over k into what holds of its query.

    A sum has a value where all its keys that count have one: where none of them is without.
    """
    rules = [a.rule for a in (body or Poly()).atoms if isinstance(a, Weight) and a.key == k]
    own = [o for o in noted if isinstance(o, tuple) and o[0] in rules]
    rest = [o for o in noted if o not in own]
    if not cx.guarded or not rest:
        cx.note(*noted)
        return
    cx.note(*own)
    for rule in rules:
        if rule.kind != "softmax":
            raise NoAttentionForm(SEVERAL, ONE_EACH, code="L303")
        masks = (*masks, *rule.masks)
    if weights is not None and not weights.is_const:
        masks = (*masks, MaskRule(weights.frozen))
    for opening in rest:
        there = _there(cx, opening)
        if k not in there.axes and not masks:
            cx.note(opening)
            continue
        lost = sum_over(cx, Poly.const(1) - there, k, masks)
        cx.note(Poly.const(1) - bit(cx, sign(cx, lost), "square"))


def _there(cx: Context, opening: Opening) -> Poly:
    """1 where something has a value, 0 where it has none."""
    if isinstance(opening, Poly):
        return opening
    rule, query, key = opening
    return total(cx, PendingSum(query, key, _weights_of(rule).with_last()))


def _weights_of(rule: HeadRule) -> HeadRule:
    """A rule with weights that add up to 1 where the same keys count."""
    if rule.kind not in ("lse", "max"):
        return rule
    score = rule.score if rule.kind == "lse" else Poly().frozen
    return replace(rule, how=replace(rule.how, kind="softmax"), score=score)


def needed(cx: Context, p: Poly, noted: Sequence[Opening], more: Sequence[Opening]) -> Poly:
    """p = A else B, where `more` may leave B without a value: that matters where A has none (see `noted`)."""
    for opening in more:
        flag = Poly.const(1)
        for one in noted:
            flag = flag * _there(cx, one)
        there = flag + (Poly.const(1) - flag) * _there(cx, opening)
        if cx.guarded:
            cx.note(there)
        else:  # 1 / 1 changes nothing, and 1 / 0 stops the run
            p = p * reciprocal(cx, there)
    return p


def otherwise(cx: Context, p: Poly, fallback: Poly, noted: Sequence[Opening] = ()) -> Poly:
    """p else fallback; `noted` is what may leave p without a value."""
    names = {v for q in (p, fallback) for a in q.atoms if isinstance(a, Dot) and (v := _column(a)) is not None}
    by_column = False
    if len(names) == 1 and not any(
        isinstance(a, Weight | Exp | Applied | KeptDistance) for q in (p, fallback) for a in q.atoms
    ):
        (name,) = names
        whole, other = _without(p, name), _without(fallback, name)
        if whole is not None and other is not None and name.axis not in whole.axes | other.axes:
            if whole.width or not other.width:
                return otherwise(cx, whole, other, noted).dot(Poly.atom(name))
            by_column = True  # one number, else a row: as many numbers
    open_sums = [a for a in p.atoms if isinstance(a, PendingSum) and a.rule.may_be_empty]
    nested = [
        v
        for a in p.atoms
        if isinstance(a, Dot)
        for v in (a.left, a.right)
        if isinstance(v, PendingSum) and v.rule.may_be_empty
    ]
    stored = [a for a in p.atoms if isinstance(a, Weight) and a.rule.may_be_empty]
    seen = {a.rule for a in (*open_sums, *nested)} | {a.rule for a in stored}
    if any(isinstance(o, Poly) or o[0] not in seen for o in noted):
        return _select(cx, p, fallback, noted, [*open_sums, *nested])
    if stored:
        return _stored_else(cx, p, fallback, stored, bool(open_sums or nested))
    if not open_sums and not nested:
        return p
    rules = {a.rule for a in open_sums}
    own = {(((a, 1),), None) if not a.width else ((), a): a for a in open_sums}
    rest = Poly({m: c for m, c in p.terms.items() if m not in own})
    plain = (
        not nested
        and not by_column
        and len(rules) == 1
        and all(m in p.terms and is_power_of_two(p.terms[m]) for m in own)  # else B / 3 * 3 would not be B
        and not set(open_sums) & set(rest.atoms)
        and set(rest.atoms) <= set(fallback.atoms)  # else rest + (fallback - rest) would round off what it cancels
    )
    if not plain or any(r.kind in ("lse", "max") and len(open_sums) > 1 for r in rules):
        if not nested and len(rules) == 1 and all(set(open_sums) & {m[1], *dict(m[0])} for m in p.terms):
            return _product_else(cx, p, fallback, open_sums)
        return _select(cx, p, fallback, noted, [*open_sums, *nested])
    out = rest
    for n, (m, s) in enumerate(own.items()):
        c = p.terms[m]
        mine = (fallback - rest).scale(1 / c) if n == 0 else Poly()
        out = out + total(cx, replace(s, rule=s.rule.with_last(), own=mine.frozen)).scale(c)
    return out


def is_power_of_two(c: Fraction) -> bool:
    """Whether dividing a float by c and multiplying it by c gives it back."""
    return all(n & (n - 1) == 0 for n in (abs(c.numerator), c.denominator))


def _product_else(cx: Context, p: Poly, fallback: Poly, sums: list[PendingSum]) -> Poly:
    """Where the keys are missing all terms are 0, since each has a sum over them as a factor: B is added there."""
    swapped = {s: total(cx, replace(s, rule=s.rule.with_last())) for s in sums}
    kept = p.replace(lambda a: swapped.get(a) if isinstance(a, PendingSum) else None)
    return kept + fallback * emptiness(cx, sums[0].rule, sums[0].query, sums[0].key)


def emptiness(cx: Context, rule: HeadRule, query: Axis, key: Axis) -> Poly:
    """1 where no key counts, else 0."""
    return total(cx, PendingSum(query, key, _weights_of(rule).with_last(), own=Poly.const(1).frozen, empty=0))


def _column(a: Dot) -> OneHotId | None:
    """The token of a fixed set that names a column of a row, if an inner product is one."""
    return next((v for v in (a.left, a.right) if isinstance(v, OneHotId)), None)


def _without(p: Poly, name: OneHotId) -> Poly | None:
    """The rows of which a polynomial names one column, if it is a sum of such; a number stands for all columns."""
    out = Poly()
    for (scalars, vector), c in p.frozen:
        named = [(a, n) for a, n in scalars if isinstance(a, Dot) and _column(a) == name]
        if vector or len(named) > 1 or any(n != 1 for _, n in named):
            return None
        row = None
        for a, _ in named:
            assert isinstance(a, Dot)
            row = a.right if a.left == name else a.left
        out = out + Poly.term((tuple(z for z in scalars if z not in named), row), c)
    return out


def _stored_else(cx: Context, p: Poly, fallback: Poly, stored: list[Weight], more: bool) -> Poly:
    """y[i,j] = W[j](...) else B: the weights of the real keys, plus B times the weight of the self key."""
    weight = stored[0]
    alone: tuple[Scalars, None] = (((weight, 1),), None)
    rest = p - Poly.term(alone, p.terms.get(alone, Fraction(0)))
    if more or len(stored) > 1 or alone not in p.terms or weight in rest.atoms:
        raise NoAttentionForm(SEVERAL, ONE_EACH, code="L303")
    kept = Poly.atom(Weight(weight.rule.with_last(), weight.query, weight.key)).scale(p.terms[alone])
    return kept + rest + (fallback - rest) * emptiness(cx, weight.rule, weight.query, weight.key)


def _select(cx: Context, p: Poly, fallback: Poly, noted: Sequence[Opening], partial: list[PendingSum]) -> Poly:
    """The general case: a flag says whether everything has a value, and a feed-forward selects."""
    swapped = {s: total(cx, replace(s, rule=s.rule.with_last())) for s in partial}
    openings: dict[object, Opening] = {o if isinstance(o, tuple) else o.frozen: o for o in noted}
    openings |= {(s.rule, s.query, s.key): (s.rule, s.query, s.key) for s in partial}
    flag = Poly.const(1)
    for opening in openings.values():
        flag = flag * _there(cx, opening)

    def swap(a: Atom) -> Poly | None:
        if isinstance(a, Dot):
            left = swapped.get(a.left) if isinstance(a.left, PendingSum) else None
            right = swapped.get(a.right) if isinstance(a.right, PendingSum) else None
            if left is None and right is None:
                return None
            return (left or Poly.atom(a.left)).dot(right or Poly.atom(a.right))
        if isinstance(a, Weight) and a.rule.may_be_empty:
            return Poly.atom(replace(a, rule=a.rule.with_last()))
        return swapped.get(a) if isinstance(a, PendingSum) else None

    p = p.replace(swap)
    on = p.axes | fallback.axes | flag.axes
    if len(on) == 2 and len(flag.axes) == 1:
        return _select_rows(cx, p, fallback, flag, on)
    if len(on) != 1:
        raise belongs_to_a_pair(cx, on)
    (i,) = on
    width = max(p.width, fallback.width)
    slot = _selected(cx, i, linear(cx, p, i), linear(cx, fallback, i), flag, max(1, width))
    return slot_poly(slot, i, width)


def _select_rows(cx: Context, p: Poly, fallback: Poly, flag: Poly, on: frozenset[Axis]) -> Poly:
    """The same of a pair of tokens, where the flag is of one of them and the set of the other one is fixed."""
    (i,) = flag.axes
    (j,) = on - {i}
    size = cx.tokens(j)
    if size is None or p.width or fallback.width:
        raise belongs_to_a_pair(cx, on)
    form, other = linear(cx, rows(cx, p, i, j), i), linear(cx, rows(cx, fallback, i, j), i)
    return cx.row(_selected(cx, i, form, other, flag, size), i, j)


def _selected(cx: Context, i: Axis, form: Form, other: Form, flag: Poly, width: int) -> NormalSlot:
    flags = linear(cx, flag, i)
    chosen = flags[0][0] if [c for _, c in flags] == [1] else cx.function(i.set, "copy", flags)
    return cx.derive(i.set, width, Map("select", form=form, fallback=other, flag=chosen))
