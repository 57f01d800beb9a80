"""What the rules of the grammar pass on to each other besides the nodes of the syntax tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from weftc.core.source import Span

if TYPE_CHECKING:
    from weftc.language.parse.tree import Builder

Rule: TypeAlias = "Callable[[Builder, Span, list[Any]], Any]"


class Clause(NamedTuple):
    """What stands behind a reduction or in a weighting: `where ...`, `weighted ...`."""

    name: str
    span: Span
    value: Any


class Section(NamedTuple):
    """A section with what it declares."""

    name: str
    span: Span
    parts: list[Any]
