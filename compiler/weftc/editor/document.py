"""Text as it is typed -> `Document`: its mistakes, and as much of its meaning as the intact parts give.

A spec that is being written is broken most of the time. Regions that hold a mistake of form are blanked out, letter by
letter, so that places stay what they are, and the rest is read: names keep being known while one line is unfinished.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from weftc.core.errors import Diagnostic, SpecError
from weftc.core.source import Source
from weftc.core.syntax import Spec
from weftc.core.types import Checked
from weftc.language.check.check import check
from weftc.language.check.names import Names, collect
from weftc.language.check.problems import Problems
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import Token, tokenize
from weftc.language.parse.parse import parse
from weftc.language.parse.regions import region_of, regions

MOST_REPAIRS = 5  # rounds of blanking; one is enough unless a blank breaks what follows it


@dataclass(frozen=True)
class Document:
    """One text and what is known of it. `spec` is None where even the intact parts make no spec."""

    source: Source
    diagnostics: tuple[Diagnostic, ...]
    spec: Spec | None
    checked: Checked | None = field(repr=False)  # only of a text without a mistake

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The words, numbers and marks of the text."""
        return tuple(_tokens(self.source))

    @cached_property
    def names(self) -> Names:
        """What is declared; of a name that is declared twice, the first."""
        return Names() if self.spec is None else collect(self.spec, Problems(self.source))

    def token_at(self, offset: int) -> Token | None:
        """The token an offset lies in or directly behind; a word wins over the mark behind it."""
        touching = [token for token in self.tokens if token.start <= offset <= token.end]
        words = [token for token in touching if token.text[0].isalnum()]
        return next(iter(words or touching), None)


def read(text: str, name: str = "spec", lower: bool = True) -> Document:
    """The document of a text. Nothing is raised: every mistake is among its diagnostics.

    `lower`: also tells what has no attention form, which takes longer than all the rest.
    """
    source = Source(name, text)
    try:
        spec = parse(source)
    except SpecError as error:
        return Document(source, _here(source, error), _intact(source, error), None)
    try:
        checked = check(spec)
    except SpecError as error:
        return Document(source, _here(source, error), spec, None)
    return Document(source, _unlowerable(checked) if lower else (), spec, checked)


def _unlowerable(checked: Checked) -> tuple[Diagnostic, ...]:
    """What the checker accepts and no attention computes."""
    from weftc.commands.check import refuse_unlowerable

    try:
        refuse_unlowerable(checked)
    except SpecError as error:
        return _here(checked.spec.source, error)
    return ()


def _here(source: Source, error: SpecError) -> tuple[Diagnostic, ...]:
    """What is wrong, each thing at a place of this text: of another file, at the `use` that brings it in."""
    end = error.source.pieces[0].start if error.source.pieces else len(source.text) + 1
    if all(one.span.start < end for one in error.diagnostics):
        return error.diagnostics
    uses = [token for token in _tokens(Source(source.name, error.source.text[:end])) if token.type == "USE"]

    def moved(one: Diagnostic) -> Diagnostic:
        if one.span.start < end or not uses:
            return one
        use = next((u for u in uses if _brings(error.source, u.end, one.span.start)), uses[0])
        return replace(one, span=use.span, label="", notes=(f"at {error.source.place(one.span)}", *one.notes))

    return tuple(map(moved, error.diagnostics))


def _brings(source: Source, use: int, offset: int, above: tuple[str, ...] = ()) -> bool:
    """Whether the `use` that ends at a place brings in the part of a text that holds an offset, itself or by others."""
    name = source.text[use:].split(None, 1)[0]
    starts = [*(piece.start for piece in source.pieces), len(source.text)]
    for begin, end in pairwise(starts):
        if source.text[begin:end].split(None, 2)[1] == name and name not in above:
            inner = re.finditer(r"\buse(?=\s)", source.text[begin:end])
            further = any(_brings(source, begin + one.end(), offset, (*above, name)) for one in inner)
            return begin <= offset < end or further
    return False


def _intact(source: Source, error: SpecError) -> Spec | None:
    """The spec that remains without the regions in which its form is broken."""
    text = source.text
    for _ in range(MOST_REPAIRS):
        blanked = _blanked(source, text, error)
        if blanked == text:
            return None
        text = blanked
        try:
            return parse(Source(source.name, text))
        except SpecError as still:
            error = still
    return None


def _blanked(source: Source, text: str, error: SpecError) -> str:
    """The text with blanks for every region of a mistake."""
    tokens = _tokens(Source(source.name, text))
    starts = regions(tokens, text)
    for diagnostic in error.diagnostics:
        before = [at for at, token in enumerate(tokens) if token.start <= diagnostic.span.start]
        region = region_of(starts, before[-1] if before else 0)
        begin = tokens[starts[region]].start if tokens else 0
        end = tokens[starts[region + 1]].start if region + 1 < len(starts) else len(text)
        text = text[:begin] + "".join(c if c == "\n" else " " for c in text[begin:end]) + text[end:]
    return text


def _tokens(source: Source) -> list[Token]:
    """The tokens of a text, whatever is between them."""
    try:
        return tokenize(source.text, load().terminals, Problems(source))
    except SpecError:  # more of them than any spec has
        return []
