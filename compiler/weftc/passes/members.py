"""Members without masks (style members=offset): the weights themselves keep foreign tokens out.

    sum, normalize                      the score is multiplied by the membership <y, e>
    softmax, sparsemax, normmax,        an l2 part c |Y y - Y e|^2, Y = 2^31: 0 for members exactly, 2^63 c for others;
    argmax, exp                         a self key that counts when there are no members scores 2^62 c

With c < 0 the coefficient of the score's own distance the two are one l2 part, [x; 2^31 y] against [x; 2^31 e]. It
equals the mask as long as scores stay within 2^61 |c|; `MagnitudeCondition` says how large the numbers may be for that.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Literal

from weftc.graph.node import Axis
from weftc.normal.slots import Form, L2Part, Leaf, MagnitudeCondition, NormalScore, NormalSlot
from weftc.passes.context import Context, NoAttentionForm
from weftc.passes.polynomial import Dot, HeadRule, OneHotId, Poly, Vector, Weight, axes, thaw

ROWS = Fraction(2**31)  # Y
LINEAR = ("sum", "normalize")
OFFSET = ("argmax", "softmax", "sparsemax", "entmax15", "normmax", "exp")
WITHOUT = {"top": "a ranking that counts its candidates", "lse": "logsumexp", "max": "max or min"}
SelfKey = Literal["last"] | Form | None


def unmasked(cx: Context, rule: HeadRule) -> tuple[HeadRule, tuple[Dot, ...]]:
    """The rule with its member masks taken off, and the memberships that offsets have to enforce instead."""
    members = tuple(m for m in rule.masks if m.member)
    if cx.styles.members == "mask" or not members:
        return rule, ()
    ranked = any(isinstance(atom, Weight) for m in rule.masks for atom in thaw(m.poly).atoms)
    if ranked or rule.kind not in (*LINEAR, *OFFSET):
        what = WITHOUT["top"] if ranked else WITHOUT.get(rule.kind, rule.kind)
        raise NoAttentionForm(f"members=offset has no form for {what} over members", "use members=mask", code="L305")
    dots = tuple(atom for m in members for atom in thaw(m.poly).atoms if isinstance(atom, Dot))
    rule = replace(rule, masks=tuple(m for m in rule.masks if not m.member))
    if rule.kind not in LINEAR:
        return rule, dots
    score = thaw(rule.score)
    for dot in dots:
        score = score * Poly.atom(dot)
    return replace(rule, score=score.frozen), ()


def offset(
    cx: Context, score: NormalScore, members: tuple[Dot, ...], own: SelfKey, q: Axis
) -> tuple[NormalScore, SelfKey, tuple[MagnitudeCondition, ...]]:
    """The score with an l2 part per membership, the self key as it competes with it, and what must stay small."""
    first = score.l2s[0] if len(score.l2s) == 1 and not score.dots else None
    merged = first is not None and first.coefficient < 0 and first.scale is None
    coefficient = first.coefficient if first is not None and merged else Fraction(-1)
    bounds = _bounds(score, coefficient)
    rows = tuple(_rows(cx, dot, q) for dot in members)
    if first is not None and merged:
        score = NormalScore((), (replace(first, beside=first.beside + rows),))
    else:
        parts = tuple(L2Part(query, key, width, coefficient) for query, key, width in rows)
        score = NormalScore(score.dots, score.l2s + parts)
    return score, ((cx.one(q.set), coefficient * ROWS**2),) if own == "last" else own, bounds


def _rows(cx: Context, dot: Dot, q: Axis) -> tuple[Form, Form, int]:
    row, name = (dot.left, dot.right) if isinstance(dot.right, OneHotId) else (dot.right, dot.left)
    assert isinstance(row, Vector)
    assert isinstance(name, OneHotId)
    stored: Form = ((row.slot, ROWS),)
    named: Form = ((cx.vector_slot(name), ROWS),)
    return (stored, named, name.width) if axes(row) == {q} else (named, stored, name.width)


def _bounds(score: NormalScore, coefficient: Fraction) -> tuple[MagnitudeCondition, ...]:
    """How large the numbers of a score may be so that it stays within 2^61 |c|."""

    def size(terms: Form) -> Fraction:
        return sum((abs(c) for _, c in terms), Fraction(0))

    products = sum((p.width * size(p.query) * size(p.key) for p in score.dots), Fraction(0))
    squares = sum((abs(p.coefficient) * p.width * (size(p.query) + size(p.key)) ** 2 for p in score.l2s), Fraction(0))
    factors = 3 if any(p.scale for p in score.l2s) else 2
    room = -coefficient * ROWS**2 / 2 / max(products + squares, Fraction(1, 2**100))
    limit = 2.0 ** ((room.numerator.bit_length() - room.denominator.bit_length() - 1) // factors)
    found: dict[str, dict[NormalSlot, None]] = {}
    for slot in score.slots():
        if not (isinstance(slot.content, Leaf) and slot.content.kind in ("one", "name")):
            found.setdefault(slot.stream, {})[slot] = None
    if any(slot.level for slots in found.values() for slot in slots):
        raise NoAttentionForm(
            "members=offset needs scores that read stored fields",
            "store what the score computes in a step of its own, or use members=mask",
            code="L305",
        )
    return tuple(MagnitudeCondition(tuple(slots), limit) for slots in found.values())
