"""Heads whose keys count for one query each: exact sums over segments of the keys."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from weftc_runtime.data.results import Tiers
from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.limbs import Values, counted
from weftc_runtime.exact.merging import as_terms
from weftc_runtime.exact.rational import Choice
from weftc_runtime.exact.rows import Rows
from weftc_runtime.exact.segments import SegmentSum
from weftc_runtime.exact.sums import rounded_sum
from weftc_runtime.kernels.gpu import sums_of
from weftc_runtime.kernels.native.library import Library, library
from weftc_runtime.kernels.native.sums import NativeSums
from weftc_runtime.machines.head_task import Classes, ClassRows, HeadOutput, HeadTask, classes
from weftc_runtime.machines.joined import ProblemOffsets
from weftc_runtime.machines.stored import stored
from weftc_runtime.plan.slots import IndexSlot, SlotValue, UniformSlot, sparse
from weftc_runtime.threads import cores

NATIVE = 1 << 15  # numbers from which compiling the native kernels pays


@dataclass(slots=True, eq=False)
class Grouping:
    """For every class of keys the one query it counts for (-1: none), and its weight."""

    label: Tensor
    number: Tensor
    same: bool  # class c counts for query c, keys without a class for none
    ones: bool  # no weight but 1

    @classmethod
    def of(cls, eligible: Tensor, scores: Tensor) -> Grouping:
        weights = torch.where(eligible, scores, 0.0)
        filled = weights != 0
        if bool((filled.sum(0) > 1).any()):
            raise Uncovered("a key counts for several queries")
        label = torch.where(filled.any(0), filled.to(torch.int8).argmax(0), -1).to(torch.int32)
        number = weights.sum(0)
        order = torch.arange(len(label) - 1, dtype=torch.int32, device=label.device)
        same = bool(label[-1] < 0) and torch.equal(label[:-1], order)
        return cls(label, number, same, bool((number[label >= 0] == 1).all()))


def segment_head(call: HeadTask) -> HeadOutput:
    """Sums of the keys that count for each query, exactly; divided by the exact mass for `normalize`."""
    found = classes_of(call)
    eligible, scores = found.eligible, found.scores
    assert scores is not None
    labels, numbers = _labelled(call, found, grouping_of(call, eligible, scores))
    place = None if found.index is None else found.index.place
    out, mass = summed(call, labels, numbers, place, call.plan.head.weighting.kind != "sum")
    if mass is not None and call.plan.head.weighting.kind != "sum":
        out = _filled(call, out, mass == 0)
    rows = ClassRows(found, len(call.keys)) if call.groups is None else _GroupRows(call, call.groups, found)
    choice = Choice(None, cast(Any, rows))
    return HeadOutput(out, choice=choice, tiers=Tiers(bound=len(call.query)) if call.plan.head.masks else None)


class _GroupRows:
    """The eligible keys of every query of joined problems as rows of booleans: none of another problem."""

    def __init__(self, call: HeadTask, groups: ProblemOffsets, found: Classes) -> None:
        self._rows, self._groups = ClassRows(found, len(call.keys)), groups
        self._streams = call.query.stream.name, call.keys.stream.name

    def __getitem__(self, query: int) -> Tensor:
        queries, keys = (self._groups.starts[name] for name in self._streams)
        number = self._groups.of(self._streams[0], query)
        row = self._rows[query - queries[number]].clone()
        row[: keys[number]] = row[keys[number + 1] :] = False
        return row


def _filled(call: HeadTask, out: Tensor, empty: Tensor) -> Tensor:
    """What is found, and for queries that no key counts for what they get instead."""
    if call.narrow.head.self_key is not None:
        rows = call.rows if call.groups is None else slice(0, len(empty))
        return torch.where(empty[:, None], call.narrow.fallback(call.query, rows), out)

    def wrong() -> None:
        raise Uncovered("the total weight of a query is zero and the equation has no `else`")

    call.cache.checks.ask(empty.any(), wrong)
    return out


def grouping_of(call: HeadTask, eligible: Tensor, scores: Tensor) -> Grouping:
    """What is found out about the classes, once as long as they are the same."""
    known = call.narrow.kept.get("grouping")
    if known is None or known[0] is not eligible or known[1] is not scores:
        known = call.narrow.kept["grouping"] = (eligible, scores, Grouping.of(eligible, scores))
    return cast(Grouping, known[2])


def classes_of(call: HeadTask) -> Classes:
    """What masks and scores say about the classes of keys."""
    return classes(call, scored=True) if call.groups is None else _of_groups(call)


def _of_groups(call: HeadTask) -> Classes:
    """The classes of joined problems: those of the first one, as long as all problems look the same to the head."""
    if any(not isinstance(held, UniformSlot) and not _repeats(held, call) for held in call.sources("query")):
        raise Uncovered("the problems of the batch cannot run as one")
    seen = (*call.sources("query"), *(held for held in call.sources("key") if isinstance(held, UniformSlot)))
    first = call.static(("first", id(call.plan.head)), seen, lambda: classes(call.part(0), scored=True))
    held = sparse(call.keys.slot(call.plan.index)) if call.plan.index else None
    return Classes(held, first.eligible, first.scores)


def _repeats(held: SlotValue, call: HeadTask) -> bool:
    """Whether every problem holds the same in a slot."""

    def look() -> bool:
        assert call.groups is not None
        if len(set(call.groups.places(call.query.stream.name).diff().tolist())) > 1:
            return False
        if isinstance(held, IndexSlot) and held.one_hot:
            index = held.index.reshape(call.groups.count, -1)
            return bool((index == index[:1]).all())
        rows = held.rows(slice(0, held.tokens)).reshape(call.groups.count, -1, held.width)
        return bool((rows == rows[:1]).all())

    return call.static(("repeats", id(held)), (held,), look)


def _counted_on(call: HeadTask, groups: ProblemOffsets) -> Tensor:
    """What the labels of every key are raised by: the queries of the problems before its own."""

    def count() -> Tensor:
        starts, ends = groups.starts[call.query.stream.name], groups.starts[call.keys.stream.name]
        sizes = torch.tensor([b - a for a, b in pairwise(ends)], device=call.device)
        numbers = range(groups.count) if call.plan.uniform_query else starts[:-1]
        first = torch.tensor(list(numbers), dtype=torch.int32, device=call.device)
        return first.repeat_interleave(sizes)

    key = ("counted on", call.query.stream.name, call.keys.stream.name, call.plan.uniform_query)
    return call.static(key, (), count)


def _labelled(call: HeadTask, found: Classes, grouping: Grouping) -> tuple[Tensor, Tensor | None]:
    """The query of every entry and its weight (None: all 1)."""
    label, number, held = grouping.label, grouping.number, found.index
    if held is None:
        labels = label.expand(len(call.keys))
        return labels, None if grouping.ones else number.expand(len(call.keys))
    if held.place is not None or held.values is not None:
        if bool(label[-1] >= 0):
            raise Uncovered("keys without an index have a weight")
        if not grouping.ones:
            raise Uncovered("weights of keys are scaled by their query")
    labels = held.index if grouping.same else label[cast(Tensor, found.of_keys())]
    if held.values is not None:
        return labels, held.values
    return labels, None if grouping.ones else number[cast(Tensor, found.of_keys())]


def summed(
    call: HeadTask, labels: Tensor, numbers: Tensor | None, place: Tensor | None, divide: bool
) -> tuple[Tensor, Tensor | None]:
    """What the head adds up (queries, writes), divided where asked for; the total weights, if some may be zero."""
    native = None if place is not None or call.others else _natively(call, labels, numbers, divide)
    if native is not None:
        return native
    if call.groups is not None:
        labels = torch.where(labels < 0, labels, labels + _counted_on(call, call.groups))
    weighted, irregular = numbers is not None, numbers is not None or place is not None
    if call.others is not None:  # ties may be split in one process and not in another
        weighted, irregular = map(bool, call.others.max(torch.tensor([weighted, irregular]).to(torch.int64)).tolist())
        if weighted and numbers is None:
            numbers = torch.ones(len(labels), dtype=torch.float64, device=call.device)
    sums, counts = _sums(call, labels, numbers, place, irregular)
    if not divide:
        return sums, None
    mass = counts.to(torch.float64) if numbers is None and counts is not None else _mass(call, labels, numbers)
    return sums / torch.where(mass == 0, 1.0, mass)[:, None], mass


def _natively(
    call: HeadTask, labels: Tensor, numbers: Tensor | None, divide: bool
) -> tuple[Tensor, Tensor | None] | None:
    """The same by the native kernel; None where that cannot be."""
    narrow = call.narrow
    if call.device.type != "cpu" or not narrow.writes or not narrow.head.value:
        return None
    if numbers is not None:
        key = ("segments", id(call.plan.head), "weighted")
        found = call.static(key, call.sources("value"), lambda: _weighted(call))
        return None if found is None else found.summed(labels, numbers, divide)
    native = native_sums(call)
    out = None if native is None else native.means(labels) if divide else native.sums(labels)
    if native is None or out is None:
        return None
    return out, native.counts if native.empty else None


@dataclass(slots=True, eq=False)
class _Weighted:
    """Sums of rows that have weights, and of the weights alone."""

    library: Library
    data: Tensor
    segments: int
    peak: float
    base: Tensor | None
    reach: float = -1.0  # above all weights so far
    sums: NativeSums | None = None
    mass: NativeSums | None = None

    def summed(self, labels: Tensor, weights: Tensor, divide: bool) -> tuple[Tensor, Tensor | None] | None:
        """The sums, divided by the total weights where that is asked for; None where the numbers do not fit."""
        weights = weights.contiguous()
        reach = self.library.peak(weights[:, None], cores())
        if not reach <= self.reach:
            self.reach = reach
            one = torch.ones(1, 1, dtype=torch.float64).expand(len(self.data), 1)
            self.sums = NativeSums.of(self.library, self.data, self.segments, self.peak * reach, self.base)
            self.mass = NativeSums.of(self.library, one, self.segments, reach, self.base)
        sums = None if self.sums is None else self.sums.sums(labels, weights)
        if sums is None or not divide:
            return None if sums is None else (sums, None)
        mass = None if self.mass is None else self.mass.sums(labels, weights)
        if mass is None:
            return None
        return sums / torch.where(mass == 0, 1.0, mass), mass[:, 0]


def _sums(
    call: HeadTask, labels: Tensor, numbers: Tensor | None, place: Tensor | None, irregular: bool
) -> tuple[Tensor, Tensor | None]:
    """The sums (queries, writes), and how many entries each has. `irregular`: not one of weight 1 for every key."""
    narrow, many = call.narrow, call.queries
    if not narrow.writes or not narrow.head.value:
        return torch.zeros(many, len(narrow.writes), dtype=torch.float64, device=call.device), None

    def values(rows: Rows) -> Tensor:
        found = narrow.values(call.keys, rows if place is None else place[rows])
        return found if numbers is None else numbers[rows, None] * found

    program = sums_of(call.device, len(narrow.writes)) if call.others is None else None
    found = None if program is None else program(values(slice(0, len(labels))), labels, many)
    if found is not None:
        return rounded_sum(as_terms(found[0])), found[1]

    def make() -> SegmentSum:
        return SegmentSum(values, len(labels), len(narrow.writes), many, call.device, call.others, call.every_key)

    if irregular:
        once = make()
        return once.sums(labels), once.counts
    known = call.static(("segments", id(call.plan.head)), call.sources("value"), make)
    known.values = _as_stored(call) or values
    return known.sums(labels), known.counts


def _as_stored(call: HeadTask) -> Values | None:
    """The values where they lie, without a change of their type; None if they are computed."""

    def look() -> Tensor | None:
        found = stored(call.keys, call.narrow.value, call.narrow.weights, ["value"])
        return found.data if found is not None and found.plain else None

    data = call.static(("stored values", id(call.plan.head)), call.sources("value"), look)
    if data is None:
        return None
    return lambda rows: data[rows] if isinstance(rows, slice) else data.index_select(0, rows)


def _stored(call: HeadTask) -> tuple[Library, Tensor, float, Tensor | None] | None:
    """The kernels, the values as they are stored, the largest, and what labels are raised by; None if computed."""
    kernels = library(build=len(call.keys) * len(call.narrow.writes) >= NATIVE)
    found = None if kernels is None else stored(call.keys, call.narrow.value, call.narrow.weights, ["value"])
    if kernels is None or found is None or not found.plain:
        return None
    base = None if call.groups is None else _counted_on(call, call.groups)
    return kernels, found.data, call.peak(kernels, found.data), base


def native_sums(call: HeadTask) -> NativeSums | None:
    """Sums of the values of a head by the native kernel, as long as these are the same; None where that cannot be."""
    if call.device.type != "cpu" or not call.narrow.writes or not call.narrow.head.value:
        return None
    key = ("segments", id(call.plan.head), "native")
    return call.static(key, call.sources("value"), lambda: _native(call))


def _native(call: HeadTask) -> NativeSums | None:
    found = _stored(call)
    return None if found is None else NativeSums.of(found[0], found[1], call.queries, *found[2:])


def _weighted(call: HeadTask) -> _Weighted | None:
    found = _stored(call)
    return None if found is None else _Weighted(found[0], found[1], call.queries, *found[2:])


def _mass(call: HeadTask, labels: Tensor, numbers: Tensor | None) -> Tensor:
    if numbers is None:
        places = torch.where(labels < 0, call.queries, labels).to(torch.int64)
        counts = counted(places, call.queries + 1)[:-1]
        return (counts if call.others is None else call.others.sum(counts)).to(torch.float64)
    weights = numbers
    parts = len(labels), 1, call.queries, call.device, call.others, call.every_key
    total = SegmentSum(lambda rows: weights[rows, None], *parts)
    return total.sums(labels)[:, 0]
