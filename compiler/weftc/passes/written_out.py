"""Three tokens at once: an axis over a fixed set is written out, one token of it after the other.

    rank[i,j] = sum[h] 1 where D[i,h] < D[i,j]     for every j: a sum over h of what token i alone knows of j
    sum[e] |x[i,e] - c[j,e]|                       for every e: a function of the pair (i, j); their sum

While an axis is written out it is `pinned`: a column of a row is one number of its token, and what the pinned token
itself holds is brought to the token that an equation is for. All columns ride on the same heads where they can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from weftc.core.types import FieldType
from weftc.graph.node import Axis, Node, Reduction
from weftc.normal.slots import Leaf, Map, NormalSlot
from weftc.passes.context import Context, NoAttentionForm
from weftc.passes.heads import ANY, fixed_side, linear, resolve, slot_of, total
from weftc.passes.polynomial import MaskRule, PendingSum, Poly, Scalar, Scalars, Vector, VectorAtom, weigh
from weftc.passes.sums import mask_axes

Lower: TypeAlias = Callable[[Context, Node], Poly]
Masks: TypeAlias = Callable[[Context, tuple[Node, ...]], tuple[MaskRule, ...]]
MOST = 512  # tokens that are written out, all axes together
AGAIN = 3  # axes that are written out at the same time


def too_many(cx: Context, axis: Axis) -> bool:
    """Whether writing out one more axis goes too far."""
    size = cx.tokens(axis)
    if size is None or len(cx.pinned) >= AGAIN or axis in cx.pinned:
        return True
    for other in cx.pinned:
        size *= cx.tokens(other) or 1
    return size > MOST


def pinned_read(cx: Context, field: FieldType, slot: NormalSlot, on: tuple[Axis, ...]) -> Poly:
    """A field of a pinned token, as the token that the equation is for reads it: all keys but one add nothing."""
    home = on[0]
    key = Axis(home.rank, ANY, home.set)
    size = cx.tokens(home)
    assert size is not None
    here = Scalar(cx.pick(cx.leaf(home.set, Leaf("name"), size), cx.pinned[home]), key)
    scalars: Scalars = ((here, 1),) if size > 1 else ()
    vectors: tuple[VectorAtom, ...] = ()
    if len(on) == 2 and on[1] in cx.pinned:
        scalars = (*scalars, (Scalar(cx.pick(slot, cx.pinned[on[1]]), key), 1))
    elif field.is_pair or field.width is not None:
        vectors = (Vector(slot, key),)
    else:
        scalars = (*scalars, (Scalar(slot, key), 1))
    found = total(cx, PendingSum(cx.home, key, weigh("sum", Poly.const(1).frozen), scalars, vectors))
    return found.dot(Poly.atom(cx.one_hot(on[1]))) if vectors and len(on) == 2 else found


def rows_written_out(cx: Context, node: Node, lower: Lower, order: tuple[Axis, Axis] | None = None) -> Poly | None:
    """A number of two tokens, one of a fixed set, column by column; None if that goes too far."""
    free = frozenset(node.shape.axes) - cx.pinned.keys()
    if node.shape.width is not None or len(free) != 2:
        return None
    try:
        i, j = order or fixed_side(cx, free)
    except NoAttentionForm:
        return None
    if too_many(cx, j):
        return None
    slot = stacked(cx, node, lower, i, j)
    return cx.row(slot, i, j)


def stacked(cx: Context, node: Node, lower: Lower, i: Axis, j: Axis) -> NormalSlot:
    """The slot of token i that holds an expression of (i, j) for every j."""
    size = cx.tokens(j)
    assert size is not None
    forms = []
    for place in range(size):
        inside = replace(cx.pin(j, place), home=i)
        forms.append(linear(inside, lower(inside, node), i))
    return cx.derive(i.set, size, Map("stack", forms=tuple(forms)))


def sum_written_out(cx: Context, node: Node, lower: Lower, masks: Masks) -> Poly | None:
    """A sum or plain mean over a fixed set, term by term; None if that is no way."""
    how = node.detail
    assert isinstance(how, Reduction)
    k, body, weighted, where = how.axis, node.part("body"), node.part("weighted"), node.parts("where")
    plain = not where and weighted is None
    if how.kind not in ("sum", "mean") or node.part("by") is not None or too_many(cx, k) or body is None:
        return None
    if how.kind == "mean" and not plain:
        return None
    size = cx.tokens(k)
    assert size is not None
    known = _condition_rows(cx, k, masks(cx, where))
    out = Poly()
    for place in range(size):
        inside = replace(cx.pin(k, place), noted=[])
        term = lower(inside, body)
        if weighted is not None:
            term = term * lower(inside, weighted)
        if inside.noted:
            return None
        if where:
            counts = known[place] if known else _condition_pair(inside, masks(inside, where))
            if counts is None:
                return None
            term = term * counts
        out = out + term
    return out.scale(Fraction(1, size)) if how.kind == "mean" else out


def _condition_rows(cx: Context, k: Axis, masks: Sequence[MaskRule]) -> list[Poly]:
    """Conditions on k and at most one other token, as the numbers 0 and 1 on that token: one for every k."""
    others = (mask_axes(masks) | {k}) - {k}
    if len(others) > 1 or not masks:
        return []
    (i,) = others or {cx.home}
    row = PendingSum(i, k, weigh("sum", Poly.const(1).frozen, tuple(masks)), (), (cx.one_hot(k),))
    slot = slot_of(cx, row)
    return [Poly.atom(Scalar(cx.pick(slot, place), i)) for place in range(slot.width)]


def _condition_pair(cx: Context, masks: Sequence[MaskRule]) -> Poly | None:
    """Conditions on two tokens, one of a fixed set, as the numbers 0 and 1."""
    on = mask_axes(masks)
    if len(on) != 2:
        return None
    try:
        i, j = fixed_side(cx, on)
    except NoAttentionForm:
        return None
    row = PendingSum(i, j, weigh("sum", Poly.const(1).frozen, tuple(masks)), (), (cx.one_hot(j),))
    return resolve(cx, total(cx, row)).dot(Poly.atom(cx.one_hot(j)))
