"""The objective by layer, and below it how clear the choices are, where the spec makes any."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from weftc.show.figures.canvas import PaperFigure
from weftc.show.figures.choosing import choosing_heads
from weftc.show.figures.margin import margins
from weftc.show.figures.pictures import PictureOptions
from weftc.show.figures.style import COLUMN, SMALL, colour, plain_number
from weftc.show.figures.subject import Subject

WIDE = 50.0  # from this ratio on, numbers are drawn on a logarithmic scale


def draw(subject: Subject, look: PictureOptions) -> PaperFigure:
    """One panel, or two above each other."""
    width = look.width or COLUMN
    both = bool(choosing_heads(subject.checkpoint.program))
    figure = PaperFigure(figsize=(width, width * (1.05 if both else 0.62)), layout="constrained")
    axes = figure.subplots(2 if both else 1, 1, sharex=True, squeeze=False, height_ratios=[1.15, 1] if both else [1])
    _objective(axes[0, 0], subject)
    if both:
        margins(axes[1, 0], subject)
    axes[-1, 0].set_xlabel("layers done")
    axes[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _objective(axes: Axes, subject: Subject) -> None:
    found = [(time, value) for time, value in enumerate(subject.course.objective) if value is not None]
    times, values = np.array([time for time, _ in found]), np.array([value for _, value in found])
    marker = "o" if len(times) <= 40 else ""
    axes.plot(times, values, marker=marker, color=colour(0), markersize=3, clip_on=False, zorder=3)
    if len(values) and values.min() > 0 and values.max() > WIDE * values.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_ylabel("objective")
    axes.grid(axis="y", linewidth=0.3, color="#dddddd")
    if len(values):
        axes.annotate(
            f"{values[-1]:.5g}".replace("-", "−"),
            (times[-1], values[-1]),
            (0, 5),
            textcoords="offset points",
            ha="right",
            fontsize=SMALL,
        )
