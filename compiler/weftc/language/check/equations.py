"""Equations: what is written where, once per step, always defined; and what each field is known to hold after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from weftc.core import syntax as ast
from weftc.core.types import FieldType, Type
from weftc.core.words import declared_at, field_words, joined, listed, width_words, written
from weftc.language.check.constants import is_zero
from weftc.language.check.expressions import Typing
from weftc.language.check.simplex import sums_to_one

STRENGTH = {"onehot": 2, "simplex": 1, "real": 0}
ROW_KINDS: tuple[Literal["real"], Literal["simplex"], Literal["onehot"]] = ("real", "simplex", "onehot")


def equations(spec: ast.Spec, typing: Typing) -> None:
    """Types every step in order; fields become readable, and weaken, after the step that writes them."""
    for step in spec.steps:
        here: dict[str, ast.Ref] = {}
        new: dict[str, FieldType] = {}
        for equation in step.equations:
            target = equation.target
            if target.name in here:
                _twice(typing, target, here[target.name])
                continue
            here[target.name] = target
            stored_type = _equation(typing, target, equation.body)
            if stored_type is not None:
                new[target.name] = stored_type
        typing.refused |= here.keys() - new.keys() - typing.fields.keys()
        typing.knows(new)
    for let in typing.names.lets.values():
        typing.let(let)


def _twice(typing: Typing, target: ast.Ref, first: ast.Ref) -> None:
    typing.problems.add(
        "C280",
        target.span,
        f"{target.name} is written twice in one step",
        "both equations would happen at once",
        f"first written at {typing.problems.source.place(first.span)}",
        "put `then` between the two equations",
    )


def _equation(typing: Typing, target: ast.Ref, body: ast.Expr) -> FieldType | None:
    """What a field is after an equation, or None when the target or the body make no sense."""
    ready = _target(typing, target)
    found = typing.of(body, frozenset(target.indices)) if known_indices(typing, target) else None
    if found is None or not ready:
        return None
    known = typing.fields.get(target.name)
    if not defined(typing, found, target):
        found = replace(found, undefined=None)
    if known is not None and not fits(typing, known, target, body, found):
        return None
    if len(target.indices) == 2 and found.width is not None:
        label, how = (
            f"this is {width_words(found.width)}",
            "take |v|^2 or <a, b>, or give the difference a name (`let`)",
        )
        message = "a pair field holds one number per pair of tokens"
        typing.problems.add("C289", body.span, message, label, how)
        return None
    return stored(typing, known, target, body, found)


def known_indices(typing: Typing, target: ast.Ref) -> bool:
    """Whether all indices of a left-hand side exist; reports those that do not."""
    return all([typing.index(i, target.span) for i in target.indices])


# ---- the left-hand side ----------------------------------------------------------------------------------------------


def _target(typing: Typing, target: ast.Ref) -> bool:
    """Whether the left-hand side is something that can be written."""
    problems, names, name = typing.problems, typing.names, target.name
    what = names.what(name)
    if what and name not in (*names.inputs, *names.state, *names.written):
        how = "give the result a name of its own"
        problems.add(
            "C281",
            target.span,
            f"{name} is {what} and cannot be written",
            "only computed fields, inputs and state can be",
            how,
        )
        return False
    if not shaped(typing, target, "field", "= ..."):
        return False
    if not all(i in names.index for i in target.indices):
        return False  # reported by `known_indices`
    known = typing.fields.get(name)
    if known is None:
        return names.declared(name) is None and fixed_columns(typing, target)
    ours = [names.index[i] for i in target.indices]
    theirs = [known.home] if known.columns is None else [known.home, known.columns]
    if ours == theirs:
        return True
    if len(ours) == 2 and ours[0] == known.home and known.width is not None and names.sets[ours[1]] == known.width:
        return True  # a vector, coordinate by coordinate
    if len(ours) == 1 and ours[0] == known.home and known.kind == "real":
        return True  # a row, as a vector
    declared = names.declared(name)
    where = declared_at(problems.source, declared.target.span) if declared else ""
    message = f"{name} belongs to {joined(theirs)}, not to {joined(ours)}"
    problems.add("C285", target.span, message, f"{written(name, known.indices)} is {field_words(known)}", where)
    return False


def shaped(typing: Typing, target: ast.Ref, what: str, follows: str) -> bool:
    """Whether a left-hand side or declaration has one index or two different ones."""
    problems, name = typing.problems, target.name
    if not target.indices:
        some = next(iter(typing.names.index), "i")
        base, _, index = name.rpartition("_")
        known = typing.names.declared(name)
        how = f"as in {written(name, known.target.indices if known and known.target.indices else (some,))} {follows}"
        if base in typing.names.values() and index in typing.names.index:
            how = f"write {base}[{index}]"
        problems.add("C282", target.span, f"{name} needs an index: which tokens hold it?", "", how)
    elif len(target.indices) > 2:
        count, why = f"{name} has {len(target.indices)}", "attention relates two tokens at a time"
        problems.add("C283", target.span, f"a{'n' if what == 'output' else ''} {what} has one index or two", count, why)
    elif len(set(target.indices)) < len(target.indices):
        home = typing.names.index.get(target.indices[0], "the same set")
        how = f"declare a second index over {home}"
        problems.add("C284", target.span, f"the two indices of a pair {what} must differ", "", how)
    else:
        return True
    return False


def fixed_columns(typing: Typing, target: ast.Ref) -> bool:
    """Whether a pair field has a fixed second set; reports when not."""
    if len(target.indices) < 2 or typing.names.sets[typing.names.index[target.indices[1]]] is not None:
        return True
    first, second = (typing.names.index[i] for i in target.indices)
    graph = (
        "a graph is a set of edges: tokens e in edges, inputs from[e] : R, to[e] : R; then x[from[e]], where to[e] = i"
    )
    name, swapped = target.name, written(target.name, target.indices[::-1])
    if typing.names.sets[first] is not None:
        how = f"swap the indices: {swapped} lives on {second}"
    else:
        how = "use it inside a sum instead (`let` gives it a name); only outputs may have a number per open pair"
    typing.problems.add(
        "C286",
        target.span,
        f"{written(name, target.indices)} would store one number per pair of tokens",
        f"{second} is open: its size is known only when it runs",
        how,
        f"or fix the size of {second}: tokens {target.indices[1]} in {second} : SIZE",
        graph if target.name in typing.names.inputs else "",
    )
    return False


# ---- the right-hand side ---------------------------------------------------------------------------------------------


def defined(typing: Typing, found: Type, target: ast.Ref | None = None) -> bool:
    """Whether a value is always defined; reports what may not be, and what to write."""
    guilty = found.undefined
    if guilty is None:
        return True
    keep = ""
    if target is not None and target.indices:
        old = typing.names.declared(target.name) is not None
        keep = f", as in ... else {written(target.name, target.indices) if old else '0'}"
    message, label = _why_undefined(guilty)
    if isinstance(guilty, ast.Reduce) and not typing.problems.source.at(guilty.span).startswith(guilty.kind):
        message, label = "there may be no token at this position", "positions run from 1 to the number of tokens"
    typing.problems.add("C230", guilty.span, message, label, f"add `else` with the value to use then{keep}")
    return False


def _why_undefined(guilty: ast.Expr) -> tuple[str, str]:
    """What may be undefined about an expression, and when."""
    match guilty:
        case ast.Reduce(kind="mean", where=()):
            return "this mean can be empty", "all its weights may be zero"
        case ast.Reduce(kind=kind):
            return f"this {kind} can be empty", "it may be that no token meets the condition"
        case ast.Weigh(kind="normalize", where=()):
            return "this weighting can have nothing to divide by", "all its weights may be zero"
        case ast.Weigh():
            return "this weighting can have nothing to choose from", "it may be that no token meets the condition"
    return "unit of a zero vector is undefined", "its length may be zero"


def fits(typing: Typing, known: FieldType, target: ast.Ref, body: ast.Expr, found: Type) -> bool:
    """Whether a value can be stored in a field that already has a type."""
    problems, name = typing.problems, target.name
    width = known.width
    if len(target.indices) == 2:
        width = None
    elif known.columns is not None:
        width = typing.names.sets[known.columns]
    if found.width != width and not is_zero(body):
        wanted = width_words(width)
        message = f"{name} is {wanted}, but the right-hand side is {width_words(found.width)}"
        problems.add("C287", body.span, message, f"{wanted} is expected here", _settled_at(typing, name))
        return False
    if known.symbols and known.role != "computed" and found.symbols != known.symbols:
        message = f"{name} is declared one of {listed(known.symbols)}, but this is not known to be one of them"
        label = "it may be any vector" if found.width is not None else ""
        how = "one is picked by a position (t[i-1]), by a choice (mean[l] t[l] by argmax[l](...)), or written as it is"
        problems.add("C288", body.span, message, label, _settled_at(typing, name), how)
        return False
    if known.role == "computed" or known.kind not in ("onehot", "simplex"):
        return True
    if _row_strength(typing, target, body, found) >= STRENGTH[known.kind]:
        return True
    column = target.indices[1]
    if known.kind == "onehot":
        label, how = "each row must hold a single 1", f"use argmin[{column}] or argmax[{column}]"
    else:
        label = "each row must be weights that sum to one"
        how = f"use a weighting over {column}, such as normalize[{column}](...)"
    message = f"{name} is declared {known.kind}, but this is not known to be one"
    problems.add("C288", body.span, message, label, _settled_at(typing, name), f"{how}, or declare {name} as real")
    return False


def _settled_at(typing: Typing, name: str) -> str:
    """Where the type of a field was settled."""
    source, declared = typing.problems.source, typing.names.declared(name)
    if declared is not None:
        return declared_at(source, declared.target.span)
    return f"first computed at {source.place(typing.names.written[name])}"


def _row_strength(typing: Typing, target: ast.Ref, body: ast.Expr, found: Type) -> int:
    """How strong a statement about the rows of a pair field an equation supports: 2 onehot, 1 simplex, 0 real."""
    column = target.indices[1]
    if found.kind and typing.weights_over(body) == column:
        return STRENGTH[found.kind]
    return int(sums_to_one(typing, body, frozenset(target.indices), column))


def stored(typing: Typing, known: FieldType | None, target: ast.Ref, body: ast.Expr, found: Type) -> FieldType:
    """The type of a field after one more equation: no stronger than before."""
    homes = [typing.names.index[i] for i in target.indices]
    if known is None:
        kind: Literal["number", "vector", "symbol", "real", "simplex", "onehot"]
        kind = "number" if found.width is None else "symbol" if found.symbols else "vector"
        columns = None
        if len(homes) == 2:
            kind, columns = ROW_KINDS[_row_strength(typing, target, body, found)], homes[1]
        signs = found.positive, found.nonnegative or found.positive
        where = target.indices, homes[0], columns
        return FieldType(target.name, "computed", *where, found.width, kind, None, *signs, found.symbols)
    if known.symbols and found.symbols != known.symbols:
        known = replace(known, kind="vector", symbols=())
    if known.role == "computed" and known.is_pair:
        known = replace(known, kind=ROW_KINDS[min(STRENGTH[known.kind], _row_strength(typing, target, body, found))])
    always = known.kind in ("onehot", "simplex")
    nonnegative = always or (known.nonnegative and (found.nonnegative or found.positive))
    return replace(known, positive=known.positive and found.positive, nonnegative=nonnegative)
