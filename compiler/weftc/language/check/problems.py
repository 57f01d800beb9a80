"""The mistakes found so far in one spec."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from weftc.core.errors import Diagnostic, SpecError
from weftc.core.source import Source, Span

MOST_REPORTED = 100  # more says nothing new, and takes long to find suggestions for


@dataclass(slots=True)
class Problems:
    """A growing list of diagnostics about one source."""

    source: Source
    found: list[Diagnostic] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether further mistakes are not recorded any more."""
        return len(self.found) >= MOST_REPORTED

    def add(self, code: str, span: Span, message: str, label: str = "", *notes: str) -> None:
        """Records a mistake; empty notes are left out."""
        if not self.full:
            self.found.append(Diagnostic(code, span, message, label, tuple(note for note in notes if note)))

    def spot(self, within: Span, word: str) -> Span:
        """Where a word stands in a span, so that a caret can point at it alone; the span itself when it does not."""
        found = re.search(rf"(?<![\w']){re.escape(word)}(?![\w'])", self.source.at(within))
        return Span(within.start + found.start(), within.start + found.end()) if found else within

    def stop(self) -> None:
        """Raises everything found, if anything was."""
        if self.full:
            last = max(self.found, key=lambda diagnostic: diagnostic.span.start)
            note = f"there may be more; only the first {MOST_REPORTED} problems are shown"
            self.found[self.found.index(last)] = replace(last, notes=(*last.notes, note))
        if self.found:
            raise SpecError(self.source, self.found)
