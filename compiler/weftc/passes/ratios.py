"""Ratios: what a normalised head and its self key can hold, else reciprocals.

(sum w v + a) / (alpha sum w + b)     one normalised head; b > 0 is a null key of weight b / alpha and value a / b
x / y                                 x times a slot that holds 1 / y
"""

from __future__ import annotations

import math
from dataclasses import replace

from weftc.core.tied import Tied
from weftc.core.vocabulary import FUNCTIONS
from weftc.graph.node import Axis
from weftc.normal.slots import Map
from weftc.passes.context import Context, NoAttentionForm
from weftc.passes.heads import function_of_pair, is_positive, linear, resolved, total
from weftc.passes.polynomial import (
    Dot,
    HeadRule,
    PendingSum,
    Poly,
    Scalar,
    Scalars,
    Size,
    VectorAtom,
    axes,
    monomial,
    thaw,
    weigh,
)
from weftc.passes.sums import STORE_FIRST

KEEP_IN_DOMAIN = "keep it in its domain, as in 1 / max(S, 1e-9), log(S + 1e-9) or sqrt(relu(S)): it then has a value"
SUMS = "a sum of such pairs needs no `else`: (sum[l] v[l] / S where l != i) in a step of its own"
VECTORS = "it lowers with a vector per token in place of the pair field: f[i] : R^k instead of f[i,j]"


def token_of(cx: Context, p: Poly) -> Axis:
    """The one token an expression is a function of."""
    named = cx.said(p.axes)
    if len(p.axes) > 2:
        message = f"a function of {len(p.axes)} tokens ({named}); attention relates two"
        raise NoAttentionForm(message, STORE_FIRST, crowded=True)
    if len(p.axes) == 2:
        raise NoAttentionForm(
            f"a function of two tokens ({named}) has no attention form",
            "only exp of a sum of products has, inside a sum over one of the tokens",
            "with one fixed set it would lower: one slot per token of that set",
        )
    return next(iter(p.axes), cx.home)


def belongs_to_a_pair(cx: Context, on: frozenset[Axis]) -> NoAttentionForm:
    """The refusal of an `else` of two tokens."""
    pair = ", ".join(cx.said([axis]) for axis in sorted(on))
    message = f"this `else` belongs to a pair of tokens ({pair}); attention knows it per token"
    return NoAttentionForm(message, VECTORS, code="L303", crowded=True)


def divide(cx: Context, x: Poly, y: Poly, nonzero: bool = False) -> Poly:
    """x / y; `nonzero`: whether y is known not to be 0."""
    if y.is_const:
        if not y.constant:
            raise NoAttentionForm("division by zero", code="L302")
        return x.scale(1 / y.constant)
    if not x.terms and not cx.guarded:
        raise NoAttentionForm("this is always 0, or a division by zero", "write 0", code="L302")
    head = _normalised(cx, x, y) if x.terms else None
    if head is not None:
        return head
    single = y.single
    if single and not single[1]:  # one monomial: negative powers, which may cancel if they are not 0
        scalars, _, c = single
        if all(isinstance(a, Scalar | Size | Dot | PendingSum) and len(axes(a)) <= 1 for a, _ in scalars):
            out = x.scale(1 / c)
            for a, n in scalars:
                atom = resolved(cx, a) if isinstance(a, PendingSum) else a
                if nonzero or is_positive(cx, Poly.atom(atom)):
                    out = out * Poly.term(monomial([(atom, -n)]))
                else:
                    out = out * reciprocal(cx, Poly.atom(atom)).power(n)
            return out
    if len(y.axes) == 2 and not (cx.guarded and not nonzero):
        return x * function_of_pair(cx, "reciprocal", y)
    return x * reciprocal(cx, y, nonzero)


def reciprocal(cx: Context, y: Poly, nonzero: bool = False) -> Poly:
    """1 / y of one token; before an `else`, of 1 where y is 0."""
    if cx.guarded and not nonzero:
        there = bit(cx, sign(cx, y), "square")
        cx.note(there)
        y = y + Poly.const(1) - there
    i = token_of(cx, y)
    return Poly.atom(Scalar(cx.function(i.set, "reciprocal", linear(cx, y, i)), i))


def within_domain(cx: Context, function: str, p: Poly) -> Poly:
    """What log or sqrt is taken of, before an `else`: p, or 1 and 0 where p is outside the domain."""
    signed = sign(cx, p)
    i = token_of(cx, signed)
    kept = Poly.atom(Scalar(cx.function(i.set, "relu", linear(cx, p, i)), i))
    if FUNCTIONS[function].domain == "nonnegative":
        cx.note(Poly.const(1) - bit(cx, -signed, "relu"))
        return kept
    there = bit(cx, signed, "relu")
    cx.note(there)
    return kept + Poly.const(1) - there


