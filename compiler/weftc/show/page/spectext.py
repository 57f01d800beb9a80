"""The text of a spec -> coloured pieces, grouped by the equations they belong to; invisible characters as escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weftc.core.source import printable
from weftc.language.highlight import classified
from weftc.show.page.equations import EquationLine


@dataclass(frozen=True, slots=True)
class ColouredText:
    """Some characters of one class (`weftc.language.highlight`)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """Consecutive pieces: an equation (`line` is its key), or what stands between two."""

    line: str
    pieces: tuple[ColouredText, ...]


def passages(text: str, lines: Sequence[EquationLine]) -> list[Passage]:
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


def _between(pieces: Sequence[tuple[int, str, str]], start: int, end: int) -> Iterator[ColouredText]:
    for at, kind, piece in pieces:
        part = piece[max(0, start - at) : max(0, end - at)]
        if part:
            yield ColouredText(kind, visible(part))
