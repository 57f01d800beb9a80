"""Null keys as tokens (style null=token): a pass over the attention normal form.

A null key competes with score s(query) and constant value v. As a token of the key stream it is 0 in every slot but
those named here: `null` holds 1 and takes the score, <s, null>; `null`, `null #S` and `null 1/#S` take the value. Every
other dot product with it is 0. Heads that should not see it read the slot of ones, which is 0 there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from weft.errors import InputError
from weft.lowering.lower import NormalForm
from weft.lowering.normal import ONE, DotPart, Form, NormalHead, NormalMask, NormalScore, counted

NULL = "null"
BLIND = ("sum", "exp", "normalize")  # a key whose value and dot products are 0 adds nothing to these
Power = tuple[str, int]  # a set and the power of its size


def null_tokens(normal: NormalForm) -> NormalForm:
    """The same program with a token for every null key; its heads are changed in place."""
    rewriting = _Nulls(normal)
    steps = (*normal.prelude, *normal.layer, *normal.readout)
    heads = [head for step in steps for head in step.heads]
    for head in heads:
        if isinstance(head.self_key, Mapping):
            rewriting.token(head, head.self_key)
    for head in (*heads, *(p.head for step in steps for p in step.patterns if p.head not in heads)):
        rewriting.hide(head)
    widths = {
        stream: {**slots, **dict.fromkeys(rewriting.slots.get(stream, {}), 1)}
        for stream, slots in normal.widths.items()
    }
    return replace(normal, widths=widths, nulls=rewriting.slots)


class _Nulls:
    def __init__(self, normal: NormalForm) -> None:
        self.normal = normal
        self.slots: dict[str, dict[str, Power]] = {}  # stream -> slot of its null token -> what it holds
        self.seeing: set[int] = set()  # heads with a null key

    def token(self, head: NormalHead, score: Form) -> None:
        if head.score.l2s:
            raise InputError(f"null=token: a score of {head.query} keeps a distance, so no token is null; use null=key")
        values = dict(head.values)
        for target, own in head.own.items():
            form = dict(values.get(target, {}))
            for slot, c in own.items():
                factor, power = self._constant(head.query, slot)
                name = self._slot(head.keys, power)
                form[name] = form.get(name, Fraction(0)) + c * factor
            values[target] = form
        if score:
            part = DotPart(score, {self._slot(head.keys, ("", 0)): Fraction(1)}, 1)
            head.score = NormalScore((*head.score.dots, part))
        self.slots.setdefault(head.keys, {})
        head.values, head.own, head.self_key = values, {}, None
        self.seeing.add(id(head))

    def _slot(self, stream: str, power: Power) -> str:
        name = {0: NULL, 1: f"{NULL} #{power[0]}", -1: f"{NULL} 1/#{power[0]}"}[power[1]]
        self.slots.setdefault(stream, {})[name] = power
        return name

    def _constant(self, stream: str, slot: str) -> tuple[Fraction, Power]:
        """A slot that is the same number on every token: a factor and a power of a token count."""
        if slot == ONE:
            return Fraction(1), ("", 0)
        sets = self.normal.algorithm.checked.sets
        if counted(slot, sets):
            return Fraction(1), (slot[1:], 1)
        derived = self.normal.derived.get((stream, slot))
        if derived is not None and derived.function == "reciprocal" and len(derived.form) == 1:
            ((source, c),) = derived.form.items()
            if counted(source, sets):
                return 1 / c, (source[1:], -1)
        what = f"the null key of {stream} has a value of its own on every token ({slot})"
        raise InputError(f"null=token: {what}, so no single token holds it; use null=key")

    def hide(self, head: NormalHead) -> None:
        """Keeps the null token from a head that has no null key."""
        if head.keys in self.slots and id(head) not in self.seeing and head.rule.kind not in BLIND:
            one = Fraction(1)
            head.masks = (*head.masks, NormalMask(">", NormalScore((DotPart({ONE: one}, {ONE: one}, 1),))))
