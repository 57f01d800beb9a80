"""A program and its tensors -> what its sub-layers compute, as polynomials: symbolic execution of the dense matrices.

The residual of a stream is one vector of polynomials per token of a fixed stream, and one, about token 0, for an open
stream. Heads become sums over keys with the weightings of `weights`; feed-forwards act on polynomials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from weft.proof.algebra import Poly, add, number, scale, subtract
from weft.proof.erasing import chooses_itself
from weft.proof.matrices import Matrices, Vector
from weft.proof.state import Unproved
from weft.proof.weights import ONE, Keys, Rule, Weights
from weft_runtime.ir import FFN, Attend, Condition, Head, Program, Score, Step, Stream, Sublayer

KEY = 1  # the name of the key token of an open stream, where the query token has the name 0
NUMBER_HEADS = ("lse", "max")


@dataclass(slots=True)
class Residual:
    """The state of all streams, and where the program would raise an error instead of computing it."""

    z: dict[str, list[Vector]]
    raised: list[Poly] = field(default_factory=list)  # indicators
    assumed: dict[str, None] = field(default_factory=dict)  # conditions that were used

    def copy(self) -> Residual:
        return Residual({name: list(tokens) for name, tokens in self.z.items()}, list(self.raised), dict(self.assumed))


class ModelTerms:
    """Executes a program symbolically."""

    def __init__(self, algebra: Weights, program: Program, matrices: Matrices) -> None:
        self.algebra, self.program, self.matrices = algebra, program, matrices
        self.streams = {stream.name: stream for stream in program.streams}
        self._done: dict[Any, Any] = {}

    # ---- steps -------------------------------------------------------------------------------------------------------

    def run(self, step: Step, before: Residual, refresh: bool = True) -> Residual:
        """The residual after a step, its derived slots brought up to date."""
        state = before.copy()
        for sublayer in self._needed(step):
            self.sublayer(sublayer, state)
        if refresh:
            self.refresh(state)
        return state

    def _needed(self, step: Step) -> tuple[Sublayer, ...]:
        """The sub-layers of a step, less those at its end that renew derived slots: the refresh does that anew."""
        sublayers = step.sublayers
        while sublayers and isinstance(last := sublayers[-1], FFN) and last in self.streams[last.stream].derived:
            sublayers = sublayers[:-1]
        return sublayers

    def refresh(self, state: Residual) -> None:
        """Recomputes the derived slots of every token; one without a value matters only where it is read."""
        raised = list(state.raised)
        for stream in self.program.streams:
            for ffn in stream.derived:
                state.z[stream.name] = [self.feed_forward(ffn, z, state) for z in state.z[stream.name]]
        state.raised = raised

    def sublayer(self, sublayer: Sublayer, state: Residual) -> None:
        """Applies one sub-layer."""
        if isinstance(sublayer, FFN):
            name = sublayer.stream
            state.z[name] = [self.feed_forward(sublayer, z, state) for z in state.z[name]]
            return
        new = {name: [self.matrices.apply(carry, z) for z in state.z[name]] for name, carry in sublayer.carry.items()}
        after = {**state.z, **new}
        for head in sublayer.heads:
            added = self.head(head, state)
            after[head.query] = [_added(z, more) for z, more in zip(after[head.query], added, strict=True)]
        state.z = after

    # ---- feed-forwards -----------------------------------------------------------------------------------------------

    def feed_forward(self, ffn: FFN, z: Vector, state: Residual) -> Vector:
        """z' = E z + W f(A z, B z)."""
        used = self.matrices[ffn.a].columns() | (self.matrices[ffn.b].columns() if ffn.b else set())
        key = (id(ffn), tuple(id(z[column]) for column in sorted(used)))
        if key not in self._done:
            raised: list[Poly] = []
            out = self.matrices.apply(ffn.out, self._hidden(ffn, z, raised))
            self._done[key] = (out, raised, [z[column] for column in used], ffn)
        out, raised = self._done[key][:2]
        state.raised += raised
        return _added(self.matrices.apply(ffn.carry, z), dict(enumerate(out)))

    def _hidden(self, ffn: FFN, z: Vector, raised: list[Poly]) -> Vector:
        algebra = self.algebra
        a = self.matrices.apply(ffn.a, z)
        b = None if ffn.b is None else self.matrices.apply(ffn.b, z)
        match ffn.function:
            case "product":
                assert b is not None
                return [algebra.multiply(p, q) for p, q in zip(a, b, strict=True)]
            case "select":
                assert b is not None
                flag = b[-1]
                if algebra.multiply(flag, flag) != flag:
                    raise Unproved("a selection by a number that is not known to be 0 or 1")
                other = subtract(ONE, flag)
                pairs = zip(a, b[:-1], strict=True)
                return [add(algebra.multiply(flag, p), algebra.multiply(other, q)) for p, q in pairs]
            case "unit" | "layer":
                if ffn.function == "layer":
                    mean = scale(add({}, *a), Fraction(1, len(a)))
                    a = [subtract(p, mean) for p in a]
                return self._unit(a, b, raised)
            case "reciprocal":
                if any(not p for p in a):
                    raise Unproved("a feed-forward divides by zero")
        return [algebra.apply(ffn.function, p) for p in a]

    def _unit(self, a: Vector, b: Vector | None, raised: list[Poly]) -> Vector:
        algebra = self.algebra
        square = algebra.dot(a, a)
        if not square:
            if b is None:
                raise Unproved("a norm of zero")
            return b
        factor = algebra.multiply(algebra.sqrt(square), algebra.inverse(square))
        empty = algebra.nothing(square)
        rows = [algebra.multiply(p, factor) for p in a]
        if b is None:
            raised += [empty] if empty else []
            return rows
        there = subtract(ONE, empty)
        return [add(algebra.multiply(p, there), algebra.multiply(q, empty)) for p, q in zip(rows, b, strict=True)]

    # ---- heads -------------------------------------------------------------------------------------------------------

    def head(self, head: Head, state: Residual) -> list[dict[int, Poly]]:
        """What a head adds to every query token: column -> polynomial."""
        keys = self.keys(head, state)
        own = head.self_key
        values: list[dict[int, Poly]] = []
        if head.value and head.weighting.kind not in NUMBER_HEADS:
            values = [self._sparse(head.value, key) for key in keys]
            if not any(values) and own is None and not self.streams[head.keys].null:
                return [{} for _ in state.z[head.query]]
        results = []
        for place, z in enumerate(state.z[head.query]):
            own_values = self._own_values(head, z)
            if head.weighting.kind in NUMBER_HEADS:
                results.append(self._number(head, z, keys, place, own_values, state))
                continue
            found = self.weigh(head, z, keys, place, state)
            if found is None:  # every token chooses itself
                results.append(self._sparse(head.value, z))
                continue
            results.append(self._output(head, found, values, own_values, state))
        return results

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

    def keys(self, head: Head, state: Residual) -> list[Vector]:
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
        self, head: Head, found: Keys, values: Sequence[dict[int, Poly]], own: Mapping[int, Poly], state: Residual
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

    def weigh(self, head: Head, z: Vector, keys: Sequence[Vector], place: int, state: Residual) -> Keys | None:
        """The weights of the keys of one query token; None where every token chooses itself."""
        algebra = self.algebra
        scores = [self.score(head.score, z, key) for key in keys]
        masks = [self._mask(head, z, key, place, number_) for number_, key in enumerate(keys)]
        own = self._rival(head, z)
        w = head.weighting
        rule = Rule(w.kind, w.ties, w.epsilon, w.count, w.percent, w.gamma)
        if rule.kind != "argmax":
            rule = replace(rule, ties="first", epsilon=Fraction(0))
        if self.streams[head.keys].size is not None:
            return algebra.weigh_list(rule, scores, masks, own)
        if (
            head.query == head.keys
            and rule.kind == "argmax"
            and rule.ties != "within"
            and masks == [ONE]
            and own is None
        ):
            condition = self._distinct(head.query, scores[0])
            if condition is not None:
                state.assumed[condition] = None
                return None
        return algebra.weigh(rule, head.keys, self.bound(head), scores[0], masks[0], own)

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
        return [(slot, column) for slot in condition.slots for column in range(stream.slot(slot).width)]

    def _number(
        self, head: Head, z: Vector, keys: Sequence[Vector], place: int, own: Mapping[int, Poly], state: Residual
    ) -> dict[int, Poly]:
        """What a head that returns one number adds: that number times its column."""
        algebra = self.algebra
        scores = [self.score(head.score, z, key) for key in keys]
        masks = [self._mask(head, z, key, place, number_) for number_, key in enumerate(keys)]
        fixed = self.streams[head.keys].size is not None
        rival = self._rival(head, z)
        if head.weighting.kind == "lse":
            terms = [algebra.multiply(algebra.exp(s), mask) for s, mask in zip(scores, masks, strict=True)]
            mass = add({}, *terms) if fixed else algebra.total(head.keys, self.bound(head), terms[0])
            some = rival is not None or ONE in masks
            found, empty = algebra.log_sum(mass if rival is None else add(mass, algebra.exp(rival)), some)
        elif rival is not None:
            raise Unproved(f"head {head.name}: the largest of scores and a self key")
        else:
            best = (
                algebra.best_list(scores, masks)
                if fixed
                else algebra.best(head.keys, self.bound(head), scores[0], masks[0])
            )
            found, empty = best
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

    # ---- scores ------------------------------------------------------------------------------------------------------

    def score(self, score: Score, z: Vector, key: Vector) -> Poly:
        """The score of a query token against a key token."""
        algebra = self.algebra
        total: list[Poly] = []
        for part in score.parts:
            q, k = self._features(part.q, z), self._features(part.k, key)
            if part.kind == "dot":
                raw = algebra.dot(q, k)
            else:
                gaps = [subtract(a, b) for a, b in zip(q, k, strict=True)]
                raw = algebra.dot(gaps, gaps)
                if part.coefficient is not None:
                    raw = self.matrices.times(self.matrices.scalar(part.coefficient), raw)
            if part.scale is not None:
                side, row = part.scale
                factor = self.matrices.combine(self.matrices[row].rows[0], z if side == "query" else key)
                raw = algebra.multiply(raw, factor)
            total.append(raw)
        return self.matrices.constants.settled(add({}, *total))

    def _features(self, name: str, z: Vector) -> Vector:
        key = ("features", name, id(z))
        if key not in self._done:
            self._done[key] = (self.matrices.apply(name, z), z)
        found: Vector = self._done[key][0]
        return found

    def _mask(self, head: Head, z: Vector, key: Vector, place: int, key_place: int) -> Poly:
        """1 where a key is eligible, else 0."""
        algebra = self.algebra
        result = ONE
        for mask in head.masks:
            if mask.op == "other":
                if key_place < 0:
                    holds = ONE
                elif self.streams[head.query].size is not None:
                    holds = number(int(place != key_place))
                elif head.query == head.keys:
                    holds = algebra.atom("differ", head.query, (0, KEY))
                else:
                    raise Unproved(f"head {head.name}: a mask that compares tokens of two streams")
            else:
                holds = algebra.compare(mask.op, self.score(mask.score, z, key))
            result = algebra.multiply(result, holds)
        return result


def _added(z: Vector, more: Mapping[int, Poly]) -> Vector:
    """A vector with polynomials added to some columns."""
    if not more:
        return z
    result = list(z)
    for column, p in more.items():
        if p:
            result[column] = add(result[column], p) if result[column] else p
    return result


__all__ = ["KEY", "Attend", "ModelTerms", "Residual", "Stream"]
