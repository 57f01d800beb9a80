"""Soft heads of joined problems: every query sees the keys of its own problem, and many problems make one tile.

Scores of a tile are (problems, queries, keys), by products of matrices side by side (`lots`). Keys that stand in for
missing ones get the weight zero. A problem that is larger than a tile runs alone, as `heads_stream` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from weftc_runtime.exact.distances import Squares
from weftc_runtime.exact.rows import Rows
from weftc_runtime.format.program import Part
from weftc_runtime.machines.batching import Lot, Pairs
from weftc_runtime.machines.head_task import HeadOutput, HeadTask, all_keys
from weftc_runtime.machines.heads_stream import RUN, TILE, StreamedHead, Tile, stream_head
from weftc_runtime.machines.joined import ProblemOffsets
from weftc_runtime.threads import each

PEAKED = frozenset({"softmax", "lse", "max", "exp"})  # a score of -inf weighs nothing


class JoinedStream(StreamedHead):
    """One head on tiles of several problems."""

    def run(self, pairs: Pairs) -> Tensor:
        """What the head adds for these queries, (rows, writes)."""
        return self.ended(self.side_by_side(pairs), pairs)

    def side_by_side(self, pairs: Pairs) -> Tensor:
        """Scores (problems, queries, keys)."""
        call, narrow = self.call, self.narrow
        z = narrow.query.read(call.query, pairs.query.rows), narrow.keys.read(call.keys, pairs.keys.rows)
        total: Tensor | None = None
        for part in narrow.head.score.parts:
            value = self._part(part, z, pairs)
            total = value if total is None else total + value
        if total is None:
            shape = pairs.query.problems, pairs.query.size, pairs.keys.size
            return torch.zeros(shape, dtype=torch.float64, device=call.device)
        return total

    def _part(self, part: Part, z: tuple[Tensor, Tensor], pairs: Pairs) -> Tensor:
        weights, lots = self.narrow.weights, (pairs.query, pairs.keys)
        q, k = (lots[side].spread(weights.product(z[side], name)) for side, name in enumerate((part.q, part.k)))
        scale = None
        if part.scale is not None:
            side = 0 if part.scale[0] == "query" else 1
            scale = lots[side].spread(weights.product(z[side], part.scale[1]))
        if part.kind == "l2":
            assert part.coefficient is not None
            coefficient = weights[part.coefficient]
            value = _distances(q, k, coefficient.abs() if scale is None else coefficient.abs() * scale.abs())
            value = value.mul_(coefficient)
        else:
            value = k.mT if _are_eyes(q) else q @ k.mT
        if scale is None or part.scale is None:
            return value
        return value * (scale if part.scale[0] == "query" else scale.mT)

    def ended(self, scores: Tensor, pairs: Pairs) -> Tensor:
        """What these scores come to."""
        rows, kind, empty = pairs.query.gathered, self.kind, pairs.keys.empty
        if empty is not None:
            scores = scores.masked_fill(empty[:, None], -torch.inf if kind in PEAKED else 0.0)
        peak = mass = total = None
        if kind in ("softmax", "lse", "max"):
            peak = scores.amax(-1)
        weights = scores
        if peak is not None and kind != "max":
            weights = (scores - peak[..., None]).exp_()
        elif kind == "exp":
            weights = scores.exp()
        if kind in ("softmax", "lse", "normalize"):
            mass = weights.sum(-1)
        if not self.number:
            total = rows(self._added(weights, pairs.keys))
        peak, mass = (None if numbers is None else rows(numbers) for numbers in (peak, mass))
        return self.finish(Tile(peak, mass, total), pairs.query.rows)

    def _added(self, weights: Tensor, keys: Lot) -> Tensor:
        """Values of the keys, weighted and added: (problems, queries, writes)."""
        if not self.narrow.head.value:
            return weights.new_zeros(*weights.shape[:2], len(self.narrow.writes))
        values = keys.spread(self.narrow.values(self.call.keys, keys.rows))
        return weights if _are_eyes(values) else _product(weights, values)


def _distances(q: Tensor, k: Tensor, factor: Tensor) -> Tensor:
    """Squared distances; every problem by the range of its own features."""
    low = torch.minimum(q.amin(1, keepdim=True), k.amin(1, keepdim=True))
    high = torch.maximum(q.amax(1, keepdim=True), k.amax(1, keepdim=True))
    squares = Squares(low, high, factor.amax(1, keepdim=True) if factor.dim() else factor)
    return squares.distances(squares.query(q), squares.key(k))


def _product(weights: Tensor, values: Tensor) -> Tensor:
    """weights @ values for every problem, added in runs as `heads_stream` does."""
    many = values.shape[1] // RUN
    if many < 2:
        return weights @ values
    whole, (problems, queries), columns = many * RUN, weights.shape[:2], values.shape[2]
    cut = weights[..., :whole].reshape(problems, queries, many, RUN).transpose(1, 2)
    parts = cut @ values[:, :whole].reshape(problems, many, RUN, columns)
    return parts.sum(1) + weights[..., whole:] @ values[:, whole:]


def _are_eyes(matrices: Tensor) -> bool:
    """Whether all of some matrices are the identity."""
    if matrices.shape[1] != matrices.shape[2]:
        return False
    eye = torch.eye(matrices.shape[1], dtype=matrices.dtype, device=matrices.device)
    return bool((matrices == eye).all())


def joined_stream_head(call: HeadTask, groups: ProblemOffsets) -> HeadOutput:
    """A soft head for all queries of all problems."""
    stream = JoinedStream(call)
    alone = stream.functions or stream.other  # one problem after the other
    out = torch.empty(call.queries, len(call.narrow.writes), dtype=torch.float64, device=call.device)
    names, once = (call.query.stream.name, call.keys.stream.name), call.plan.uniform_query

    def run(found: Pairs | int) -> None:
        if isinstance(found, Pairs):
            out[found.numbers if once else found.query.rows] = stream.run(found)
            return
        made = stream_head(call.part(found)).out
        assert made is not None
        out[slice(found, found + 1) if once else slice(*groups.ends(names[0], found))] = made

    found = range(groups.count) if alone else groups.tiles(*names, once, TILE, call.device)
    each(run, found, call.device)
    return HeadOutput(out, choice=all_keys(call))


def joined_shared_rows(calls: Sequence[HeadTask], groups: ProblemOffsets) -> Callable[[Rows], list[Tensor]]:
    """The outputs of heads with few keys for any rows of joined problems; the same scores are computed once."""
    streams = [JoinedStream(call) for call in calls]

    def rows_of(rows: Rows) -> list[Tensor]:
        scores: dict[int, tuple[Tensor, Pairs]] = {}
        outs = []
        for stream in streams:
            call = stream.call
            if call.plan.score_group not in scores:
                pairs = groups.pairs(call.query.stream.name, call.keys.stream.name, rows, call.device)
                scores[call.plan.score_group] = stream.side_by_side(pairs), pairs
            outs.append(stream.ended(*scores[call.plan.score_group]))
        return outs

    return rows_of
