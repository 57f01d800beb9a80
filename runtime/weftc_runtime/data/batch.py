"""The inputs of all problems of a call, read and checked, and where their tokens stand in the arrays of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Layout:
    """Where the tokens of a stream stand in the arrays of a batch: how many places, and which each problem uses."""

    places: int
    counts: list[int]  # tokens of every problem
    used: Tensor | None = None  # bool (problems, places); None: the first places of each

    def sizes(self) -> list[int]:
        return self.counts

    def rows(self, number: int) -> slice | Tensor:
        """The places that one problem uses, in order."""
        return slice(0, self.counts[number]) if self.used is None else self.used[number].nonzero()[:, 0]

    def spread(self, rows: Tensor, number: int) -> Tensor:
        """Rows of one problem at their places, zeros between."""
        if len(rows) == self.places:
            return rows
        places = torch.arange(self.places, device=rows.device)[self.rows(number)]
        return rows.new_zeros(self.places, *rows.shape[1:]).index_copy(0, places, rows)

    def placed(self, rows: Tensor, empty: float) -> Tensor:
        """Rows of all problems, one problem after the other, at their places (problems, places, ...); else `empty`."""
        filled, shape = self.filled(rows.device), (len(self.counts), self.places, *rows.shape[1:])
        if filled is None:
            return rows.reshape(shape)
        return rows.new_full(shape, empty).masked_scatter(filled.reshape(*filled.shape, *[1] * (rows.dim() - 1)), rows)

    def filled(self, device: torch.device) -> Tensor | None:
        """Which places are used, bool (problems, places); None: all of them."""
        if self.used is not None:
            return None if min(self.counts) == self.places else self.used
        if min(self.counts) == self.places:
            return None
        counts = torch.tensor(self.counts, device=device)
        return torch.arange(self.places, device=device) < counts[:, None]


@dataclass(frozen=True, slots=True)
class InputRows:
    """The rows of an input in all problems, one problem after the other; or `shared`, the same rows in each."""

    value: Tensor  # (tokens, width), in the storage dtype
    peak: float | None  # the largest size of the numbers, where it is known
    starts: list[int]  # of every problem, and where the last one ends
    shared: bool = False

    def of(self, number: int) -> Tensor:
        """The rows of one problem."""
        if self.shared or len(self.starts) == 2:
            return self.value
        return self.value[self.starts[number] : self.starts[number + 1]]

    def every(self) -> Tensor:
        """The rows of all problems, one after the other."""
        many = len(self.starts) - 1
        return self.value.repeat(many, 1) if self.shared and many > 1 else self.value


@dataclass(slots=True)
class Batch:
    """The inputs of all problems, checked, and the layout of the streams."""

    batched: bool
    count: int
    values: dict[str, InputRows]
    layouts: dict[str, Layout]
    seeds: list[int]

    def of(self, number: int) -> dict[str, Tensor]:
        """The inputs of one problem."""
        return {name: rows.of(number) for name, rows in self.values.items()}
