"""Sums without error: the exact sum of float64 numbers, rounded once; every order and grouping gives the same bits.

A number is split into its integer significand and exponent, and added into 64-bit integer limbs of 32 bits each, which
together reach over the exponents that occur. Integer addition is exact and commutes, so no order of the terms, blocking
or device changes the result; the carry and one correct rounding (ties to even) come last. Equal to `math.fsum`.
Gradients are those of a plain sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Any

import torch
from torch import Tensor

from weftc_runtime.exact.merging import Others
from weftc_runtime.threads import cores

FEW = 1 << 13  # terms up to which `math.fsum` is faster than a dozen tensor operations
BLOCK = 1 << 18  # terms decomposed at a time: about 20 MB of temporaries
_LIMB = 32
_MASK = (1 << _LIMB) - 1
_LOWEST = -1074  # exponent of the smallest subnormal
_LIMBS_OF_META = 4  # shapes alone: the number of limbs does not show in the result


def exact_sum(x: Tensor, dim: int = -1) -> Tensor:
    """The sum along an axis, correctly rounded."""
    if not x.requires_grad:
        return _dense(x.movedim(dim, -1))
    return _ExactSum.apply(x, dim % x.dim())  # type: ignore[no-untyped-call, no-any-return]


def weighted_sum(weights: Tensor, values: Tensor, own: Tensor | None = None) -> Tensor:
    """sum_k weights[q, k] * values[k, c] (+ own[q, c]): each product rounded once, their sum without error.

    Zeros are skipped, so a row of a 0/1 selector is copied bit for bit.      (q, k), (k, c), (q, c) -> (q, c)
    """
    if not (weights.requires_grad or values.requires_grad or (own is not None and own.requires_grad)):
        return _weighted(weights, values, own)
    return _WeightedSum.apply(weights, values, own)  # type: ignore[no-untyped-call, no-any-return]


def power_of_two(exponent: Tensor) -> Tensor:
    """2 ** exponent for integer exponents from -1022 to 1023, by writing the bits."""
    return ((exponent.to(torch.int64) + 1023) << 52).view(torch.float64)


def scale_by_power(x: Tensor, exponent: Tensor | int) -> Tensor:
    """x * 2 ** exponent, exact unless the result overflows or is subnormal."""
    if isinstance(exponent, int):
        exponent = torch.tensor(exponent, dtype=torch.int64, device=x.device)
    for _ in range(3):  # the exponent may leave the range of a float64 though the result does not
        part = exponent.clamp(-1000, 1000)
        x = x * power_of_two(part)
        exponent = exponent - part
    return x


class _ExactSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.dim, ctx.size = dim, x.shape[dim]
        return _dense(x.detach().movedim(dim, -1))

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        return grad[0].unsqueeze(ctx.dim).expand(*_inserted(grad[0].shape, ctx.dim, ctx.size)), None


def _inserted(shape: torch.Size, dim: int, size: int) -> list[int]:
    sizes = list(shape)
    sizes.insert(dim, size)
    return sizes


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, own: Tensor | None) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.has_own = own is not None
        return _weighted(weights.detach(), values.detach(), None if own is None else own.detach())

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        weights, values = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            grad[0] @ values.T if wanted[0] else None,
            weights.T @ grad[0] if wanted[1] else None,
            grad[0] if ctx.has_own and wanted[2] else None,
        )


def _weighted(weights: Tensor, values: Tensor, own: Tensor | None) -> Tensor:
    queries, columns = weights.shape[0], values.shape[1]
    if weights.is_meta:
        products = weights[:, :, None] * values[None]
        return _dense(_with_own(products.movedim(1, -1), own))
    out = torch.zeros(queries, columns, dtype=torch.float64, device=weights.device)
    filled = values != 0
    terms = filled.sum(0)
    if own is not None:
        out += own
        several = (terms > 0).nonzero()[:, 0]
    else:
        (single,) = (terms == 1).nonzero(as_tuple=True)
        keys = filled[:, single].to(torch.int8).argmax(0)
        out[:, single] = weights[:, keys] * values[keys, single]
        several = (terms > 1).nonzero()[:, 0]
    if len(several) == 0 or queries == 0:
        return out
    if 4 * int(torch.count_nonzero(weights)) <= weights.numel():
        out[:, several] = _sparse(weights, values[:, several], None if own is None else own[:, several])
        return out
    for column in several.tolist():
        (keys,) = filled[:, column].nonzero(as_tuple=True)
        size = max(1, 8 * BLOCK // (len(keys) + 1))
        for start in range(0, queries, size):
            rows = slice(start, start + size)
            products = weights[rows][:, keys] * values[keys, column]
            out[rows, column] = _dense(_with_own(products, None if own is None else own[rows, column]))
    return out


def _with_own(products: Tensor, own: Tensor | None) -> Tensor:
    return products if own is None else torch.cat([products, own[..., None]], -1)


def _sparse(weights: Tensor, values: Tensor, own: Tensor | None) -> Tensor:
    """The same over the non-zero weights only: products are added into the limbs of their query."""
    queries, columns = weights.shape[0], values.shape[1]
    rows, keys = weights.nonzero(as_tuple=True)
    numbers = weights[rows, keys]
    if _few(numbers) and len(rows) * columns <= FEW:
        return _sparse_few(rows.tolist(), (numbers[:, None] * values[keys]).tolist(), own, (queries, columns))
    place = torch.arange(columns, device=weights.device)
    blocks: list[tuple[Tensor, Tensor]] = []
    size = max(1, BLOCK // columns)
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        products = numbers[part, None] * values[keys[part]]
        blocks.append((products.reshape(-1), (rows[part, None] * columns + place).reshape(-1)))
    if own is not None:
        blocks.append((own.reshape(-1), torch.arange(queries * columns, device=weights.device)))
    if not blocks:
        return torch.zeros(queries, columns, dtype=torch.float64, device=weights.device)
    return _accumulate(blocks, queries * columns).reshape(queries, columns)


def _sparse_few(rows: list[int], products: list[list[float]], own: Tensor | None, shape: tuple[int, int]) -> Tensor:
    terms: list[list[float]] = [[] for _ in range(shape[0] * shape[1])]
    for row, numbers in zip(rows, products, strict=True):
        for column, number in enumerate(numbers):
            terms[row * shape[1] + column].append(number)
    if own is not None:
        for place, number in enumerate(own.reshape(-1).tolist()):
            terms[place].append(number)
    return _fsum(terms, torch.device("cpu")).reshape(shape)


def _dense(x: Tensor) -> Tensor:
    """The exact sum along the last axis."""
    shape, terms = x.shape[:-1], x.shape[-1]
    count = shape.numel()
    if terms == 1:
        return x[..., 0].clone()
    if terms == 0 or count == 0:
        return torch.zeros(shape, dtype=torch.float64, device=x.device)
    if terms == 2:
        return x[..., 0] + x[..., 1] + 0.0  # -0.0 is 0.0
    flat = x.reshape(-1)
    if _few(flat):
        return _fsum(x.reshape(count, terms).tolist(), x.device).reshape(shape)
    if not x.is_meta and _whole(flat, terms):
        return x.sum(-1)  # every partial sum is a whole number below 2^53: exact in any order
    native = _native(x.reshape(count, terms)) if x.device.type == "cpu" and terms >= FEW else None
    if native is not None:
        return native.reshape(shape)
    blocks = []
    for start in range(0, flat.numel(), BLOCK):
        part = flat[start : start + BLOCK]
        index = torch.arange(start, start + part.numel(), device=x.device) // terms
        blocks.append((part, index))
    return _accumulate(blocks, count).reshape(shape)


def _native(rows: Tensor) -> Tensor | None:
    """Sums of long rows by the native kernel, where there is one and it has room for the numbers."""
    from weftc_runtime.kernels.native.library import library
    from weftc_runtime.kernels.native.sums import NativeSums

    kernels = library(build=False)
    columns = rows.T.contiguous()
    total = None if kernels is None else NativeSums.of(kernels, columns, 1, kernels.peak(columns, cores()))
    found = None if total is None else total.sums(torch.zeros(len(columns), dtype=torch.int32))
    return None if found is None else found[0]


def _few(x: Tensor) -> bool:
    """Whether Python's own exact sum is the faster one."""
    return x.device.type == "cpu" and x.numel() <= FEW


