"""The best keys of fixed queries, again and again as the keys move: the native search, and the bounds it lives on.

Scores are |q - k|^2 (small is good) or <q, k> (large is good). Queries are read as they are stored and made ready tile
by tile: centred (distances only; not where the data are whole numbers and float32 is exact on them), scaled by a power
of two, rounded to float32. With u = 2^-24, r features, X the length of a query and C that of the longest key, in scaled
units, a score v = |k|^2 - 2 <q, k> or -<q, k> is computed with an error of at most

    distance       (r + 8) u (C^2 + 2 X C)         inner product  (r + 8) u X C

from rounding of features, keys and sums in any order, with or without fused operations, plus what features that are not
data contribute. Twice that is the lead a certain row needs. Where features are data, a first look is taken in whole
numbers of 16 bits, with bounds of its own (native/shorts.h), as long as it settles most rows.

Between calls each query keeps an upper bound of the distance to its key and a lower bound to all others, which moving
keys loosen by how far they went. Rows whose bounds still part, or whose own distance is still below the lower bound,
keep their key without a look at the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from weft_runtime.held import blocks
from weft_runtime.native.library import Library, Searched
from weft_runtime.nearest import ROOM, SMALLEST, Found, U, exponent
from weft_runtime.plan import Uncovered
from weft_runtime.reuse import Pool
from weft_runtime.scores import SAFE
from weft_runtime.search_keys import KeyTable, View
from weft_runtime.stored import Stored
from weft_runtime.workers import cores

MANY = 500  # features times keys from which scores cost more than bounds
NARROW = 8  # features from which a first look in 16 bits pays
UNSETTLED = 0.25  # the share of rows that a first look may leave
PAUSE = 3  # searches without bounds before they are tried again; twice as many each time
ROOM_FOR_DOUBT = 1 << 14
SAMPLE = 1 << 15  # stored numbers looked at together


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
    _table: KeyTable = field(init=False)
    _call: Searched = field(init=False)
    _doubt: Tensor = field(init=False)
    _shorts: bool = field(init=False)  # whether a first look is taken in 16 bits
    _keys: Tensor | None = None  # of the last search
    _room: Pool = field(init=False)  # for labels
    _bounds: Pool = field(init=False)
    _labels: Tensor | None = None
    _upper: Tensor | None = None
    _lower: Tensor | None = None
    _drift: Tensor | None = None
    _pause: int = 4  # the first keys move far
    _longer: int = PAUSE

    def __post_init__(self) -> None:
        data = self.queries.data
        if not self.peak < 2.0**SAFE:
            raise Uncovered("squares of the data may overflow")
        self.whole = self.peak <= 2.0**11 and _whole(data)
        rows, columns = data.shape
        self.centre = torch.zeros(columns, dtype=torch.float64)
        sample = data[:: max(1, rows // max(64, min(4096, SAMPLE // max(1, columns))))].to(torch.float64)
        if self.distance and not self.whole:
            self.centre = sample.mean(0).to(torch.float32).to(torch.float64)
        size = self.peak + float(self.centre.abs().max()) if columns else 0.0
        self.power = 1.0 if self.whole else 2.0 ** -exponent(size)
        narrow = data.dtype == torch.float32 and not 2.0**-100 < self.power < 2.0**100
        self._data = data.to(torch.float64) if narrow else data
        length = float((sample - self.centre).square().sum(1).max()) ** 0.5 * self.power if len(sample) else 0.0
        self._shorts = columns >= NARROW and self.slack == 0 and not narrow
        view = View(self.centre, self.power, self.peak, size * self.power, length, self.whole)
        self._table = KeyTable(self.library, self.queries, self.distance, view)
        self._doubt = torch.empty(min(rows, ROOM_FOR_DOUBT), dtype=torch.int64)
        self._room, self._bounds = Pool(rows, torch.int32), Pool(2 * rows, torch.float32)
        self._call = Searched(
            data=self._data.data_ptr(),
            stride=self._data.stride(0),
            rows=rows,
            is_double=self._data.dtype == torch.float64,
            features=columns,
            centre=self.centre.data_ptr(),
            power=self.power,
            distance=self.distance,
            grow=1 + (columns + 8) * U,
        )

    def find(self, keys: Tensor, radius: Tensor | None, tolerance: float = 0.0, first: bool = False) -> Found:
        """The best of the keys (k, r), float64, for every query. `first`: among equal scores the first key wins."""
        call, table, rows = self._call, self._table, len(self._data)
        label = self._room.take()
        sure = radius is None and self.slack == 0
        plain = sure and not tolerance
        if not table.fill(keys, self._shorts and plain, call):
            return Found(label.zero_(), torch.arange(rows))
        call.e0, call.e1, ties = self._needed(keys, radius, tolerance)
        call.ties, call.threads, call.tolerance = ties and first, cores(), tolerance
        call.exact = table.keys.data_ptr() if sure else None
        call.label = label.data_ptr()
        if call.ties:
            call.shorts.table = None
        bounded = plain and self.distance and self._pays()
        before = self._carry() if bounded else None
        call.upper, call.lower = (_at(self._upper), _at(self._lower)) if bounded else (None, None)
        call.before, call.previous = _at(before), _at(self._keys)
        self._look()
        if call.shorts.table and call.refined > UNSETTLED * call.scanned:
            self._shorts = False
        if bounded:
            self._labels, self._keys = label, table.keys
            if before is not None and call.scanned > self._worth(len(keys)) * rows:
                self._pause, self._labels, self._upper, self._lower = self._longer, None, None, None
                self._longer *= 2
        doubtful = int(call.doubtful)
        return Found(label, self._doubt[:doubtful].sort().values if doubtful else None, int(call.doubled))

    def _look(self) -> None:
        """Carries out the search, with as much room for rows in doubt as it takes."""
        call = self._call
        drift = None if self._drift is None else self._drift.clone()
        spread = call.spread
        while True:
            call.doubt, call.room = self._doubt.data_ptr(), len(self._doubt)
            self.library.nearest(call)
            if call.doubtful <= call.room:
                return
            self._doubt = torch.empty(len(self._data), dtype=torch.int64)
            if drift is not None and self._drift is not None:
                self._drift.copy_(drift)
            call.spread = spread

    # ------------------------------------------------------------------ certificate
    def _needed(self, keys: Tensor, radius: Tensor | None, tolerance: float) -> tuple[float, float, bool]:
        """The lead a row needs, e0 + e1 |x|, and whether equal scores are equal without doubt."""
        table, terms = self._table, self._data.shape[1]
        reach, most = table.reach, table.most
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
        """The share of rows scanned up to which bounds pay, by rough nanoseconds per row."""
        features = self._data.shape[1]
        scan = 10 + features / 2 + features * keys / (68 if self._shorts else 44)
        look, own, apart = 2.5, 5 + 0.6 * features, 8  # bounds alone, one distance, rows that do not lie together
        return (scan - look) / (1.15 * scan + apart + 1.4 * own)

    def _pays(self) -> bool:
        """Whether bounds are kept this time."""
        if self._table.keys.numel() < MANY or self._table.most != 0:
            return False
        self._pause = max(0, self._pause - 1)
        return not self._pause

    def _carry(self) -> Tensor | None:
        """The labels that the bounds belong to; None where bounds start anew."""
        keys = self._table.keys
        if self._upper is not None and self._keys is not None and self._keys.shape == keys.shape:
            return self._labels
        rows = len(self._data)
        self._upper, self._lower = self._bounds.take().view(2, rows)
        self._drift = torch.zeros(len(keys), dtype=torch.float64)
        self._call.drift, self._call.spread = self._drift.data_ptr(), 0.0
        return None


def _at(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _whole(numbers: Tensor) -> bool:
    """Whether all numbers are whole; a few rows tell mostly."""
    parts = (numbers[rows] for rows in blocks(len(numbers), numbers.shape[1], SAMPLE))
    return all(torch.equal(part, part.round()) for part in parts)
