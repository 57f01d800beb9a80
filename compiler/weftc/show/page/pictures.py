"""Matrices -> block pictures as SVG: a column per slot that is read, a row per slot that is written or group of rows.

A zero block is empty, an identity has its diagonal, a number stands for itself, others are shaded by their numbers.
Everything that comes from a file passes through `escape`; colours are classes, so that a page may be light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from weftc.core.source import printable
from weftc.emit.matrices import Array
from weftc.show.block_text import row_groups, symbol
from weftc_runtime.format.program import Slot

LETTER = 7.0  # width of a letter of the labels, in units of the picture
HEIGHT = 26.0  # of a row
NARROW = 34.0  # width of a column at least
HEAD = 22.0  # height of the names of columns
PIXELS = 12  # rows and columns of numbers that a block without a name is shaded by at most
MANY = 8  # slots up to which those that a matrix does not read are shown too


@dataclass(frozen=True, slots=True)
class BlockDrawing:
    """A drawn matrix, and what to say about what was left out."""

    svg: Markup
    note: str = ""


def picture(matrix: Array, rows: Sequence[Slot] | None, columns: Sequence[Slot], title: str) -> BlockDrawing:
    """A matrix over the slots `columns`; its rows are the slots `rows`, or groups that read the same slots."""
    matrix = np.atleast_2d(np.asarray(matrix, np.float64))
    groups = [(s.name, s.columns) for s in rows] if rows is not None else row_groups(matrix, columns)
    if rows is not None:
        groups = [(name, span) for name, span in groups if matrix[span].any()]
    shown = [s for s in columns if len(columns) <= MANY or matrix[:, s.columns].any()]
    left_out = len(columns) - len(shown)
    if not groups or not shown:
        return BlockDrawing(Markup('<p class="zero">zero</p>'))
    names = [printable(name) for name, _ in groups]
    left = max(len(name) for name in names) * LETTER + 12
    cells = [[symbol(matrix[span, s.columns]) for s in shown] for _, span in groups]
    widths = [
        max(NARROW, LETTER * max(len(printable(s.name)), *(len(row[n]) for row in cells)) + 14)
        for n, s in enumerate(shown)
    ]
    edges = np.concatenate([[left], left + np.cumsum(widths)])
    out = []
    for n, s in enumerate(shown):
        out.append(_text(edges[n] + widths[n] / 2, HEAD - 8, printable(s.name), f"slot {s.role}"))
    for m, (_, span) in enumerate(groups):
        top = HEAD + m * HEIGHT
        out.append(_text(left - 8, top + HEIGHT / 2 + 4, names[m], "row"))
        for n, s in enumerate(shown):
            out += _block(edges[n], top, widths[n], cells[m][n], matrix[span, s.columns])
    wide, high = float(edges[-1]) + 2, HEAD + len(groups) * HEIGHT + 2
    told = escape(printable(title))
    svg = Markup(
        '<svg class="blocks" viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" height="{h:.0f}" role="img" '
        'aria-label="{t}"><title>{t}</title>{inside}</svg>'
    ).format(w=wide, h=high, t=told, inside=Markup("").join(out))
    return BlockDrawing(svg, f"{left_out} slots that it does not read are left out" if left_out else "")


def _text(x: float, y: float, text: str, kind: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>').format(x, y, kind, text)


def _block(x: float, y: float, width: float, cell: str, block: Array) -> list[Markup]:
    """One block: its box, what it is made of, and the word for it."""
    inner, high = width - 4, HEIGHT - 4
    x, y = x + 2, y + 2
    if cell == "·":
        return [_box(x, y, inner, high, "none")]
    if "x" in cell:  # no word for it: shaded by its numbers
        return [_box(x, y, inner, high, "some"), *_shades(x, y, inner, high, block), *_label(x, y, inner, high, cell)]
    out = [_box(x, y, inner, high, "some")]
    if cell.endswith("I") and block.size > 1:
        line = '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="diagonal"/>'
        out.append(Markup(line).format(x + 1, y + 1, x + inner - 1, y + high - 1))
    return [*out, *_label(x, y, inner, high, cell)]


def _label(x: float, y: float, width: float, high: float, cell: str) -> list[Markup]:
    return [_text(x + width / 2, y + high / 2 + 4, cell.replace("-", "\N{MINUS SIGN}"), "cell")]


def _box(x: float, y: float, width: float, high: float, kind: str) -> Markup:
    return Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="3" class="{}"/>').format(
        x, y, width, high, kind
    )


def _shades(x: float, y: float, width: float, high: float, block: Array) -> list[Markup]:
    rows, columns = (np.unique(np.linspace(0, n - 1, min(n, PIXELS)).round().astype(int)) for n in block.shape)
    few = np.abs(block[np.ix_(rows, columns)])
    few = few / max(float(few.max()), np.finfo(float).tiny)
    tall, wide = high / len(rows), width / len(columns)
    cell = '<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" class="shade" fill-opacity="{:.2f}"/>'
    return [
        Markup(cell).format(x + n * wide, y + m * tall, wide, tall, 0.75 * float(few[m, n]))
        for m in range(len(rows))
        for n in range(len(columns))
        if few[m, n] > 0.01
    ]
