"""The rules of `weftc.language.highlight` -> a Pygments lexer, found by Pygments under the name weftc.

The only module that imports Pygments; nothing else of Weft imports it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import string_to_tokentype

from weftc.language.highlight import LOOKS, HighlightRule, rules


def _action(rule: HighlightRule) -> Any:
    tokens = [string_to_tokentype(LOOKS[class_].pygments) for class_ in rule.classes]
    return tokens[0] if len(tokens) == 1 else bygroups(*tokens)


class WeftLexer(RegexLexer):  # type: ignore[misc]
    """Specs of algorithms over sets of vectors."""

    name = "Weft"
    aliases: ClassVar[list[str]] = ["weft"]
    filenames: ClassVar[list[str]] = ["*.weft"]
    mimetypes: ClassVar[list[str]] = ["text/x-weft"]
    tokens: ClassVar[dict[str, Any]] = {"root": [(rule.pattern, _action(rule)) for rule in rules()]}

    @staticmethod
    def analyse_text(text: str) -> float:
        """How likely a text is a spec: it names an algorithm and its tokens."""
        starts = {line.split(maxsplit=1)[0] for line in text.split("\n") if line and not line[0].isspace()}
        return 0.9 if {"algorithm", "tokens"} <= starts else 0.0
