"""A spec as a scikit-learn clusterer: what fits say, how starts and stops work, and what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import weftc
from clusterings import CLUSTERINGS
from weftc.sklearn import WeftClusterer

Floats = NDArray[Any]
IRIS: Floats = load_iris().data

OWN = """
algorithm own "no objective, centers by the name of seats, a parameter without a default, a prior that must be given"
tokens  p in people, s in seats : m
inputs  a[p] : R^w,  q[s] : R > 0,  b[s] : R^w init first(a)
param   rate in (0, 1]
layer
  near[p,s] = argmin[s] |a[p] - b[s]|^2 / q[s]
  then
  b[s] += rate * (mean[p] a[p] where near[p,s] else b[s]) - rate * b[s]
outputs seat = near, where_they_stand = b
"""


def blobs(count: int = 60, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(at, 0.3, (count // 3, 2)) for at in ((0, 0), (4, 0), (0, 4))])


# ---- against scikit-learn --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "k"), [(load_iris, 3), (load_wine, 3), (load_digits, 10)])
@pytest.mark.parametrize("tol", [0.0, 1e-4])
def test_same_as_scikit_learn_from_the_same_start(load: Any, k: int, tol: float) -> None:
    data = load().data[:600]
    start = data[np.random.default_rng(2).choice(len(data), k, replace=False)]
    ours = WeftClusterer(n_clusters=k, init=start, tol=tol, backend="planned").fit(data)
    theirs = KMeans(k, init=start, n_init=1, algorithm="lloyd", tol=tol).fit(data)
    assert len(np.unique(theirs.labels_)) == k  # no cluster ran empty: there the policies differ
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-9, atol=1e-9)
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.inertia_ == pytest.approx(theirs.inertia_)
    np.testing.assert_allclose(ours.transform(data), theirs.transform(data), atol=1e-6)
    assert ours.score(data[:50]) == pytest.approx(theirs.score(data[:50]))


def test_an_empty_cluster_keeps_its_center_where_scikit_learn_moves_it() -> None:
    data, start = [[0.0], [1.0], [2.0]], [[0.0], [50.0]]
    assert WeftClusterer(n_clusters=2, init=start).fit(data).cluster_centers_.tolist() == [[1.0], [50.0]]
    assert 50.0 not in KMeans(2, init=start, n_init=1).fit(data).cluster_centers_


# ---- what a fit says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", CLUSTERINGS)
def test_labels_belong_to_the_centers_that_are_reported(spec: str) -> None:
    """After one layer of many: the layer's own labels are of the centers before it."""
    data = blobs() + 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = WeftClusterer(spec, 3, max_iter=1, random_state=1).fit(data)
    assert fitted.n_iter_ == 1
    assert fitted.labels_.dtype == np.int32
    np.testing.assert_array_equal(fitted.predict(data), fitted.labels_)
    assert fitted.inertia_ == -fitted.score(data)
    points = data / np.linalg.norm(data, axis=1, keepdims=True) if "spherical_kmeans" in spec else data
    if "gmm" not in spec:  # a mixture weighs distances by its variances
        near = ((points[:, None] - fitted.cluster_centers_) ** 2).sum(2).argmin(1)
        np.testing.assert_array_equal(fitted.labels_, near)
    assert hasattr(fitted, "predict_proba") == (fitted._forms().plain.soft)
    if hasattr(fitted, "predict_proba"):
        shares = fitted.predict_proba(data)
        np.testing.assert_allclose(shares.sum(1), 1)
        np.testing.assert_array_equal(shares.argmax(1), fitted.labels_)


def test_mixture_labels_are_those_of_its_own_weights_and_variances() -> None:
    data = blobs()
    fitted = WeftClusterer("gmm_em_spherical", 3, random_state=0).fit(data)
    c, pi, s2 = (fitted.outputs_[name] for name in ("means", "weights", "variances"))
    logs = np.log(pi) - ((data[:, None] - c) ** 2).sum(2) / (2 * s2) - np.log(s2)
    np.testing.assert_array_equal(fitted.labels_, logs.argmax(1))
    shares = np.exp(logs - logs.max(1, keepdims=True))
    np.testing.assert_allclose(fitted.predict_proba(data), shares / shares.sum(1, keepdims=True), rtol=1e-9)
    assert fitted.inertia_ == pytest.approx(-np.log(np.exp(logs).sum(1)).sum())


