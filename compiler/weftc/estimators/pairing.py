"""A checked spec -> what its fields are to a matching, by structure alone.

plan     an output over two open sets, or over one set twice
points   the vector input that the plan reads at its first index, and the one it reads at its second
masses   the other inputs: a number on either side, or none
cost     how the plan compares the two: |x - y|^2 or <x, y>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from weftc.core import syntax as ast
from weftc.core.trees import inside
from weftc.core.types import Checked
from weftc.core.words import listed
from weftc.estimators.mistakes import EstimatorError
from weftc.language.recheck import rechecked


@dataclass(frozen=True, slots=True)
class Matching:
    """What the fields of a spec are to a matching."""

    checked: Checked
    plan: str  # the output
    sets: tuple[str, str]
    points: tuple[str, str]
    masses: tuple[str | None, str | None]
    cost: str  # squared, inner
    read: Checked | None  # a spec that tells the plan of stored fields, without a layer; None where layers make it


def matching(checked: Checked) -> Matching:
    """The roles of a spec, or an error that says what it lacks."""
    spec = checked.spec
    for output in spec.outputs:
        sets = tuple(checked.set_of(index) for index in output.target.indices)
        if len(sets) != 2 or not all(checked.is_open(name) for name in sets):
            continue
        body = expanded(checked, output.body)
        sides = [_side(checked, body, index) for index in output.target.indices]
        if sides[0] is None or sides[1] is None:
            continue
        points = (sides[0], sides[1])
        cost = _cost(body, points)
        if not cost:
            raise EstimatorError(
                f"{spec.name} compares {points[0]} and {points[1]} by something other than |x - y|^2 or <x, y>, "
                f"so {output.target.name} has no cost that `match` could tell; run the spec with weftc.load"
            )
        masses = _mass_inputs(checked, sets, points)
        read = _reading(checked, output, body)
        return Matching(checked, output.target.name, (sets[0], sets[1]), points, masses, cost, read)
    raise EstimatorError(
        f"{spec.name} matches nothing: an output must have a number for each pair of two open sets (or of one set "
        f"twice), and follow from a vector input on either side; its outputs are "
        f"{listed([output.target.name for output in spec.outputs])}"
    )


def _reading(checked: Checked, output: ast.Output, body: ast.Expr) -> Checked | None:
    """The spec with its state as inputs, and the plan as its only output."""
    refs = {node.name for node in ast.walk(body) if isinstance(node, ast.Ref)}
    if any(name in checked.fields and checked.fields[name].role in ("computed", "random") for name in refs):
        return None
    stored = [replace(f, init=None, start=None) for f in (*checked.spec.inputs, *checked.spec.state)]
    return rechecked(
        replace(checked.spec, inputs=tuple(stored), state=(), outputs=(output,), objective=None, examples=())
    )


def expanded(checked: Checked, body: ast.Expr) -> ast.Expr:
    """An expression with every definition put in."""

    def put(node: Any, names: Mapping[str, str]) -> Any:
        if isinstance(node, ast.Ref):
            indices = tuple(names.get(index, index) for index in node.indices)
            let = checked.lets.get(node.name)
            if let is None:
                return ast.Ref(node.span, node.name, indices)
            return put(let.body, dict(zip(let.target.indices, indices, strict=True)))
        return inside(node, lambda child: put(child, names))

    made: ast.Expr = put(body, {})
    return made


def _side(checked: Checked, body: ast.Expr, index: str) -> str | None:
    """The vector input that an expression reads at an index."""
    inputs = {f.target.name for f in checked.spec.inputs if checked.fields[f.target.name].kind in ("vector", "unit")}
    found = (node for node in ast.walk(body) if isinstance(node, ast.Ref) and node.indices == (index,))
    return next((node.name for node in found if node.name in inputs), None)


def _mass_inputs(checked: Checked, sets: tuple[str, ...], points: tuple[str, str]) -> tuple[str | None, str | None]:
    """The inputs that are neither points nor start by themselves: at most a number on either side."""
    found: list[str | None] = [None, None]
    for declared in checked.spec.inputs:
        name, kind = declared.target.name, checked.fields[declared.target.name]
        if name in points or declared.init is not None:
            continue
        free = [at for at in (0, 1) if kind.home == sets[at] and found[at] is None]
        if kind.kind != "number" or not free or sets[0] == sets[1]:
            place = checked.spec.source.place(declared.span)
            raise EstimatorError(
                f"{checked.spec.name} needs the input {name} ({place}), which is neither points nor masses; "
                "run the spec with weftc.load, or give the input an `init`"
            )
        found[free[0]] = name
    return found[0], found[1]


def _cost(body: ast.Expr, points: tuple[str, str]) -> str:
    """How an expression compares the two sides."""
    for node in _terms(body):
        match node:
            case ast.Square(body=ast.Binary(op="-", left=left, right=right)) | ast.Inner(left=left, right=right):
                if {side.name for side in (left, right) if isinstance(side, ast.Ref)} == set(points):
                    return "squared" if isinstance(node, ast.Square) else "inner"
    return ""


def _terms(body: ast.Expr) -> Iterator[ast.Expr]:
    """What an expression, or the exponential of it, is a weighted sum of."""
    match body:
        case ast.Call(function="exp", body=within) | ast.Neg(body=within):
            yield from _terms(within)
        case ast.Binary(op="/", left=left):
            yield from _terms(left)
        case ast.Binary(left=left, right=right):
            yield from _terms(left)
            yield from _terms(right)
        case _:
            yield body
