"""Text -> `Spec`. The only user of lark."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from weft.errors import Diagnostic, SpecError
from weft.source import Source, Span
from weft.syntax import Spec
from weft.tree import Builder


@cache
def grammar() -> Lark:
    """The parser, built once per process."""
    text = files("weft").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parse(source: Source | str) -> Spec:
    """The syntax tree of a spec, or a `SpecError` with everything that is wrong with its form."""
    if isinstance(source, str):
        source = Source("spec", source)
    problems: list[Diagnostic] = []
    try:
        tree: Tree[Token] = grammar().parse(source.text)
    except UnexpectedInput as error:
        at = error.pos_in_stream or 0
        raise SpecError(source, [Diagnostic("P100", Span(at, at + 1), "unexpected text")]) from None
    spec = Builder(source, problems).spec(tree)
    if problems:
        raise SpecError(source, problems)
    return spec
