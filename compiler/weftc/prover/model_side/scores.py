"""Scores and masks of one query token against one key token, as polynomials: from the products of queries and keys."""

from __future__ import annotations

from typing import Any

from weftc.prover.kernel import ONE, Candidates, Kernel, WeighingTerm
from weftc.prover.kernel.polynomials import Poly, add, number, subtract
from weftc.prover.kernel.rules import Unproved
from weftc.prover.model_side.matrices import ProgramMatrices, Vector
from weftc.prover.near.score_arrays import ScoreArrays
from weftc_runtime.format.program import Head, Mask, Part, Program, Score

KEY = 1  # the name of the key token of an open stream, where the query token has the name 0


class ScoreTerms:
    """The scores of a program."""

    def __init__(self, algebra: Kernel, program: Program, matrices: ProgramMatrices) -> None:
        self.algebra, self.program, self.matrices = algebra, program, matrices
        self.forms = ScoreArrays(matrices)
        self.streams = {stream.name: stream for stream in program.streams}
        self._done: dict[Any, Any] = {}
        self.fragile: dict[str, None] = {}  # decisions that numbers which are only near others may change

    def score(self, score: Score, z: Vector, key: Vector) -> Poly:
        """The score of a query token against a key token."""
        algebra = self.algebra
        total: list[Poly] = []
        for part in score.parts:
            raw = self.forms.value(part, z, key) if self.matrices.near else self._raw(part, z, key)
            if part.scale is not None:
                side, row = part.scale
                factor = self.matrices.combine(self.matrices[row].rows[0], z if side == "query" else key)
                raw = algebra.multiply(raw, factor)
            if part.factors and self.matrices.near and self.forms.error((score,)):
                raise Unproved("a function of scores whose weights are only near the numbers they stand for")
            for function in part.factors:
                inside = self.score(function.score, z, key)
                raw = algebra.multiply(raw, algebra.apply(function.function, inside))
            total.append(raw)
        return self.matrices.constants.settled(add({}, *total))

    def without_value(self, score: Score, z: Vector, key: Vector) -> list[Poly]:
        """Where functions of scores have no value: somewhere in this list there is a 1."""
        found: list[Poly] = []
        for factor in (factor for part in score.parts for factor in part.factors):
            found += self.without_value(factor.score, z, key)
            found += self.algebra.without_value(factor.function, self.score(factor.score, z, key))
        return found

    def _raw(self, part: Part, z: Vector, key: Vector) -> Poly:
        """A part of a score, but for its scale: from queries and keys as they are. Equal tensors give equal parts."""
        same = self.matrices.first_equal
        known = (part.kind, same(part.q), same(part.k), same(part.coefficient or ""), id(z), id(key))
        if known not in self._done:
            q, k = self._features(same(part.q), z), self._features(same(part.k), key)
            if part.kind == "l2":
                raw = self.algebra.square([subtract(a, b) for a, b in zip(q, k, strict=True)])
            else:
                raw = self.algebra.dot(q, k)
            if part.coefficient is not None:
                raw = self.matrices.times(self.matrices.scalar(part.coefficient), raw)
            self._done[known] = (raw, z, key)  # the tokens stay alive, so that nothing else gets their names
        found: Poly = self._done[known][0]
        return found

    def _features(self, name: str, z: Vector) -> Vector:
        key = ("features", name, id(z))
        if key not in self._done:
            self._done[key] = (self.matrices.apply(name, z), z)
        found: Vector = self._done[key][0]
        return found

    def _chosen(self, head: Head, mask: Mask, z: Vector, key: Vector, eligible: Poly) -> Poly:
        """1 where a ranking of the eligible keys of an open stream chooses this one, else 0."""
        if self.streams[head.keys].size is not None:
            raise Unproved(f"head {head.name}: a mask of the best, over a stream of fixed size")
        w, algebra = mask.weighting, self.algebra
        assert w is not None
        bound = KEY if self.streams[head.query].size is None else 0  # the name of the key token
        rule = WeighingTerm(w.kind, w.ties, w.epsilon, w.count, w.percent, w.gamma)
        candidates = Candidates((self.score(mask.score, z, key),), (eligible,), head.keys, bound, None)
        return algebra.compare(">", algebra.weigh(rule, candidates).weights[0])

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
            elif mask.op == "best":
                holds = self._chosen(head, mask, z, key, result)
            else:
                if self.without_value(mask.score, z, key):
                    raise Unproved(f"head {head.name}: a mask that may have no value")
                holds = algebra.compare(mask.op, self.score(mask.score, z, key))
            if any(algebra.atoms[a].kind in ("above", "atleast") for mono in holds for a, _ in mono):
                self.fragile[f"head {head.name}: which keys are eligible"] = None
            result = algebra.multiply(result, holds)
        return result
