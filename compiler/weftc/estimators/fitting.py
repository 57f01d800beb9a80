"""Data and a spec -> a fitted clustering; a fitted clustering and points -> labels, shares, the objective.

Everything kept is NumPy, text and numbers, so a fit can be pickled; models are made where they run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from weftc.estimators.settling import rule
from weftc.estimators.starting import how_many, starts
from weftc_runtime.errors import RunError

if TYPE_CHECKING:
    from weftc_runtime import Checkpoint, Model
    from weftc_runtime.data.stopping import SmallChange

Floats = NDArray[Any]
TOGETHER = 1 << 22  # numbers of the points of runs that are one batch


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

    def _ask(self, question: Question, points: Floats, mass: Floats | None) -> Mapping[str, Any]:
        dims, params = self.dims, self.params
        return Asked(self.source, dims, params, self.place).ask(question, points, mass, [self.end])


@dataclass(frozen=True, slots=True)
class Asked:
    """A spec with its sizes, to be asked about points and settled clusterings of one kind."""

    source: Source
    dims: Settings
    params: Settings
    place: Place

    def ask(
        self, question: Question, points: Floats, mass: Floats | None, ends: Sequence[FittedClustering]
    ) -> Mapping[str, Any]:
        """The answers; those of several clusterings have an axis in front."""
        read = reader(self.source, mass is not None, self.dims, self.params, question)
        roles = forms_of(self.source).chosen(mass is not None)
        dtype = np.result_type(points.dtype, ends[0].state[roles.centers.name].dtype)
        points, mass = counted(points, mass)
        state = [{name: end.state[name] for name in read.reading.state} for end in ends]
        model = self.place.model(read.checkpoint, dtype)
        seeds = [end.seed for end in ends]
        return model({**data(roles, points, mass), **_side_by_side(state)}, layers=read.layers, **_seeded(seeds))

    def judged(self, points: Floats, mass: Floats | None, ends: Sequence[FittedClustering]) -> list[Judged]:
        """The labels of the data, and the objective where the spec states one."""
        stated = forms_of(self.source).has_objective
        together = stated and mass is None  # labels are of all points, an objective is of those that count
        found = dict(self.ask("labels and objective" if together else "labels", points, None, ends))
        objective = found.pop(OBJECTIVE, None)
        if stated and objective is None:
            objective = self.ask("objective", points, mass, ends)[OBJECTIVE]
        labels = _indices(next(iter(found.values()))).reshape(len(ends), -1)
        values = [None] * len(ends) if objective is None else objective.reshape(-1).tolist()
        return [Judged(*each) for each in zip(labels, values, strict=True)]


def _side_by_side(arrays: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Arrays of several runs by name, as a batch; those of one run as they are."""
    if len(arrays) == 1:
        return {name: writable(array) for name, array in arrays[0].items()}
    return {name: np.stack([each[name] for each in arrays]) for name in arrays[0]}


def _seeded(seeds: Sequence[int]) -> dict[str, Any]:
    return {"seed": seeds[0] if len(seeds) == 1 else seeds}


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
    seeds, begins = starts(roles, init, some, counts, clusters, runs, random_state)
    fixed = {**arrays, **data(roles, some, counts)}
    asked, kept = Asked(source, dims, params, place), _kept(source, mass is not None)
    many = max(1, TOGETHER // points.size) if begins[0] else 1
    best: tuple[FittedClustering, Judged] | None = None
    for first in range(0, len(seeds), many):
        some_seeds, inputs = seeds[first : first + many], {**fixed, **_side_by_side(begins[first : first + many])}
        try:
            ends = _settle(model, inputs, kept, stop, limit, some_seeds)
        except RunError as error:  # the numbers may be the reason: too few samples, or one for each cluster
            raise EstimatorError(f"{error} (n_samples={len(points)}, n_clusters={clusters})") from None
        for end, judged in zip(ends, asked.judged(points, mass, ends), strict=True):
            if best is None or _is_lower(judged.objective, best[1].objective):
                best = end, judged
    assert best is not None
    return Fitted(source, dims, params, checkpoint, best[0], place), best[1]


def _is_lower(value: float | None, other: float | None) -> bool:
    return value is not None and other is not None and value < other


def _settle(
    model: Model,
    inputs: Mapping[str, Any],
    kept: Mapping[str, bool],
    stop: SmallChange | None,
    limit: int,
    seeds: Sequence[int],
) -> list[FittedClustering]:
    """Runs from their starts to their ends."""
    fields = model.fields(inputs, until=stop, until_stable=True, limit=limit, **_seeded(seeds))
    found: dict[str, Floats] = {}
    for name, is_number in kept.items():
        value = fields[name].detach().cpu().numpy()
        value = value[..., 0] if is_number else value
        found[name] = value if len(seeds) > 1 else value[None]
    ends = zip(model.report.layers, model.report.stable, seeds, strict=True)
    return [FittedClustering({name: rows[at] for name, rows in found.items()}, *end) for at, end in enumerate(ends)]


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
