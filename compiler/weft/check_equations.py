"""Equations, outputs and the objective: what is written where, once per step, and always defined."""

from __future__ import annotations

from dataclasses import replace

from weft import syntax as ast
from weft.check_expressions import Typing, is_zero
from weft.simplex import sums_to_one
from weft.types import FieldType, Type
from weft.words import declared_at, did_you_mean, field_words, listed, width_words, written

STRENGTH = {"onehot": 2, "simplex": 1, "real": 0}


def equations(spec: ast.Spec, typing: Typing) -> None:
    """Types every step in order; fields become readable, and weaken, after the step that writes them."""
    typing.later = typing.names.written
    for step in spec.steps:
        here: dict[str, ast.Ref] = {}
        new: dict[str, FieldType] = {}
        for equation in step.equations:
            target = equation.target
            if target.name in here:
                first = typing.problems.source.place(here[target.name].span)
                typing.problems.add(
                    "C280",
                    target.span,
                    f"{target.name} is written twice in one step",
                    "both equations would happen at once",
                    f"first written at {first}",
                    "put `then` between the two equations",
                )
                continue
            here[target.name] = target
            stored = _equation(typing, target, equation.body)
            if stored is not None:
                new[target.name] = stored
        typing.knows(new)
    for let in typing.names.lets.values():
        typing.let(let)


def _equation(typing: Typing, target: ast.Ref, body: ast.Expr) -> FieldType | None:
    """What a field is after an equation, or None when the target or the body make no sense."""
    ready = _target(typing, target)
    found = typing.of(body, frozenset(target.indices)) if _indices(typing, target) else None
    if found is None or not ready:
        return None
    known = typing.fields.get(target.name)
    if not defined(typing, found, target):
        found = replace(found, undefined=None)
    if known is not None and not fits(typing, known, target, body, found):
        return None
    return stored(typing, known, target, body, found)


def _target(typing: Typing, target: ast.Ref) -> bool:
    """Whether the left-hand side is something that can be written."""
    problems, names, name = typing.problems, typing.names, target.name
    what = names.what(name)
    if name in names.random or what and name not in (*names.inputs, *names.state, *names.written):
        problems.add(
            "C281",
            target.span,
            f"{name} is {what} and cannot be written",
            "only fields can be written",
            "give the result a name of its own",
        )
        return False
    if not target.indices:
        problems.add(
            "C282",
            target.span,
            f"{name} needs an index: which tokens hold it?",
            "",
            f"as in {name}[{next(iter(names.index), 'i')}] = ...",
        )
        return False
    if len(target.indices) > 2:
        problems.add(
            "C283",
            target.span,
            "a field has one index or two",
            f"{name} has {len(target.indices)}",
            "attention relates two tokens at a time",
        )
        return False
    if len(set(target.indices)) < len(target.indices):
        home = names.index.get(target.indices[0], "points")
        problems.add(
            "C284",
            target.span,
            "the two indices of a pair field must differ",
            "",
            f"declare a second index over {home}",
        )
        return False
    if not all(i in names.index for i in target.indices):
        return False  # reported with the indices
    declared = names.declared(name)
    known = typing.fields.get(name)
    if known is not None:
        ours = tuple(names.index[i] for i in target.indices)
        theirs = (known.home,) if known.columns is None else (known.home, known.columns)
        if ours != theirs:
            problems.add(
                "C285",
                target.span,
                f"{name} belongs to {' and '.join(theirs)}, not to {' and '.join(ours)}",
                f"{written(name, known.indices)} is {field_words(known)}",
                declared_at(problems.source, declared.target.span) if declared else "",
            )
            return False
    elif declared is not None:
        return False  # the declaration was refused
    return open_columns(typing, target)


def open_columns(typing: Typing, target: ast.Ref) -> bool:
    """Whether a pair field has a fixed second set; reports when not."""
    if len(target.indices) < 2 or typing.names.sets[typing.names.index[target.indices[1]]] is not None:
        return True
    first, second = (typing.names.index[i] for i in target.indices)
    fixed = typing.names.sets[first] is not None
    typing.problems.add(
        "C286",
        target.span,
        f"{written(target.name, target.indices)} would store one number per pair of tokens",
        f"{second} is open: its size is known only when it runs",
        f"swap the indices: {written(target.name, target.indices[::-1])} lives on {second}"
        if fixed
        else "use it inside a sum instead (`let` gives it a name); only outputs may have a row per open pair",
        f"or fix the size of {second}: tokens {target.indices[1]} in {second} : SIZE",
    )
    return False


