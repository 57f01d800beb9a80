"""A place in a `Document` -> what stands there, in a few lines of Markdown: what a name is, what a word means."""

from __future__ import annotations

from dataclasses import dataclass

from weftc.core import syntax as ast
from weftc.core import vocabulary
from weftc.core.source import Span
from weftc.core.types import FieldType, Type
from weftc.core.words import field_words, joined, width_words, written
from weftc.editor.document import Document
from weftc.editor.symbols import SourcePlace, place_at
from weftc.language.check.check import type_of
from weftc.tools.doc_tables.meanings import SECTION, TYPES, WORD

MEANINGS = {
    **WORD,
    **SECTION,
    **vocabulary.INITIALISERS,
    **vocabulary.TIE_RULES,
    **{word: meaning for word, _, meaning in TYPES if word.isidentifier()},
    **vocabulary.NOISES,
    **{word: traits.meaning for word, traits in vocabulary.FUNCTIONS.items()},
    **vocabulary.REDUCTIONS,
    **{word: traits.meaning for word, traits in vocabulary.WEIGHTINGS.items()},
}
KIND = {
    **dict.fromkeys(vocabulary.WEIGHTINGS, "weighting"),
    **dict.fromkeys(vocabulary.REDUCTIONS, "reduction"),
    **dict.fromkeys(vocabulary.FUNCTIONS, "function"),
    **dict.fromkeys(SECTION, "section"),
}


@dataclass(frozen=True, slots=True)
class Hover:
    """Markdown, and the part of the text it is about."""

    span: Span
    markdown: str


def hover(document: Document, offset: int) -> Hover | None:
    """What stands at an offset; None where there is nothing to say."""
    place = place_at(document, offset)
    if place is not None:
        return Hover(place.span, about(document, place))
    token = document.token_at(offset)
    if token is None or token.text not in MEANINGS:
        return None
    kind = f" ({KIND[token.text]})" if token.text in KIND else ""
    at = document.tokens.index(token)
    starts = at > 0 and document.tokens[at - 1].text == "init"  # `first` is a start and a rule for ties
    meaning = vocabulary.INITIALISERS.get(token.text) if starts else None
    return Hover(token.span, f"**{token.text}**{kind}: {meaning or MEANINGS[token.text]}")


def about(document: Document, place: SourcePlace) -> str:
    """What a name is, and its type."""
    name, names = place.name, document.names
    if place.space == "output":
        return _output(document, name)
    if name in names.sets:
        size = names.sets[name]
        own = [index for index, home in names.index.items() if home == name]
        known = "how many is known only when it runs" if size is None else f"{size} of them, fixed when it compiles"
        return _said(f"{', '.join(own)} in {name}" + (f" : {size}" if size is not None else ""), "token set", known)
    if name in names.index:
        return _said(f"{name} in {names.index[name]}", "index", f"runs over {names.index[name]}")
    if name in names.dims:
        return _said(name, "dimension", "a whole number, settled when it compiles")
    if name in names.params:
        return _param(document, names.params[name])
    if name in names.lets:
        return _let(document, names.lets[name])
    return _field(document, name)


def field_type(field: FieldType) -> str:
    """`R^d`, `unit R^d`, `R`, `simplex`: a type as it is written."""
    if field.kind == "unit":
        return f"unit R^{field.width}"
    if field.columns is not None or field.role == "random":
        return field.kind
    return "R" if field.width is None else f"R^{field.width}"


def _field(document: Document, name: str) -> str:
    known = document.checked.fields.get(name) if document.checked is not None else None
    declared = document.names.declared(name)
    if known is not None:
        sign = " > 0" if known.positive else " >= 0" if known.nonnegative and known.columns is None else ""
        shape = f"{written(name, known.indices)} : {field_type(known)}{sign}"
        role = {"input": "input", "random": "random field", "state": "state", "computed": "computed field"}[known.role]
        return _said(shape, role, field_words(known))
    if declared is not None:
        return _said(document.source.said(declared.span), document.names.what(name).split(" ", 1)[1], "")
    return _said(name, "computed field", "its type follows from its equation once the spec has no mistakes")


def _param(document: Document, param: ast.Param) -> str:
    said = document.source.said(param.span)
    given = "the user gives it" if param.default is None else "used unless the user gives another value"
    return _said(said, "parameter", given)


def _let(document: Document, let: ast.Let) -> str:
    said = document.source.said(let.span)
    type_ = expression_type(document, let.body, let.target.indices)
    return _said(said, "definition", f"{width_words(type_.width)}" if type_ is not None else "")


def _output(document: Document, name: str) -> str:
    assert document.spec is not None
    output = next((one for one in document.spec.outputs if one.target.name == name), None)
    if output is None:
        return _said(name, "output", "not declared under `outputs`")
    body = output.body
    field = document.checked.fields.get(body.name) if document.checked and isinstance(body, ast.Ref) else None
    if field is not None:
        return _said(document.source.said(output.span), "output", field_words(field))
    type_ = expression_type(document, body, output.target.indices)
    each = [document.names.index[i] for i in output.target.indices if i in document.names.index]
    per = f" for each of {joined(each)}" if each else ""
    return _said(document.source.said(output.span), "output", f"{width_words(type_.width)}{per}" if type_ else "")


def expression_type(document: Document, expr: ast.Expr, bound: tuple[str, ...]) -> Type | None:
    """The type of an expression; None while the spec has mistakes."""
    return None if document.checked is None else type_of(document.checked, expr, bound)


def _said(code: str, kind: str, words: str) -> str:
    """A line of the language, what kind of thing it is, and a sentence."""
    return f"```weft\n{code}\n```\n{kind}" + (f": {words}" if words else "")
