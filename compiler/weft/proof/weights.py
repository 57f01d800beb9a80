"""Sums over tokens and weightings in canonical form.

A sum over an open set is linear: every term becomes what does not depend on the summed token, times one `sum` atom.
softmax and normalize are quotients of such sums, so that their invariances (a shift per query, a positive scale) need
no rule of their own. The other weightings are uninterpreted: a choice is named by its rule and its scores, after
removing what cannot change it:

    argmax, top, sparsemax, normmax, best    a shift per query
    argmax, top                              a positive scale; with a tolerance or a budget, of both alike

Keys of a fixed set are written out one by one. Among several lists of scores that differ by a shift, the one is named
in which the most frequent coefficient of every term is zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from weft.proof.functions import Functions
from weft.proof.polynomials import (
    UNIT,
    Frozen,
    Mono,
    Number,
    Poly,
    add,
    constant,
    freeze,
    magnitude,
    number,
    scale,
    subtract,
    tidy,
)

ONE = number(1)


@dataclass(frozen=True, slots=True)
class Rule:
    """A weighting and its numbers, as `weft_runtime.ir.Weighting` has them."""

    kind: str
    ties: str = "first"
    epsilon: Fraction = Fraction(0)
    count: int | None = None
    percent: Fraction | None = None
    gamma: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Keys:
    """Weights of the keys: of an open set one polynomial about the key token, of a fixed set one per token."""

    weights: tuple[Poly, ...]
    empty: Poly  # 1 where no key is eligible or there is no weight; the weights are 0 there
    own: Poly  # the weight of the query token itself, where it competes


class Weights(Functions):
    """The algebra with sums and weightings."""

    # ---- sums --------------------------------------------------------------------------------------------------------

    def total(self, over: str, bound: int, p: Poly) -> Poly:
        """The sum of p over the tokens `bound` of an open set."""
        result: Poly = {}
        atoms = self.atoms
        for mono, coefficient in p.items():
            inside = tuple(part for part in mono if bound in atoms[part[0]].tokens)
            outside = mono if not inside else tuple(part for part in mono if bound not in atoms[part[0]].tokens)
            summed = self._sum(over, bound, inside)
            term = {outside: coefficient}
            product = self.multiply(term, summed) if outside else scale(summed, coefficient)
            if len(product) == 1:
                ((key, value),) = product.items()
                new = result.get(key, 0) + value
                if new:
                    result[key] = new
                else:
                    del result[key]
            else:
                result = add(result, product)
        return result

    def _sum(self, over: str, bound: int, inside: Mono) -> Poly:
        if not inside:
            return self.atom("count", over)
        if len(inside) == 1 and inside[0][1] == 1:
            atom = self.atoms[inside[0][0]]
            if atom.kind == "weight" and atom.data[2] == "open" and atom.tokens[-1] == bound:
                return self._others(inside[0][0])
        local, tokens = self.local({inside: 1}, bound)
        return self.atom("sum", (over, next(iter(local))), tokens)

    def _others(self, weight: int) -> Poly:
        """What the weights of the keys of an open set add up to: one, less the self key's, or zero without a key."""
        atom = self.atoms[weight]
        choice, places, _ = atom.data
        tokens = atom.tokens[:places]
        if self.choices[choice][-1] is not None:
            return subtract(ONE, self.atom("weight", (choice, places, "own"), tokens))
        closed = self.empties.get(choice)
        return subtract(ONE, {} if closed is None else self.open(closed, tokens))

    # ---- weightings over an open set ---------------------------------------------------------------------------------

    def weigh(self, rule: Rule, over: str, bound: int, score: Poly, mask: Poly, own: Poly | None = None) -> Keys:
        """Weights of the tokens `bound` of an open set; `own` is the score with which the query token competes."""
        if rule.kind in ("softmax", "normalize"):
            numerator = self.multiply(self.exp(score) if rule.kind == "softmax" else score, mask)
            mass = self.total(over, bound, numerator)
            return self._shares(rule, (numerator,), mass, own, mask == ONE)
        if rule.kind in ("sum", "exp"):
            numerator = self.multiply(self.exp(score) if rule.kind == "exp" else score, mask)
            return Keys((numerator,), {}, {} if own is None else self.exp(own) if rule.kind == "exp" else own)
        empty = {} if mask == ONE or own is not None else self.nothing(self.total(over, bound, mask))
        if own is None:
            score = {mono: c for mono, c in score.items() if bound in self.tokens((mono,))}
        free = sorted(self.tokens([*score, *mask, *(own or {}), *empty]) - {bound})
        names = {token: place for place, token in enumerate(free)} | {bound: len(free)}
        local = self.rename(score, names)
        rule, local, factor = _scaled(rule, local)
        rival = None if own is None else freeze(scale(self.rename(own, names), 1 / factor))
        choice = self.choice(("open", rule, over, freeze(local), freeze(self.rename(mask, names)), rival))
        self._note_empty(choice, empty, names)
        weight = self.atom("weight", (choice, len(free), "open"), (*free, bound))
        rest = {} if own is None else self.atom("weight", (choice, len(free), "own"), tuple(free))
        return Keys((weight,), empty, rest)

    def _note_empty(self, choice: int, empty: Poly, names: dict[int, int]) -> None:
        self.empties[choice] = freeze(self.rename(empty, names)) if empty else None

    def _shares(self, rule: Rule, numerators: Sequence[Poly], mass: Poly, own: Poly | None, some: bool) -> Keys:
        """Weights as shares of their mass; `some`: whether some key is always eligible."""
        if own is not None:
            own = self.exp(own) if rule.kind == "softmax" else own
            mass = add(mass, own)
        if not mass:
            return Keys(tuple({} for _ in numerators), ONE, {})
        inverse = self.inverse(mass)
        weights = tuple(self.multiply(numerator, inverse) for numerator in numerators)
        # A sum of exponentials is never zero unless it is empty.
        empty = {} if rule.kind == "softmax" and (some or own is not None) else self.nothing(mass)
        return Keys(weights, empty, {} if own is None else self.multiply(own, inverse))

    # ---- weightings over a fixed set ---------------------------------------------------------------------------------

    def weigh_list(self, rule: Rule, scores: Sequence[Poly], masks: Sequence[Poly], own: Poly | None = None) -> Keys:
        """Weights of the tokens of a fixed set."""
        if rule.kind in ("softmax", "normalize"):
            soft = rule.kind == "softmax"
            numerators = [
                self.multiply(self.exp(s) if soft else s, m) if m else {} for s, m in zip(scores, masks, strict=True)
            ]
            return self._shares(rule, numerators, add(*numerators), own, any(mask == ONE for mask in masks))
        if rule.kind in ("sum", "exp"):
            found = (self.exp(s) if rule.kind == "exp" else s for s in scores)
            weights = tuple(self.multiply(s, m) for s, m in zip(found, masks, strict=True))
            return Keys(weights, {}, {} if own is None else self.exp(own) if rule.kind == "exp" else own)
        if own is None:
            decided = self._decided(rule, scores, masks)
            if decided is not None:
                return decided
        return self._choice(rule, scores, masks, own)

    def _choice(self, rule: Rule, scores: Sequence[Poly], masks: Sequence[Poly], own: Poly | None) -> Keys:
        masked = any(mask != ONE for mask in masks)
        empty = self.nothing(add(*masks)) if masked and own is None else {}
        rivals = [*scores, own] if own is not None else list(scores)
        free = sorted(self.tokens([mono for p in (*rivals, *masks) for mono in p]))
        names = {token: place for place, token in enumerate(free)}
        shifted = self._shifted([self.rename(p, names) for p in rivals])[1]
        rule, rows, _ = _scaled_list(rule, shifted)
        shown = tuple(freeze(self.rename(mask, names)) for mask in masks) if masked else None
        choice = self.choice(("fixed", rule, tuple(freeze(p) for p in rows), shown, own is not None))
        self._note_empty(choice, empty, names)
        weights = tuple(
            self.multiply(self.atom("weight", (choice, len(free), place), tuple(free)), ONE if mask else {})
            for place, mask in enumerate(masks)
        )
        rest = {} if own is None else self.atom("weight", (choice, len(free), len(scores)), tuple(free))
        return Keys(weights, empty, rest)

    def _decided(self, rule: Rule, scores: Sequence[Poly], masks: Sequence[Poly]) -> Keys | None:
        """The weights of a choice among plain numbers."""
        if len(scores) == 1 and masks[0] == ONE:
            return Keys((ONE,), {}, {})
        values = [constant(p) for p in scores]
        eligible = [constant(p) for p in masks]
        if rule.kind != "argmax" or rule.ties == "within" or None in values or None in eligible:
            return None
        kept = [place for place, flag in enumerate(eligible) if flag]
        if not kept:
            return Keys(tuple({} for _ in scores), ONE, {})
        best = max(Fraction(values[place] or 0) for place in kept)
        chosen = [place for place in kept if values[place] == best]
        chosen = chosen[:1] if rule.ties == "first" else chosen
        share = number(Fraction(1, len(chosen)))
        return Keys(tuple(share if place in chosen else {} for place in range(len(scores))), {}, {})

    # ---- numbers: the largest score, log sum exp ---------------------------------------------------------------------

    def best(self, over: str, bound: int, score: Poly, mask: Poly) -> tuple[Poly, Poly]:
        """The largest score over an open set, and where there is none."""
        empty = {} if mask == ONE else self.nothing(self.total(over, bound, mask))
        common = {mono: c for mono, c in score.items() if bound not in self.tokens((mono,))}
        rest = subtract(score, common)
        if not rest:
            return subtract(common, self.multiply(common, empty)), empty
        free = sorted(self.tokens([*rest, *mask, *empty]) - {bound})
        names = {token: place for place, token in enumerate(free)} | {bound: len(free)}
        local = self.rename(rest, names)
        size = _unit(local)
        choice = self.choice(("best", over, freeze(tidy(scale(local, 1 / size))), freeze(self.rename(mask, names))))
        self._note_empty(choice, empty, names)
        held = self.atom("weight", (choice, len(free), "best"), tuple(free))
        found = add(common, scale(held, size))
        return tidy(subtract(found, self.multiply(found, empty))), empty

    def best_list(self, scores: Sequence[Poly], masks: Sequence[Poly]) -> tuple[Poly, Poly]:
        """The largest of several scores, and where there is none."""
        masked = any(mask != ONE for mask in masks)
        empty = self.nothing(add(*masks)) if masked else {}
        if len(scores) == 1:
            return subtract(scores[0], self.multiply(scores[0], empty)), empty
        free = sorted(self.tokens([mono for p in (*scores, *masks) for mono in p]))
        names = {token: place for place, token in enumerate(free)}
        common, rows = self._shifted([self.rename(p, names) for p in scores])
        if not any(rows):
            held, size = {}, Fraction(0)
        else:
            _, rows, size = _scaled_list(Rule("argmax"), rows)
            shown = tuple(freeze(self.rename(mask, names)) for mask in masks) if masked else None
            order = sorted(range(len(rows)), key=lambda place: freeze(rows[place])) if not masked else range(len(rows))
            choice = self.choice(("best", None, tuple(freeze(rows[place]) for place in order), shown))
            self._note_empty(choice, empty, names)
            held = self.atom("weight", (choice, len(free), "best"), tuple(free))
        found = add(self.rename(common, {place: token for token, place in names.items()}), scale(held, size))
        return tidy(subtract(found, self.multiply(found, empty))), empty

    def log_sum(self, mass: Poly, some: bool) -> tuple[Poly, Poly]:
        """log of a sum of exponentials, and where there is none; `some`: whether there always is one."""
        empty = {} if some else self.nothing(mass)
        found = self.log(mass)
        return subtract(found, self.multiply(found, empty)), empty

    def _shifted(self, rows: Sequence[Poly]) -> tuple[Poly, list[Poly]]:
        """Rows as a common part and what is left of each: per term the most frequent coefficient is the common one."""
        seen: dict[Mono, list[tuple[int, Number]]] = {}
        for place, row in enumerate(rows):
            for mono, coefficient in row.items():
                seen.setdefault(mono, []).append((place, coefficient))
        common: Poly = {}
        for mono, found in seen.items():
            if 2 * len(found) < len(rows):
                continue
            usual = _usual(found, len(rows))
            if usual:
                common[mono] = usual
        return common, [subtract(row, common) if common else row for row in rows]


