"""The shipped parse tables: made from the grammar as it is, without conflicts, and parsing as lark itself does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from lark import Lark, Token, Tree

from spec_texts import BASE, GOOD
from weftc.core.source import Source, Span
from weftc.language.check.problems import Problems
from weftc.language.parse import grammar
from weftc.language.parse.build_parse_tables import build
from weftc.language.parse.lexer import SECTIONS, tokenize
from weftc.language.parse.parser import run

TEXTS = [*(path.read_text(encoding="utf-8") for path in GOOD), BASE.format(equation="z[i] = sum[l] min[j] D[l,j]")]


class Commas:
    """Does in lark's token stream what our lexer does: a comma before a name in an example is `NEXT`."""

    always_accept = ()

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        held: Token | None = None
        in_example = False
        for token in stream:
            if held is not None:
                follows = in_example and held.type == "COMMA" and token.type == "NAME"
                yield Token.new_borrow_pos("NEXT", held.value, held) if follows else held
            if token.value in SECTIONS:
                in_example = token.value == "example"
            held = token
        if held is not None:
            yield held


@pytest.fixture(scope="module")
def lark() -> Lark:
    """lark's own parser; `strict` refuses any conflict, also between terminals."""
    options: dict[str, Any] = {"parser": "lalr", "lexer": "basic", "maybe_placeholders": True, "strict": True}
    return Lark(grammar.grammar_text(), propagate_positions=True, postlex=Commas(), **options)


def test_shipped_tables_belong_to_the_grammar() -> None:
    shipped = json.loads(files("weftc.language.parse").joinpath("grammar.json").read_text(encoding="utf-8"))
    assert shipped == json.loads(json.dumps(build())), "run python -m weftc.language.parse.build_parse_tables"


def test_tables_of_another_grammar_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = grammar.grammar_file().replace('"objective"', '"purpose"')
    monkeypatch.setattr(grammar, "grammar_file", lambda: changed)
    assert "purpose" in grammar.load.__wrapped__().terminals


def ours(text: str) -> Any:
    parse_tables, problems = grammar.load(), Problems(Source("spec", text))
    tokens = tokenize(text, parse_tables.terminals, problems)
    assert not problems.found

    def tree(rule: str, span: Span, parts: list[Any]) -> Any:
        children = tuple((part.type, part.text) if hasattr(part, "type") else part for part in parts)
        return (rule, (span.start, span.end), children)

    return run(parse_tables, tokens, tree)


def theirs(tree: Any) -> Any:
    if isinstance(tree, Tree):
        place = (tree.meta.start_pos, tree.meta.end_pos)
        return (str(tree.data), place, tuple(theirs(child) for child in tree.children))
    return None if tree is None else (tree.type, str(tree))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.split()[1])
def test_trees_are_those_of_lark(text: str, lark: Lark) -> None:
    assert ours(text) == theirs(lark.parse(text))


def test_first_parse_is_quick_and_needs_no_lark() -> None:
    """Fresh process, imports excluded, tables included: a few milliseconds, and room for a busy machine."""
    program = (
        "import sys, time; from weftc.language.parse.files import read_spec;"
        "from weftc.language.parse.parse import parse; source = read_spec(sys.argv[1]);"
        "start = time.perf_counter(); parse(source); took = time.perf_counter() - start;"
        "assert 'lark' not in sys.modules; print(took)"
    )
    spec = Path(GOOD[0])
    best = min(float(subprocess.check_output([sys.executable, "-c", program, str(spec)])) for _ in range(3))
    assert best < 0.04
