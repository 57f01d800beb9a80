"""Exact sums of rows by label in a form that can be sent, stored and added in any order: for other people's engines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from weftc_runtime.errors import RunError
from weftc_runtime.exact.sums import accumulated, rounded, window

RANGE = {torch.float32: (-201, 76), torch.float64: (-1074, 972)}  # exponents that significands of 53 bits may have


@dataclass(frozen=True, slots=True)
class MergeableSums:
    """Sums (segments, columns) as integers of all exponents of a type, and how many rows each segment has."""

    limbs: Tensor  # int64 (segments * columns, limbs)
    counts: Tensor  # int64 (segments,)
    base: int

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor, segments: int) -> MergeableSums:
        """The sums of some rows (n, columns), float32 or float64; a row with a negative label counts for none."""
        if rows.dtype not in RANGE or not bool(torch.isfinite(rows).all()):
            raise RunError("sums are made of finite numbers in float32 or float64")
        base, limbs = window(*RANGE[rows.dtype])
        used = labels >= 0
        numbers, place = rows[used].to(torch.float64), labels[used].to(torch.int64)
        columns = torch.arange(rows.shape[1])
        bins = (place[:, None] * rows.shape[1] + columns).reshape(-1)
        summed = accumulated([(numbers.reshape(-1), bins)], segments * rows.shape[1], base, limbs, rows.device)
        return cls(summed.reshape(-1, limbs), torch.bincount(place, minlength=segments), base)

    def __add__(self, other: MergeableSums) -> MergeableSums:
        return MergeableSums(self.limbs + other.limbs, self.counts + other.counts, self.base)

    def sums(self) -> Tensor:
        """The sums, each rounded once, float64."""
        return rounded(self.limbs.clone(), self.base).reshape(len(self.counts), -1)

    def means(self) -> Tensor:
        """The sums over the number of their rows; 0 where there is none."""
        return self.sums() / self.counts.clamp_min(1)[:, None]
