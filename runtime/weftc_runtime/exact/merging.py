"""Exact sums that processes add up together: integers, each a multiple of a power of two that all agree on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Others(Protocol):
    """The processes that hold the other terms; each calls the same in the same order."""

    def sum(self, numbers: Tensor) -> Tensor:
        """Integers of all processes, added."""

    def max(self, numbers: Tensor) -> Tensor:
        """The largest of the numbers of all processes, place by place."""


def as_terms(units: Sequence[tuple[Tensor, int]]) -> list[Tensor]:
    """Numbers whose sum is that of integers times 2 to a power; integers below 2^62."""
    terms = []
    for number, power in units:
        whole = number.to(torch.float64)
        rest = (number - whole.to(torch.int64)).to(torch.float64)
        terms += [whole * 2.0**power, rest * 2.0**power]
    return terms
