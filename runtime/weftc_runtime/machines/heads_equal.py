"""Heads whose keys count where their number equals the query's: sums, softmaxes and choices over equal numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor

from weftc_runtime.data.results import Tiers
from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.decide import compare
from weftc_runtime.exact.rational import Choice
from weftc_runtime.machines.head_task import HeadOutput, HeadTask
from weftc_runtime.machines.heads_query import literal_head
from weftc_runtime.machines.heads_segment import summed
from weftc_runtime.plan.equal import Constant, equal_masks, numbers
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import UniformSlot
from weftc_runtime.reference.scores import Scorer

FEW = 1 << 12  # scores of a head that are made at once


def equal_head(call: HeadTask, noted: bool) -> HeadOutput:
    """The head by groups of equal numbers; as the reference does it where the numbers do not allow that."""
    small = len(call.query) * len(call.keys) <= FEW
    found = None if small or call.others is not None or call.groups is not None else _Groups.of(call)
    made = None if found is None else found.output(noted)
    return literal_head(call, noted) if made is None else made


class _Groups:
    """Queries and keys by their number: groups are the different numbers of queries."""

    def __init__(self, call: HeadTask, of_query: Tensor, of_key: Tensor, eligible: Tensor) -> None:
        self.call, self.of_query, self.of_key, self.eligible = call, of_query, of_key, eligible
        different, self.group = torch.unique(of_query, return_inverse=True)
        self.many = len(different)
        place = torch.searchsorted(different, of_key).clamp_max(self.many - 1)
        self.label = torch.where((different[place] == of_key) & eligible, place, -1)

    @classmethod
    def of(cls, call: HeadTask) -> _Groups | None:
        """None where a number is rounded, or keys are told apart by more than float64 can say."""
        narrow = call.narrow
        same = _constant(call.query, narrow.query.columns), _constant(call.keys, narrow.keys.columns)
        found = equal_masks(narrow.head, narrow.query.matrices, narrow.keys.matrices, same)
        if found is None:
            return None
        first, second, both = found
        query, keys = narrow.query.read(call.query), narrow.keys.read(call.keys)
        of_query, of_key = numbers(both.query, query), numbers(-both.key, keys)
        if of_query is None or of_key is None:
            return None
        eligible = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
        for number, mask in enumerate(narrow.head.masks):
            if number in (first, second):
                continue
            score = call.plan.head.masks[number].score

            def oracle(row: int, key: int, score: Any = score) -> Fraction:
                return call.exact.score(score, 0, call.plan.head, 0, key)

            radii = narrow.query.radius(call.query, slice(0, 1)), narrow.keys.radius(call.keys)
            scorer = Scorer(mask.score, narrow.weights, query[:1], keys, radii, ordered=False)
            eligible &= compare(mask.op, *scorer.bounded_values(slice(0, 1)), oracle)[0][0]
        return cls(call, of_query, of_key, eligible)

    def output(self, noted: bool) -> HeadOutput | None:
        call, kind = self.call, self.call.plan.head.weighting.kind
        chosen = None
        counts = torch.bincount(self.label[self.label >= 0], minlength=self.many)[: self.many]
        empty = counts == 0
        if kind == "argmax":
            chosen = self._best()
            if chosen is None:
                return None
            out = call.narrow.values(call.keys, chosen.clamp_max(len(call.keys) - 1))
        elif kind in ("max", "lse"):
            out = call.narrow.weights.linear(self._number(kind)[:, None], call.narrow.head.value)
        else:
            out, mass = self._summed(kind)
            if mass is not None and kind != "sum":
                empty = empty | (mass[: self.many] == 0)
        out = out[self.group]
        if kind not in ("sum", "exp"):
            lost = empty[self.group].nonzero()[:, 0]
            if len(lost):
                if call.narrow.head.self_key is None:
                    raise Uncovered("a query has no key and the equation has no `else`")
                out[lost] = call.narrow.fallback(call.query, lost)
        choice = Choice(None, None)
        if noted:
            rows = cast(Any, _Rows(self, chosen))
            choice = Choice(None, rows) if chosen is None else Choice(rows, None)
        return HeadOutput(out, choice=choice, tiers=Tiers(bound=len(call.query)))

    def _scores(self) -> tuple[Tensor, Tensor]:
        """The scores of all keys with their radii: no query looks at them differently."""
        narrow = self.call.narrow
        query, keys = narrow.query.read(self.call.query, slice(0, 1)), narrow.keys.read(self.call.keys)
        radii = narrow.query.radius(self.call.query, slice(0, 1)), narrow.keys.radius(self.call.keys)
        if not narrow.head.score.parts:
            return torch.zeros(len(keys), dtype=torch.float64), torch.zeros(len(keys), dtype=torch.float64)
        values, radius = Scorer(narrow.head.score, narrow.weights, query, keys, radii).bounded_values(slice(0, 1))
        return values[0], radius[0]

    def _peaks(self, scores: Tensor) -> Tensor:
        """The best score of every group."""
        out = torch.full((self.many + 1,), -torch.inf, dtype=torch.float64, device=scores.device)
        return out.scatter_reduce(0, self._places(), scores, "amax")[:-1]

    def _places(self) -> Tensor:
        return torch.where(self.label < 0, self.many, self.label)

    def _summed(self, kind: str) -> tuple[Tensor, Tensor | None]:
        scores, _ = self._scores()
        if kind == "softmax":
            peaks = torch.cat([self._peaks(scores), torch.zeros(1, dtype=torch.float64, device=scores.device)])
            scores = torch.where(self.label < 0, -torch.inf, scores - peaks[self._places()])
        weights = scores.exp() if kind in ("softmax", "exp") else scores
        ones = None if bool((weights == 1).all()) else weights
        return summed(self.call, self.label.to(torch.int32), ones, None, kind in ("softmax", "normalize"))

    def _number(self, kind: str) -> Tensor:
        scores, _ = self._scores()
        peaks = self._peaks(scores)
        peaks = torch.where(torch.isfinite(peaks), peaks, 0.0)
        if kind == "max":
            return peaks
        apart = torch.where(self.label < 0, -torch.inf, scores - torch.cat([peaks, peaks.new_zeros(1)])[self._places()])
        total = torch.zeros(self.many + 1, dtype=torch.float64, device=scores.device)
        return total.index_add(0, self._places(), apart.exp())[:-1].clamp_min(1.0).log() + peaks

    def _best(self) -> Tensor | None:
        """The first of the best keys of every group; None where rounding could decide."""
        scores, radius = self._scores()
        if bool((radius[self.label >= 0] != 0).any()):
            return None
        best = torch.cat([self._peaks(scores), torch.zeros(1, dtype=torch.float64, device=scores.device)])
        every = torch.arange(len(scores), device=scores.device)
        wins = (self.label >= 0) & (scores == best[self._places()])
        first = torch.full((self.many + 1,), len(scores), dtype=torch.int64, device=scores.device)
        return first.scatter_reduce(0, torch.where(wins, self.label, self.many), every, "amin")[:-1]


class _Rows:
    """The keys that count for a query, or the one that it chose, as a row of booleans."""

    def __init__(self, groups: _Groups, chosen: Tensor | None) -> None:
        self._groups, self._chosen = groups, chosen

    def __getitem__(self, query: int) -> Tensor:
        group = self._groups.group[query]
        if self._chosen is None:
            return torch.eq(self._groups.label, group)
        return torch.eq(torch.arange(len(self._groups.label), device=group.device), self._chosen[group])


def _constant(residual: Residual, columns: tuple[int, ...]) -> Constant:
    """Tells what a row over some columns gives, where these are the same for all tokens."""

    def value(row: Tensor) -> Tensor | None:
        total = row.new_zeros(())
        for at in row.nonzero()[:, 0].tolist():
            slot = next(s for s in residual.stream.slots if s.offset <= columns[at] < s.offset + s.width)
            held = residual.slot(slot.name)
            if not isinstance(held, UniformSlot):
                return None
            total = total + row[at] * held.row[0, columns[at] - slot.offset]
        return total

    return value