def _usual(found: list[tuple[int, Number]], size: int) -> Number:
    """The most frequent coefficient of a term (0 where it does not occur); among equals the one of the first row."""
    counts = Counter(coefficient for _, coefficient in found)
    if len(found) < size:
        counts[0] = size - len(found)
    most = max(counts.values())
    present = dict(found)
    return next(c for place in range(size) if counts[c := present.get(place, 0)] == most)


def _scaled(rule: Rule, score: Poly) -> tuple[Rule, Poly, Fraction]:
    """A choice with the scale of its scores taken out."""
    if not score or rule.kind == "sparsemax":
        return rule, score, Fraction(1)
    size = _unit(score)
    if size == 1:
        return rule, score, size
    return _with_scale(rule, size), tidy(scale(score, 1 / size)), size


def _scaled_list(rule: Rule, rows: list[Poly]) -> tuple[Rule, list[Poly], Fraction]:
    first = next((row for row in rows if row), None)
    if first is None or rule.kind == "sparsemax":
        return rule, rows, Fraction(1)
    size = _unit(first)
    if size == 1:
        return rule, rows, size
    return _with_scale(rule, size), [tidy(scale(row, 1 / size)) for row in rows], size


def _unit(p: Poly) -> Fraction:
    """The scale of a polynomial: its least coefficient, so that whole numbers mostly stay whole."""
    return Fraction(min(magnitude(coefficient) for coefficient in p.values()))


def _with_scale(rule: Rule, size: Fraction) -> Rule:
    gamma = None if rule.gamma is None else rule.gamma * size
    return replace(rule, epsilon=rule.epsilon / size, gamma=gamma)


__all__ = ["ONE", "UNIT", "Frozen", "Keys", "Rule", "Weights"]
