"""What notebooks show of values that know nothing of pictures: whoever draws them registers here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_places: dict[str, str] = {}


def register(**places: str) -> None:
    """Says where values are drawn: `register(spec="package.module:function")`."""
    _places.update(places)


def html(kind: str, value: object) -> str | None:
    """A value as HTML; None where nobody draws its kind, so that a notebook shows its text."""
    if kind not in _places:
        return None
    module, _, name = _places[kind].partition(":")
    draw: Callable[[Any], str] = getattr(import_module(module), name)
    return draw(value)