def _indices(typing: Typing, target: ast.Ref) -> bool:
    return all([typing.index(i, target.span) for i in target.indices])


def defined(typing: Typing, found: Type, target: ast.Ref | None = None) -> bool:
    """Whether a value is always defined; reports what may not be, and what to write."""
    guilty = found.undefined
    if guilty is None:
        return True
    keep = f", as in ... else {written(target.name, target.indices)}" if target and target.indices else ""
    message, label = why_undefined(guilty)
    typing.problems.add("C230", guilty.span, message, label, f"add `else` with the value to use then{keep}")
    return False


def why_undefined(guilty: ast.Expr) -> tuple[str, str]:
    """What may be undefined about an expression, and when."""
    match guilty:
        case ast.Reduce(kind="mean", where=()):
            return "this mean can be empty", "all its weights may be zero"
        case ast.Reduce(kind=kind):
            return f"this {kind} can be empty", "no token may meet its condition"
        case ast.Weigh(kind="normalize", where=()):
            return "this weighting can have nothing to divide by", "all its weights may be zero"
        case ast.Weigh():
            return "this weighting can have nothing to choose from", "no token may meet its condition"
    return "unit of a zero vector is undefined", "its length may be zero"


def fits(typing: Typing, known: FieldType, target: ast.Ref, body: ast.Expr, found: Type) -> bool:
    """Whether a value can be stored in a field that already has a type."""
    problems, name = typing.problems, target.name
    declared = typing.names.declared(name)
    where = (
        declared_at(problems.source, declared.target.span)
        if declared
        else f"first computed at {problems.source.place(typing.names.written[name])}"
        if name in typing.names.written
        else ""
    )
    if found.width != known.width and not is_zero(body):
        problems.add(
            "C287",
            body.span,
            f"{name} is {width_words(known.width)}, but the right-hand side is {width_words(found.width)}",
            f"{width_words(known.width)} is expected here",
            where,
        )
        return False
    if known.is_pair and known.role != "computed" and known.kind in ("onehot", "simplex"):
        if _row_kind(typing, known, target, body, found) < STRENGTH[known.kind]:
            how = (
                f"use argmin[{target.indices[1]}] or argmax[{target.indices[1]}]"
                if known.kind == "onehot"
                else f"use a weighting over {target.indices[1]}, such as normalize[{target.indices[1]}](...)"
            )
            problems.add(
                "C288",
                body.span,
                f"{name} is declared {known.kind}, but this is not known to be one",
                "each row must " + ("hold a single 1" if known.kind == "onehot" else "be weights that sum to one"),
                where,
                f"{how}, or declare {name} as real",
            )
            return False
    return True


def _row_kind(typing: Typing, known: FieldType | None, target: ast.Ref, body: ast.Expr, found: Type) -> int:
    """How strong a statement about the rows of a pair field an equation supports: 2 onehot, 1 simplex, 0 real."""
    second = target.indices[1]
    if found.kind and typing.weights_over(body) == second:
        return STRENGTH[found.kind]
    return int(sums_to_one(typing, body, frozenset(target.indices), second))


def stored(typing: Typing, known: FieldType | None, target: ast.Ref, body: ast.Expr, found: Type) -> FieldType:
    """The type of a field after one more equation: no stronger than before."""
    names = typing.names
    homes = [names.index[i] for i in target.indices]
    if known is None:
        kind = "number" if found.width is None else "vector"
        if len(homes) == 2:
            kind = {2: "onehot", 1: "simplex", 0: "real"}[_row_kind(typing, None, target, body, found)]
        return FieldType(
            target.name,
            "computed",
            target.indices,
            homes[0],
            homes[1] if len(homes) == 2 else None,
            found.width,
            kind,
            None,
            found.positive,
            found.nonnegative or found.positive,
        )  # type: ignore[arg-type]
    kind = known.kind
    if known.role == "computed" and known.is_pair:
        strength = min(STRENGTH[known.kind], _row_kind(typing, known, target, body, found))
        kind = {2: "onehot", 1: "simplex", 0: "real"}[strength]  # type: ignore[assignment]
    always = kind in ("onehot", "simplex")
    return replace(
        known,
        kind=kind,
        positive=known.positive and found.positive,
        nonnegative=always or (known.nonnegative and (found.nonnegative or found.positive)),
    )


