"""Rules of the grammar for sections, declarations, equations and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftc.core import syntax as ast
from weftc.core import vocabulary
from weftc.core.source import Span
from weftc.core.words import did_you_mean, listed
from weftc.language.check.example_values import whole
from weftc.language.parse.lexer import Token
from weftc.language.parse.tree_parts import Rule, Section

if TYPE_CHECKING:
    from weftc.language.parse.tree import Builder

KINDS = ("onehot", "simplex", "real", *vocabulary.NOISES)
OTHER_NAMES = {
    "r": "R",
    "float": "R",
    "scalar": "R",
    "number": "R",
    "vector": "R^d",
    "bool": "onehot",
    "gaussian": "normal",
}


def spec(b: Builder, span: Span, parts: list[Any]) -> ast.Spec:
    """The whole spec; sections that appear twice are joined in the order of the text."""
    name, *rest = parts
    docs = [part.text[1:-1] for part in rest if isinstance(part, Token)]
    single: dict[str, Any] = {}
    many: dict[str, Any] = {}
    for section in (part for part in rest if isinstance(part, Section)):
        if section.name in ("objective", "repeat", "steps"):
            if section.name in single:
                word = {"steps": "layer"}.get(section.name, section.name)
                spot = Span(section.span.start, section.span.start + len(word))
                how = "join the two, with `then` between steps" if word == "layer" else "keep one"
                b.problems.add("P108", spot, f"a second `{word}`", f"a spec has one `{word}`", how)
            single[section.name] = tuple(section.parts) if section.name == "steps" else section.parts[0]
        else:
            many.setdefault(section.name, []).extend(section.parts)
    phases = many.get("phases")
    if phases and not b.problems.found:
        for name_, said in (("steps", "`layer`"), ("repeat", "`repeat`")):
            if name_ in single:
                how = "write its steps as a phase" if name_ == "steps" else "each phase says how often it runs"
                b.problems.add("P108", phases[0].span, f"there are phases beside a {said}", "", how)
    tables: dict[str, Any] = {key: tuple(found) for key, found in many.items()}
    return ast.Spec(b.problems.source, name.span, name.text, " ".join(docs), **tables, **single)


def section(name: str) -> Rule:
    return lambda b, span, parts: Section(name, span, parts)


def phase(b: Builder, span: Span, parts: list[Any]) -> Section:
    word, stay, *steps = parts
    head = Span(span.start, word.span.end)
    return Section("phases", span, [ast.Phase(head, word.text, stay, tuple(steps))])


def repeat(b: Builder, span: Span, parts: list[Any]) -> Section:
    return Section("repeat", span, [b.whole(parts[0], "`repeat`")])


def example(b: Builder, span: Span, parts: list[Any]) -> Section:
    title, layers = "", 0
    for part in parts:
        if isinstance(part, Token) and part.type == "STRING":
            title = part.text[1:-1]
        elif isinstance(part, Token):
            layers = b.whole(part, "`layers`")
    given = tuple(part for part in parts if isinstance(part, ast.ExampleInput))
    expected = tuple(part for part in parts if isinstance(part, ast.ExampleOutput))
    return Section("examples", span, [ast.Example(span, title, given, layers, expected)])


def given(b: Builder, span: Span, parts: list[Any]) -> ast.ExampleInput:
    value, _, end = whole(parts[1])
    return ast.ExampleInput(Span(span.start, end), parts[0].text, value)


def expected(b: Builder, span: Span, parts: list[Any]) -> ast.ExampleOutput:
    value, _, end = whole(parts[1])
    return ast.ExampleOutput(Span(span.start, end), parts[0].text, value, None)


def about(b: Builder, span: Span, parts: list[Any]) -> ast.ExampleOutput:
    value, digits, end = whole(parts[1])
    return ast.ExampleOutput(Span(span.start, end), parts[0].text, value, 10.0**-digits)


def ref(_: Builder, span: Span, parts: list[Any]) -> ast.Ref:
    name, *indices = parts
    return ast.Ref(span, name.text, tuple(index.text for index in indices if index is not None))


def tokenset(_: Builder, span: Span, parts: list[Any]) -> ast.TokenSet:
    *indices, name, size = parts
    return ast.TokenSet(span, tuple(index.text for index in indices), name.text, size)


def input(_: Builder, span: Span, parts: list[Any]) -> ast.Field:
    target, type_, bound, init = parts
    return ast.Field(span, target, type_, bound, init)


def unit_type(b: Builder, span: Span, parts: list[Any]) -> ast.TypeClause:
    word, width = parts
    if word.text != "unit":
        message, how = f"'{word.text}' is not a kind of vector", "write R^d, or unit R^d for vectors of length one"
        b.problems.add("P117", word.span, message, "did you mean 'unit'?", how)
    return ast.TypeClause(span, "unit", width)


def symbols(b: Builder, span: Span, parts: list[Any]) -> ast.TypeClause:
    """`one of {a, b, "("}`."""
    words = parts[1:]
    found = tuple(word.text[1:-1] if word.type == "STRING" else word.text for word in words)
    for at, (word, symbol) in enumerate(zip(words, found, strict=True)):
        if symbol in found[:at]:
            b.problems.add("P109", word.span, f"the symbol {symbol} stands twice in this vocabulary", "once is enough")
        if not symbol.strip() or symbol != symbol.strip():
            label = "a symbol is not empty, and does not begin or end with a space"
            b.problems.add("P109", word.span, "this is not a symbol", label)
    return ast.TypeClause(span, "symbol", len(found), found)


def named_type(b: Builder, span: Span, parts: list[Any]) -> ast.TypeClause:
    word = parts[0].text
    if word not in KINDS:
        guess = OTHER_NAMES.get(word.lower(), "")
        label = f"did you mean '{guess}'?" if guess else did_you_mean(word, KINDS)
        tokens = "types: R for a number, R^d for a vector, unit R^d for one of length one"
        others = f"of pair fields: onehot, simplex, real; of random fields: {listed(vocabulary.NOISES)}"
        b.problems.add("P117", span, f"'{word}' is not a type", label, tokens, others)
    return ast.TypeClause(span, word)


def bound(_: Builder, span: Span, parts: list[Any]) -> ast.ParamBound:
    if parts[0].text == "in":
        _, opening, low, _, high, closing = parts
        return ast.ParamBound(span, (low, opening.text == "("), (high, closing.text == ")"))
    side = (parts[1], len(parts[0].text) == 1)
    return ast.ParamBound(span, side, None) if parts[0].text[0] == ">" else ast.ParamBound(span, None, side)


def const(_: Builder, span: Span, parts: list[Any]) -> float:
    value: float = parts[-1].value
    return -value if len(parts) == 2 else value


def step(_: Builder, span: Span, parts: list[Any]) -> ast.Step:
    uses = tuple(part for part in parts if isinstance(part, ast.Use))
    return ast.Step(span, tuple(part for part in parts if isinstance(part, ast.Equation)), uses)


def use(_: Builder, span: Span, parts: list[Any]) -> ast.Use:
    """`use NAME from "FILE" with x = z`."""
    _, name, _, file, _, *given = parts
    return ast.Use(span, name.text, None if file is None else file.text[1:-1], tuple(one for one in given if one))


def update(op: str) -> Rule:
    def rule(b: Builder, span: Span, parts: list[Any]) -> ast.Equation:
        target, body = parts
        if op:
            body = ast.Binary(span, op, target, body)  # type: ignore[arg-type]
        return ast.Equation(span, target, body)

    return rule


def same(_: Builder, span: Span, parts: list[Any]) -> ast.Output:
    ref = ast.Ref(span, parts[0].text, ())
    return ast.Output(span, ref, ref)
