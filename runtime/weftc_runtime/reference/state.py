"""One problem of a batch while a program runs on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from weftc_runtime.exact.rational import RationalScores
from weftc_runtime.reference.faults import Fault


@dataclass(slots=True)
class Problem:
    """One problem of a batch: the residual of every stream, in float64 with fields rounded to the storage dtype."""

    residuals: dict[str, Tensor]
    number: int = 0  # its place in the batch
    faults: dict[tuple[str, str], Fault] = field(default_factory=dict)  # rows of slots without a value, and why
    zeros: dict[tuple[str, ...], Tensor] = field(default_factory=dict)  # rows where a derived norm took its fallback
    exact: RationalScores | None = None
    radii: dict[str, Tensor] | None = None
    nulls: dict[str, Tensor] = field(default_factory=dict)  # the null token of a stream that has one, [1, width]
    kept: dict[int, list[Any]] = field(default_factory=dict)  # what was last seen to keep each condition

    def copy(self) -> Problem:
        return Problem(dict(self.residuals), self.number, dict(self.faults), dict(self.zeros), nulls=self.nulls)
