"""One head about to run under a plan: what it reads, what it may ask, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor

from weftc_runtime.data.results import Tiers
from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.rational import Choice, RationalScores
from weftc_runtime.exact.rows import Rows, blocks
from weftc_runtime.format.program import Head, Score
from weftc_runtime.kernels.collective import Collective
from weftc_runtime.kernels.native.library import Library
from weftc_runtime.machines.joined import ProblemOffsets, viewed
from weftc_runtime.machines.problem_cache import ProblemCache, Sources, Value
from weftc_runtime.plan.instructions import HeadPlan
from weftc_runtime.plan.narrow import NarrowHead
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import IndexSlot, SlotValue, UniformSlot, same, sparse
from weftc_runtime.reference.scores import Scorer
from weftc_runtime.threads import cores


@dataclass(slots=True)
class HeadTask:
    """A head, the residuals it reads at the start of a sub-layer, and exact arithmetic on the start of the step."""

    plan: HeadPlan
    narrow: NarrowHead
    query: Residual
    keys: Residual
    exact: RationalScores
    tensors: Mapping[str, Tensor]
    cache: ProblemCache  # of the run: what is static is made once
    scan: torch.device  # where best keys are looked for in float32
    groups: ProblemOffsets | None = None  # of a state that joins several problems
    others: Collective | None = None  # the processes that hold further keys
    ring: Iterable[Residual] | None = None  # the keys of one process after the other, where they are many
    turns: Iterable[tuple[int, Residual]] | None = None  # or the queries: whose they are, and some of them

    def part(self, number: int) -> HeadTask:
        """The head on one of the problems that are joined."""
        groups = self.groups
        assert groups is not None
        query, keys = (viewed(z, *groups.ends(z.stream.name, number)) for z in (self.query, self.keys))
        return replace(self, query=query, keys=keys, exact=groups.exact(number), cache=ProblemCache(), groups=None)

    def alone(self) -> HeadTask:
        """The head with nothing but the slots it reads, if it decides nothing: no state is kept along with it."""
        narrow = self.narrow
        found = []
        for residual, read in ((self.query, (narrow.query, narrow.own)), (self.keys, (narrow.keys, narrow.value))):
            names = {name for one in read for name in one.slots(residual.stream)}
            found.append(residual.made_of(len(residual), {name: residual.slot(name) for name in names}))
        return replace(
            self, query=found[0], keys=found[1], exact=RationalScores(self.exact.weights, {}, {}), cache=ProblemCache()
        )

    @property
    def rows(self) -> Rows:
        """The queries that run: all of them, or one for all."""
        return slice(0, 1) if self.plan.uniform_query else slice(0, len(self.query))

    @property
    def queries(self) -> int:
        """How many they are; one for all of a problem counts once for each problem that is joined."""
        if not self.plan.uniform_query:
            return len(self.query)
        return 1 if self.groups is None else self.groups.count

    @property
    def every_key(self) -> int:
        """How many keys there are, those of other processes too."""
        return len(self.keys) if self.others is None else self.others.total(self.keys.stream.name, len(self.keys))

    @property
    def device(self) -> torch.device:
        return self.keys.device

    def reads(self, side: str) -> tuple[str, ...]:
        """The slots that scores and masks read on one side, or that values are made of."""
        key, known = ("reads", side), self.narrow.kept
        if key not in known:
            residual = self.query if side == "query" else self.keys
            narrow = {"query": self.narrow.query, "key": self.narrow.keys, "value": self.narrow.value}[side]
            known[key] = narrow.slots(residual.stream, without="self.value")
        return cast(tuple[str, ...], known[key])

    def sources(self, side: str) -> tuple[SlotValue, ...]:
        """The slots that `reads` names, as they are held now."""
        residual = self.query if side == "query" else self.keys
        return tuple(residual.slot(name) for name in self.reads(side))

    def uncertain(self, side: str) -> bool:
        """Whether a side reads derived slots, which are rounded."""
        residual = self.query if side == "query" else self.keys
        return any(residual.stream.slot(name).role == "derived" for name in self.reads(side))

    def peak(self, kernels: Library, data: Tensor) -> float:
        """The largest size of stored numbers, looked up once."""
        known = self.cache.peak(data)
        return self.cache.note_peak(data, kernels.peak(data, cores())) if known is None else known

    def static(self, key: Sources, sources: Sources, make: Callable[[], Value]) -> Value:
        """Something made from these slots: made once as long as they are the same."""
        return self.cache.static(key, sources, make)


@dataclass(slots=True)
class HeadOutput:
    """What a head adds: rows (queries, writes), or a slot that is held otherwise; what it decided, and the tiers."""

    out: Tensor | None = None
    held: SlotValue | None = None
    choice: Choice = field(default_factory=lambda: Choice(None, None))
    tiers: Tiers | None = None


class RenamedExact:
    """Exact arithmetic for a head that runs on some queries and some keys only, under other names."""

    level = 0
    blurred = False  # no plan covers streams with a basis

    def __init__(
        self, exact: RationalScores, head: Head, over: Head, queries: Tensor | None, keys: Tensor | None
    ) -> None:
        self._exact, self._head, self._queries, self._keys = exact, head, queries, keys
        scores = [head.score, *(mask.score for mask in head.masks)]
        narrowed = [over.score, *(mask.score for mask in over.masks)]
        self._named = {id(short): score for short, score in zip(narrowed, scores, strict=False)}
        self._count = exact.size[head.keys]

    def _query(self, row: int) -> int:
        return row if self._queries is None else int(self._queries[row])

    def _key(self, key: int) -> int:
        if self._keys is None:
            return key
        return int(self._keys[key]) if key < len(self._keys) else self._count

    def score(self, score: Score, level: int, head: Head, query: int, key: int) -> Fraction:
        """One score of the original head."""
        return self._exact.score(self._named[id(score)], 0, self._head, self._query(query), self._key(key))

    def candidate(self, head: Head, level: int, query: int, key: int) -> Fraction:
        """The score of a key, or of the competing self key."""
        return self._exact.candidate(self._head, 0, self._query(query), self._key(key))

    def key_twins(self, head: Head, level: int) -> Tensor | None:
        """Keys that the score cannot tell apart have equal numbers."""
        twins = self._exact.key_twins(self._head, 0)
        return twins if twins is None or self._keys is None else twins[self._keys.cpu()]


@dataclass(slots=True)
class Classes:
    """Keys that a stored index sorts into classes: every class looks the same to masks (and, where asked, scores)."""

    index: IndexSlot | None  # None: one class for all keys
    eligible: Tensor  # (queries, classes)
    scores: Tensor | None  # (queries, classes)

    def of_keys(self) -> Tensor | None:
        """The class of every entry of the index; the last class are the keys without one."""
        if self.index is None:
            return None
        return torch.where(self.index.index < 0, self.index.width, self.index.index).to(torch.int64)


def classes(call: HeadTask, scored: bool) -> Classes:
    """What masks and scores say about a representative of every class of keys, decided exactly."""
    name = call.plan.index
    held = sparse(call.keys.slot(name)) if name else None
    many = 1 if held is None else held.width + 1
    others = tuple(call.keys.slot(slot) for slot in call.reads("key") if slot != name)
    sources = (*call.sources("query"), *(slot for slot in others if isinstance(slot, UniformSlot)))
    key = ("classes", id(call.plan.head), scored, many)
    eligible, scores = call.static(key, sources, lambda: _lasting(call, scored, many))
    return Classes(held, eligible, scores)


def _lasting(call: HeadTask, scored: bool, many: int) -> tuple[Tensor, Tensor | None]:
    """What was found in an earlier run, if the same was asked there."""
    seen: list[SlotValue] = [call.query.slot(name) for name in call.reads("query")]
    for name in call.reads("key"):
        if isinstance(slot := call.keys.slot(name), UniformSlot):
            seen.append(UniformSlot(slot.row, 1))  # how many keys there are does not matter
    known = call.narrow.kept.get((scored, many))
    if known is None or len(known[0]) != len(seen) or not all(map(same, known[0], seen)):
        known = call.narrow.kept[scored, many] = (seen, _represented(call, scored, many))
    return cast(tuple[Tensor, Tensor | None], known[1])


def _represented(call: HeadTask, scored: bool, many: int) -> tuple[Tensor, Tensor | None]:
    """Which of the classes of keys are eligible for each query, and their scores."""
    from weftc_runtime.exact.decide import compare

    narrow, name, stream = call.narrow, call.plan.index, call.keys.stream
    pieces = []
    for column in narrow.keys.columns:
        slot = next(s for s in stream.slots if s.offset <= column < s.offset + s.width)
        if name and slot.name == name:
            mark = torch.zeros(many, dtype=torch.float64, device=call.device)
            mark[column - slot.offset] = 1.0
            pieces.append(mark)
            continue
        constant = call.keys.slot(slot.name)
        if isinstance(constant, UniformSlot):
            pieces.append(constant.row[0, column - slot.offset].expand(many))
        elif not scored:
            pieces.append(torch.zeros(many, dtype=torch.float64, device=call.device))  # only scores read it
        else:
            raise Uncovered(f"slot {slot.name} of {stream.name} is not the same for all tokens")
    z = torch.stack(pieces, 1) if pieces else torch.zeros(many, 0, dtype=torch.float64, device=call.device)
    eligible = torch.ones(call.queries, many, dtype=torch.bool, device=call.device)
    scores = torch.empty(call.queries, many, dtype=torch.float64, device=call.device) if scored else None

    def oracle(row: int, key: int) -> Fraction:
        raise Uncovered(f"the masks of head {call.plan.head.name} are not exact in float64")

    for rows in blocks(call.queries, many):
        query = narrow.query.read(call.query, rows)
        every, radii = slice(0, len(query)), (torch.zeros_like(query), torch.zeros_like(z))
        for mask in narrow.head.masks:
            scorer = Scorer(mask.score, narrow.weights, query, z, radii, ordered=False)
            eligible[rows] &= compare(mask.op, *scorer.bounded_values(every), oracle)[0]
        if scores is not None:
            scores[rows] = Scorer(narrow.head.score, narrow.weights, query, z).values(every)
    return eligible, scores


class ClassRows:
    """The eligible keys of every query as rows of booleans, made when asked for."""

    def __init__(self, found: Classes, keys: int) -> None:
        self._found, self._keys = found, keys

    def __getitem__(self, query: int) -> Tensor:
        found = self._found
        row = found.eligible[min(query, len(found.eligible) - 1)]
        classes_of_keys = found.of_keys()
        if classes_of_keys is None or found.index is None:
            return row[:1].expand(self._keys)
        if found.index.place is None:
            return row[classes_of_keys]
        out = row[-1:].repeat(self._keys)
        out[found.index.place] = row[classes_of_keys]
        return out


class OwnRows:
    """The keys that every query of joined problems may look at as rows of booleans: those of its own problem."""

    def __init__(self, call: HeadTask, groups: ProblemOffsets) -> None:
        self._groups, self._keys, self._device = groups, len(call.keys), call.device
        self._streams = call.query.stream.name, call.keys.stream.name

    def __getitem__(self, query: int) -> Tensor:
        first, last = self._groups.ends(self._streams[1], self._groups.of(self._streams[0], query))
        out = torch.zeros(self._keys, dtype=torch.bool, device=self._device)
        out[first:last] = True
        return out


def all_keys(call: HeadTask) -> Choice:
    """What a head decides that takes all keys it may look at."""
    return Choice(None, None if call.groups is None else cast(Any, OwnRows(call, call.groups)))


class ListedRows:
    """Chosen or eligible keys of every query, held as lists of keys."""

    def __init__(self, keys: list[Tensor], many: int) -> None:
        self._keys, self._many = keys, many

    def __getitem__(self, query: int) -> Tensor:
        listed = self._keys[min(query, len(self._keys) - 1)]
        out = torch.zeros(self._many, dtype=torch.bool, device=listed.device)
        out[listed] = True
        return out


def without_masks(head: Head) -> Head:
    """The head on keys that are eligible already."""
    return replace(head, masks=())
