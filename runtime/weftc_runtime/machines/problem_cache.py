"""What a run has found out about one problem and may use again, as long as it is made from the same slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from torch import Tensor

from weftc_runtime.machines.checks import Checks

if TYPE_CHECKING:
    from weftc_runtime.machines.native_machine import KeptStore

Value = TypeVar("Value")
Sources = tuple[object, ...]


@dataclass(slots=True)
class ProblemCache:
    """Sizes of stored numbers, what heads make of slots, and the exponentials that the native machine keeps."""

    store: KeptStore | None = None
    checks: Checks = field(default_factory=Checks)  # of the step under way
    _peaks: dict[Sources, tuple[float, Tensor]] = field(default_factory=dict)  # held, so that its memory stays its own
    _made: dict[Sources, tuple[Sources, object]] = field(default_factory=dict)

    def clear(self) -> None:
        """Forgets all."""
        self.store = None
        self._peaks.clear()
        self._made.clear()

    def peak(self, data: Tensor) -> float | None:
        """The largest size of stored numbers, where it is known."""
        known = self._peaks.get(_memory(data)) if self._peaks else None
        return None if known is None else known[0]

    def note_peak(self, data: Tensor, peak: float) -> float:
        """Remembers the largest size of stored numbers."""
        self._peaks[_memory(data)] = (peak, data)
        return peak

    def static(self, key: Sources, sources: Sources, make: Callable[[], Value]) -> Value:
        """Something made from these slots: made once as long as they are the same."""
        known = self._made.get(key)
        if (
            known is None
            or len(known[0]) != len(sources)
            or any(a is not b for a, b in zip(known[0], sources, strict=True))
        ):
            known = self._made[key] = sources, make()
        return cast(Value, known[1])


def _memory(data: Tensor) -> Sources:
    return data.data_ptr(), tuple(data.shape), data.stride()
