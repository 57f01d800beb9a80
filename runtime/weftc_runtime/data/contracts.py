"""Contracts on data: finite, unit, one-hot, weights, ranges. A row that breaks one is named, with what to do."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import isfinite

import torch
from torch import Tensor

from weftc_runtime.errors import RunError, shown
from weftc_runtime.exact.rows import all_finite, blocks
from weftc_runtime.format.program import Input
from weftc_runtime.kernels.native.library import library
from weftc_runtime.threads import cores

MANY = 1 << 15  # numbers that native code looks through
ROUNDINGS = 16  # a unit vector or a row of weights may be off by this many roundings per entry


def is_free(item: Input) -> bool:
    """Whether an input may hold any finite numbers."""
    return item.kind in ("vector", "number", "real") and item.low is None and item.high is None


def kept(
    item: Input, rows: Tensor, dtype: torch.dtype, starts: Sequence[int] | None, before: int = 0
) -> tuple[Tensor, float | None]:
    """The rows (tokens, width) in the storage dtype, if they keep the contract of the input; their largest size, if
    that was found on the way.

    `starts`: where the rows of every problem of a batch start, to name the problem that breaks it. `before`: how many
    rows other processes hold before these.
    """
    value = rows.to(dtype)
    if value.is_meta:
        return value, None
    peak = _peak(value.detach())
    for first, part in _parts(item, value.detach(), peak):
        for wrong, text in _breaches(item, part, torch.finfo(dtype).eps):
            if bool(wrong.any()):
                raise _broken(item, rows, first, starts, wrong, text, before)
    return value, peak


def _peak(value: Tensor) -> float | None:
    """The largest size of many numbers, where native code is there to look at them once for all that ask later."""
    if value.device.type != "cpu" or value.numel() < MANY or value.stride(1) != 1:
        return None
    kernels = library(build=False)
    return None if kernels is None else kernels.peak(value, cores())


def _parts(item: Input, value: Tensor, peak: float | None) -> Iterator[tuple[int, Tensor]]:
    """The rows in blocks, each with its first row, as contracts look at them; free numbers all at once if finite."""
    if is_free(item):
        if all_finite(value) if peak is None else isfinite(peak):
            return
        yield from ((block.start, value[block]) for block in blocks(len(value), value.shape[1]))
        return
    yield from ((block.start, value[block].to(torch.float64)) for block in blocks(len(value), value.shape[1]))


def _breaches(item: Input, value: Tensor, eps: float) -> Iterator[tuple[Tensor, str]]:
    """Where each clause of a contract is broken, entry by entry (tokens, width) or row by row (tokens,)."""
    slack = ROUNDINGS * eps * value.shape[1]
    if item.kind == "unit" and item.low is None and item.high is None and len(value):
        least, most = map(float, value.square().sum(1).aminmax())
        if most - 1 <= slack and 1 - least <= slack:  # numbers that are not finite are not
            return
    if not bool(torch.isfinite(value.sum())):
        yield ~torch.isfinite(value), "is not finite; remove the row or fill the gap"
    if item.kind == "unit":
        yield (value.square().sum(1) - 1).abs() > slack, "is not a unit vector; divide it by its length first"
    if item.kind == "onehot":
        wrong = ((value != 0) & (value != 1)).any(1) | (value.sum(1) != 1)
        yield wrong, "is not one-hot: exactly one entry must be 1, the others 0"
    if item.kind == "simplex":
        wrong = (value < 0).any(1) | ((value.sum(1) - 1).abs() > slack)
        yield wrong, "is not a row of weights: entries >= 0 that sum to 1"
    if item.low is not None:
        low, strict = item.low
        text = f"is out of range: {'more than' if strict else 'at least'} {low:g} is needed"
        yield value <= low if strict else value < low, text
    if item.high is not None:
        high, strict = item.high
        text = f"is out of range: {'less than' if strict else 'at most'} {high:g} is needed"
        yield value >= high if strict else value > high, text


def _broken(
    item: Input, rows: Tensor, first: int, starts: Sequence[int] | None, wrong: Tensor, text: str, before: int
) -> RunError:
    """Names the first row that breaks a contract, among those that begin with row `first`."""
    at = wrong.nonzero()[0].tolist()
    row = first + at[0]
    number = 0 if starts is None else bisect_right(starts, row) - 1
    place = f"row {row + before if starts is None else row - starts[number]}"
    place += f", column {at[1]}" if len(at) > 1 and rows.shape[1] > 1 else ""
    value = f" ({float(rows[row, at[1]].detach()):g})" if len(at) > 1 else ""
    place = place if starts is None else f"problem {number}, {place}"
    told = f"{shown(item.name)}: {place}{value} {text} (rows are counted from 0)"
    return RunError(told, input=item.name, place=place)
