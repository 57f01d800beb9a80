"""The picture of the README: a spec, the transformer that it becomes, and what that does to data.

python website/overview.py docs/pictures/overview.png
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import weftc
from weftc.language.highlight import classified
from weftc.show.figures.canvas import PaperFigure
from weftc.show.figures.saving import save
from weftc.show.figures.style import FAINT, INK, MONO, settings

SPEC = "lloyd"
SIZE = (10.0, 3.7)  # inches
TYPE = 8.2  # points of the spec's text
LINE = 0.054  # of the height, from line to line
PANELS = {
    "you write": (0.012, 0.385),
    "Weft compiles and proves": (0.415, 0.335),
    "it runs": (0.765, 0.235),
}  # left edges and widths
COLOURS = {"comment": FAINT, "section": "#0b5cad", "keyword": "#0b5cad", "weighting": "#8a3fb0", "reduction": "#8a3fb0",
           "number": "#1c7f7f", "type": "#946200", "text": "#2f7d32", "algorithm": INK}  # fmt: skip


def overview(points: Any) -> PaperFigure:
    """Three panels from left to right."""
    with matplotlib.rc_context(settings()):
        figure = PaperFigure(figsize=SIZE)
        for title, (left, _) in PANELS.items():
            figure.text(left, 0.965, title, fontsize=10.5, fontweight="bold", va="top")
        _text(figure, PANELS["you write"][0], _shortened(weftc.parse(SPEC).source.text))
        shown = {
            "Weft compiles and proves": weftc.plot(SPEC, "weights", dims={"d": 2, "k": 5}, width=4.3),
            "it runs": weftc.plot(SPEC, "tokens", points, dims={"k": 5}, seed=4, width=2.35),
        }
        for title, drawn in shown.items():
            left, width = PANELS[title]
            image = _pixels(drawn)
            height = width * SIZE[0] / SIZE[1] * image.shape[0] / image.shape[1]
            axes = figure.add_axes((left, 0.885 - height, width, height))
            axes.imshow(image, interpolation="lanczos")
            axes.axis("off")
        for at in (0.397, 0.752):
            figure.text(at, 0.62, "→", fontsize=15, color=FAINT, ha="center", va="center")
        return figure


def _shortened(text: str) -> str:
    """The spec without its examples, its doc and the comments behind its lines."""
    kept = text.partition("\nexample")[0].splitlines()
    kept[0] = kept[0].partition(' "')[0]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.partition("#")[0].rstrip() for line in kept))


def _text(figure: PaperFigure, left: float, text: str) -> None:
    letter = TYPE * 0.6021 / 72 / SIZE[0]  # the width of one, in the figure's units
    line = column = 0
    for kind, piece in classified(text):
        for number, part in enumerate(piece.split("\n")):
            if number:
                line, column = line + 1, 0
            look: dict[str, Any] = {"fontfamily": MONO, "fontsize": TYPE, "color": COLOURS.get(kind, INK), "va": "top"}
            figure.text(left + column * letter, 0.87 - line * LINE, part, **look)
            column += len(part)


def _pixels(figure: PaperFigure) -> Any:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=300)
    out.seek(0)
    return matplotlib.image.imread(out)


if __name__ == "__main__":
    data = np.loadtxt(Path(__file__).parent.parent / "examples" / "points.csv", delimiter=",", skiprows=1)
    save(overview(data), sys.argv[1])
