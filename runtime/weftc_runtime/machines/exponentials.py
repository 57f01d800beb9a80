"""Scores that no layer changes -> the matrix of their exponentials, which heads share in both directions.

A score is split into a part S that stays and terms of the query alone, a, and of the key alone, b. Kept is

    K[i, j] = exp(S[i, j] + a0[i] + b0[j]),    a0[i] = -max_j (S[i, j] + b0[j])

for the b0 at the time it was made. Then sum_j exp(S + b) = exp(-a0[i]) * sum_j K[i, j] exp(b[j] - b0[j]), and the other
way around sum_i exp(S + a) = exp(-b0[j]) * sum_i K[i, j] exp(a[i] - a0[i]): a head and one that looks at the same costs
from the other side need one matrix. The largest entry of a row is 1, that of a column at least exp(-slack), so nothing
that counts underflows as long as b (or a) has moved by much the same everywhere. When it has not, a matrix is made anew
for the head that needs it, and serves the other one if it can.
"""

from __future__ import annotations

from ctypes import POINTER
from ctypes import cast as pointer
from dataclasses import dataclass
from math import inf, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.exact.rows import blocks
from weftc_runtime.kernels.native.layers import Costs, PartStruct
from weftc_runtime.kernels.native.library import Library, address
from weftc_runtime.kernels.precision import full_precision
from weftc_runtime.machines.head_task import HeadTask
from weftc_runtime.machines.heads_stream import StreamedHead
from weftc_runtime.threads import cores, each

BLOCK = 64  # columns of a matrix, and token arrays, are padded to multiples of it
ROWS = 8  # rows of a matrix are padded to multiples of it
RUN = 256  # products added in float32 at a time, where torch adds them
PADDING = -1e300  # the score of a column that is none


def up(count: int, unit: int) -> int:
    """The next multiple."""
    return -(-count // unit) * unit


@dataclass(slots=True, eq=False, weakref_slot=True)
class Kept:
    """Exponentials of costs and what they were made for."""

    matrix: Tensor  # (rows, stride), padded
    rows: int
    columns: int
    turned: bool  # whether its rows are the keys of the head that is not turned
    row_base: Tensor  # a0, float64, padded
    column_base: Tensor  # b0
    slack: float  # -log of the smallest of the largest entries of the columns

    def bases(self, turned: bool) -> tuple[Tensor, Tensor]:
        """What it holds of the terms of the queries and of the keys of a head."""
        along = turned == self.turned
        return (self.row_base, self.column_base) if along else (self.column_base, self.row_base)

    def room(self, turned: bool) -> float:
        """How much of the range of exponents it takes up itself."""
        return 0.0 if turned == self.turned else self.slack

    def times(self, weights: Tensor, turned: bool, kernels: Library | None) -> Tensor:
        """Sums over the keys with columns of weights (keys, columns), in float64."""
        along = turned == self.turned
        narrow = weights.to(self.matrix.dtype)
        if kernels is not None:
            size, wide = len(self.matrix), up(self.columns, BLOCK)
            padded = narrow.new_zeros(weights.shape[1], wide if along else size)
            padded[:, : len(weights)] = narrow.T
            many = self.rows if along else self.columns
            found = [kernels.product(self.matrix, wide, column, not along, cores())[:many] for column in padded]
            return torch.stack(found, 1)
        whole = self.matrix[: self.rows, : self.columns]
        whole = whole if along else whole.T
        total = torch.zeros(len(whole), weights.shape[1], dtype=torch.float64, device=weights.device)
        with full_precision():
            for run in blocks(len(weights), 1, RUN):
                total += whole[:, run] @ narrow[run]
        return total


def made(still: HeadTask, base: Tensor, dtype: torch.dtype, kernels: Library | None) -> Kept:
    """The exponentials of a head with the part of its score that stays; `base` are the terms of its keys now."""
    many, keys = still.queries, len(still.keys)
    wide = up(keys, BLOCK)
    stride = wide + 16  # rows do not compete for the same lines of the cache
    matrix = torch.empty(up(many, ROWS), stride, dtype=dtype, device=still.device)
    row_base = torch.zeros(up(many, BLOCK), dtype=torch.float64, device=still.device)
    column_base = torch.zeros(wide, dtype=torch.float64, device=still.device)
    column_base[:keys] = base
    peak = row_base[:many]
    fill = _by_torch if kernels is None else _natively
    least = fill(still, matrix, column_base, peak, kernels)
    peak.neg_()
    slack = -log(least) if least > 0 else inf
    return Kept(matrix, many, keys, still.plan.transposed, row_base, column_base, slack)


def _by_torch(still: HeadTask, matrix: Tensor, base: Tensor, peak: Tensor, kernels: Library | None) -> float:
    stream, many, keys = StreamedHead(still), still.queries, len(still.keys)
    stream.ready()
    matrix[many:] = 0
    matrix[:, keys:] = 0

    def fill(rows: slice) -> Tensor:
        size = rows.stop - rows.start
        scores = stream.scores(stream.query_features(rows), size, slice(0, keys)) + base[:keys]
        peak[rows] = scores.amax(1)
        matrix[rows, :keys] = scores.sub_(peak[rows, None]).exp_().to(matrix.dtype)
        return matrix[rows, :keys].amax(0)

    highest = each(fill, blocks(many, keys), still.device)
    return float(torch.stack(highest).amax(0).min())


def _natively(still: HeadTask, matrix: Tensor, base: Tensor, peak: Tensor, kernels: Library | None) -> float:
    assert kernels is not None
    many, keys, wide, narrow = still.queries, len(still.keys), len(base), still.narrow
    z = narrow.query.read(still.query, still.rows), narrow.keys.read(still.keys)
    parts = (PartStruct * len(narrow.head.score.parts))()
    alive: list[Any] = []  # arrays that the structures point to
    for part, out in zip(narrow.head.score.parts, parts, strict=True):
        query = narrow.weights.product(z[0], part.q).contiguous()
        features = np.zeros((query.shape[1], wide))
        features[:, :keys] = narrow.weights.product(z[1], part.k).numpy().T
        out.q, out.k, out.features = address(query), features.ctypes.data, query.shape[1]
        out.distance = part.kind == "l2"
        out.coefficient = 1.0 if part.coefficient is None else float(narrow.weights[part.coefficient])
        alive += [query, features]
        if part.scale is not None:
            side = part.scale[0] == "query"
            scale = np.zeros(many if side else wide)
            scale[: many if side else keys] = narrow.weights.product(z[0 if side else 1], part.scale[1])[:, 0].numpy()
            out.scale, out.side = scale.ctypes.data, 1 if side else 2
            alive.append(scale)
    padded = base.numpy().copy()
    padded[keys:] = PADDING
    costs = Costs(matrix=address(matrix), rows=many, columns=keys, padded=wide, stride=matrix.stride(0))
    costs.is_double, costs.parts, costs.threads = matrix.element_size() == 8, len(parts), cores()
    costs.part = pointer(parts, POINTER(PartStruct))
    costs.base, costs.peak = padded.ctypes.data, address(peak)
    kernels.costs(costs)
    return float(costs.least)