def _fsum(rows: list[list[float]], device: torch.device) -> Tensor:
    """Exact sums by `math.fsum`; rows it refuses (a partial sum overflows, or a term is infinite) go the long way."""
    sums = []
    for row in rows:
        try:
            sums.append(fsum(row))
        except (OverflowError, ValueError):
            terms = torch.tensor(row, dtype=torch.float64)
            sums.append(float(_accumulate([(terms, torch.zeros(len(row), dtype=torch.int64))], 1)))
    return torch.tensor(sums, dtype=torch.float64, device=device)


def _whole(x: Tensor, terms: int) -> bool:
    size = BLOCK if x.device.type == "cpu" else max(1, x.numel())
    parts = (x[start : start + size] for start in range(0, x.numel(), size))
    return all(bool((part.abs().max() * terms < 2.0**53) & (part == part.round()).all()) for part in parts)


def binned_sum(blocks: list[tuple[Tensor, Tensor]], count: int, others: Others) -> Tensor:
    """Exact sums of `count` bins over all processes; a block holds numbers and the bin of each.

    NaN everywhere if some number is not finite.
    """
    device = blocks[0][0].device if blocks else torch.device("cpu")
    finite = all(bool(torch.isfinite(numbers).all()) for numbers, _ in blocks)
    lowest, highest = _range([numbers for numbers, _ in blocks]) if finite else (0, 0)
    broken, below, highest = others.max(torch.tensor([not finite, -lowest, highest])).tolist()
    if broken:
        return torch.full((count,), torch.nan, dtype=torch.float64, device=device)
    base, limbs = window(-below, highest)
    return rounded(others.sum(accumulated(blocks, count, base, limbs, device)).reshape(count, limbs), base)


