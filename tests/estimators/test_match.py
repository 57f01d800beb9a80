"""`weftc.match`: plans, permutations and costs as POT and SciPy have them, for any spec with a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import ot
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import weftc

DISTANCE = """algorithm by_distance
tokens  p in sources, q in targets
inputs  x[p] : R^d,  y[q] : R^d
state   f[p] : R = 0,  g[q] : R = 0
let     K[p,q] = (f[p] + g[q] - {cost}) / 0.5
layer
  f[p] -= 0.5 * (logsumexp[q] K[p,q])
  then
  g[q] -= 0.5 * (logsumexp[p] K[p,q]) - 0.5 * log(count(sources) / count(targets))
outputs plan[p,q] = exp(K[p,q])
"""


def clouds(n: int = 8, m: int = 8, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(size=(n, 2)), rng.uniform(size=(m, 2))
    return x, y, ot.dist(x, y)


def sinkhorn(a: Any, b: Any, costs: NDArray[Any], strength: float) -> NDArray[Any]:
    plan = ot.sinkhorn(a, b, costs, strength, method="sinkhorn_log", numItermax=100_000, stopThr=1e-13)
    return np.asarray(plan)


@pytest.mark.parametrize(("n", "m"), [(8, 8), (5, 9), (1, 3)])
def test_plan_and_cost_are_those_of_pot(n: int, m: int) -> None:
    x, y, costs = clouds(n, m)
    found = weftc.match(x, y)
    theirs = sinkhorn(ot.unif(n), ot.unif(m), costs, 0.1)
    np.testing.assert_allclose(found.plan, theirs, atol=1e-8)
    assert found.cost == pytest.approx(float((theirs * costs).sum()), abs=1e-7)
    assert found.cost >= ot.emd2([], [], costs) - 1e-7
    assert found.settled
    assert found.marginal_error <= 1e-9
    assert found.marginal_error == max(abs(found.plan.sum(1) - 1 / n).sum(), abs(found.plan.sum(0) - 1 / m).sum())


def test_masses() -> None:
    x, y, costs = clouds(4, 5)
    a, b = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.3, 0.1, 0.1, 0.25, 0.25])
    found = weftc.match(x, y, a=a, b=b)
    np.testing.assert_allclose(found.plan, sinkhorn(a, b, costs, 0.1), atol=1e-8)


@pytest.mark.parametrize("spec", ["sinkhorn_log", "sinkhorn_dual"])
def test_the_permutation_is_scipys(spec: str) -> None:
    x = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]])
    order = np.random.default_rng(4).permutation(6)
    y = x[order] + 0.1
    found = weftc.match(x, y, spec, params={"lambda": 0.1}, tol=1e-3)
    rows, columns = linear_sum_assignment(ot.dist(x, y))
    np.testing.assert_array_equal(found.permutation, (rows, columns))
    np.testing.assert_array_equal(order[found.col_ind], np.arange(6))
    assert found.assignment_cost == pytest.approx(float(ot.dist(x, y)[rows, columns].sum()))
    assert found.cost == pytest.approx(ot.emd2([], [], ot.dist(x, y)), abs=1e-2)


def test_more_rows_than_columns() -> None:
    x, y, _ = clouds(7, 3)
    found = weftc.match(x, y)
    assert found.plan.shape == (7, 3)
    rows, columns = linear_sum_assignment(found.plan, maximize=True)
    np.testing.assert_array_equal(found.permutation, (rows, columns))
    assert len(rows) == 3


def test_a_plan_that_counts_one_for_every_row_is_one_in_all() -> None:
    x, y, costs = clouds(5, 5)
    found = weftc.match(x, y, "sinkhorn_dual", params={"lambda": 0.5})
    np.testing.assert_allclose(found.plan, sinkhorn(ot.unif(5), ot.unif(5), costs, 0.5), atol=1e-6)
    np.testing.assert_allclose(found.outputs["plan"], 5 * found.plan)
    assert found.outputs["u"].shape == (5,)


@pytest.mark.parametrize("cost", ["-<x[p], y[q]>", "|y[q] - x[p]|^2"])
def test_a_spec_of_ones_own(cost: str) -> None:
    x, y, costs = clouds(5, 5)
    costs = -x @ y.T if "<" in cost else costs
    found = weftc.match(x, y, DISTANCE.format(cost=cost))
    theirs = sinkhorn(ot.unif(5), ot.unif(5), costs, 0.5)
    np.testing.assert_allclose(found.plan, theirs, atol=1e-7)
    assert found.cost == pytest.approx(float((theirs * costs).sum()), abs=1e-7)


def test_the_checkpoint_is_there_and_layers_are_counted() -> None:
    x, y, _ = clouds(4, 4)
    found = weftc.match(x, y)
    model = weftc.load(found.model)
    again = model(x=x, y=y, a=np.full(4, 0.25), b=np.full(4, 0.25), layers=found.layers)
    np.testing.assert_array_equal(again["plan"].numpy(), found.plan)
    few = weftc.match(x, y, tol=1e-2)
    assert 1 <= few.layers < found.layers
    assert 1e-2 >= few.marginal_error > 1e-9 >= found.marginal_error


def test_it_warns_when_it_does_not_settle() -> None:
    x, y, _ = clouds(4, 4)
    with pytest.warns(UserWarning, match="did not settle in max_iter=2"):
        assert not weftc.match(x, y, max_iter=2).settled


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (([[0.0]], [[1.0]], "lloyd"), {}, "lloyd matches nothing"),
        (([[0.0]], [[1.0], [2.0]], "sinkhorn_dual"), {}, "as many rows; x has 1, y has 2"),
        (([[0.0]], [[1.0, 2.0]]), {}, "rows of x have 1 numbers, rows of y 2"),
        (([["a"]], [[1.0]]), {}, "x is not an array of numbers"),
        (([[[0.0]]], [[1.0]]), {}, "x has shape"),
        (([], [[1.0]]), {}, "x has shape"),
        (([[np.nan]], [[1.0]]), {}, "x: row 0"),
        (([[0.0]], [[1.0]]), {"a": [1.0], "b": [2.0]}, "a sums to 1, b to 2"),
        (([[0.0]], [[1.0]]), {"a": [1.0, 2.0]}, "a has shape"),
        (([[0.0], [1.0]], [[1.0], [2.0]], "sinkhorn_dual"), {"a": [0.5, 0.5]}, "has no masses to set; leave a out"),
        (([[0.0]], [[1.0]]), {"params": {"lamda": 1}}, "lambda"),
        (([[0.0]], [[1.0]], DISTANCE.format(cost="<x[p], y[q]>^2")), {}, "something other than"),
    ],
)
def test_refusals_say_what_to_do(arguments: tuple[Any, ...], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        weftc.match(*arguments, **settings)
    assert isinstance(caught.value, weftc.InputError)


def test_an_input_that_is_neither_points_nor_masses_is_named() -> None:
    text = DISTANCE.format(cost="|x[p] - y[q]|^2").replace("y[q] : R^d", "y[q] : R^d,  z[q] : R^d")
    with pytest.raises(ValueError, match="needs the input z"):
        weftc.match([[0.0]], [[1.0]], text)
