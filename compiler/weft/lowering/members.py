"""Members without masks (style members=offset): the weights themselves keep foreign tokens out.

    sum, normalize                      the score is multiplied by the membership <y, e>
    softmax, sparsemax, normmax,        an l2 part c |Y y - Y e|^2, Y = 2^31: 0 for members exactly, 2^63 c for others;
    argmax, exp                         a self key that counts when there are no members scores 2^62 c

With c < 0 the coefficient of the score's own distance the two are one l2 part, [x; 2^31 y] against [x; 2^31 e]. It
equals the mask as long as scores stay within 2^61 |c|; `Bounded` says how large the numbers may be for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from weft.lowering.algebra import Dot, Name, Poly, Vector, indices, thaw
from weft.lowering.normal import NAME, ONE, Form, L2Part, NormalScore, Rule
from weft.lowering.scores import Scores
from weft.lowering.slots import Refused

ROWS = Fraction(2**31)  # Y
LINEAR = ("sum", "normalize")
OFFSET = ("argmax", "softmax", "sparsemax", "normmax", "exp")


@dataclass(frozen=True, slots=True)
class Bounded:
    """A condition of the style: no number in these slots is larger than `limit`."""

    stream: str
    slots: tuple[str, ...]
    limit: float


class Members(Scores):
    """Rules without member masks."""

    bounded: dict[Bounded, None]

    def unmasked(self, rule: Rule) -> tuple[Rule, tuple[Dot, ...]]:
        """The rule with its member masks taken off, and the memberships that offsets have to enforce instead."""
        members = tuple(m for m in rule.masks if m.member)
        if self.styles.members == "mask" or not members:
            return rule, ()
        if rule.kind not in (*LINEAR, *OFFSET):
            what = {"top": "a ranking that counts its candidates", "lse": "logsumexp", "max": "max or min"}[rule.kind]
            raise Refused(f"members=offset has no form for {what} over members", "use members=mask", code="L305")
        dots = tuple(atom for m in members for atom in thaw(m.poly).atoms if isinstance(atom, Dot))
        rule = replace(rule, masks=tuple(m for m in rule.masks if not m.member))
        if rule.kind not in LINEAR:
            return rule, dots
        score = thaw(rule.score)
        for dot in dots:
            score = score * Poly.atom(dot)
        return replace(rule, score=score.frozen), ()

    def offset(
        self, score: NormalScore, members: tuple[Dot, ...], own: Literal["last"] | Form | None, q: str, k: str
    ) -> tuple[NormalScore, Literal["last"] | Form | None]:
        """The score with an l2 part per membership, and the self key as it competes with it."""
        first = score.l2s[0] if len(score.l2s) == 1 and not score.dots else None
        merged = first is not None and first.coefficient < 0 and first.scale is None
        coefficient = first.coefficient if first is not None and merged else Fraction(-1)
        self._bound(score, coefficient, q, k)
        rows = tuple(self._rows(dot, q) for dot in members)
        if first is not None and merged:
            score = NormalScore((), (replace(first, beside=first.beside + rows),))
        else:
            parts = tuple(L2Part(query, key, width, coefficient) for query, key, width in rows)
            score = NormalScore(score.dots, score.l2s + parts)
        return score, {ONE: coefficient * ROWS**2} if own == "last" else own

    def _rows(self, dot: Dot, q: str) -> tuple[Form, Form, int]:
        row, name = (dot.left, dot.right) if isinstance(dot.right, Name) else (dot.right, dot.left)
        assert isinstance(row, Vector)
        assert isinstance(name, Name)
        stored: Form = {row.slot: ROWS}
        named: Form = {self.constant(self.stream(name.index), NAME, name.width): ROWS}
        return (stored, named, name.width) if indices(row) == {q} else (named, stored, name.width)

    def _bound(self, score: NormalScore, coefficient: Fraction, q: str, k: str) -> None:
        """How large the numbers of a score may be so that it stays within 2^61 |c|."""

        def size(form: Mapping[str, Fraction]) -> Fraction:
            return sum((abs(c) for c in form.values()), Fraction(0))

        products = sum((p.width * size(p.query) * size(p.key) for p in score.dots), Fraction(0))
        squares = sum(
            (abs(p.coefficient) * p.width * (size(p.query) + size(p.key)) ** 2 for p in score.l2s), Fraction(0)
        )
        factors = 3 if any(p.scale for p in score.l2s) else 2
        room = -coefficient * ROWS**2 / 2 / max(products + squares, Fraction(1, 2**100))
        limit = 2.0 ** ((room.numerator.bit_length() - room.denominator.bit_length() - 1) // factors)
        sides = {"query": self.stream(q), "key": self.stream(k)}
        found: dict[str, list[str]] = {}
        for side, slot in score.slots():
            if slot not in (ONE, NAME) and slot not in found.setdefault(sides[side], []):
                found[sides[side]].append(slot)
        for stream, slots in found.items():
            if any(self.levels.get((stream, slot)) for slot in slots):
                raise Refused(
                    "members=offset needs scores that read stored fields",
                    "store what the score computes in a step of its own, or use members=mask",
                    code="L305",
                )
            self.bounded[Bounded(stream, tuple(slots), limit)] = None
