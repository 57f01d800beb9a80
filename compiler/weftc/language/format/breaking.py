"""An item -> the lines it takes: broken where its author broke it, where comments force it, and where it is too long.

A line that is too long is broken at the loosest place that fits: before `else` rather than before `+`, outside
brackets rather than inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weftc.language.format.columns import WIDEST
from weftc.language.format.rows import Cell
from weftc.language.format.spacing import Piece

FARTHEST = 36  # column of continuation lines; left of all comments, so that the two are never taken for each other
HANGING = 4  # how far they hang otherwise


def continuation(cell: Cell, column: int) -> int:
    """The column of an item's second line and all others: under its value."""
    reach = cell.reach
    if reach is None:
        return column
    under = column + reach + 1
    return under if under <= FARTHEST else column + HANGING


def divided(cell: Cell, start: int, hang: int) -> Iterator[Sequence[Piece]]:
    """The pieces of an item, line by line; the first line starts at one column, the others at another."""
    begin = 0
    for at, piece in enumerate(cell.pieces):
        if at and (piece.broken or piece.gap.comments):
            yield from _fitting(cell.pieces[begin:at], hang if begin else start, hang)
            begin = at
    yield from _fitting(cell.pieces[begin:], hang if begin else start, hang)


def _fitting(part: Sequence[Piece], start: int, hang: int) -> Iterator[Sequence[Piece]]:
    """Lines of at most 120 columns, as far as there are places to break."""
    while True:
        place = _break(part, start)
        if place is None:
            yield part
            return
        yield part[:place]
        part, start = part[place:], hang


def _break(part: Sequence[Piece], start: int) -> int | None:
    """Where to break a line that is too long."""
    end = start - (part[0].space if part else 0)
    places: list[tuple[int, int]] = []  # rank, and how far from the end of the line
    for at, piece in enumerate(part):
        end += piece.space + len(piece.text)
        if end > WIDEST and places:
            return -min(places)[1]
        if at and piece.rank is not None:
            places.append((piece.rank, -at))
    return None