def sign(cx: Context, p: Poly) -> Poly:
    """-1, 0 or 1 as a slot of one token: the direction of a vector of one number. Zero is decided exactly."""
    if len(p.axes) > 1:
        pair = ", ".join(cx.said([axis]) for axis in sorted(p.axes))
        message = f"this may have no value for some pair of tokens ({pair}), and the `else` is known per token"
        raise NoAttentionForm(message, KEEP_IN_DOMAIN, SUMS, code="L303", crowded=True)
    i = token_of(cx, p)
    return Poly.atom(Scalar(cx.derive(i.set, 1, Map("unit", form=linear(cx, p, i), fallback=())), i))


def bit(cx: Context, signed: Poly, how: str) -> Poly:
    """0 or 1 of a sign: its square, or its positive part."""
    (i,) = signed.axes
    form = linear(cx, signed, i)
    if how == "relu":
        return Poly.atom(Scalar(cx.function(i.set, "relu", form), i))
    ((slot, _),) = form
    return Poly.atom(Scalar(cx.derive(i.set, 1, Map("product", slot, slot)), i))


def _normalised(cx: Context, x: Poly, y: Poly) -> Poly | None:
    """The ratio of two sums with the same weights as one normalised head, if it is that."""
    sums = [
        (s[0][0], c)
        for (s, v), c in y.frozen
        if len(s) == 1 and not v and s[0][1] == 1 and isinstance(s[0][0], PendingSum)
    ]
    if len(sums) != 1 or sums[0][1] <= 0:
        return None
    base, alpha = sums[0]
    assert isinstance(base, PendingSum)
    b = Poly({m: c for m, c in y.terms.items() if m != (((base, 1),), None)})
    if base.rule.kind not in ("exp", "sum") or base.vectors or any(isinstance(a, PendingSum | Dot) for a in b.atoms):
        return None
    if b.terms and not (is_positive(cx, b) and b.axes <= {base.query}):
        return None
    shares: list[tuple[Poly, Scalars, tuple[VectorAtom, ...]]] = []  # factor, value of the key
    rest = Poly()
    for (scalars, v), c in x.frozen:
        hits = [a for a in [*(s for s, _ in scalars), v] if isinstance(a, PendingSum)]
        if not hits:
            rest = rest + Poly.term((scalars, v), c)
            continue
        s = hits[0]
        same = (s.query, s.key, s.rule) == (base.query, base.key, base.rule)
        if len(hits) > 1 or not same or dict(scalars).get(s, 1) != 1:
            return None
        others = tuple(z for z in scalars if z[0] != s)
        counts = tuple(z for z in others if isinstance(z[0], Size))  # they fit in the value
        value = monomial(s.scalars + counts + tuple((a, -n) for a, n in base.scalars))[0]
        if any(n < 0 and not isinstance(a, Size) for a, n in value):
            return None
        left = tuple(z for z in others if z not in counts)
        shares.append((Poly.term((left, None if v == s else v), c / alpha), value, s.vectors))
    if (rest.terms and not b.terms) or (base.rule.kind == "exp" and base.scalars):
        return None
    if not rest.axes <= {base.query}:  # the null key holds what one token knows
        return None
    rule = _normal_rule(cx, base, b.scale(1 / alpha))
    out = Poly()
    for factor, value, vectors in shares:
        out = out + factor * total(cx, PendingSum(base.query, base.key, rule, value, vectors))
    if rest.terms:
        own = divide(replace(cx, home=base.query), rest, b)
        out = out + total(cx, PendingSum(base.query, base.key, rule, own=own.frozen, empty=rest.width))
    return out


def _normal_rule(cx: Context, base: PendingSum, null: Poly) -> HeadRule:
    """The normalised form of a raw sum; `null` is the weight of the null key (no terms: none)."""
    old = base.rule
    if old.kind == "sum":
        score = thaw(old.score) * Poly.term(monomial(base.scalars))
        made, key = weigh("normalize", score.frozen, old.masks, old.span), null
    else:
        made, key = weigh("softmax", old.score, old.masks, old.span), null
        if null.is_const and null.terms:
            c = null.constant
            key = Poly.const(c.applied("log", math.log) if isinstance(c, Tied) else math.log(c))
        elif null.terms:
            slot = cx.function(base.query.set, "log", linear(cx, null, base.query))
            key = Poly.atom(Scalar(slot, base.query))
    return HeadRule(made.how, made.score, made.masks, key.frozen if null.terms else None, made.span)
