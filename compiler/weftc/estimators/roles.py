"""A checked spec -> what its fields are to a clusterer, by structure alone.

assignment   an output that gives every token of an open set weights (onehot or simplex) over a fixed set
points       the first vector input of that open set: the data
centers      the first output that is a vector field of the fixed set, as wide as the points
weight       an input number per point that multiplies every reduction over the points: it is a multiplicity
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weftc.core import syntax as ast
from weftc.core.types import Checked, FieldType
from weftc.core.words import listed
from weftc.estimators.mistakes import EstimatorError
from weftc.estimators.multiplicity import multiplies
from weftc.language.check.check import type_of


@dataclass(frozen=True, slots=True)
class Clustering:
    """A spec that assigns points to centers, and its roles."""

    checked: Checked
    assignment: str  # the output
    equation: ast.Equation | None  # that makes it, where the output is not a stored field
    field: str  # the pair field behind it
    soft: bool
    points: FieldType
    centers: FieldType
    shown: str  # the output that shows the centers
    weight: str | None = None

    @property
    def size(self) -> ast.Dimension:
        """How many centers there are: a dimension, or a number that the spec fixes."""
        size = self.checked.sets[self.centers.home]
        assert size is not None
        return size

    @property
    def start(self) -> ast.Field | None:
        """The input that the centers start as, if they are one."""
        return next((f for f in self.checked.spec.inputs if f.target.name == self.centers.name), None)

    @property
    def is_random(self) -> bool:
        """Whether runs differ from the same start."""
        return bool(self.checked.spec.random)


def clustering(checked: Checked) -> Clustering:
    """The roles of a spec, or an error that says what it lacks."""
    spec, reasons = checked.spec, []
    for output, home, columns, kind in _assignments(checked):
        points = _points(checked, home)
        if points is None:
            reasons.append(f"{home}, which {output.target.name} assigns, have no input of vectors")
            continue
        centers = _centers(checked, columns, points)
        if centers is None:
            need = f"no output is a field of {columns}, of vectors as wide as {points.name}"
            reasons.append(f"{output.target.name} assigns {home} to {columns}, but {need}")
            continue
        field = output.body.name if isinstance(output.body, ast.Ref) and not output.body.indices else ""
        equation = None
        if not field:
            field = output.target.name
            equation = ast.Equation(output.span, output.target, output.body)
        roles = (output.target.name, equation, field, kind == "simplex", points, *centers)
        return Clustering(checked, *roles, _weight(checked, points))
    found = "; ".join(reasons) or f"its outputs are {listed([o.target.name for o in spec.outputs])}"
    raise EstimatorError(
        f"{spec.name} is no clustering: an output must hold, for every token of an open set, a choice or shares "
        f"(onehot or simplex) over a fixed set, and the fixed set's vectors must be an output too; {found}"
    )


def extra_inputs(roles: Clustering) -> Iterator[FieldType]:
    """Inputs that are neither points, nor weights, nor have a way to start."""
    known = {roles.points.name, roles.weight, roles.centers.name}
    for field in roles.checked.spec.inputs:
        if field.target.name not in known and field.init is None:
            yield roles.checked.fields[field.target.name]


def _assignments(checked: Checked) -> Iterator[tuple[ast.Output, str, str, str]]:
    """Outputs over an open and a fixed set that hold weights, with the two sets."""
    for output in checked.spec.outputs:
        name = checked.output_field(output.target.name)
        if name is not None:
            field = checked.fields[name]
            home, columns, kind = field.home, field.columns, str(field.kind)
        elif len(output.target.indices) == 2:
            home, columns = (checked.set_of(index) for index in output.target.indices)
            kind = _kind(checked, output)
        else:
            continue
        if columns is None or not checked.is_open(home) or checked.is_open(columns):
            continue
        if kind in ("onehot", "simplex"):
            yield output, home, columns, kind


def _kind(checked: Checked, output: ast.Output) -> str:
    body = output.body.body if isinstance(output.body, ast.Else) else output.body
    if isinstance(body, ast.Weigh) and body.index != output.target.indices[1]:
        return ""
    return type_of(checked, output.body, output.target.indices).kind


def _points(checked: Checked, home: str) -> FieldType | None:
    fields = (checked.fields[field.target.name] for field in checked.spec.inputs)
    return next((f for f in fields if f.home == home and f.kind in ("vector", "unit")), None)


def _centers(checked: Checked, home: str, points: FieldType) -> tuple[FieldType, str] | None:
    for output in checked.spec.outputs:
        name = checked.output_field(output.target.name)
        field = checked.fields[name] if name is not None else None
        fits = field is not None and field.home == home and field.kind in ("vector", "unit")
        if field is not None and fits and field.width == points.width:
            return field, output.target.name
    return None


def _weight(checked: Checked, points: FieldType) -> str | None:
    for field in checked.spec.inputs:
        found = checked.fields[field.target.name]
        if found.home == points.home and found.kind == "number" and multiplies(checked, found):
            return found.name
    return None
