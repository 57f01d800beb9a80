"""Dense matrices -> block matrices with slot names, as people draw them.

A block is shown by what it is: `·` zero, `I` identity, `-2 I` a multiple of it, a number for one entry, `1` or `2 1`
one number everywhere, `e2` a unit row; else its shape, with its numbers below the picture unless it is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weftc.emit.matrices import Array
from weftc_runtime.format.program import Program, Slot

BOLD, DIM, PLAIN = "\x1b[1;36m", "\x1b[2m", "\x1b[0m"
LONGEST = 24  # letters of a slot name that are shown
SINGLE = 8  # rows of a group that may be shown one by one
SPELLED = 64  # entries of a block without a name that are still printed one by one


def symbol(block: Array) -> str:
    """A block in a word."""
    return _name(block) or f"{block.shape[0]}x{block.shape[1]}"


def _name(block: Array) -> str:
    """What a block is, or nothing."""
    if not block.any():
        return "·"
    rows, columns = block.shape
    first = float(block[0, 0])
    if (rows, columns) == (1, 1):
        return f"{first:.6g}"
    if rows == columns and np.array_equal(block, first * np.eye(rows)):
        return _times(first, "I")
    if np.all(block == first):
        return _times(first, "1")
    if rows == 1 and np.count_nonzero(block) == 1:
        at = int(np.flatnonzero(block)[0])
        return _times(float(block[0, at]), f"e{at + 1}")
    return ""


def _times(factor: float, what: str) -> str:
    return what if factor == 1 else f"-{what}" if factor == -1 else f"{factor:.6g} {what}"


def row_groups(matrix: Array, slots: Sequence[Slot]) -> list[tuple[str, slice]]:
    """Consecutive rows that read the same slots (rows that are no slots themselves: queries, keys, hidden units)."""
    reads = [tuple(bool(row[s.columns].any()) for s in slots) for row in matrix]
    out: list[tuple[str, slice]] = []
    start = 0
    for at in range(1, len(reads) + 1):
        if at == len(reads) or reads[at] != reads[start]:
            out += ((_span(part), part) for part in _split(matrix, slice(start, at), slots))
            start = at
    return out


def _split(matrix: Array, rows: slice, slots: Sequence[Slot]) -> list[slice]:
    """A group of rows as it is if each of its blocks has a name; else in equal parts whose blocks have, if any."""
    total = rows.stop - rows.start
    for size in sorted({total, *(s.width for s in slots), 1}, reverse=True):
        parts = [slice(at, at + size) for at in range(rows.start, rows.stop, size)] if total % size == 0 else []
        if parts and (size > 1 or total <= SINGLE) and all(_name(matrix[p, s.columns]) for p in parts for s in slots):
            return parts
    return [rows]


def _span(rows: slice) -> str:
    return f"{rows.start}" if rows.stop == rows.start + 1 else f"{rows.start}:{rows.stop}"


def shortened(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """The slots with names fit for a picture: of a long formula only how it begins, and a number to tell it by."""
    out: list[Slot] = []
    for n, s in enumerate(slots):
        out.append(s if len(s.name) <= LONGEST else replace(s, name=f"{s.name.partition('(')[0][:8]}(..{n})"))
    return tuple(out)


def picture_slots(program: Program, stream: str) -> tuple[Slot, ...]:
    """The columns of a residual as they are drawn: its slots, or one block where it is not its slots side by side."""
    one = program.stream(stream)
    if stream in program.basis:
        return (Slot("residual", 0, one.width, "field"),)
    return shortened(one.slots)


def hidden(matrix: Array, slots: Sequence[Slot]) -> list[Slot]:
    """The rows of a matrix as the columns of one that reads them: hidden units, in the same groups."""
    return [Slot(name, rows.start, rows.stop - rows.start, "scratch") for name, rows in row_groups(matrix, slots)]


def draw(matrix: Array, rows: Sequence[Slot] | None, columns: Sequence[Slot], colour: bool = False) -> list[str]:
    """The matrix as lines: one column per slot, one row per slot (or per group of rows)."""
    groups = [(s.name, s.columns) for s in rows] if rows is not None else row_groups(matrix, columns)
    cells = [[symbol(matrix[span, s.columns]) for s in columns] for _, span in groups]
    kept = [n for n, (name, _) in enumerate(groups) if rows is None or any(c != "·" for c in cells[n])]
    if not kept:
        return ["  (zero)"]
    left = max(len(groups[n][0]) for n in kept)
    widths = [max(len(s.name), *(len(cells[n][m]) for n in kept)) for m, s in enumerate(columns)]
    out = ["  " + " " * left + "  " + "  ".join(s.name.rjust(w) for s, w in zip(columns, widths, strict=True))]
    for n in kept:
        shown = [_paint(cell.rjust(w), cell, colour) for cell, w in zip(cells[n], widths, strict=True)]
        out.append(f"  {groups[n][0].ljust(left)}  {'  '.join(shown)}")
    for n in kept:
        for s in columns:
            out += _spelled(f"{groups[n][0]}, {s.name}", matrix[groups[n][1], s.columns])
    return out


def _spelled(where: str, block: Array) -> list[str]:
    """The numbers of a block that has no name."""
    if _name(block) or block.size > SPELLED:
        return []
    numbers = [[f"{number:.6g}" for number in row] for row in block.tolist()]
    wide = max(len(number) for row in numbers for number in row)
    rows = ["  ".join(number.rjust(wide) for number in row) for row in numbers]
    return [f"  block {where}:", *(f"    {row}" for row in rows)]


def projection(matrix: Array, slots: Sequence[Slot]) -> str:
    """A matrix that keeps some slots and clears the others, as a formula; nothing if it is no such matrix."""
    cleared = [s for s in slots if not matrix[s.columns, s.columns].any()]
    keeps = np.ones(len(matrix))
    for s in cleared:
        keeps[s.columns] = 0
    if not np.array_equal(matrix, np.diag(keeps)):
        return ""
    return " - ".join(["I", *(f"P[{s.name}]" for s in cleared)])


def _paint(text: str, cell: str, colour: bool) -> str:
    if not colour:
        return text
    return f"{DIM if cell == '·' else BOLD}{text}{PLAIN}"
