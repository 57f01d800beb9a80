"""Exact sums over segments: numbers that carry the label of their sum, rounded once however they are grouped.

Most numbers are whole multiples of one unit, 2^-BITS of the largest, when they come from data in float32. Float64 adds
FLUSHED rows of such numbers without rounding, in any order, because 2^BITS * FLUSHED is 2^53; then the sums go on as
64-bit integers, which hold those of all rows. Rows with other numbers are cut into limbs (`limbs.py`), and so are all
rows where those are many. What is left is one rounding: the same bits as `sums.exact_sum` of the same numbers.

When labels change, only the rows that changed are moved: subtracted from one segment and added to another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from weftc_runtime.exact.limbs import FEW_MOVES, LimbSum, Values, counted, in_blocks, reach, shares
from weftc_runtime.exact.merging import Others, as_terms
from weftc_runtime.exact.sums import rounded_sum
from weftc_runtime.threads import each

BITS = 40  # of a number that fits
FLUSHED = 1 << 13  # rows that float64 adds up
SAMPLE = 1 << 10  # rows that tell whether most fit
MISFITS = 1 / 8  # the share of rows from which all are cut


@dataclass(slots=True)
class SegmentSum:
    """Sums (segments, columns) of rows; row r counts for segment labels[r], or for none where that is negative."""

    values: Values
    rows: int
    columns: int
    segments: int
    device: torch.device
    others: Others | None = None  # the processes that hold more rows
    total: int = 0  # rows of all of them
    labels: Tensor | None = None
    counts: Tensor | None = None  # rows of every segment
    _top: int | None = None  # all numbers are below 2 ** _top
    _unit: int | None = None  # numbers that fit are multiples of 2 ** _unit
    _misfits: Tensor | None = None  # the rows with other numbers
    _cut: LimbSum | None = None  # their sums, or all sums
    _units: Tensor | None = None  # sums of the rows that fit
    _count: Tensor | None = None  # and how many these are
    _levels: int | None = None  # limbs of all processes

    def sums(self, labels: Tensor) -> Tensor:
        """The sums for these labels, correctly rounded; `counts` then says how many rows each has."""
        if self._unit is None:
            self._sort()
        assert self._unit is not None
        if self.others is not None:
            return rounded_sum(as_terms(self._merged(labels, self.others)))
        terms = []
        if not self._all_cut:
            self._move(labels)
            assert self._units is not None
            whole = self._units.to(torch.float64)
            terms = [whole * 2.0**self._unit]
            if self._misfits is not None:
                terms.append((self._units - whole.to(torch.int64)).to(torch.float64) * 2.0**self._unit)
        self.labels, self.counts = labels, self._count
        if self._cut is not None:
            self._cut.values = _some(self.values, self._misfits)
            terms += self._cut.terms(labels if self._misfits is None else labels[self._misfits])
            assert self._cut.counts is not None
            self.counts = self._cut.counts if self._count is None else self._count + self._cut.counts
        return rounded_sum(terms)

    def _merged(self, labels: Tensor, others: Others) -> list[tuple[Tensor, int]]:
        """The sums of all processes as integers, each with the power of two that it counts."""
        assert self._unit is not None
        shape, limbs = (self.segments, self.columns), list[Tensor]()
        if not self._all_cut:
            self._move(labels)
        if self._cut is not None:
            self._cut.values = _some(self.values, self._misfits)
            limbs = self._cut.terms(labels if self._misfits is None else labels[self._misfits])
        self.labels = labels
        if self._levels is None:
            self._levels = int(others.max(torch.tensor([len(limbs)])))
        nothing = torch.zeros(shape, dtype=torch.int64, device=self.device)
        counts = [one for one in (self._count, None if self._cut is None else self._cut.counts) if one is not None]
        pieces = [nothing if self._units is None else self._units]
        for level in range(self._levels):
            scaled = None if level >= len(limbs) else limbs[level] * 2.0 ** -self._scale.unit(level)
            pieces.append(nothing if scaled is None else scaled.to(torch.int64))
        mine = torch.cat([*(piece.flatten() for piece in pieces), torch.stack(counts).sum(0)])
        *found, self.counts = torch.split(others.sum(mine), [nothing.numel()] * len(pieces) + [self.segments])
        powers = [self._unit, *(self._scale.unit(level) for level in range(self._levels))]
        return [(number.reshape(shape), power) for number, power in zip(found, powers, strict=True)]

    @property
    def _scale(self) -> LimbSum:
        """What says how limbs are cut: the same in all processes."""
        assert self._top is not None
        return LimbSum(self.values, 0, self.columns, self.segments, self.device, self._top, self._many)

    @property
    def _many(self) -> int:
        """Rows of all processes."""
        return max(self.rows, self.total)

    @property
    def _all_cut(self) -> bool:
        return self._cut is not None and self._misfits is None

    def _sort(self) -> None:
        """Finds out which rows fit."""
        self._top = top = reach(self.values, self.rows, self.columns, self.device, self.others)
        self._unit = unit = top - min(BITS, 62 - self._many.bit_length())
        pull = 1.5 * 2.0 ** (52 + unit)  # adding and subtracting it rounds to multiples of the unit
        wrong = torch.empty(self.rows, dtype=torch.bool, device=self.device)

        def look(part: slice) -> None:
            for block in in_blocks(part, self.columns):
                values = self.values(block).to(torch.float64)
                torch.any((values + pull).sub_(pull) != values, 1, out=wrong[block])

        first = slice(0, min(SAMPLE, self.rows))
        look(first)
        many = int(wrong[first].sum()) > MISFITS * first.stop
        if not many:
            each(look, shares(self.rows, self.columns), self.device)
            rows = wrong.nonzero()[:, 0]
            many = len(rows) > MISFITS * self.rows
            self._misfits = rows if len(rows) and not many else None
        if many or self._misfits is not None:
            size = self.rows if self._misfits is None else len(self._misfits)
            values = _some(self.values, self._misfits)
            self._cut = LimbSum(values, size, self.columns, self.segments, self.device, top, self.total)

    def _move(self, labels: Tensor) -> None:
        """Brings the sums of the rows that fit to new labels."""
        if self.labels is not None:
            rows = self._changed(labels, self.labels)
            if len(rows) <= FEW_MOVES * self.rows:
                if len(rows):
                    self._add(rows, labels.index_select(0, rows), self.labels.index_select(0, rows))
                return
        self._units = torch.zeros(self.segments, self.columns, dtype=torch.int64, device=self.device)
        self._count = torch.zeros(self.segments, dtype=torch.int64, device=self.device)
        if self._misfits is not None:
            labels = labels.clone()
            labels[self._misfits] = -1
        self._add(None, labels)

    def _changed(self, labels: Tensor, before: Tensor) -> Tensor:
        """The rows that fit and have another label."""
        changed = torch.empty(self.rows, dtype=torch.bool, device=self.device)
        parts = shares(self.rows, 1)
        each(lambda part: torch.ne(labels[part], before[part], out=changed[part]), parts, self.device)
        if self._misfits is not None:
            changed.index_fill_(0, self._misfits, False)
        found = each(lambda part: changed[part].nonzero()[:, 0].add_(part.start), parts, self.device)
        return found[0] if len(found) == 1 else torch.cat(found)

    def _add(self, picked: Tensor | None, *sides: Tensor) -> None:
        """Adds rows to the segments of their labels, and takes them from those of a second side."""
        many = self.rows if picked is None else len(picked)
        assert self._unit is not None
        assert self._units is not None
        assert self._count is not None
        scale, wide = 2.0**-self._unit, self.segments + 1  # the last for rows of no segment

        def add(part: slice) -> tuple[Tensor, Tensor]:
            """The sums of some rows in units, and how many rows each segment has, side after side."""
            number = torch.zeros(len(sides) * wide, self.columns, dtype=torch.float64, device=self.device)
            units = torch.zeros_like(number, dtype=torch.int64)
            places = [_places(side[part], self.segments).add_(at * wide) for at, side in enumerate(sides)]
            held = 0
            for block in in_blocks(part, self.columns, FLUSHED):
                if held + block.stop - block.start > FLUSHED:
                    units += number.mul_(scale).to(torch.int64)
                    number.zero_()
                    held = 0
                held += block.stop - block.start
                values = self.values(block if picked is None else picked[block]).to(torch.float64)
                for place in places:
                    number.index_add_(0, place[block.start - part.start : block.stop - part.start], values)
            units += number.mul_(scale).to(torch.int64)
            counts = counted(torch.cat(places), len(units))
            return units.view(-1, wide, self.columns), counts.view(-1, wide)

        for units, counts in each(add, shares(many, self.columns), self.device):
            for sign, side, count in zip((1, -1), units[:, :-1], counts[:, :-1], strict=False):
                self._units.add_(side, alpha=sign)
                self._count.add_(count, alpha=sign)


def _some(values: Values, picked: Tensor | None) -> Values:
    """The numbers of some rows alone."""
    return values if picked is None else lambda rows: values(picked[rows])


def _places(labels: Tensor, segments: int) -> Tensor:
    """Labels as places of sums, those of no segment behind the others."""
    wanted = labels.to(torch.int64)
    return torch.where(wanted < 0, segments, wanted)
