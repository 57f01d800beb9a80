"""Tokens of one item -> pieces: how much space goes before each, and where a long line may be broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from weftc.language.format.lexemes import Gap, Lexeme
from weftc.language.format.roles import Placed, Role, roles

# How loosely what stands around a break hangs together; within brackets it hangs together more.
LOOSENESS = {"else": 0, "+": 2, "-": 2, "and": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "!=": 3, "*": 4, "/": 4}
OTHER_LOOSENESS = 1  # of clauses and commas
LEVELS = 10  # more than there are kinds of looseness
TIGHT_AFTER: tuple[Role, ...] = ("open", "call", "index", "interval", "sign", "power", "index comma")
TIGHT_BEFORE: tuple[Role, ...] = ("close", "call", "index", "power", "percent", "comma", "index comma")


@dataclass(frozen=True, slots=True)
class Piece:
    """A token as it will be written. `rank` of a place to break before it, the best is lowest; None: no such place."""

    text: str
    gap: Gap
    space: int
    rank: int | None
    broken: bool  # the line is broken at this place: the author did so


def pieces(lexemes: Sequence[Lexeme], fractions: bool = False) -> list[Piece]:
    """The tokens of an item with their spacing; `fractions`: its `/` are those of numbers such as 1/2."""
    placed = roles(lexemes)
    tight = [_tight(lexemes, placed, at, fractions) for at in range(len(lexemes))]
    found: list[Piece] = []
    condition = interval = False
    for at, (lexeme, (role, _)) in enumerate(zip(lexemes, placed, strict=True)):
        condition = condition or lexeme.text == "where"
        interval = interval or role == "interval"
        rank = None if at == 0 or interval else _rank(lexeme.text, placed[at], placed[at - 1], condition)
        space = 0 if at == 0 else 2 if lexeme.text == "init" else _space(role, placed[at - 1].role)
        if tight[at] or (at and tight[at - 1]):
            space, rank = 0, None
        found.append(Piece(lexeme.text, lexeme.gap, space, rank, lexeme.gap.broken))
    return _moved(found, placed)


def _space(role: Role, before: Role) -> int:
    return 0 if role in TIGHT_BEFORE or before in TIGHT_AFTER else 1


def _tight(lexemes: Sequence[Lexeme], placed: Sequence[Placed], at: int, fractions: bool) -> bool:
    """Whether an operator is written without spaces: `2*h`, `1/k`, `x[i-1]` stay as their author wrote them."""
    within = {"*", "/"} | ({"+", "-"} if _in_index(placed, at) else set())
    if lexemes[at].text not in within or placed[at].role != "operator":
        return False
    return fractions or (lexemes[at].gap.touching and lexemes[at + 1].gap.touching)


def _in_index(placed: Sequence[Placed], at: int) -> bool:
    """Whether a token stands in the brackets of an index: `x[i-1]`."""
    around = (one.role for one in reversed(placed[:at]) if one.depth == placed[at].depth - 1)
    return placed[at].depth > 0 and next(around, "") == "index"


def _rank(text: str, here: Placed, before: Placed, condition: bool) -> int | None:
    compares = LOOSENESS.get(text) == LOOSENESS["<"]
    breaks = here.role == "clause" or (here.role == "operator" and (condition or not compares))
    if breaks:
        return LEVELS * here.depth + LOOSENESS.get(text, OTHER_LOOSENESS)
    return LEVELS * here.depth + OTHER_LOOSENESS if before.role == "comma" else None


def _moved(found: Sequence[Piece], placed: Sequence[Placed]) -> list[Piece]:
    """Breaks behind an operator or before a comma move to where breaks go; those at other places are dropped."""
    broken = [piece.rank is not None and piece.broken for piece in found]
    for at, (piece, after) in enumerate(pairwise(found)):
        if placed[at].role == "comma" and piece.broken and after.rank is not None:
            broken[at + 1] = True
        elif placed[at].role in ("operator", "clause") and piece.rank is not None and after.broken:
            broken[at] = broken[at] or not after.gap.comments
    return [replace(piece, broken=kept) for piece, kept in zip(found, broken, strict=True)]
