"""`init` -> the rows that the centers start as, for each of several starts.

A start that the spec describes is drawn here and not by the model, so that weights count: the draws are those of rows
repeated as often as their weight says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from weftc.core.vocabulary import DRAWN
from weftc.core.words import listed
from weftc.estimators.defaults import STARTS
from weftc.estimators.mistakes import EstimatorError
from weftc.estimators.roles import Clustering
from weftc_runtime.data.initial import starts as rows_of

Floats = NDArray[Any]
LARGEST_SEED = np.iinfo(np.int32).max


def normalised(rows: Floats, name: str) -> Floats:
    """Rows of length one; a row of zeros has no direction."""
    scale = np.abs(rows).max(axis=1, initial=0.0, keepdims=True).astype(np.float64)
    if not scale.all():
        row = int(np.flatnonzero(scale == 0)[0])
        raise EstimatorError(f"row {row} of {name} (counted from 0) is zero; the spec needs directions: unit vectors")
    scaled = rows / scale
    return np.asarray(scaled / np.sqrt(np.square(scaled).sum(axis=1, keepdims=True)), dtype=rows.dtype)


def starts(
    roles: Clustering, init: Any, points: Floats, mass: Floats | None, clusters: int, runs: int, random_state: Any
) -> tuple[list[int], list[dict[str, Floats]]]:
    """A seed for every run, and arrays for the inputs that it starts with."""
    if init is not None and roles.start is None:
        raise EstimatorError(f"{roles.checked.spec.name} starts {roles.centers.name} itself; init must be None")
    seeds: list[int] = []
    given: list[dict[str, Floats]] = []
    for _ in range(runs):
        seeds.append(int(random_state.randint(LARGEST_SEED)))
        is_given = init is not None and not isinstance(init, str)
        given.append({roles.centers.name: _given(roles, init, points, clusters, random_state)} if is_given else {})
    for name, (method, size) in _methods(roles, init, clusters, given[0]).items():
        rows = rows_of(method, points, size, name, "X", seeds, mass)
        given = [{**known, name: made} for known, made in zip(given, rows, strict=True)]
    return seeds, given


def _methods(roles: Clustering, init: Any, clusters: int, given: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """How inputs that nobody gave start from the points: by name, the method, and how many rows."""
    checked, found = roles.checked, dict[str, tuple[str, int]]()
    for field in checked.spec.inputs:
        name, kind = field.target.name, field.init
        if name in given:
            continue
        if name == roles.centers.name and (init is not None or kind is None):
            method = STARTS[init] if init is not None else ""
            if not method:
                raise EstimatorError(f"{checked.spec.name} does not say how {name} starts; give init")
            found[name] = method, clusters
        elif kind is not None and kind.of == roles.points.name and kind.kind != "copy":
            size = checked.sets[checked.fields[name].home]
            many = clusters if size == roles.size else size if isinstance(size, int) else None
            if many is not None:
                found[name] = kind.kind, many
    return found


def how_many(roles: Clustering, init: Any, n_init: Any) -> int:
    """The number of starts; `auto` is many only where starts are drawn blindly and a run can be judged."""
    judged = roles.checked.spec.objective is not None
    clause = roles.start.init.kind if roles.start is not None and roles.start.init is not None else ""
    method = STARTS.get(init, "") if isinstance(init, str) else clause if init is None else ""
    if n_init == "auto":
        blind = method == "random" or callable(init)
        return 10 if judged and blind and not roles.is_random else 1
    if n_init > 1 and not judged:
        raise EstimatorError(
            f"n_init={n_init}, but {roles.checked.spec.name} states no objective by which to choose among runs; "
            "set n_init=1, or add an `objective` to the spec"
        )
    varies = roles.is_random or callable(init) or method in DRAWN
    return int(n_init) if varies else 1


def check_init(init: Any) -> None:
    """Refuses a name that is no initialiser."""
    if isinstance(init, str) and init not in STARTS:
        raise EstimatorError(f"init={init!r} is no start; give {listed(list(STARTS))}, an array or a callable")


def _given(
    roles: Clustering, init: Floats | Callable[..., Any], points: Floats, clusters: int, random_state: Any
) -> Floats:
    rows = init(points, clusters, random_state=random_state) if callable(init) else init
    array = np.asarray(check_array(rows, dtype=points.dtype, order="C", copy=True, input_name="init"))
    if array.shape != (clusters, points.shape[1]):
        wanted = f"({clusters}, {points.shape[1]}): one row for each cluster"
        raise EstimatorError(f"init has shape {array.shape}; it must be {wanted}")
    return normalised(array, "init") if roles.centers.kind == "unit" else array
