"""The mistakes found so far in one spec."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from weft.errors import Diagnostic, SpecError
from weft.source import Source, Span


@dataclass(slots=True)
class Problems:
    """A growing list of diagnostics about one source."""

    source: Source
    found: list[Diagnostic] = field(default_factory=list)

    def add(self, code: str, span: Span, message: str, label: str = "", *notes: str) -> None:
        """Records a mistake; empty notes are left out."""
        self.found.append(Diagnostic(code, span, message, label, tuple(note for note in notes if note)))

    def spot(self, within: Span, word: str) -> Span:
        """Where a word stands in a span, so that a caret can point at it alone; the span itself when it does not."""
        found = re.search(rf"(?<![\w']){re.escape(word)}(?![\w'])", self.source.at(within))
        return Span(within.start + found.start(), within.start + found.end()) if found else within

    def stop(self) -> None:
        """Raises everything found, if anything was."""
        if self.found:
            raise SpecError(self.source, self.found)
