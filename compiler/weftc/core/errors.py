"""Everything a user can be told is wrong.

    WeftError                  anything Weft raises on purpose; its text is what the command line prints
    ├── SpecError              mistakes in a spec: one or more Diagnostics, each with a place and a fix
    ├── InputError             data, parameters, dimensions or files that do not fit
    └── weftc_runtime's ModelError, RunError   (checkpoints and runs; raised by the runtime on its own)

Codes are stable: P parse, C check, L lowering (no attention form), B binding of dimensions and parameters.

Beside the text, every error says what programs ask for, each None where there is nothing to say: `hint` (what to do),
`place` (file:line:column of a spec, a row of an input), and `input` or, in a spec, `code` and `span`.
"""

from __future__ import annotations

from dataclasses import dataclass

from weftc.core.display import html
from weftc.core.source import Source, Span, printable

WIDEST_LINE = 160  # characters of a source line that are shown around a caret


class WeftError(Exception):
    """Anything Weft raises on purpose."""

    def __init__(self, text: str = "", *, input: str | None = None, place: str | None = None) -> None:
        super().__init__(text)
        self.input = input
        self.place = place

    @property
    def hint(self) -> str | None:
        """What to do: what stands behind the last semicolon of the text, where messages put it."""
        return str(self).rpartition("; ")[2] if "; " in str(self) else None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake: where it is, what is wrong, why (`label`, at the caret), and what to do (`notes`)."""

    code: str
    span: Span
    message: str
    label: str = ""
    notes: tuple[str, ...] = ()

    def show(self, source: Source) -> str:
        """The diagnostic as people read it, with the line and a caret under the guilty part."""
        line, column = source.position(self.span.start)
        text = source.line(line)
        number = source.origin(self.span.start)[1]
        gutter = " " * len(str(number))
        end_line, end_column = source.position(max(self.span.end, self.span.start + 1))
        until = end_column if end_line == line else len(text) + 1
        text, column, until = _window(text, column, until)
        before, guilty = printable(text[: column - 1]), printable(text[column - 1 : until - 1])
        label = f" {printable(self.label)}" if self.label else ""
        out = [
            f"error[{self.code}]: {printable(self.message)}",
            f"{gutter}--> {source.place(self.span)}",
            f"{gutter} |",
            f"{number} | {before}{guilty}{printable(text[until - 1 :])}",
            f"{gutter} | {' ' * len(before)}{'^' * max(1, len(guilty))}{label}",
        ]
        out += [f"{gutter} = {printable(note)}" for note in self.notes]
        return "\n".join(out)


def _window(text: str, column: int, until: int) -> tuple[str, int, int]:
    """Cuts a very long line down to the part around the caret."""
    if len(text) <= WIDEST_LINE:
        return text, column, until
    start = max(0, column - 1 - WIDEST_LINE // 2)
    shown = text[start : start + WIDEST_LINE]
    return shown, column - start, min(until - start, len(shown) + 1)


class SpecError(WeftError):
    """Mistakes in a spec, in order of position."""

    def __init__(self, source: Source, diagnostics: list[Diagnostic] | tuple[Diagnostic, ...]) -> None:
        self.source = source
        unique = dict.fromkeys(diagnostics)
        self.diagnostics = tuple(sorted(unique, key=lambda d: (d.span.start, d.span.end, d.code)))
        place = source.place(self.diagnostics[0].span) if self.diagnostics else None
        super().__init__(self.show(), place=place)

    def __reduce__(self) -> tuple[type[SpecError], tuple[Source, tuple[Diagnostic, ...]]]:
        return type(self), (self.source, self.diagnostics)

    @property
    def code(self) -> str | None:
        """The code of the first mistake; `diagnostics` has them all."""
        return self.diagnostics[0].code if self.diagnostics else None

    @property
    def span(self) -> Span | None:
        """Where the first mistake is."""
        return self.diagnostics[0].span if self.diagnostics else None

    @property
    def hint(self) -> str | None:
        """What to do about the first mistake."""
        if not self.diagnostics:
            return None
        first = self.diagnostics[0]
        return first.label or next(iter(first.notes), None)

    def _repr_html_(self) -> str | None:
        return html("error", self)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a stack: the mistake is in the spec, not in the call."""
        return str(self).split("\n")

    def show(self) -> str:
        """All diagnostics, one block each."""
        return "\n\n".join(d.show(self.source) for d in self.diagnostics)


class InputError(WeftError):
    """Data, parameters, dimensions or files that do not fit the spec."""
