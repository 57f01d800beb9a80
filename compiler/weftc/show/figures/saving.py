"""A figure -> a file: PNG, SVG or PDF by its ending, whole or not at all, the same bytes every time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weftc.core.errors import InputError
from weftc.core.source import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without these, matplotlib writes the time and its own version into the file.
METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "weftc"},
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": "weftc"},
}
FORMATS = tuple(METADATA)


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise InputError(f"{printable(str(path))}: a picture is a file that ends in .png, .svg or .pdf")
    return ending


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure; text stays text in SVG and PDF, and no file holds a date."""
    import matplotlib

    from weftc.show.figures.style import settings

    target, form = Path(path), format_of(path)
    with matplotlib.rc_context(settings()):
        write_whole(target, lambda part: figure.savefig(part, format=form, metadata=METADATA[form]))


def write_whole(target: Path, write: Callable[[str], object]) -> None:
    """Lets somebody write a file next to its place, then puts it there."""
    from weftc_runtime.format.whole_file import whole_file  # loads numpy

    try:
        with whole_file(target) as part:
            write(str(part))
    except OSError as error:
        raise InputError(f"{printable(str(target))}: cannot be written ({error.strerror})") from None
