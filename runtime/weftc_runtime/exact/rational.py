"""Scores in exact rational arithmetic, for the few rows that an error bound does not decide.

A step reads its fields; everything else in the residual follows from them: derived slots by their feed-forwards,
scratch by the sub-layers of the step that ran before. `RationalScores` follows these definitions in rationals, entry
by entry and only as far as asked, with every earlier decision of the step as it was taken. Functions without rational
values (exp, log, sqrt, tanh, unit, softmax ...) raise `NotRational`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.format.program import FFN, HARD, Head, Score, Sublayer

HALF = Fraction(1, 2)
Row = tuple[tuple[int, Fraction], ...]  # the non-zero entries of a row of a matrix
Makers = Mapping[tuple[str, int], FFN]  # (stream, column of a derived slot) -> the map that keeps it up to date


class NotRational(Exception):
    """The value asked for is no rational function of the fields."""


class ExactWeights:
    """The tensors of a program as sparse rows of fractions, converted when first needed."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self._rows: dict[str, list[Row]] = {}
        self._scalars: dict[str, Fraction] = {}

    def rows(self, name: str) -> list[Row]:
        """The rows of a matrix (a vector is one row, a scalar one row of one entry)."""
        if name not in self._rows:
            array = self.tensors[name].detach().cpu()
            table = array.reshape(1, -1) if array.dim() < 2 else array
            self._rows[name] = [tuple((i, Fraction(x)) for i, x in enumerate(row) if x) for row in table.tolist()]
        return self._rows[name]

    def scalar(self, name: str) -> Fraction:
        """A tensor that is one number."""
        if name not in self._scalars:
            self._scalars[name] = Fraction(float(self.tensors[name].detach()))
        return self._scalars[name]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a head decided: the keys it chose (hard weightings), or those it could read (None: all)."""

    chosen: Tensor | None
    eligible: Tensor | None


class RationalScores:
    """The residual of one problem during one step, exactly. Level j is the residual that sub-layer j reads."""

    blurred = False  # whether nothing can be told exactly after all: see `bases.Blurred`

    def __init__(
        self,
        weights: ExactWeights,
        base: Mapping[str, Tensor],
        makers: Mapping[tuple[str, int], FFN],
    ) -> None:
        self.weights = weights
        self.base = {name: z.detach() for name, z in base.items()}
        self.size = {name: len(z) for name, z in base.items()}
        self.sublayers: list[Sublayer] = []
        self.choices: dict[tuple[int, str], Choice] = {}
        self.makers = makers  # (stream, column of a derived slot) -> the map that keeps it up to date
        self._values: dict[tuple[int, str, int, int], Fraction] = {}
        self._features: dict[tuple[int, str, int, str], tuple[Fraction, ...]] = {}
        self._outputs: dict[tuple[int, str, int], dict[int, Fraction]] = {}
        self._rows: dict[tuple[str, int], list[float]] = {}
        self._scores: dict[tuple[int, int, int], Fraction] = {}
        self._firsts: dict[tuple[int, str], list[int]] = {}

    @property
    def level(self) -> int:
        """How many sub-layers have run."""
        return len(self.sublayers)

    def ran(self, sublayer: Sublayer, choices: Mapping[str, Choice]) -> None:
        """Notes a sub-layer that has run, and what its heads decided."""
        for name, choice in choices.items():
            self.choices[self.level, name] = choice
        self.sublayers.append(sublayer)

    # ------------------------------------------------------------------ residual
    def _row(self, stream: str, token: int) -> list[float]:
        key = (stream, token)
        if key not in self._rows:
            self._rows[key] = self.base[stream][token].tolist()
        return self._rows[key]

    def value(self, level: int, stream: str, token: int, column: int) -> Fraction:
        """One entry of the residual."""
        key = (level, stream, token, column)
        if key not in self._values:
            self._values[key] = self._compute(level, stream, token, column)
        return self._values[key]

    def _compute(self, level: int, stream: str, token: int, column: int) -> Fraction:
        if level == 0:
            maker = self.makers.get((stream, column))
            if maker is not None:
                return self._ffn(maker, 0, token, column)
            return Fraction(self._row(stream, token)[column])
        sublayer = self.sublayers[level - 1]
        if isinstance(sublayer, FFN):
            if sublayer.stream != stream:
                return self.value(level - 1, stream, token, column)
            return self._ffn(sublayer, level - 1, token, column)
        total = Fraction(0)
        if stream in sublayer.carry:
            total = self._dot(self.weights.rows(sublayer.carry[stream])[column], level - 1, stream, token)
        else:
            total = self.value(level - 1, stream, token, column)
        for head in sublayer.heads:
            if head.query == stream and self._writes(head, column):
                total += self._head(head, level - 1, token).get(column, Fraction(0))
        return total

    def _writes(self, head: Head, column: int) -> bool:
        names = [head.value, head.self_key.value if head.self_key is not None else ""]
        return any(name and self.weights.rows(name)[column] for name in names)

    def _dot(self, row: Row, level: int, stream: str, token: int) -> Fraction:
        total = Fraction(0)
        for column, weight in row:
            total += weight * self.value(level, stream, token, column)
        return total

    def features(self, level: int, stream: str, token: int, matrix: str) -> tuple[Fraction, ...]:
        """A matrix times the residual of one token."""
        key = (level, stream, token, matrix)
        if key not in self._features:
            rows = self.weights.rows(matrix)
            self._features[key] = tuple(self._dot(row, level, stream, token) for row in rows)
        return self._features[key]

    # ------------------------------------------------------------------ token-wise maps
    def _ffn(self, ffn: FFN, level: int, token: int, column: int) -> Fraction:
        total = self._dot(self.weights.rows(ffn.carry)[column], level, ffn.stream, token)
        for hidden, weight in self.weights.rows(ffn.out)[column]:
            total += weight * self._hidden(ffn, level, token, hidden)
        return total

    def _hidden(self, ffn: FFN, level: int, token: int, hidden: int) -> Fraction:
        if ffn.function in ("unit", "layer"):
            if not _vanishes(ffn, self.features(level, ffn.stream, token, ffn.a)) or ffn.b is None:
                raise NotRational(ffn.function)
            return self.features(level, ffn.stream, token, ffn.b)[hidden]
        a = self._dot(self.weights.rows(ffn.a)[hidden], level, ffn.stream, token)
        if ffn.function == "product":
            assert ffn.b is not None
            return a * self._dot(self.weights.rows(ffn.b)[hidden], level, ffn.stream, token)
        if ffn.function == "select":
            assert ffn.b is not None
            rows = self.weights.rows(ffn.b)
            flag = self._dot(rows[-1], level, ffn.stream, token)
            return a if flag > HALF else self._dot(rows[hidden], level, ffn.stream, token)
        return _function(ffn.function, a)

    def direction(self, ffn: FFN, token: int) -> list[float] | None:
        """The vector that a norm divides by its length, its largest entry made 1; None where it is exactly zero."""
        a = self.features(self.level, ffn.stream, token, ffn.a)
        if _vanishes(ffn, a):
            return None
        mean = sum(a, Fraction(0)) / len(a) if ffn.function == "layer" else Fraction(0)
        largest = max(abs(x - mean) for x in a)
        return [float((x - mean) / largest) for x in a]

    # ------------------------------------------------------------------ heads
    def score(self, score: Score, level: int, head: Head, query: int, key: int) -> Fraction:
        """One score between two tokens."""
        if level:
            return self._score(score, level, head, query, key)
        # Tokens that agree in what the score reads have equal scores; data on grids and collapsed states have many.
        query, key = self._first(score, head.query, "query")[query], self._first(score, head.keys, "key")[key]
        place = (id(score), query, key)
        if place not in self._scores:
            self._scores[place] = self._score(score, 0, head, query, key)
        return self._scores[place]

    def key_twins(self, head: Head, level: int) -> Tensor | None:
        """For every key the first one that its score cannot tell apart from it; None when that is not known."""
        if level or not head.score.parts:
            return None
        return torch.tensor(self._first(head.score, head.keys, "key"))

    def _first(self, score: Score, stream: str, side: Literal["query", "key"]) -> list[int]:
        place = (id(score), side)
        if place not in self._firsts:
            columns = columns_read(score, side, stream, self.weights.rows, self.makers)
            self._firsts[place] = first_twins(self.base[stream], columns)
        return self._firsts[place]

    def _score(self, score: Score, level: int, head: Head, query: int, key: int) -> Fraction:
        total = Fraction(0)
        for part in score.parts:
            q = self.features(level, head.query, query, part.q)
            k = self.features(level, head.keys, key, part.k)
            if part.kind == "dot":
                value = sum((a * b for a, b in zip(q, k, strict=True)), Fraction(0))
            else:
                assert part.coefficient is not None
                square = sum(((a - b) ** 2 for a, b in zip(q, k, strict=True)), Fraction(0))
                value = self.weights.scalar(part.coefficient) * square
            if part.scale is not None:
                side, name = part.scale
                place = (head.query, query) if side == "query" else (head.keys, key)
                value *= self.features(level, *place, name)[0]
            for factor in part.factors:
                value *= _function(factor.function, self._score(factor.score, level, head, query, key))
            total += value
        return total

    def candidate(self, head: Head, level: int, query: int, key: int) -> Fraction:
        """The score of one candidate: a key token, or after the last of them the competing self key."""
        if key < self.size[head.keys]:
            return self.score(head.score, level, head, query, key)
        assert head.self_key is not None
        assert head.self_key.row is not None
        return self.features(level, head.query, query, head.self_key.row)[0]

    def _head(self, head: Head, level: int, query: int) -> dict[int, Fraction]:
        """What a head that has run adds to a query token."""
        key = (level, head.name, query)
        if key not in self._outputs:
            self._outputs[key] = self._weigh(head, level, query)
        return self._outputs[key]

    def _weigh(self, head: Head, level: int, query: int) -> dict[int, Fraction]:
        kind, choice, keys = head.weighting.kind, self.choices[level, head.name], self.size[head.keys]
        own = head.self_key
        picked = choice.chosen if choice.chosen is not None else choice.eligible
        candidates = list(range(keys)) if picked is None else _indices(picked[query])
        if kind not in HARD and own is not None and own.row is not None:
            candidates = [*(k for k in candidates if k < keys), keys]
        weights: dict[int, Fraction]
        if kind in HARD:
            weights = {k: Fraction(1, len(candidates)) for k in candidates}
        elif kind in ("softmax", "exp", "lse", "entmax15"):
            raise NotRational(kind)
        else:
            scores = {k: self.candidate(head, level, query, k) for k in candidates}
            if kind == "max" and scores:
                best = max(scores.values())
                return {c: row[0][1] * best for c, row in enumerate(self.weights.rows(head.value)) if row}
            weights = _soft(kind, scores) if scores else {}
        if not weights and own is not None and own.row is None and kind not in ("sum",):
            weights = {keys: Fraction(1)}
        out: dict[int, Fraction] = {}
        for k, weight in weights.items():
            if weight:
                self._add(out, head, level, query, k, weight)
        return out

    def _add(self, out: dict[int, Fraction], head: Head, level: int, query: int, key: int, weight: Fraction) -> None:
        if key < self.size[head.keys]:
            matrix, stream, token = head.value, head.keys, key
        else:
            assert head.self_key is not None
            matrix, stream, token = head.self_key.value, head.query, query
        for column, row in enumerate(self.weights.rows(matrix)):
            if row:
                out[column] = out.get(column, Fraction(0)) + weight * self._dot(row, level, stream, token)


def _function(name: str, a: Fraction) -> Fraction:
    """A function of a number that has rational values."""
    if name == "reciprocal" and a:
        return 1 / a
    if name == "relu2":
        return max(a, Fraction(0)) ** 2
    if name == "relu":
        return max(a, Fraction(0))
    if name == "abs":
        return abs(a)
    if name == "copy":
        return a
    raise NotRational(name)


def _vanishes(ffn: FFN, a: tuple[Fraction, ...]) -> bool:
    """Whether a (for `layer`: a minus its mean) is the zero vector."""
    return len(set(a)) == 1 if ffn.function == "layer" else not any(a)


def _indices(row: Tensor) -> list[int]:
    return [int(i) for i in row.nonzero()[:, 0]]


def _soft(kind: str, scores: Mapping[int, Fraction]) -> dict[int, Fraction]:
    """Rational weightings; empty when there is no mass."""
    if kind == "sum":
        return dict(scores)
    if kind == "normalize":
        mass = sum(scores.values(), Fraction(0))
        return {k: s / mass for k, s in scores.items()} if mass else {}
    assert kind == "sparsemax"
    ordered = sorted(scores.values(), reverse=True)
    total, threshold = Fraction(0), Fraction(0)
    for count, score in enumerate(ordered, start=1):
        if 1 + count * score <= total + score:
            break
        total += score
        threshold = (total - 1) / count
    return {k: max(s - threshold, Fraction(0)) for k, s in scores.items()}


def columns_read(
    score: Score, side: Literal["query", "key"], stream: str, rows: Callable[[str], list[Row]], makers: Makers
) -> list[int]:
    """The columns of data that one side of a score depends on, through derived slots."""
    names = [part.q if side == "query" else part.k for part in score.nested()]
    names += [part.scale[1] for part in score.nested() if part.scale is not None and part.scale[0] == side]
    columns: set[int] = set()
    seen: set[str] = set()

    def follow(row: Row) -> None:
        for column, _ in row:
            maker = makers.get((stream, column))
            if maker is None:
                columns.add(column)
                continue
            follow(rows(maker.carry)[column])
            for name in (maker.a, maker.b):
                if name is not None and name not in seen:
                    seen.add(name)
                    for inner in rows(name):
                        follow(inner)

    for name in names:
        for row in rows(name):
            follow(row)
    return sorted(columns)


def first_twins(z: Tensor, columns: list[int]) -> list[int]:
    """For every token the first one that agrees with it in these columns: only that needs exact arithmetic."""
    if not columns:
        return [0] * len(z)
    data = z[:, columns].cpu().numpy() + 0.0  # -0.0 is 0.0
    _, first, group = np.unique(data, axis=0, return_index=True, return_inverse=True)
    firsts: list[int] = first[group.reshape(-1)].tolist()
    return firsts
