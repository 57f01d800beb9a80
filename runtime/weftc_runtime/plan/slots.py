"""How a slot is held while a plan runs: not always as an array (tokens, width).

    DenseSlot    the array itself; fields in the storage dtype, everything else in float64
    UniformSlot  one row that all tokens share
    IndexSlot    few non-zero entries, as a list of (token, column, value): one-hot rows are an index per token
    LazySlot     rows that are computed when they are read, block by block: pair fields of a soft weighting, noise

All of them give the rows or columns asked for as float64; only these pieces are ever materialised. Values are never
changed in place, so a held slot may be shared between states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from weftc_runtime.exact.rows import Rows, blocks, count_of


@dataclass(frozen=True, slots=True, eq=False)
class DenseSlot:
    """(tokens, width), exactly as stored; `radius` bounds its error where it is not data."""

    value: Tensor

    @property
    def tokens(self) -> int:
        return len(self.value)

    @property
    def width(self) -> int:
        return self.value.shape[1]

    def rows(self, rows: Rows) -> Tensor:
        return self.value[rows].to(torch.float64)

    def column(self, column: int) -> Tensor:
        return self.value[:, column].to(torch.float64)

    def rounded(self, dtype: torch.dtype) -> DenseSlot:
        return DenseSlot(self.value.to(dtype))


@dataclass(frozen=True, slots=True, eq=False)
class UniformSlot:
    """The same row (1, width) for every token."""

    row: Tensor
    tokens: int

    @property
    def width(self) -> int:
        return self.row.shape[1]

    def rows(self, rows: Rows) -> Tensor:
        return self.row.expand(count_of(rows, self.tokens), -1)

    def column(self, column: int) -> Tensor:
        return self.row[:, column].expand(self.tokens)

    def rounded(self, dtype: torch.dtype) -> UniformSlot:
        return UniformSlot(self.row.to(dtype).to(torch.float64), self.tokens)


@dataclass(frozen=True, slots=True, eq=False)
class IndexSlot:
    """Entries (place, index): value. place None: entry t is of token t. values None: all 1. index -1: no entry."""

    tokens: int
    width: int
    index: Tensor
    place: Tensor | None = None
    values: Tensor | None = None

    @property
    def one_hot(self) -> bool:
        """Whether every row holds a single 1 (or nothing, where the index is -1)."""
        return self.place is None and self.values is None

    def places(self) -> Tensor:
        """The token of every entry."""
        return torch.arange(self.tokens, device=self.index.device) if self.place is None else self.place

    def numbers(self) -> Tensor:
        """The value of every entry."""
        if self.values is not None:
            return self.values
        return torch.ones(len(self.index), dtype=torch.float64, device=self.index.device)

    def rows(self, rows: Rows) -> Tensor:
        if self.place is None:
            index = self.index[rows].to(torch.int64)
            numbers = torch.ones_like(index, dtype=torch.float64) if self.values is None else self.values[rows]
            out = torch.zeros(len(index), self.width + 1, dtype=torch.float64, device=index.device)
            out.scatter_(1, torch.where(index < 0, self.width, index)[:, None], numbers[:, None])
            return out[:, : self.width]
        wanted = torch.arange(self.tokens, device=self.index.device)[rows]
        target = torch.full((self.tokens,), -1, dtype=torch.int64, device=self.index.device)
        target[wanted] = torch.arange(len(wanted), device=self.index.device)
        at = target[self.place]
        used = at >= 0
        out = torch.zeros(len(wanted), self.width, dtype=torch.float64, device=self.index.device)
        out[at[used], self.index[used].to(torch.int64)] = self.numbers()[used]
        return out

    def column(self, column: int) -> Tensor:
        hit = self.index == column
        if self.place is None:
            return torch.where(hit, self.numbers(), 0.0)
        out = torch.zeros(self.tokens, dtype=torch.float64, device=self.index.device)
        out[self.place[hit]] = self.numbers()[hit]
        return out

    def rounded(self, dtype: torch.dtype) -> IndexSlot:
        if self.values is None:
            return self
        return IndexSlot(self.tokens, self.width, self.index, self.place, self.values.to(dtype).to(torch.float64))


@dataclass(frozen=True, slots=True, eq=False)
class LazySlot:
    """`make(rows)` computes rows (.., width); `make_column` one column, where that is cheaper than all."""

    tokens: int
    width: int
    make: Callable[[Rows], Tensor]
    device: torch.device
    make_column: Callable[[int], Tensor] | None = None
    dtype: torch.dtype = torch.float64  # what it is rounded to

    def rows(self, rows: Rows) -> Tensor:
        return self.make(rows).to(self.dtype).to(torch.float64)

    def column(self, column: int) -> Tensor:
        if self.make_column is not None:
            return self.make_column(column).to(self.dtype).to(torch.float64)
        out = torch.empty(self.tokens, dtype=torch.float64, device=self.device)
        for block in blocks(self.tokens, self.width):
            out[block] = self.rows(block)[:, column]
        return out

    def rounded(self, dtype: torch.dtype) -> LazySlot:
        return LazySlot(self.tokens, self.width, self.make, self.device, self.make_column, dtype)


SlotValue: TypeAlias = DenseSlot | UniformSlot | IndexSlot | LazySlot


def sparse(held: SlotValue) -> IndexSlot:
    """The entries of a slot that are not zero."""
    if isinstance(held, IndexSlot):
        return held
    device = held.row.device if isinstance(held, UniformSlot) else held.rows(slice(0, 1)).device
    if isinstance(held, UniformSlot) and not bool(held.row.any()):
        return IndexSlot(held.tokens, held.width, torch.full((held.tokens,), -1, dtype=torch.int32, device=device))
    place, index, values = [], [], []
    for block in blocks(held.tokens, held.width):
        rows = held.rows(block)
        at, column = rows.nonzero(as_tuple=True)
        place.append(at + block.start)
        index.append(column)
        values.append(rows[at, column])
    every, found = torch.cat(place), torch.cat(values)
    column = torch.cat(index)
    single = len(every) == held.tokens and bool((every == torch.arange(held.tokens, device=device)).all())
    ones = bool((found == 1).all())
    return IndexSlot(held.tokens, held.width, column, None if single else every, None if ones else found)


def same(one: SlotValue, other: SlotValue) -> bool:
    """Whether two slots hold the same numbers."""
    if one is other:
        return True
    if (one.tokens, one.width) != (other.tokens, other.width):
        return False
    if isinstance(one, UniformSlot) and isinstance(other, UniformSlot):
        return torch.equal(one.row, other.row)
    if isinstance(one, IndexSlot) and isinstance(other, IndexSlot) and one.one_hot and other.one_hot:
        return torch.equal(one.index, other.index)
    return all(torch.equal(one.rows(block), other.rows(block)) for block in blocks(one.tokens, one.width))


def copied(held: SlotValue) -> SlotValue:
    """The same in arrays of its own: numbers, one row, or an index whose values are 1."""
    if isinstance(held, IndexSlot):
        return IndexSlot(held.tokens, held.width, held.index.clone())
    if isinstance(held, UniformSlot):
        return UniformSlot(held.row.clone(), held.tokens)
    assert isinstance(held, DenseSlot)
    return DenseSlot(held.value.clone())