def test_the_checkpoint_it_ran_is_there(tmp_path: Path) -> None:
    data = blobs()
    fitted = WeftClusterer(n_clusters=3, random_state=0, tol=0).fit(data)
    fitted.model_.save(tmp_path / "model.safetensors")
    model = weftc.load(tmp_path / "model.safetensors")
    again = model.final({"x": data, "c": fitted.cluster_centers_}, layers=3)  # at rest: nothing moves
    np.testing.assert_array_equal(again["centers"].numpy(), fitted.cluster_centers_)
    np.testing.assert_array_equal(again["labels"].indices.numpy(), fitted.labels_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_stay_as_wide_as_they_came(dtype: Any) -> None:
    data = blobs().astype(dtype)
    fitted = WeftClusterer(n_clusters=3, random_state=0).fit(data)
    assert fitted.cluster_centers_.dtype == fitted.transform(data).dtype == dtype
    np.testing.assert_array_equal(fitted.predict(data.astype(np.float64)), fitted.labels_)
    wide = WeftClusterer(n_clusters=3, random_state=0, dtype="float64").fit(data)
    assert wide.cluster_centers_.dtype == np.float64


def test_backends_agree() -> None:
    data = blobs(300)
    one, other = (
        WeftClusterer(n_clusters=3, random_state=0, backend=name).fit(data) for name in ("reference", "planned")
    )
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    np.testing.assert_array_equal(one.labels_, other.labels_)


# ---- specs of one's own ----------------------------------------------------------------------------------------------


def test_a_spec_of_ones_own_as_text_path_and_tree(tmp_path: Path) -> None:
    data, given = blobs(), {"rate": 0.5, "q": [1.0, 1.0, 1.0]}
    (tmp_path / "own.weft").write_text(OWN, encoding="utf-8")
    found = [
        WeftClusterer(spec, 3, params=given).fit(data)
        for spec in (OWN, tmp_path / "own.weft", str(tmp_path / "own.weft"), weftc.parse(OWN), weftc.check(OWN))
    ]
    assert not hasattr(found[0], "inertia_")
    assert not hasattr(found[0], "score")
    assert list(found[0].outputs_) == ["where_they_stand"]
    for one in found:
        np.testing.assert_array_equal(one.labels_, found[0].labels_)
    lopsided = WeftClusterer(OWN, 3, params={"rate": 0.5, "q": [9.0, 1.0, 1.0]}).fit(data)
    assert np.bincount(lopsided.labels_)[0] > np.bincount(found[0].labels_)[0]  # a seat that counts distances less


def test_a_fit_outlives_the_file_of_its_spec(tmp_path: Path) -> None:
    path = tmp_path / "mine.weft"
    path.write_text((Path(weftc.__file__).parents[2] / "specs" / "lloyd.weft").read_text(encoding="utf-8"))
    fitted = WeftClusterer(path, 3, random_state=0).fit(blobs())
    path.unlink()
    np.testing.assert_array_equal(fitted.predict(blobs()), fitted.labels_)
    assert fitted.score(blobs()) == -fitted.inertia_


def test_what_follows_from_the_centers_is_computed_from_those_reported() -> None:
    """The layer compares with doubled centers, which it computes first: at the end they are of the centers before."""
    text = """algorithm doubled
    tokens  i in points, j in centers : k
    inputs  x[i] : R^d,  c[j] : R^d init first(x)
    layer
      e[j]   = 2 * c[j]
      then
      y[i,j] = argmin[j] |2 * x[i] - e[j]|^2
      then
      c[j]   = mean[i] x[i] where y[i,j] else c[j]
    outputs c, y"""
    data = np.array([[0.0], [1.0], [1.2], [9.0]])
    with pytest.warns(ConvergenceWarning):
        fitted = WeftClusterer(text, 2, max_iter=1).fit(data)
    assert fitted.cluster_centers_[0, 0] == 0.0
    near = ((data[:, None] - fitted.cluster_centers_) ** 2).sum(2).argmin(1)
    np.testing.assert_array_equal(fitted.labels_, near)


def test_an_output_that_is_computed_at_the_end() -> None:
    text = """algorithm late
    tokens  i in points, j in centers : k
    inputs  x[i] : R^d,  c[j] : R^d init spread(x)
    let     D[i,j] = |x[i] - c[j]|^2
    layer
      c[j] = mean[i] x[i] weighted exp(-D[i,j])
    outputs c, share[i,j] = softmax[j] -D[i,j]"""
    fitted = WeftClusterer(text, 3, random_state=0).fit(blobs())
    distances = fitted.transform(blobs()) ** 2
    shares = np.exp(-distances)
    np.testing.assert_allclose(fitted.predict_proba(blobs()), shares / shares.sum(1, keepdims=True), rtol=1e-6)


# ---- starts ----------------------------------------------------------------------------------------------------------


def test_init_none_is_the_clause_of_the_spec() -> None:
    data = blobs()
    with pytest.warns(ConvergenceWarning):
        fitted = WeftClusterer(n_clusters=3, max_iter=1, tol=0, random_state=5).fit(data)
    seed = int(np.random.RandomState(5).randint(np.iinfo(np.int32).max))
    model = weftc.load(fitted.model_)
    np.testing.assert_array_equal(fitted.cluster_centers_, model(x=data, seed=seed, layers=1)["centers"].numpy())


def test_named_and_callable_starts() -> None:
    data = blobs()

    def corner(X: Floats, k: int, random_state: Any) -> Floats:
        assert isinstance(random_state, np.random.RandomState)
        return X[:k]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first, called, plus, spread = (
            WeftClusterer(n_clusters=3, init=init, n_init=1, max_iter=1, random_state=0).fit(data).cluster_centers_
            for init in ("first", corner, "k-means++", "spread")
        )
    np.testing.assert_array_equal(first, called)
    np.testing.assert_array_equal(plus, spread)
    assert not np.array_equal(first, spread)


def test_of_several_starts_the_best_is_kept() -> None:
    data = load_digits().data[:200]
    each = [WeftClusterer(n_clusters=10, init="random", n_init=1, random_state=seed).fit(data) for seed in range(4)]
    many = WeftClusterer(n_clusters=10, init="random", n_init=6, random_state=0).fit(data)
    assert many.inertia_ < np.mean([one.inertia_ for one in each])
    assert many.inertia_ < each[0].inertia_  # the first of its starts is the one of seed 0
    assert many.inertia_ == -many.score(data)


def test_without_an_objective_there_is_one_start() -> None:
    given = {"rate": 1.0, "q": [1.0, 1.0, 1.0]}
    assert WeftClusterer(OWN, 3, params=given, init="random").fit(blobs()).n_iter_ > 0
    with pytest.raises(ValueError, match="n_init=4, but own states no objective"):
        WeftClusterer(OWN, 3, params=given, n_init=4).fit(blobs())


# ---- stopping --------------------------------------------------------------------------------------------------------


def test_it_warns_when_it_does_not_settle() -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        WeftClusterer(n_clusters=3, max_iter=1, init="first").fit(blobs())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settled = WeftClusterer(n_clusters=3, init="first").fit(blobs())
        patient = WeftClusterer("soft_kmeans", 3, init="first", tol=1e-10).fit(blobs())
        loose = WeftClusterer("soft_kmeans", 3, init="first", tol=1e-1).fit(blobs())
    assert 1 < settled.n_iter_ < 300
    assert loose.n_iter_ < patient.n_iter_ < 300


def test_the_rule_scales_with_the_data() -> None:
    steps = []
    for factor in (1, 8):
        soft = WeftClusterer("soft_kmeans", 3, params={"gamma": 1 / factor**2}, tol=1e-3, init="first")
        steps.append(soft.fit(blobs() * factor).n_iter_)
    assert steps[0] == steps[1] > 2


def test_a_mixture_waits_for_its_variances_too() -> None:
    """The centers of two far clusters stand still at once; the variances do not."""
    data = np.array([[-12.0], [-10.0], [-8.0], [-6.0], [8.9], [9.1], [8.9], [9.1]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        once = WeftClusterer("gmm_em_spherical", 2, init=[[-9.0], [9.0]], max_iter=1).fit(data)
    fitted = WeftClusterer("gmm_em_spherical", 2, init=[[-9.0], [9.0]]).fit(data)
    np.testing.assert_allclose(once.cluster_centers_, fitted.cluster_centers_, atol=1e-9)
    assert fitted.n_iter_ > 1


# ---- in scikit-learn's company ---------------------------------------------------------------------------------------


def test_pipeline_and_grid_search() -> None:
    pipe = make_pipeline(StandardScaler(), WeftClusterer(random_state=0))
    grid = GridSearchCV(
        pipe, {"weftclusterer__n_clusters": [1, 3], "weftclusterer__spec": ["lloyd", "lloyd_split"]}, cv=2
    )
    grid.fit(blobs())
    assert grid.best_params_["weftclusterer__n_clusters"] == 3
    assert len(np.unique(grid.predict(blobs()))) == 3
    assert grid.transform(blobs()).shape == (60, 3)


def test_clone_and_pickle() -> None:
    fitted = WeftClusterer("soft_kmeans", 3, random_state=0, params={"gamma": 2.0}).fit(blobs())
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(blobs())
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(blobs()), fitted.predict_proba(blobs()))
    assert again.model_.to_bytes() == fitted.model_.to_bytes()
    assert again.inertia_ == fitted.inertia_


@pytest.mark.parametrize("library", [pandas, polars])
def test_frames(library: Any) -> None:
    frame = library.DataFrame({"length": blobs()[:, 0], "width": blobs()[:, 1]})
    fitted = WeftClusterer(n_clusters=3, random_state=0).set_output(transform=library.__name__).fit(frame)
    assert fitted.feature_names_in_.tolist() == ["length", "width"]
    far = fitted.transform(frame)
    assert isinstance(far, library.DataFrame)
    assert list(far.columns) == ["weftclusterer0", "weftclusterer1", "weftclusterer2"]
    np.testing.assert_array_equal(
        fitted.predict(frame), WeftClusterer(n_clusters=3, random_state=0).fit(blobs()).labels_
    )
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["width", "length"]])


