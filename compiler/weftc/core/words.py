"""How messages speak: close matches, lists, widths and field references in the user's own notation."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from weftc.core.source import Source, Span
from weftc.core.syntax import Dimension

if TYPE_CHECKING:
    from weftc.core.types import FieldType

LONGEST_GUESSED = 40  # characters; a close match of something longer is not worth the time it takes
MOST_CANDIDATES = 200


def closest(name: str, candidates: Iterable[str], alike: float = 0.6) -> str | None:
    """The candidate a name was probably meant to be; a case slip counts as closest."""
    pool = list(dict.fromkeys(candidates))[:MOST_CANDIDATES]
    if len(name) > LONGEST_GUESSED:
        return None
    for candidate in pool:
        if candidate.lower() == name.lower() and candidate != name:
            return candidate
    # One edit in a short word is a small ratio: `gama`/`gamma` is 0.89, `xx`/`x` only 0.67.
    near = get_close_matches(name, pool, 1, alike)
    return near[0] if near else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`did you mean 'gamma'?`, or nothing when no candidate is close."""
    guess = closest(name, candidates)
    return f"did you mean '{guess}'?" if guess else ""


def listed(names: Iterable[str], most: int = 12) -> str:
    """`a, b, c`, cut short when there are many."""
    names = list(names)
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def joined(names: Iterable[str], word: str = "and") -> str:
    """`a, b and c`."""
    *head, last = list(names)
    return f"{', '.join(head)} {word} {last}" if head else last


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`, `2 indices`."""
    many = {"index": "indices", "entry": "entries"}.get(noun, noun + "s")
    return f"{count} {noun if count == 1 else many}"


def width_words(width: Dimension | None) -> str:
    """`a number` or `a vector of R^d`."""
    return "a number" if width is None else f"a vector of R^{width}"


def field_words(field: FieldType) -> str:
    """What a field holds: `a vector of R^d per points token`."""
    if field.columns is not None:
        return f"a {field.kind} pair field of {field.home} and {field.columns}"
    return f"{width_words(field.width)} per {field.home} token"


def written(name: str, indices: Iterable[str]) -> str:
    """`y[i,j]`, or the bare name."""
    inside = ",".join(indices)
    return f"{name}[{inside}]" if inside else name


def declared_at(source: Source, *spans: Span) -> str:
    """`declared at spec.weft:3:9`."""
    return "declared at " + joined(source.place(span) for span in spans)
