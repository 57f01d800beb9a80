"""Null keys as tokens (style null=token): a null key competes with score s(query) and a constant value.

As a token of the key stream it is 0 in every slot but its own: `null` holds 1 and takes the score, <s, null>; `null`,
`null #S` and `null 1/#S` take the value. Every other dot product with it is 0. Heads that should not see it read the
slot of ones, which is 0 there.

spec      tokens i, l in s inputs x[i] : R layer m[i] = (sum[l] exp(x[i]*x[l])) / (1 + sum[l] exp(x[i]*x[l])) outputs m
before    head s <- s  softmax
              score <x, x>
              value ~1 += 1
              self  score 0
after     head s <- s  softmax
              score <x, x>
              value ~1 += 1
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from weftc.core.errors import InputError
from weftc.normal.form import NormalForm, NormalStep, Pattern, is_leaf
from weftc.normal.slots import (
    Attended,
    DotPart,
    Form,
    Leaf,
    Map,
    NormalFactor,
    NormalHead,
    NormalMask,
    NormalScore,
    NormalSlot,
    SlotTable,
    form,
    just,
    label,
)

BLIND = ("sum", "exp", "normalize")  # a key whose value and dot products are 0 adds nothing to these


def null_tokens(normal: NormalForm) -> NormalForm:
    """The same program with a token for every null key."""
    heads = [s.content.head for step in normal.steps for s in step.local if isinstance(s.content, Attended)]
    nulls = frozenset(head.keys for head in heads if isinstance(head.self_key, tuple))
    if not nulls:
        return normal
    moving = _Moving(nulls)
    for slot in (*normal.fields, *normal.ones.values()):
        moving.slot(slot)
    return replace(
        normal,
        prelude=tuple(map(moving.step, normal.prelude)),
        layer=tuple(map(moving.step, normal.layer)),
        readout=tuple(map(moving.step, normal.readout)),
        fields=tuple(map(moving.slot, normal.fields)),
        ones={stream: moving.slot(one) for stream, one in normal.ones.items()},
        objective=normal.objective and (moving.slot(normal.objective[0]), normal.objective[1]),
        identities={
            stream: replace(
                own,
                slots=tuple(map(moving.slot, own.slots)),
                squares=tuple(map(moving.slot, own.squares)),
                one=None if own.one is None else moving.slot(own.one),
            )
            for stream, own in normal.identities.items()
        },
        nulls=nulls,
    )


class _Moving:
    """Slots as they were -> slots with null tokens."""

    def __init__(self, nulls: frozenset[str]) -> None:
        self.nulls = nulls
        self.table = SlotTable()
        self.made: dict[NormalSlot, NormalSlot] = {}

    def step(self, step: NormalStep) -> NormalStep:
        for slot in step.slots:
            self.slot(slot)
        return NormalStep(
            tuple((self.slot(target), self.form(terms)) for target, terms in step.commit),
            step.equations,
            tuple(map(self.slot, step.writes)),
            tuple(Pattern(p.name, self.head(p.head), self.form(p.scale)) for p in step.patterns),
        )

    def slot(self, slot: NormalSlot) -> NormalSlot:
        if slot not in self.made:
            match slot.content:
                case Leaf() as content:
                    made: Leaf | Map | Attended = content
                case Map(function, a, b, terms, fallback, flag):
                    other = None if fallback is None else self.form(fallback)
                    made = Map(function, self._maybe(a), self._maybe(b), self.form(terms), other, self._maybe(flag))
                case Attended(head, value, own):
                    kept = None if value is None else self.form(value)
                    made = Attended(self.head(head), kept, self.form(own))
                    if isinstance(head.self_key, tuple):
                        extra = [term for slot, c in own for term in self._constant(head, slot, c)]
                        made = Attended(made.head, form([*(kept or ()), *extra]))
            self.made[slot] = self.table.slot(slot.stream, slot.width, made, slot.span)
        return self.made[slot]

    def _maybe(self, slot: NormalSlot | None) -> NormalSlot | None:
        return None if slot is None else self.slot(slot)

    def form(self, terms: Form) -> Form:
        return form((self.slot(s), c) for s, c in terms)

    def score(self, score: NormalScore) -> NormalScore:
        dots = tuple(
            replace(p, query=self.form(p.query), key=self.form(p.key), factors=self.factors(p.factors))
            for p in score.dots
        )
        l2s = tuple(
            replace(
                p,
                query=self.form(p.query),
                key=self.form(p.key),
                scale=p.scale and (p.scale[0], self.slot(p.scale[1])),
                beside=tuple((self.form(q), self.form(k), w) for q, k, w in p.beside),
                factors=self.factors(p.factors),
            )
            for p in score.l2s
        )
        return NormalScore(dots, l2s)

    def factors(self, factors: tuple[NormalFactor, ...]) -> tuple[NormalFactor, ...]:
        return tuple(replace(factor, score=self.score(factor.score)) for factor in factors)

    def head(self, head: NormalHead) -> NormalHead:
        score = self.score(head.score)
        masks = tuple(replace(m, score=self.score(m.score)) for m in head.masks)
        own = head.self_key
        if isinstance(own, tuple):
            if score.l2s:
                raise InputError(
                    f"null=token: a score of {head.query} keeps a distance, so no token is null; use null=key"
                )
            if own:
                score = NormalScore((*score.dots, DotPart(self.form(own), just(self._null(head.keys)), 1)))
            own = None
        elif head.keys in self.nulls and (head.how.kind not in BLIND or score.factors):
            seen = DotPart(just(self._one(head.query)), just(self._one(head.keys)), 1)
            masks = (*masks, NormalMask(">", NormalScore((seen,))))
        bounds = tuple(replace(b, slots=tuple(map(self.slot, b.slots))) for b in head.bounds)
        return replace(head, score=score, masks=masks, self_key=own, bounds=bounds)

    def _one(self, stream: str) -> NormalSlot:
        return self.table.slot(stream, 1, Leaf("one"))

    def _null(self, stream: str, of: str = "", power: int = 0) -> NormalSlot:
        return self.table.slot(stream, 1, Leaf("null", of, power))

    def _constant(self, head: NormalHead, slot: NormalSlot, c: Fraction) -> Form:
        """A slot that is the same number on every token, as the null token holds it."""
        match slot.content:
            case Leaf("one"):
                return ((self._null(head.keys), c),)
            case Leaf("count", name):
                return ((self._null(head.keys, name, 1), c),)
            case Map("reciprocal", form=((source, factor),)) if is_leaf(source, "count"):
                assert isinstance(source.content, Leaf)
                return ((self._null(head.keys, source.content.name, -1), c / factor),)
        what = f"the null key of {head.query} has a value of its own on every token ({label(slot)})"
        raise InputError(f"null=token: {what}, so no single token holds it; use null=key")
