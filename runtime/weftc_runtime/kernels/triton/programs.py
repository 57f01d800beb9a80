# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The programs that run on a GPU, one block of rows each. `launch.py` calls them and derives what they are held to.

They use no tensor cores in reduced precision, no square root and no division, so that every operation that a bound
counts on is one that IEEE rounds. Sums over rows are integers: the order of atomic additions does not show.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def choose(
    queries, keys, bias, limits, index, doubt, many, n, k, stride,
    d: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The least bias + <query, key> of every query, the first where several are equal, and the rows in doubt.

    A row is certain where the second least is further behind than twice the error, share (|query|^2 + reach) and what
    is needed on top, apart: these are the limits. Rows in doubt are listed in any order; `many` counts them.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)
    live = row < n
    inside = live[:, None] & (column[None, :] < d)
    x = tl.load(queries + row[:, None].to(tl.int64) * stride + column[None, :], mask=inside, other=0.0)
    best = tl.full((ROWS,), float("inf"), x.dtype)
    second = tl.full((ROWS,), float("inf"), x.dtype)
    found = tl.zeros((ROWS,), tl.int32)
    for start in range(0, k, KEYS):
        key = start + tl.arange(0, KEYS)
        known = (key[:, None] < k) & (column[None, :] < d)
        c = tl.load(keys + key[:, None].to(tl.int64) * d + column[None, :], mask=known, other=0.0)
        b = tl.load(bias + key, mask=key < k, other=float("inf"))
        score = b[None, :] + tl.dot(x, tl.trans(c), input_precision="ieee", out_dtype=x.dtype)
        least = tl.min(score, 1)
        at = tl.min(tl.where(score == least[:, None], tl.arange(0, KEYS)[None, :], KEYS), 1)  # the first of them
        rest = tl.min(tl.where(tl.arange(0, KEYS)[None, :] == at[:, None], float("inf"), score), 1)
        won = least < best
        second = tl.minimum(tl.where(won, best, least), tl.minimum(second, rest))
        found = tl.where(won, at.to(tl.int32) + start, found)
        best = tl.where(won, least, best)
    size = tl.sum(x * x, 1)
    share, reach, apart = tl.load(limits), tl.load(limits + 1), tl.load(limits + 2)
    sure = second - best > share * (size + reach) + apart
    tl.store(index + row, found, mask=live)
    open_ = live & (sure == 0)
    place = tl.atomic_add(many + tl.zeros((ROWS,), tl.int32), 1, mask=open_, sem="relaxed")
    tl.store(doubt + place, row, mask=open_)


@triton.jit
def gather_sum(
    numbers, labels, sums, counts, left, n, segments, stride, scale,
    d: tl.constexpr, D: tl.constexpr, LEVELS: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Adds every row to the segment of its label, as integers: LEVELS pieces of BITS bits, largest first.

    Numbers times the power of two at `scale` are below 2^BITS. `left` counts rows with bits below the last piece.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)
    live = row < n
    label = tl.load(labels + row, mask=live, other=-1)
    wanted = live & (label >= 0)
    inside = wanted[:, None] & (column[None, :] < d)
    rest = tl.load(numbers + row[:, None].to(tl.int64) * stride + column[None, :], mask=inside, other=0.0)
    rest = rest.to(tl.float64) * tl.load(scale)
    place = label[:, None].to(tl.int64) * d + column[None, :]
    for _ in tl.static_range(LEVELS):
        piece = rest.to(tl.int64)  # towards zero
        tl.atomic_add(sums + place, piece, mask=inside & (piece != 0), sem="relaxed")
        rest = (rest - piece.to(tl.float64)) * (1 << BITS)
        place += segments.to(tl.int64) * d
    lost = tl.max(tl.where(inside & (rest != 0), 1, 0), 1)
    one = tl.full((ROWS,), 1, tl.int64)
    tl.atomic_add(counts + label, one, mask=wanted, sem="relaxed")
    tl.atomic_add(left + tl.zeros((ROWS,), tl.int32), one, mask=wanted & (lost > 0), sem="relaxed")


@triton.jit
def soft(
    queries, keys, values, peaks, masses, totals, n, k, factor,
    d: tl.constexpr, w: tl.constexpr, W: tl.constexpr, DISTANCE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The largest score of every query, the sum of exp(score - largest), and of that times the values of the keys.

    A score is |query - key|^2, of differences, or <query, key>, times the number at `factor`.
    """
    times = tl.load(factor)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < n
    wide = tl.arange(0, W)
    peak = tl.full((ROWS,), float("-inf"), queries.dtype.element_ty)
    mass = tl.zeros((ROWS,), queries.dtype.element_ty)
    total = tl.zeros((ROWS, W), queries.dtype.element_ty)
    for start in range(0, k, KEYS):
        key = start + tl.arange(0, KEYS)
        score = tl.zeros((ROWS, KEYS), queries.dtype.element_ty)
        for column in range(d):
            x = tl.load(queries + row.to(tl.int64) * d + column, mask=live, other=0.0)
            c = tl.load(keys + key.to(tl.int64) * d + column, mask=key < k, other=0.0)
            if DISTANCE:
                gap = x[:, None] - c[None, :]
                score += gap * gap
            else:
                score += x[:, None] * c[None, :]
        score = tl.where(key[None, :] < k, score * times, float("-inf"))
        top = tl.maximum(peak, tl.max(score, 1))
        weight = tl.exp(score - top[:, None])
        less = tl.exp(peak - top)
        known = (key[:, None] < k) & (wide[None, :] < w)
        value = tl.load(values + key[:, None].to(tl.int64) * w + wide[None, :], mask=known, other=0.0)
        mass = mass * less + tl.sum(weight, 1)
        total = total * less[:, None] + tl.dot(weight, value, input_precision="ieee", out_dtype=weight.dtype)
        peak = top
    tl.store(peaks + row, peak, mask=live)
    tl.store(masses + row, mass, mask=live)
    inside = live[:, None] & (wide[None, :] < w)
    tl.store(totals + row[:, None].to(tl.int64) * w + wide[None, :], total, mask=inside)
