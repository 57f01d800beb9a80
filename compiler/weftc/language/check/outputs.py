"""Outputs and the objective: what a run shows, read from the fields the last layer left."""

from __future__ import annotations

from dataclasses import replace

from weftc.core import syntax as ast
from weftc.core.types import FieldType
from weftc.core.words import did_you_mean, listed, width_words, written
from weftc.language.check.equations import defined, known_indices, shaped
from weftc.language.check.expressions import Typing
from weftc.language.check.references import random_in_output


def outputs(spec: ast.Spec, typing: Typing) -> dict[str, FieldType]:
    """The shape of every output that makes sense; each has a name of its own."""
    typing.move("output")
    seen: dict[str, ast.Output] = {}
    shapes: dict[str, FieldType] = {}
    for output in spec.outputs:
        name = output.target.name
        if name in seen:
            first = typing.problems.source.place(seen[name].span)
            message = f"there are two outputs called {name}"
            typing.problems.add("C290", output.target.span, message, "", f"the first is at {first}")
            continue
        seen[name] = output
        shape = _expression(typing, output) if output.target.indices else _field(typing, output)
        if shape is not None:
            shapes[name] = shape
    return shapes


def _field(typing: Typing, output: ast.Output) -> FieldType | None:
    """`centers = c`, or `c` alone: a field under a name."""
    problems, names, body, name = typing.problems, typing.names, output.body, output.target.name
    assert isinstance(body, ast.Ref)  # any other expression is one value for the whole run
    if body.indices:
        how = f"write {name} = {body.name}, or {written(name, body.indices)} = {written(body.name, body.indices)}"
        message = f"the output {name} needs an index: one value per which token?"
        problems.add("C291", output.span, message, "", how)
        return None
    field = body.name
    if field in names.random:
        random_in_output(typing, body)
        return None
    if field in typing.fields or field in names.written or names.declared(field):
        return typing.fields.get(field)  # if not there, refused where it is declared or computed
    if field in names.lets:
        indices = names.lets[field].target.indices
        how = f"write {written(name, indices)} = {written(field, indices)}"
        problems.add("C292", body.span, f"{field} is a definition (`let`), not a stored field", "", how)
    elif what := names.what(field):
        problems.add("C292", body.span, f"{field} is {what}, not a field", "", "an output is a field or an expression")
    else:
        label = did_you_mean(field, typing.fields) or "no input, state or equation has this name"
        known = f"fields: {listed(typing.fields)}" if typing.fields else ""
        problems.add("C293", body.span, f"the output {field} is never computed", label, known)
    return None


def _expression(typing: Typing, output: ast.Output) -> FieldType | None:
    """`plan[s,t] = ...`: one number per pair, or one value per token."""
    target = output.target
    if not shaped(typing, target, "output", "= ...") or not known_indices(typing, target):
        return None
    found = typing.of(output.body, frozenset(target.indices))
    if found is None or not defined(typing, found):
        return None
    if len(target.indices) == 2 and found.width is not None:
        message, label = "a pair output holds one number per pair of tokens", f"this is {width_words(found.width)}"
        typing.problems.add("C294", output.body.span, message, label, "take |v|^2 or <a, b>")
        return None
    home, *columns = (typing.names.index[i] for i in target.indices)
    where = target.indices, home, columns[0] if columns else None
    return FieldType(target.name, "computed", *where, found.width, symbols=found.symbols)


def objective(spec: ast.Spec, typing: Typing) -> None:
    """The objective: one number for a whole run."""
    if spec.objective is None:
        return
    before = len(typing.problems.found)
    found = typing.of(spec.objective, frozenset())
    if found is None:
        _explain_free(typing, before)
        return
    if found.width is not None:
        label, how = f"this is {width_words(found.width)}", "take |v|^2 or <a, b>"
        typing.problems.add("C295", spec.objective.span, "the objective must be one number", label, how)
    defined(typing, found)


def _explain_free(typing: Typing, before: int) -> None:
    """Says what a free index means in an objective."""
    note = "the objective is one number for the whole run: reduce over every index, as in sum[i] min[j] ..."
    found = typing.problems.found
    found[before:] = [replace(p, notes=(note,)) if p.code in ("C203", "C213") else p for p in found[before:]]
