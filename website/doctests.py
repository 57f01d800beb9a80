"""Docstrings as Python writes them -> Markdown: `>>> ` and what follows it becomes a block of code."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with a fence around each example: from `>>>` to the next empty line."""
    out, inside = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith(">>> ") and not inside:
            out += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line.strip() if inside and line.lstrip().startswith((">>>", "...")) else line)
    return "\n".join([*out, "```"] if inside else out)
