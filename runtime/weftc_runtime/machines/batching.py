"""Tokens of joined problems side by side: (tokens, ..) <-> (problems, tokens of the largest, ..).

Heads that look at all tokens of a problem take the problems of a batch some at a time, of similar size, as many as fit
a tile of scores. Where their sizes differ, the last token of a problem stands in for those that are missing: it changes
no range of numbers, and what comes of it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from weftc_runtime.exact.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """Tokens of some problems: which, and how they stand side by side."""

    rows: Rows  # of the joined stream, problem after problem
    problems: int
    size: int  # tokens of the largest
    place: Tensor | None = None  # (problems * size,): which of the rows stands there; None: all have the same size
    at: Tensor | None = None  # (rows,): where each of them stands
    empty: Tensor | None = None  # (problems, size): where none does

    @classmethod
    def of(cls, rows: Rows, sizes: Tensor) -> Lot:
        """These rows, so many of every problem."""
        many, size = len(sizes), int(sizes.max())
        if int(sizes.min()) == size:
            return cls(rows, many, size)
        order = torch.arange(size, device=sizes.device)
        first = (sizes.cumsum(0) - sizes)[:, None]
        place = (first + torch.minimum(order, sizes[:, None] - 1)).flatten()
        empty = order >= sizes[:, None]
        return cls(rows, many, size, place, (~empty).flatten().nonzero()[:, 0], empty)

    def spread(self, values: Tensor) -> Tensor:
        """What belongs to the rows (rows, ..) as (problems, size, ..)."""
        every = values if self.place is None else values.index_select(0, self.place)
        return every.reshape(self.problems, self.size, *values.shape[1:])

    def gathered(self, values: Tensor) -> Tensor:
        """The other way."""
        every = values.reshape(self.problems * self.size, *values.shape[2:])
        return every if self.at is None else every.index_select(0, self.at)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Queries of some problems and the keys they see: those of their own problem."""

    query: Lot
    keys: Lot
    numbers: Rows  # of the problems


def lot(starts: Tensor, numbers: Rows) -> Lot:
    """All tokens of some problems; `starts` of every problem, and the end of the last one."""
    sizes = starts.diff()[numbers]
    if isinstance(numbers, slice):
        return Lot.of(slice(int(starts[numbers.start]), int(starts[numbers.stop])), sizes)
    first = starts[numbers] - (sizes.cumsum(0) - sizes)
    return Lot.of(torch.arange(int(sizes.sum()), device=starts.device) + first.repeat_interleave(sizes), sizes)


def firsts(starts: Tensor, numbers: Rows) -> Lot:
    """The first token of each of some problems."""
    found = starts[:-1][numbers]
    return Lot.of(found, torch.ones_like(found))


def tiles(queries: Tensor, keys: Tensor, scores: int) -> Iterator[Rows | int]:
    """Problems of similar size, given how many queries and keys each has, as many at a time as make a tile of scores.

    A number stands for one problem that takes more than a tile.
    """
    sizes = list(zip(keys.tolist(), queries.tolist(), range(len(keys)), strict=True))
    ordered = sizes if len(set(zip(keys.tolist(), queries.tolist(), strict=True))) == 1 else sorted(sizes)
    taken: list[int] = []
    wide = high = 0
    for many, rows, number in ordered:
        if many * rows > scores:
            yield number
            continue
        if taken and (len(taken) + 1) * max(wide, many) * max(high, rows) > scores:
            yield _rows(taken, keys.device)
            taken, wide, high = [], 0, 0
        taken.append(number)
        wide, high = max(wide, many), max(high, rows)
    if taken:
        yield _rows(taken, keys.device)


def _rows(numbers: list[int], device: torch.device) -> Rows:
    """Numbers as a slice, where they follow each other."""
    first, last = numbers[0], numbers[-1]
    if last - first == len(numbers) - 1 and numbers == list(range(first, last + 1)):
        return slice(first, last + 1)
    return torch.tensor(numbers, device=device)


def runs(starts: Tensor, rows: Rows) -> tuple[Rows, Tensor]:
    """The problems that rows belong to, one after the other, and how many rows each has in a run."""
    if isinstance(rows, slice):
        first, last, _ = rows.indices(int(starts[-1]))
        ends = starts.clamp(first, last)
        some = torch.searchsorted(starts[1:], torch.tensor([first], device=starts.device), right=True)
        until = torch.searchsorted(starts[:-1], torch.tensor([last], device=starts.device))
        numbers = slice(int(some), int(until))
        return numbers, ends.diff()[numbers]
    owner = torch.bucketize(rows, starts[1:], right=True)
    found, counts = torch.unique_consecutive(owner, return_counts=True)
    return found, counts
