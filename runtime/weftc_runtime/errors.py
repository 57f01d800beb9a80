"""Everything the runtime can tell a user is wrong.

WeftRuntimeError     anything the runtime raises on purpose; its text is a sentence for people
├── ModelError       a file or program that is not a valid model: what is wrong, and where in it
└── RunError         inputs or values that a run cannot accept: which input, which row, what to do

Beside the text, an error says what programs ask for: `input` (the name of the input at fault), `place` (row 3, column
0; or the equation and its token), `hint` (what to do). Each is None where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class WeftRuntimeError(Exception):
    """Anything the runtime raises on purpose."""

    def __init__(self, text: str = "", *, input: str | None = None, place: str | None = None) -> None:
        super().__init__(text)
        self.input, self.place = input, place

    @property
    def hint(self) -> str | None:
        """What to do: what stands behind the last semicolon of the text, where messages put it."""
        return str(self).rpartition("; ")[2] if "; " in str(self) else None


class ModelError(WeftRuntimeError):
    """A checkpoint or program that is not a valid model."""


class RunError(WeftRuntimeError):
    """Inputs, options or values that a run cannot accept."""


class Uncovered(Exception):
    """What a plan, or a state that it meets, does not cover; the text says why. Nobody outside the runtime sees it."""


def need(holds: bool, message: str) -> None:
    """Raises `ModelError` unless something holds."""
    if not holds:
        raise ModelError(message)


def shown(name: object, limit: int = 80) -> str:
    """A name from outside as it may be printed: control characters escaped, long ones cut."""
    text = str(name)
    if len(text) <= limit and text.isprintable():
        return text
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[: limit + 1])
    return text if len(text) <= limit else text[:limit] + "..."


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean x?` when a known name is close, else the known names."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {shown(close[0])}?"
    return f"; known: {', '.join(shown(n) for n in names[:12])}" if names else ""
