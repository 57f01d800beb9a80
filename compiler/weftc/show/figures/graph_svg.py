"""A layout of the algorithm graph -> SVG text, without any library. Everything from a spec is escaped."""

from __future__ import annotations

from html import escape

from weftc.show.figures.graph_layout import EDGE, LINE, PAD, SIZE, TITLE, Box, Curve, GraphLayout

FILLS = {
    "input": "#c6dcef",
    "state": "#c6dcef",
    "random": "#e9e9e9",
    "parameter": "#ffffff",
    "equation": "#ffffff",
    "output": "#d5e8d4",
    "objective": "#d5e8d4",
}
ROUND = frozenset({"input", "state", "random", "output", "objective"})
INK, FAINT, BACK, BAND, PAPER = "#1a1a1a", "#6b6b6b", "#a04e00", "#f4f4f2", "#ffffff"
SANS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "'DejaVu Sans Mono', Menlo, Consolas, monospace"


def svg(made: GraphLayout) -> str:
    """The picture as one SVG document."""
    width, height = f"{made.width:.1f}", f"{made.height:.1f}"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}" '
        f'role="img" font-size="{SIZE:g}">',
        f"<title>{_safe(f'{made.name}: what each equation reads')}</title>",
        "<defs>",
        _arrow("arrow", FAINT),
        _arrow("again", BACK),
        "</defs>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
    ]
    for band in made.bands:
        look = f'fill="{BAND}"' if band.title.startswith("step") else 'fill="none"'
        wide = band.right - band.left
        out.append(
            f'<rect x="{band.left:.1f}" y="{EDGE:g}" width="{wide:.1f}" height="{made.bottom - EDGE:.1f}" {look}/>'
        )
        middle = (band.left + band.right) / 2
        out.append(
            _text(middle, EDGE + TITLE * 0.7, band.title, f'font-family="{SANS}" fill="{FAINT}" text-anchor="middle"')
        )
    out += [_curve(curve) for curve in made.curves]
    for curve in (one for one in made.curves if one.back):
        x, y = (curve.points[2][0] + curve.points[3][0]) / 2, curve.points[2][1]
        look = f'font-family="{SANS}" font-size="{SIZE - 1.5:g}" fill="{BACK}" text-anchor="middle"'
        out.append(_text(x, y - 2, curve.label, look))
    out += [line for box in made.boxes for line in _box(box)]
    for number, note in enumerate(made.notes):
        y = made.bottom + LINE * SIZE * (number + 1)
        out.append(_text(EDGE, y, note, f'font-family="{MONO}" fill="{INK}"'))
    return "\n".join([*out, "</svg>", ""])


def _arrow(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="5" markerHeight="5" orient="auto">'
        f'<path d="M0 0.5 L6 3 L0 5.5 z" fill="{colour}"/></marker>'
    )


def _box(box: Box) -> list[str]:
    corner = min(8.0, box.height / 2) if box.kind in ROUND else 2.0
    dashed = ' stroke-dasharray="2 1.5"' if box.kind == "parameter" else ""
    out = [
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{corner:g}" '
        f'fill="{FILLS[box.kind]}" stroke="{FAINT}" stroke-width="0.6"{dashed}/>'
    ]
    look = f'font-family="{MONO}" fill="{INK}" xml:space="preserve"'
    for number, line in enumerate(box.lines):
        out.append(_text(box.x + PAD, box.y + PAD + LINE * SIZE * number + SIZE * 0.72, line, look))
    return out


def _curve(curve: Curve) -> str:
    if curve.back:
        steps = " ".join(f"L{x:.1f} {y:.1f}" for x, y in curve.points[1:])
        x, y = curve.points[0]
        return (
            f'<path d="M{x:.1f} {y:.1f} {steps}" fill="none" stroke="{BACK}" stroke-width="0.8" '
            'stroke-dasharray="3 2" stroke-linejoin="round" marker-end="url(#again)"/>'
        )
    (x, y), (to_x, to_y) = curve.points
    bend = (to_x - x) / 2
    # A lane has no box: the line simply goes on, and only lines into boxes end in an arrow.
    end = "" if curve.label == "lane" else ' marker-end="url(#arrow)"'
    return (
        f'<path d="M{x:.1f} {y:.1f} C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}" '
        f'fill="none" stroke="{FAINT}" stroke-width="0.8"{end}/>'
    )


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    return escape(text, quote=True)
