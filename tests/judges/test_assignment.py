"""SciPy's linear_sum_assignment as judge of matching.

Equality: where the best assignment is better than every other by a margin, the largest entry of each row of the
entropic plan with little regularisation names the judge's column, for every row, and the largest entry of each column
the judge's row. The columns of the plan add up to 1 (the last sweep saw to that), its rows to 1 within 1e-2 (they are
on the way).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import weftc


@pytest.mark.parametrize("seed", range(4))
def test_a_matching_that_is_clear(seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets = np.stack(np.meshgrid([0.0, 1.0, 2.0], [0.0, 1.0, 2.0]), -1).reshape(-1, 2)
    order = rng.permutation(9)
    points = targets[order] + rng.uniform(-0.2, 0.2, size=(9, 2))
    cost = ((points[:, None] - targets[None]) ** 2).sum(-1)
    rows, columns = linear_sum_assignment(cost)
    assert rows.tolist() == list(range(9))
    assert columns.tolist() == order.tolist(), "not a clear case"
    mass = np.full(9, 1 / 9)
    model = weftc.load(weftc.compile("sinkhorn_log", {"d": 2}, {"lambda": 0.1}))
    plan = 9 * model(x=points, y=targets, a=mass, b=mass, layers=60)["plan"].numpy()
    assert plan.argmax(1).tolist() == columns.tolist()
    assert plan.argmax(0).tolist() == np.argsort(columns).tolist()
    np.testing.assert_allclose(plan.sum(0), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(plan.sum(1), 1, rtol=0, atol=1e-2)


def test_sorting_is_an_assignment() -> None:
    """Numbers assigned to the grid in which they are to be sorted: the judge's columns are their ranks, and ours."""
    x = np.random.default_rng(8).permutation(np.arange(1, 9)) / 8
    _, columns = linear_sum_assignment((x[:, None] - np.arange(1, 9) / 8) ** 2)
    ours = weftc.load(weftc.compile("sort"))(x=x, layers=300)["sorted"].numpy()
    assert np.abs(ours[columns] - x).max() < 0.01
