"""Independent judges: libraries that know nothing of Weft compute the same. Each test says what equality means."""

from __future__ import annotations

import warnings

import numpy as np
import ot
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KNeighborsRegressor

import weft

Array = NDArray[np.float64]


def blobs(n: int, d: int, k: int, seed: int) -> tuple[Array, Array]:
    """Points around k means, and k of them to start from."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(k, d))[rng.integers(k, size=n)] * 5 + rng.normal(size=(n, d))
    return x, x[rng.choice(n, size=k, replace=False)]


@pytest.mark.parametrize("algorithm", ["lloyd", "elkan"])
def test_kmeans_of_scikit_learn(algorithm: str) -> None:
    """Centers after t iterations to 1e-10, labels exactly (no cluster of these goes empty)."""
    x, start = blobs(400, 3, 4, seed=0)
    model = weft.load(weft.compile("lloyd", {"d": 3, "k": 4}))
    for t in (1, 2, 5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            judge = KMeans(4, init=start, n_init=1, max_iter=t, tol=0, algorithm=algorithm).fit(x)
        ours = model.final(x=x, c=start, layers=t)
        np.testing.assert_allclose(ours["centers"], judge.cluster_centers_, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(ours["labels"].indices, judge.labels_)


def test_sample_weight_of_scikit_learn() -> None:
    """Weights are multiplicities: centers to 1e-10."""
    x, start = blobs(200, 2, 3, seed=1)
    w = np.random.default_rng(1).integers(1, 5, size=200).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        judge = KMeans(3, init=start, n_init=1, max_iter=4, tol=0).fit(x, sample_weight=w)
    ours = weft.load(weft.compile("weighted_kmeans", {"d": 2, "k": 3})).final(x=x, w=w, c=start, layers=4)
    np.testing.assert_allclose(ours["centers"], judge.cluster_centers_, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(ours["labels"].indices, judge.labels_)


def test_mixture_of_scikit_learn() -> None:
    """Seven iterations of EM, spherical covariances, no regularisation: means, weights and variances to 1e-10."""
    x, start = blobs(300, 2, 3, seed=2)
    judge = GaussianMixture(
        3,
        covariance_type="spherical",
        max_iter=7,
        tol=0,
        reg_covar=0,
        n_init=1,
        weights_init=np.full(3, 1 / 3),
        means_init=start,
        precisions_init=np.ones(3),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        judge.fit(x)
    ours = weft.load(weft.compile("gmm_em_spherical", {"d": 2, "k": 3}))(x=x, c=start, layers=7)
    np.testing.assert_allclose(ours["means"], judge.means_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours["weights"], judge.weights_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours["variances"], judge.covariances_, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [1, 5])
def test_neighbours_of_scikit_learn(n: int) -> None:
    """Mean target of the n nearest, continuous data (no ties): to 1e-12."""
    x, z = blobs(100, 3, 10, seed=3)
    t = np.random.default_rng(3).normal(size=(100, 2))
    judge = KNeighborsRegressor(n).fit(x, t).predict(z)
    ours = weft.load(weft.compile("knn", {"d": 3, "m": 2}, {"n": n}))(x=x, t=t, z=z, layers=1)
    np.testing.assert_allclose(ours["answers"], judge, rtol=0, atol=1e-12)


def test_log_sinkhorn_of_pot() -> None:
    """The plan after as many sweeps, unequal masses: to 1e-12."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=(9, 2))
    a, b = rng.random(12) + 0.1, rng.random(9) + 0.1
    a, b = a / a.sum(), b / b.sum()
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge = ot.sinkhorn(a, b, cost, reg=0.5, method="sinkhorn_log", numItermax=2000, stopThr=1e-15)
    model = weft.load(weft.compile("sinkhorn_log", {"d": 2}, {"lambda": 0.5}))
    ours = model(x=x, y=y, a=a, b=b, layers=2000)
    np.testing.assert_allclose(ours["plan"], judge, rtol=0, atol=1e-12)


def test_dual_steps_reach_the_plan_of_pot() -> None:
    """After many layers the scaled plan is n times the entropic plan: to 1e-6."""
    rng = np.random.default_rng(5)
    x, y = rng.random((8, 2)), rng.random((8, 2))
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    uniform = np.full(8, 1 / 8)
    judge = ot.sinkhorn(uniform, uniform, cost, reg=0.1, method="sinkhorn_log", stopThr=1e-14)
    ours = weft.load(weft.compile("sinkhorn_dual", {"d": 2}))(x=x, y=y, layers=400)
    np.testing.assert_allclose(ours["plan"], 8 * judge, rtol=0, atol=1e-6)


def test_sorting_of_numpy() -> None:
    """The order is numpy's; the values are blurred by lambda."""
    x = np.random.default_rng(6).permutation(np.arange(1, 9)) / 8
    ours = weft.load(weft.compile("sort"))(x=x)
    np.testing.assert_allclose(ours["sorted"], np.sort(x), rtol=0, atol=0.01)


def test_principal_direction_of_numpy() -> None:
    """The leading eigenvector of the covariance, up to sign, and its variance: to 1e-8 after 200 layers."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(60, 3)) * [3.0, 1.0, 0.5]
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    start = np.ones((1, 3)) / np.sqrt(3)
    ours = weft.load(weft.compile("power_iteration", {"d": 3}))(x=x, w=start, layers=200)
    assert abs(abs(float(ours["direction"][0].numpy() @ vectors[:, -1])) - 1) < 1e-8
    np.testing.assert_allclose(ours["variance"], values[-1:], rtol=1e-8)
