"""Sums over tokens, and weightings.

A sum over an open set is linear: every term becomes what does not depend on the summed token, times one `sum` atom.
softmax and normalize are quotients of such sums, so that their invariances need no rule of their own. The other
weightings are not interpreted: a choice is named by its rule and its scores, less what cannot change it. Keys of a
fixed set are written out one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from weftc.prover.kernel.functions import Functions
from weftc.prover.kernel.polynomials import (
    Frozen,
    Mono,
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
from weftc.prover.kernel.rules import NotAnInstance, Unproved
from weftc.prover.kernel.terms import ChoiceTerm, WeighingTerm

SHIFT_FREE = frozenset({"argmax", "top", "normmax", "sparsemax", "entmax15"})  # choices; their weights add up to one
INCREASING = ("tanh", "sigmoid", "softplus")
SCALE_FREE = frozenset({"argmax", "top", "normmax", "best"})
ONE = number(1)
LARGEST = WeighingTerm("best")


@dataclass(frozen=True, slots=True)
class Keys:
    """Weights of the keys: of an open set one polynomial about the key token, of a fixed set one per token."""

    weights: tuple[Poly, ...]
    empty: Poly  # 1 where no key is eligible or there is no weight; the weights are 0 there
    own: Poly  # the weight of the query token itself, where it competes

    def frozen(self) -> tuple[tuple[Frozen, ...], Frozen, Frozen]:
        """The same as a value."""
        return tuple(map(freeze, self.weights)), freeze(self.empty), freeze(self.own)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Scores and masks of the keys: of an open set one of each, about the token `bound`; of a fixed set one per token.

    `own` is the score with which one more key competes.
    """

    scores: tuple[Poly, ...]
    masks: tuple[Poly, ...]
    over: str | None = None
    bound: int = -1
    own: Poly | None = None

    def frozen(self) -> tuple[object, ...]:
        """The same as a value."""
        own = None if self.own is None else freeze(self.own)
        return tuple(map(freeze, self.scores)), tuple(map(freeze, self.masks)), self.over, self.bound, own


