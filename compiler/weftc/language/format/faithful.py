"""Two texts -> whether one is the other, written differently: the same tree, the same words, the same comments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from weftc.core.errors import SpecError
from weftc.core.source import Source, Span, printable
from weftc.language.format.lexemes import Comment, Gap, Lexeme, lexemes
from weftc.language.parse.parse import trees


class Unfaithful(RuntimeError):
    """The formatter has changed more than the looks of a spec: a bug in it. The spec is left as it is."""


def ensure_same(before: Source, formatted: str) -> None:
    """Raises `Unfaithful`, naming the place, unless a text says what the algorithms of another say."""
    after = Source(before.name, formatted)
    old, new = lexemes(before), lexemes(after)
    _same_sequence(before, _words(old[0]), _words(new[0]), "word")
    _same_sequence(before, _comments(*old), _comments(*new), "comment")
    try:
        again = trees(after)
    except SpecError as error:
        raise Unfaithful(f"formatting {printable(before.name)} made a text that does not parse: {error}") from error
    specs = trees(before)
    if shape(again) != shape(specs):
        raise Unfaithful(f"formatting {before.place(specs[0].span)} would change what the spec says")


def shape(value: Any) -> Any:
    """A syntax tree without the places it was read from."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = (f.name for f in fields(value) if f.name not in ("span", "source"))
        return (type(value).__name__, *(shape(getattr(value, name)) for name in kept))
    return tuple(shape(part) for part in value) if isinstance(value, tuple) else value


def _words(found: Sequence[Lexeme]) -> list[tuple[str, int]]:
    """All but commas: some are optional, and the tree knows the others."""
    return [(lexeme.text, lexeme.token.start) for lexeme in found if lexeme.text != ","]


def _comments(found: Sequence[Lexeme], end: Gap) -> list[tuple[str, int]]:
    gaps: list[tuple[Comment, ...]] = [*(lexeme.gap.comments for lexeme in found), end.comments]
    return [(comment.text, comment.start) for comments in gaps for comment in comments]


def _same_sequence(source: Source, old: list[tuple[str, int]], new: list[tuple[str, int]], what: str) -> None:
    nothing = ("", len(source.text))
    for at in range(max(len(old), len(new))):
        text, start = old[at] if at < len(old) else nothing
        other = new[at][0] if at < len(new) else ""
        if text != other:
            place = source.place(Span(start, start))
            raise Unfaithful(f"formatting {place} would turn the {what} {printable(text)!r} into {printable(other)!r}")
