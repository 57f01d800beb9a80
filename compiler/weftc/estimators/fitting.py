"""Data and a spec -> a fitted clustering; a fitted clustering and points -> labels, shares, the objective.

Everything kept is NumPy, text and numbers, so a fit can be pickled; models are made where they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.source import Source
from weftc.estimators.derived_specs import (
    OBJECTIVE,
    DerivedSpecs,
    Question,
    Settings,
    compiled,
    dimensions,
    forms_of,
    reader,
    reading_of,
    settings_of,
)
from weftc.estimators.mistakes import EstimatorError
from weftc.estimators.places import Place
from weftc.estimators.roles import Clustering, extra_inputs
from weftc.estimators.settling import StopRule, rule
from weftc.estimators.starting import how_many, starts
from weftc_runtime.errors import RunError

if TYPE_CHECKING:
    from weftc_runtime import Checkpoint, Model

Floats = NDArray[Any]
LARGEST_SEED = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class FittedClustering:
    """The end of a run."""

    state: Mapping[str, Floats]  # what fixed sets hold
    layers: int
    at_rest: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What a settled clustering says about the data it was fitted to."""

    labels: NDArray[np.int32]
    objective: float | None  # None where the spec states none


@dataclass(frozen=True, slots=True)
class Fitted:
    """A clustering that has settled: the spec, its sizes, and what its fixed sets hold."""

    source: Source
    dims: Settings
    params: Settings
    checkpoint: Checkpoint
    end: FittedClustering
    place: Place

    @property
    def forms(self) -> DerivedSpecs:
        """The spec and its weighted form."""
        return forms_of(self.source)

    @property
    def centers(self) -> Floats:
        """(clusters, features)."""
        return self.end.state[self.forms.plain.centers.name]

    def outputs(self) -> dict[str, Floats]:
        """Every output that is a field of a fixed set."""
        checked = self.forms.plain.checked
        names = {o.target.name: checked.output_field(o.target.name) or "" for o in checked.spec.outputs}
        return {name: self.end.state[field] for name, field in names.items() if field in self.end.state}

    def labels(self, points: Floats) -> NDArray[np.int32]:
        """The cluster of every point."""
        return _indices(next(iter(self._ask("labels", points, None).values())))

    def shares(self, points: Floats) -> Floats:
        """The weights (points, clusters) of every point."""
        return np.asarray(next(iter(self._ask("shares", points, None).values())).cpu().numpy())

    def objective(self, points: Floats, mass: Floats | None = None) -> float:
        """The spec's objective."""
        return float(self._ask("objective", points, mass)[OBJECTIVE])

    def judged(self, points: Floats, mass: Floats | None) -> Judged:
        """The labels of the data, and the objective where the spec states one."""
        if not self.forms.has_objective:
            return Judged(self.labels(points), None)
        if mass is not None:
            return Judged(self.labels(points), self.objective(points, mass))
        found = dict(self._ask("labels and objective", points, None))
        objective = float(found.pop(OBJECTIVE))
        return Judged(_indices(next(iter(found.values()))), objective)

    def _ask(self, question: Question, points: Floats, mass: Floats | None) -> Mapping[str, Any]:
        read = reader(self.source, mass is not None, self.dims, self.params, question)
        roles = self.forms.chosen(mass is not None)
        dtype = np.result_type(points.dtype, self.centers.dtype)
        points, mass = counted(points, mass)
        state = {name: writable(self.end.state[name]) for name in read.reading.state}
        model = self.place.model(read.checkpoint, dtype)
        return model({**data(roles, points, mass), **state}, layers=read.layers, seed=self.end.seed)


def _indices(labels: Any) -> NDArray[np.int32]:
    return np.asarray(labels.indices.cpu().numpy(), dtype=np.int32)


