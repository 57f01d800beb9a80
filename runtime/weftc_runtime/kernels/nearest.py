"""The best key of every query in float32 matrix products, with a proof: index and whether it is certain.

A score is a distance |q - k|^2 (small is good) or an inner product <q, k> (large is good). What all keys of a query
share is left out, and an offset S makes the rest v >= 0, to be minimised: v = S + |k|^2 - 2 <q, k> or S - <q, k>. Best
and second best come from minima of tiles (`minima.py`).

A row is certain when the second best is worse than the best by more than twice the error of v. With u = 2^-24, r
features, X and C bounds of the lengths of a query of the block and of all keys, in units of a common power of two, the
error has these parts: keys and features are rounded to float32 (u each of a length; nothing where stored numbers are
read as they are), |k|^2 + S is rounded once, and r products and that sum are added in any order, with or without fused
operations, which costs (r + 1) u of the sum of their sizes:

    distance       S = X^2 + ...     |v - exact| <= (r + 1) u (C^2 + 2 X C + S) + u (3 C^2 + 4 X C + S)
                                                 <= (r + 4) u (X + C)^2
    inner product  S = X C + ...     |v - exact| <= (r + 1) u (X C + S) + u (2 X C + S) <= (r + 4) u 2 X C

Both are taken with r + 6 for r + 4, for terms of second order and for the rest of S, which is twice that bound, so that
no computed v is negative. To this come the errors of features that are not data, and what names in the lowest bits
hide, 2^(bits - 23) of the largest v, four times: of the least minimum of rows and of columns, of the second, and of
best keys of several rectangles. X is that of the longest query of a block. Nothing else is trusted: all other rows are
settled by the caller. On a GPU programs of `triton` look for the same with the same bounds; they hide no names.

Queries in float32 are read as they are stored where their size is ordinary and their middle is near zero next to it:
the power of two goes to the keys instead. All others are copied, scaled, and centred for distances, which changes none.

A device may flush to zero what is below 2^-126, inputs as well as results. In each product that loses at most
2^-126 (2 C + 3), for a query has no feature above 1, nor has a key of inner products; 2^e times that where numbers are
read as they are stored and their size is 2^e or 2^-e, with r 2^e <= 2^22. While C <= 1 that is together less than
2^-100 for any r < 2^22, and else nothing beside u C^2, which the bound for distances has to spare. A score made
negative by so little comes first, as an integer, and a second that is taken from it is less or not far enough behind:
the row is not certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, isfinite, log2

import torch
from torch import Tensor

from weftc_runtime.kernels import minima
from weftc_runtime.kernels.gpu import scan_of
from weftc_runtime.kernels.minima import Rectangle, Room
from weftc_runtime.kernels.precision import full_precision
from weftc_runtime.threads import each

KEYS = 1 << 10  # of a rectangle
U = 2.0**-24
ROOM = 1 + 2.0**-10  # for the rounding of the bounds themselves
SMALLEST = 2.0**-100  # what float32 products may lose by underflow, in scaled units
LARGEST = 2.0**30  # keys further out than this many times the data are left to the caller
ORDINARY = 2.0**22  # queries are read as stored if features times the size of the longest, or its inverse, are less
ASIDE = 2.1  # and at most that many times half the range of the numbers
SAMPLE = 1 << 10  # rows that tell this
EVERY = 0x0101010101010101  # eight flags that are set


@dataclass(slots=True)
class Queries:
    """Features of queries made ready: blocks (rows, r) in float32, and bounds for every block."""

    kind: str  # l2 or dot
    centre: Tensor  # (r,)
    power: float  # lengths are in units of its inverse
    blocks: list[Tensor]  # on the device that scans them
    length: list[float]  # above the length of every query of a block, scaled
    slack: list[float]  # above the error of its features, scaled
    size: int
    device: torch.device  # that scans
    scale: float = 1.0  # what the numbers of the blocks are still to be multiplied by
    room: Room = field(init=False)

    def __post_init__(self) -> None:
        self.room = Room(self.device, minima.SCORES)


@dataclass(slots=True)
class Found:
    """Per query: the best key; the queries for which that is not proved, and how many float64 settled."""

    index: Tensor  # int32
    doubt: Tensor | None  # None: no query
    settled_f64: int = 0


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
        length = float(small.to(torch.float64).square().sum(1).max()) ** 0.5 * ROOM + 2.0**-60
        error = 0.0 if radius is None else float(torch.linalg.vector_norm(radius, dim=1).max()) * power * ROOM
        return small.to(device), length, error

    made = each(make, blocks, centre.device)
    size = sum(len(block) for block, _, _ in made)
    placed, length, slack = [block for block, _, _ in made], [a for _, a, _ in made], [a for _, _, a in made]
    return Queries(kind, centre, power, placed, length, slack, size, device)


def as_stored(kind: str, data: Tensor, blocks: list[slice]) -> Queries | None:
    """Queries that are rows of float32 data, where they lie; None where they must be copied."""

    def longest(rows: slice) -> float:
        return float(torch.linalg.vector_norm(data[rows], dim=1).max())

    if not data.numel() or (kind == "l2" and _aside(data[:: max(1, len(data) // SAMPLE)])):
        return None
    above = ROOM * (1 + (data.shape[1] + 4) * U)  # for lengths that were added up in float32
    lengths = [length * above for length in each(longest, blocks, data.device)]
    peak = max(lengths) if all(map(isfinite, lengths)) else 0.0  # no number is longer than its row
    power = 2.0 ** -exponent(peak)
    if not peak or not data.shape[1] * max(power, 1 / power) <= ORDINARY:
        return None
    return Queries(
        kind,
        torch.zeros(data.shape[1], dtype=torch.float64, device=data.device),
        power,
        [data[rows] for rows in blocks],
        [length * power + 2.0**-50 for length in lengths],
        [0.0] * len(blocks),
        len(data),
        data.device,
        power,
    )


def _aside(sample: Tensor) -> bool:
    """Whether the middle of some numbers is far from zero next to their range; a guess that decides nothing else."""
    low, high = sample.amin(0), sample.amax(0)
    return not float(torch.maximum(low.abs(), high.abs()).max()) <= ASIDE * float((high - low).max()) / 2


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
    share = (keys.shape[1] + 6) * U * ROOM
    table, bias = small * (-2 * queries.scale if distance else -queries.scale), square if distance else square * 0
    programs = scan_of(queries.device, keys.shape[1])
    parts = [slice(start, start + KEYS) for start in range(0, len(keys), KEYS)] if programs is None else []
    rectangles = [Rectangle.of(table[part], bias[part], queries.device) for part in parts]
    hidden = 2.0 ** (max(rectangle.bits for rectangle in rectangles) - 23) if rectangles else 0.0

    def needed(block: int) -> tuple[float, float]:
        """The offset of a block, and how far the second best must be behind, for every query of it."""
        size, slack = queries.length[block], queries.slack[block] + other
        both = size + reach
        largest = (both * both if distance else 2 * size * reach) * ROOM
        offset = (size * size if distance else size * reach) + 2 * share * largest
        error = (2 * share + 4 * hidden) * largest + 2 * SMALLEST + tolerance * queries.power * power
        return offset, (error + 2 * slack * (2 * both + slack if distance else both + other)) * ROOM

    if programs is not None:
        margins = [needed(block)[1] for block in range(len(queries.blocks))]
        index, doubt = programs(queries.blocks, table.to(queries.device), bias.to(queries.device), margins)
        return Found(index.to(keys.device), doubt.to(keys.device) if len(doubt) else None)
    with full_precision():
        found = _scan(queries, rectangles, needed)
    return Found(found.index.to(keys.device), None if found.doubt is None else found.doubt.to(keys.device))


def _scan(queries: Queries, rectangles: list[Rectangle], needed: Callable[[int], tuple[float, float]]) -> Found:
    """The best key of every query, block by block, and whether the second best is far enough behind."""
    device = queries.device
    certain = torch.ones(-(-queries.size // 8) * 8, dtype=torch.bool, device=device)
    index = torch.empty(queries.size, dtype=torch.int32, device=device)
    starts = [0]
    for block in queries.blocks:
        starts.append(starts[-1] + len(block))

    def scan(number: int) -> None:
        rows = slice(starts[number], starts[number + 1])
        offset, margin = needed(number)
        best, second, name = rectangles[0].look(queries.blocks[number], offset, queries.room)
        for at, rectangle in enumerate(rectangles[1:], 1):
            best, second, name = best.clone(), second.clone(), name.clone()  # the next look takes their place
            other, two, place = rectangle.look(queries.blocks[number], offset, queries.room)
            name = torch.where(other < best, place + at * KEYS, name)
            second = torch.minimum(torch.maximum(other, best), torch.minimum(two, second))
            best = torch.minimum(other, best)
        index[rows] = name
        torch.gt(second.sub_(best), margin, out=certain[rows])

    each(scan, range(len(queries.blocks)), device)
    return Found(index, _unset(certain))


def _unset(flags: Tensor) -> Tensor:
    """Where flags are not set; most are, so they are looked at eight at a time."""
    at = (flags.view(torch.int64) != EVERY).nonzero()
    rows = (at * 8 + torch.arange(8, device=flags.device)).reshape(-1)
    return rows[~flags[rows]]
