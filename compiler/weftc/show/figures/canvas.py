"""A figure that is a sheet of paper: coordinates are points from the top left corner, shapes and text go where told."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path

from weftc.show.figures.style import FAINT, HAIR, INK, MONO, POINT, SANS, SIZE, settings

ON_SCREEN = 1.5  # a figure is made for paper: how much larger a notebook shows it
SHARP = 2  # pixels of its picture there for one of the screen's
MEASURED = 100.0  # type size at which text is measured


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = SIZE, mono: bool = False) -> float:
    """The width of a line of text, in points."""
    face = get_font(findfont(FontProperties(family=MONO if mono else SANS)))
    face.set_size(MEASURED, POINT)  # large, so that the grid of pixels does not matter
    face.set_text(text, 0.0)
    return float(face.get_width_height()[0] / 64 * size / MEASURED)


class PaperFigure(Figure):
    """A figure that a notebook shows by itself, as it would be printed."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        out = io.BytesIO()
        with matplotlib.rc_context(settings()):
            self.savefig(out, format="png", dpi=POINT * ON_SCREEN * SHARP)
        width, height = (round(side * POINT * ON_SCREEN) for side in self.get_size_inches())
        return out.getvalue(), {"width": width, "height": height}


class Canvas:
    """One sheet; `height` may grow until it is finished."""

    def __init__(self, width: float) -> None:
        self.width = width  # points
        self.height = 0.0
        self.artists: list[Any] = []

    def reach(self, y: float) -> None:
        """Makes the sheet at least this long."""
        self.height = max(self.height, y)

    def box(self, x: float, y: float, width: float, height: float, **look: Any) -> None:
        """A rectangle with its top left corner at (x, y)."""
        look = {"facecolor": "none", "edgecolor": HAIR, "linewidth": 0.5, **look}
        self.artists.append(Rectangle((x, y), width, height, **look))
        self.reach(y + height)

    def rounded(self, x: float, y: float, width: float, height: float, radius: float = 3.0, **look: Any) -> None:
        """A rectangle with round corners."""
        look = {"facecolor": "none", "edgecolor": FAINT, "linewidth": 0.6, **look}
        shape = f"round,pad=0,rounding_size={radius}"
        self.artists.append(FancyBboxPatch((x, y), width, height, boxstyle=shape, mutation_aspect=1, **look))
        self.reach(y + height)

    def text(self, x: float, y: float, text: str, **look: Any) -> None:
        """Text at a place; `mono` for formulas. The default is from the left, centred on y."""
        family = MONO if look.pop("mono", False) else SANS
        look = {"fontsize": SIZE, "color": INK, "ha": "left", "va": "center_baseline", "family": family, **look}
        self.artists.append(("text", x, y, text, look))

    def path(self, vertices: Sequence[tuple[float, float]], codes: Sequence[int] | None = None, **look: Any) -> None:
        """A line or curve."""
        look = {"facecolor": "none", "edgecolor": FAINT, "linewidth": 0.7, **look}
        self.artists.append(PathPatch(Path(list(vertices), codes), **look))

    def figure(self) -> PaperFigure:
        """The sheet as a figure of its size."""
        made = PaperFigure(figsize=(self.width / POINT, max(self.height, 1.0) / POINT))
        axes = made.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_xlim(0, self.width)
        axes.set_ylim(max(self.height, 1.0), 0)
        axes.axis("off")
        for artist in self.artists:
            if isinstance(artist, tuple):
                _, x, y, text, look = artist
                axes.text(x, y, text, **look)
            else:
                axes.add_patch(artist)
        return made
