"""Heads whose keys count for one query each: exact sums over segments of the keys."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from weft_runtime.calls import Call, Classes, ClassRows, Given, classes
from weft_runtime.exact import Choice
from weft_runtime.held import Held, Rows, Uniform, sparse
from weft_runtime.joined import Groups
from weft_runtime.native.library import library
from weft_runtime.native.sums import NativeSums
from weft_runtime.plan import Uncovered
from weft_runtime.results import Tiers
from weft_runtime.segment import SegmentSum
from weft_runtime.stored import stored

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


def segment_head(call: Call) -> Given:
    """Sums of the keys that count for each query, exactly; divided by the exact mass for `normalize`."""
    found = classes(call, scored=True) if call.groups is None else _of_groups(call)
    eligible, scores = found.eligible, found.scores
    assert scores is not None
    name = ("grouping", id(call.plan.head))
    grouping = cast(Grouping, call.static(name, (eligible, scores), lambda: Grouping.of(eligible, scores)))
    labels, numbers = _labelled(call, found, grouping)
    if call.groups is not None:
        labels = torch.where(labels < 0, labels, labels + _counted_on(call, call.groups))
    place = None if found.index is None else found.index.place
    sums, counts = _sums(call, labels, numbers, place)
    choice = Choice(None, None if call.groups is not None else cast(Any, ClassRows(found, len(call.keys))))
    tiers = Tiers(bound=len(call.query)) if call.plan.head.masks else None
    if call.plan.head.weighting.kind == "sum":
        return Given(sums, choice=choice, tiers=tiers)
    mass = counts.to(torch.float64) if numbers is None and counts is not None else _mass(call, labels, numbers)
    empty = mass == 0
    out = sums / torch.where(empty, 1.0, mass)[:, None]
    if bool(empty.any()):
        if call.lens.head.self_key is None:
            raise Uncovered("the total weight of a query is zero and the equation has no `else`")
        out = torch.where(empty[:, None], call.lens.fallback(call.query, call.rows), out)
    return Given(out, choice=choice, tiers=tiers)


def _of_groups(call: Call) -> Classes:
    """The classes of joined problems: those of the first one, as long as all problems look the same to the head."""
    if any(not isinstance(held, Uniform) and not _repeats(held, call) for held in call.sources("query")):
        raise Uncovered("the problems of the batch cannot run as one")
    name = ("first", id(call.plan.head))
    if name not in call.cache:
        call.cache[name] = classes(call.part(0), scored=True)
    first = cast(Classes, call.cache[name])
    held = sparse(call.keys.slot(call.plan.index)) if call.plan.index else None
    return Classes(held, first.eligible, first.scores)


def _repeats(held: Held, call: Call) -> bool:
    """Whether every problem holds the same in a slot."""

    def look() -> bool:
        assert call.groups is not None
        rows = held.rows(slice(0, held.tokens)).reshape(call.groups.count, -1, held.width)
        return bool((rows == rows[:1]).all())

    return cast(bool, call.static(("repeats", id(held)), (held,), look))


def _counted_on(call: Call, groups: Groups) -> Tensor:
    """What the labels of every key are raised by: the queries of the problems before its own."""

    def count() -> Tensor:
        starts, ends = groups.starts[call.query.stream.name], groups.starts[call.keys.stream.name]
        sizes = torch.tensor([b - a for a, b in pairwise(ends)], device=call.device)
        first = torch.tensor(starts[:-1], dtype=torch.int32, device=call.device)
        return first.repeat_interleave(sizes)

    key = ("counted on", call.query.stream.name, call.keys.stream.name)
    return cast(Tensor, call.static(key, (), count))


def _labelled(call: Call, found: Classes, grouping: Grouping) -> tuple[Tensor, Tensor | None]:
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


def _sums(call: Call, labels: Tensor, numbers: Tensor | None, place: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The sums (queries, writes), and how many entries each has."""
    lens, many = call.lens, call.queries
    if not lens.writes or not lens.head.value:
        return torch.zeros(many, len(lens.writes), dtype=torch.float64, device=call.device), None

    def values(rows: Rows) -> Tensor:
        found = lens.values(call.keys, rows if place is None else place[rows])
        return found if numbers is None else numbers[rows, None] * found

    def make() -> SegmentSum:
        return SegmentSum(values, len(labels), len(lens.writes), many, call.device)

    if place is not None or numbers is not None:
        once = make()
        return once.sums(labels), once.counts
    sources = call.sources("value")
    key = ("segments", id(call.plan.head))
    if call.device.type == "cpu":
        native = cast(NativeSums | None, call.static((*key, "native"), sources, lambda: _native(call)))
        sums = None if native is None else native.sums(labels)
        if native is not None and sums is not None:
            return sums, native.counts
    known = cast(SegmentSum, call.static(key, sources, make))
    known.values = values
    return known.sums(labels), known.counts


def _native(call: Call) -> NativeSums | None:
    """The native sums, where the values are stored numbers."""
    kernels = library(build=len(call.keys) * len(call.lens.writes) >= NATIVE)
    found = None if kernels is None else stored(call.keys, call.lens.value, call.lens.weights, ["value"])
    if kernels is None or found is None or not found.plain:
        return None
    return NativeSums.of(kernels, found.data, call.queries, call.peak(kernels, found.data))


def _mass(call: Call, labels: Tensor, numbers: Tensor | None) -> Tensor:
    if numbers is None:
        wanted = labels[labels >= 0].to(torch.int64)
        return torch.bincount(wanted, minlength=call.queries).to(torch.float64)
    weights = numbers
    total = SegmentSum(lambda rows: weights[rows, None], len(labels), 1, call.queries, call.device)
    return total.sums(labels)[:, 0]
