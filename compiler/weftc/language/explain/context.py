"""A token that does not fit, and what a rule needs to know to explain it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weftc.core.source import Span
from weftc.language.check.problems import Problems
from weftc.language.parse.lexer import Token, section_before
from weftc.language.parse.regions import first_on_line

VALUE = frozenset(("NAME", "NUMBER", "LPAR"))  # all of these are allowed exactly where a value is expected
CLAUSES = ("where", "among", "weighted", "by", "ties", "noise")
PREFIX = ("REDUCTION", "WEIGHTING")
ENDS_VALUE = ("NAME", "INT", "NUMBER", "RSQB", "RPAR", "PERCENT")
STARTS_VALUE = ("NAME", "INT", "NUMBER", "LPAR", "FUNCTION", "OF_TWO", "COUNT", "INDEX", *PREFIX)
LONGEST_QUOTED = 24


@dataclass(frozen=True, slots=True)
class Trouble:
    """A token that does not fit, with all tokens, and what could have stood in its place."""

    tokens: Sequence[Token]
    at: int
    token: Token
    expected: frozenset[str]
    region: int  # the first token of the region to blame
    terminals: Mapping[str, str]
    problems: Problems

    def before(self, count: int = 1) -> Token | None:
        """The token `count` places to the left."""
        return self.tokens[self.at - count] if self.at >= count else None

    def after(self) -> Token | None:
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None

    def allows(self, text: str) -> bool:
        return self.terminals.get(text) in self.expected

    @property
    def section(self) -> str:
        """The section the token is in."""
        word = section_before(self.tokens[: self.at])
        return "" if word is None else word.text

    def line_start(self, at: int) -> bool:
        return first_on_line(self.tokens, at, self.problems.source.text)

    def declared(self) -> set[str]:
        """Names that are declared or written somewhere: `NAME[` or `NAME =` at the start of something."""
        known = set()
        for at, token in enumerate(self.tokens[:-1]):
            if token.type == "NAME" and self.tokens[at + 1].text in ("=", "+=", "-=", ":", "in"):
                known.add(token.text)
            if token.text in ("=", "+=", "-=", ":") and at and self.tokens[at - 1].text == "]":
                start = at - 1
                while start and self.tokens[start].text != "[":
                    start -= 1
                known.add(self.tokens[max(0, start - 1)].text)
        return known

    def behind(self) -> Span:
        """Where to point when something is missing before the token: at it, or at the end of the line before."""
        return self.tokens[self.at - 1].span if self.at and self.line_start(self.at) else self.token.span

    def say(self, code: str, message: str, label: str = "", *notes: str, span: Span | None = None) -> bool:
        self.problems.add(code, span or self.token.span, message, label, *notes)
        return True

    def target(self) -> int:
        """Where the `NAME` or `NAME[...]` that ends before the token starts."""
        at = self.at - 1
        if self.tokens[at].text == "]":
            while at > self.region and self.tokens[at].text != "[":
                at -= 1
            at -= 1
        return max(at, 0)

    def text(self, start: int) -> str:
        """The source from a token up to the one in trouble."""
        first, last = self.tokens[start], self.tokens[self.at - 1]
        text = " ".join(self.problems.source.text[first.start : last.end].split())
        return text if len(text) <= LONGEST_QUOTED else text[: LONGEST_QUOTED - 3] + "..."


Rule: TypeAlias = Callable[[Trouble], bool]  # whether it explained the trouble