def test_import_weft_imports_neither_torch_nor_scikit_learn() -> None:
    code = "import weftc, sys; weftc.match; sys.exit(bool({'sklearn', 'torch', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        ({"spec": "sort"}, None, "sort is no clustering"),
        ({"spec": "loyd"}, None, "did you mean 'lloyd'"),
        ({"spec": OWN, "params": {"rate": 0.5}}, None, "own needs the input q .*params=.'q'"),
        ({"spec": OWN, "params": {"q": [1.0, 1.0, 1.0]}}, None, "rate"),
        ({"params": {"gamma": 1}}, None, "gamma"),
        ({"params": {"c": [[0.0]]}}, None, "give it as init"),
        ({"params": {"k": 4}}, None, "there are 4 centers of lloyd, but n_clusters is 3"),
        ({"init": "best"}, None, "init='best' is no start"),
        ({"init": [[0.0, 0.0]]}, None, r"init has shape \(1, 2\)"),
        ({"n_clusters": 99}, None, "n_samples=60 should be >= n_clusters=99"),
        ({"device": "abacus"}, None, "device='abacus' cannot be used"),
        ({"backend": "abacus"}, None, "unknown backend abacus"),
        ({}, np.ones((60, 2)), "different rows of X"),
        ({"spec": "spherical_kmeans"}, np.zeros((60, 2)), "row 0 of X .* is zero"),
        ({"spec": "gmm_em"}, [[1.0], [1.0], [1.0], [2.0], [3.0]], "n_samples=5, n_clusters=3"),
    ],
)
def test_refusals_are_value_errors_that_say_what_to_do(settings: dict[str, Any], data: Any, message: str) -> None:
    estimator = WeftClusterer(**{"n_clusters": 3, "tol": 0, **settings})
    with pytest.raises(ValueError, match=message) as caught:
        estimator.fit(blobs() if data is None else data)
    assert isinstance(caught.value, weftc.WeftError)


