"""Tokens of one item -> what each of them does there.

`-`, `|`, `<`, `[` and `(` mean different things in different places. One walk over the tokens tells them apart by
whether a value has just ended and by the bracket that is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from weftc.language.format.lexemes import Lexeme

Role = Literal[
    "word",  # of the language: sum, where, =, init
    "value",  # a name, a number, a text
    "sign",  # the minus of -x
    "operator",  # between two values: + - * / and comparisons
    "clause",  # starts one: where, else, by
    "power",
    "percent",
    "comma",  # between arguments, rows and numbers
    "index comma",
    "index",  # the [ of x[i] and sum[i]
    "call",  # the ( of exp(...), softmax[i](...)
    "interval",  # the bracket of in [0, 1)
    "open",
    "close",
]
CLAUSES = ("else", "where", "among", "weighted", "by", "ties", "noise", "and")
OPERATORS = ("+", "-", "*", "/", ".*", "./", "<", "<=", ">", ">=", "!=")
VALUES = ("NAME", "INT", "NUMBER", "STRING", "R", "TRANSPOSED")
PREFIXES = ("REDUCTION", "WEIGHTING")
CALLED = ("FUNCTION", "OF_TWO", "OF_MATRIX", "ONEHOT", "NAME", "RANDOM", "COUNT", "INDEX")


class Placed(NamedTuple):
    """A role, and how many brackets are open around it."""

    role: Role
    depth: int


class _Open(NamedTuple):
    role: Role
    text: str
    owner: str  # type of the token before the bracket


def roles(lexemes: Sequence[Lexeme]) -> list[Placed]:
    """The role of every token of an item."""
    placed: list[Placed] = []
    opened: list[_Open] = []
    before, value = "", False  # type of the token before; whether a value has just ended
    for lexeme in lexemes:
        type_, text = lexeme.token.type, lexeme.text
        inside = opened[-1] if opened else None
        if inside is not None and _closes(text, inside, value):
            opened.pop()
            placed.append(Placed("close", len(opened)))
            prefix = inside.role == "index" and inside.owner in PREFIXES  # sum[i]: its value follows
            before, value = (inside.owner if prefix else type_), not prefix
            continue
        role = _role(lexeme, before, value, inside)
        placed.append(Placed(role, len(opened)))
        if role in ("index", "call", "interval", "open"):
            opened.append(_Open(role, text, before))
        before, value = type_, role in ("value", "percent")
    return placed


def _closes(text: str, inside: _Open, value: bool) -> bool:
    if text in (")", "]", "}"):
        return True
    return (text == "|" and inside.text == "|" and value) or (text == ">" and inside.text == "<")


def _role(lexeme: Lexeme, before: str, value: bool, inside: _Open | None) -> Role:
    """The role of a token that closes nothing."""
    type_, text = lexeme.token.type, lexeme.text
    if type_ in VALUES:
        return "value"
    if text in CLAUSES:
        return "clause"
    if text == ",":
        return "index comma" if inside is not None and inside.role == "index" else "comma"
    if text in ("[", "(") and before == "IN":
        return "interval"
    if text == "[" and before in ("NAME", *PREFIXES):
        return "index"
    if text == "(" and before in (*CALLED, "WEIGHTING"):
        return "call"
    if text in ("[", "(", "{", "|") or (text == "<" and not value):
        return "open"
    if text in OPERATORS:
        return "operator" if value else "sign"
    return {"^": "power", "%": "percent"}.get(text, "word")  # type: ignore[return-value]
