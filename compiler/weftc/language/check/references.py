"""Names in expressions: fields with their indices, definitions, parameters, dimensions, sizes of sets."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from weftc.core import syntax as ast
from weftc.core.syntax import Dimension
from weftc.core.types import FieldType, Type
from weftc.core.vocabulary import REDUCTIONS, WEIGHTINGS
from weftc.core.words import closest, did_you_mean, field_words, joined, listed, plural, written
from weftc.language.check.names import Names

if TYPE_CHECKING:
    from weftc.language.check.expressions import Typing

CONSTANTS = "a default is made of numbers, other parameters, dimensions and count(...)"
OPERATORS = (*WEIGHTINGS, *REDUCTIONS)


def count(typing: Typing, expr: ast.Count) -> Type | None:
    """`count(points)`: at least one, as no set is empty."""
    names, problems = typing.names, typing.problems
    if expr.set in names.sets:
        return Type(positive=True, nonnegative=True)
    home = names.index.get(expr.set)
    label = f"{expr.set} is an index; write count({home})" if home else did_you_mean(expr.set, names.sets)
    known = f"token sets: {listed(names.sets)}" if names.sets else ""
    problems.add("C204", problems.spot(expr.span, expr.set), f"unknown token set {expr.set}", label, known)
    return None


def onehot(typing: Typing, expr: ast.Position) -> Type | None:
    """`onehot(e)`: of a fixed set."""
    home = typing.names.index[expr.index]
    size = typing.names.sets[home]
    if size is not None:
        return Type(size, frozenset([expr.index]))
    label, how = f"{home} is open", f"fix its size: tokens {expr.index} in {home} : SIZE"
    typing.problems.add("C204", expr.span, "onehot(...) needs a set of fixed size", label, how)
    return None


def symbol(typing: Typing, expr: ast.Symbol) -> Type | None:
    """A symbol of the one vocabulary that has it."""
    if expr.vocabulary:
        return Type(len(expr.vocabulary), symbols=expr.vocabulary)
    fields = (*typing.names.inputs.values(), *typing.names.state.values())
    known = tuple(dict.fromkeys(symbol for f in fields for symbol in f.type.symbols))
    several = expr.text in known
    message = f"several vocabularies have the symbol {expr.text}" if several else f"unknown symbol {expr.text}"
    label = "" if several else did_you_mean(expr.text, known)
    how = "compare with a field, or use one vocabulary for all" if several else f"known here: {listed(known)}"
    how = how if known else "no input has a vocabulary: inputs t[i] : one of {a, b, c}"
    typing.problems.add("C266", expr.span, message, label, how)
    return None


def reference(typing: Typing, expr: ast.Ref, bound: frozenset[str]) -> Type | None:
    """A name, with or without indices."""
    name, names = expr.name, typing.names
    constant = name in names.params or name in names.dims
    if typing.place == "default" and not constant:
        _in_default(typing, expr)
    elif name in names.lets:
        return _let(typing, expr, bound)
    elif constant:
        return _constant(typing, expr)
    elif name in names.index or name in names.sets:
        _not_a_value(typing, expr)
    elif name not in typing.fields:
        _unknown(typing, expr)
    else:
        return _field(typing, expr, typing.fields[name], bound)
    return None


def _field(typing: Typing, expr: ast.Ref, known: FieldType, bound: frozenset[str]) -> Type | None:
    if typing.place == "start" and known.role != "input":
        what = {"random": "a random field", "state": "a state field", "computed": "computed by the layer, later"}
        _not_in_start(typing, expr, f"{expr.name} is {what[known.role]}")
        return None
    if typing.place == "output" and known.role == "random":
        random_in_output(typing, expr)
        return None
    formal, width = _coordinates(typing, expr, known, bound)
    if not _indices_fit(typing, expr, formal, field_words(known), bound):
        return None
    if formal != known.indices:
        return Type(width, frozenset(expr.indices))
    kind = known.kind if known.kind in ("onehot", "simplex") else ""
    indices = frozenset(expr.indices)
    return Type(known.width, indices, None, known.positive, known.nonnegative, kind, known.symbols)


def _coordinates(
    typing: Typing, expr: ast.Ref, known: FieldType, bound: frozenset[str]
) -> tuple[tuple[str, ...], Dimension | None]:
    """The indices of a field as they are used, and its width then: a vector and a row of numbers are the same.

    `x[i,e]` is a coordinate of a vector x[i] : R^d, if e runs over a set of d tokens; `z[i]` is a row of z[i,e].
    """
    names, given = typing.names, expr.indices
    over = names.index.get(given[1]) if len(given) == 2 else None
    if known.width is not None and over is not None and names.sets[over] == known.width:
        return (*known.indices, given[1]), None
    if known.columns is not None and len(given) == 1 and given[0] in bound and names.index[given[0]] == known.home:
        return known.indices[:1], names.sets[known.columns]
    return known.indices, known.width


def _constant(typing: Typing, expr: ast.Ref) -> Type | None:
    what = "parameter" if expr.name in typing.names.params else "dimension"
    if expr.indices:
        message = f"{expr.name} is a {what} and has no index"
        typing.problems.add("C205", expr.span, message, f"write {expr.name}")
        return None
    if what == "dimension":
        return Type(positive=True, nonnegative=True)
    known = typing.range(expr)
    return Type(positive=known.positive, nonnegative=known.nonnegative)


def _let(typing: Typing, expr: ast.Ref, bound: frozenset[str]) -> Type | None:
    let = typing.names.lets[expr.name]
    if not _indices_fit(typing, expr, let.target.indices, "a definition (`let`)", bound):
        return None
    body = typing.let(let)
    if body is None:
        return None
    rename = dict(zip(let.target.indices, expr.indices, strict=True))
    return replace(body, indices=frozenset(rename.get(i, i) for i in body.indices), kind="")


def _indices_fit(typing: Typing, expr: ast.Ref, formal: tuple[str, ...], what: str, bound: frozenset[str]) -> bool:
    """Whether a reference has as many indices as the declaration, over the same sets."""
    problems, names, name = typing.problems, typing.names, expr.name
    shape = written(name, formal)
    if not expr.indices and formal:
        needs = "index" if len(formal) == 1 else "indices"
        problems.add("C209", expr.span, f"{name} needs its {needs} here", f"as in {shape}")
        return False
    if len(expr.indices) != len(formal):
        message = f"{name} has {plural(len(formal), 'index')}, not {len(expr.indices)}"
        problems.add("C210", expr.span, message, f"{shape} is {what}")
        return False
    if not all([typing.index(i, expr.span, bound) for i in expr.indices]):
        return False
    for given, wanted in zip(expr.indices, formal, strict=True):
        ours, theirs = names.index[given], names.index.get(wanted)
        if theirs is not None and ours != theirs:
            message = f"{name} belongs to {theirs}, but {given} runs over {ours}"
            problems.add("C211", expr.span, message, f"{shape} is {what}", _indices_of(theirs, names))
            return False
    return True


def _indices_of(home: str, names: Names) -> str:
    own = [i for i, s in names.index.items() if s == home]
    return f"{joined(own)} run{'s' if len(own) == 1 else ''} over {home}" if own else ""


CONSTANT_WORDS = {
    "pi": "write 3.141592653589793",
    "e": "exp(1) is that number",
    "inf": "there is no infinity; leave out what does not count by `where`",
    "infinity": "there is no infinity; leave out what does not count by `where`",
    "true": "write 1, or a condition behind `where`",
    "True": "write 1, or a condition behind `where`",
    "false": "write 0, or a condition behind `where`",
    "False": "write 0, or a condition behind `where`",
}

# ---- names that do not fit -------------------------------------------------------------------------------------------


def _in_default(typing: Typing, expr: ast.Ref) -> None:
    names, name = typing.names, expr.name
    what = names.what(name)
    message = f"the default of a parameter cannot read {name}" if what else f"unknown name {name}"
    label = f"{name} is {what}" if what else did_you_mean(name, [*names.params, *names.dims])
    typing.problems.add("C252", expr.span, message, label, CONSTANTS)


def _not_a_value(typing: Typing, expr: ast.Ref) -> None:
    name = expr.name
    if name in typing.names.index:
        what, how = "an index", f"write index({name}) for the position of the token"
    else:
        what, how = "a token set", f"write count({name}) for the number of its tokens"
    typing.problems.add("C206", expr.span, f"{name} is {what}, not a value", how)


def _not_in_start(typing: Typing, expr: ast.Ref, why: str) -> None:
    note = "the start of a state field may read inputs only"
    typing.problems.add("C208", expr.span, f"a start cannot read {expr.name}", why, note)


def random_in_output(typing: Typing, expr: ast.Ref) -> None:
    """Reports noise that is read after the last layer."""
    message, label = f"outputs and the objective cannot read {expr.name}", "noise exists only while a layer runs"
    how = f"store what it leads to by an equation, as in used[...] = {written(expr.name, expr.indices)}"
    typing.problems.add("C296", expr.span, message, label, how)


def _unknown(typing: Typing, expr: ast.Ref) -> None:
    names, problems, name = typing.names, typing.problems, expr.name
    if problems.full or name in typing.refused or names.declared(name) is not None:
        return  # reported where it is declared or computed
    if name in names.written:
        if typing.place == "start":
            _not_in_start(typing, expr, "it is computed by the layer, later")
            return
        problems.add(
            "C207",
            expr.span,
            f"{name} is read before it is computed",
            "no step before this one writes it",
            f"first computed at {problems.source.place(names.written[name])}",
            "compute it in an earlier step (`then` between), or declare it under `state` with its start",
        )
        return
    constants = {*names.params, *names.dims}
    guess = closest(name, [known for known in names.values() if (known in constants) is not bool(expr.indices)])
    operator = None if guess or not expr.indices else closest(name, OPERATORS, 0.75)
    label = f"did you mean '{guess}'?" if guess else f"did you mean '{operator}'?" if operator else ""
    known_here = f"known here: {listed(names.values())}" if names.values() else ""
    field, _, index = name.rpartition("_")
    if not expr.indices and field in names.values() and index in names.index:
        label = f"write {field}[{index}]"
    elif not expr.indices and name in CONSTANT_WORDS:
        label = CONSTANT_WORDS[name]
    after = problems.source.text[expr.span.end : expr.span.end + 4]
    if len(expr.indices) == 1 and not guess and (operator or re.match(r" +-\S", after)):  # entmax[j] -S, hardmax[j] -S
        known = (
            f"weightings: {' '.join(sorted(WEIGHTINGS))}",
            f"reductions: {' '.join(REDUCTIONS)}",
        )
        problems.add(
            "C200", expr.span, f"{name} is neither a field nor a weighting or reduction", label, known_here, *known
        )
        return
    problems.add("C200", expr.span, f"unknown {'field' if expr.indices else 'name'} {name}", label, known_here)