def test_sparse_data_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match="toarray"):
        WeftClusterer(n_clusters=2).fit(csr_matrix(blobs()))


def test_a_mistake_in_a_spec_keeps_its_place() -> None:
    with pytest.raises(weftc.SpecError, match="error"):
        WeftClusterer("algorithm broken\nlayer x[i] = 1\n", 2).fit(blobs())


def test_an_input_of_points_without_a_start_is_named() -> None:
    text = OWN.replace("inputs  a[p] : R^w,", "inputs  a[p] : R^w,  age[p] : R,").replace(
        "argmin[s] |", "argmin[s] age[p] * |"
    )
    with pytest.raises(ValueError, match="own needs the input age"):
        WeftClusterer(text, 3, params={"rate": 0.5, "q": [1.0, 1.0, 1.0]}).fit(blobs())


def test_points_with_a_memory_cannot_be_assigned_anew() -> None:
    text = """algorithm slow
    tokens  i in points, j in centers : k
    inputs  x[i] : R^d,  c[j] : R^d init spread(x)
    state   z[i] : R^d = x[i]
    layer
      z[i]   = 0.5 * z[i] + 0.5 * x[i]
      y[i,j] = argmin[j] |z[i] - c[j]|^2
      then
      c[j]   = mean[i] x[i] where y[i,j] else c[j]
    outputs c, y"""
    with pytest.raises(ValueError, match="z of a point depends on its own past"):
        WeftClusterer(text, 2).fit(blobs())


