"""scikit-learn's GaussianMixture as judge: spherical covariances, and one variance shared by all components.

Equality: as many iterations of EM from the same means, weights and unit precisions, without regularisation; means,
weights, variances and responsibilities to 1e-9 relative to the largest (scikit-learn adds 10 eps to every weight, and
sums in another order). A shared variance is not among its covariance types ("tied" shares a full matrix), so there the
judge is one-dimensional data, where the two are the same thing.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import weftc
from judges.data_sets import Array, blobs, real, some_rows
from weftc_runtime.errors import RunError


def judged(x: Array, start: Array, t: int, kind: str) -> Any:
    k = len(start)
    precisions: Any = np.ones(k) if kind == "spherical" else np.eye(x.shape[1])
    judge = GaussianMixture(
        k,
        covariance_type=kind,
        max_iter=t,
        tol=0,
        reg_covar=1e-6 if kind == "spherical" else 0,
        n_init=1,
        weights_init=np.full(k, 1 / k),
        means_init=start,
        precisions_init=precisions,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return judge.fit(x)


def close(ours: Any, judge: Any) -> None:
    np.testing.assert_allclose(ours, judge, rtol=1e-9, atol=1e-9 * float(np.abs(judge).max()))


@pytest.mark.parametrize("name", ["blobs", "iris", "wine"])
def test_spherical(name: str) -> None:
    if name == "blobs":
        x, start = blobs(300, 2, 3, seed=2)
    else:
        x = real(name)[0]
        x = (x - x.mean(0)) / x.std(0)  # unit variances fit the start with unit precisions
        start = some_rows(x, 3, seed=5)
    judge = judged(x, start, 7, "spherical")
    model = weftc.load(weftc.compile("gmm_em_spherical", {"d": x.shape[1], "k": 3}))
    ours = model(x=x, c=start, layers=7)
    close(ours["means"], judge.means_)
    close(ours["weights"], judge.weights_)
    close(ours["variances"], judge.covariances_)
    close(model.final(x=x, c=start, layers=7)["shares"], judge.predict_proba(x))


def test_a_component_on_one_point_keeps_the_floor_as_its_variance() -> None:
    x = np.concatenate([np.random.default_rng(1).normal(size=(299, 2)), [[40.0, 40.0]]])
    start = np.array([[0.0, 0.0], [1.0, 1.0], [40.0, 40.0]])
    checkpoint = weftc.compile("gmm_em_spherical", {"d": 2, "k": 3})
    ours = weftc.load(checkpoint)(x=x, c=start, layers=50)
    judge = judged(x, start, 50, "spherical")
    assert float(ours["variances"][2]) == pytest.approx(1e-6)
    close(ours["variances"], judge.covariances_)
    with pytest.raises(RunError, match=r"logarithm|division by zero"):
        weftc.load(weftc.compile("gmm_em_spherical", {"d": 2, "k": 3}, {"floor": 0}))(x=x, c=start, layers=50)


def test_a_shared_variance_in_one_dimension() -> None:
    x, start = blobs(300, 1, 3, seed=6)
    judge = judged(x, start, 7, "tied")
    ours = weftc.load(weftc.compile("gmm_em", {"d": 1, "k": 3}))(x=x, c=start, layers=7)
    close(ours["means"], judge.means_)
    close(ours["weights"], judge.weights_)
    close(ours["variance"], np.repeat(judge.covariances_[0], 3))


def test_the_objective_is_the_likelihood_up_to_a_constant() -> None:
    x, start = blobs(100, 2, 2, seed=7)
    judge = judged(x, start, 5, "spherical")
    model = weftc.load(weftc.compile("gmm_em_spherical", {"d": 2, "k": 2}))
    likelihood = judge.score(x) * len(x)
    assert -float(model.objective(x=x, c=start, layers=5)) - len(x) * np.log(2 * np.pi) == pytest.approx(likelihood)
