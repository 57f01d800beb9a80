"""Lines -> the columns of the comments beside them.

Comments on lines next to each other are aligned: at column 40, or at 60 if several need it. One that stands alone, or
behind code that is longer still, follows after three spaces. Where comments stood before plays no part, so that
formatting twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weftc.language.format.lines import Line

WIDEST = 120
NEAR, FAR = 40, 60
LEAST = 2  # spaces before a comment in a column
FOLLOWING = 3  # spaces before one without


def comment_columns(lines: Sequence[Line]) -> Iterator[int]:
    """The column of the comment of each line; 0 where there is none beside code."""
    for run in _runs(lines):
        shared, column = _shared(run), 0
        for line in run:
            if line.beside and not line.continues:
                column = _column(line, shared)
            yield column


def _runs(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Lines next to each other with comments beside their code; every other line for itself."""
    run: list[Line] = []
    for line in lines:
        if run and not (line.beside and run[-1].beside and not line.blank):
            yield run
            run = []
        run.append(line)
    if run:
        yield run


def _shared(run: Sequence[Line]) -> int:
    """The column that as many lines of a run as possible share."""
    short = [line for line in run if line.code and line.end + LEAST <= FAR]
    far = len(short) > 1 and any(line.end + LEAST > NEAR for line in short)
    return FAR if far and all(FAR + len(line.comment) <= WIDEST for line in run) else NEAR


def _column(line: Line, shared: int) -> int:
    return shared if line.end + LEAST <= shared else line.end + FOLLOWING
