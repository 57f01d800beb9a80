"""Which tokens and which layers are drawn when there are many: evenly spaced ones, first and last among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TOKENS = 400  # of a set, in the plane
ROWS = 72  # of a set, in a picture of attention
CURVES = 60  # of a set, in a chart of numbers
SHOWN = 24  # of a set, in a picture of the residual
LAYERS = 48  # frames that are kept


def evenly(count: int, most: int) -> NDArray[Any]:
    """At most `most` of the numbers 0 .. count - 1, evenly spaced, the ends among them."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


class Frames:
    """Which layers are kept, decided while they come: every one at first, then every second, every fourth ..."""

    def __init__(self, most: int = LAYERS) -> None:
        self.most, self.stride = most, 1

    def wants(self, layer: int) -> bool:
        """Whether the state after so many layers is kept, as far as is known now."""
        return layer % self.stride == 0

    def thin(self, kept: list[int]) -> list[int]:
        """What stays of the layers kept so far."""
        if len(kept) > self.most:
            self.stride *= 2
        return [layer for layer in kept if self.wants(layer)]