# ---- outputs ---------------------------------------------------------------------------------------------------------


def outputs(spec: ast.Spec, typing: Typing) -> None:
    """Outputs read what the last layer left; each has a name of its own."""
    seen: dict[str, ast.Output] = {}
    for output in spec.outputs:
        name = output.target.name
        if name in seen:
            typing.problems.add(
                "C290",
                output.target.span,
                f"there are two outputs called {name}",
                "",
                f"the first is at {typing.problems.source.place(seen[name].span)}",
            )
            continue
        seen[name] = output
        if output.target.indices:
            _computed_output(typing, output)
        else:
            _shown_output(typing, output)


def _shown_output(typing: Typing, output: ast.Output) -> None:
    """`centers = c`, or `c` alone: a field under a name."""
    problems, names, body = typing.problems, typing.names, output.body
    some = next(iter(names.index), "i")
    if not isinstance(body, ast.Ref):
        problems.add(
            "C291",
            output.span,
            f"the output {output.target.name} needs an index: one value per which token?",
            "",
            f"as in {output.target.name}[{some}] = ...; a single number for the whole run is the `objective`",
        )
        return
    if body.indices:
        shape = written(output.target.name, body.indices)
        problems.add(
            "C291",
            output.span,
            f"the output {output.target.name} needs an index: one value per which token?",
            "",
            f"write {output.target.name} = {body.name}, or {shape} = {written(body.name, body.indices)}",
        )
        return
    if body.name in typing.fields or names.declared(body.name) or body.name in names.written:
        return  # known, or refused where it is declared or computed
    what = names.what(body.name)
    if body.name in names.lets:
        shape = names.lets[body.name].target.indices
        problems.add(
            "C292",
            output.span,
            f"{body.name} is a definition (`let`), not a stored field",
            "",
            f"write {written(output.target.name, shape)} = {written(body.name, shape)}",
        )
        return
    if what:
        problems.add(
            "C292", output.span, f"{body.name} is {what}, not a field", "", "an output is a field or an expression"
        )
        return
    problems.add(
        "C293",
        body.span,
        f"the output {body.name} is never computed",
        did_you_mean(body.name, typing.fields) or "no input, state or equation has this name",
        f"fields: {listed(typing.fields)}" if typing.fields else "",
    )


def _computed_output(typing: Typing, output: ast.Output) -> None:
    target, problems = output.target, typing.problems
    if len(target.indices) > 2:
        problems.add("C283", target.span, "an output has one index or two", f"{target.name} has {len(target.indices)}")
        return
    if len(set(target.indices)) < len(target.indices):
        problems.add(
            "C284",
            target.span,
            "the two indices of a pair output must differ",
            "",
            "declare a second index over the same set",
        )
        return
    if not _indices(typing, target):
        return
    found = typing.of(output.body, frozenset(target.indices))
    if found is None or not defined(typing, found, None):
        return
    if len(target.indices) == 2 and found.width is not None:
        problems.add(
            "C294",
            output.body.span,
            "a pair output holds one number per pair of tokens",
            f"this is {width_words(found.width)}",
            "take |v|^2 or <a, b>",
        )


def objective(spec: ast.Spec, typing: Typing) -> None:
    """The objective: one number for a whole run."""
    if spec.objective is None:
        return
    before = len(typing.problems.found)
    found = typing.of(spec.objective, frozenset())
    if found is None:
        _free_in_objective(typing, before)
        return
    if found.width is not None:
        typing.problems.add(
            "C295",
            spec.objective.span,
            "the objective must be one number",
            f"this is {width_words(found.width)}",
            "take |v|^2 or <a, b>",
        )
    defined(typing, found)


def _free_in_objective(typing: Typing, before: int) -> None:
    """Says what a free index means in an objective."""
    for at, problem in enumerate(typing.problems.found[before:], before):
        if problem.code == "C203":
            note = "the objective is one number for the whole run: reduce over every index, as in sum[i] min[j] ..."
            typing.problems.found[at] = replace(problem, notes=(note,))
