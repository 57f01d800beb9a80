"""A line on stderr that says what is going on, once it has taken more than a second; nothing when piped."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from weft.source import printable

PATIENCE = 1.0  # seconds before the line appears
TICK = 0.2  # seconds between two updates
CLEAR = "\r\x1b[K"


class Line:
    """One line that is rewritten in place until it is closed."""

    def __init__(self, what: str, stream: TextIO, patience: float = PATIENCE) -> None:
        self.what = printable(what)
        self._stream = stream
        self._patience = patience
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def say(self, what: str) -> None:
        """Changes what the line says."""
        self.what = printable(what)

    def close(self) -> None:
        """Takes the line away."""
        self._done.set()
        self._thread.join()

    def _tick(self) -> None:
        start = time.monotonic()
        if self._done.wait(self._patience):
            return
        while not self._done.wait(TICK):
            self._stream.write(f"{CLEAR}{self.what} ... {time.monotonic() - start:.0f} s")
            self._stream.flush()
        self._stream.write(CLEAR)
        self._stream.flush()


class Silence:
    """What stands in for a line when nobody watches."""

    def say(self, what: str) -> None:
        """Says nothing."""


@contextmanager
def progress(what: str, stream: TextIO | None = None) -> Iterator[Line | Silence]:
    """Shows a progress line while the block runs."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield Silence()
        return
    line = Line(what, stream)
    try:
        yield line
    finally:
        line.close()
