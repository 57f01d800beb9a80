"""POT as judge of assignment: entropic plans (sinkhorn, sinkhorn_log) and the exact plan (emd).

Equality: `sinkhorn_log` to POT's entropic plan after as many sweeps as make both converge, entry by entry to 1e-12 of
mass 1. `sinkhorn_dual` is gradient ascent to the same fixed point: n times the plan to 1e-6 after many layers. For the
exact plan (emd) equality is a limit: the entropic cost exceeds the exact cost by at most lambda times the entropy of
the uniform plan, and the marginals are those asked for.
"""

from __future__ import annotations

import warnings

import numpy as np
import ot
import pytest

import weftc
from judges.data_sets import Array, real


def clouds(seed: int, n: int = 12, m: int = 9) -> tuple[Array, Array, Array, Array, Array]:
    """Two clouds, their masses, and the cost between them."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    a, b = rng.random(n) + 0.1, rng.random(m) + 0.1
    return x, y, a / a.sum(), b / b.sum(), ((x[:, None] - y[None]) ** 2).sum(-1)


def entropic(a: Array, b: Array, cost: Array, reg: float, method: str) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = ot.sinkhorn(a, b, cost, reg=reg, method=method, numItermax=2000, stopThr=1e-15)
    return np.asarray(plan)


@pytest.mark.parametrize("method", ["sinkhorn", "sinkhorn_log"])
def test_entropic_plan_with_unequal_masses(method: str) -> None:
    x, y, a, b, cost = clouds(4)
    model = weftc.load(weftc.compile("sinkhorn_log", {"d": 2}, {"lambda": 0.5}))
    ours = model(x=x, y=y, a=a, b=b, layers=300)
    np.testing.assert_allclose(ours["plan"], entropic(a, b, cost, 0.5, method), rtol=0, atol=1e-12)


def test_entropic_plan_between_two_classes_of_iris() -> None:
    x, classes = real("iris")
    x, y = x[classes == 0][:20], x[classes == 1][:15]
    a, b = np.full(20, 1 / 20), np.full(15, 1 / 15)
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    ours = weftc.load(weftc.compile("sinkhorn_log", {"d": 4}, {"lambda": 1.0}))(x=x, y=y, a=a, b=b, layers=150)
    np.testing.assert_allclose(ours["plan"], entropic(a, b, cost, 1.0, "sinkhorn_log"), rtol=0, atol=1e-12)


def test_dual_steps_reach_the_entropic_plan() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.random((8, 2)), rng.random((8, 2))
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    uniform = np.full(8, 1 / 8)
    judge = entropic(uniform, uniform, cost, 0.1, "sinkhorn_log")
    ours = weftc.load(weftc.compile("sinkhorn_dual", {"d": 2}))(x=x, y=y, layers=300)
    np.testing.assert_allclose(ours["plan"], 8 * judge, rtol=0, atol=1e-6)


def test_the_exact_plan_is_the_limit() -> None:
    x, y, a, b, cost = clouds(6, 7, 6)
    exact = float((ot.emd(a, b, cost) * cost).sum())
    excess = []
    for reg, layers in ((2.0, 40), (1.0, 100), (0.5, 300)):
        ours = weftc.load(weftc.compile("sinkhorn_log", {"d": 2}, {"lambda": reg}))(x=x, y=y, a=a, b=b, layers=layers)
        plan = ours["plan"].numpy()
        np.testing.assert_allclose(plan.sum(0), b, rtol=0, atol=1e-12)
        np.testing.assert_allclose(plan.sum(1), a, rtol=0, atol=1e-6)
        excess.append(float((plan * cost).sum()) - exact)
        assert -1e-6 <= excess[-1] <= reg * np.log(len(a) * len(b))
    assert excess == sorted(excess, reverse=True), "less blur must come nearer to the exact cost"