def fit(
    source: Source,
    points: Floats,
    mass: Floats | None,
    *,
    clusters: int,
    init: Any,
    n_init: Any,
    limit: int,
    tol: float,
    random_state: np.random.RandomState,
    given: Mapping[str, Any],
    place: Place,
) -> tuple[Fitted, Judged]:
    """The best of some runs, each from a start of its own until it settles, and what it says about the points."""
    roles = forms_of(source).chosen(mass is not None)
    sizes, values, arrays = settings_of(roles, given)
    for field in extra_inputs(roles):
        if field.name not in arrays:
            raise EstimatorError(_missing(roles, field.name))
    dims = tuple(dimensions(roles, clusters, points.shape[1], sizes).items())
    params = tuple(values.items())
    checkpoint = compiled(source, mass is not None, dims, params)
    model = place.model(checkpoint, points.dtype)
    some, counts = counted(points, mass)
    stop = rule(roles, tol, some, counts)
    runs = how_many(roles, init, n_init)
    told = f"n_samples={len(points)}, n_clusters={clusters}"
    best: tuple[Fitted, Judged] | None = None
    for _ in range(runs):
        seed = int(random_state.randint(LARGEST_SEED))
        begin = starts(roles, init, some, counts, clusters, seed, random_state)
        inputs = {**arrays, **data(roles, some, counts), **begin}
        end = _settle(model, inputs, _kept(source, mass is not None), stop, limit, seed, told)
        found = Fitted(source, dims, params, checkpoint, end, place)
        judged = found.judged(points, mass)
        if best is None or _is_lower(judged.objective, best[1].objective):
            best = found, judged
    assert best is not None
    return best


def _is_lower(value: float | None, other: float | None) -> bool:
    return value is not None and other is not None and value < other


def _settle(
    model: Model, inputs: Mapping[str, Any], kept: Mapping[str, bool], stop: StopRule, limit: int, seed: int, told: str
) -> FittedClustering:
    """One run from its start to its end; `told` are the sizes of the problem, for who must be told of a mishap."""
    stop.met = False
    try:
        fields = model.fields(inputs, until=stop, until_stable=True, limit=limit, seed=seed)
    except RunError as error:  # the numbers may be the reason: too few samples, or one for each cluster
        raise EstimatorError(f"{error} ({told})") from None
    state = {}
    for name, is_number in kept.items():
        value = fields[name].detach().cpu().numpy()
        state[name] = value[:, 0] if is_number else value
    return FittedClustering(state, model.report.layers[0], stop.met or model.report.stable[0], seed)


@lru_cache(maxsize=64)
def _kept(source: Source, weights: bool) -> Mapping[str, bool]:
    """The fields of fixed sets to keep: what readings take, and what outputs show; and which are numbers."""
    checked = forms_of(source).chosen(weights).checked
    shown = [checked.output_field(o.target.name) for o in checked.spec.outputs]
    names = dict.fromkeys([*reading_of(source, False).state, *(name for name in shown if name is not None)])
    fixed = [checked.fields[name] for name in names if not checked.is_open(checked.fields[name].home)]
    return {field.name: field.kind == "number" for field in fixed}


def counted(points: Floats, mass: Floats | None) -> tuple[Floats, Floats | None]:
    """The points that count at all, and how much."""
    if mass is None or mass.all():
        return points, mass
    return points[mass > 0], mass[mass > 0]


def data(roles: Clustering, points: Floats, mass: Floats | None) -> dict[str, Floats]:
    """The inputs that hold the data."""
    found = {roles.points.name: writable(points)}
    if roles.weight is not None:
        found[roles.weight] = np.ones(len(points)) if mass is None else writable(mass)
    return found


def writable(array: Floats) -> Floats:
    """The array, or a copy of one that torch would warn about."""
    return array if array.flags.writeable else array.copy()


def _missing(roles: Clustering, name: str) -> str:
    field, spec = roles.checked.fields[name], roles.checked.spec
    place = spec.source.place(next(f.span for f in spec.inputs if f.target.name == name))
    if roles.checked.is_open(field.home):
        how = "an estimator has only X; give the input an `init`, or make it a state or a param"
    else:
        how = f"give params={{{name!r}: array}}, one row for each of {field.home}, or an `init` in the spec"
    return f"{spec.name} needs the input {name} ({place}): {how}"
