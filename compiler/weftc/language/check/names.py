"""Declarations -> one table per kind of name, with every clash reported.

Sets, indices, dimensions, fields, `let`s and parameters share one name space: a name means one thing in a spec. Outputs
have names of their own, so `centers = c` may be called as its set is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from weftc.core.source import Span
from weftc.core.syntax import Dimension, Field, Let, Param, Spec, TokenSet
from weftc.core.words import declared_at
from weftc.language.check.problems import Problems


@dataclass(slots=True)
class Names:
    """What each declared name is."""

    sets: dict[str, Dimension | None] = field(default_factory=dict)
    index: dict[str, str] = field(default_factory=dict)
    dims: dict[str, Span] = field(default_factory=dict)
    inputs: dict[str, Field] = field(default_factory=dict)
    random: dict[str, Field] = field(default_factory=dict)
    state: dict[str, Field] = field(default_factory=dict)
    params: dict[str, Param] = field(default_factory=dict)
    lets: dict[str, Let] = field(default_factory=dict)
    written: dict[str, Span] = field(default_factory=dict)  # fields with an equation, at their first one
    homes: dict[str, TokenSet] = field(default_factory=dict)  # token set -> its declaration

    def declared(self, name: str) -> Field | None:
        """The declaration of an input, random field or state."""
        return self.inputs.get(name) or self.random.get(name) or self.state.get(name)

    def what(self, name: str) -> str:
        """What a name is, in words: `a parameter`; empty when it is nothing."""
        tables = (
            (self.index, "an index"),
            (self.sets, "a token set"),
            (self.params, "a parameter"),
            (self.lets, "a definition (`let`)"),
            (self.inputs, "an input"),
            (self.random, "a random field"),
            (self.state, "a state field"),
            (self.dims, "a dimension"),
            (self.written, "a computed field"),
        )
        return next((words for table, words in tables if name in table), "")

    def values(self) -> list[str]:
        """Every name that can stand in an expression."""
        tables = (self.inputs, self.random, self.state, self.written, self.lets, self.params, self.dims)
        return [name for table in tables for name in table]


def collect(spec: Spec, problems: Problems) -> Names:
    """The tables of a spec; of two declarations of one name the first counts."""
    names = Names()
    taken: dict[str, tuple[str, Span]] = {}

    def claim(name: str, span: Span, what: str) -> bool:
        if name not in taken:
            taken[name] = (what, span)
            return True
        other, where = taken[name]
        message = f"{name} is declared twice" if what == other else f"{name} is {other} and cannot also be {what}"
        problems.add("C202", span, message, "choose another name", declared_at(spec.source, where))
        return False

    for group in spec.tokens:
        if group.name in names.sets:
            first = names.homes[group.name]
            both = ", ".join((*first.indices, *(i for i in group.indices if i not in first.indices)))
            how = f"list the indices of a set together: tokens {both} in {group.name}"
            span = problems.spot(group.span, group.name)
            problems.add("C202", span, f"{group.name} is declared twice", "", how, declared_at(spec.source, first.span))
        else:  # known as a set even after a clash, so that its indices have one
            claim(group.name, problems.spot(group.span, group.name), "a token set")
            names.sets[group.name] = group.size
            names.homes[group.name] = group
        for index in group.indices:
            if claim(index, problems.spot(group.span, index), "an index"):
                names.index[index] = group.name
    for name, span in _dimensions(spec):
        if name in names.dims or claim(name, span, "a dimension"):
            names.dims.setdefault(name, span)
    sections = (
        (spec.inputs, names.inputs, "an input"),
        (spec.random, names.random, "a random field"),
        (spec.state, names.state, "a state field"),
    )
    for fields, table, what in sections:
        for declared in fields:
            if claim(declared.target.name, declared.target.span, what):
                table[declared.target.name] = declared
    for param in spec.params:
        if claim(param.name, problems.spot(param.span, param.name), "a parameter"):
            names.params[param.name] = param
    for let in spec.lets:
        if claim(let.target.name, let.target.span, "a definition (`let`)"):
            names.lets[let.target.name] = let
    for step in spec.steps:
        for equation in step.equations:
            if not names.what(equation.target.name):
                names.written[equation.target.name] = equation.target.span
    return names


def _dimensions(spec: Spec) -> Iterator[tuple[str, Span]]:
    """Names used as set sizes or vector widths, in order of first appearance."""
    for group in spec.tokens:
        if isinstance(group.size, str):
            yield group.size, group.span
    for declared in (*spec.inputs, *spec.random, *spec.state):
        if isinstance(declared.type.width, str):
            yield declared.type.width, declared.type.span
