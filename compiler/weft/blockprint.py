"""Dense matrices -> block matrices with slot names, as people draw them.

A block is shown by what it is: `·` zero, `I` identity, `-2 I` a multiple of it, a number for one entry, `1` a column
spread over all rows, else its shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.lowering.matrices import Array
from weft_runtime.ir import Slot

BOLD, DIM, PLAIN = "\x1b[1;36m", "\x1b[2m", "\x1b[0m"


def symbol(block: Array) -> str:
    """A block in a word."""
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
    return f"{rows}x{columns}"


def _times(factor: float, what: str) -> str:
    return what if factor == 1 else f"-{what}" if factor == -1 else f"{factor:.6g} {what}"


def row_groups(matrix: Array, slots: Sequence[Slot]) -> list[tuple[str, slice]]:
    """Consecutive rows that read the same slots (rows that are no slots themselves: queries, keys, hidden units)."""
    reads = [tuple(bool(row[s.columns].any()) for s in slots) for row in matrix]
    out: list[tuple[str, slice]] = []
    start = 0
    for at in range(1, len(reads) + 1):
        if at == len(reads) or reads[at] != reads[start]:
            out.append((f"{start}" if at == start + 1 else f"{start}:{at}", slice(start, at)))
            start = at
    return out


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
    return out


def _paint(text: str, cell: str, colour: bool) -> str:
    if not colour:
        return text
    return f"{DIM if cell == '·' else BOLD}{text}{PLAIN}"
