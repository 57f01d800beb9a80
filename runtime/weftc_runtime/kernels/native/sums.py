"""Exact sums over segments by the native kernel: the same bits as `SegmentSum`, moved along as labels change."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import frexp

import torch
from torch import Tensor

from weftc_runtime.kernels.native.library import Library, Segments, address
from weftc_runtime.threads import cores

LEVELS = (2, 12)  # pieces of a number that sums have room for: first these, then those
LARGEST, SMALLEST = 900, -500  # exponents of the largest number that the pieces can hold
NEAR = 2  # pieces that each thread sums by itself, as adder.h has it


@dataclass(slots=True, eq=False)
class NativeSums:
    """Sums (segments, columns) of rows of `data`; row r counts for segment labels[r], or for none if negative.

    `base`: what is added to the labels of each row that has one. `weighted`: rows come with a weight each; products
    are rounded once. What a call gives stays as it is; everything else is made once and used again.
    """

    library: Library
    data: Tensor  # (rows, columns) as stored
    segments: int
    peak: float  # above the size of all numbers, times their weights
    base: Tensor | None = None
    counts: Tensor = field(init=False)  # rows of every segment
    empty: int = 0  # segments without rows
    total: int = 0  # rows that 64 bits must hold the pieces of, if more than there are
    full: bool = False  # the numbers differ by too many bits
    call: Segments = field(init=False)
    _levels: int = LEVELS[0]
    _held: list[Tensor] = field(default_factory=list)  # what the call points to
    _labels: Tensor | None = None
    _weights: Tensor | None = None

    @classmethod
    def of(
        cls, library: Library, data: Tensor, segments: int, peak: float, base: Tensor | None = None, total: int = 0
    ) -> NativeSums | None:
        """None when the numbers are out of range."""
        if not peak < 2.0**LARGEST:
            return None
        made = cls(library, data, segments, peak, base, total=total)
        made.start_anew()
        return made

    def start_anew(self) -> None:
        """Sums of nothing."""
        columns = self.data.shape[1]
        self.counts = torch.zeros(self.segments, dtype=torch.int64)
        sums = torch.zeros(self._levels, self.segments, columns, dtype=torch.int64)
        threads = cores()
        work = torch.zeros(threads - 1, NEAR, self.segments, columns, dtype=torch.int64)
        rounded = torch.zeros(self.segments, columns, dtype=torch.float64)
        self._held = [sums, work, rounded]
        self.call = Segments(
            data=address(self.data),
            stride=self.data.stride(0),
            rows=len(self.data),
            is_double=self.data.dtype == torch.float64,
            columns=columns,
            base=None if self.base is None else address(self.base),
            segments=self.segments,
            top=max(frexp(self.peak)[1], SMALLEST) if self.peak else 0,
            levels=self._levels,
            threads=threads,
            total=max(len(self.data), self.total),
            sums=address(sums),
            counts=address(self.counts),
            work=address(work),
            rounded=address(rounded),
        )
        self._labels = self._weights = None

    def sums(self, labels: Tensor, weights: Tensor | None = None) -> Tensor | None:
        """The sums for these labels (int32), correctly rounded; None when the numbers differ by too many bits."""
        return self._found(labels, weights, False)

    def means(self, labels: Tensor) -> Tensor | None:
        """The sums over the number of their rows, 0 where there is none."""
        return self._found(labels, None, True)

    def _found(self, labels: Tensor, weights: Tensor | None, divide: bool) -> Tensor | None:
        if labels.dtype != torch.int32 or not labels.is_contiguous():
            labels = labels.to(torch.int32).contiguous()
        if self.full:
            return None
        out = torch.empty(self.segments, self.data.shape[1], dtype=torch.float64)
        while not self._moved(labels, weights, divide, out):
            if not self._widen():
                return None
        self._labels, self._weights = labels, weights
        self.empty = self.call.empty
        return out

    def _widen(self) -> bool:
        """Sums of nothing with room for more pieces; False if there is no more."""
        later = [levels for levels in LEVELS if levels > self._levels]
        if not later:
            self.full = True
            return False
        self._levels = later[0]
        self.start_anew()
        return True

    def _moved(self, labels: Tensor, weights: Tensor | None, divide: bool, out: Tensor) -> bool:
        call = self.call
        call.labels, call.out, call.divide = address(labels), address(out), divide
        call.before = None if self._labels is None else address(self._labels)
        if weights is not None:
            call.weights = address(weights)
            call.before_weights = None if self._weights is None else address(self._weights)
        return self.library.segments(call)