def _accumulate(blocks: list[tuple[Tensor, Tensor]], count: int) -> Tensor:
    """Exact sums of `count` bins; a block holds numbers and the bin of each."""
    device = blocks[0][0].device
    if blocks[0][0].is_meta:
        base, limbs = _LOWEST, _LIMBS_OF_META
    else:
        if not all(bool(torch.isfinite(numbers).all()) for numbers, _ in blocks):
            total = torch.zeros(count, dtype=torch.float64, device=device)
            for numbers, index in blocks:
                total.index_add_(0, index, numbers)
            return total  # infinite or NaN, whatever the order; the caller reports it
        base, limbs = window(*_range([numbers for numbers, _ in blocks]))
    return rounded(accumulated(blocks, count, base, limbs, device).reshape(count, limbs), base)


def accumulated(blocks: list[tuple[Tensor, Tensor]], count: int, base: int, limbs: int, device: torch.device) -> Tensor:
    """All numbers added into the limbs of their bins (count * limbs), as integers."""
    acc = torch.zeros(count * limbs, dtype=torch.int64, device=device)
    for numbers, index in blocks:
        significand, exponent = split(numbers)
        shift = (exponent - base).clamp_min(0)  # zeros may lie below the window
        place = index * limbs + (shift >> 5)
        low = (significand.abs() & _MASK) << (shift & 31)
        high = (significand.abs() >> _LIMB) << (shift & 31)
        sign = significand.sign()
        acc.index_add_(0, place, sign * (low & _MASK))
        acc.index_add_(0, place + 1, sign * ((low >> _LIMB) + (high & _MASK)))
        acc.index_add_(0, place + 2, sign * (high >> _LIMB))
    return acc


def split(x: Tensor) -> tuple[Tensor, Tensor]:
    """x = significand * 2 ** exponent with a signed integer significand below 2^53."""
    bits = x.contiguous().view(torch.int64)
    field = (bits >> 52) & 0x7FF
    significand = (bits & ((1 << 52) - 1)) + ((field > 0).to(torch.int64) << 52)
    return torch.where(bits < 0, -significand, significand), field.clamp_min(1) - 1075


