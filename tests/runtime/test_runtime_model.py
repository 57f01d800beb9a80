"""The module: outputs by hand and against NumPy, final answers, objectives, fixed points, conditions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from few_points import CENTERS, POINTS, data
from programs import PERCENT, dual_ascent, hard_clustering, soft_clustering, with_objective
from weftc_runtime import RunError, load
from weftc_runtime.format.program import Condition


# ---------------------------------------------------------------------- golden values
def test_hard_clustering_by_hand() -> None:
    model = load(hard_clustering(1, 2))
    out = model(x=POINTS, c=CENTERS)
    assert out["centers"].tolist() == [[-5 / 3], [2.5]]
    assert out["labels"].indices.tolist() == [0, 0, 0, 1, 1]
    assert out["labels"].dense().tolist() == [[1, 0]] * 3 + [[0, 1]] * 2
    assert model(x=POINTS, c=CENTERS, layers=0)["labels"].indices.tolist() == [-1] * 5
    assert model.report.layers == (0,)


def test_a_trimmed_cluster_by_hand() -> None:
    x = [[0.0], [1.0], [2.0], [3.0], [10.0]]
    assert load(hard_clustering(1, 1, update=PERCENT))(x=x, c=[[0.0]])["centers"].tolist() == [[1.0]]


def test_soft_clustering_by_hand() -> None:
    trace = load(soft_clustering(1, 2, 0.5)).trace(x=POINTS, c=CENTERS)
    assert trace.outputs["centers"].flatten().tolist() == pytest.approx([-1.965288, 1.965288], abs=5e-7)
    want = [0.997527, 0.982014, 0.5, 0.017986, 0.002473]
    assert trace["layers.0.blocks.0.points.y"][:, 0].tolist() == pytest.approx(want, abs=5e-7)


def test_a_null_key_by_hand() -> None:
    model = load(dual_ascent(1))
    x = [[0.0], [1.0]]
    for layers, want in ((1, -0.00213857), (2, -0.0028494)):
        out = model(x=x, y=x, layers=layers)
        assert out["u"].tolist() == pytest.approx([want] * 2, abs=5e-9)
        assert out["v"].tolist() == pytest.approx([want] * 2, abs=5e-9)


def ascent(x: Any, y: Any, layers: int, smoothing: float, step: float) -> tuple[Any, Any, Any]:
    """The same in plain NumPy."""
    n = len(x)
    u, v = np.zeros(n), np.zeros(n)
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    for _ in range(layers):
        m = np.exp((u[:, None] + v[None] - cost) / smoothing - 1)
        r, s = m.sum(1), m.sum(0)
        u, v = u + step * (1 / n - r) / (1 + r), v + step * (1 / n - s) / (1 + s)
    return u, v, n * np.exp((u[:, None] + v[None] - cost) / smoothing - 1)


@pytest.mark.parametrize(("n", "d", "smoothing"), [(1, 1, 1.0), (7, 3, 0.5), (20, 2, 0.1)])
def test_a_null_key_against_numpy(n: int, d: int, smoothing: float) -> None:
    x, y = data(n, n, d), data(n + 1, n, d)
    out = load(dual_ascent(d, smoothing, 0.3))(x=x, y=y, layers=5)
    u, v, plan = ascent(x.numpy(), y.numpy(), 5, smoothing, 0.3)
    # kappa: a softmax weight moves by its score, 1 + (largest cost) / smoothing; five layers
    kappa = 5 * (1 + float(((x[:, None] - y[None]) ** 2).sum(-1).max()) / smoothing)
    assert np.abs(out["u"].numpy() - u).max() <= 16 * 2.2e-16 * kappa
    assert np.abs(out["v"].numpy() - v).max() <= 16 * 2.2e-16 * kappa
    assert np.abs(out["plan"].numpy() - plan).max() <= 16 * 2.2e-16 * kappa * plan.max()


def test_far_scores_do_not_underflow_the_weights() -> None:
    out = load(soft_clustering(1, 2, 1.0))(x=[[0.0], [1.0]], c=[[0.0], [1.0]])
    assert torch.isfinite(out["centers"]).all()
    near = load(dual_ascent(1))(x=[[1e6], [1e6 + 1]], y=[[1e6], [1e6 + 1]], layers=2)
    assert near["u"].tolist() == pytest.approx([-0.0028494] * 2, abs=5e-8)


# ---------------------------------------------------------------------- final, objective, stable, unrolled
def test_final_makes_labels_for_the_final_centers() -> None:
    model = load(hard_clustering(1, 2))
    x, c = [[0.0], [3.0], [9.0]], [[0.0], [5.0]]
    held, final = model(x=x, c=c), model.final(x=x, c=c)
    assert held["labels"].indices.tolist() == [0, 1, 1]
    assert held["centers"].tolist() == final["centers"].tolist() == [[0.0], [6.0]]
    assert final["labels"].indices.tolist() == [0, 0, 1]  # 3 is half way between 0 and 6
    assert model.report.heads["again.0.assign"].fast == 3
    assert model(x=POINTS, c=CENTERS, layers=0)["labels"].indices.tolist() == [-1] * 5
    assert model.final(x=POINTS, c=CENTERS, layers=0)["labels"].indices.tolist() == [0, 0, 0, 1, 1]


def test_the_objective_is_that_of_the_final_state() -> None:
    model = load(with_objective(hard_clustering(1, 2)))
    value = model.objective(x=POINTS, c=CENTERS)
    centers = model(x=POINTS, c=CENTERS)["centers"].flatten().tolist()
    want = math.fsum(min((p[0] - c) ** 2 for c in centers) for p in POINTS)
    assert float(value) == pytest.approx(want, rel=1e-15)
    assert value.shape == ()
    batch = model.objective(x=torch.stack([torch.tensor(POINTS)] * 3), c=CENTERS)
    assert batch.tolist() == [float(value)] * 3
    with pytest.raises(RunError, match="states no objective"):
        load(hard_clustering(1, 2)).objective(x=POINTS)


def test_an_output_that_overflows_float32_is_named() -> None:
    """1e40 fits the float64 it is computed in, but not the dtype of the model."""
    model = load(with_objective(hard_clustering(1, 2)), torch.float32)
    with pytest.raises(RunError, match=r"cost of points, token 1 .* does not fit float32"):
        model(x=[[0.0], [1e20]], c=[[0.0], [0.0]], layers=0)
    plan = load(dual_ascent(1), torch.float32)
    with torch.no_grad():
        plan.tensor("rows.k").mul_(-100.0)  # the score of the only pair becomes 100, and exp(100) is 2.7e43
    with pytest.raises(RunError, match="output plan does not fit float32"):
        plan(x=[[0.0]], y=[[0.0]], layers=0)["plan"]


def test_until_stable_stops_at_the_fixed_point() -> None:
    x = data(3, 60)
    model = load(hard_clustering(2, 3))
    out = model(x=x, until_stable=True)
    (layers,), (stable,) = model.report.layers, model.report.stable
    assert stable
    assert 2 <= layers < 60
    assert torch.equal(model(x=x, layers=layers + 5)["centers"], out["centers"])
    assert not torch.equal(model(x=x, layers=layers - 2)["centers"], out["centers"])
    model(x=x, until_stable=True, limit=2)
    assert (model.report.layers, model.report.stable) == ((2,), (False,))


def test_problems_of_a_batch_stop_each_in_its_own_time() -> None:
    model = load(hard_clustering(2, 3))
    xs = [data(seed, 40) for seed in range(4)]
    batch = model(x=torch.stack(xs), until_stable=True)
    report = model.report
    for number, x in enumerate(xs):
        single = model(x=x, until_stable=True)
        assert torch.equal(single["centers"], batch["centers"][number])
        assert model.report.layers[0] == report.layers[number]


def test_conditions_are_checked_before_every_layer() -> None:
    base = hard_clustering(1, 2)
    condition = Condition("distinct", "centers", ("c",), "centers must differ pairwise")
    options = {**base.program.options, "erase": "attention"}
    model = load(replace(base, program=replace(base.program, conditions=(condition,), options=options)))
    assert (
        model(x=POINTS, c=CENTERS, layers=3)["centers"].tolist()
        == load(base)(x=POINTS, c=CENTERS, layers=3)["centers"].tolist()
    )
    with pytest.raises(RunError, match=r"centers must differ pairwise: before a step of layer 0, tokens 0 and 1"):
        model(x=POINTS, c=[[0.0], [-0.0]])
    with pytest.raises(RunError, match="problem 1 of the batch"):
        model(x=[POINTS, POINTS], c=[CENTERS, [[3.0], [3.0]]])
    assert model(x=POINTS, c=[[0.0], [0.0]], layers=0)["centers"].tolist() == [[0.0], [0.0]]
