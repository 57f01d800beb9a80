"""Independent NumPy versions of the k-means relatives: trimmed, gap budget, robust, spherical, soft.

Equality: written here from their definitions in the papers' words, in plain NumPy, knowing nothing of Weft. Hard ones
(trimmed, gap budget) keep the same members, so centers agree to 1e-12 of the largest coordinate; weighted ones (sparse,
soft, spherical) to 1e-10. Data have no exact ties; ties are tested against exact arithmetic elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import weftc
from judges.data_sets import REAL, Array, blobs, real, some_rows

Update = Callable[[Array, Array], Array]  # members and the old center -> the new center


def squared(x: Array, c: Array) -> Array:
    return np.asarray(((x - c) ** 2).sum(-1))


def clusters(x: Array, c: Array, times: int, update: Update) -> tuple[Array, NDArray[np.intp]]:
    labels = np.zeros(len(x), dtype=np.intp)
    for _ in range(times):
        labels = np.argmin(squared(x[:, None], c[None]), axis=1)
        c = np.array([update(x[labels == j], c[j]) if (labels == j).any() else c[j] for j in range(len(c))])
    return c, labels


def trimmed(share: float) -> Update:
    def update(members: Array, center: Array) -> Array:
        """The mean of the members within the percentile of their distances."""
        distances = squared(members, center)
        limit = np.percentile(distances, share, method="lower")
        return np.asarray(members[distances <= limit].mean(0))

    return update


def budget(gamma: float) -> Update:
    def update(members: Array, center: Array) -> Array:
        """The nearest members: the fewest whose gaps to the next one add up to 1/gamma."""
        order = np.argsort(squared(members, center))
        ranked = squared(members, center)[order]
        for m in range(1, len(ranked)):
            if gamma * (ranked[m] - ranked[:m]).sum() >= 1:
                return np.asarray(members[order[:m]].mean(0))
        return np.asarray(members.mean(0))

    return update


def sparse(gamma: float) -> Update:
    def update(members: Array, center: Array) -> Array:
        """Weights: the projection of -gamma * distance onto the simplex, found by bisection."""
        scores = -gamma * squared(members, center)
        low, high = scores.max() - 1, scores.max()
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(scores - middle, 0).sum() > 1 else (low, middle)
        weights = np.maximum(scores - high, 0)
        return np.asarray((weights / weights.sum()) @ members)

    return update


def soft(gamma: float) -> Update:
    def update(members: Array, center: Array) -> Array:
        weights = np.exp(-gamma * (squared(members, center) - squared(members, center).min()))
        return np.asarray((weights / weights.sum()) @ members)

    return update


CASES: dict[str, tuple[str, dict[str, float], Callable[[float], Update], float, float]] = {
    "trimmed 90": ("trimmed_kmeans", {"tau": 90}, trimmed, 90, 1e-12),
    "trimmed 50": ("trimmed_kmeans", {"tau": 50}, trimmed, 50, 1e-12),
    "gap budget": ("trimmed_normmax", {"gamma": 0.1}, budget, 0.1, 1e-12),
    "sparse": ("robust_kmeans", {"gamma": 0.02}, sparse, 0.02, 1e-10),
    "soft": ("robust_softmax", {"gamma": 0.3}, soft, 0.3, 1e-10),
}


@pytest.mark.parametrize("data", ["blobs", "iris", "wine", "breast_cancer"])
@pytest.mark.parametrize("case", CASES)
def test_members_weighted(case: str, data: str) -> None:
    spec, params, update, value, precision = CASES[case]
    if data == "blobs":
        x, start = blobs(150, 3, 4, seed=21)
    else:
        x = real(data)[0]
        x = (x - x.mean(0)) / x.std(0)
        x = x + np.random.default_rng(22).normal(size=x.shape) * 1e-3  # the data sets have equal rows and ties
        start = some_rows(x, 3, seed=23)
    model = weftc.load(weftc.compile(spec, {"d": x.shape[1], "k": len(start)}, params))
    for t in (1, 3):
        want, labels = clusters(x, start, t, update(value))
        ours = model(x=x, c=start, layers=t)
        np.testing.assert_allclose(ours["centers"], want, rtol=0, atol=precision * np.abs(x).max())
        np.testing.assert_array_equal(ours["labels"].indices, labels)


@pytest.mark.parametrize("data", REAL)
def test_spherical(data: str) -> None:
    """Directions: the label is the center at the smallest angle, the center the direction of the members' sum."""
    x = real(data)[0]
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    c = some_rows(x, 3, seed=24)
    model = weftc.load(weftc.compile("spherical_kmeans", {"d": x.shape[1], "k": 3}))
    labels = np.zeros(len(x), dtype=np.intp)
    for t in range(1, 4):
        labels = np.argmax(x @ c.T, axis=1)
        sums = np.array([x[labels == j].sum(0) if (labels == j).any() else c[j] for j in range(3)])
        c = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        ours = model(x=x, c=some_rows(x, 3, seed=24), layers=t)
        np.testing.assert_allclose(ours["centers"], c, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(ours["labels"].indices, labels)


def test_soft_assignments() -> None:
    x, c = blobs(120, 2, 3, seed=25)
    ours = weftc.load(weftc.compile("soft_kmeans", {"d": 2, "k": 3}, {"gamma": 0.4}))(x=x, c=c, layers=5)
    for _ in range(5):
        distances = squared(x[:, None], c[None])
        shares = np.exp(-0.4 * (distances - distances.min(1, keepdims=True)))
        shares /= shares.sum(1, keepdims=True)
        c = (shares.T @ x) / shares.sum(0)[:, None]
    np.testing.assert_allclose(ours["centers"], c, rtol=0, atol=1e-10)


def test_principal_direction() -> None:
    """NumPy's eigenvectors: the leading one of the covariance, up to sign, and its variance, to 1e-8 in 200 layers."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(60, 3)) * [3.0, 1.0, 0.5]
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    start = np.ones((1, 3)) / np.sqrt(3)
    ours = weftc.load(weftc.compile("power_iteration", {"d": 3}))(x=x, w=start, layers=200)
    assert abs(abs(float(ours["direction"][0].numpy() @ vectors[:, -1])) - 1) < 1e-8
    np.testing.assert_allclose(ours["variance"], values[-1:], rtol=1e-8)
