"""When a run has settled: a layer that changed the fields that count by little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from weftc_runtime.data.results import Fields

Until = Callable[[Fields, Fields], bool]  # the fields before and after a layer -> whether to stop


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a field may change in a layer: the sum of the squares of its changes."""

    most: float = 0.0
    share: float = 0.0  # of the sum of its squares, added to that

    def holds(self, before: Tensor, after: Tensor) -> bool:
        change, size = _squares(after - before), _squares(after) if self.share else 0.0
        return change <= self.most + self.share * size


@dataclass(frozen=True, slots=True)
class SmallChange:
    """The first layer that changes every one of these fields by little ends a run: as `until`, problem by problem."""

    limits: Mapping[str, Limit]

    def __call__(self, before: Fields, after: Fields) -> bool:
        return all(limit.holds(before[name], after[name]) for name, limit in self.limits.items())


def _squares(value: Tensor) -> float:
    return float(value.double().square().sum())
