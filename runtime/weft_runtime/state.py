"""One problem of a batch while a program runs on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from weft_runtime.exact import Exact


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a slot has no value, and the equation that would give it one."""

    origin: str
    reason: str

    def told(self, reader: str) -> str:
        """The message for the equation that reads it."""
        origin = reader or self.origin
        return f"{origin}: {self.reason}" if origin else self.reason


@dataclass(slots=True)
class Problem:
    """One problem of a batch: the residual of every stream, in float64 with fields rounded to the storage dtype."""

    z: dict[str, Tensor]
    number: int = 0  # its place in the batch
    faults: dict[tuple[str, str], Fault] = field(default_factory=dict)  # derived slots without a value, and why
    zeros: dict[tuple[str, ...], Tensor] = field(default_factory=dict)  # rows where a derived norm took its fallback
    exact: Exact | None = None
    radii: dict[str, Tensor] | None = None
    nulls: dict[str, Tensor] = field(default_factory=dict)  # the null token of a stream that has one, [1, width]
    kept: dict[int, list[Any]] = field(default_factory=dict)  # what was last seen to keep each condition

    def copy(self) -> Problem:
        return Problem(dict(self.z), self.number, dict(self.faults), dict(self.zeros), nulls=self.nulls)
