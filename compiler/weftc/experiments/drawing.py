"""The few ways in which experiments are drawn, in the style of Weft's other pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weftc.show.figures.style import FAINT, LINES, SHADES, SMALL, colour, marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase


def panels(figure: FigureBase, rows: int, columns: int) -> list[Axes]:
    """Empty panels, row by row."""
    return list(figure.subplots(rows, columns, squeeze=False).ravel())


def line(axes: Axes, x: Sequence[Any], y: Sequence[float], label: str, index: int, dashed: bool = False) -> None:
    """One series; series differ in colour, marker and, where asked for, in the line."""
    style = LINES[1] if dashed else LINES[0]
    axes.plot(x, y, style, color=colour(index), marker=marker(index), label=label, clip_on=True)
    axes.grid(axis="y", linewidth=0.3, color="#dddddd")


def logarithmic(axes: Axes, which: str = "xy") -> None:
    """Logarithmic axes, with numbers that need no typesetting."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name in which:
            (axes.set_xscale if name == "x" else axes.set_yscale)("log")
            axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())


def key(figure: FigureBase, axes: Axes, columns: int = 4) -> None:
    """What the series of a panel are, below all panels."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def level(axes: Axes, y: float, label: str) -> None:
    """A number to compare with, across the panel."""
    axes.axhline(y, color=FAINT, linewidth=0.8, linestyle=":")
    axes.annotate(label, (0.01, y), xycoords=("axes fraction", "data"), fontsize=SMALL, color=FAINT, va="bottom")


def bars(axes: Axes, groups: Sequence[str], series: dict[str, Sequence[float]]) -> None:
    """Bars side by side: a group for each place on the axis, a colour for each series."""
    width = 0.8 / len(series)
    for index, (label, values) in enumerate(series.items()):
        places = [at - 0.4 + (index + 0.5) * width for at in range(len(groups))]
        axes.bar(places, values, width * 0.92, color=colour(index), label=label)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="y", linewidth=0.3, color="#dddddd")


def heat(axes: Axes, matrix: Sequence[Sequence[float]], top: float | None = None) -> Any:
    """A matrix of weights or numbers, dark where they are large."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("weights", SHADES)
    image = axes.imshow(matrix, cmap=shades, vmin=0 if top is not None else None, vmax=top, aspect="auto")
    axes.spines[:].set_visible(False)
    return image


def squares(axes: Axes, matrix: Sequence[Sequence[float]], title: str) -> None:
    """A small square matrix of weights between 0 and 1, without ticks."""
    heat(axes, matrix, 1.0)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title)
