"""Where a parser can start again after a mistake, and brackets that do not match.

A region starts at a line that begins with a section word, with `then`, or with `NAME[...]` and `=`, `+=`, `-=` or `:`.
None of these can stand inside brackets, so brackets must match within each region.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from weftc.core.source import Span
from weftc.language.check.problems import Problems
from weftc.language.parse.lexer import SECTIONS, Token

DEEPEST_BRACKETS = 200
OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {")": "(", "]": "[", "}": "{"}


def regions(tokens: Sequence[Token], text: str) -> list[int]:
    """Positions of the tokens that start a region; the first is 0."""
    starts = [0]
    for at, token in enumerate(tokens):
        if (
            at
            and first_on_line(tokens, at, text)
            and (token.text in SECTIONS or token.text == "then" or token.type == "USE" or _defines(tokens, at))
        ):
            starts.append(at)
    return starts


def first_on_line(tokens: Sequence[Token], at: int, text: str) -> bool:
    """Whether a token is the first on its line; the end of the file counts as one."""
    return at == 0 or at >= len(tokens) or "\n" in text[tokens[at - 1].end : tokens[at].start]


def _defines(tokens: Sequence[Token], at: int) -> bool:
    """Whether `NAME[...] =` or `NAME[...] :` starts here."""
    if tokens[at].type != "NAME" or at + 1 >= len(tokens) or tokens[at + 1].text != "[":
        return False
    for position in range(at + 2, min(at + 12, len(tokens) - 1)):
        if tokens[position].text == "]":
            return tokens[position + 1].text in ("=", "+=", "-=", ":")
        if tokens[position].type not in ("NAME", "COMMA"):
            return False
    return False


def region_of(starts: Sequence[int], at: int) -> int:
    """The number of the region a token lies in."""
    return bisect_right(starts, at) - 1


def brackets(tokens: Sequence[Token], starts: Sequence[int], problems: Problems) -> set[int]:
    """Reports brackets without a partner, one per region; the regions that have one."""
    broken: set[int] = set()
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(tokens)
        if not _balanced(tokens, start, end, problems):
            broken.add(number)
    return broken


def _balanced(tokens: Sequence[Token], start: int, end: int, problems: Problems) -> bool:
    stack: list[tuple[Token, bool]] = []
    for at in range(start, end):
        token = tokens[at]
        if token.text in OPENING:
            half_open = at > 0 and tokens[at - 1].text == "in"  # a range: [0, 100) may close with either
            stack.append((token, half_open))
            if len(stack) > DEEPEST_BRACKETS:
                problems.add(
                    "P120",
                    token.span,
                    f"brackets are nested more than {DEEPEST_BRACKETS} deep",
                    "",
                    "give inner parts names (`let`)",
                )
                return False
        elif token.text in CLOSING:
            if not stack:
                problems.add(
                    "P121", token.span, f"this {token.text} closes nothing", f"no {CLOSING[token.text]} is open here"
                )
                return False
            opened, half_open = stack.pop()
            if OPENING[opened.text] != token.text and not half_open:
                problems.add(
                    "P122",
                    opened.span,
                    f"this {opened.text} is closed by {token.text}",
                    f"expected {OPENING[opened.text]}",
                    f"the {token.text} is at {_place(problems, token)}",
                )
                return False
    if stack:
        opened = stack[-1][0]
        problems.add(
            "P122",
            opened.span,
            f"this {opened.text} is never closed",
            f"expected {OPENING[opened.text]}",
            _until(problems, tokens[end - 1].span),
        )
        return False
    return True


def _place(problems: Problems, token: Token) -> str:
    line, column = problems.source.position(token.start)
    return f"line {line}, column {column}"


def _until(problems: Problems, last: Span) -> str:
    line, column = problems.source.position(last.end)
    return f"what belongs to it ends at line {line}, column {column}"
