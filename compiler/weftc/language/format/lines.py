"""Lines of a page under construction -> text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weftc.language.format.lexemes import Comment


@dataclass(slots=True)
class Line:
    """One line: code, a comment behind it, or a comment alone. `continues`: alone, in the column of the one above."""

    indent: int
    code: str = ""
    comment: str = ""
    blank: bool = False  # a blank line goes before it
    continues: bool = False

    @property
    def end(self) -> int:
        return self.indent + len(self.code)

    @property
    def beside(self) -> bool:
        """Whether it has a comment that stands to the right of code."""
        return bool(self.comment) and (bool(self.code) or self.continues)


class Page:
    """Lines written so far."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def start(self, indent: int, blank: bool = False) -> Line:
        """A new line."""
        self.lines.append(Line(indent, blank=blank and bool(self.lines)))
        return self.lines[-1]

    def comments(self, comments: Sequence[Comment], indent: int, blank: bool) -> None:
        """Comments: the first behind the last line, if it stood there, the others on lines of their own.

        `blank` says whether blank lines before them are kept.
        """
        for comment in comments:
            last = self.lines[-1] if self.lines else None
            if last is not None and not comment.own_line and not last.comment:
                last.comment = comment.text
            else:
                line = self.start(indent, blank and comment.after_blank)
                line.comment = comment.text
                line.continues = comment.continues and last is not None and last.beside


def written(line: Line, column: int) -> str:
    """A line as text; `column` is where its comment starts if it stands beside code."""
    start = " " * line.indent + line.code if line.code or not line.continues else ""
    return f"{start:<{column}}{line.comment}" if line.beside else start + line.comment
