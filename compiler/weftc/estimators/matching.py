"""Two clouds of points -> an assignment of one to the other, by the transformer of a spec: `weftc.match`.

Any spec will do that has an output over two open sets, or over one set twice (a plan), which follows from a vector
input on either side. Masses are inputs of numbers, one on either side, or the spec's own affair.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weftc.compiling import SpecLike, checked_spec
from weftc.compiling import compile as compile_spec
from weftc.core.errors import InputError
from weftc.estimators import defaults
from weftc.estimators.balancing import Balance, imbalance, scale
from weftc.estimators.mistakes import EstimatorError, as_value_errors
from weftc.estimators.pairing import Matching, matching
from weftc.language.bind import split

if TYPE_CHECKING:
    from weftc_runtime import Checkpoint

Floats = NDArray[np.float64]
ROUGHLY = 1e-6  # by how much the masses of the two sides may differ, relatively


@dataclass(frozen=True, slots=True)
class Match:
    """An assignment of the rows of x to the rows of y.

    plan              (n, m), in POT's convention: how much of every row of x goes to every row of y, 1 in all
    row_ind, col_ind  the plan rounded to whole pairs, as SciPy's `linear_sum_assignment` gives them
    cost              sum of plan * C, where C are the costs the spec compares x and y by
    assignment_cost   sum of C over the pairs, as SciPy counts
    marginal_error    how far the sums of rows or columns are from the masses: the larger of the two distances, in L1
    layers, settled   how many layers ran, and whether the run came to rest
    outputs           every output of the spec as it is, by name
    model             the checkpoint that ran
    """

    plan: Floats = field(repr=False)
    row_ind: NDArray[np.intp]
    col_ind: NDArray[np.intp]
    cost: float
    assignment_cost: float
    marginal_error: float
    layers: int
    settled: bool
    outputs: Mapping[str, Floats] = field(repr=False)
    model: Checkpoint = field(repr=False)

    @property
    def permutation(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(row_ind, col_ind): row row_ind[p] of x goes with row col_ind[p] of y."""
        return self.row_ind, self.col_ind


def match(
    x: Any,
    y: Any,
    spec: SpecLike = defaults.MATCHING,
    *,
    a: Any = None,
    b: Any = None,
    params: Mapping[str, Any] | None = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    seed: int = 0,
    device: str = "cpu",
    backend: str = "auto",
) -> Match:
    """Matches the rows of x (n, d) with the rows of y (m, d).

    `a` and `b` are their masses (uniform when not given), `params` the spec's parameters. A run ends when the sums of
    the plan's rows and columns are within `tol` of the masses (looked at every few layers), when nothing changes any
    more, or after `max_iter` layers, with a warning.

    >>> import weftc
    >>> found = weftc.match([[0.0], [1.0], [5.0]], [[5.2], [0.1], [0.9]], params={"lambda": 0.01})
    >>> found.col_ind.tolist(), round(found.cost, 6)
    ([1, 2, 0], 0.02)
    """
    from weftc_runtime import load

    with as_value_errors():
        checked = checked_spec(spec)
        roles = matching(checked)
        left, right = _cloud(x, "x"), _cloud(y, "y")
        _require_sizes(roles, left, right)
        masses = _masses(a, len(left), "a"), _masses(b, len(right), "b")
        inputs = _inputs(roles, left, right, (a, b), masses)
        settings = _settings(roles, left.shape[1], params or {})
        checkpoint = compile_spec(checked, *settings)
        place: dict[str, Any] = {"device": device, "backend": backend}
        model = load(checkpoint, **place)
        stop = None
        if roles.read is not None:
            stop = Balance(roles, load(compile_spec(roles.read, *settings), **place), masses, tol)
        found = model.final(inputs, seed=seed, until=stop, until_stable=True, limit=max_iter)
        outputs = {name: np.asarray(_numbers(found[name]), dtype=np.float64) for name in found}
    plan = outputs[roles.plan] / scale(roles, outputs[roles.plan])
    error = imbalance(plan, masses)
    layers, settled = model.report.layers[0], model.report.stable[0] or error <= tol
    if not settled:
        told = f"{checked.spec.name} did not settle in max_iter={max_iter} layers; see marginal_error of the result"
        warnings.warn(told, stacklevel=2)
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(plan, maximize=True)
    costs = _costs(roles.cost, left, right)
    cost, pairs = float((plan * costs).sum()), float(costs[rows, columns].sum())
    return Match(plan, rows, columns, cost, pairs, error, layers, settled, outputs, checkpoint)


# ---- data ------------------------------------------------------------------------------------------------------------


def _cloud(value: Any, name: str) -> Floats:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise EstimatorError(f"{name} is not an array of numbers with rows of equal length") from None
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not len(array):
        raise EstimatorError(f"{name} has shape {list(array.shape)}; give rows of points, [n, d]")
    return array


def _require_sizes(roles: Matching, left: Floats, right: Floats) -> None:
    if left.shape[1] != right.shape[1]:
        raise EstimatorError(f"rows of x have {left.shape[1]} numbers, rows of y {right.shape[1]}; they must fit")
    if roles.sets[0] == roles.sets[1] and len(left) != len(right):
        raise EstimatorError(
            f"{roles.checked.spec.name} holds x and y in one set, {roles.sets[0]}, so they must have as many rows; "
            f"x has {len(left)}, y has {len(right)}"
        )


def _masses(given: Any, count: int, name: str) -> Floats:
    """The masses of one side; uniform when not given."""
    if given is None:
        return np.full(count, 1 / count)
    array = np.array(given, dtype=np.float64)
    if array.shape != (count,):
        raise EstimatorError(f"{name} has shape {list(array.shape)}; it must be [{count}], a mass for every point")
    return array


def _inputs(
    roles: Matching, left: Floats, right: Floats, given: tuple[Any, Any], masses: tuple[Floats, Floats]
) -> dict[str, Floats]:
    inputs = {roles.points[0]: left, roles.points[1]: right}
    for name, mass, word, asked in zip(roles.masses, masses, "ab", given, strict=True):
        if name is not None:
            inputs[name] = mass
        elif asked is not None:
            raise EstimatorError(f"{roles.checked.spec.name} has no masses to set; leave {word} out")
    one, other = (float(mass.sum()) for mass in masses)
    if abs(one - other) > ROUGHLY * max(abs(one), abs(other)):
        raise EstimatorError(f"a sums to {one:g}, b to {other:g}; as much must leave as arrives")
    return inputs


def _settings(roles: Matching, width: int, params: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, float]]:
    dims, values = split(roles.checked, params)
    found = {str(name): int(size) for name, size in dims.items()}
    for name in roles.points:
        dim = roles.checked.fields[name].width
        if isinstance(dim, str):
            found[dim] = width
        elif dim != width:
            raise InputError(f"{name} has {dim} numbers a row in {roles.checked.spec.name}, but {width} were given")
    return found, {name: float(value) for name, value in values.items()}


def _numbers(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _costs(kind: str, left: Floats, right: Floats) -> Floats:
    if kind == "inner":
        return -(left @ right.T)
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(left, right, "sqeuclidean"))
