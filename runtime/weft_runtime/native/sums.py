"""Exact sums over segments by the native kernel: the same bits as `SegmentSum`, moved along as labels change."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import frexp

import torch
from torch import Tensor

from weft_runtime.native.library import Library
from weft_runtime.workers import cores

LEVELS = (2, 12)  # pieces of a number that sums have room for: first these, then those
LARGEST, SMALLEST = 900, -500  # exponents of the largest number that the pieces can hold


@dataclass(slots=True, eq=False)
class NativeSums:
    """Sums (segments, columns) of rows of `data`; row r counts for segment labels[r], or for none if negative."""

    library: Library
    data: Tensor  # (rows, columns) as stored
    segments: int
    counts: Tensor = field(init=False)  # rows of every segment
    _top: int | None = None  # all numbers are below 2 ** _top; None: they cannot be summed here
    _levels: int = LEVELS[0]
    _labels: Tensor | None = None
    _sums: Tensor | None = None

    @classmethod
    def of(cls, library: Library, data: Tensor, segments: int, peak: float) -> NativeSums | None:
        """None when the numbers, of which the largest is `peak`, are out of range."""
        if not peak < 2.0**LARGEST:
            return None
        made = cls(library, data, segments)
        made._top = max(frexp(peak)[1], SMALLEST) if peak else 0
        return made

    def sums(self, labels: Tensor) -> Tensor | None:
        """The sums for these labels (int32), correctly rounded; None when the numbers differ by too many bits."""
        labels = labels.to(torch.int32).contiguous()
        while self._sums is None or not self._moved(labels):
            if self._sums is not None:
                later = [levels for levels in LEVELS if levels > self._levels]
                if not later:
                    return None
                self._levels = later[0]
            self._sums = torch.zeros(self._levels, self.segments, self.data.shape[1], 2, dtype=torch.int64)
            self.counts = torch.zeros(self.segments, dtype=torch.int64)
            self._labels = None
        self._labels = labels
        out = torch.empty(self.segments, self.data.shape[1], dtype=torch.float64)
        assert self._top is not None
        self.library.rounded(self._sums, self._levels, self._top, out)
        return out

    def _moved(self, labels: Tensor) -> bool:
        moved = self.library.segments(
            data=self.data,
            stride=self.data.stride(0),
            rows=len(labels),
            is_double=self.data.dtype == torch.float64,
            columns=self.data.shape[1],
            before=self._labels,
            labels=labels,
            segments=self.segments,
            top=self._top,
            levels=self._levels,
            threads=cores(),
            sums=self._sums,
            counts=self.counts,
        )
        return moved is not None
