"""What a step takes for granted until its end, so that a device is waited for once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class Checks:
    """Flags that are looked at together; each comes with what raises an error if something is wrong after all.

    A flag is a number that is 0, or something else, NaN included, where something may be wrong.
    """

    _waits: bool = False
    _asked: list[tuple[Tensor, Callable[[], None]]] = field(default_factory=list)

    def ask(self, flag: Tensor, confirm: Callable[[], None]) -> None:
        """Lets `confirm` look where a flag is set: at the end of the step, or now where none is under way."""
        if self._waits:
            self._asked.append((flag, confirm))
        elif bool(flag):
            confirm()

    @contextmanager
    def at_the_end(self) -> Iterator[None]:
        """A step under way: flags wait for `settle`."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
            self._asked.clear()

    def settle(self) -> None:
        """Looks at all flags, waiting once."""
        asked, self._asked = self._asked, []
        if asked and bool(torch.stack([flag.to(torch.float64) for flag, _ in asked]).any()):
            for flag, confirm in asked:
                if bool(flag):
                    confirm()


def unless_finite(numbers: Tensor) -> Tensor:
    """A flag that is set where a number is not finite, and may be where they add up to too much."""
    return numbers.sum() * 0.0
