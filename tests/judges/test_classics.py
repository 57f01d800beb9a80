"""The specs in folders of their own: each is proved, and the classics do what others' code for them does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weftc
from weftc.files.locate import builtin, names

SPECS = Path(weftc.__file__).parents[2] / "specs"
SIZES = {"d": 2, "k": 2}
FOLDERS = ("clustering", "learning")
NAMES = [name for folder in FOLDERS for name in names(folder)]


@pytest.mark.slow
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_short_and_proved(name: str, scores: str) -> None:
    assert builtin(name).text.count("\n") <= 30
    checked = weftc.check(builtin(name))
    assert checked.spec.examples
    made = weftc.compile(builtin(name), {dim: SIZES[dim] for dim in checked.dims}, scores=scores)
    verdict = weftc.verify(made, cases=1, dtypes=("float64",))
    assert verdict.verdict == "proved", str(verdict)


def test_every_folder_is_listed_and_no_name_stands_twice() -> None:
    listed, files = weftc.catalogue(), [path.stem for path in SPECS.rglob("*.weft")]
    assert [entry.name for entry in listed] == sorted(files)
    assert {entry.subject for entry in listed} >= {path.name for path in SPECS.iterdir() if any(path.glob("*.weft"))}
    assert {entry.name for entry in listed if entry.fits("sequences")} >= {"reverse", "dyck2"}


def run(name: str, layers: int, params: dict[str, float] | None = None, **given: object) -> dict[str, np.ndarray]:
    dims = {"d": 2, "k": 3}
    known = {dim: dims[dim] for dim in weftc.check(builtin(name)).dims}
    found = weftc.load(weftc.compile(builtin(name), known, params=params or {}))(**given, layers=layers)
    return {output: np.asarray(value) for output, value in found.items()}


def test_regression_comes_to_the_least_squares() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    ridge = 0.1
    best = np.linalg.solve(x.T @ x / 30 + ridge * np.eye(2), x.T @ y / 30)
    found = run("linear_regression", 200, {"rate": 0.3, "momentum": 0.5, "ridge": ridge}, x=x, y=y)
    np.testing.assert_allclose(found["w"].reshape(-1), best, rtol=1e-10)
    np.testing.assert_allclose(found["fit"], x @ best, rtol=1e-9)


def test_temporal_differences_come_to_their_fixed_point() -> None:
    rng = np.random.default_rng(1)
    x, r, discount = rng.normal(size=(40, 2)), rng.normal(size=40), 0.5
    after = np.vstack([x[1:], np.zeros((1, 2))])
    best = np.linalg.solve(x.T @ (x - discount * after), x.T @ r)
    found = run("temporal_difference", 300, {"rate": 0.3, "discount": discount}, x=x, r=r)
    np.testing.assert_allclose(found["w"].reshape(-1), best, rtol=1e-9)


def test_logistic_regression_comes_to_the_maximum() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 2))
    y, ridge = (x[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(float), 0.05
    w = run("logistic_regression", 400, {"ridge": ridge}, x=x, y=y)["w"].reshape(-1)
    slope = x.T @ (y - 1 / (1 + np.exp(-x @ w))) / 40 - ridge * w
    assert np.abs(slope).max() < 1e-9


def test_fuzzy_c_means_is_the_textbook_iteration() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(25, 2))
    c = x[:3]
    found = run("fuzzy_c_means", 4, x=x, c=c)
    for _ in range(4):
        distance = ((x[:, None] - c) ** 2).sum(-1) + 1e-9
        shares = 1 / (distance[:, :, None] / distance[:, None, :]).sum(-1)
        c = (shares**2).T @ x / (shares**2).sum(0)[:, None]
    np.testing.assert_allclose(found["centers"], c, rtol=1e-10)


def test_core_points_are_those_of_scikit_learn() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    x = np.random.default_rng(4).integers(0, 12, (60, 2)) / 4
    theirs = cluster.DBSCAN(eps=0.5, min_samples=4).fit(x)
    ours = run("density_core", 1, {"reach": 0.5, "many": 4}, x=x)
    assert np.flatnonzero(ours["core"]).tolist() == theirs.core_sample_indices_.tolist()
    border = (ours["core"] == 0) & (ours["near"] != x).any(-1)
    lone = (ours["core"] == 0) & ~border  # a point that lies on a core point is one itself
    assert np.array_equal(lone, theirs.labels_ == -1)
