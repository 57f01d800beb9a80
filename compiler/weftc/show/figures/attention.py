"""Attention patterns as small multiples: a row of panels per head, a column per layer; darker is more weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.ticker import FuncFormatter

from weftc.show.figures.canvas import PaperFigure
from weftc.show.figures.choosing import wanted
from weftc.show.figures.pictures import PictureOptions
from weftc.show.figures.style import BELOW, FAINT, PAGE, SHADES, SIZE, SMALL
from weftc.show.figures.subject import Subject
from weftc.show.figures.watching import Course, HeadCourse, Numbers, chosen_layers, ordered_by_choice
from weftc.show.weights_text import weighting_text

MOST = 5  # layers that are shown
FAINTEST = 0.3  # of the largest weight: layers with less make shades go by square roots
TOP, BOTTOM, LEFT, RIGHT, BETWEEN, CAPTION = 0.18, 0.25, 0.42, 0.5, 0.12, 0.24  # inches


def draw(subject: Subject, look: PictureOptions) -> PaperFigure:
    """All heads of the layer, or those asked for, in up to five layers."""
    course = subject.course
    heads = [course.heads[name] for name in wanted(list(course.heads), look.heads)]
    layers = chosen_layers(course.layers, MOST)
    width = look.width or PAGE
    side = (width - LEFT - RIGHT - BETWEEN * (len(layers) - 1)) / max(len(layers), 3)
    sides = [_height(one, side) for one in heads]
    notes = _notes(course, heads, layers)
    foot = BOTTOM + 0.13 * len(notes)
    height = TOP + sum(sides) + len(heads) * (CAPTION + 0.3) + foot - 0.24
    figure = PaperFigure(figsize=(width, height))
    shades = LinearSegmentedColormap.from_list("weights", SHADES)
    both = LinearSegmentedColormap.from_list("signed", (*reversed(BELOW), *SHADES))
    y = height - TOP
    for number, (one, tall) in enumerate(zip(heads, sides, strict=True)):
        y -= CAPTION
        text = f"head {one.head.name}:  {one.head.query} ← {one.head.keys},  {weighting_text(one.head.weighting)}"
        figure.text(LEFT / width, (y + 0.04) / height, text, fontsize=SIZE, va="bottom")
        y -= tall
        most = max(float(np.abs(one.patterns[layer]).max()) for layer in layers) or 1.0
        signed = any(bool((one.patterns[layer] < 0).any()) for layer in layers)
        rooted = not signed and _faint(one, layers, most)
        rows, columns = _order(course, one.head.query, one.rows), _order(course, one.head.keys, one.columns)
        for at, layer in enumerate(layers):
            left = (LEFT + at * (side + BETWEEN)) / width
            axes = figure.add_axes((left, y / height, side / width, tall / height))
            image = axes.imshow(
                one.patterns[layer][np.ix_(rows, columns)],
                cmap=both if signed else shades,
                norm=PowerNorm(0.5 if rooted else 1.0, -most if signed else 0, most),
                aspect="auto",
                interpolation="nearest",
            )
            _dress(axes, one, at == 0)
            if number == 0:
                axes.set_title(f"layer {layer + 1}", pad=19, fontsize=SIZE, fontweight="bold")
        box = ((width - RIGHT + 0.08) / width, y / height, 0.07 / width, tall / height)
        bar = figure.colorbar(image, cax=figure.add_axes(box))
        bar.ax.tick_params(labelsize=SMALL - 1, width=0.4, length=1.5)
        bar.outline.set_linewidth(0.4)
        bar.set_ticks([-most, 0, most] if signed else [0, most])
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, at: f"{value:.3g}".replace("-", "−")))
        y -= 0.3
    for line, words in enumerate(notes):
        figure.text(LEFT / width, (foot - 0.2 - 0.13 * line) / height, words, fontsize=SMALL, color=FAINT, va="bottom")
    return figure


def _faint(one: HeadCourse, layers: Sequence[int], most: float) -> bool:
    """Whether some layer would hardly be seen on the scale of the others."""
    return min(float(one.patterns[layer].max()) for layer in layers) < FAINTEST * most


def _height(one: HeadCourse, side: float) -> float:
    """How tall the panels of a head are: few queries make low ones."""
    rows, columns = len(one.rows), len(one.columns)
    return side * float(np.clip(rows / columns, 0.3, 1.0))


def _order(course: Course, stream: str, kept: Numbers) -> Numbers:
    """The order in which the kept tokens of a stream are drawn."""
    found = ordered_by_choice(course, stream)
    return np.arange(len(kept)) if found is None or len(found) != len(kept) else found


def _dress(axes: Axes, one: HeadCourse, first: bool) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.4)
    axes.set_xlabel(one.head.keys, labelpad=2, fontsize=SMALL, color=FAINT)
    if first:
        axes.set_ylabel(one.head.query, labelpad=2, fontsize=SMALL, color=FAINT)


def _notes(course: Course, heads: list[HeadCourse], layers: Sequence[int]) -> list[str]:
    """What a reader must know to read the panels."""
    streams = {one.head.query: one.rows for one in heads} | {one.head.keys: one.columns for one in heads}
    out = []
    few = [
        f"{len(kept)} of {course.sizes[name]} {name}"
        for name, kept in streams.items()
        if len(kept) < course.sizes[name]
    ]
    if few:
        out.append(f"shown are {', '.join(few)}, evenly spaced")
    sorted_ = [name for name in streams if ordered_by_choice(course, name) is not None]
    if sorted_:
        out.append(f"{', '.join(sorted_)} ordered by what they attend to in the last layer")
    faint = [h.head.name for h in heads if _faint(h, layers, max(float(h.patterns[layer].max()) for layer in layers))]
    if faint:
        out.append(f"shades of {', '.join(faint)} by the square root of the weight")
    return out
