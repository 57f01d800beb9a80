"""Text that parses -> its tokens, each with what stands before it: comments, line ends, blank lines.

Between two tokens there is nothing but white space and comments, so the tokens and the gaps between them are the whole
text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weftc.core.source import Source
from weftc.language.check.problems import Problems
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import Token, tokenize

_COMMENT = re.compile(r"#[^\n]*")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment from its `#` on. `column` counts from 0."""

    text: str
    start: int
    column: int
    own_line: bool
    after_blank: bool
    continues: bool  # on the line below another comment, in the same column, where that one stands behind code


@dataclass(frozen=True, slots=True)
class Gap:
    """What stands between two tokens."""

    comments: tuple[Comment, ...] = ()
    touching: bool = False  # nothing at all
    broken: bool = False  # the second token starts a line
    blank: bool = False  # a blank line directly before the second token

    def then(self, other: Gap) -> Gap:
        """Both gaps, when the token between them is left out."""
        blank = other.blank or (self.blank and not other.comments)
        return Gap((*self.comments, *other.comments), False, self.broken or other.broken, blank)


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A token and the gap before it."""

    token: Token
    gap: Gap

    @property
    def text(self) -> str:
        return self.token.text


def lexemes(source: Source) -> tuple[list[Lexeme], Gap]:
    """The tokens of a text, and what stands behind the last."""
    tokens = tokenize(source.text, load().terminals, Problems(source))
    ends = [0, *(token.end for token in tokens)]
    found = [Lexeme(token, _gap(source.text, end, token.start)) for end, token in zip(ends, tokens, strict=False)]
    return found, _gap(source.text, ends[-1], len(source.text))


def _gap(text: str, start: int, end: int) -> Gap:
    comments: list[Comment] = []
    at, line_ends = start, 0 if start else 1  # the top of a text is the start of a line
    for match in _COMMENT.finditer(text, start, end):
        newlines = text.count("\n", at, match.start())
        line_ends += newlines
        column = match.start() - text.rfind("\n", 0, match.start()) - 1
        above = comments[-1] if comments else None
        continues = above is not None and newlines == 1 and above.column == column
        continues = continues and above is not None and (above.continues or not above.own_line)
        blank = newlines > 1
        comments.append(Comment(match.group().rstrip(), match.start(), column, line_ends > 0, blank, continues))
        at = match.end()
    newlines = text.count("\n", at, end)
    return Gap(tuple(comments), start == end, line_ends + newlines > 0, newlines > 1)
