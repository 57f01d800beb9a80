"""The best key of every query in float32 matrix products, with a proof: index and whether it is certain.

A score is a distance |q - k|^2 (small is good) or an inner product <q, k> (large is good). Both become v >= 0 to be
minimised, v = A B^T with two more columns for the squares or for an offset. A block of v is viewed as integers (the
order is the same for numbers >= 0), the lowest bits make room for the number of the key, and one integer minimum gives
the best value and its key; a second one, without it, the second best.

A row is certain when the second best is worse than the best by more than twice the error of v. With u = 2^-24, X and C
bounds of the lengths of a centred query and of all centred keys, in units of a common power of two:

    distance       |v - exact| <= (r + 12) u (X + C)^2       rounding of features, of squares, of r + 2 products
    inner product  |v - exact| <= (2.01 r + 8) u X C         the same; the offset is as large as the products together

plus the errors of features that are not data, plus what the packed index hides, 2^(bits - 22) of each. X is that of the
longest query of a tile. Nothing else is trusted: all other rows are settled by the caller. Features are centred, which
changes no distance.

Sums may be added in any order, with or without fused operations. A device may flush to zero what is below 2^-126,
inputs as well as results. In each product that loses at most 2^-126 (2 C + 3), for a query has no feature above 1, nor
has a key of inner products: while C <= 1 together less than 2^-100 for any r < 2^23, and else nothing beside u C^2,
which the bound for distances has to spare. A score made negative by so little is the best as well, or close to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2
from threading import local
from typing import cast

import torch
from torch import Tensor

from weft_runtime.precision import full_precision
from weft_runtime.workers import each

SCORES = 1 << 18  # of a tile: 1 MB
KEYS = 1 << 10  # of a tile, so that its number takes at most ten bits
U = 2.0**-24
ROOM = 1 + 2.0**-10  # for the rounding of the bounds themselves
SMALLEST = 2.0**-100  # what float32 products may lose by underflow, in scaled units
INFINITY = 0x7F800000  # its bits
LARGEST = 2.0**30  # keys further out than this many times the data are left to the caller


@dataclass(slots=True)
class Queries:
    """Features of queries made ready: blocks (r + 2, rows) in float32, and the length of every query."""

    kind: str  # l2 or dot
    centre: Tensor  # (r,)
    power: float  # features were multiplied by this power of two
    blocks: list[Tensor]  # on the device that scans them
    length: list[float]  # above the length of every query of a block, scaled
    slack: list[float]  # above the error of its features, scaled
    size: int
    device: torch.device  # that scans


@dataclass(slots=True)
class Found:
    """Per query: the best key; the queries for which that is not proved, and how many float64 settled."""

    index: Tensor  # int32
    doubt: Tensor | None  # None: no query
    doubled: int = 0


def ready(
    kind: str,
    features: Callable[[slice], tuple[Tensor, Tensor | None]],
    blocks: list[slice],
    centre: Tensor,
    peak: float,
    device: torch.device | None = None,
) -> Queries:
    """Queries from blocks of features (rows, r), float64, and their radii; `peak` is above all of them once centred.

    `device`: where they are scanned; if it is not given, where the features are.
    """
    power, device = 2.0 ** -exponent(peak), centre.device if device is None else device

    def make(rows: slice) -> tuple[Tensor, float, float]:
        block, radius = features(rows)
        small = ((block - centre) * power).to(torch.float32)
        square = small.to(torch.float64).square().sum(1)
        length = (square.sqrt() * ROOM).to(torch.float32) + 2.0**-60
        last = square.to(torch.float32) if kind == "l2" else length
        made = torch.cat([small, last[:, None], torch.ones_like(last[:, None])], 1).T.contiguous()
        error = 0.0 if radius is None else float(torch.linalg.vector_norm(radius, dim=1).max()) * power * ROOM
        return made.to(device), float(length.max()), error

    made = each(make, blocks, centre.device)
    size = sum(block.shape[1] for block, _, _ in made)
    placed, length, slack = [block for block, _, _ in made], [a for _, a, _ in made], [a for _, _, a in made]
    return Queries(kind, centre, power, placed, length, slack, size, device)


def exponent(peak: float) -> int:
    """The power of two above a size."""
    return max(-900, min(900, ceil(log2(peak)))) if peak > 0 else 0


def nearest(queries: Queries, keys: Tensor, radius: Tensor | None, tolerance: float = 0.0) -> Found:
    """The best of the keys (k, r), float64, for every query. `tolerance`: closer second bests are not certain."""
    distance = queries.kind == "l2"
    power = queries.power
    if not distance:
        power = 2.0 ** -exponent(float(keys.abs().max()) if keys.numel() else 0.0)
    small = ((keys - queries.centre if distance else keys) * power).to(torch.float32)
    square = small.to(torch.float64).square().sum(1)
    reach = float(square.max().sqrt()) * ROOM + 2.0**-60
    if not reach < LARGEST:
        every = torch.arange(queries.size, device=keys.device)
        return Found(torch.zeros_like(every, dtype=torch.int32), every)
    other = 0.0 if radius is None else float(torch.linalg.vector_norm(radius, dim=1).max()) * power * ROOM
    terms = keys.shape[1]
    share = (terms + 12 if distance else 2.01 * terms + 8) * U * ROOM
    if distance:
        # v may come out negative by its error, at most share (X + C)^2 <= 2 share (X^2 + C^2): this is added to it.
        ones = torch.full_like(small[:, :1], 1 + 2.2 * share)
        table = torch.cat([-2 * small, ones, (square + 2.2 * share * reach * reach)[:, None].to(torch.float32)], 1)
    else:
        offset = torch.full_like(small[:, :1], reach * (1 + 2.0**-8))  # above every product: v is not negative
        table = torch.cat([-small, offset, torch.zeros_like(offset)], 1)

    def margin(block: int) -> float:
        """How far the second best must be behind, for every query of a block."""
        size, slack = queries.length[block], queries.slack[block] + other
        both = size + reach
        error = 2 * share * (both * both if distance else size * reach)
        error += 2 * SMALLEST + tolerance * queries.power * power
        return (error + 2 * slack * (2 * both + slack if distance else both + other)) * ROOM

    with full_precision():
        found = _scan(queries, table.contiguous().to(queries.device), margin)
    return Found(found.index.to(keys.device), None if found.doubt is None else found.doubt.to(keys.device))


def _scan(queries: Queries, table: Tensor, margin: Callable[[int], float]) -> Found:
    """The best key of every query, tile by tile, and whether the second best is far enough behind."""
    device, keys = table.device, len(table)
    bits = max(1, ceil(log2(min(keys, KEYS))))
    low = (1 << bits) - 1
    certain = torch.empty(queries.size, dtype=torch.bool, device=device)
    index = torch.empty(queries.size, dtype=torch.int32, device=device)
    names = torch.arange(min(keys, KEYS), dtype=torch.int32, device=device)[:, None]
    starts = [0]
    for block in queries.blocks:
        starts.append(starts[-1] + block.shape[1])

    store = local()  # each thread writes its tiles to the same place, which stays in its cache

    def scan(number: int) -> None:
        block, rows = queries.blocks[number], slice(starts[number], starts[number + 1])
        best = second = None
        for start in range(0, keys, KEYS):
            tile = table[start : start + KEYS]
            packed = torch.mm(tile, block, out=_room(store, len(tile), block)).view(torch.int32)
            packed.bitwise_and_(~low).bitwise_or_(names[: len(tile)])
            first = packed.amin(0)
            name = first & low
            packed.scatter_(0, name.to(torch.int64)[None], INFINITY)
            one, two = first.view(torch.float32), packed.amin(0).view(torch.float32)
            if best is None or second is None:
                best, second, index[rows] = one, two, name
                continue
            index[rows] = torch.where(one < best, name + start, index[rows])
            second = torch.minimum(torch.maximum(one, best), torch.minimum(two, second))
            best = torch.minimum(one, best)
        assert best is not None
        assert second is not None
        hidden = 2.0 ** (bits - 22)  # by the names in the lowest bits; NaN and infinity are not certain
        torch.gt(second * (1 - hidden) - best * (1 + hidden), margin(number), out=certain[rows])

    each(scan, range(len(queries.blocks)), device)
    return Found(index, (~certain).nonzero()[:, 0])


def _room(store: local, keys: int, block: Tensor) -> Tensor:
    shape = (keys, block.shape[1])
    if getattr(store, "tile", None) is None or store.tile.shape != shape:
        store.tile = torch.empty(shape, dtype=torch.float32, device=block.device)
    return cast(Tensor, store.tile)


def block_rows(keys: int) -> int:
    """How many queries make a tile with that many keys."""
    return max(512, SCORES // max(1, min(keys, KEYS)))
