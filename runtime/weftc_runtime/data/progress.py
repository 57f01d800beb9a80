"""How long work tells the caller how far it is: one callable, called from the thread that works."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called whenever a part is done, and once before the first.

    what    the part that comes next, in a few words (layer, examples, ...)
    done    how many parts are done; it starts over when work starts over (on another backend, say)
    total   out of how many; None when nobody knows beforehand

    What it raises stops the work and reaches the caller.

    >>> import weftc
    >>> model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}, layers=2))
    >>> tell = lambda what, done, total: print(what, done, total)
    >>> centers = model(x=[[0.0], [1.0], [5.0]], c=[[0.0], [5.0]], progress=tell)["centers"]
    layer 0 2
    layer 1 2
    layer 2 2
    """

    def __call__(self, what: str, done: int, total: int | None, /) -> None: ...


def silence(what: str, done: int, total: int | None, /) -> None:
    """What stands in for a callable when nobody asks."""
