"""grammar.lark -> the grammar as people read it: EBNF without the machinery of the parser.

    [x]  perhaps    {x}  any number of times    {x}+  at least once    (a | b)  one of these    "word"  as it stands

Terminals of one word are written out; lists of words become rules of their own; the others stay names in capitals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weftc.language.parse.grammar import grammar_text

WIDEST = 110
COMMA = '","'
_RULE = re.compile(r"^[?!]*(_?[a-z]\w*):(.*)$")
_TERMINAL = re.compile(r"^([A-Z]+)(?:\.\d+)?:\s*(.*)$")
_PIECE = re.compile(r'\s*("[^"]*"|->\s*\w+|\w+|[()\[\]|?*+])')


@dataclass(frozen=True, slots=True)
class Production:
    """A rule: its name and its alternatives, each written in EBNF."""

    name: str
    alternatives: tuple[str, ...]


def productions() -> tuple[Production, ...]:
    """The rules of the grammar, in order."""
    words = _words()
    rules = [Production(name.lstrip("_"), _Reader(body, words).alternatives()) for name, body in _rules(grammar_text())]
    return (*rules, *(Production(name, _Reader(body, words).alternatives()) for name, body in _lists().items()))


def grammar() -> str:
    """The whole grammar."""
    found = productions()
    width = max(len(production.name) for production in found)
    return "\n".join(_shown(production, width) for production in found)


def _shown(production: Production, width: int) -> str:
    head = f"{production.name:{width}} = "
    line = head + " | ".join(production.alternatives)
    if len(line) <= WIDEST:
        return line
    return head + f"\n{' ' * width} | ".join(production.alternatives)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _rules(text: str) -> list[tuple[str, str]]:
    """Names and right-hand sides; a line that starts with white space goes on with the rule before it."""
    found: list[tuple[str, str]] = []
    for line in (re.sub(r"\s*//.*$", "", line) for line in text.splitlines() if not _TERMINAL.match(line)):
        rule = _RULE.match(line)
        if rule:
            found.append((rule[1], rule[2]))
        elif line[:1].isspace() and found:
            name, body = found.pop()
            found.append((name, f"{body} {line.strip()}"))
    return found


def _words() -> dict[str, str]:
    """Terminals that stand for one word."""
    found = {name: body for name, body in _terminals() if body.startswith('"')}
    return {"NEXT": COMMA, **found}


def _lists() -> dict[str, str]:
    """Terminals that stand for one of several words."""
    listed = ((name, re.fullmatch(r"/\(([a-z0-9|]+)\)\\b/", body)) for name, body in _terminals())
    return {name: " | ".join(f'"{word}"' for word in words[1].split("|")) for name, words in listed if words}


def _terminals() -> list[tuple[str, str]]:
    found = (_TERMINAL.match(line) for line in grammar_text().splitlines())
    return [(terminal[1], terminal[2]) for terminal in found if terminal]


class _Reader:
    """Reads one right-hand side."""

    def __init__(self, body: str, words: dict[str, str]) -> None:
        self.pieces = [piece for piece in _PIECE.findall(body) if not piece.startswith("->")]
        self.words = words
        self.at = 0

    def alternatives(self) -> tuple[str, ...]:
        found = [self._sequence()]
        while self._here() == "|":
            self.at += 1
            found.append(self._sequence())
        return tuple(found)

    def _here(self) -> str:
        return self.pieces[self.at] if self.at < len(self.pieces) else ""

    def _sequence(self) -> str:
        items = []
        while self._here() not in ("", "|", ")", "]"):
            items.append(self._item())
        return " ".join(items)

    def _item(self) -> str:
        piece, grouped = self._here(), False
        self.at += 1
        if piece in ("(", "["):
            inside = self.alternatives()
            self.at += 1  # the closing bracket
            item, grouped = " | ".join(inside), True
            if piece == "[":
                return f"[{item}]"
        else:
            item = self.words.get(piece, piece.lstrip("_"))
        suffix = self._here()
        if suffix in ("?", "*", "+"):
            self.at += 1
            return {"?": f"[{item}]", "*": f"{{{item}}}", "+": f"{{{item}}}+"}[suffix]
        return f"({item})" if grouped else item
