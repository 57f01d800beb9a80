"""Grammar and registries -> the colours of a spec: for terminals, for Pygments (`pygments_lexer`), for editors.

One table says what is recognised and one what that is called in each world; every word in them comes from the grammar
or from `weftc.core.syntax`. `python -m weftc.language.highlight` prints the TextMate grammar,
editors/weft.tmLanguage.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from weftc.core.source import printable
from weftc.core.vocabulary import FUNCTIONS, INITIALISERS, REDUCTIONS, TIE_RULES, WEIGHTINGS
from weftc.language.parse.grammar import grammar_text, load
from weftc.language.parse.lexer import SECTIONS
from weftc.language.parse.tree_declarations import KINDS


class TokenStyle(NamedTuple):
    """What one class of words is called: a Pygments token, a TextMate scope, a colour of the terminal."""

    pygments: str
    scope: str
    colour: str


LOOKS = {
    "comment": TokenStyle("Comment.Single", "comment.line.number-sign", "90"),
    "text": TokenStyle("String.Double", "string.quoted.double", "32"),
    "number": TokenStyle("Number", "constant.numeric", "36"),
    "section": TokenStyle("Keyword.Declaration", "keyword.control", "1;34"),
    "keyword": TokenStyle("Keyword", "keyword.other", "34"),
    "type": TokenStyle("Keyword.Type", "storage.type", "33"),
    "choice": TokenStyle("Name.Constant", "support.constant", "33"),  # a rule for ties, an initialiser
    "reduction": TokenStyle("Name.Builtin", "support.function.reduction", "35"),
    "weighting": TokenStyle("Name.Builtin", "support.function.weighting", "35"),
    "function": TokenStyle("Name.Builtin", "support.function", "35"),
    "algorithm": TokenStyle("Name.Class", "entity.name.type", "1"),
    "name": TokenStyle("Name.Variable", "variable.other", ""),
    "operator": TokenStyle("Operator", "keyword.operator", ""),
    "bracket": TokenStyle("Punctuation", "punctuation", ""),
    "space": TokenStyle("Text.Whitespace", "", ""),
}
BRACKETS = "()[]{},:"
WRONG = "31"  # the colour of what no spec may contain


class HighlightRule(NamedTuple):
    """A regular expression and the class of each of its groups; without groups, of the whole."""

    pattern: str
    classes: tuple[str, ...]


@cache
def words() -> dict[str, tuple[str, ...]]:
    """Class -> the words of the language that always belong to it."""
    reserved = tuple(word for word in load().terminals if word.isidentifier())
    called = _quoted(r'"(\w+)" "\("')  # count(points)
    types = _quoted(r'^type: "(\w+)"')  # R; the names of the others are words only behind a colon
    return {
        "section": SECTIONS,
        "reduction": tuple(REDUCTIONS),
        "weighting": tuple(WEIGHTINGS),
        "function": (*FUNCTIONS, *called),
        "type": types,
        "keyword": tuple(word for word in reserved if word not in (*SECTIONS, *called, *types)),
    }


def _quoted(pattern: str) -> tuple[str, ...]:
    """Words that the grammar quotes in a certain place."""
    return tuple(re.findall(pattern, grammar_text(), re.MULTILINE))


@cache
def rules() -> tuple[HighlightRule, ...]:
    """What is recognised, the first that fits wins."""
    name, gap = _terminal("NAME"), r"\s+"
    marks = [mark for mark in load().terminals if not mark.isidentifier()]
    operators = [mark for mark in marks if mark not in BRACKETS]
    return (
        HighlightRule(r"\s+", ("space",)),
        HighlightRule(_terminal("COMMENT"), ("comment",)),
        HighlightRule(_terminal("STRING"), ("text",)),
        HighlightRule(rf"(algorithm)({gap})({name})", ("section", "space", "algorithm")),
        HighlightRule(rf"(:)(\s*)({_any(KINDS)})", ("bracket", "space", "type")),
        HighlightRule(r"one[ \t]+of(?=[ \t]*\{)", ("type",)),
        HighlightRule(rf"(ties)({gap})({_any(TIE_RULES)})", ("keyword", "space", "choice")),
        HighlightRule(rf"(init)({gap})({_any(INITIALISERS)})", ("keyword", "space", "choice")),
        *(HighlightRule(_any(found), (class_,)) for class_, found in words().items()),
        HighlightRule(name, ("name",)),
        HighlightRule(_terminal("NUMBER"), ("number",)),
        HighlightRule(_either(operators), ("operator",)),
        HighlightRule(_either([mark for mark in marks if mark in BRACKETS]), ("bracket",)),
    )


def _terminal(name: str) -> str:
    """The regular expression of a terminal, as the grammar writes it, without groups."""
    found = re.search(rf"^{name}: /(.*)/$", grammar_text(), re.MULTILINE)
    assert found is not None, f"the grammar has no {name}"
    return re.sub(r"(?<!\\)\((?!\?)", "(?:", found.group(1))


def _any(found: Iterable[str]) -> str:
    """Any of some words, whole: `means` is not `mean`."""
    return rf"\b(?:{'|'.join(found)})(?![A-Za-z0-9_'])"


def _either(marks: Iterable[str]) -> str:
    """Any of some marks, the longest that fits."""
    return "|".join(re.escape(mark) for mark in sorted(marks, key=lambda mark: (-len(mark), mark)))


# ---- terminals -------------------------------------------------------------------------------------------------------


def classified(text: str) -> Iterator[tuple[str, str]]:
    """The text in pieces, each with its class; "" for what no spec may contain."""
    compiled, at = _compiled(), 0
    while at < len(text):
        for pattern, classes in compiled:
            match = pattern.match(text, at)
            if match is not None:
                yield from zip(classes, match.groups() or (match.group(),), strict=True)
                at = match.end()
                break
        else:
            yield "", text[at]
            at += 1


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    return tuple((re.compile(rule.pattern), rule.classes) for rule in rules())


def coloured(text: str) -> str:
    """The text of a spec with the colours of a terminal; control characters in it are escaped."""
    return "".join(_coloured(class_, piece) for class_, piece in classified(text))


def _coloured(class_: str, piece: str) -> str:
    colour = LOOKS[class_].colour if class_ else WRONG
    shown = re.sub(r"[^ \n]", " ", piece) if class_ == "space" else printable(piece)
    return f"\033[{colour}m{shown}\033[0m" if colour else shown


# ---- editors ---------------------------------------------------------------------------------------------------------


def textmate() -> str:
    """The TextMate grammar, as JSON: what VS Code, Sublime Text and GitHub colour by."""
    patterns = [_textmate_rule(rule) for rule in rules() if rule.classes != ("space",)]
    grammar = {"name": "Weft", "scopeName": "source.weft", "fileTypes": ["weft"], "patterns": patterns}
    return json.dumps(grammar, indent=2) + "\n"


def _textmate_rule(rule: HighlightRule) -> dict[str, object]:
    scopes = [f"{LOOKS[class_].scope}.weft" if LOOKS[class_].scope else "" for class_ in rule.classes]
    if len(scopes) == 1:
        return {"name": scopes[0], "match": rule.pattern}
    captures = {str(at): {"name": scope} for at, scope in enumerate(scopes, start=1) if scope}
    return {"match": rule.pattern, "captures": captures}


if __name__ == "__main__":
    print(textmate(), end="")
