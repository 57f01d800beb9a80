"""The best keys of fixed queries, again and again as the keys move: the native search, and how it sees the queries.

Scores are |q - k|^2 (small is good) or <q, k> (large is good). Queries are read as they are stored and made ready tile
by tile: centred (distances only; not where the data are whole numbers and float32 is exact on them), scaled by a power
of two, rounded to float32. What a row needs to be certain stands in native/finder.h. Where features are data, a first
look is taken in whole numbers of 16 bits, with bounds of its own (native/shorts.h), as long as it settles most rows.

Between calls each query keeps an upper bound of the distance to its key and a lower bound to all others, which moving
keys loosen by how far they went. Rows whose bounds still part, or whose own distance is still below the lower bound,
keep their key without a look at the others. Bounds are given up, for a while, when they do not pay.
"""

from __future__ import annotations

import weakref
from ctypes import c_int64
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.rows import blocks
from weftc_runtime.kernels.native.library import Find, Library, QueriesStruct, address
from weftc_runtime.kernels.nearest import Found, exponent
from weftc_runtime.kernels.reuse import Pool
from weftc_runtime.machines.stored import Stored
from weftc_runtime.reference.scores import SAFE
from weftc_runtime.threads import cores

MANY = 500  # features times keys from which scores cost more than bounds
NARROW = 8  # features from which a first look in 16 bits pays
NEVER, PAYING, ALWAYS = range(3)
BOUNDS = PAYING  # when bounds are kept
SAMPLE = 1 << 15  # stored numbers looked at together


@dataclass(slots=True, eq=False, weakref_slot=True)
class Search:
    """Queries, what was found last, and how far the keys have moved since."""

    library: Library
    queries: Stored
    distance: bool
    peak: float  # of the stored numbers
    slack: float = 0.0  # bound of the error of the features of a query, as a length
    whole: bool = field(init=False)  # all stored numbers are small whole numbers
    finder: int = field(init=False)  # the native search
    last: Find = field(init=False)  # the last search, and what is known of it
    room: Pool = field(init=False)  # for labels
    _held: list[Tensor] = field(init=False)  # what the native search points to
    _labels: Tensor | None = None  # that the bounds belong to

    def __post_init__(self) -> None:
        data = self.queries.data
        if not self.peak < 2.0**SAFE:
            raise Uncovered("squares of the data may overflow")
        self.whole = self.peak <= 2.0**11 and _whole(data)
        rows, columns = data.shape
        centre = torch.zeros(columns, dtype=torch.float64)
        sample = data[:: max(1, rows // max(64, min(4096, SAMPLE // max(1, columns))))].to(torch.float64)
        if self.distance and not self.whole:
            centre = short(sample.mean(0))
        size = self.peak + float(centre.abs().max()) if columns else 0.0
        power = 1.0 if self.whole else 2.0 ** -exponent(size)
        narrow = data.dtype == torch.float32 and not 2.0**-100 < power < 2.0**100
        data = data.to(torch.float64) if narrow else data
        made = QueriesStruct(
            data=address(data),
            stride=data.stride(0),
            rows=rows,
            is_double=data.dtype == torch.float64,
            features=columns,
            distance=self.distance,
            shorts=columns >= NARROW and self.slack == 0 and not narrow,
            bounds=BOUNDS,
            many=MANY,
            whole=self.whole,
            centre=address(centre),
            power=power,
            peak=self.peak,
            top=size * power,
            length=float((sample - centre).square().sum(1).max()) ** 0.5 * power if len(sample) else 0.0,
            slack=self.slack,
            constant=float(torch.linalg.vector_norm(self.queries.constant)),
        )
        self._held, self.last, self.room = [data], Find(), Pool(rows, torch.int32)
        self.finder = self.library.finder(made)
        weakref.finalize(self, self.library.free, self.finder)

    def find(self, keys: Tensor, radius: Tensor | None, tolerance: float = 0.0, first: bool = False) -> Found:
        """The best of the keys (k, r), float64, for every query. `first`: among equal scores the first key wins."""
        stored, ask, label = self.queries, self.last, self.room.take()
        exact, offset = keys, None
        if not stored.plain:
            exact = keys[:, stored.place] * stored.factor
            constant, rest = stored.constant[stored.aside], keys[:, stored.aside]
            offset = (constant - rest).square().sum(1) if self.distance else -(rest @ constant)
        exact = exact.contiguous()
        ask.keys, ask.count, ask.offset = address(exact), len(exact), None if offset is None else address(offset)
        ask.radius = ask.longest = 0.0
        if radius is not None:
            ask.radius = float(torch.linalg.vector_norm(radius, dim=1).max())
        if self.slack:
            ask.longest = float(torch.linalg.vector_norm(keys, dim=1).max())
        ask.first, ask.tolerance, ask.threads, ask.label = first, tolerance, cores(), address(label)
        self.library.find(self.finder, ask)
        self._keep(label)
        return Found(label, self.doubt(), int(ask.settled_f64))

    @property
    def rows(self) -> int:
        return len(self.queries.data)

    def _keep(self, label: Tensor) -> None:
        """Holds the labels of the last search if bounds belong to them."""
        if self.last.upper:
            self._labels = label

    def doubt(self) -> Tensor | None:
        """The rows of the last search of which nothing is proved; None if there are none."""
        many = int(self.last.doubtful)
        if not many:
            return None
        return torch.frombuffer((c_int64 * many).from_address(self.last.doubt), dtype=torch.int64).clone()


def short(numbers: Tensor) -> Tensor:
    """Numbers with 24 bits, as float32 has them, but with any exponent."""
    part, power = torch.frexp(numbers)
    return torch.ldexp(part.to(torch.float32).to(torch.float64), power)


def _whole(numbers: Tensor) -> bool:
    """Whether all numbers are whole; a few rows tell mostly."""
    parts = (numbers[rows] for rows in blocks(len(numbers), numbers.shape[1], SAMPLE))
    return all(torch.equal(part, part.round()) for part in parts)
