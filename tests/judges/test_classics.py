"""The specs in folders of their own: each is proved, and the classics do what others' code for them does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weftc
from weftc.files.locate import builtin, names

SPECS = Path(weftc.__file__).parents[2] / "specs"
SIZES = {"d": 2, "k": 2, "m": 2, "n": 4}
FOLDERS = ("clustering", "learning", "transport")
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


def test_ridge_regression_comes_to_its_solution() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(40, 2)) * [1, 30], rng.normal(size=40)
    best = np.linalg.solve(x.T @ x / 40 + 0.1 * np.eye(2), x.T @ y / 40)
    found = run("ridge_regression", 100, {"ridge": 0.1}, x=x, y=y)
    np.testing.assert_allclose(found["w"].reshape(-1), best, rtol=1e-10)


def test_the_kalman_filter_is_the_textbook_one() -> None:
    z, mean, spread = np.random.default_rng(6).normal(size=(12, 2)), np.zeros(2), 1.0
    for look in z:
        spread += 0.1
        gain = spread / (spread + 1)
        mean, spread = mean + gain * (look - mean), (1 - gain) * spread
    found = run("kalman_filter", 12, z=z)
    np.testing.assert_allclose(found["place"].reshape(-1), mean, rtol=1e-12)
    np.testing.assert_allclose(found["variance"].reshape(-1), [spread], rtol=1e-12)


def test_k_medians_is_the_textbook_iteration() -> None:
    rng = np.random.default_rng(7)
    x = rng.permutation(np.arange(90)).reshape(45, 2) / 4
    c = x[:3]
    found = run("k_medians", 5, x=x, c=c)
    for _ in range(5):
        near = np.abs(x[:, None] - c).sum(-1).argmin(1)
        c = np.stack([np.median(x[near == j], axis=0) for j in range(3)])
    np.testing.assert_array_equal(found["centers"], c)


@pytest.mark.parametrize(("name", "kind"), [("gmm_diagonal", "diag"), ("gmm_plane", "full")])
def test_mixtures_are_those_of_scikit_learn(name: str, kind: str) -> None:
    mixture = pytest.importorskip("sklearn.mixture")
    rng = np.random.default_rng(8)
    x = np.concatenate([rng.normal(size=(50, 2)) * [1, 3] + middle for middle in ([0, 0], [9, 0], [0, 20])])
    start = x[[0, 60, 120]]
    theirs = mixture.GaussianMixture(
        3, covariance_type=kind, means_init=start, weights_init=[1 / 3] * 3, tol=1e-12, max_iter=200, reg_covar=1e-6,
        precisions_init=np.ones((3, 2)) if kind == "diag" else np.tile(np.eye(2), (3, 1, 1)),
    ).fit(x)  # fmt: skip
    if kind == "diag":
        ours = run(name, 200, x=x, c=start)
        means, covariances = ours["means"], ours["variances"]
    else:
        ours = run(name, 200, a=x[:, 0], b=x[:, 1], m=start[:, 0], n=start[:, 1])
        means = np.stack([ours["first"], ours["second"]], axis=1)
        covariances = np.stack([ours["s"], ours["r"], ours["r"], ours["t"]], axis=1).reshape(3, 2, 2)
    np.testing.assert_allclose(means, theirs.means_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(covariances, theirs.covariances_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours["weights"], theirs.weights_, rtol=1e-5)


def test_affinity_propagation_chooses_what_scikit_learn_chooses() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    rng = np.random.default_rng(9)
    x = np.concatenate([rng.normal(size=(3, 2)) + middle for middle in ([0, 0], [9, 0])])
    similar = -((x[:, None] - x) ** 2).sum(-1) + rng.normal(size=(6, 6)) * 1e-6
    np.fill_diagonal(similar, -20)
    theirs = cluster.AffinityPropagation(affinity="precomputed", random_state=0).fit(similar)
    made = weftc.compile("affinity_propagation", {"n": 6})
    chosen = np.asarray(weftc.load(made)(S=similar, layers=60)["chosen"].dense()).argmax(1)
    assert np.array_equal(chosen, theirs.cluster_centers_indices_[theirs.labels_])


def test_mahalanobis_kmeans_finds_the_precision_and_the_long_clusters() -> None:
    rng = np.random.default_rng(10)
    x = rng.normal(size=(90, 2)) * [40, 1] + np.repeat([[0, 0], [0, 12], [0, 24]], 30, axis=0)
    found = run("mahalanobis_kmeans", 60, x=x, c=x[[0, 40, 80]])
    spread = np.cov(x.T, bias=True)
    np.testing.assert_allclose(found["precision"], np.linalg.inv(spread / np.trace(spread)), rtol=1e-8, atol=1e-8)


def test_kernel_pca_whitening_and_conjugate_gradients_are_those_of_the_books() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    rng = np.random.default_rng(14)
    x = rng.normal(size=(12, 2)) * [3, 1]
    theirs = decomposition.KernelPCA(1, kernel="rbf", gamma=0.5).fit_transform(x)[:, 0]
    ours = run("kernel_pca", 400, {"width": 2}, x=x, v=rng.normal(size=12))["scores"]
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), rtol=1e-6, atol=1e-8)
    white = run("zca_whitening", 40, x=x)["white"]
    spread, turned = np.linalg.eigh(np.cov(x.T, bias=True))
    np.testing.assert_allclose(white, (x - x.mean(0)) @ turned / np.sqrt(spread) @ turned.T, rtol=1e-8, atol=1e-8)
    square = rng.normal(size=(2, 2))
    a, b = square @ square.T + np.eye(2), rng.normal(size=2)
    np.testing.assert_allclose(run("conjugate_gradient", 2, A=a, b=b)["x"][0], np.linalg.solve(a, b), rtol=1e-9)


def test_the_spectral_cut_is_that_of_the_second_eigenvector() -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(30, 2)) + np.repeat([[0, 0], [5, 0]], 15, axis=0)
    near = np.exp(-((x[:, None] - x) ** 2).sum(-1))
    degree = near.sum(1)
    values, vectors = np.linalg.eigh(near / np.sqrt(np.outer(degree, degree)))
    second = vectors[:, -2] / np.sqrt(degree)
    found = run("spectral_cut", 3000, x=x, v=rng.normal(size=30))["score"]
    assert abs(found @ second) / np.linalg.norm(found) / np.linalg.norm(second) > 1 - 1e-9, values[-3:]


@pytest.mark.parametrize("name", ["unbalanced_transport", "partial_transport", "transport_barycenter"])
def test_transports_are_those_of_pot(name: str) -> None:
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(12)
    x, y = rng.random((8, 2)), rng.random((6, 2)) + 0.3
    a, b = rng.random(8) + 0.1, rng.random(6) + 0.1
    cost = ((x[:, None] - y) ** 2).sum(-1)
    if name == "transport_barycenter":
        masses = rng.random((8, 3)) + 0.1
        masses /= masses.sum(0)
        square = ((x[:, None] - x) ** 2).sum(-1)
        theirs = ot.bregman.barycenter(masses, square, 0.1, np.ones(3) / 3, numItermax=5000, stopThr=1e-13)
        ours = run(name, 500, x=x, a=masses, w=np.ones(3) / 3)["barycenter"]
    elif name == "unbalanced_transport":
        theirs = ot.unbalanced.sinkhorn_unbalanced(
            a, b, cost, 0.1, 1.0, reg_type="entropy", numItermax=5000, stopThr=1e-14
        )
        ours = run(name, 500, x=x, y=y, a=a, b=b)["plan"]
    else:
        ours = run(name, 2000, {"worth": 0.5}, x=x, y=y, a=a, b=b)["plan"]
        theirs = ot.partial.entropic_partial_wasserstein(a, b, cost, 0.1, m=ours.sum(), numItermax=20000, stopThr=1e-14)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-8)


def test_gromov_steps_are_the_textbook_iteration() -> None:
    rng = np.random.default_rng(13)
    x, y, together = rng.normal(size=(9, 2)), rng.normal(size=(7, 2)), rng.normal(size=(2, 2))
    made = weftc.compile("gromov_step", {"d": 2, "m": 2}, params={"lambda": 0.5})
    found = weftc.load(made)(x=x, y=y, A=together, layers=6)
    g = np.zeros(7)
    for _ in range(6):
        kernel = np.exp(x @ together @ y.T / 0.5)
        f = 1 / (kernel @ np.exp(g / 0.5))
        g = -0.5 * np.log(kernel.T @ f)
        plan = f[:, None] * kernel * np.exp(g / 0.5)
        together = x.T @ plan @ y / 9
    np.testing.assert_allclose(np.asarray(found["A"]), together, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(found["map"]), plan @ y, rtol=1e-9)