class Kernel(Functions):
    """Terms with all rules."""

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
        if p:
            self.journal.note("sum", "sum", (over, bound, freeze(p)), freeze(result))
        if len(result) > 1 and self.is_nonnegative(p):
            self.squares.add(self.as_square(result))
        return result

    def _sum(self, over: str, bound: int, inside: Mono) -> Poly:
        if not inside:
            return self.atom("count", over)
        if len(inside) == 1 and inside[0][1] == 1:
            atom = self.atoms[inside[0][0]]
            if atom.kind == "weight" and atom.data[2] == "open" and atom.tokens.index(bound) == len(atom.tokens) - 1:
                result = self._others(inside[0][0])
                self.journal.note("weights add up", "sum", (over, bound, ((inside, 1),)), freeze(result))
                return result
        local, tokens = self.local({inside: 1}, bound)
        return self.atom("sum", (over, next(iter(local))), tokens)

    def _others(self, weight: int) -> Poly:
        """What the weights of the keys of an open set add up to: one, less the self key's, or zero without a key."""
        atom = self.atoms[weight]
        choice, places, _ = atom.data
        tokens = atom.tokens[:places]
        if self.choices[choice].own is not None:
            return subtract(ONE, self.atom("weight", (choice, places, "own"), tokens))
        closed = self.empties.get(choice)
        return subtract(ONE, {} if closed is None else self.open(closed, tokens))

    def _summed(self, keys: Candidates, terms: Sequence[Poly]) -> Poly:
        return add({}, *terms) if keys.over is None else self.total(keys.over, keys.bound, terms[0])

    # ---- weightings --------------------------------------------------------------------------------------------------

    def weigh(self, rule: WeighingTerm, keys: Candidates) -> Keys:
        """The weights of the keys."""
        if rule.kind in ("softmax", "normalize"):
            name, found = "shares", self._shares(rule, keys)
        elif rule.kind in ("sum", "exp"):
            name, found = "plain weights", self._plain(rule, keys)
        elif rule.kind not in SHIFT_FREE:
            raise Unproved(f"there is no rule for the weighting {rule.kind}")
        elif keys.over is None and keys.own is None and keys.masks == (ONE,):
            name, found = "one candidate", Keys((ONE,), {}, {})
        else:
            decided = self._decided(rule, keys)
            name, found = ("numbers", decided) if decided is not None else ("choice", self._choice(rule, keys))
        self.journal.note(name, "weigh", (rule, keys.frozen()), found.frozen())
        return found

    def _plain(self, rule: WeighingTerm, keys: Candidates) -> Keys:
        def weight(p: Poly) -> Poly:
            return self.exp(p) if rule.kind == "exp" else p

        weights = (self.multiply(weight(s), m) if m else {} for s, m in zip(keys.scores, keys.masks, strict=True))
        return Keys(tuple(weights), {}, {} if keys.own is None else weight(keys.own))

    def _shares(self, rule: WeighingTerm, keys: Candidates) -> Keys:
        """Weights as shares of their mass."""
        soft = rule.kind == "softmax"
        parts = self._plain(WeighingTerm("exp" if soft else "sum"), keys)
        mass = add(self._summed(keys, parts.weights), parts.own)
        if not mass:
            return Keys(tuple({} for _ in keys.scores), ONE, {})
        inverse = self.inverse(mass)
        weights = tuple(self.multiply(part, inverse) for part in parts.weights)
        empty = {} if soft and (keys.own is not None or ONE in keys.masks) else self.nothing(mass)
        return Keys(weights, empty, self.multiply(parts.own, inverse))

    def _decided(self, rule: WeighingTerm, keys: Candidates) -> Keys | None:
        """The weights of a choice among plain numbers."""
        values, eligible = [constant(p) for p in keys.scores], [constant(p) for p in keys.masks]
        if keys.over is not None or keys.own is not None or rule.kind != "argmax" or rule.ties == "within":
            return None
        if None in values or None in eligible:
            return None
        kept = [place for place, flag in enumerate(eligible) if flag]
        if not kept:
            return Keys(tuple({} for _ in values), ONE, {})
        best = max(Fraction(values[place] or 0) for place in kept)
        chosen = [place for place in kept if values[place] == best]
        chosen = chosen[:1] if rule.ties == "first" else chosen
        share = number(Fraction(1, len(chosen)))
        return Keys(tuple(share if place in chosen else {} for place in range(len(values))), {}, {})

    def _choice(self, rule: WeighingTerm, keys: Candidates) -> Keys:
        """Weights that are named by what chooses: scores without a shift and a scale, in names of their own."""
        empty = {} if keys.own is not None else self._nobody(keys)
        rows = [*keys.scores, keys.own] if keys.own is not None else list(keys.scores)
        ranks = rule.kind in ("argmax", "top") and rule.ties != "within"
        _, rows = self._unshifted(keys, self._in_order(keys, rows) if ranks else rows)
        while ranks and (simpler := self._in_order(keys, rows)) != rows:
            _, rows = self._unshifted(keys, simpler)
        free, names = self._names(keys, rows, empty)
        rule, rows, _ = self._unscaled(rule, [self.rename(p, names) for p in rows])
        choice = self._named(rule, keys, rows, names, empty)
        size = len(free)
        if keys.over is not None:
            weights: tuple[Poly, ...] = (self.atom("weight", (choice, size, "open"), (*free, keys.bound)),)
        else:
            weights = tuple(
                self.atom("weight", (choice, size, place), free) if mask else {}
                for place, mask in enumerate(keys.masks)
            )
        return Keys(weights, empty, {} if keys.own is None else self.atom("weight", (choice, size, "own"), free))

    def _in_order(self, keys: Candidates, rows: list[Poly]) -> list[Poly]:
        """Simpler scores in the same order: squares of lengths, exponents of exponentials, what a function is of."""
        simplers: list[Callable[[Poly], tuple[int, Poly] | None]] = [self._squared_length, self._exponent]
        simplers += [partial(self._inside, function) for function in INCREASING]
        for simpler in simplers:
            found = [simpler(row) for row in rows]
            signs = {one[0] for one in found if one is not None and one[1]}
            if len(signs) == 1 and None not in found:
                (sign,) = signs
                result = [scale(one[1], sign) for one in found if one is not None]
                operands = (keys.over, keys.bound, keys.own is not None, tuple(map(freeze, rows)))
                self.journal.note("increasing", "order", operands, tuple(map(freeze, result)))
                return result
        return rows

    def _squared_length(self, row: Poly) -> tuple[int, Poly] | None:
        """The sign of a row, and its square: of a product with a root that is not negative, or of an absolute value."""
        if not row:
            return 1, {}
        if len(row) == 1:
            ((mono, c),) = row.items()
            size = {mono: magnitude(c)}
            if any(self.atoms[a].kind == "sqrt" for a, _ in mono) and self.is_termwise_nonnegative(size):
                return (1 if c > 0 else -1), self.multiply(size, size)
        for mono, c in row.items():
            if len(mono) == 1 and mono[0][1] == 1 and self.atoms[mono[0][0]].kind == "relu":
                atom = self.atoms[mono[0][0]]
                p = self.open(atom.data, atom.tokens)
                if row == scale(subtract({mono: 2}, p), Fraction(c) / 2):  # |p| = 2 relu(p) - p
                    return (1 if c > 0 else -1), scale(self.multiply(p, p), Fraction(c * c) / 4)
        return None

    def _exponent(self, row: Poly) -> tuple[int, Poly] | None:
        """The sign of a row, and its logarithm: of an exponential."""
        if len(row) != 1:
            return None
        ((mono, c),) = row.items()
        if magnitude(c) != 1 or not mono or any(self.atoms[a].kind != "exp" for a, _ in mono):
            return None
        return (1 if c > 0 else -1), add({}, *({self._inside_exp(a): power} for a, power in mono))

    def _inside(self, function: str, row: Poly) -> tuple[int, Poly] | None:
        """The sign of a row, and what the function in it is of."""
        ((mono, c), *more) = row.items() or (((), 0),)
        if more or magnitude(c) != 1 or len(mono) != 1 or mono[0][1] != 1:
            return None
        atom = self.atoms[mono[0][0]]
        if atom.kind != function:
            return None
        inside = self.open(atom.data, atom.tokens)
        return (1, scale(inside, c)) if function == "tanh" else (1 if c > 0 else -1, inside)

    def _nobody(self, keys: Candidates) -> Poly:
        """1 where no key is eligible."""
        return {} if ONE in keys.masks else self.nothing(self._summed(keys, keys.masks))

    def _names(self, keys: Candidates, rows: Sequence[Poly], empty: Poly) -> tuple[tuple[int, ...], dict[int, int]]:
        """The tokens that a choice is about, and names of their own for these and, last, for the key."""
        tokens = self.tokens([mono for p in (*rows, *keys.masks, empty) for mono in p])
        free = tuple(sorted(tokens - {keys.bound}))
        return free, {token: place for place, token in enumerate((*free, keys.bound))}

    def _named(
        self, rule: WeighingTerm, keys: Candidates, rows: Sequence[Poly], names: Mapping[int, int], empty: Poly
    ) -> int:
        """The number of a choice; what is 1 where it has no candidate is remembered."""
        masks = None
        if any(mask != ONE for mask in keys.masks):
            masks = tuple(freeze(self.rename(mask, names)) for mask in keys.masks)
        many = len(keys.scores)
        own = freeze(rows[many]) if len(rows) > many else None
        choice = self.choice(ChoiceTerm(rule, keys.over, tuple(map(freeze, rows[:many])), masks, own))
        self.empties[choice] = freeze(self.rename(empty, names)) if empty else None
        return choice

    def _unshifted(self, keys: Candidates, rows: list[Poly]) -> tuple[Poly, list[Poly]]:
        """A shift that every candidate has, and the rows without it."""
        if keys.over is None:
            common = dict(self.asked("shift", tuple(map(freeze, rows))))
        elif keys.own is None:
            common = {mono: c for mono, c in rows[0].items() if keys.bound not in self.tokens((mono,))}
        else:
            common = {}
        return common, [subtract(row, common) if common else row for row in rows]

    def _unscaled(self, rule: WeighingTerm, rows: list[Poly]) -> tuple[WeighingTerm, list[Poly], Fraction]:
        """Scores divided by a positive number, and the weighting of these."""
        first = next((row for row in rows if row), None)
        if first is None or rule.kind not in SCALE_FREE:
            return rule, rows, Fraction(1)
        size: Fraction = self.asked("scale", freeze(first))
        if size <= 0:
            raise NotAnInstance("a scale that is not positive")
        if size == 1:
            return rule, rows, size
        gamma = None if rule.gamma is None else rule.gamma * size
        rule = replace(rule, epsilon=rule.epsilon / size, gamma=gamma)
        return rule, [tidy(scale(row, 1 / size)) for row in rows], size

    # ---- numbers: the largest score, log sum exp ---------------------------------------------------------------------

    def largest(self, keys: Candidates) -> tuple[Poly, Poly]:
        """The largest score, and where there is none."""
        empty = self._nobody(keys)
        found, rows = self._unshifted(keys, list(keys.scores))
        if any(rows):
            free, names = self._names(keys, rows, empty)
            _, rows, size = self._unscaled(LARGEST, [self.rename(p, names) for p in rows])
            rows = rows if any(mask != ONE for mask in keys.masks) else sorted(rows, key=freeze)
            choice = self._named(LARGEST, keys, rows, names, empty)
            found = add(found, scale(self.atom("weight", (choice, len(free), "best"), free), size))
        found = tidy(subtract(found, self.multiply(found, empty)))
        self.journal.note("largest", "largest", (keys.frozen(),), (freeze(found), freeze(empty)))
        return found, empty

    def log_sum(self, keys: Candidates) -> tuple[Poly, Poly]:
        """log of a sum of exponentials, and where there is none."""
        parts = self._plain(WeighingTerm("exp"), keys)
        mass = add(self._summed(keys, parts.weights), parts.own)
        empty = {} if keys.own is not None or ONE in keys.masks else self.nothing(mass)
        found = self.log(mass)
        found = subtract(found, self.multiply(found, empty))
        self.journal.note("log sum exp", "log sum", (keys.frozen(),), (freeze(found), freeze(empty)))
        return found, empty
