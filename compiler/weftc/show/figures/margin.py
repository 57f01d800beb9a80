"""How clear the choices of a run are: by how much the winner leads, by layer, over all tokens that choose."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from weftc.show.figures.canvas import PaperFigure
from weftc.show.figures.pictures import PictureOptions
from weftc.show.figures.style import COLUMN, LINES, SMALL, colour, plain_number
from weftc.show.figures.subject import Subject


def draw(subject: Subject, look: PictureOptions) -> PaperFigure:
    """One panel."""
    width = look.width or COLUMN
    figure = PaperFigure(figsize=(width, width * 0.62), layout="constrained")
    axes = figure.subplots()
    margins(axes, subject)
    axes.set_xlabel("layers done")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def margins(axes: Axes, subject: Subject) -> None:
    """For every head that chooses: the smallest lead, the median, and between them the lowest tenth shaded."""
    course = subject.course
    several = sum(1 for one in course.heads.values() if one.leads) > 1
    smallest: list[float] = []
    ties: list[tuple[int, int]] = []
    for number, one in enumerate(head for head in course.heads.values() if head.leads):
        times = np.arange(1, len(one.leads) + 1)
        low = np.array([lead.min() if len(lead) else np.nan for lead in one.leads])
        tenth = np.array([np.quantile(lead, 0.1) if len(lead) else np.nan for lead in one.leads])
        middle = np.array([np.median(lead) if len(lead) else np.nan for lead in one.leads])
        ties += [(int(time), number) for time, value in zip(times, low, strict=True) if value == 0]
        name = f"{one.head.name}: " if several else ""
        shade, marker = colour(number), "o" if len(times) <= 40 else ""
        positive = np.where(low > 0, low, np.nan)
        smallest += [float(value) for value in positive if np.isfinite(value)]
        axes.fill_between(
            times,
            np.where(low > 0, low, tenth),
            tenth,
            color=shade,
            alpha=0.18,
            linewidth=0,
            label=f"{name}lowest tenth",
        )
        axes.plot(times, positive, LINES[0], color=shade, marker=marker, markersize=3, label=f"{name}smallest")
        axes.plot(times, middle, LINES[1], color=shade, linewidth=0.9, label=f"{name}median")
    if not any(one.leads for one in course.heads.values()):  # a single candidate
        axes.text(0.5, 0.5, "nothing to choose between", ha="center", va="center", transform=axes.transAxes)
        axes.set_ylabel("lead of the choice")
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    _ties(axes, ties, min(smallest, default=1.0))
    axes.set_ylabel("lead of the choice")
    axes.grid(axis="y", linewidth=0.3, color="#dddddd")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.02), ncols=3, borderaxespad=0, handlelength=1.8, fontsize=SMALL)
    low_, high = axes.get_ylim()
    axes.set_ylim(low_, high * (high / low_) ** 0.18)  # room for the legend


def _ties(axes: Axes, ties: list[tuple[int, int]], smallest: float) -> None:
    """Ties have no place on a logarithmic scale: they are marked at its foot."""
    if not ties:
        return
    foot = smallest / 10
    for time, number in ties:
        axes.plot([time], [foot], marker="x", color=colour(number), markersize=4, linestyle="none")
    axes.annotate("× tie", (ties[-1][0], foot), (4, 3), textcoords="offset points", fontsize=SMALL)
