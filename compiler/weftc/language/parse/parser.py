"""Tokens -> whatever the rules build, by the LALR(1) tables that lark made of the grammar.

Rules are called as they are recognised, innermost first, so nothing here or in the rules is recursive and deep nesting
costs no stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weftc.core.source import Span
from weftc.language.parse.lexer import END, Token

Build = Callable[[str, Span, list[Any]], Any]


@dataclass(frozen=True, slots=True)
class GrammarRule:
    """One alternative of a grammar rule, and how its parts become the arguments of `Build`.

    `parts` are positions of symbols to keep, -1 for an optional part that is absent; a negative number -2-p splices in
    the list at position p (the repetitions and `_rules` of the grammar).
    """

    origin: str
    size: int
    name: str
    parts: tuple[int, ...]
    inline: bool  # becomes a list that its user splices in
    lone: bool  # stands for its only part, if there is just one


@dataclass(frozen=True, slots=True)
class Tables:
    """States of the automaton: what to do at each symbol, a state to go to (>= 0) or a rule to apply (-1 - rule)."""

    terminals: Mapping[str, str]  # words and marks -> their terminal
    rules: tuple[GrammarRule, ...]
    states: tuple[Mapping[str, int], ...]
    start: int


class Unexpected(Exception):
    """A token that no rule allows here."""

    def __init__(self, at: int, token: Token, stack: list[int]) -> None:
        self.at, self.token, self.stack = at, token, stack


def run(tables: Tables, tokens: Sequence[Token], build: Build) -> Any:
    """Parses the tokens, or raises `Unexpected` at the first that does not fit."""
    states, rules = tables.states, tables.rules
    stack = [tables.start]
    values: list[tuple[Any, int, int]] = []  # (value, start, end)
    last = tokens[-1].end if tokens else 0
    for at, token in enumerate((*tokens, Token(END, "", last, last))):
        while True:
            action = states[stack[-1]].get(token.type)
            if action is None:
                raise Unexpected(at, token, stack)
            if action >= 0:
                stack.append(action)
                values.append((token, token.start, token.end))
                break
            rule = rules[-1 - action]
            values_of_rule = values[len(values) - rule.size :] if rule.size else []
            if rule.size:
                del stack[-rule.size :]
                del values[-rule.size :]
            values.append(_apply(rule, values_of_rule, token.start, build))
            stack.append(states[stack[-1]][rule.origin])
            if token.type == END and rule.origin == "start":
                return values[-1][0]
    raise AssertionError("the end is always accepted or unexpected")


def _apply(rule: GrammarRule, values: list[tuple[Any, int, int]], here: int, build: Build) -> tuple[Any, int, int]:
    start, end = (values[0][1], values[-1][2]) if values else (here, here)
    kept: list[Any] = []
    parts = rule.parts
    if rule.inline and parts and parts[0] < -1:  # a repetition grows in place: it has no other owner
        kept, parts = values[-2 - parts[0]][0], parts[1:]
    for part in parts:
        if part >= 0:
            kept.append(values[part][0])
        elif part == -1:
            kept.append(None)
        else:
            kept.extend(values[-2 - part][0])
    if rule.inline:
        return kept, start, end
    if rule.lone and len(kept) == 1:
        return kept[0], start, end
    return build(rule.name, Span(start, end), kept), start, end


def allowed(tables: Tables, stack: Sequence[int]) -> list[str]:
    """The terminals that can come next; LALR lookaheads promise more, so each is tried."""
    return sorted(
        name for name in tables.states[stack[-1]] if name.isupper() or name == END if _shifts(tables, stack, name)
    )


def _shifts(tables: Tables, stack: Sequence[int], terminal: str) -> bool:
    trial = list(stack)
    while True:
        action = tables.states[trial[-1]].get(terminal)
        if action is None:
            return False
        if action >= 0:
            return True
        rule = tables.rules[-1 - action]
        if rule.size:
            del trial[-rule.size :]
        if rule.origin == "start":
            return terminal == END
        trial.append(tables.states[trial[-1]][rule.origin])
