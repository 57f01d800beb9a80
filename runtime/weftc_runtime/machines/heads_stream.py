"""Heads with soft weights, in tiles.

Scores of a soft head are matrix products (`squares` for distances). A tile of scores gives its maximum, mass and
weighted sum; tiles are merged in order, rescaled to the larger maximum. Where scores are functions of scores, these are
computed tile by tile too: from differences, and from products added in order, as close numbers may matter there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.distances import Squares
from weftc_runtime.exact.rows import Rows, all_finite, blocks, count_of
from weftc_runtime.format.program import Part, Score
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.kernels.gpu import soft_sums_of
from weftc_runtime.kernels.reuse import once
from weftc_runtime.machines.checks import unless_finite
from weftc_runtime.machines.head_task import HeadOutput, HeadTask
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, UniformSlot
from weftc_runtime.reference.feed_forward import NEAR_ZERO
from weftc_runtime.reference.scores import function_of_scores, products_in_order
from weftc_runtime.reference.soft import lead
from weftc_runtime.threads import each

Features: TypeAlias = list[tuple[Tensor, ...]]
TILE = 1 << 18  # scores of a tile: 2 MB
KEYS = 1 << 12  # of a tile
TOGETHER = 1 << 9  # keys that a program of a device adds up, 32 at a time, one after the other
LEAST = 2.0**-960  # below this a sum of products may have underflowed
RUN = 32  # terms added one after the other: 32 roundings are 16 eps, which is what a value may be off


@dataclass(slots=True)
class Tile:
    """What some keys add up to for a block of queries: peak (q,), mass (q,), sum (q, writes)."""

    peak: Tensor | None
    mass: Tensor | None
    total: Tensor | None


class StreamedHead:
    """One head in tiles: features and values of the keys, made once where they are not too wide.

    Features of one side are a list: for each part of the score, and of the scores it takes functions of, the factors of
    its matrix products, then its scale.
    """

    def __init__(self, call: HeadTask) -> None:
        self.call, self.narrow = call, call.narrow
        self.kind = call.plan.head.weighting.kind
        self.number = self.kind in NUMBER_HEADS
        self.parts = tuple(self.narrow.head.score.nested())
        self.functions = bool(self.narrow.head.score.functions)
        self.other = any(mask.op == "other" for mask in self.narrow.head.masks)
        self.key_blocks = blocks(len(call.keys), 1, KEYS)
        self._small = len(call.keys) <= KEYS

    def ready(self) -> None:
        """Makes what blocks share, before they run side by side."""
        _ = self.squares, self._features, self._values, self.names

    @once
    def squares(self) -> list[Squares | None]:
        return [self._squares(part) if part.kind == "l2" else None for part in self.parts]

    @once
    def _features(self) -> Features | None:
        if not self._small and _deferred(self.call, self.narrow.keys):
            return None
        return self._key_features(slice(0, len(self.call.keys)))

    @once
    def _values(self) -> Tensor | None:
        if self.number or not self.narrow.head.value:
            return None
        if not self._small and _deferred(self.call, self.narrow.value):
            return None
        return self.narrow.values(self.call.keys)

    @once
    def names(self) -> bool:
        """Whether the value of a key is its name."""
        values, call = self._values, self.call
        if values is None or values.shape[0] != values.shape[1]:
            return False
        return bool(call.static(("names", id(call.plan.head)), call.sources("value"), lambda: _is_eye(values)))

    def _squares(self, part: Part) -> Squares:
        """How to compute the distances of a part: it needs to know the range of its features."""
        call, narrow = self.call, self.narrow
        width, scale = len(narrow.weights[part.q]), torch.ones(1, dtype=torch.float64, device=call.device)
        low = torch.full((1, width), torch.inf, dtype=torch.float64, device=call.device)
        high = -low  # in place: small numbers kept among large blocks keep the memory of these
        for side, residual, matrices, name in (
            ("query", call.query, narrow.query, part.q),
            ("key", call.keys, narrow.keys, part.k),
        ):
            many = call.queries if side == "query" else len(call.keys)
            for rows in blocks(many, max(1, len(matrices.columns))) if many else ():
                z = matrices.read(residual, rows)
                found = narrow.weights.product(z, name)
                torch.minimum(low, found.amin(0), out=low)
                torch.maximum(high, found.amax(0), out=high)
                if part.scale is not None and part.scale[0] == side:
                    torch.maximum(scale, narrow.weights.product(z, part.scale[1]).abs().max(), out=scale)
        assert part.coefficient is not None
        factor = narrow.weights[part.coefficient].abs().reshape(1) * scale
        if call.others is not None:
            ends = call.others.max(torch.cat([-low.flatten(), high.flatten(), factor]))
            low, high, factor = (
                -ends[: low.numel()].reshape(low.shape),
                ends[low.numel() : -1].reshape(high.shape),
                ends[-1:],
            )
        return Squares(low, high, factor[None], direct=self.functions)

    def follow(self, before: StreamedHead | None) -> None:
        """Takes over what is asked of all keys when the sums are finished, from the keys before these."""
        if before is None or self.kind != "normalize":
            return
        for here, there in zip(self.squares, before.squares, strict=True):
            if here is not None and there is not None:
                here.apart = here.apart | there.apart
        for size, more in zip(self.key_sizes, before.key_sizes, strict=True):
            size += more

    # ------------------------------------------------------------------ features
    def query_features(self, rows: Rows) -> Features:
        """What the scores of these queries are made of."""
        return self._side(self.narrow.query.read(self.call.query, rows), "query")

    def _key_features(self, rows: Rows) -> Features:
        return self._side(self.narrow.keys.read(self.call.keys, rows), "key")

    def key_features(self, rows: slice) -> Features:
        """The same of keys."""
        if self._features is None:
            return self._key_features(rows)
        return [tuple(factor[rows] for factor in factors) for factors in self._features]

    def _side(self, z: Tensor, side: str) -> Features:
        found: Features = []
        weights = self.narrow.weights
        for part, squares in zip(self.parts, self.squares, strict=True):
            features = weights.product(z, part.q if side == "query" else part.k)
            factors: tuple[Tensor, ...] = (features,)
            if squares is not None:
                factors = squares.query(features) if side == "query" else squares.key(features)
            if part.scale is not None and part.scale[0] == side:
                factors = (*factors, weights.product(z, part.scale[1]))
            found.append(factors)
        return found

    def values(self, rows: slice) -> Tensor:
        return self.narrow.values(self.call.keys, rows) if self._values is None else self._values[rows]

    # ------------------------------------------------------------------ scores and sums
    def scores(self, query: Features, many: int, block: slice) -> Tensor:
        """(queries, keys of the block)."""
        found = zip(self.squares, query, self.key_features(block), strict=True)
        total = self._sum(self.narrow.head.score, found)
        if total is None:
            return torch.zeros(many, block.stop - block.start, dtype=torch.float64, device=self.call.device)
        return total

    def _sum(self, score: Score, features: Iterator[tuple[Squares | None, Any, Any]]) -> Tensor | None:
        """The sum of the parts of a score; `features` of these and of what they take functions of, in order."""
        total: Tensor | None = None
        for part in score.parts:
            squares, q, k = next(features)
            if squares is not None:
                value = squares.distances(q, k)
                if part.coefficient is not None:
                    value = value * self.narrow.weights[part.coefficient]
            elif self.functions:
                value = products_in_order(q[0], k[0])
            else:
                value = k[0].T if self._are_names(q[0], part) else q[0] @ k[0].T
            if part.scale is not None:
                value = value * (q[-1] if part.scale[0] == "query" else k[-1].T)
            for factor in part.factors:
                inside = self._sum(factor.score, features)
                value = value * function_of_scores(
                    factor.function, torch.zeros_like(value) if inside is None else inside
                )
            total = value if total is None else total + value
        return total

    def _are_names(self, query: Tensor, part: Part) -> bool:
        """Whether the features of queries are their names."""
        call = self.call
        if query.shape[0] != query.shape[1] or len(query) != call.queries:
            return _is_eye(query)
        key = ("names of queries", id(call.plan.head), part.q)
        return bool(call.static(key, call.sources("query"), lambda: _is_eye(query)))

    def tile(self, scores: Tensor, block: slice, rows: slice | None = None) -> Tile:
        """What the keys of a block add up to; `rows`: of the queries, of which each may leave out its own token."""
        kind = self.kind
        if self.other and rows is not None:
            first, last = max(rows.start, block.start), min(rows.stop, block.stop)
            own = torch.arange(first, max(first, last), device=scores.device)
            scores[own - rows.start, own - block.start] = 0.0 if kind in ("sum", "normalize") else -torch.inf
        if self.functions and kind == "normalize" and bool((scores < 0).any()):
            raise Uncovered(f"head {self.call.plan.head.name} weighs by functions with signs: they may cancel")
        if kind in ("softmax", "lse", "max"):
            peak = scores.amax(1)
            if kind == "max":
                return Tile(peak, None, None)
            weights = (scores - peak[:, None].clamp_min(torch.finfo(scores.dtype).min)).exp_()  # none may be left
            mass = weights.sum(1)
            return Tile(peak, mass, None if kind == "lse" else self._weighted(weights, block))
        weights = scores.exp() if kind == "exp" else scores
        return Tile(None, weights.sum(1) if kind == "normalize" else None, self._weighted(weights, block))

    def _weighted(self, weights: Tensor, block: slice) -> Tensor:
        if not self.narrow.head.value:
            return weights.new_zeros(len(weights), len(self.narrow.writes))
        if self.names and len(self.key_blocks) == 1:
            return weights
        return _product(weights, self.values(block))

    def merge(self, one: Tile, two: Tile) -> Tile:
        """Two tiles of the same queries as one."""
        if one.peak is None or two.peak is None:
            mass = None if one.mass is None or two.mass is None else one.mass + two.mass
            assert one.total is not None
            assert two.total is not None
            return Tile(None, mass, one.total + two.total)
        peak = torch.maximum(one.peak, two.peak)
        if one.mass is None or two.mass is None:
            return Tile(peak, None, None)
        left, right = (torch.where(own == peak, 1.0, (own - peak).exp()) for own in (one.peak, two.peak))
        total = None
        if one.total is not None and two.total is not None:
            total = one.total * left[:, None] + two.total * right[:, None]
        return Tile(peak, one.mass * left + two.mass * right, total)

    def merged(self, tiles: Sequence[Tile]) -> Tile:
        """Tiles of the same queries as one, in their order."""
        found = tiles[0]
        for tile in tiles[1:]:
            found = self.merge(found, tile)
        return found

    def pack(self, tile: Tile, room: Tensor) -> None:
        """Writes a tile into (queries, 2 + writes)."""
        for part, columns in ((tile.peak, 0), (tile.mass, 1), (tile.total, slice(2, None))):
            if part is not None:
                room[:, columns] = part

    def unpacked(self, room: Tensor) -> Tile:
        """The tile that was written there."""
        peak = room[:, 0] if self.kind in ("softmax", "lse", "max") else None
        mass = room[:, 1] if self.kind in ("softmax", "lse", "normalize") else None
        return Tile(peak, mass, None if self.number else room[:, 2:])

    def finish(self, tile: Tile, rows: Rows) -> Tensor:
        """The output (rows, writes) of queries whose tiles are all merged, the self key included."""
        own = self.narrow.head.self_key
        z = self.narrow.query.read(self.call.query, rows) if own is not None else None
        fallback = None
        if own is not None and z is not None:
            fallback = self.narrow.weights.product(z, own.value) if own.value else None
            if own.row is not None:
                tile = self.merge(tile, self._own(self.narrow.weights.product(z, own.row)[:, 0], fallback))
        kind = self.kind
        if kind == "lse":
            assert tile.peak is not None
            assert tile.mass is not None
            out = self.narrow.weights.product((tile.peak + tile.mass.log())[:, None], "value")
        elif kind == "max":
            assert tile.peak is not None
            out = self.narrow.weights.product(tile.peak[:, None], "value")
        elif tile.mass is None:
            assert tile.total is not None
            out = tile.total
        else:
            assert tile.total is not None
            if kind == "normalize" and self._is_doubtful(tile.mass, rows):
                raise Uncovered(f"head {self.call.plan.head.name} decides exactly whether a total weight is zero")
            out = self._divided(tile.total, tile.mass, fallback if own is not None and own.row is None else None)
        mass, name = tile.mass, self.call.plan.head.name

        def wrong() -> None:
            if not all_finite(out) and mass is not None and bool((mass == 0).any()):
                raise Uncovered("the total weight of a query is zero and the equation has no `else`")
            if not all_finite(out):
                raise Uncovered(f"head {name} overflows")

        self.call.cache.checks.ask(unless_finite(out), wrong)
        return out

    @once
    def key_sizes(self) -> list[Tensor]:
        """The magnitudes of the features of all keys, added up, for every part."""
        every, others = slice(0, len(self.call.keys)), self.call.others
        sizes = [
            (
                factors[0].abs() * factors[-1].abs().amax()
                if len(factors) > 1 and len(factors[-1])
                else factors[0].abs()
            ).sum(0)
            for factors in self.key_features(every)
        ]
        return sizes if others is None else [others.stack(size).sum(0) for size in sizes]

    def _is_doubtful(self, mass: Tensor, rows: Rows) -> bool:
        """Whether rounding or underflow may hide that a total weight is zero, or make it so."""
        tiny, apart = mass.abs() < LEAST, torch.zeros_like(mass, dtype=torch.bool)
        if self.functions:  # none is negative
            return bool(tiny.any())
        terms = torch.zeros_like(mass)
        parts = zip(self.narrow.head.score.parts, self.squares, self.query_features(rows), self.key_sizes, strict=True)
        for part, squares, q, keys in parts:
            if squares is not None:  # differences do not cancel
                apart |= squares.apart
                continue
            size = q[0].abs() @ keys
            apart |= (q[0] != 0).to(keys.dtype) @ (keys != 0).to(keys.dtype) > 0
            terms += size * q[-1][:, 0].abs() if part.scale is not None and part.scale[0] == "query" else size
        return bool(((terms > 0) & (mass.abs() <= NEAR_ZERO * terms) | tiny & apart).any())

    def _own(self, score: Tensor, value: Tensor | None) -> Tile:
        """The self key as a tile of one key."""
        value = score.new_zeros(len(score), len(self.narrow.writes)) if value is None else value
        if self.kind in ("softmax", "lse"):
            return Tile(score, torch.ones_like(score), None if self.kind == "lse" else value)
        if self.kind == "max":
            return Tile(score, None, None)
        weight = score.exp() if self.kind == "exp" else score
        return Tile(None, weight if self.kind == "normalize" else None, weight[:, None] * value)

    def _divided(self, total: Tensor, mass: Tensor, fallback: Tensor | None) -> Tensor:
        if fallback is None:
            return total / mass[:, None]  # no number where the mass is zero
        empty = mass == 0
        return torch.where(empty[:, None], fallback, total / torch.where(empty, 1.0, mass)[:, None])


def _product(weights: Tensor, values: Tensor) -> Tensor:
    """weights @ values, added in runs: a plain product may round as often as it has terms, all in one direction."""
    many = len(values) // RUN
    if many < 2:
        return weights @ values
    whole, (queries, columns) = many * RUN, (len(weights), values.shape[1])
    parts = torch.bmm(
        weights[:, :whole].reshape(queries, many, RUN).transpose(0, 1), values[:whole].reshape(many, RUN, columns)
    )
    return parts.sum(0) + weights[:, whole:] @ values[whole:]


def _is_eye(matrix: Tensor) -> bool:
    if matrix.shape[0] != matrix.shape[1]:
        return False
    return torch.equal(matrix, torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device))


def _deferred(call: HeadTask, narrow: Any) -> bool:
    names = narrow.slots(call.keys.stream)
    return any(not isinstance(call.keys.slot(name), DenseSlot | UniformSlot) for name in names)


def _queries_at_once(call: HeadTask) -> list[slice]:
    rows = max(1, TILE // max(min(call.every_key, KEYS), 4 * len(call.narrow.query.columns)))
    return [slice(start, min(call.queries, start + rows)) for start in range(0, call.queries, rows)]


def spread_stream_head(call: HeadTask) -> HeadOutput:
    """A soft head over the keys of all processes: what those of each add up to is merged in their order."""
    others = call.others
    assert others is not None
    stream, keys = StreamedHead(call), call.keys.stream.name
    stream.ready()
    if stream.kind == "normalize":
        _ = stream.key_sizes
    outs = []
    for block in _queries_at_once(call):
        many = block.stop - block.start
        query = stream.query_features(block)

        def tile(part: slice, query: Features = query, many: int = many) -> Tile:
            return stream.tile(stream.scores(query, many, part), part)

        mine = torch.zeros(many, 2 + len(call.narrow.writes), dtype=torch.float64, device=call.device)
        if len(call.keys):
            stream.pack(stream.merged(each(tile, stream.key_blocks, call.device)), mine)
        told = others.stack(mine)
        filled = [rank for rank in range(others.size) if others.starts[keys][rank] < others.starts[keys][rank + 1]]
        outs.append(stream.finish(stream.merged([stream.unpacked(told[rank]) for rank in filled]), block))
    return HeadOutput(torch.cat(outs))


def ring_stream_head(call: HeadTask, ring: Iterable[Residual]) -> HeadOutput:
    """A soft head whose keys come in turn: of those that went by, only what they add up to is kept."""
    room = torch.zeros(call.queries, 2 + len(call.narrow.writes), dtype=torch.float64, device=call.device)
    query_blocks, last = _queries_at_once(call), None
    for keys in ring:
        if not len(keys) or not len(call.query):
            continue
        stream = StreamedHead(replace(call, keys=keys, ring=None))
        stream.ready()
        stream.follow(last)

        def add(block: slice, stream: StreamedHead = stream, first: bool = last is None) -> None:
            query, many = stream.query_features(block), block.stop - block.start
            found = None if first else stream.unpacked(room[block])
            for part in stream.key_blocks:
                tile = stream.tile(stream.scores(query, many, part), part)
                found = tile if found is None else stream.merge(found, tile)
            assert found is not None
            stream.pack(found, room[block])

        each(add, query_blocks, call.device)
        last = stream
    if last is None:
        return HeadOutput(room[:0, 2:])
    return HeadOutput(torch.cat([last.finish(last.unpacked(room[block]), block) for block in query_blocks]))


def stream_head(call: HeadTask) -> HeadOutput:
    """A soft head for all its queries."""
    stream = StreamedHead(call)
    found = _by_program(stream)
    if found is not None:
        return HeadOutput(found)
    stream.ready()
    many = call.queries
    query_blocks = _queries_at_once(call)

    out = torch.empty(many, len(call.narrow.writes), dtype=torch.float64, device=call.device)

    def whole(block: slice) -> None:
        query, size = stream.query_features(block), block.stop - block.start
        found: Tile | None = None
        for keys in stream.key_blocks:
            tile = stream.tile(stream.scores(query, size, keys), keys, block)
            found = tile if found is None else stream.merge(found, tile)
        assert found is not None
        out[block] = stream.finish(found, block)

    if len(query_blocks) > 1:
        each(whole, query_blocks, call.device)
        return HeadOutput(out)
    query = stream.query_features(query_blocks[0])
    size = max(1, TILE // many)
    stream.key_blocks = blocks(len(call.keys), 1, size)
    whole_block = query_blocks[0]
    tiles = each(
        lambda keys: stream.tile(stream.scores(query, many, keys), keys, whole_block), stream.key_blocks, call.device
    )
    return HeadOutput(stream.finish(stream.merged(tiles), query_blocks[0]))


def _by_program(stream: StreamedHead) -> Tensor | None:
    """The output of a head by a program of the device, where it has one for such scores."""
    call, narrow, parts = stream.call, stream.narrow, stream.narrow.head.score.parts
    if (
        stream.kind != "softmax"
        or len(stream.parts) != 1
        or stream.other
        or parts[0].scale is not None
        or not narrow.head.value
    ):
        return None
    part = parts[0]
    program = soft_sums_of(call.device, len(narrow.weights[part.q]), len(narrow.writes))
    if program is None:
        return None
    coefficient = part.coefficient
    factor = 1.0 if coefficient is None else float(narrow.weights[coefficient])
    keys, values = narrow.weights.product(narrow.keys.read(call.keys), part.k), narrow.values(call.keys)
    out = torch.empty(call.queries, len(narrow.writes), dtype=torch.float64, device=call.device)
    for block in _queries_at_once(call):
        query = narrow.weights.product(narrow.query.read(call.query, block), part.q)
        given = ((keys[some], values[some]) for some in blocks(len(keys), 1, TOGETHER))
        tiles = [Tile(*program(query, *one, factor, part.kind == "l2")) for one in given]
        out[block] = stream.finish(stream.merged(tiles), block)
    return out


def least_lead(call: HeadTask) -> float:
    """By how much the best score of a softmax that stands for an argmax leads, in the worst row, unsharpened."""
    weighting, stream, keys = call.plan.head.weighting, StreamedHead(call), slice(0, len(call.keys))
    stream.ready()

    def least(rows: slice) -> float:
        scores = stream.scores(stream.query_features(rows), rows.stop - rows.start, keys)
        return lead(scores, torch.ones_like(scores, dtype=torch.bool), weighting.ties == "split")

    assert weighting.sharpness is not None
    return min(each(least, blocks(call.queries, len(call.keys)), call.device)) / float(weighting.sharpness)


def shared_rows(calls: Sequence[HeadTask]) -> Callable[[Rows], list[Tensor]]:
    """The outputs of heads with few keys for any rows; heads with the same scores compute them once."""
    streams = [StreamedHead(call) for call in calls]
    for stream in streams:
        stream.ready()

    def rows_of(rows: Rows) -> list[Tensor]:
        scores: dict[int, Tensor] = {}
        outs = []
        for stream in streams:
            share = stream.call.plan.score_group
            every = slice(0, len(stream.call.keys))
            if share not in scores:
                scores[share] = stream.scores(
                    stream.query_features(rows), count_of(rows, len(stream.call.query)), every
                )
            outs.append(stream.finish(stream.tile(scores[share], every), rows))
        return outs

    return rows_of
