"""Keys -> the tables that the native search reads: centred, scaled, rounded, in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from weft_runtime.native.library import Library, Searched, Table
from weft_runtime.nearest import LARGEST, ROOM, exponent
from weft_runtime.stored import Stored

WHOLE = 2.0**24  # whole numbers up to here are exact in float32


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """How queries are looked at: x -> (x - centre) * power."""

    centre: Tensor  # float64
    power: float
    peak: float  # of the stored numbers
    top: float  # no feature is larger, centred and scaled
    length: float  # of most queries, centred and scaled
    whole: bool  # all stored numbers are small whole numbers


class KeyTable:
    """Keys made ready: centred, scaled, rounded, in blocks. Filled anew for every search."""

    keys: Tensor  # (k, columns) as they are, for the stored columns
    power: float
    reach: float  # above the length of every key, scaled
    most: float  # above what the constant features add, scaled
    whole: bool  # every score is a small whole number

    def __init__(self, library: Library, queries: Stored, distance: bool, view: View) -> None:
        self._library, self._queries, self._distance, self._view = library, queries, distance, view
        self._made = Table(
            centre=view.centre.data_ptr(),
            features=len(view.centre),
            distance=distance,
            length=view.length,
            top=view.top,
        )
        self._room: tuple[Tensor, ...] = ()

    def fill(self, keys: Tensor, shorts: bool, call: Searched) -> bool:
        """Makes keys ready for a call; False where they are too large to be searched. `shorts`: in 16 bits, too."""
        stored, made, view = self._queries, self._made, self._view
        exact, offset = keys, None
        if not stored.plain:
            exact = keys[:, stored.place] * stored.factor
            constant, rest = stored.constant[stored.aside], keys[:, stored.aside]
            offset = (constant - rest).square().sum(1) if self._distance else -(rest @ constant)
        self.keys = exact = exact.contiguous()
        self.power = view.power
        if not self._distance and not view.whole:
            self.power = 2.0 ** -exponent(float(exact.abs().max()) if exact.numel() else 0.0)
        self._make_room(len(exact))
        self._offset = self._room[0] if offset is None else offset
        made.keys, made.offset = exact.data_ptr(), self._offset.data_ptr()
        made.power, made.both = self.power, self.power * view.power
        made.shorts.table = self._room[3].data_ptr() if shorts else None
        self._library.table(made)
        self.reach, self.most = made.reach * ROOM + 2.0**-60, made.most * ROOM
        largest = exact.shape[1] * made.peak * (made.peak + 2 * view.peak) + made.peak
        self.whole = view.whole and bool(made.whole) and largest < WHOLE
        call.keys, call.offset, call.table, call.bias = len(exact), made.offset, made.table, made.bias
        if not made.shorts.scale:
            made.shorts.table = None
        call.shorts = made.shorts
        return self.reach < LARGEST and self.most < LARGEST

    def _make_room(self, count: int) -> None:
        made, columns, block = self._made, len(self._view.centre), self._library.block_keys
        if self._room and made.count == count:
            return
        padded = -(-count // block) * block
        pairs = -(-columns // 8) * 4
        sizes = (padded * columns, padded, padded * pairs, padded)
        kinds = (torch.float32, torch.float32, torch.int32, torch.int32)
        tables = [torch.empty(size, dtype=kind) for size, kind in zip(sizes, kinds, strict=True)]
        self._room = (torch.zeros(count, dtype=torch.float64), *tables)
        made.count, made.table, made.bias = count, tables[0].data_ptr(), tables[1].data_ptr()
        made.shorts.bias = tables[3].data_ptr()
