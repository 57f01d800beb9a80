"""`Document` -> every place where a name stands, and what it names there.

Sets, indices, dimensions, fields, definitions and parameters share one name space; outputs have names of their own. A
name in `outputs c` is both: the output c, and the field c it shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.trees import nodes
from weftc.editor.document import Document
from weftc.language.parse.lexer import Token

Space = Literal["name", "output"]


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A name at a place. `both`: `outputs c`, which names a field and an output at once."""

    space: Space
    name: str
    span: Span
    both: bool = False


def places(document: Document) -> list[SourcePlace]:
    """Every name of a spec where it stands, in order of the text; none when it cannot be read at all."""
    if document.spec is None:
        return []
    words = dict(_output_names(document)) | dict.fromkeys(_words_of_the_language(document))
    found: list[SourcePlace] = []
    for token in document.tokens:
        if token.type != "NAME":
            continue
        if token.start not in words:
            found.append(SourcePlace("name", token.text, token.span))
        elif (place := words[token.start]) is not None:
            found.append(place)
            if place.both:
                found.append(SourcePlace("name", token.text, token.span, True))
    return [place for place in found if place.space == "output" or document.names.what(place.name)]


def place_at(document: Document, offset: int) -> SourcePlace | None:
    """The name an offset lies in or directly behind."""
    found = [place for place in places(document) if place.span.start <= offset <= place.span.end]
    return next((place for place in found if place.space == "name"), next(iter(found), None))


def places_of(document: Document, place: SourcePlace) -> list[SourcePlace]:
    """Every place of one name."""
    return [one for one in places(document) if (one.space, one.name) == (place.space, place.name)]


def definition(document: Document, place: SourcePlace) -> Span:
    """Where a name is declared: a field without a declaration at the first equation that computes it."""
    spec, names, found = document.spec, document.names, places_of(document, place)
    assert spec is not None
    wanted: Span | None = None
    if place.space == "output":
        return found[0].span
    declared = names.declared(place.name)
    if declared is not None:
        wanted = declared.target.span
    elif place.name in names.lets:
        wanted = names.lets[place.name].target.span
    elif place.name in names.params:
        wanted = names.params[place.name].span
    elif place.name in names.written:
        wanted = names.written[place.name]
    elif place.name in names.sets:
        wanted = names.homes[place.name].span
    elif place.name in names.index:
        wanted = names.homes[names.index[place.name]].span
    inside = [one.span for one in found if wanted is None or wanted.start <= one.span.start < wanted.end]
    return (inside or [place.span])[0]


def _output_names(document: Document) -> Iterator[tuple[int, SourcePlace]]:
    """Names of outputs, where they are declared and in examples."""
    spec = document.spec
    assert spec is not None
    for output in spec.outputs:
        name, start = output.target.name, output.target.span.start
        same = output.body.span == output.target.span
        yield start, SourcePlace("output", name, Span(start, start + len(name)), same)
    for example in spec.examples:
        for expected in example.expected:
            start = _first(document, expected.span).start
            yield start, SourcePlace("output", expected.name, Span(start, start + len(expected.name)))


def _words_of_the_language(document: Document) -> Iterator[int]:
    """Where words stand that are names only by their form: `simplex`, `spread`, `average`, the algorithm's own name."""
    spec = document.spec
    assert spec is not None
    yield _first(document, spec.span).start
    for declared in (*spec.inputs, *spec.random, *spec.state):
        if declared.type.kind not in ("number", "vector", "unit"):
            yield _first(document, declared.type.span).start
        if declared.init is not None:
            word = [t for t in _within(document, declared.init.span) if t.text == declared.init.kind]
            yield from (token.start for token in word[:1])
    for node in nodes(spec):
        if isinstance(node, ast.Ties):
            yield from (t.start for t in _within(document, node.span) if t.text == node.rule)


def _within(document: Document, span: Span) -> list[Token]:
    return [token for token in document.tokens if span.start <= token.start < span.end]


def _first(document: Document, span: Span) -> Token:
    return next(iter(_within(document, span)))
