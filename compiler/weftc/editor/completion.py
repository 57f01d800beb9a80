"""A place in a `Document` -> the words and names that can stand there.

Which kinds of words fit is read off the parse tables: the text before the place is parsed, and every terminal that
could come next is asked for. Where a name can stand, what is before it says of which kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from weftc.core.source import NOWHERE
from weftc.core.vocabulary import FUNCTIONS, INITIALISERS, NOISES, REDUCTIONS, TIE_RULES, WEIGHTINGS
from weftc.core.words import written
from weftc.editor.document import Document
from weftc.editor.hover import KIND, MEANINGS, about
from weftc.editor.symbols import SourcePlace
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import SECTIONS, Token, section_before
from weftc.language.parse.parser import Unexpected, allowed, run
from weftc.language.parse.regions import regions
from weftc.language.parse.tree_declarations import KINDS

Sort = Literal["section", "keyword", "weighting", "reduction", "function", "type", "field", "param", "set", "index"]
CLASSES = {"REDUCTION": REDUCTIONS, "WEIGHTING": WEIGHTINGS, "FUNCTION": FUNCTIONS}


@dataclass(frozen=True, slots=True)
class Completion:
    """A word to put in, what is shown for it, and why."""

    text: str
    sort: Sort
    detail: str = ""


def completions(document: Document, offset: int) -> list[Completion]:
    """What can be typed at an offset, the names of this spec first; a word begun before it does not count."""
    if _in_comment_or_text(document, offset):
        return []
    before = [token for token in document.tokens if token.end < offset or _closed(token, offset)]
    terminals = _next(before, document.source.text)
    value = "NUMBER" in terminals or (before and before[-1].type == "FUNCTION")
    found = list(_names(document, before, bool(value))) if "NAME" in terminals else []
    typed = before and before[-1].text == ":"  # `unit R^d` is the one type that starts with a function
    for terminal in terminals:
        words = ["unit"] if typed and terminal == "FUNCTION" else _words(terminal)
        found += [Completion(word, _sort(word), MEANINGS.get(word, "")) for word in words]
    unique = {one.text: one for one in reversed(found)}
    return sorted(unique.values(), key=lambda one: (one.sort in ("section", "keyword"), one.sort, one.text))


def _closed(token: Token, offset: int) -> bool:
    """Whether a token that ends at an offset is finished: a mark is, a word may be about to grow."""
    return token.end == offset and not token.text[0].isalnum()


def _in_comment_or_text(document: Document, offset: int) -> bool:
    line = document.source.text.rfind("\n", 0, offset) + 1
    before = document.source.text[line:offset]
    return "#" in before or before.count('"') % 2 == 1


def _next(before: list[Token], text: str) -> set[str]:
    """The terminals that can follow some tokens. Behind a mistake the region it is in starts afresh."""
    tables = load()
    for start in [0, *reversed(regions(before, text))] if before else [0]:
        rest = [*(_head(before, start) if start else []), *before[start:]]
        try:  # a token of no kind stops the parser before it reduces anything
            run(tables, [*rest, Token("", "", 0, 0)], lambda name, span, parts: None)
        except Unexpected as unexpected:
            if unexpected.at == len(rest):
                return set(allowed(tables, unexpected.stack))
    return set()


def _head(before: list[Token], start: int) -> list[Token]:
    """The tokens that make the rest look like a spec: its head and the section it is in."""
    terminals = load().terminals
    head = [Token(terminals["algorithm"], "algorithm", 0, 0), Token("NAME", "a", 0, 0)]
    if before[start].text in SECTIONS:
        return head if before[start].text != "algorithm" else []
    word = section_before(before[:start])
    section = word.text if word is not None and word.text not in ("algorithm", "phase") else "layer"
    one = [] if before[start].text != "then" else _equation()
    return [*head, Token(terminals[section], section, 0, 0), *one]


def _equation() -> list[Token]:
    """Something for a `then` to follow: `a = 1`."""
    return [Token("NAME", "a", 0, 0), Token(load().terminals["="], "=", 0, 0), Token("INT", "1", 0, 0)]


def _words(terminal: str) -> Iterable[str]:
    """The words of a terminal; marks are typed faster than they are chosen."""
    if terminal in CLASSES:
        return CLASSES[terminal]
    return [word for word, name in load().terminals.items() if name == terminal and word.isidentifier()]


def _sort(word: str) -> Sort:
    kind = KIND.get(word, "type" if word == "R" else "keyword")
    return kind  # type: ignore[return-value]


def _names(document: Document, before: list[Token], value: bool) -> Iterator[Completion]:
    """The names that fit behind what stands before them; `value`: whether an expression can start here."""
    names = document.names
    last, call = (before[-1].text if before else ""), _opened(before)
    found = section_before(before)
    section = "" if found is None else "layer" if found.text == "phase" else found.text
    if last in ("algorithm", "tokens"):
        return
    if last == "init":
        yield from (Completion(word, "keyword", meaning) for word, meaning in INITIALISERS.items())
    elif last == "noise":
        yield from (one for one in _fields(document) if one.text.partition("[")[0] in names.random)
    elif last == "ties":
        yield from _listed(TIE_RULES)
    elif last == ":" and section != "tokens":
        yield from _listed(NOISES if section == "random" else [kind for kind in KINDS if kind not in NOISES])
    elif last in ("^", ":"):
        yield from (_declared(document, name, "param") for name in names.dims)
    elif (last == "in" and section == "tokens") or (last == "(" and call == "count"):
        yield from (_declared(document, name, "set") for name in names.sets)
    elif call == "index" or call.endswith("["):
        yield from (_declared(document, name, "index") for name in _indices(document, before, call))
    elif last == "(" and call in INITIALISERS:
        yield from (_declared(document, name, "field") for name in names.inputs)
    elif section == "example":
        known = [*names.inputs, *names.params, *names.state]
        yield from (_declared(document, name, "field") for name in known)
        outputs = document.spec.outputs if document.spec is not None else ()
        yield from (Completion(one.target.name, "field", "output") for one in outputs)
    elif section in ("param", "learn"):
        yield from (_declared(document, name, "param") for name in (*names.params, *names.dims))
    elif value:
        yield from _fields(document)
        yield from (_declared(document, name, "param") for name in (*names.params, *names.dims))
    elif section == "layer":
        yield from (one for one in _fields(document) if one.text.partition("[")[0] not in names.random)
    elif section == "outputs":
        yield from (Completion(one.text.partition("[")[0], "field", one.detail) for one in _fields(document))


def _fields(document: Document) -> Iterator[Completion]:
    """Every field and definition, with its indices."""
    names = document.names
    targets = [one.target for one in (*names.inputs.values(), *names.random.values(), *names.state.values())]
    targets += [let.target for let in names.lets.values()]
    if document.spec is not None:
        equations = (equation for step in document.spec.steps for equation in step.equations)
        targets += [equation.target for equation in equations if equation.target.name in names.written]
    for target in {one.name: one for one in targets}.values():
        detail = _first_line(document, target.name)
        yield Completion(written(target.name, target.indices), "field", detail)


def _opened(before: list[Token]) -> str:
    """The word whose bracket is open at the end: `count` for `count(`, `x[` for `x[i,`; empty when none is."""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        if before[at].text in ")]":
            depth += 1
        elif before[at].text in ("(", "["):
            if depth == 0:
                word = before[at - 1].text if at else ""
                return word + "[" if before[at].text == "[" else word
            depth -= 1
        elif before[at].text in SECTIONS:
            break
    return ""


def _indices(document: Document, before: list[Token], call: str) -> list[str]:
    """The indices that fit inside `x[`: those of the set the field lives on, else all."""
    names, word = document.names, call.rstrip("[")
    place = 0
    for token in reversed(before):
        if token.text == "[":
            break
        place += token.text == ","
    targets = [one.target for one in (*names.inputs.values(), *names.random.values(), *names.state.values())]
    targets += [let.target for let in names.lets.values()]
    for target in targets:
        if target.name == word and place < len(target.indices) and target.indices[place] in names.index:
            home = names.index[target.indices[place]]
            return [index for index, set_ in names.index.items() if set_ == home]
    return list(names.index)


def _listed(words: Iterable[str]) -> Iterator[Completion]:
    yield from (Completion(word, "keyword", MEANINGS.get(word, "")) for word in words)


def _declared(document: Document, name: str, sort: Sort) -> Completion:
    return Completion(name, sort, _first_line(document, name))


def _first_line(document: Document, name: str) -> str:
    """What a name is, without the code that hovering shows."""
    return about(document, SourcePlace("name", name, NOWHERE)).rpartition("```\n")[2]
