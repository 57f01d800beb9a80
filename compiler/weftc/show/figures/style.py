"""How all pictures look: sizes, colours that survive grey print and colour blindness, text that stays text.

The categorical colours are those of Okabe and Ito, ordered so that neighbours differ in lightness; series also differ
in marker and line style. Weights run from white to dark in one hue; signs are told by colour and by a printed number.
"""

from __future__ import annotations

from typing import Any

POINT = 72.0  # points per inch
COLUMN, PAGE = 3.35, 6.9  # inches: one column of a two-column paper, its whole width

INK, FAINT, HAIR, PAPER = "#1a1a1a", "#6b6b6b", "#c8c8c8", "#ffffff"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#4d4d4d", "#b8a800")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
LINES = ("-", "--", "-.", ":")
POSITIVE, NEGATIVE = "#c6dcef", "#f6cfa8"  # fills of blocks; light enough for black text in grey print
ROLES = {"field": "#c6dcef", "constant": "#e9e9e9", "derived": "#d5e8d4", "scratch": "#ffffff"}
SHADES = ("#ffffff", "#d3e3f1", "#8fbbdc", "#3d83bb", "#0b4a86")  # weights from 0 to the largest
BELOW = ("#fbe3cb", "#f2b67c", "#d98325", "#8a4a00")  # weights below 0, where there are any

SANS, MONO = "DejaVu Sans", "DejaVu Sans Mono"  # they come with matplotlib, so a picture is the same everywhere
SIZE = 7.0  # points of ordinary text
SMALL = 6.0


def settings() -> Any:
    """Settings of matplotlib under which pictures are made and written; a dictionary, by its own names."""
    return {
        "font.family": SANS,
        "font.size": SIZE,
        "axes.titlesize": SIZE,
        "axes.labelsize": SIZE,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.minor.width": 0.4,
        "ytick.minor.width": 0.4,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "lines.linewidth": 1.2,
        "lines.markersize": 3.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "figure.dpi": 150,
        "savefig.dpi": 300,
        "figure.facecolor": PAPER,
        "savefig.facecolor": PAPER,
        "svg.fonttype": "none",  # text, not outlines
        "svg.hashsalt": "weftc",  # else ids inside the file change from run to run
        "pdf.fonttype": 42,  # TrueType: text can be searched and edited
        "pdf.compression": 6,
        "text.usetex": False,
        "text.parse_math": False,  # a name with a $ in it is a name
        "path.simplify": True,
    }


def plain_number(value: float, position: object = None) -> str:
    """A number on an axis, without the typesetting that matplotlib would use."""
    return f"{value:.12g}".replace("-", "−")


def colour(index: int) -> str:
    """The colour of a series."""
    return COLOURS[index % len(COLOURS)]


def marker(index: int) -> str:
    """The marker of a series; it changes faster than colours repeat, so that pairs are unique for long."""
    return MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]
