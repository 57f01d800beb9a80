"""The algorithm graph as a figure: the picture of `graph_svg`, drawn with matplotlib."""

from __future__ import annotations

from typing import Any

from matplotlib.path import Path

from weftc.graph.build import build_graph
from weftc.show.figures.canvas import Canvas, PaperFigure
from weftc.show.figures.graph_layout import EDGE, LINE, PAD, SIZE, TITLE, Box, Curve, layout
from weftc.show.figures.graph_svg import BACK, BAND, FAINT, FILLS, INK, ROUND
from weftc.show.figures.pictures import PictureOptions
from weftc.show.figures.style import POINT
from weftc.show.figures.subject import Subject

CUBIC = [int(Path.MOVETO), *[int(Path.CURVE4)] * 3]


def draw(subject: Subject, look: PictureOptions) -> PaperFigure:
    """Boxes, bands and curves where the layout puts them; a width scales the whole picture."""
    made = layout(build_graph(subject.checked))
    scale = 1.0 if look.width is None else look.width * POINT / made.width
    canvas = Canvas(made.width * scale)
    canvas.reach(made.height * scale)
    for band in made.bands:
        if band.title.startswith("step"):
            size = ((band.right - band.left) * scale, (made.bottom - EDGE) * scale)
            canvas.box(band.left * scale, EDGE * scale, *size, facecolor=BAND, edgecolor="none")
        middle = (band.left + band.right) / 2 * scale
        canvas.text(middle, (EDGE + TITLE * 0.5) * scale, band.title, fontsize=SIZE * scale, color=FAINT, ha="center")
    for curve in made.curves:
        _curve(canvas, curve, scale)
    for box in made.boxes:
        _box(canvas, box, scale)
    for number, note in enumerate(made.notes):
        y = (made.bottom + LINE * SIZE * (number + 0.7)) * scale
        canvas.text(EDGE * scale, y, note, fontsize=SIZE * scale, mono=True)
    return canvas.figure()


def _box(canvas: Canvas, box: Box, scale: float) -> None:
    corner = min(8.0, box.height / 2) if box.kind in ROUND else 2.0
    dashed = (0, (2, 1.5)) if box.kind == "parameter" else "-"
    place = (box.x * scale, box.y * scale, box.width * scale, box.height * scale)
    look: dict[str, Any] = {
        "facecolor": FILLS[box.kind],
        "edgecolor": FAINT,
        "linestyle": dashed,
        "linewidth": 0.6 * scale,
    }
    canvas.rounded(*place, radius=corner * scale, zorder=3, **look)
    for number, line in enumerate(box.lines):
        y = (box.y + PAD + LINE * SIZE * number + SIZE * 0.72) * scale
        canvas.text(
            (box.x + PAD) * scale, y, line, fontsize=SIZE * scale, color=INK, mono=True, va="baseline", zorder=4
        )


def _curve(canvas: Canvas, curve: Curve, scale: float) -> None:
    points = [(x * scale, y * scale) for x, y in curve.points]
    look: dict[str, Any] = {"linewidth": 0.8 * scale, "edgecolor": FAINT, "zorder": 2}
    if curve.back:
        look |= {"edgecolor": BACK, "linestyle": (0, (3, 2))}
        canvas.path(points, **look)
        _arrow(canvas, points[-1], BACK, scale)
        middle = (points[2][0] + points[3][0]) / 2
        small = {"fontsize": (SIZE - 1.5) * scale, "color": BACK, "ha": "center", "va": "bottom"}
        canvas.text(middle, points[2][1] - 1 * scale, curve.label, **small)
        return
    (x, y), (to_x, to_y) = points
    bend = (to_x - x) / 2
    canvas.path([(x, y), (x + bend, y), (to_x - bend, to_y), (to_x, to_y)], CUBIC, **look)
    if curve.label != "lane":
        _arrow(canvas, (to_x, to_y), FAINT, scale)


def _arrow(canvas: Canvas, tip: tuple[float, float], colour: str, scale: float) -> None:
    """Curves arrive from the left, so the head of an arrow is a triangle that points to the right."""
    x, y = tip
    side, half = 4.2 * scale, 1.9 * scale
    corners = [(x - side, y - half), (x, y), (x - side, y + half), (x - side, y - half)]
    canvas.path(corners, facecolor=colour, edgecolor="none", zorder=3)
