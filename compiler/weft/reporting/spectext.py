"""The text of a spec -> coloured pieces, grouped by the equations they belong to; invisible characters as escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.highlighting import classified
from weft.reporting.equations import Line
from weft.source import printable


@dataclass(frozen=True, slots=True)
class Piece:
    """Some characters of one class (`weft.highlighting`)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """Consecutive pieces: an equation (`line` is its key), or what stands between two."""

    line: str
    pieces: tuple[Piece, ...]


def passages(text: str, lines: Sequence[Line]) -> list[Passage]:
    """The whole text, cut where equations begin and end; comments inside an equation stay in it."""
    cuts = sorted((line.span.start, line.span.end, line.key) for line in lines)
    pieces = list(_placed(text))
    out, at = [], 0
    for start, end, key in cuts:
        if start < at:  # inside another one
            continue
        out.append(Passage("", tuple(_between(pieces, at, start))))
        out.append(Passage(key, tuple(_between(pieces, start, end))))
        at = end
    out.append(Passage("", tuple(_between(pieces, at, len(text)))))
    return [one for one in out if one.pieces]


def visible(text: str) -> str:
    """Text with line ends kept and every other invisible character written as an escape."""
    return "\n".join(printable(line) for line in re.sub(r"\r\n?", "\n", text).replace("\t", "    ").split("\n"))


def _placed(text: str) -> Iterator[tuple[int, str, str]]:
    at = 0
    for kind, piece in classified(text):
        yield at, kind or "wrong", piece
        at += len(piece)


def _between(pieces: Sequence[tuple[int, str, str]], start: int, end: int) -> Iterator[Piece]:
    for at, kind, piece in pieces:
        part = piece[max(0, start - at) : max(0, end - at)]
        if part:
            yield Piece(kind, visible(part))
