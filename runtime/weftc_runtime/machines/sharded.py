"""Heads whose keys are spread over processes, and what of a program cannot be shared.

Of a shared set every process holds some rows. Where its tokens are queries, each process works on its own. Where they
are keys for the tokens of a set that all hold, every process looks at its own keys, and what a query needs of all is
agreed on: the best score, exact sums, ranks. Where both sides are shared, the keys that a head reads go to all if they
are few. Many keys of a soft head go round a ring, those of one process at a time; where something is decided, or added
up exactly, they stay where they are, and the queries take turns to be shown to all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from weftc_runtime.errors import RunError, Uncovered
from weftc_runtime.exact.decide import Oracle
from weftc_runtime.exact.rational import NotRational, RationalScores
from weftc_runtime.exact.sums import binned_sum
from weftc_runtime.format.program import HARD, Head, Program, Score, Weighting
from weftc_runtime.kernels.collective import Collective
from weftc_runtime.machines.head_task import HeadOutput, HeadTask
from weftc_runtime.machines.sharded_choice import decide_together
from weftc_runtime.plan.instructions import Plan
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, SlotValue, UniformSlot
from weftc_runtime.reference.feed_forward import NEAR_ZERO
from weftc_runtime.reference.head import BLOCK, LEAST, HeadRun
from weftc_runtime.reference.soft import Soft, sparsemax


def refuse_what_cannot_be_shared(program: Program, plan: Plan, shared: frozenset[str]) -> None:
    """Says which part of a program cannot run in several processes, before it runs."""
    for embed in program.embedding:
        if embed.kind == "identity" and embed.stream in shared:
            raise RunError(f"{embed.stream} cannot be shared: its tokens have one-hot names, as many as there are rows")
        if embed.kind == "null" and embed.stream in shared:
            raise RunError(f"{embed.stream} cannot be shared: it has a null token")
    for condition in program.conditions:
        if condition.kind == "distinct" and condition.stream in shared:
            raise RunError(f"{condition.stream} cannot be shared: {condition.text}, which no process sees by itself")
    for _, plan_of_head in plan.heads():
        head = plan_of_head.head
        if head.keys not in shared:
            continue
        name = head.origin.rstrip(": ") or f"head {head.name}"
        if plan_of_head.strategy == "self":
            raise RunError(f"{head.keys} cannot be shared: {name} erases by attention, for which its rows must differ")
        if head.query in shared and any(mask.op == "other" for mask in head.masks):
            raise RunError(f"{head.keys} cannot be shared: {name} leaves out a token itself by its place")
        if head.weighting.kind == "top" and head.self_key is not None and head.self_key.row is not None:
            raise RunError(f"{head.keys} cannot be shared: {name} ranks keys together with one of the query's own")


# ---- keys of all processes, looked at where they are -----------------------------------------------------------------


class SpreadHeadRun(HeadRun):
    """A head over the keys of all processes. Every one has all queries; a self key is the last process's."""

    def __init__(self, others: Collective, most: int, *given: Any) -> None:
        super().__init__(*given)
        self.others, self.most = others, most  # keys that a process has at most
        self.last = others.rank == others.size - 1

    def _at_once(self) -> int:
        return max(1, BLOCK // max(1, self.most))

    def _none(self, eligible: Tensor) -> Tensor:
        """Queries without an eligible key anywhere."""
        return self.others.max(eligible.any(1).to(torch.int64)) == 0

    def _peak(self, scores: Tensor, eligible: Tensor) -> Tensor:
        masked = scores.masked_fill(~eligible, -torch.inf)
        mine = masked.amax(1) if masked.shape[1] else masked.new_full((len(masked),), -torch.inf)
        return self.others.max(mine)[:, None]

    def _mass(self, numbers: Tensor) -> Tensor:
        """Exact sums of rows over all processes."""
        place = torch.arange(len(numbers), device=numbers.device)[:, None].expand_as(numbers)
        return binned_sum([(numbers.reshape(-1), place.reshape(-1))], len(numbers), self.others)

    def _soft(self, kind: str, scores: Tensor, eligible: Tensor) -> Soft:
        none = self._none(eligible)
        if kind in ("sum", "exp"):
            numbers = scores.exp() if kind == "exp" else scores
            return Soft(torch.where(eligible, numbers, 0.0), None, torch.zeros_like(none))
        if kind == "normalize":
            numbers = torch.where(eligible, scores, 0.0)
            mass = self._mass(numbers)
            empty = none | (mass == 0)
            return Soft(numbers, torch.where(empty, 1.0, mass), empty)
        peak = self._peak(scores, eligible)
        shifted = scores - torch.where(torch.isfinite(peak), peak, 0.0)
        if kind == "softmax":
            numbers = torch.where(eligible, shifted, -torch.inf).exp()
            return Soft(numbers, torch.where(none, 1.0, self._mass(numbers)), none)
        numbers = self._sparsemax(shifted, eligible)
        return Soft(numbers, torch.where(none, 1.0, self._mass(numbers)), none)

    def _sparsemax(self, shifted: Tensor, eligible: Tensor) -> Tensor:
        """Only keys that score within 1 of the best have weights: those are told to all."""
        close = eligible & (shifted > -1)
        told = self.others.gather([shifted[row][close[row]].tolist() for row in range(len(shifted))])
        out = torch.zeros_like(shifted)
        for row in range(len(shifted)):
            every = [value for one in told for value in one[row]]
            if not every:
                continue
            numbers = torch.tensor([every], dtype=torch.float64, device=shifted.device)
            weights = sparsemax(numbers, torch.ones_like(numbers, dtype=torch.bool))[0]
            before = sum(len(one[row]) for one in told[: self.others.rank])
            out[row, close[row]] = weights[before : before + int(close[row].sum())]
        return out

    def _measured(self, kind: str, scores: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
        none, peak = self._none(eligible), self._peak(scores, eligible)
        peak = torch.where(torch.isfinite(peak), peak, 0.0)
        if kind == "max":
            return torch.where(none, 0.0, peak[:, 0]), none
        mass = torch.where(none, 1.0, self._mass(torch.where(eligible, scores - peak, -torch.inf).exp()))
        return torch.where(none, 0.0, peak[:, 0] + mass.log()), none

    def _decided(
        self,
        weighting: Weighting,
        scores: Tensor,
        radius: Tensor,
        eligible: Tensor,
        oracle: Oracle,
        twins: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        return decide_together(weighting, scores, radius, eligible, oracle, self.others)

    def _counted(self, chosen: Tensor) -> Tensor:
        return self.others.sum(chosen.sum(1))

    def _summed(self, numerators: Tensor, values: Tensor, own: Tensor | None) -> Tensor:
        rows, keys = numerators.nonzero(as_tuple=True)
        columns, at = values.shape[1], torch.arange(values.shape[1], device=values.device)
        blocks = []
        for start in range(0, len(rows), max(1, BLOCK // max(1, columns))):
            part = slice(start, start + max(1, BLOCK // max(1, columns)))
            products = numerators[rows[part], keys[part]][:, None] * values[keys[part]]
            blocks.append((products.reshape(-1), (rows[part, None] * columns + at).reshape(-1)))
        if own is not None and self.last:
            blocks.append((own.reshape(-1), torch.arange(own.numel(), device=own.device)))
        return binned_sum(blocks, len(numerators) * columns, self.others).reshape(len(numerators), columns)

    def _compete(
        self, row: str, block: slice, scores: Tensor, eligible: Tensor, radius: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if not self.last:
            return scores, eligible, radius
        return super()._compete(row, block, scores, eligible, radius)

    def _settle_mass(
        self, block: slice, scores: Tensor, eligible: Tensor, radius: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        found = torch.where(eligible, scores, 0.0)
        terms = torch.where(eligible[:, : len(self.keys)], self.scorer.sizes(block), 0.0).sum(1)
        terms = terms + found[:, len(self.keys) :].abs().sum(1)
        mass, terms = self.others.stack(torch.stack([found.sum(1), terms])).sum(0)
        doubtful = (mass.abs() <= NEAR_ZERO * terms) & (terms > 0)
        if self.scorer.parts:
            doubtful |= (terms < LEAST) & ~self._none(eligible)
        for row in doubtful.nonzero()[:, 0].tolist():
            keys = eligible[row].nonzero()[:, 0].tolist()
            exact: list[Fraction] | None
            try:
                exact = [self.exact.candidate(self.head, self.level, block.start + row, key) for key in keys]
            except NotRational:
                exact = None
            told = self.others.gather(
                None if exact is None else (max(map(abs, exact), default=0), sum(exact, Fraction(0)))
            )
            if exact is None or None in told:
                continue
            largest = max(one for one, _ in told) if sum(total for _, total in told) else 0
            scores[row] = 0.0
            if largest:
                scores[row, keys] = torch.tensor([float(one / largest) for one in exact], dtype=scores.dtype)
        return scores, radius


# ---- exact arithmetic ------------------------------------------------------------------------------------------------


class SpreadScores(RationalScores):
    """Exact arithmetic where keys are spread: what heads that have run add to tokens that all processes hold."""

    def __init__(self, others: Collective, *given: Any) -> None:
        super().__init__(*given)
        self.others = others

    def _weigh(self, head: Head, level: int, query: int) -> dict[int, Fraction]:
        if not self.others.shares(head.keys):
            return super()._weigh(head, level, query)
        if self.others.shares(head.query):
            raise Uncovered(f"exact arithmetic would need what head {head.name} found in other processes")
        mine, mass = self._unnormalized(head, level, query)
        told = self.others.gather(mine if mine is None else (mine, mass))
        if mine is None or None in told:
            raise NotRational(head.weighting.kind)
        total: dict[int, Fraction] = {}
        for one, _ in told:
            for column, value in one.items():
                total[column] = total.get(column, Fraction(0)) + value
        weight = sum((one for _, one in told), Fraction(0))
        if head.weighting.kind == "sum":
            return total
        if weight:
            return {column: value / weight for column, value in total.items()}
        own: dict[int, Fraction] = {}
        if head.self_key is not None:
            self._add(own, head, level, query, self.size[head.keys], Fraction(1))
        return own

    def _unnormalized(self, head: Head, level: int, query: int) -> tuple[dict[int, Fraction] | None, Fraction]:
        """What the keys of this process add, and their weight."""
        kind, choice, own = head.weighting.kind, self.choices[level, head.name], head.self_key
        if kind not in (*HARD, "sum", "normalize") or (own is not None and own.row is not None):
            return None, Fraction(0)
        picked = choice.chosen if choice.chosen is not None else choice.eligible
        keys = range(self.size[head.keys])
        found: dict[int, Fraction] = {}
        mass = Fraction(0)
        for key in keys if picked is None else picked[query].nonzero()[:, 0].tolist():
            weight = Fraction(1) if kind in HARD else self.candidate(head, level, query, key)
            mass += weight
            if weight:
                self._add(found, head, level, query, key, weight)
        return found, mass


@dataclass(slots=True)
class OffsetScores:
    """Exact arithmetic for queries that stand further on in their set."""

    scores: RationalScores
    first: int
    level: int = 0
    blurred: bool = False

    @property
    def size(self) -> dict[str, int]:
        return self.scores.size

    @property
    def weights(self) -> Any:
        return self.scores.weights

    def score(self, score: Score, level: int, head: Head, query: int, key: int) -> Fraction:
        """A score of a query of this process."""
        return self.scores.score(score, level, head, query + self.first, key)

    def candidate(self, head: Head, level: int, query: int, key: int) -> Fraction:
        """The score of a key for a query of this process."""
        return self.scores.candidate(head, level, query + self.first, key)

    def key_twins(self, head: Head, level: int) -> Tensor | None:
        """Keys with equal scores."""
        return self.scores.key_twins(head, level)


# ---- keys of all processes, one after the other ----------------------------------------------------------------------


RESIDENT = 1 << 24  # bytes of all keys that a head reads, above which no process holds all of them
SHOWN = 1 << 14  # queries that all look at together


def in_one_form(held: SlotValue, others: Collective) -> SlotValue:
    """A slot as all processes can hold it."""
    if isinstance(held, UniformSlot | DenseSlot):
        return held
    if isinstance(held, IndexSlot) and not others.any(not held.one_hot):
        return IndexSlot(held.tokens, held.width, held.index.to(torch.int32))
    return DenseSlot(held.rows(slice(0, held.tokens)))


@dataclass(frozen=True, slots=True)
class Ring:
    """The keys of a shared set, those of each process in turn: its own first, then what the one before had.

    All processes go through it at the same time. Each holds its own keys, those it looks at and those that arrive.
    """

    others: Collective
    keys: Residual
    names: tuple[str, ...]  # of the slots that are read

    def is_needed(self) -> bool:
        """Whether the keys are so many."""
        width = sum(self.keys.stream.slot(name).width for name in self.names)
        return self.others.total(self.keys.stream.name, len(self.keys)) * width * 8 > RESIDENT

    def __iter__(self) -> Iterator[Residual]:
        others, starts = self.others, self.others.starts[self.keys.stream.name]
        held = {name: in_one_form(self.keys.slot(name), self.others) for name in self.names}
        for step in range(others.size):
            source = (others.rank - step) % others.size
            many = starts[source + 1] - starts[source]
            if step:
                held = {name: self._passed(slot, many) for name, slot in held.items()}
            yield self.keys.made_of(many, held)

    def _passed(self, held: SlotValue, many: int) -> SlotValue:
        if isinstance(held, UniformSlot):
            return UniformSlot(held.row, many)
        if isinstance(held, IndexSlot):
            return IndexSlot(many, held.width, self.others.passed(held.index, many))
        assert isinstance(held, DenseSlot)
        return DenseSlot(self.others.passed(held.value, many))


# ---- queries of all processes, one after the other -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turns:
    """The queries of a shared set, those of each process in turn, for all to look among their own keys."""

    others: Collective
    queries: Residual
    names: tuple[str, ...]  # of the slots that are read

    def __iter__(self) -> Iterator[tuple[int, Residual]]:
        """The process whose turn it is, and some of its queries."""
        others, starts = self.others, self.others.starts[self.queries.stream.name]
        held = {name: in_one_form(self.queries.slot(name), others) for name in self.names}
        for source, (begin, end) in enumerate(pairwise(starts)):
            for first in range(0, end - begin, SHOWN):
                rows = slice(first, min(end - begin, first + SHOWN))
                shown = {name: self._shown(slot, rows, source) for name, slot in held.items()}
                yield source, self.queries.made_of(rows.stop - rows.start, shown)

    def _shown(self, held: SlotValue, rows: slice, source: int) -> SlotValue:
        mine, many = self.others.rank == source, rows.stop - rows.start
        if isinstance(held, UniformSlot):
            return UniformSlot(held.row, many)
        if isinstance(held, IndexSlot):
            index = held.index[rows] if mine else None
            return IndexSlot(many, held.width, self.others.shown(index, (many,), torch.int32, source))
        assert isinstance(held, DenseSlot)
        value = held.value[rows] if mine else None
        return DenseSlot(self.others.shown(value, (many, held.width), held.value.dtype, source))


class ShownScores(RationalScores):
    """Exact arithmetic for queries that are shown, and keys of this process: both may be tokens of one set.

    The keys are then counted on behind the queries.
    """

    def __init__(self, exact: RationalScores, head: Head, queries: Residual) -> None:
        keys = exact.base[head.keys]
        own = _Behind(queries, keys) if head.query == head.keys else queries
        super().__init__(exact.weights, {**exact.base, head.query: cast(Tensor, own)}, exact.makers)
        self._behind = len(queries) if head.query == head.keys else 0

    def score(self, score: Score, level: int, head: Head, query: int, key: int) -> Fraction:
        return super().score(score, level, head, query, key + self._behind)

    def candidate(self, head: Head, level: int, query: int, key: int) -> Fraction:
        return super().candidate(head, level, query, key + self._behind)

    def key_twins(self, head: Head, level: int) -> Tensor | None:
        return None


@dataclass(frozen=True, slots=True)
class _Behind:
    """The tokens of two states of a set, one after the other."""

    one: Any
    other: Any

    def __len__(self) -> int:
        return len(self.one) + len(self.other)

    def __getitem__(self, token: int) -> Any:
        return self.one[token] if token < len(self.one) else self.other[token - len(self.one)]

    def detach(self) -> _Behind:
        return self


# ---- keys of all processes, brought here -----------------------------------------------------------------------------


@dataclass(slots=True)
class Bringing:
    """What has been brought, as long as it is the same."""

    others: Collective
    _known: dict[tuple[str, tuple[str, ...] | None], tuple[list[SlotValue], Residual]] = field(default_factory=dict)

    def keys(self, residual: Residual, names: tuple[str, ...] | None) -> Residual:
        """A shared set with the rows of all processes: the slots of these names, or all that are not derived."""
        slots = [s.name for s in residual.stream.slots if (s.role != "derived" if names is None else s.name in names)]
        now = [residual.slot(name) for name in slots]
        place = residual.stream.name, names
        known = self._known.get(place)
        if known is None or any(one is not other for one, other in zip(known[0], now, strict=True)):
            total = self.others.total(residual.stream.name, len(residual))
            found = {name: self._held(held, residual.stream.name, total) for name, held in zip(slots, now, strict=True)}
            known = self._known[place] = now, residual.made_of(total, found)
        return known[1]

    def scores(self, head: Head, exact: RationalScores) -> RationalScores:
        """Exact arithmetic for queries of this process and all keys."""
        base = dict(exact.base)
        base[head.keys] = cast(Tensor, self.keys(cast(Residual, base[head.keys]), None))
        first = self.others.rows(head.query, 0)[0] if head.query == head.keys else 0
        return cast(RationalScores, OffsetScores(RationalScores(exact.weights, base, exact.makers), first))

    def _held(self, held: SlotValue, stream: str, total: int) -> SlotValue:
        if isinstance(held, UniformSlot):
            return UniformSlot(held.row, total)
        if isinstance(held, DenseSlot):
            return DenseSlot(self.others.joined(held.value, stream))
        if isinstance(held, IndexSlot) and not self.others.any(not held.one_hot):
            return IndexSlot(total, held.width, self.others.joined(held.index.to(torch.int32), stream))
        return DenseSlot(self.others.joined(held.rows(slice(0, held.tokens)), stream))


def nothing_asked(call: HeadTask, pair: bool) -> HeadOutput:
    """What a head gives that has no queries in this process."""
    if pair:
        none = torch.zeros(0, dtype=torch.int32, device=call.device)
        return HeadOutput(held=IndexSlot(0, len(call.keys), none))
    return HeadOutput(torch.zeros(0, len(call.narrow.writes), dtype=torch.float64, device=call.device))
