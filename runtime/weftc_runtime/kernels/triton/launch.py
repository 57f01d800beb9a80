"""Calls of the programs on tensors, and the bounds that a certain answer rests on.

`choose`. In units of a common power of two let X be the length of a query, C that of the longest key, r the features,
and u the rounding of the type. A score v is |key|^2 - 2 <query, key>, or -<query, key>. Rounding keys and queries to
the type, adding r products and a number in any order, fused or not, costs at most (r + 4) u (C^2 + 2 X C), or
(r + 4) u 2 X C (`nearest.py` derives it). Both are at most (r + 4) u 2 (X^2 + C^2), which takes no root. Two scores
differ by twice that, and with r + 6 for r + 4 there is room for the rounding of |query|^2, of this bound and of the
difference; what may be flushed to zero below the smallest normal number is counted by `TINY`.

`gather_sum`. Pieces are cut off without rounding: scaling by powers of two, cutting towards zero and subtracting what
was cut are exact in float64. Integers are added. `None` is given where the pieces do not hold all bits.

`soft`. Differences are squared, so nothing cancels; exponentials are those of the device. `gpu.soft_error` derives how
far the sums may be from exact ones. No answer is decided by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp

import torch
from torch import Tensor

from weftc_runtime.kernels.gpu import SOFT_KEYS
from weftc_runtime.kernels.triton.programs import choose, gather_sum, soft

ROOM = 1 + 2.0**-10
U = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
TINY = {torch.float32: 2.0**-100, torch.float64: 2.0**-960}
BITS = 40  # of a piece: 2^22 rows of them fit 63 bits
MOST = 1 << 22
LEVELS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class BestKeys:
    """The best key of every query (int32); the rows in doubt are the first `many` of `rows`, in any order."""

    index: Tensor
    rows: Tensor
    many: Tensor  # (1,), on the device: asking for it waits

    def doubt(self) -> Tensor:
        """The rows that are not certain, in order."""
        return self.rows[: int(self.many)].sort().values.to(torch.int64)


def tile(features: int) -> int:
    """The width of a tile: a power of two, 16 at least."""
    return max(16, 1 << (features - 1).bit_length())


def choose_tiles(dtype: torch.dtype, features: int) -> tuple[int, int]:
    """How many queries and keys a program looks at at once: as many as registers hold."""
    if dtype == torch.float64:
        return (32, 16) if features <= 32 else (16, 16)
    return (64, 32) if features <= 32 else (32, 32) if features <= 64 else (16, 16)


def best_keys(queries: Tensor, keys: Tensor, distance: bool, tolerance: float = 0.0) -> BestKeys:
    """The best key (k, r), float64, of every query (n, r), in float32 or float64 as given. `tolerance`: of scores."""
    dtype, device = queries.dtype, queries.device
    many, features = queries.shape
    peak = max(_peak(queries), _peak(keys))
    power = 2.0 ** -frexp(peak)[1] if 0 < peak < 2.0**900 else 1.0
    centre = keys.mean(0) if distance and dtype == torch.float64 else torch.zeros_like(keys[0])
    near = (queries.to(torch.float64) - centre) * power if dtype == torch.float64 else queries.to(torch.float64) * power
    near = near.to(dtype).contiguous()
    scaled = (keys - centre) * power
    square = scaled.square().sum(1)
    table = (scaled * (-2.0 if distance else -1.0)).to(dtype).contiguous()
    bias = (square if distance else torch.zeros_like(square)).to(dtype)
    share = 4 * (features + 6) * U[dtype] * ROOM
    apart = (4 * TINY[dtype] + tolerance * power * power) * ROOM
    limits = torch.stack([square.new_tensor(share), square.max() * ROOM, square.new_tensor(apart)]).to(dtype)
    index = torch.empty(many, dtype=torch.int32, device=device)
    rows, count = torch.empty_like(index), torch.zeros(1, dtype=torch.int32, device=device)
    if many:
        rows_at_once, keys_at_once = choose_tiles(dtype, features)
        choose[(-(-many // rows_at_once),)](
            near, table, bias, limits, index, rows, count, many, len(keys), features,
            d=features, D=tile(features), ROWS=rows_at_once, KEYS=keys_at_once, enable_fp_fusion=True,
        )  # fmt: skip
    return BestKeys(index, rows, count)


def scan(blocks: Sequence[Tensor], keys: Tensor, bias: Tensor, margins: Sequence[float]) -> tuple[Tensor, Tensor]:
    """The least bias + <query, key> of blocks of queries in float32, and the rows whose second is within the margin."""
    many, device = sum(map(len, blocks)), keys.device
    index = torch.empty(many, dtype=torch.int32, device=device)
    rows, count = torch.empty_like(index), torch.zeros(len(blocks), dtype=torch.int32, device=device)
    table, offsets = keys.to(torch.float32).contiguous(), bias.to(torch.float32)
    limits = torch.tensor([[0.0, 0.0, margin * ROOM] for margin in margins], dtype=torch.float32).to(device)
    features, first = table.shape[1], 0
    rows_at_once, keys_at_once = choose_tiles(torch.float32, features)
    for number, block in enumerate(blocks):
        if len(block):
            part = slice(first, first + len(block))
            choose[(-(-len(block) // rows_at_once),)](
                block, table, offsets, limits[number], index[part], rows[part], count[number:], len(block), len(table),
                block.stride(0), d=features, D=tile(features), ROWS=rows_at_once, KEYS=keys_at_once,
                enable_fp_fusion=True,
            )  # fmt: skip
        first += len(block)
    found, first = [], 0
    for block, open_ in zip(blocks, count.tolist(), strict=True):  # the one wait
        found.append(rows[first : first + open_].sort().values.to(torch.int64) + first)
        first += len(block)
    return index, torch.cat(found)


def _peak(numbers: Tensor) -> float:
    return float(numbers.abs().max()) if numbers.numel() else 0.0


def segment_sums(numbers: Tensor, labels: Tensor, segments: int) -> tuple[list[tuple[Tensor, int]], Tensor] | None:
    """Sums (segments, d) as integers, each with the power of two it counts, and how many rows each segment has.

    None where the numbers differ by more bits than the pieces hold, are not finite, or are too many.
    """
    peak, (rows, columns) = _peak(numbers), numbers.shape
    if not peak < 2.0**900 or rows > MOST:
        return None
    top = frexp(peak)[1] if peak else 0
    for levels in LEVELS:
        if top - BITS * levels < -1022 and levels > LEVELS[0]:
            return None
        sums = torch.zeros(levels, segments, columns, dtype=torch.int64, device=numbers.device)
        counts = torch.zeros(segments, dtype=torch.int64, device=numbers.device)
        left = torch.zeros(1, dtype=torch.int64, device=numbers.device)
        scale = torch.tensor([2.0 ** (BITS - top)], dtype=torch.float64, device=numbers.device)
        if rows:
            gather_sum[(-(-rows // 64),)](
                numbers, labels, sums, counts, left, rows, segments, numbers.stride(0), scale,
                d=columns, D=tile(columns), LEVELS=levels, BITS=BITS, ROWS=64, enable_fp_fusion=True,
            )  # fmt: skip
        if not int(left):
            return [(sums[level], top - BITS * (level + 1)) for level in range(levels)], counts
    return None


def soft_sums(
    queries: Tensor, keys: Tensor, values: Tensor, factor: float, distance: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """For every query the largest score, the sum of exp(score - largest), and the weighted sums of values (k, w)."""
    (many, features), width = queries.shape, values.shape[1]
    peak, mass = (torch.empty(many, dtype=queries.dtype, device=queries.device) for _ in range(2))
    total = torch.empty(many, width, dtype=queries.dtype, device=queries.device)
    times = torch.tensor([factor], dtype=queries.dtype, device=queries.device)
    if many:
        soft[(-(-many // 32),)](
            queries.contiguous(), keys.contiguous(), values.contiguous(), peak, mass, total, many, len(keys), times,
            d=features, w=width, W=tile(width), DISTANCE=distance, ROWS=32, KEYS=SOFT_KEYS, enable_fp_fusion=True,
        )  # fmt: skip
    return peak, mass, total
