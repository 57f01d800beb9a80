"""`Spec` -> `Checked`: every name resolved, every width fitted, every stored value defined; or all mistakes at once."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.types import Checked, FieldType, Type
from weftc.language.check.declarations import declare, starts
from weftc.language.check.equalities import spelled_out
from weftc.language.check.equations import equations
from weftc.language.check.examples import examples
from weftc.language.check.expressions import Typing
from weftc.language.check.inits import inits
from weftc.language.check.names import Names, collect
from weftc.language.check.outputs import objective, outputs
from weftc.language.check.params import params
from weftc.language.check.problems import MOST_REPORTED, Problems
from weftc.language.check.sizes import sizes

MOST_PASSES = 20  # real specs need two or three; after these, no sign is assumed any more


def check(spec: ast.Spec) -> Checked:
    """The spec with its tables, or a `SpecError` with everything that is wrong with its meaning."""
    problems = Problems(spec.source)
    names = collect(spec, problems)
    _sections(spec, problems)
    params(names, problems)
    sizes(spec, names, problems)
    typing = Typing(names, problems)
    declared = declare(typing)
    inits(names, declared, problems)
    typing, shapes = _settle(spec, names, declared, frozenset(typing.refused))
    found, fields = typing.problems, typing.fields
    problems.found.extend(found.found[: MOST_REPORTED - len(problems.found)])
    shown = examples(spec, names, fields, shapes, problems)
    problems.stop()
    ordered = {name: fields[name] for name in (*declared, *(n for n in fields if n not in declared))}
    core = replace(spelled_out(spec, typing.compared), examples=shown)
    lets = {let.target.name: let for let in core.lets}
    return Checked(core, names.sets, names.index, ordered, lets, names.params, tuple(names.dims))


def type_of(checked: Checked, expr: ast.Expr, bound: frozenset[str] | set[str] | tuple[str, ...]) -> Type:
    """The type of an expression of a checked spec, its free indices among `bound`."""
    problems = Problems(checked.spec.source)
    names = Names(
        dict(checked.sets),
        dict(checked.index),
        dict.fromkeys(checked.dims, Span(0, 0)),
        params=dict(checked.params),
        lets=dict(checked.lets),
    )
    found = Typing(names, problems, dict(checked.fields)).of(expr, frozenset(bound))
    problems.stop()
    assert found is not None
    return found


def _settle(
    spec: ast.Spec, names: Names, declared: dict[str, FieldType], refused: frozenset[str]
) -> tuple[Typing, dict[str, FieldType]]:
    """The types of all fields with what is wrong with them, and the shapes of the outputs.

    A field that is written keeps its sign only if every equation keeps it, and an equation may read the field it
    writes. So signs are assumed as declared and weakened until the equations confirm them; the last pass reports.
    """
    assumed = dict(declared)
    for number in count():
        found = Problems(spec.source)
        typing = Typing(names, found, dict(assumed), refused=set(refused))
        starts(typing, assumed)
        equations(spec, typing)
        settled = {name: typing.fields[name] for name in assumed}
        if settled == assumed:
            break
        assumed = settled if number < MOST_PASSES else {name: _unsigned(field) for name, field in settled.items()}
    shapes = outputs(spec, typing)
    objective(spec, typing)
    return typing, shapes


def _unsigned(field: FieldType) -> FieldType:
    """A field of which only the kind says that it is not negative."""
    return replace(field, positive=False, nonnegative=field.kind in ("onehot", "simplex", "uniform"))


def _sections(spec: ast.Spec, problems: Problems) -> None:
    """Sections no algorithm can do without."""
    needed = (
        (spec.tokens, "tokens", "tokens  i in points"),
        (spec.steps, "layer", "layer and at least one equation, such as x[i] = 2 * x[i]"),
        (spec.outputs, "outputs", "outputs and the fields to return, such as outputs c"),
    )
    for present, word, how in needed:
        if not present:
            problems.add("C270", spec.span, f"{spec.name} has no `{word}`", "", f"write: {how}")
