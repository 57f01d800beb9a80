"""Some rows of an array, and rows in blocks."""

from __future__ import annotations

from math import isfinite
from typing import TypeAlias

import torch
from torch import Tensor

Rows: TypeAlias = slice | Tensor
ENTRIES = 1 << 18  # of a block of rows that is made at a time


def count_of(rows: Rows, tokens: int) -> int:
    """How many rows are asked for."""
    return len(range(*rows.indices(tokens))) if isinstance(rows, slice) else len(rows)


def all_finite(value: Tensor) -> bool:
    """Whether all numbers are finite; their sum tells, unless they add up to too much."""
    return isfinite(float(value.sum())) or bool(torch.isfinite(value).all())


def blocks(tokens: int, width: int, entries: int | None = None) -> list[slice]:
    """Rows in blocks of about `entries` entries; no rows are one block."""
    size = max(1, (ENTRIES if entries is None else entries) // max(1, width))
    return [slice(start, min(tokens, start + size)) for start in range(0, max(1, tokens), size)]
