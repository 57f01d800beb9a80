"""Soft heads whose costs stay the same from layer to layer: their exponentials are kept, and a layer is a product.

A score is split into a part S that no layer changes and terms of the query alone, a, and of the key alone, b. Kept is

    K[i, j] = exp(S[i, j] + b0[j] - peak[i]),    peak[i] = max_j S[i, j] + b0[j]

for the b0 at the time it was made. Then sum_j exp(score) = exp(a[i] + peak[i]) * sum_j K[i, j] exp(b[j] - b0[j]). The
largest entry of a row is 1, so nothing that counts underflows as long as b has moved by much the same everywhere; when
it has not, K is made anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from weft_runtime.calls import Call, Given
from weft_runtime.heads_stream import Stream, Tile
from weft_runtime.held import Uniform, blocks
from weft_runtime.ir import Score
from weft_runtime.lens import HeadLens
from weft_runtime.native.library import library
from weft_runtime.workers import cores, each

MEMORY = 1 << 29  # bytes that one head may keep
NATIVE = 1 << 20  # entries from which compiling the native kernels pays
REACH = 10.0  # how far apart b may move: exp(2 * REACH) is nothing beside the range of float32
RUN = 256  # products added in float32 at a time, where torch adds them


@dataclass(slots=True, eq=False)
class Kept:
    """Exponentials (queries, keys) and what they were made for."""

    matrix: Tensor
    peak: Tensor  # (queries,), float64
    base: Tensor  # (keys,), b0

    def times(self, weights: Tensor) -> Tensor:
        """The matrix times columns of weights (keys, columns), in float64."""
        narrow = weights.to(self.matrix.dtype)
        kernels = library(build=self.matrix.numel() >= NATIVE) if self.matrix.device.type == "cpu" else None
        if kernels is not None:
            columns = [kernels.product(self.matrix, column.contiguous(), cores()) for column in narrow.T]
            return torch.stack(columns, 1)
        total = torch.zeros(len(self.matrix), weights.shape[1], dtype=torch.float64, device=weights.device)
        for run in blocks(len(weights), 1, RUN):
            total += self.matrix[:, run] @ narrow[run]
        return total


def kept_head(call: Call, dtype: torch.dtype) -> Given | None:
    """The head by its kept exponentials; None where they would take too much room."""
    if call.queries * len(call.keys) * dtype.itemsize > MEMORY:
        return None
    own, other = _terms(call)
    still = _still(call)
    key = ("kept", id(call.plan.head))
    sources = (*still.sources("query"), *still.sources("key"))
    known = cast(Kept, call.static(key, sources, lambda: _made(still, other, dtype)))
    moved = other - known.base
    low, high = (float(end) for end in moved.aminmax())
    if not high - low <= 2 * REACH:
        known = _made(still, other, dtype)
        call.cache[key] = (sources, known)
        moved, low, high = torch.zeros_like(other), 0.0, 0.0
    middle = (low + high) / 2
    return Given(_summed(call, known, own + middle, (moved - middle).exp()))


def _summed(call: Call, known: Kept, own: Tensor, factors: Tensor) -> Tensor:
    """What the head adds, by products with what is kept."""
    stream, lens = Stream(call), call.lens
    weights = factors[:, None]
    shared = None  # the value, where all keys have the same
    if not stream.number and lens.head.value:
        if all(isinstance(call.keys.slot(name), Uniform) for name in call.reads("value")):
            shared = lens.values(call.keys, slice(0, 1))
        else:
            weights = torch.cat([weights, weights * lens.values(call.keys)], 1)
    sums = known.times(weights)
    mass, peak = sums[:, 0], own + known.peak
    if stream.number:
        return stream.finish(Tile(peak, mass, None), call.rows)
    total = sums[:, 1:] if shared is None else mass[:, None] * shared
    if stream.kind == "exp":
        return stream.finish(Tile(None, None, total * peak.exp()[:, None]), call.rows)
    return stream.finish(Tile(peak, mass, total), call.rows)


def _terms(call: Call) -> tuple[Tensor, Tensor]:
    """What the score adds for the query alone and for the key alone."""
    lens = call.lens
    own = torch.zeros(call.queries, dtype=torch.float64, device=call.device)
    other = torch.zeros(len(call.keys), dtype=torch.float64, device=call.device)
    z = lens.query.read(call.query, call.rows), lens.keys.read(call.keys)
    for index, part in enumerate(lens.head.score.parts):
        if index in call.plan.kept:
            continue
        query, keys = lens.weights.product(z[0], part.q), lens.weights.product(z[1], part.k)
        for feature, uniform in enumerate(_uniform(call, part.q)):
            if uniform:
                other = other + keys[:, feature] * query[0, feature]
            else:
                own = own + query[:, feature] * keys[0, feature]
    return own, other


def _uniform(call: Call, name: str) -> list[bool]:
    """For every row of a matrix over the query whether it reads only what all queries share now."""
    stream, lens = call.query.stream, call.lens.query
    shared = tuple(isinstance(call.query.slot(slot.name), Uniform) for slot in stream.slots)
    key = ("uniform", id(call.lens), name, shared)  # a field may be the same for all at first, and not later
    if key not in call.cache:
        same = torch.zeros(stream.width, dtype=torch.bool, device=call.device)
        for slot, alike in zip(stream.slots, shared, strict=True):
            same[slot.columns] = alike
        call.cache[key] = (same[list(lens.columns)] | (lens.matrices[name] == 0)).all(1).tolist()
    return cast(list[bool], call.cache[key])


def _still(call: Call) -> Call:
    """The head with the part of its score that no layer changes, and nothing else."""
    key = ("still", id(call.plan.head))
    if key not in call.cache:
        head = call.plan.head
        score = Score(tuple(head.score.parts[index] for index in call.plan.kept))
        call.cache[key] = HeadLens.of(replace(head, score=score, self_key=None, value=""), call.tensors)
    return replace(call, lens=cast(HeadLens, call.cache[key]))


def _made(still: Call, base: Tensor, dtype: torch.dtype) -> Kept:
    stream, many, keys = Stream(still), still.queries, len(still.keys)
    stream.ready()
    matrix = torch.empty(many, keys, dtype=dtype, device=still.device)
    peak = torch.empty(many, dtype=torch.float64, device=still.device)

    def fill(rows: slice) -> None:
        size = rows.stop - rows.start
        scores = stream.scores(stream.query_features(rows), size, slice(0, keys)) + base
        peak[rows] = scores.amax(1)
        matrix[rows] = scores.sub_(peak[rows, None]).exp_().to(dtype)

    each(fill, blocks(many, keys), still.device)
    return Kept(matrix, peak, base)
