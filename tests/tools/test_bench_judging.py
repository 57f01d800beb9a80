"""`weftc bench`: judges, and agreement before anything is timed."""

from __future__ import annotations

import numpy as np
import pytest

import weftc
from benching import SMALL, answer, distances
from weftc.tools.bench.agreement import Ours, judge
from weftc.tools.bench.judges import dual_steps, nearest, potential_error, sweeps
from weftc.tools.bench.results import Agreement
from weftc.tools.bench.samples import REGULARISATION, STEP, arrays
from weftc.tools.bench.workloads import Workload


def test_nearest_is_exact_and_takes_the_first_of_equals() -> None:
    chance = np.random.default_rng(1)
    x = chance.integers(0, 4, (200, 3)).astype(np.float32)
    c = chance.integers(0, 4, (9, 3)).astype(np.float32)  # ties everywhere, equal centers too
    labels, total = nearest(x, c)
    wanted = distances(x, c)
    assert labels.tolist() == [row.index(min(row)) for row in wanted]
    assert total == pytest.approx(float(sum(min(row) for row in wanted)))


def test_nearest_settles_what_float64_cannot() -> None:
    chance = np.random.default_rng(2)
    x, c = 1e7 + chance.random((100, 3)), 1e7 + chance.random((20, 3))  # squares near 1e14 swallow the differences
    wanted = [row.index(min(row)) for row in distances(x, c)]
    assert nearest(x, c)[0].tolist() == wanted
    assert ((c**2).sum(1) - 2 * x @ c.T).argmin(1).tolist() != wanted


def test_nearest_goes_through_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftc.tools.bench.judges.BLOCK", 50)
    inputs = arrays(SMALL)
    labels, total = nearest(inputs["x"], inputs["c"])
    exact = ((inputs["x"][:, None].astype(float) - inputs["c"]) ** 2).sum(2)
    assert np.array_equal(labels, exact.argmin(1))
    assert total == pytest.approx(exact.min(1).sum())


def test_transport_judges_are_the_specs() -> None:
    chance = np.random.default_rng(2)
    x, y = chance.random((7, 2)), chance.random((7, 2))
    found = weftc.interpret("sinkhorn_dual", {"x": x, "y": y}, layers=6, params={"lambda": 0.05, "gamma": 0.1})
    assert potential_error((found["u"], found["v"]), dual_steps(x, y, 0.05, 0.1, 6), 0.05) < 1e-12
    mass = np.full(7, 1 / 7)
    found = weftc.interpret("sinkhorn_log", {"x": x, "y": y, "a": mass, "b": mass}, layers=6, params={"lambda": 0.05})
    assert potential_error((found["f"], found["g"]), sweeps(x, y, 0.05, 6, columns_first=False), 0.05) < 1e-12
    assert potential_error((found["f"], found["g"]), sweeps(x, y, 0.05, 6, columns_first=True), 0.05) > 1e-6


def test_ours_must_be_exact_in_every_row() -> None:
    inputs = arrays(SMALL)
    right, inertia = judge(SMALL, "weftc", inputs, answer(inputs), False, 5, None)
    assert (right.rows, right.trouble) == (0, "")
    assert inertia == pytest.approx(nearest(inputs["x"], inputs["c"])[1])
    wrong, _ = judge(SMALL, "weftc", inputs, answer(inputs, 1), False, 5, None)
    assert (wrong.rows, wrong.trouble) == (1, "1 of 300 labels are not the exact ones")


def test_a_peer_may_round_but_not_do_something_else() -> None:
    inputs = arrays(SMALL)
    assert judge(SMALL, "faiss", inputs, answer(inputs, 3), False, 5, None)[0] == Agreement(3, empty=0)
    assert judge(SMALL, "faiss", inputs, answer(inputs, 4), False, 5, None)[0].trouble.startswith("4 of 300")
    inertia = nearest(inputs["x"], inputs["c"])[1]
    assert not judge(SMALL, "faiss", inputs, answer(inputs), False, 5, Ours(inertia / 1.04))[0].trouble
    found = judge(SMALL, "faiss", inputs, answer(inputs), False, 5, Ours(inertia / 1.06))[0]
    assert found.trouble == "its inertia is +6.0% from ours"
    empty = judge(SMALL, "faiss", inputs, answer(inputs), False, 5, Ours(inertia / 1.06, empty=1))[0]
    assert (empty.excess, empty.trouble) == (pytest.approx(0.06), "")


def test_labels_of_a_single_layer_belong_to_the_start() -> None:
    inputs = arrays(SMALL)
    moved = {**answer(inputs), "centers": inputs["c"] + 100}
    assert judge(SMALL, "weftc-layer", inputs, moved, True, 1, None)[0].rows == 0
    assert judge(SMALL, "weftc-layer", inputs, moved, False, 1, None)[0].trouble
    assert "cannot be judged" in judge(SMALL, "weftc-layer", inputs, moved, True, 2, None)[0].trouble


def test_too_few_labels_are_all_wrong() -> None:
    inputs = arrays(SMALL)
    short = {"centers": inputs["c"], "labels": answer(inputs)["labels"][:-1]}
    assert judge(SMALL, "faiss", inputs, short, False, 1, None)[0].rows == 300


def test_potentials_are_judged() -> None:
    work = Workload("t", "transport", 20, 2, 0, 4, ("weftc-dual",), (20, 4), "uniform")
    inputs = arrays(work)
    f, g = dual_steps(inputs["x"], inputs["y"], REGULARISATION, STEP, 4)
    assert judge(work, "weftc-dual", inputs, {"f": f, "g": g}, False, 4, None)[0].trouble == ""
    off = f + np.eye(20)[3] * REGULARISATION * 2e-3
    assert "wrong by 2" in judge(work, "weftc-dual", inputs, {"f": off, "g": g}, False, 4, None)[0].trouble
    assert judge(work, "pot-log-torch", inputs, {"f": f, "g": g}, False, 4, None)[0].trouble
