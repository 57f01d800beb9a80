"""Text of a spec -> the text as it is usually written. What `weftc fmt` and `weftc.format` do."""

from __future__ import annotations

from weftc.core.source import Source
from weftc.language.format.columns import comment_columns
from weftc.language.format.faithful import ensure_same
from weftc.language.format.layout import layout
from weftc.language.format.lexemes import lexemes
from weftc.language.format.lines import written
from weftc.language.format.outline import outline
from weftc.language.parse.parse import trees


def format(text: str | Source) -> str:
    """The spec in the house style, its comments and line breaks kept; a `SpecError` if it does not parse.

    Formatting changes nothing but white space and optional commas, and formatting twice changes nothing more. Lines
    end as the first line of the text does.

    >>> import weftc
    >>> print(weftc.format("algorithm a tokens i in points inputs x[i]:R layer x[i]=x[i]*2 outputs x"), end="")
    algorithm a
    <BLANKLINE>
    tokens  i in points
    <BLANKLINE>
    inputs  x[i] : R
    <BLANKLINE>
    layer
      x[i] = x[i]*2
    <BLANKLINE>
    outputs x
    """
    given = text if isinstance(text, Source) else Source("spec", text)
    source = Source(given.name, given.text.replace("\r\n", "\n"))
    lines = layout(*outline(trees(source), *lexemes(source)))
    rows = [
        ("\n" if line.blank else "") + written(line, column)
        for line, column in zip(lines, comment_columns(lines), strict=True)
    ]
    formatted = "".join(f"{row}\n" for row in rows)
    ensure_same(source, formatted)
    return formatted.replace("\n", line_end(given.text))


def line_end(text: str) -> str:
    """How the lines of a text end."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"
