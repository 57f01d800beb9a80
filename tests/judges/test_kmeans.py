"""scikit-learn's KMeans (lloyd, elkan, sample_weight) as judge.

Equality: from the same start, after t iterations, the centers to 1e-10 of the largest coordinate (its sums are rounded
in another order) and every label, on data where no cluster goes empty (it moves empty clusters, we keep them) and whose
nearest and second nearest center differ by more than its rounding.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import weftc
from judges.data_sets import REAL, Array, blobs, real, some_rows


def judged(x: Array, start: Array, t: int, algorithm: str = "lloyd", weights: Array | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        judge = KMeans(len(start), init=start, n_init=1, max_iter=t, tol=0, algorithm=algorithm)
        return judge.fit(x, sample_weight=weights)


def assert_same(x: Array, ours: Any, judge: Any) -> None:
    assert np.bincount(judge.labels_, minlength=len(judge.cluster_centers_)).min() > 0, "a cluster went empty"
    atol = 1e-10 * np.abs(x).max()
    np.testing.assert_allclose(ours["centers"], judge.cluster_centers_, rtol=0, atol=atol)
    np.testing.assert_array_equal(ours["labels"].indices, judge.labels_)


@pytest.mark.parametrize("algorithm", ["lloyd", "elkan"])
@pytest.mark.parametrize("scores", ["l2", "dot"])
def test_blobs(scores: str, algorithm: str) -> None:
    x, start = blobs(400, 3, 4, seed=0)
    model = weftc.load(weftc.compile("lloyd", {"d": 3, "k": 4}, scores=scores))  # type: ignore[arg-type]
    for t in (1, 2, 5):
        assert_same(x, model.final(x=x, c=start, layers=t), judged(x, start, t, algorithm))


@pytest.mark.parametrize("algorithm", ["lloyd", "elkan"])
@pytest.mark.parametrize("name", REAL)
def test_real_data(name: str, algorithm: str) -> None:
    x, classes = real(name)
    start = some_rows(x, int(classes.max()) + 1, seed=1)
    start = start + np.random.default_rng(1).normal(size=start.shape) * 1e-3  # whole numbers tie, and the judge rounds
    model = weftc.load(weftc.compile("lloyd", {"d": x.shape[1], "k": len(start)}))
    assert_same(x, model.final(x=x, c=start, layers=3), judged(x, start, 3, algorithm))


@pytest.mark.parametrize("algorithm", ["lloyd", "elkan"])
def test_sample_weights_are_multiplicities(algorithm: str) -> None:
    x, start = blobs(200, 2, 3, seed=1)
    w = np.random.default_rng(1).integers(1, 5, size=200).astype(float)
    model = weftc.load(weftc.compile("weighted_kmeans", {"d": 2, "k": 3}))
    assert_same(x, model.final(x=x, w=w, c=start, layers=4), judged(x, start, 4, algorithm, w))
    repeated = np.repeat(x, w.astype(int), axis=0)
    plain = weftc.load(weftc.compile("lloyd", {"d": 2, "k": 3})).final(x=repeated, c=start, layers=4)
    np.testing.assert_allclose(model(x=x, w=w, c=start, layers=4)["centers"], plain["centers"], rtol=0, atol=1e-12)


def test_fractional_sample_weights_on_wine() -> None:
    x, _ = real("wine")
    w = np.random.default_rng(2).random(len(x)) + 0.01
    start = some_rows(x, 3, seed=3)
    ours = weftc.load(weftc.compile("weighted_kmeans", {"d": x.shape[1], "k": 3})).final(x=x, w=w, c=start, layers=4)
    assert_same(x, ours, judged(x, start, 4, weights=w))


def test_inertia_is_the_objective() -> None:
    """The objective is the judge's inertia: to 1e-12 relative."""
    x, start = blobs(150, 2, 3, seed=4)
    model = weftc.load(weftc.compile("lloyd", {"d": 2, "k": 3}))
    assert float(model.objective(x=x, c=start, layers=30)) == pytest.approx(judged(x, start, 30).inertia_, rel=1e-12)
