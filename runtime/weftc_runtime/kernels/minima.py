"""The best and the second best key of every query from minima alone: one product and two passes over each tile.

Keys stand in a rectangle of G rows and H columns, filled up with keys that never win. A tile of scores has one minimum
for every row of the rectangle and one for every column: G + H numbers per query instead of G H. The best key stands in
the row and in the column with the least of these. Any other key stands in another row or in another column, so the
second best score is the second least minimum of the rows or that of the columns, whichever is less.

Scores are >= 0, so their bits have the same order as integers. In the minima the lowest bits make room for the number
of the row or column, and one integer minimum gives the least one and where it stands; less one, it is taken away from
all minima, which makes the least one negative and with its sign cleared the largest, and another gives the second
least. Minima and names are wrong by less than 2^(bits - 23) of themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from threading import local

import torch
from torch import Tensor

SCORES = 1 << 18  # of a tile: 1 MB
NUMBERS = 1 << 19  # of the minima of a block: few operations count more than near memory
WIDEST = 1 << 15  # queries of a block
NEVER = 2.0**100  # the score of keys that fill up a rectangle
POSITIVE = 0x7FFFFFFF  # all bits but the sign
ALIGNED = 64  # queries: rows of a tile that start anywhere in a line of memory take half as long again


@cache
def arranged(keys: int) -> tuple[int, int]:
    """Rows and columns of a rectangle for that many keys: few places that stay empty, and near to a square."""
    sizes = [(rows, max(2, -(-keys // rows))) for rows in range(2, max(3, keys + 1)) if rows * rows <= 4 * keys + 4]
    return min(sizes, key=lambda size: size[0] * size[1] + 2 * (size[0] + size[1]))


def block_rows(keys: int) -> int:
    """How many queries make a block with that many keys."""
    return max(1024, min(WIDEST, NUMBERS // sum(arranged(keys))))


def even(rows: int, size: int, times: int = 1) -> list[slice]:
    """Rows in parts of about `size`, nearly equal and aligned; of several parts there are a multiple of `times`."""
    many = -(-rows // max(1, size))
    many = -(-many // times) * times if many > 1 else 1
    size = max(1, -(-rows // many))
    size = -(-size // ALIGNED) * ALIGNED if size > ALIGNED else size
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]


@dataclass(frozen=True, slots=True, eq=False)
class Rectangle:
    """Keys in a rectangle: scores are offset + bias + table @ query, `bits` those of a name."""

    table: Tensor  # (places, features), float32
    bias: Tensor  # (places, 1), float64, where the keys came from
    names: Tensor  # (rows + columns, 1), int32
    size: tuple[int, int]
    bits: int

    @classmethod
    def of(cls, table: Tensor, bias: Tensor, device: torch.device) -> Rectangle:
        """Keys (k, features) and what is added to their scores (k,), to be looked at on a device."""
        rows, columns = size = arranged(len(table))
        empty = rows * columns - len(table)
        table = torch.cat([table, table.new_zeros(empty, table.shape[1])])
        bias = torch.cat([bias, bias.new_full((empty,), NEVER)])
        names = torch.cat([torch.arange(many, dtype=torch.int32, device=device) for many in size])
        return cls(table.to(device), bias[:, None], names[:, None], size, (max(size) - 1).bit_length())

    def look(self, block: Tensor, offset: float, room: Room) -> tuple[Tensor, Tensor, Tensor]:
        """For every query (rows of the block): best score, second best score, number of the best key.

        They stand in the room until the next look.
        """
        desk, low = room.desk(self.size, len(block)), (1 << self.bits) - 1
        bias = (self.bias + offset).to(torch.float32).to(room.device)
        for part, tile, cube, rows, columns in desk.tiles:
            torch.addmm(bias, self.table, block[part].T, out=tile)
            torch.amin(cube, 1, out=rows)
            torch.amin(cube, 0, out=columns)
        desk.packed.bitwise_and_(~low).bitwise_or_(self.names)
        for minima, first, _, _ in desk.groups:
            torch.amin(minima, -2, out=first)
        torch.add(desk.first, 1, out=desk.above)
        for minima, _, above, _ in desk.groups:
            minima.sub_(above.unsqueeze(-2))
        desk.packed.bitwise_and_(POSITIVE)
        for minima, _, _, second in desk.groups:
            torch.amin(minima, -2, out=second)
        desk.second.add_(desk.above)
        torch.minimum(desk.second[0], desk.second[1], out=desk.second[0])
        torch.bitwise_and(desk.first, low, out=desk.above)
        name = torch.add(desk.above[1], desk.above[0], alpha=self.size[1], out=desk.second[1])
        return desk.best, desk.runner_up, name


class Desk:
    """Places for the tiles of a block, for their minima, and for the least and second least of these."""

    def __init__(self, size: tuple[int, int], queries: int, room: Room) -> None:
        high, wide = size
        minima = room.take("minima", high + wide, queries)
        self.tiles = []
        for part in even(queries, room.scores // (high * wide)):
            tile = room.take("tile", high * wide, part.stop - part.start)
            cube = tile.view(high, wide, -1)
            self.tiles.append((part, tile, cube, minima[:high, part], minima[high:, part]))
        self.packed = minima.view(torch.int32)
        numbers = room.take("numbers", 6, queries)
        self.best, self.runner_up = numbers[0], numbers[4]
        self.first, self.above, self.second = numbers.view(torch.int32).view(3, 2, queries)
        if high == wide:
            self.groups = [(self.packed.view(2, high, queries), self.first, self.above, self.second)]
        else:
            both = zip((self.packed[:high], self.packed[high:]), self.first, self.above, self.second, strict=True)
            self.groups = list(both)


class Room(local):
    """Where tiles and minima are written: every thread has its own, which stays in its cache."""

    def __init__(self, device: torch.device, scores: int) -> None:
        self.device, self.scores = device, scores
        self._held: dict[str, Tensor] = {}
        self._desks: dict[tuple[tuple[int, int], int], Desk] = {}

    def desk(self, size: tuple[int, int], queries: int) -> Desk:
        """Places for a block of queries and a rectangle of keys."""
        if (size, queries) not in self._desks:
            self._desks[size, queries] = Desk(size, queries, self)
        return self._desks[size, queries]

    def take(self, name: str, rows: int, columns: int) -> Tensor:
        """Memory that all desks share."""
        held = self._held.get(name)
        if held is None or held.numel() < rows * columns:
            held = self._held[name] = torch.empty(rows * columns, dtype=torch.float32, device=self.device)
        return held[: rows * columns].view(rows, columns)
