"""The best keys of fixed queries, again and again as the keys move: the native search, and the bounds it lives on.

Scores are |q - k|^2 (small is good) or <q, k> (large is good). Queries are read as they are stored and made ready tile
by tile: centred (distances only; not where the data are whole numbers and float32 is exact on them), scaled by a power
of two, rounded to float32. With u = 2^-24, r features, X the length of a query and C that of the longest key, in scaled
units, a score v = |k|^2 - 2 <q, k> or -<q, k> is computed with an error of at most

    distance       (r + 8) u (C^2 + 2 X C)         inner product  (r + 8) u X C

from rounding of features, keys and sums in any order, with or without fused operations, plus what features that are not
data contribute. Twice that is the lead a certain row needs.

Between calls each query keeps an upper bound of the distance to its key and a lower bound to all others, which moving
keys loosen by how far they went. Rows whose bounds still part, or whose own distance is still below the lower bound,
keep their key without a look at the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

from weft_runtime.native.library import Library
from weft_runtime.nearest import LARGEST, ROOM, SMALLEST, Found, U, exponent, full_precision
from weft_runtime.plan import Uncovered
from weft_runtime.scores import SAFE
from weft_runtime.stored import Stored
from weft_runtime.workers import cores

WHOLE = 2.0**24  # whole numbers up to here are exact in float32
MANY = 500  # features times keys from which scores cost more than bounds
PAUSE = 3  # searches without bounds before they are tried again; twice as many each time
ROOM_FOR_DOUBT = 1 << 14


@dataclass(slots=True, eq=False)
class Search:
    """Queries, what was found last, and how far the keys have moved since."""

    library: Library
    queries: Stored
    distance: bool
    peak: float  # of the stored numbers
    slack: float = 0.0  # bound of the error of the features of a query, as a length
    centre: Tensor = field(init=False)
    power: float = field(init=False)
    whole: bool = field(init=False)  # all stored numbers are small whole numbers
    _data: Tensor = field(init=False)
    _keys: Tensor | None = None  # of the last search
    _labels: Tensor | None = None
    _upper: Tensor | None = None
    _lower: Tensor | None = None
    _drift: Tensor | None = None
    _spread: float = 0.0
    _pause: int = 4  # the first keys move far
    _longer: int = PAUSE

    def __post_init__(self) -> None:
        data = self.queries.data
        if not self.peak < 2.0**SAFE:
            raise Uncovered("squares of the data may overflow")
        self.whole = self.peak <= 2.0**11 and _whole(data)
        columns = data.shape[1]
        self.centre = torch.zeros(columns, dtype=torch.float64)
        if self.distance and not self.whole:
            sample = data[:: max(1, len(data) // 4096)].to(torch.float64)
            self.centre = sample.mean(0).to(torch.float32).to(torch.float64)
        size = self.peak + float(self.centre.abs().max()) if columns else 0.0
        self.power = 1.0 if self.whole else 2.0 ** -exponent(size)
        narrow = data.dtype == torch.float32 and not 2.0**-100 < self.power < 2.0**100
        self._data = data.to(torch.float64) if narrow else data

    def find(self, keys: Tensor, radius: Tensor | None, tolerance: float = 0.0, first: bool = False) -> Found:
        """The best of the keys (k, r), float64, for every query. `first`: among equal scores the first key wins."""
        rows = len(self._data)
        label = torch.empty(rows, dtype=torch.int32)
        table = _Table.of(self, keys)
        if table is None:
            return Found(label.zero_(), torch.arange(rows))
        e0, e1, ties = self._needed(table, keys, radius, tolerance)
        sure = radius is None and self.slack == 0
        bounded = sure and self.distance and not tolerance and self._pays(table)
        before, half = self._carry(table) if bounded else (None, None)
        room = min(rows, ROOM_FOR_DOUBT)
        while True:
            doubt = torch.empty(room, dtype=torch.int64)
            scanned, doubled, doubtful = self.library.nearest(
                data=self._data,
                stride=self._data.stride(0),
                rows=rows,
                is_double=self._data.dtype == torch.float64,
                features=self._data.shape[1],
                centre=self.centre,
                power=self.power,
                table=table.table,
                bias=table.bias,
                keys=len(keys),
                ties=ties and first,
                e0=e0,
                e1=e1,
                distance=self.distance,
                threads=cores(),
                exact=table.keys if sure else None,
                offset=table.offset,
                tolerance=tolerance,
                grow=1 + (self._data.shape[1] + 8) * U,
                upper=self._upper if bounded else None,
                lower=self._lower if bounded else None,
                before=before,
                drift=self._drift,
                half=half,
                spread=self._spread,
                label=label,
                doubt=doubt,
                room=room,
            )
            if doubtful <= room:
                break
            room = rows
        if bounded:
            self._labels, self._keys = label, table.keys
            if before is not None and scanned > self._worth(len(keys)) * rows:
                self._pause, self._upper, self._lower = self._longer, None, None
                self._longer *= 2
        return Found(label, doubt[:doubtful].sort().values if doubtful else None, doubled)

    # ------------------------------------------------------------------ certificate
    def _needed(
        self, table: _Table, keys: Tensor, radius: Tensor | None, tolerance: float
    ) -> tuple[float, float, bool]:
        """The lead a row needs, e0 + e1 |x|, and whether equal scores are equal without doubt."""
        terms, reach, most = self._data.shape[1], table.reach, table.most
        other = 0.0 if radius is None else float(torch.linalg.vector_norm(radius, dim=1).max()) * table.power * ROOM
        own = self.slack * self.power * ROOM
        if not (other or own or tolerance) and table.whole:
            return 0.0, 0.0, True
        share = (terms + 8) * U * ROOM  # room for rounding the bounds to float32, too
        least = 2 * SMALLEST + tolerance * self.power * table.power
        if self.distance:
            both = own + other
            aside = most**0.5  # the part of a distance that all queries share
            e0 = 2 * share * (reach * reach + most) + 2 * both * (2 * (reach + aside) + both) + least
            return e0 * ROOM, (4 * share * reach + 4 * both) * ROOM, False
        constant = float(torch.linalg.vector_norm(self.queries.constant)) * self.power
        length = float(torch.linalg.vector_norm(keys, dim=1).max()) * table.power
        e0 = 2 * share * most + 2 * (own * length + own * other + constant * other) + least
        return e0 * ROOM, (2 * share * reach + 2 * other) * ROOM, False

    # ------------------------------------------------------------------ bounds
    def _worth(self, keys: int) -> float:
        """The share of rows scanned up to which bounds pay, by rough counts of cycles per row."""
        features = self._data.shape[1]
        scan, look, own = 30 + features * keys / 14, 10, 2 * features
        return (scan - look) / (1.2 * scan + own)

    def _pays(self, table: _Table) -> bool:
        """Whether bounds are kept this time."""
        if table.keys.numel() < MANY or table.most != 0:
            return False
        self._pause = max(0, self._pause - 1)
        return not self._pause

    def _carry(self, table: _Table) -> tuple[Tensor | None, Tensor | None]:
        """Moves the bounds along with the keys: the labels they belong to, and half the way to the next key."""
        if self._upper is None or self._keys is None or self._keys.shape != table.keys.shape:
            rows = len(self._data)
            self._upper = torch.empty(rows, dtype=torch.float32)
            self._lower = torch.empty(rows, dtype=torch.float32)
            self._drift = torch.zeros(len(table.keys), dtype=torch.float64)
            self._spread = 0.0
            return None, None
        assert self._drift is not None
        moved = torch.linalg.vector_norm(table.keys - self._keys, dim=1) * (1 + 2.0**-40)
        self._drift = self._drift + moved
        self._spread += float(moved.max()) * (1 + 2.0**-40)
        small = ((table.keys - self.centre) * self.power).to(torch.float32)
        return self._labels, _half_gaps(small, table.reach, self.power)


def nearest_in_groups(
    library: Library, data: Tensor, keys: Tensor, distance: bool, starts: tuple[list[int], list[int]], peak: float
) -> tuple[Tensor, Tensor, int]:
    """Best keys where every group of queries has as many keys of its own: indices, rows in doubt, rows by float64."""
    if not peak < 2.0**SAFE:
        raise Uncovered("squares of the data may overflow")
    rows, groups = starts[0][-1], len(starts[0]) - 1
    power = 2.0 ** -exponent(2 * peak)
    if not 2.0**-100 < power < 2.0**100:
        data = data.to(torch.float64)
    key_power = power if distance else 2.0 ** -exponent(float(keys.abs().max()) if keys.numel() else 0.0)
    label, doubt = torch.empty(rows, dtype=torch.int32), torch.empty(rows, dtype=torch.int64)
    doubled, doubtful = library.nearest_groups(
        data=data,
        stride=data.stride(0),
        is_double=data.dtype == torch.float64,
        features=data.shape[1],
        groups=groups,
        starts=torch.tensor(starts[0]),
        keys=keys.contiguous(),
        count=len(keys) // groups,
        distance=distance,
        power=power,
        key_power=key_power,
        threads=cores(),
        label=label,
        doubt=doubt,
        room=rows,
    )
    return label, doubt[:doubtful], doubled


@dataclass(slots=True, eq=False)
class _Table:
    """Keys made ready: centred, scaled, rounded, in blocks."""

    keys: Tensor  # (k, columns) as they are, for the stored columns
    offset: Tensor  # (k,) what the constant features add
    table: Tensor
    bias: Tensor
    power: float
    reach: float  # above the length of every key, scaled
    most: float  # above what the constant features add, scaled
    whole: bool  # every score is a small whole number

    @classmethod
    def of(cls, search: Search, keys: Tensor) -> _Table | None:
        stored, library = search.queries, search.library
        exact, offset = keys, torch.zeros(len(keys), dtype=torch.float64)
        if not stored.plain:
            exact = keys[:, stored.place] * stored.factor
            constant, rest = stored.constant[stored.aside], keys[:, stored.aside]
            offset = (constant - rest).square().sum(1) if search.distance else -(rest @ constant)
        exact = exact.contiguous()
        power = search.power
        if not search.distance and not search.whole:
            power = 2.0 ** -exponent(float(exact.abs().max()) if exact.numel() else 0.0)
        count, columns = exact.shape
        padded = -(-count // library.block_keys) * library.block_keys
        table, bias = torch.empty(padded * columns, dtype=torch.float32), torch.empty(padded, dtype=torch.float32)
        reach, most, peak, whole = library.table(
            keys=exact,
            offset=offset,
            centre=search.centre,
            count=count,
            features=columns,
            distance=search.distance,
            power=power,
            both=power * search.power,
            table=table,
            bias=bias,
        )
        reach, most = reach * ROOM + 2.0**-60, most * ROOM
        if not (reach < LARGEST and most < LARGEST):
            return None
        largest = columns * peak * (peak + 2 * search.peak) + peak
        return cls(exact, offset, table, bias, power, reach, most, search.whole and whole and largest < WHOLE)


def _half_gaps(small: Tensor, reach: float, power: float) -> Tensor:
    """Half the distance from every key to the nearest other one, or less; keys centred, scaled, in float32."""
    if len(small) == 1:
        return torch.full((1,), inf, dtype=torch.float64)
    square = small.square().sum(1)
    with full_precision():
        gaps = torch.addmm(square, small, small.T, alpha=-2.0).add_(square[:, None]).fill_diagonal_(inf)
    error = (small.shape[1] + 8) * U * 4 * reach * reach * ROOM
    nearest = gaps.amin(1).to(torch.float64) - error
    return nearest.clamp_min(0).sqrt() * ((1 - 2.0**-20) / (2 * power))


def _whole(numbers: Tensor) -> bool:
    """Whether all numbers are whole; a few rows tell mostly."""
    size = 1 << 12
    return all(
        torch.equal(part, part.round()) for part in (numbers[i : i + size] for i in range(0, len(numbers), size))
    )