def test_parameters_of_the_spec_can_be_searched_by_name() -> None:
    search = GridSearchCV(
        WeftClusterer("soft_kmeans", random_state=0), {"gamma": [0.1, 2.0], "n_clusters": [2, 3]}, cv=2, n_jobs=1
    ).fit(blobs())
    assert set(search.best_params_) == {"gamma", "n_clusters"}
    best = search.best_estimator_
    assert best.params == {"gamma": search.best_params_["gamma"]}
    assert best.model_.params["gamma"] == best.params["gamma"]


def test_parameters_are_set_taken_back_and_cloned_by_name() -> None:
    found = WeftClusterer("trimmed_kmeans", 3).set_params(tau=80, n_clusters=4)
    assert (found.params, found.n_clusters) == ({"tau": 80}, 4)
    assert found.get_params()["tau"] == 80
    assert "tau" not in found.get_params(deep=False)
    assert clone(found).get_params()["tau"] == 80
    assert found.set_params(tau=None).params is None
    assert found.set_params(spec="soft_kmeans", gamma=2.0).params == {"gamma": 2.0}
    with pytest.raises(ValueError, match="Invalid parameter 'tau'"):
        found.set_params(tau=70)
    with pytest.raises(ValueError, match="Invalid parameter 'gama'"):
        found.set_params(gama=70)


@pytest.mark.parametrize("spec", ["lloyd", "soft_kmeans", "kmedoids"])
def test_starts_that_run_together_end_as_they_do_alone(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(5).normal(size=(50, 3))
    made = {"n_clusters": 4, "n_init": 5, "random_state": 1, "init": "random", "max_iter": 40}
    together = WeftClusterer(spec, **made).fit(x)
    monkeypatch.setattr("weftc.estimators.fitting.TOGETHER", 1)
    alone = WeftClusterer(spec, **made).fit(x)
    assert np.array_equal(together.cluster_centers_, alone.cluster_centers_)
    assert np.array_equal(together.labels_, alone.labels_)
    assert (together.inertia_, together.n_iter_) == (alone.inertia_, alone.n_iter_)
