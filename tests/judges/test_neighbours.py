"""scikit-learn's KNeighborsRegressor and KNeighborsClassifier as judges.

Equality: answers to 1e-12 of the largest target, classes exactly, for queries whose n-th and next neighbour are at
different distances (the judge breaks ties by its search tree, we by the lower index) and, for classes, whose vote has
one winner. Queries that are not clear in this sense are left out, and most must be clear.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import weftc
from agreement import invention
from judges.data_sets import REAL, Array, real

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def split(name: str) -> tuple[Array, Array, Array]:
    """Points, their classes as ones and zeros, and queries."""
    x, classes = real(name)
    order = np.random.default_rng(0).permutation(len(x))
    kept, asked = order[: min(len(x) - 40, 400)], order[-40:]
    return x[kept], np.eye(int(classes.max()) + 1)[classes[kept]], x[asked]


def clear(x: Array, z: Array, n: int) -> Flags:
    """Queries whose n nearest points are not a matter of ties."""
    ranked = np.sort(((z[:, None] - x[None]) ** 2).sum(-1), axis=1)
    return np.asarray(ranked[:, n] > ranked[:, n - 1] * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("name", REAL)
def test_regression(name: str, n: int) -> None:
    x, _, z = split(name)
    t = np.random.default_rng(3).normal(size=(len(x), 2))
    judge = KNeighborsRegressor(n).fit(x, t).predict(z)
    ours = weftc.load(weftc.compile("knn", {"d": x.shape[1], "m": 2}, {"n": n}))(x=x, t=t, z=z, layers=1)["answers"]
    sure = clear(x, z, n)
    assert sure.mean() > 0.6
    np.testing.assert_allclose(ours.numpy()[sure], judge[sure], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("name", REAL)
def test_classification(name: str, n: int) -> None:
    x, classes, z = split(name)
    judge = KNeighborsClassifier(n).fit(x, classes.argmax(1))
    model = weftc.load(weftc.compile(invention("vote"), {"d": x.shape[1], "k": classes.shape[1]}, {"m": n}))
    inputs = {"z": z, "x": x, "class": classes}
    ours = model(inputs, layers=1)
    shares = np.sort(ours["share"].numpy(), axis=1)
    sure = clear(x, z, n) & (shares[:, -1] > shares[:, -2] + 1e-9)
    assert sure.mean() > 0.6
    np.testing.assert_array_equal(ours["label"].indices.numpy()[sure], judge.predict(z)[sure])
    near = clear(x, z, n)
    np.testing.assert_allclose(ours["share"].numpy()[near], judge.predict_proba(z)[near], rtol=0, atol=1e-12)


def test_one_neighbour_is_nearest_neighbor() -> None:
    x, classes, z = split("digits")
    ours = weftc.load(weftc.compile("nearest_neighbor", {"d": 64, "m": 10}))(x=x, t=classes, z=z, layers=1)["answers"]
    judge = KNeighborsClassifier(1).fit(x, classes.argmax(1)).predict(z)
    assert (ours.numpy().argmax(1) == judge).all()
