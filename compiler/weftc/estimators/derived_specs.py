"""The specs an estimator runs: as written, counting weights, and for reading; compiled for the sizes of the data.

Everything here is a function of the text of a spec, and remembered: fits of a grid search compile once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from weftc.compiling import SpecLike, spec_source
from weftc.compiling import compile as compile_spec
from weftc.core.errors import InputError, SpecError
from weftc.core.source import Source
from weftc.core.syntax import Param, Spec
from weftc.core.types import Checked
from weftc.core.unparse import same, written
from weftc.estimators.mistakes import EstimatorError
from weftc.estimators.multiplicity import counted
from weftc.estimators.reading import ReadingSpec, reading
from weftc.estimators.roles import Clustering, clustering
from weftc.files.locate import builtin, names
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc_runtime.format.checkpoint import Checkpoint

OBJECTIVE = "(objective)"  # no output of a spec can have this name
Settings = tuple[tuple[str, float], ...]
Question = Literal["labels", "shares", "objective", "labels and objective"]


@dataclass(frozen=True, slots=True)
class DerivedSpecs:
    """A spec as a clusterer runs it; `weighted` is the one that takes weights, perhaps the same."""

    plain: Clustering
    weighted: Clustering | None

    @property
    def has_objective(self) -> bool:
        """Whether a run can be judged."""
        return self.plain.checked.spec.objective is not None

    def chosen(self, weights: bool) -> Clustering:
        """The spec for data with weights, or without."""
        if not weights:
            return self.plain
        if self.weighted is None:
            raise EstimatorError(f"{self.plain.checked.spec.name} has no weighted form; fit without sample_weight")
        return self.weighted


def source_of(spec: SpecLike) -> Source:
    """The text of whatever names a spec; a tree that is not what its text says is written out."""
    if isinstance(spec, Checked | Spec):
        tree = spec.spec if isinstance(spec, Checked) else spec
        try:
            if same(parse(tree.source), tree):
                return tree.source
        except SpecError:
            pass
        return Source(tree.source.name, written(tree))
    return (_builtin(spec) if isinstance(spec, str) else None) or spec_source(spec)


@lru_cache(maxsize=64)
def _builtin(name: str) -> Source | None:
    """The text of a built-in spec, looked up once; None for any other."""
    return builtin(name) if name in names() else None


@lru_cache(maxsize=64)
def forms_of(source: Source) -> DerivedSpecs:
    """The forms of a spec, or an error that says why it is no clustering."""
    checked = check(parse(source))
    plain = clustering(checked)
    if plain.weight is not None:
        return DerivedSpecs(plain, plain)
    made = counted(checked, plain.points.home)
    if made is None or not _lowers(made[0]):
        return DerivedSpecs(plain, None)
    roles = clustering(made[0])
    return DerivedSpecs(plain, replace(roles, weight=made[1]))


def _lowers(checked: Checked) -> bool:
    """Whether a spec has a transformer; sizes and parameters do not matter for that."""
    try:
        values = {name: _some(param) for name, param in checked.params.items() if param.default is None}
        compile_spec(checked, dict.fromkeys(checked.dims, 2), values)
    except SpecError:
        return False
    return True


def _some(param: Param) -> float:
    """A value in the range of a parameter."""
    bound = param.bound
    tried = [1.0, 2.0, 0.5, 0.0]
    if bound is not None and bound.low is not None and bound.high is not None:
        tried.append((bound.low[0] + bound.high[0]) / 2)
    elif bound is not None:
        tried += [side[0] + step for side in (bound.low, bound.high) if side is not None for step in (1.0, -1.0)]
    return next((value for value in tried if bound is None or bound.admits(value)), 1.0)


@lru_cache(maxsize=64)
def compiled(source: Source, weights: bool, dims: Settings, params: Settings) -> Checkpoint:
    """The transformer that a fit runs."""
    return compile_spec(forms_of(source).chosen(weights).checked, _sizes(dims), dict(params))


@dataclass(frozen=True, slots=True)
class ReadingModel:
    """The transformer that answers a question about points and settled centers: one run of `layers` layers."""

    checkpoint: Checkpoint
    reading: ReadingSpec
    layers: int


@lru_cache(maxsize=64)
def reading_of(source: Source, weights: bool) -> ReadingSpec:
    """The spec that reads off labels."""
    return reading(forms_of(source).chosen(weights))


@lru_cache(maxsize=128)
def reader(source: Source, weights: bool, dims: Settings, params: Settings, asked: Question) -> ReadingModel:
    """The transformer that tells labels, shares or the objective, as asked, and nothing else."""
    read = reading_of(source, weights)
    known = {name: size for name, size in _sizes(dims).items() if name in read.checked.dims}
    made = compile_spec(read.checked, known, dict(params))
    program = made.program
    told = {"labels": {read.labels}, "shares": {read.shares}, "objective": {OBJECTIVE}}
    wanted = told.get(asked, {read.labels, OBJECTIVE})
    every = [*program.outputs, *([] if program.objective is None else [replace(program.objective, name=OBJECTIVE)])]
    program = replace(program, outputs=tuple(output for output in every if output.name in wanted), objective=None)
    used = program.tensors()
    tensors = {name: array for name, array in made.tensors.items() if name in used}
    layers = 0 if asked == "objective" and read.judged_at_once else 1
    return ReadingModel(replace(made, program=program, tensors=tensors), read, layers)


def _sizes(dims: Settings) -> dict[str, int]:
    return {name: int(size) for name, size in dims}


def dimensions(roles: Clustering, clusters: int, features: int, given: Mapping[str, Any]) -> dict[str, int]:
    """Every dimension of the spec that data and settings determine."""
    name = roles.checked.spec.name
    found: dict[str, int] = {dim: value for dim, value in given.items() if dim in roles.checked.dims}
    told = {
        roles.size: (clusters, "n_clusters", f"{roles.centers.home} of {name}"),
        roles.points.width: (features, "the number of features", f"columns of {roles.points.name} in {name}"),
    }
    if roles.size == roles.points.width and clusters != features:
        raise EstimatorError(f"{name} has as many {roles.centers.home} as features; set n_clusters={features}")
    for dim, (value, word, what) in told.items():
        fixed = dim if isinstance(dim, int) else found.get(str(dim), value)
        if fixed != value:
            raise EstimatorError(f"there are {fixed} {what}, but {word} is {value}")
        if isinstance(dim, str):
            found[dim] = value
    return found


def settings_of(roles: Clustering, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """`params` apart: dimensions, parameters, and arrays for inputs of fixed sets."""
    checked = roles.checked
    inputs = {field.target.name for field in checked.spec.inputs}
    arrays = {name: value for name, value in given.items() if name in inputs}
    for name in arrays:
        field = checked.fields[name]
        if checked.is_open(field.home) or name == roles.centers.name:
            how = "give it as init" if name == roles.centers.name else f"it has a row for each of {field.home}"
            raise InputError(f"params: {name} cannot be set here; {how}")
    dims = {name: value for name, value in given.items() if name in checked.dims}
    params = {name: value for name, value in given.items() if name not in dims and name not in arrays}
    return dims, params, arrays
