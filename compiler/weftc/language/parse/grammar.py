"""grammar.json -> the parse tables; without it, or when the grammar has changed since, lark makes them on the spot.

Building takes half a second, reading a few milliseconds. `weftc.language.parse.build_parse_tables` writes the file.
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from weftc.core.vocabulary import FUNCTIONS, REDUCTIONS, WEIGHTINGS
from weftc.language.parse.parser import GrammarRule, Tables


def grammar_file() -> str:
    """The grammar without the words of the vocabulary, on which the tables do not depend."""
    return files("weftc.language.parse").joinpath("grammar.lark").read_text(encoding="utf-8")


def grammar_text() -> str:
    """The grammar."""
    text = grammar_file()
    for name, words in (("REDUCTIONS", REDUCTIONS), ("WEIGHTINGS", WEIGHTINGS), ("FUNCTIONS", FUNCTIONS)):
        text = text.replace(f"/{name}\\b/", rf"/({'|'.join(words)})\b/")
    return text


@cache
def load() -> Tables:
    """The tables of the grammar."""
    shipped = files("weftc.language.parse").joinpath("grammar.json")
    if shipped.is_file():
        data = json.loads(shipped.read_text(encoding="utf-8"))
        if data["grammar"] == digest():
            return _tables(data)
    from weftc.language.parse.build_parse_tables import build  # the only path that needs lark

    return _tables(build())


def digest() -> str:
    """What says that tables belong to the grammar."""
    return sha256(grammar_file().encode()).hexdigest()


def _tables(data: dict[str, Any]) -> Tables:
    rules = tuple(
        GrammarRule(o, n, name, tuple(parts), inline, lone) for o, n, name, parts, inline, lone in data["rules"]
    )
    symbols = data["symbols"]
    rows = [{symbols[at]: action for at, action in zip(row[::2], row[1::2], strict=True)} for row in data["rows"]]
    return Tables(data["terminals"], rules, tuple(rows[row] for row in data["states"]), data["start"])
