"""Many small searches of one shape in one native call: every group of queries has keys of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.kernels.native.library import GroupsStruct, Library, address
from weftc_runtime.kernels.nearest import Found, exponent
from weftc_runtime.kernels.reuse import Pool
from weftc_runtime.reference.scores import SAFE
from weftc_runtime.threads import cores


@dataclass(slots=True, eq=False)
class GroupSearch:
    """The queries of all groups one after the other, each with as many keys of its own."""

    library: Library
    data: Tensor
    distance: bool
    starts: Tensor  # the first query of every group, and the end of the last (int64)
    peak: float
    room: Pool = field(init=False)  # for labels
    _doubt: Tensor = field(init=False)
    _ask: GroupsStruct = field(init=False)

    def __post_init__(self) -> None:
        if not self.peak < 2.0**SAFE:
            raise Uncovered("squares of the data may overflow")
        power = 2.0 ** -exponent(2 * self.peak)
        if not 2.0**-100 < power < 2.0**100:
            self.data = self.data.to(torch.float64)
        rows, columns = self.data.shape
        self.room, self._doubt = Pool(rows, torch.int32), torch.empty(rows, dtype=torch.int64)
        self._ask = GroupsStruct(
            data=address(self.data),
            stride=self.data.stride(0),
            is_double=self.data.dtype == torch.float64,
            features=columns,
            groups=len(self.starts) - 1,
            starts=address(self.starts),
            distance=self.distance,
            power=power,
            doubt=address(self._doubt),
            room=rows,
        )

    @property
    def rows(self) -> int:
        return len(self.data)

    def find(self, keys: Tensor) -> Found:
        """The best of its keys for every query, counted from 0 in every group; `keys` (groups x count, features)."""
        ask, label, keys = self._ask, self.room.take(), keys.contiguous()
        ask.keys, ask.count, ask.label, ask.threads = address(keys), self._each(keys), address(label), cores()
        self.library.nearest_groups(ask)
        return Found(label, self.doubt(), int(ask.settled_f64))

    def doubt(self) -> Tensor | None:
        """The rows of the last search of which nothing is proved; None if there are none."""
        many = int(self._ask.doubtful)
        return self._doubt[:many].sort().values if many else None

    def _each(self, keys: Tensor) -> int:
        return len(keys) // (len(self.starts) - 1)
