"""Exact sums over segments of any numbers, as a few tensors that add up to them.

Numbers are cut into limbs, multiples of a power of two with few enough bits that float64 adds all of them without
rounding, in any order. The limbs of a segment are added by `index_add_`, in blocks. When labels change, only the rows
that changed are moved: limbs are subtracted from one segment and added to another, which is exact too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, frexp, isfinite, log2

import torch
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.merging import Others
from weftc_runtime.exact.rows import Rows
from weftc_runtime.threads import cores, each

BLOCK = 1 << 17  # numbers added at a time: 1 MB
MOST_LIMBS = 24  # numbers that differ by more bits than these hold are left to the reference
FEW_MOVES = 0.4  # the share of rows up to which moving is cheaper than starting again

Values = Callable[[Rows], Tensor]  # rows of the numbers, float32 or float64 (rows, columns)


@dataclass(slots=True)
class LimbSum:
    """Sums (segments, columns) of rows; row r counts for segment labels[r], or for none where that is negative."""

    values: Values
    rows: int
    columns: int
    segments: int
    device: torch.device
    top: int  # all numbers are below 2 ** top
    total: int = 0  # rows of all processes, where they are more
    labels: Tensor | None = None
    counts: Tensor | None = None  # rows of every segment
    _limbs: list[Tensor] | None = None

    @property
    def _bits(self) -> int:
        """Bits of a limb: sums of all rows, and of as many being moved, stay below 2^52 units."""
        return 50 - ceil(log2(max(self.rows, self.total) + 1))

    def unit(self, level: int) -> int:
        """The limbs of a level are multiples of 2 to this power."""
        return self.top - self._bits * (level + 1) + 1

    def terms(self, labels: Tensor) -> list[Tensor]:
        """Tensors that add up to the sums for these labels; `counts` then says how many rows each has."""
        self._move(labels)
        assert self._limbs is not None
        return [limb[: self.segments] for limb in self._limbs]

    def _move(self, labels: Tensor) -> None:
        if self.labels is not None and self._limbs is not None:
            changed = (labels != self.labels).nonzero()[:, 0]
            if len(changed) <= FEW_MOVES * self.rows:
                if len(changed):
                    self._add(changed, self.labels[changed], -1.0)
                    self._add(changed, labels[changed], 1.0)
                self.labels = labels
                return
        self._limbs = []
        self.counts = torch.zeros(self.segments, dtype=torch.int64, device=self.device)
        self._add(None, labels, 1.0)
        self.labels = labels

    def _add(self, picked: Tensor | None, labels: Tensor, sign: float) -> None:
        many = self.rows if picked is None else len(picked)

        def add(part: slice) -> tuple[list[Tensor], Tensor]:
            """The limbs of some rows, summed, and how many rows each segment gets."""
            found: list[Tensor] = []
            count = torch.zeros(self.segments + 1, dtype=torch.int64, device=self.device)
            for block in in_blocks(part, self.columns):
                values = self.values(block if picked is None else picked[block]).to(torch.float64)
                target = labels[block].to(torch.int64)
                target = torch.where(target < 0, self.segments, target)
                count += counted(target, self.segments + 1)
                self._cut(values * sign if sign < 0 else values, target, found)
            return found, count[: self.segments]

        assert self._limbs is not None
        assert self.counts is not None
        for limbs, count in each(add, shares(many, self.columns), self.device):
            self.counts += count if sign > 0 else -count
            for level, limb in enumerate(limbs):
                if level == len(self._limbs):
                    self._limbs.append(limb)
                else:
                    self._limbs[level] += limb

    def _cut(self, values: Tensor, target: Tensor, limbs: list[Tensor]) -> None:
        """Adds the limbs of a block; a limb beyond those in use is opened where a block needs it."""
        rest, level = values, 0
        while True:
            unit_exponent = self.unit(level)
            if level >= MOST_LIMBS or unit_exponent < -960:
                raise Uncovered("the numbers of a sum differ by too many orders of magnitude")
            pull = 1.5 * 2.0 ** (52 + unit_exponent)  # adding and subtracting it rounds to multiples of the unit
            limb = (rest + pull).sub_(pull)
            if level == len(limbs):
                shape = (self.segments + 1, self.columns)
                limbs.append(torch.zeros(shape, dtype=torch.float64, device=self.device))
            limbs[level].index_add_(0, target, limb)
            rest = rest - limb
            level += 1
            if not bool(rest.any()):
                return


def counted(places: Tensor, many: int) -> Tensor:
    """How often each of so many places occurs; no device is waited for, as `torch.bincount` would."""
    ones = torch.ones(1, dtype=torch.int64, device=places.device).expand(len(places))
    return torch.zeros(many, dtype=torch.int64, device=places.device).index_add_(0, places, ones)


def reach(values: Values, rows: int, columns: int, device: torch.device, others: Others | None = None) -> int:
    """The power of two above all numbers, those of other processes too."""

    def peak(part: slice) -> Tensor:
        found = [values(block).abs().max() for block in in_blocks(part, columns)]
        return torch.stack(found).max() if found else torch.zeros((), device=device)

    most = float(torch.stack([one.to(torch.float64) for one in each(peak, shares(rows, columns), device)]).max())
    if others is not None:
        most = float(others.max(torch.tensor([most], dtype=torch.float64)))
    if not isfinite(most):
        raise Uncovered("a value is not finite")
    top = frexp(most)[1] if most else 0
    if top > 900:
        raise Uncovered("the numbers of a sum are too large")
    return max(top, -600)


def shares(rows: int, columns: int) -> list[slice]:
    """Rows in as many parts as there are cores; few numbers in one, and no rows, too."""
    size = max(1, -(-rows // (cores() if rows * columns > BLOCK else 1)))
    return [slice(start, min(rows, start + size)) for start in range(0, max(1, rows), size)]


def in_blocks(part: slice, columns: int, most: int = BLOCK) -> list[slice]:
    """The rows of a part, at most so many at a time."""
    size = max(1, min(most, BLOCK // max(1, columns)))
    return [slice(start, min(part.stop, start + size)) for start in range(part.start, part.stop, size)]
