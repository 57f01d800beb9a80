"""Soft heads whose costs stay the same from layer to layer, in torch: exponentials are kept, and a layer is a product.

A score is split into a part S that stays and terms of the query alone, a, and of the key alone, b. Kept is

    K[i, j] = exp(S[i, j] + a0[i] + b0[j]),    a0[i] = -max_j (S[i, j] + b0[j])

for the b0 at the time it was made. Then sum_j exp(S + b) = exp(-a0[i]) * sum_j K[i, j] exp(b[j] - b0[j]), and the other
way around sum_i exp(S + a) = exp(-b0[j]) * sum_i K[i, j] exp(a[i] - a0[i]): a head and one that looks at the same costs
from the other side need one matrix. The largest entry of a row is 1, that of a column at least exp(-slack), so nothing
that counts underflows as long as b (or a) has moved by much the same everywhere. When it has not, a matrix is made anew
for the head that needs it, and serves the other one if it can. The native machine does the same (`kept.cpp`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, log
from typing import cast

import torch
from torch import Tensor

from weftc_runtime.exact.rows import blocks
from weftc_runtime.format.program import Part, Score
from weftc_runtime.kernels.precision import full_precision
from weftc_runtime.machines.head_task import HeadOutput, HeadTask
from weftc_runtime.machines.heads_stream import StreamedHead, Tile
from weftc_runtime.plan.narrow import NarrowHead
from weftc_runtime.plan.slots import SlotValue, UniformSlot
from weftc_runtime.plan.structure import table
from weftc_runtime.threads import each

MEMORY = 1 << 29  # bytes that one head may keep
REACH = 20.0  # how far apart b may move: exp(REACH) is nothing beside the range of float32
RUN = 256  # products added in float32 at a time


@dataclass(slots=True, eq=False, weakref_slot=True)
class Kept:
    """Exponentials of costs and what they were made for."""

    matrix: Tensor  # (rows, columns)
    turned: bool  # whether its rows are the keys of the head that is not turned
    row_base: Tensor  # a0, float64
    column_base: Tensor  # b0
    slack: float  # -log of the smallest of the largest entries of the columns

    def bases(self, turned: bool) -> tuple[Tensor, Tensor]:
        """What it holds of the terms of the queries and of the keys of a head."""
        along = turned == self.turned
        return (self.row_base, self.column_base) if along else (self.column_base, self.row_base)

    def serves(self, other: Tensor, turned: bool) -> bool:
        """Whether the terms of the keys have moved by much the same since it was made."""
        low, high = (float(end) for end in (other - self.bases(turned)[1]).aminmax())
        return high - low + (0.0 if turned == self.turned else self.slack) <= REACH

    def times(self, weights: Tensor, turned: bool) -> Tensor:
        """Sums over the keys with columns of weights (keys, columns), in float64."""
        whole, narrow = self.matrix if turned == self.turned else self.matrix.T, weights.to(self.matrix.dtype)
        total = torch.zeros(len(whole), weights.shape[1], dtype=torch.float64, device=weights.device)
        with full_precision():
            for run in blocks(len(weights), 1, RUN):
                total += whole[:, run] @ narrow[run]
        return total


def made(still: HeadTask, base: Tensor, dtype: torch.dtype) -> Kept:
    """The exponentials of a head with the part of its score that stays; `base` are the terms of its keys now."""
    stream, many, keys = StreamedHead(still), still.queries, len(still.keys)
    matrix = torch.empty(many, keys, dtype=dtype, device=still.device)
    peak = torch.zeros(many, dtype=torch.float64, device=still.device)
    stream.ready()

    def fill(rows: slice) -> Tensor:
        scores = stream.scores(stream.query_features(rows), rows.stop - rows.start, slice(0, keys)) + base
        peak[rows] = scores.amax(1)
        matrix[rows] = scores.sub_(peak[rows, None]).exp_().to(dtype)
        return matrix[rows].amax(0)

    least = float(torch.stack(each(fill, blocks(many, keys), still.device)).amax(0).min())
    return Kept(matrix, still.plan.transposed, -peak, base, -log(least) if least > 0 else inf)


def kept_head(call: HeadTask, dtype: torch.dtype) -> HeadOutput | None:
    """The head by its kept exponentials; None where they would take too much room."""
    if call.queries * len(call.keys) * dtype.itemsize > MEMORY:
        return None
    own, other = _terms(call)
    known = _serving(call, other, dtype)
    query_base, key_base = known.bases(call.plan.transposed)
    moved = other - key_base
    low, high = (float(end) for end in moved.aminmax())
    middle = (low + high) / 2
    return HeadOutput(_summed(call, known, own + middle - query_base, (moved - middle).exp()))


def _serving(call: HeadTask, other: Tensor, dtype: torch.dtype) -> Kept:
    """Kept exponentials that serve a head whose keys have these terms now."""
    rest, turned = still(call), call.plan.transposed
    sides = rest.sources("query"), rest.sources("key")
    sources: tuple[SlotValue, ...] = (*sides[1], *sides[0]) if turned else (*sides[0], *sides[1])
    known = rest.static(("kept", rest.plan.cost_group), sources, list[Kept])  # latest first
    found = next((kept for kept in known if kept.serves(other, turned)), None)
    if found is None:
        known[:] = [kept for kept in known if kept.turned != turned]  # let go before another is made
        found = made(rest, other, dtype)
        known.insert(0, found)
    elif found.turned != turned and found is known[0]:
        del known[1:]  # it serves both sides
    return found


def _summed(call: HeadTask, known: Kept, peak: Tensor, factors: Tensor) -> Tensor:
    """What the head adds, by products with what is kept."""
    stream, narrow = StreamedHead(call), call.narrow
    weights = factors[:, None]
    shared = None  # the value, where all keys have the same
    if not stream.number and narrow.head.value:
        if all(isinstance(call.keys.slot(name), UniformSlot) for name in call.reads("value")):
            shared = narrow.values(call.keys, slice(0, 1))
        else:
            weights = torch.cat([weights, weights * narrow.values(call.keys)], 1)
    sums = known.times(weights, call.plan.transposed)
    mass = sums[:, 0]
    if stream.number:
        return stream.finish(Tile(peak, mass, None), call.rows)
    total = sums[:, 1:] if shared is None else mass[:, None] * shared
    if stream.kind == "exp":
        return stream.finish(Tile(None, None, total * peak.exp()[:, None]), call.rows)
    return stream.finish(Tile(peak, mass, total), call.rows)


def terms(call: HeadTask) -> Iterator[tuple[Part, list[int]]]:
    """The rows of the parts of the score that are terms of one side alone."""
    kept = dict(call.plan.kept)
    for index, part in enumerate(call.narrow.head.score.parts):
        still_rows = kept.get(index, ())
        rows = [row for row in range(len(call.narrow.query.matrices[part.q])) if row not in still_rows]
        if rows:
            yield part, rows


def _terms(call: HeadTask) -> tuple[Tensor, Tensor]:
    """What the score adds for the query alone and for the key alone."""
    narrow = call.narrow
    own = torch.zeros(call.queries, dtype=torch.float64, device=call.device)
    other = torch.zeros(len(call.keys), dtype=torch.float64, device=call.device)
    z = narrow.query.read(call.query, call.rows), narrow.keys.read(call.keys)
    for part, rows in terms(call):
        query, keys = narrow.weights.product(z[0], part.q), narrow.weights.product(z[1], part.k)
        uniform = _uniform(call, part.q)
        for row in rows:
            if uniform[row]:
                other = other + keys[:, row] * query[0, row]
            else:
                own = own + query[:, row] * keys[0, row]
    return own, other


def _uniform(call: HeadTask, name: str) -> list[bool]:
    """For every row of a matrix over the query whether it reads only what all queries share now."""
    stream, narrow = call.query.stream, call.narrow.query
    shared = tuple(isinstance(call.query.slot(slot.name), UniformSlot) for slot in stream.slots)
    key = ("uniform", id(call.narrow), name, shared)  # a field may be the same for all at first, and not later

    def look() -> list[bool]:
        same = torch.zeros(stream.width, dtype=torch.bool, device=call.device)
        for slot, alike in zip(stream.slots, shared, strict=True):
            same[slot.columns] = alike
        return cast(list[bool], (same[list(narrow.columns)] | (narrow.matrices[name] == 0)).all(1).tolist())

    return call.static(key, (), look)


def still(call: HeadTask) -> HeadTask:
    """The head with what of its score no layer changes, and nothing else."""
    key, known = ("still",), call.narrow.kept
    if key not in known:
        head, tensors, parts = call.plan.head, dict(call.tensors), []
        for index, rows in call.plan.kept:
            part = head.score.parts[index]
            names = tuple(f"{name} of {head.name}, what stays" for name in (part.q, part.k))
            for name, whole in zip(names, (part.q, part.k), strict=True):
                tensors[name] = table(call.tensors[whole])[list(rows)]
            parts.append(replace(part, q=names[0], k=names[1]))
        known[key] = NarrowHead.of(replace(head, score=Score(tuple(parts)), self_key=None, value=""), tensors)
    return replace(call, narrow=cast(NarrowHead, known[key]))
