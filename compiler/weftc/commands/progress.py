"""A line on stderr that says what is going on and how far it is, once it takes more than a second; none when piped.

A line is a `weftc_runtime.Progress`: it can be handed to anything that takes one.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import TextIO

from weftc.core.source import printable

PATIENCE = 1.0  # seconds before the line appears
TICK = 0.2  # seconds between two updates
CLEAR = "\r\x1b[K"
CELLS = 20  # of the bar


class ProgressLine:
    """One line that is rewritten in place until it is closed."""

    pause = TICK

    def __init__(self, what: str, stream: TextIO, patience: float = PATIENCE, rows: int = 0) -> None:
        self._title = printable(what)
        self._state: tuple[str, int, int | None] = ("", 0, None)
        self._rows = rows  # that every layer goes through
        self._part = ("", 0, 0.0)  # the part under way: its name, what was done when it began, and when that was
        self._stream = stream
        self._patience = patience
        self._start = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def say(self, what: str) -> None:
        """Changes what the line says; nobody knows how far that is."""
        self._title, self._state = printable(what), ("", 0, None)

    def __call__(self, what: str, done: int, total: int | None, /) -> None:
        """Changes the part that is under way, and how far the work is."""
        what = printable(what)
        if what != self._part[0] or done < self._part[1]:
            self._part = (what, done, time.monotonic())
        self._state = (what, done, total)

    def text(self, columns: int) -> str:
        """What the line shows now, in a terminal of this width."""
        what, done, total = self._state  # one read: the worker may set it meanwhile
        since = f"{time.monotonic() - self._start:.0f} s"
        if total:
            part = f"{done}/{total} {what}".rstrip()
            words = [self._title, bar(done, total, self._fits_blocks()), part, since, *self._pace(done, total)]
        else:
            count = f"{what} {done}".strip() if done else what
            pace = self._pace(done, None)
            words = [self._title, count, "...", since, *pace] if count else [self._title, "...", since]
        line = " ".join(words)
        return line if len(line) < columns else line[: max(0, columns - 4)] + "..."

    def _pace(self, done: int, total: int | None) -> Iterator[str]:
        """Rows per second where rows go through, and the time left where an end is known."""
        what, first, began = self._part
        took, ran = time.monotonic() - began, done - first
        if ran <= 0 or took <= 0:
            return
        if self._rows and what == "layer":
            yield f"{_short(self._rows * ran / took)} rows/s"
        if total:
            left = took * (total - done) / ran
            yield f"{left:.0f} s left" if left < 100 else f"{left / 60:.0f} min left"

    def close(self) -> None:
        """Takes the line away."""
        self._done.set()
        self._thread.join()

    def _fits_blocks(self) -> bool:
        try:
            "█░".encode(getattr(self._stream, "encoding", None) or "ascii")
        except (UnicodeError, LookupError):
            return False
        return True

    def _tick(self) -> None:
        if self._done.wait(self._patience):
            return
        while not self._done.wait(TICK):
            self._stream.write(f"{CLEAR}{self.text(shutil.get_terminal_size().columns)}")
            self._stream.flush()
        self._stream.write(CLEAR)
        self._stream.flush()


class Silence:
    """What stands in for a line when nobody watches."""

    pause = inf

    def say(self, what: str) -> None:
        """Says nothing."""

    def __call__(self, what: str, done: int, total: int | None, /) -> None:
        """Says nothing."""


def _short(number: float) -> str:
    """A number to two or three digits."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.0f}"


def bar(done: int, total: int, blocks: bool = True) -> str:
    """How much is done, as a row of cells."""
    filled = min(CELLS, CELLS * max(0, done) // max(1, total))
    full, empty = ("█", "░") if blocks else ("#", "-")
    return full * filled + empty * (CELLS - filled)


@contextmanager
def progress(what: str, stream: TextIO | None = None, rows: int = 0) -> Iterator[ProgressLine | Silence]:
    """Shows a progress line while the block runs; `rows`: that every layer goes through."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield Silence()
        return
    line = ProgressLine(what, stream, rows=rows)
    try:
        yield line
    finally:
        line.close()
