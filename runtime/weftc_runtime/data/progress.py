"""How long work tells the caller how far it is: one callable, called from the thread that works."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Protocol


class Progress(Protocol):
    """Called whenever a part is done, and once before the first.

    what    the part that comes next, in a few words (layer, examples, ...)
    done    how many parts are done; it starts over when work starts over (on another backend, say)
    total   out of how many; None when nobody knows beforehand

    What it raises stops the work and reaches the caller. One that has an attribute `pause` is content to be called once
    in so many seconds: parts in between run faster together.

    >>> import weftc
    >>> model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}, layers=2))
    >>> tell = lambda what, done, total: print(what, done, total)
    >>> centers = model(x=[[0.0], [1.0], [5.0]], c=[[0.0], [5.0]], progress=tell)["centers"]
    layer 0 2
    layer 1 2
    layer 2 2
    """

    def __call__(self, what: str, done: int, total: int | None, /) -> None: ...


class Pace:
    """How many parts to do before somebody is told, so that about `pause` seconds lie between; all processes agree."""

    def __init__(self, pause: float, most: Callable[[float], float]) -> None:
        """`most`: the largest of the numbers of all processes."""
        self._most = most
        self.pause = -most(-pause)
        self._step, self._begun = 1, time.monotonic()

    def next(self, left: int) -> int:
        """How many of those that are left come next."""
        self._begun = time.monotonic()
        return left if self.pause == inf else min(left, self._step)

    def done(self, ran: int) -> None:
        """So many were done in one go."""
        if 0 < self.pause < inf and ran:
            took = self._most(time.monotonic() - self._begun)
            self._step = 2 * ran if took < self.pause / 2 else max(1, ran // 2) if took > self.pause else ran


def silence(what: str, done: int, total: int | None, /) -> None:
    """What stands in for a callable when nobody asks."""
