"""Entries of a residual without a value (the logarithm of zero in a derived slot): which they are, and who needs them.

They are kept slot by slot, as rows of tokens. A row without a value is no error until something needs it: a decision, a
sum with a weight that is not zero, a field, an answer. A row that only left the range of float64 is still known to
exact arithmetic, so that decisions may read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from weftc_runtime.errors import RunError


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """Rows of a slot without a value: why, and the equation that would give them one."""

    origin: str
    reasons: Mapping[int, str]  # row -> why, of the first rows
    rows: Tensor  # (tokens,), bool
    overflow: bool = False  # whether exact arithmetic has the value

    def told(self, reader: str, among: Tensor | None = None) -> RunError:
        """The error of the equation that reads some of the rows."""
        origin = (reader or self.origin).rstrip(": ")
        wanted = self.rows if among is None else among
        reason = next(
            (why for row, why in self.reasons.items() if bool(wanted[row])), next(iter(self.reasons.values()))
        )
        told = f"{origin}: {reason}" if origin else reason
        return RunError(told, place=told.rpartition(": ")[0])

    def joined(self, other: Fault | None) -> Fault:
        """Both."""
        if other is None:
            return self
        reasons = {**other.reasons, **self.reasons}
        return replace(self, rows=self.rows | other.rows, reasons=reasons, overflow=self.overflow and other.overflow)

    def only(self, rows: Tensor) -> Fault | None:
        """The fault at some rows."""
        both = self.rows & rows
        return replace(self, rows=both) if bool(both.any()) else None


def together(faults: Mapping[tuple[str, str], Fault], stream: str, slots: Iterable[str]) -> Fault | None:
    """What is wrong with some slots of a stream."""
    found: Fault | None = None
    for slot in sorted(slots):
        here = faults.get((stream, slot))
        if here is not None:
            found = here.joined(found)
    return found


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What a head cannot read: on the side of the queries and of the keys of a score, or as values."""

    query: Fault | None = None
    keys: Fault | None = None

    def __bool__(self) -> bool:
        return self.query is not None or self.keys is not None

    def needed(self, block: slice, eligible: Tensor, decides: bool) -> tuple[Fault, Tensor] | None:
        """What some eligible pair (q, k) needs and cannot have, and the rows; decisions know what only overflowed."""
        for fault, of_query in ((self.query, True), (self.keys, False)):
            if fault is None or (decides and fault.overflow):
                continue
            keys = eligible.shape[1]
            lost = fault.rows[block] if of_query else _padded(fault.rows, keys)
            read = eligible.any(1) & lost if of_query else eligible.any(0) & lost
            if bool(read.any()):
                where = torch.zeros_like(fault.rows)
                where[block if of_query else slice(0, len(fault.rows))] = read[: len(fault.rows)]
                return fault, where
        return None


def _padded(rows: Tensor, keys: int) -> Tensor:
    """Rows of all keys: the null token and a self key always have values."""
    return rows if len(rows) >= keys else torch.cat([rows, rows.new_zeros(keys - len(rows))])
