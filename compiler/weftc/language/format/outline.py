"""Lexemes and syntax tree -> sections and the declarations, equations and values in them.

The tree says where each item starts and ends. Optional commas between items are left out here: which of them are
written is a question of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.language.format.lexemes import Gap, Lexeme
from weftc.language.parse.lexer import SECTIONS

Kind = Literal["declared", "equation", "use", "then", "given", "layers", "expected"]
SETS = ("=", "+=", "-=", "~")  # what stands between a name and its value


@dataclass(frozen=True, slots=True)
class Item:
    """One declaration, equation, value of an example, `then` or `layers N`."""

    kind: Kind
    lexemes: tuple[Lexeme, ...]

    @property
    def gap(self) -> Gap:
        return self.lexemes[0].gap

    @property
    def equals(self) -> int | None:
        """Where its `=` is, if it has one of its own."""
        if self.kind == "use":
            return None
        return next((at for at, lexeme in enumerate(self.lexemes) if lexeme.text in SETS), None)

    @property
    def says_more(self) -> bool:
        """Whether it is more than a name, or a name for a name."""
        equals = self.equals
        return len(self.lexemes) > 1 and (equals is None or len(self.lexemes) > equals + 2)


@dataclass(frozen=True, slots=True)
class OutlinedSection:
    """A section: its word with the name or title that belongs to it, and its items."""

    head: tuple[Lexeme, ...]
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        return self.head[0].text


def outline(specs: Sequence[ast.Spec], found: Sequence[Lexeme], end: Gap) -> tuple[list[OutlinedSection], Gap]:
    """The sections of the algorithms of a file in the order of the text, and what stands behind the last of them."""
    items = {span.start: (span.end, kind) for spec in specs for span, kind in _items(spec)}
    sections: list[tuple[list[Lexeme], list[Item]]] = []
    at, left_out = 0, Gap()
    while at < len(found):
        lexeme = found[at]
        if lexeme.text == ",":
            left_out, at = left_out.then(lexeme.gap), at + 1
            continue
        if left_out != Gap():
            lexeme, left_out = replace(lexeme, gap=left_out.then(lexeme.gap)), Gap()
        if lexeme.token.start in items and lexeme.text != "phase":
            stop, kind = items[lexeme.token.start]
            count = 1
            while at + count < len(found) and found[at + count].token.start < stop:
                count += 1
            sections[-1][1].append(Item(kind, (lexeme, *found[at + 1 : at + count])))
        elif lexeme.text in SECTIONS and not (lexeme.text == "repeat" and _is_head(sections)):
            count = 1
            sections.append(([lexeme], []))
        elif lexeme.text == "then":
            count = 1
            sections[-1][1].append(Item("then", (lexeme,)))
        elif lexeme.text == "layers":
            count = 2
            sections[-1][1].append(Item("layers", (lexeme, found[at + 1])))
        elif sections[-1][0][0].text == "repeat" and not _is_head(sections):
            count = 1
            sections[-1][1].append(Item("declared", (lexeme,)))
        else:  # the name of the algorithm, a text in quotes
            count = 1
            sections[-1][0].append(lexeme)
        at += count
    return [OutlinedSection(tuple(head), tuple(parts)) for head, parts in sections], left_out.then(end)


def _is_head(sections: Sequence[tuple[list[Lexeme], list[Item]]]) -> bool:
    """Whether what comes belongs to the head of a phase."""
    return bool(sections) and sections[-1][0][0].text == "phase" and not sections[-1][1]


def _items(spec: ast.Spec) -> Iterator[tuple[Span, Kind]]:
    declared = (spec.tokens, spec.inputs, spec.random, spec.state, spec.params, spec.lets, spec.outputs)
    for group in declared:
        for one in group:
            yield one.span, "declared"
    for step in (*spec.steps, *(step for phase in spec.phases for step in phase.steps)):
        for equation in step.equations:
            yield equation.span, "equation"
        for use in step.uses:
            yield use.span, "use"
    if spec.objective is not None:
        yield spec.objective.span, "declared"
    for example in spec.examples:
        for given in example.given:
            yield given.span, "given"
        for expected in example.expected:
            yield expected.span, "expected"
