"""Heads of a program -> what they add to every query token, as polynomials.

Keys of a fixed stream are written out one by one; of an open stream there is one, about a token of its own, and what is
weighed is summed over it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

from weftc.prover.kernel import ONE, Candidates, Keys, WeighingTerm, chooses_itself
from weftc.prover.kernel.polynomials import Poly, add, constant, number, subtract
from weftc.prover.kernel.rules import Unproved
from weftc.prover.model_side.matrices import Vector
from weftc.prover.model_side.scores import KEY, ScoreTerms
from weftc_runtime.format.program import Condition, Head

NUMBER_HEADS = ("lse", "max")


@dataclass(frozen=True, slots=True)
class SlotGap:
    """Where a slot has no value in some column; `sure`: exactly there, else perhaps."""

    where: tuple[Poly, ...] = ()
    sure: bool = True


SlotGaps: TypeAlias = dict[tuple[str, str], SlotGap]


@dataclass(slots=True)
class SymbolicResidual:
    """The state of all streams, and where the program would raise an error instead of computing it."""

    z: dict[str, list[Vector]]
    raised: list[Poly] = field(default_factory=list)  # it does where one of these is not zero, for any token
    feared: list[Poly] = field(default_factory=list)  # it may there: what has no value may be read, or have no weight
    assumed: dict[str, None] = field(default_factory=dict)  # conditions that were used
    faults: SlotGaps = field(default_factory=dict)  # of derived slots, for who reads one
    weighed: list[Poly] = field(default_factory=list)  # the weights that the last head gave to the keys of an open set

    def copy(self) -> SymbolicResidual:
        tokens = {name: list(tokens) for name, tokens in self.z.items()}
        return SymbolicResidual(tokens, list(self.raised), list(self.feared), dict(self.assumed), dict(self.faults))

    def read(self, place: tuple[str, str], surely: bool) -> None:
        """A slot is read, by every token or perhaps by none: where it has no value, the program stops, or may."""
        fault = self.faults.get(place, SlotGap())
        (self.raised if surely and fault.sure else self.feared).extend(fault.where)


class HeadTerms(ScoreTerms):
    """The heads of a program."""

    def head(self, head: Head, state: SymbolicResidual) -> tuple[list[dict[int, Poly]], bool]:
        """What a head adds to every query token: column -> polynomial; and whether every key has a weight.

        `state.weighed` gets the weights of the keys of an open set."""
        keys, state.weighed = self.keys(head, state), []
        own = head.self_key
        values: list[dict[int, Poly]] = []
        if head.value and head.weighting.kind not in NUMBER_HEADS:
            values = [self._sparse(head.value, key) for key in keys]
            silent = not any(values) and own is None and not self.streams[head.keys].null
            if silent and (head.weighting.kind in ("sum", "exp") or not (head.masks or self._may_weigh_nothing(head))):
                return [{} for _ in state.z[head.query]], False
        results, every = [], True
        for place, z in enumerate(state.z[head.query]):
            own_values = self._own_values(head, z)
            if head.weighting.kind in NUMBER_HEADS:
                results.append(self._number(head, z, keys, place, own_values, state))
                continue
            found = self.weigh(head, z, keys, place, state)
            if found is None:  # every token chooses itself: all are chosen
                results.append(self._sparse(head.value, z))
                state.weighed.append(ONE)
                continue
            every = every and all(map(self.algebra.is_positive, found.weights))
            state.weighed += [found.weights[0]] if self.streams[head.keys].size is None else []
            results.append(self._output(head, found, values, own_values, state))
        return results, every

    def _may_weigh_nothing(self, head: Head) -> bool:
        """Whether a head without masks may stop, since what it weighs adds up to zero."""
        return head.weighting.kind == "normalize"

    # One more key, beside those of the stream: the query token itself, or the null token of the stream of keys.

    def _rival(self, head: Head, z: Vector) -> Poly | None:
        """The score with which one more key competes."""
        row = head.self_key.row if head.self_key is not None else None
        null = self._null(head)
        if null is not None:
            mask = self._mask(head, z, null, 0, -1)
            if mask not in ({}, ONE):
                raise Unproved(f"head {head.name}: a null token that is sometimes eligible")
            return self.score(head.score, z, null) if mask else None
        return None if row is None else self.matrices.combine(self.matrices[row].rows[0], z)

    def _own_values(self, head: Head, z: Vector) -> dict[int, Poly]:
        """What one more key adds when it has all the weight."""
        null = self._null(head)
        if null is not None:
            return self._sparse(head.value, null) if head.value and head.weighting.kind not in NUMBER_HEADS else {}
        return self._sparse(head.self_key.value, z) if head.self_key is not None and head.self_key.value else {}

    def _null(self, head: Head) -> Vector | None:
        """The null token among the keys: zero but for what the embedding puts there."""
        stream = self.streams[head.keys]
        if not stream.null:
            return None
        if head.self_key is not None:
            raise Unproved(f"head {head.name}: a null token beside a self key")
        z: Vector = [{} for _ in range(stream.width)]
        for embed in self.program.embedding:
            if embed.kind == "null" and embed.stream == stream.name:
                slot = stream.slot(embed.slot)
                value = ONE
                if embed.power:
                    size = self.streams[embed.source].size
                    count = self.algebra.atom("count", embed.source) if size is None else number(size)
                    value = count if embed.power > 0 else self.algebra.inverse(count)
                z[slot.offset : slot.offset + slot.width] = [value] * slot.width
        return z

    def bound(self, head: Head) -> int:
        """The name of the key token."""
        return KEY if self.streams[head.query].size is None else 0

    def keys(self, head: Head, state: SymbolicResidual) -> list[Vector]:
        """The key tokens of a head."""
        tokens = state.z[head.keys]
        if self.streams[head.keys].size is not None or self.bound(head) == 0:
            return tokens
        return [[self.algebra.rename(p, {0: KEY}) for p in tokens[0]]]

    def _sparse(self, name: str, z: Vector) -> dict[int, Poly]:
        """The rows of a matrix times a vector that are not zero."""
        found = {}
        for place, plan in enumerate(self.matrices[name].plans):
            p = z[plan] if isinstance(plan, int) else self.matrices.combine(plan, z) if plan else None
            if p:
                found[place] = p
        return found

    def _output(
        self,
        head: Head,
        found: Keys,
        values: Sequence[dict[int, Poly]],
        own: Mapping[int, Poly],
        state: SymbolicResidual,
    ) -> dict[int, Poly]:
        algebra = self.algebra
        out: dict[int, list[Poly]] = {}
        for weight, value in zip(found.weights, values, strict=True):
            if weight:
                for row, p in value.items():
                    out.setdefault(row, []).append(algebra.multiply(weight, p))
        result = {row: add(*terms) for row, terms in out.items()}
        if self.streams[head.keys].size is None:
            result = {row: algebra.total(head.keys, self.bound(head), p) for row, p in result.items()}
        share = found.empty
        if self.streams[head.keys].null or (head.self_key is not None and head.self_key.row is not None):
            share = found.own
            state.raised += [found.empty] if found.empty else []  # weights that add up to zero together with its own
        elif found.empty:
            if head.self_key is None:
                state.raised.append(found.empty)
                return result
            # Quotients may have cancelled; where nothing is weighed, the keys add nothing.
            result = {row: subtract(p, algebra.multiply(p, found.empty)) for row, p in result.items()}
        if share:
            for row, p in own.items():
                result[row] = add(result.get(row, {}), algebra.multiply(share, p))
        return result

    def weigh(self, head: Head, z: Vector, keys: Sequence[Vector], place: int, state: SymbolicResidual) -> Keys | None:
        """The weights of the keys of one query token; None where every token chooses itself."""
        algebra = self.algebra
        scores = [self.score(head.score, z, key) for key in keys]
        masks = [self._mask(head, z, key, place, number_) for number_, key in enumerate(keys)]
        self._lose(head, z, keys, masks, state)
        own = self._rival(head, z)
        w = head.weighting
        rule = WeighingTerm(w.kind, w.ties, w.epsilon, w.count, w.percent, w.gamma)
        if rule.kind != "argmax":
            rule = replace(rule, ties="first", epsilon=Fraction(0))
        elif rule.ties != "first":
            self.fragile[f"head {head.name}: which keys are tied"] = None
        if rule.kind == "normalize" and not all(algebra.is_nonnegative(score) for score in scores):
            self.fragile[f"head {head.name}: whether signed weights add up to zero"] = None
        elif rule.kind == "normalize" and any(constant(score) is None for score in scores):
            self.fragile[f"head {head.name}: whether weights are all zero"] = None
        candidates = self._candidates(head, scores, masks, own)
        if (
            candidates.over is not None
            and head.query == head.keys
            and rule.kind == "argmax"
            and rule.ties != "within"
            and masks == [ONE]
            and own is None
        ):
            condition = self._distinct(head.query, scores[0])
            if condition is not None:
                state.assumed[condition] = None
                return None
        return algebra.weigh(rule, candidates)

    def _lose(
        self, head: Head, z: Vector, keys: Sequence[Vector], masks: Sequence[Poly], state: SymbolicResidual
    ) -> None:
        """A run stops where a function of the score of a key that counts has no value."""
        for key, mask in zip(keys, masks, strict=True) if head.score.functions else ():
            lost = (self.algebra.multiply(mask, one) for one in self.without_value(head.score, z, key))
            state.raised += [one for one in lost if one]
            if state.raised:
                self.fragile[f"head {head.name}: where a function of a score has a value"] = None

    def _candidates(self, head: Head, scores: Sequence[Poly], masks: Sequence[Poly], own: Poly | None) -> Candidates:
        """The keys of a head as they compete."""
        over = head.keys if self.streams[head.keys].size is None else None
        return Candidates(tuple(scores), tuple(masks), over, self.bound(head) if over else -1, own)

    def _distinct(self, name: str, score: Poly) -> str | None:
        """The condition under which the best key of every token is the token itself, and no other."""
        for condition in self.program.conditions:
            if condition.kind != "distinct" or condition.stream != name:
                continue
            if chooses_itself(self.algebra, score, self._coordinates(condition)):
                return condition.text
        return None

    def _coordinates(self, condition: Condition) -> list[tuple[str, int]]:
        stream = self.streams[condition.stream]
        places = {(one.stream, one.slot) for one in self.program.embedding if one.kind == "position"}
        found: list[tuple[str, int]] = []
        for slot in condition.slots:
            columns = range(stream.slot(slot).width)
            placed = (stream.name, slot) in places
            found += [(stream.name, -1)] if placed else [(slot, column) for column in columns]
        return found

    def _number(
        self,
        head: Head,
        z: Vector,
        keys: Sequence[Vector],
        place: int,
        own: Mapping[int, Poly],
        state: SymbolicResidual,
    ) -> dict[int, Poly]:
        """What a head that returns one number adds: that number times its column."""
        algebra = self.algebra
        scores = [self.score(head.score, z, key) for key in keys]
        masks = [self._mask(head, z, key, place, number_) for number_, key in enumerate(keys)]
        self._lose(head, z, keys, masks, state)
        rival = self._rival(head, z)
        candidates = self._candidates(head, scores, masks, rival)
        if head.weighting.kind == "lse":
            found, empty = algebra.log_sum(candidates)
        elif rival is not None:
            raise Unproved(f"head {head.name}: the largest of scores and a self key")
        else:
            found, empty = algebra.largest(candidates)
        result = {}
        for column, entries in enumerate(self.matrices[head.value].rows if head.value else ()):
            for _, coefficient in entries:
                result[column] = self.matrices.times(coefficient, found)
        if empty:
            if head.self_key is None:
                state.raised.append(empty)
            for column, p in own.items():
                result[column] = add(result.get(column, {}), algebra.multiply(empty, p))
        return result