def _range(parts: list[Tensor]) -> tuple[int, int]:
    """The exponents of the smallest and the largest number."""
    lowest, highest = 0, _LOWEST
    for part in parts:
        if not part.numel():
            continue
        significand, exponent = split(part)
        filled = significand != 0
        lowest = min(lowest, int(torch.where(filled, exponent, 0).min()))
        highest = max(highest, int(torch.where(filled, exponent, _LOWEST).max()))
    return lowest, highest


def window(lowest: int, highest: int) -> tuple[int, int]:
    """The exponent of the lowest limb, and how many limbs reach over all numbers with room for the carries."""
    lowest = min(lowest, highest)
    return lowest, ((highest - lowest) >> 5) + 4


def _carry(acc: Tensor) -> None:
    for limb in range(acc.shape[1] - 1):
        acc[:, limb + 1] += acc[:, limb] >> _LIMB
        acc[:, limb] &= _MASK


def rounded(acc: Tensor, base: int) -> Tensor:
    """Limbs (count, limbs) -> the nearest float64, ties to even."""
    _carry(acc)
    negative = acc[:, -1] < 0
    acc *= torch.where(negative, -1, 1)[:, None]
    _carry(acc)
    padded = torch.cat([torch.zeros_like(acc[:, :2]), acc], 1)  # two limbs below, so that three can always be read
    filled = padded != 0
    order = torch.arange(padded.shape[1], device=acc.device)
    top = torch.where(filled, order, 2).amax(1)
    bottom = torch.where(filled, order, padded.shape[1]).amin(1)
    first = padded.gather(1, top[:, None])[:, 0]
    second = padded.gather(1, top[:, None] - 1)[:, 0]
    third = padded.gather(1, top[:, None] - 2)[:, 0]
    length = torch.zeros_like(first)
    for bit in range(_LIMB):
        length += (first >> bit > 0).to(torch.int64)
    gap = _LIMB - length.clamp_min(1)
    head = (first << 31) | (second >> 1)  # the upper 63 of the 96 bits, then shifted up to the leading one
    tail = ((second & 1) << 32) | third
    head = (head << gap) | (tail >> (33 - gap))
    rest = ((tail & ((torch.ones_like(gap) << (33 - gap)) - 1)) != 0) | (bottom < top - 2)
    kept, dropped = head >> 10, head & 1023
    up = (dropped > 512) | ((dropped == 512) & (rest | (kept & 1 == 1)))
    exponent = base + _LIMB * (top - 4) + 33 - gap + 10
    size = scale_by_power((kept + up).to(torch.float64), exponent)
    return torch.where(negative, -size, size)


def rounded_sum(terms: Sequence[Tensor]) -> Tensor:
    """A few tensors added entry by entry: the bits of `exact_sum` of them side by side; finite, far from overflow.

    Adding two numbers leaves an error that is a number itself. With s the rounded sum, e the rounded sum of its errors,
    and the errors of that at most `lost` together, the exact sum lies between s + (e - slack) and s + (e + slack),
    slack = 2 lost + 2^-51 |e| for the rounding of these. Where both are one number once rounded, it is the sum; the
    few other entries are added exactly.
    """
    total = terms[0] + 0.0
    if len(terms) == 1:
        return total
    if len(terms) == 2:
        return total + terms[1]
    rest = lost = torch.zeros_like(total)
    for term in terms[1:]:
        total, error = _added(total, term)
        rest, error = _added(rest, error)
        lost = lost + error.abs()
    slack = torch.where(lost > 0, 2 * lost + 2.0**-51 * rest.abs(), 0.0)
    low, high = total + (rest - slack), total + (rest + slack)
    unclear = low != high
    if bool(unclear.any()):
        low[unclear] = exact_sum(torch.stack([term[unclear] for term in terms], -1), -1)
    return low


def _added(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Their sum, rounded, and what that leaves out."""
    total = one + other
    seen = total - one
    return total, (one - (total - seen)) + (other - seen)
