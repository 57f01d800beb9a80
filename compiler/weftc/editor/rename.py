"""A name in a `Document` and a new one -> the edits that rename it, without changing what the spec means.

`outputs c` names a field and an output at once. Renaming one of the two keeps the other: it becomes `c = centre`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weftc.core.errors import InputError, SpecError
from weftc.core.source import Span
from weftc.editor.document import Document
from weftc.editor.symbols import SourcePlace, places_of
from weftc.language.check.check import check
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import CLASSES, LONGEST_NAME
from weftc.language.parse.parse import parse

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*'*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters of a text, and what comes in their place."""

    span: Span
    text: str


def rename(document: Document, place: SourcePlace, new: str) -> list[Edit]:
    """The edits, or an `InputError` that says why a name will not do."""
    if new == place.name:
        return []
    _refuse(document, place, new)
    edits = []
    for one in places_of(document, place):
        shown = (f"{new} = {one.name}" if one.space == "output" else f"{one.name} = {new}") if one.both else new
        edits.append(Edit(one.span, shown))
    if document.checked is not None:
        try:
            check(parse(applied(document.source.text, edits)))
        except SpecError as error:
            raise InputError(f"renaming {place.name} to {new} would break the spec; choose another name") from error
    return edits


def applied(text: str, edits: list[Edit]) -> str:
    """The text with the edits made."""
    for edit in sorted(edits, key=lambda edit: edit.span, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


def _refuse(document: Document, place: SourcePlace, new: str) -> None:
    if not NAME.fullmatch(new) or len(new) > LONGEST_NAME:
        raise InputError(f"{new!r} is not a name; a name is letters a to z, digits and _, the first a letter")
    if new in load().terminals or new in CLASSES:
        raise InputError(f"{new} is a word of the language; choose another name")
    outputs = {one.target.name for one in document.spec.outputs} if document.spec is not None else set()
    taken = new in outputs if place.space == "output" else bool(document.names.what(new))
    if taken:
        what = "an output" if place.space == "output" else document.names.what(new)
        raise InputError(f"{new} is {what} already; choose another name")
