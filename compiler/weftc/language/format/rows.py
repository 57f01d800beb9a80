"""Items of a section -> rows, the lines they start on, with `=` under `=`.

The author decides which declarations share a line, as long as they fit. Equations have lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from weftc.language.format.columns import WIDEST
from weftc.language.format.outline import Item, OutlinedSection
from weftc.language.format.spacing import Piece, pieces

MOST_PADDING = 8  # before an `=`; names of very different lengths are not aligned
ALIGNED = ("param", "learn", "let", "outputs", "example")


@dataclass(frozen=True, slots=True)
class Cell:
    """An item and the pieces it is written in."""

    item: Item
    pieces: tuple[Piece, ...]

    @property
    def width(self) -> int:
        return sum(piece.space + len(piece.text) for piece in self.pieces)

    @property
    def several_lines(self) -> bool:
        return any(piece.broken or piece.gap.comments for piece in self.pieces[1:])

    @property
    def reach(self) -> int | None:
        """How far its `=` reaches, if it has one."""
        equals = self.item.equals
        if equals is None:
            return None
        return sum(piece.space + len(piece.text) for piece in self.pieces[: equals + 1])

    def padded(self, reach: int) -> Cell:
        """The item with its `=` moved to where it reaches as far as told."""
        equals, now = self.item.equals, self.reach
        assert equals is not None
        assert now is not None
        moved = replace(self.pieces[equals], space=self.pieces[equals].space + reach - now)
        return replace(self, pieces=(*self.pieces[:equals], moved, *self.pieces[equals + 1 :]))


Row = tuple[Cell, ...]


def rows(section: OutlinedSection, column: int) -> list[Row]:
    """The rows of a section whose items start at a column."""
    fractions = section.name == "example"
    cells = [Cell(item, tuple(pieces(item.lexemes, fractions))) for item in section.items]
    if section.name in ("layer", "phase"):
        return [(cell,) for cell in _equations(cells)]
    apart = len(separator(section))
    found: list[list[Cell]] = []
    for cell in cells:
        before = found[-1][-1] if found else None
        if (
            before is None
            or _starts_row(cell, before)
            or column + _width(found[-1], apart) + apart + cell.width > WIDEST
        ):
            found.append([cell])
        else:
            found[-1].append(cell)
    divided = [tuple(row) for row in found]
    return list(_under_each_other(divided)) if section.name in ALIGNED else divided


def separator(section: OutlinedSection) -> str:
    """What stands between two items of a row."""
    if section.name == "example":
        return "    "
    plain = section.name == "outputs" and not any(item.says_more for item in section.items[:-1])
    return ", " if plain else ",  "


def _starts_row(cell: Cell, before: Cell) -> bool:
    gap = cell.item.gap
    new_part = cell.item.kind == "expected" and before.item.kind != "expected"
    return gap.broken or bool(gap.comments) or new_part or cell.several_lines or before.several_lines


def _width(row: Sequence[Cell], apart: int) -> int:
    return sum(cell.width for cell in row) + apart * (len(row) - 1)


# ---- = under = -------------------------------------------------------------------------------------------------------


def _equations(cells: Sequence[Cell]) -> list[Cell]:
    """The equations of a layer aligned with each other, or at least those of each step."""
    whole = _aligned(cells)
    if whole is not None:
        return whole
    steps: list[list[Cell]] = [[]]
    for cell in cells:
        if cell.item.kind == "then":
            steps += [[cell], []]
        else:
            steps[-1].append(cell)
    return [cell for step in steps for cell in _aligned(step) or step]


def _under_each_other(divided: Sequence[Row]) -> Iterator[Row]:
    """Rows of one item aligned with those above and below them."""
    run: list[Row] = []
    for row in divided:
        if run and not _continues(row, run[-1]):
            yield from _aligned_rows(run)
            run = []
        run.append(row)
    yield from _aligned_rows(run)


def _continues(row: Row, above: Row) -> bool:
    gap = row[0].item.gap
    blank = gap.blank or any(comment.after_blank for comment in gap.comments)
    same = row[0].item.kind == above[0].item.kind
    return len(row) == len(above) == 1 and same and not blank


def _aligned_rows(run: Sequence[Row]) -> Iterable[Row]:
    if len(run) < 2:
        return run
    cells = _aligned([row[0] for row in run])
    return run if cells is None else [(cell,) for cell in cells]


def _aligned(cells: Sequence[Cell]) -> list[Cell] | None:
    """The cells with `=` under `=`; None if that would tear them apart."""
    reaches = [reach for cell in cells if (reach := cell.reach) is not None]
    if not reaches:
        return list(cells)
    if max(reaches) - min(reaches) > MOST_PADDING:
        return None
    return [cell if cell.reach is None else cell.padded(max(reaches)) for cell in cells]
