"""Attention of two models side by side: matched heads as rows, with the distance by layer; darker is more weight."""

from __future__ import annotations

import matplotlib
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from weftc.show.figures.canvas import PaperFigure
from weftc.show.figures.style import LINES, SHADES, colour, marker, settings
from weftc.variants.attention import AttentionComparison

MOST = 6  # heads that are shown, the closest first


def draw(found: AttentionComparison, names: tuple[str, str]) -> PaperFigure:
    """A row for each match: the last layer of both, and how far they are apart."""
    with matplotlib.rc_context(settings()):
        return _drawn(found, names)


def _drawn(found: AttentionComparison, names: tuple[str, str]) -> PaperFigure:
    matches = sorted(found.matches, key=lambda match: match.distance)[:MOST]
    shades = LinearSegmentedColormap.from_list("weights", SHADES)
    optimum = found.wanted is not None
    figure = PaperFigure(figsize=(6.9, 1.9 * len(matches) + 0.3), layout="constrained")
    grid = figure.subplots(len(matches), 4 if optimum else 3, squeeze=False)
    for row, match in zip(grid, matches, strict=True):
        titles = f"{names[0]}: {match.head}", f"{names[1]}: {match.other}"
        shown = list(zip(match.last, titles, strict=True))
        if found.wanted is not None:
            shown.append((found.wanted, "the optimum"))
        top = max(float(pattern.max()) for pattern, _ in shown) or 1.0
        for axes, (pattern, title) in zip(row, shown, strict=False):
            axes.imshow(pattern, cmap=shades, vmin=0, vmax=top, aspect="auto", interpolation="nearest")
            axes.set_title(title)
            axes.set_xticks([])
            axes.set_yticks([])
        axes = row[-1]
        series = [("between the two", match.apart)]
        for name, near, head in zip(names, found.optimum, (match.head, match.other), strict=True):
            if head in near:
                series.append((f"{name} to optimum", near[head]))
        for index, (label, values) in enumerate(series):
            layers = range(1, len(values) + 1)
            axes.plot(layers, values, LINES[0], color=colour(index), marker=marker(index), label=label)
        most = max(max(values) for _, values in series)
        axes.set(title="share of the weight", xlabel="layer", ylim=(-0.05 * most, 1.1 * most or 1.0))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
    for row in grid:
        row[0].set_ylabel("queries")
    return figure
