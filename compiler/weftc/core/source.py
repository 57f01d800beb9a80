"""A spec's text with its name, and spans that know how to point into it.

A `Span` is a half-open range of character offsets. Positions become lines and columns only when they are shown, so no
pass ever counts lines. Control characters are escaped on the way out: a spec is never trusted by the terminal.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Characters `start` up to (not including) `end` of a source."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The smallest span that covers both."""
        return Span(min(self.start, other.start), max(self.end, other.end))


NOWHERE = Span(0, 0)


def printable(text: str) -> str:
    """The text with control and other invisible characters written as escapes."""
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)


class Excerpt(NamedTuple):
    """What a text took from another file: where it stands here, and the name and the line that it has there."""

    start: int
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one spec and the name to show for it (a file name or a built-in name)."""

    name: str
    text: str
    pieces: tuple[Excerpt, ...] = field(default=(), repr=False, compare=False)
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0] + [at + 1 for at, c in enumerate(self.text) if c == "\n"]
        object.__setattr__(self, "_starts", tuple(starts))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from one."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line, without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def at(self, span: Span) -> str:
        """The characters of a span."""
        return self.text[span.start : span.end]

    def said(self, span: Span) -> str:
        """The characters of a span on one line, without comments, safe to print."""
        without = re.sub(r"#[^\n]*", " ", self.at(span))
        return printable(" ".join(without.split()))

    def origin(self, offset: int) -> tuple[str, int, int]:
        """The file that an offset is from, with line and column there."""
        line, column = self.position(offset)
        for piece in reversed(self.pieces):
            if piece.start <= offset:
                return piece.name, line - self.position(piece.start)[0] + piece.line, column
        return self.name, line, column

    def place(self, span: Span) -> str:
        """`name:line:column` of the start of a span."""
        name, line, column = self.origin(span.start)
        return f"{printable(name)}:{line}:{column}"
