"""Contracts on data: finite, unit, one-hot, weights, ranges. A row that breaks one is named, with what to do."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from weft_runtime.errors import RunError, shown
from weft_runtime.ir import Input

ROUNDINGS = 16  # a unit vector or a row of weights may be off by this many roundings per entry


def is_free(item: Input) -> bool:
    """Whether an input may hold any finite numbers."""
    return item.kind in ("vector", "number", "real") and item.low is None and item.high is None


def all_kept(item: Input, rows: Tensor, dtype: torch.dtype) -> Tensor | None:
    """The arrays of a whole batch at once, if one look tells that all of them keep their contract."""
    if not is_free(item) or rows.is_meta:
        return None
    value = rows.to(dtype)
    return value if bool(torch.isfinite(value.detach().sum())) else None


def kept(item: Input, rows: Tensor, dtype: torch.dtype, number: int | None) -> Tensor:
    """The rows (tokens, width) in the storage dtype, if they keep the contract of the input."""
    value = rows.to(dtype)
    if not value.is_meta:
        checked = value.detach() if is_free(item) else value.detach().to(torch.float64)
        for wrong, text in _breaches(item, checked, torch.finfo(dtype).eps):
            if bool(wrong.any()):
                raise _broken(item, rows, number, wrong, text)
    return value


def _breaches(item: Input, value: Tensor, eps: float) -> Iterator[tuple[Tensor, str]]:
    """Where each clause of a contract is broken, entry by entry (tokens, width) or row by row (tokens,)."""
    slack = ROUNDINGS * eps * value.shape[1]
    if not bool(torch.isfinite(value.sum())):  # one number tells that all are finite, unless they add up to too much
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


def _broken(item: Input, rows: Tensor, number: int | None, wrong: Tensor, text: str) -> RunError:
    first = wrong.nonzero()[0].tolist()
    place = f"row {first[0]}" + (f", column {first[1]}" if len(first) > 1 and rows.shape[1] > 1 else "")
    value = f" ({float(rows[first[0], first[1]].detach()):g})" if len(first) > 1 else ""
    place = place if number is None else f"problem {number}, {place}"
    told = f"{shown(item.name)}: {place}{value} {text} (rows are counted from 0)"
    return RunError(told, input=item.name, place=place)
