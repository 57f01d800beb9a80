"""`sample_weight`: a weight of 2 is the row twice, in starts, layers, objective and stopping; and who takes weights."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter

import weftc
from clusterings import CLUSTERINGS
from weftc.compiling import checked_spec
from weftc.estimators.derived_specs import forms_of
from weftc.estimators.multiplicity import counted, multiplies
from weftc.files.locate import builtin
from weftc.sklearn import WeftClusterer
from weftc_runtime.data.initial import start

SUMS_AND_MEANS = {
    "gmm_em",
    "gmm_em_spherical",
    "lloyd",
    "lloyd_split",
    "soft_kmeans",
    "soft_spherical_kmeans",
    "spherical_kmeans",
    "weighted_kmeans",
}
FRAME = """algorithm frame
tokens  i, l in points, j in centers : k
inputs  x[i] : R^d,  u[i] : R >= 0,  c[j] : R^d init spread(x)
random  g[i] : normal
param   rate = {param}
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  {body}
outputs c, y
objective {objective}"""


def frame(body: str, objective: str = "sum[i] min[j] |x[i] - c[j]|^2", param: str = "1", noise: bool = False) -> str:
    text = FRAME.format(body=body, objective=objective, param=param)
    return text if noise else text.replace("random  g[i] : normal\n", "")


def data(seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.normal(at, 0.5, (9, 2)) for at in ((2, 2), (6, 2), (2, 6))])
    return rows, rng.integers(0, 4, len(rows))


@pytest.mark.parametrize("spec", sorted(SUMS_AND_MEANS))
def test_weights_are_repetition(spec: str) -> None:
    seed = len(spec)
    rows, counts = data(seed)
    order = np.random.default_rng(9).permutation(len(rows))
    repeated = WeftClusterer(spec, 3, random_state=seed).fit(np.repeat(rows, counts, axis=0))
    weighted = WeftClusterer(spec, 3, random_state=seed).fit(rows[order], sample_weight=counts[order])
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-9)
    for name, value in weighted.outputs_.items():
        np.testing.assert_allclose(value, repeated.outputs_[name], rtol=1e-9)
    np.testing.assert_array_equal(weighted.labels_, repeated.predict(rows[order]))
    assert weighted.inertia_ == pytest.approx(repeated.inertia_, rel=1e-9)
    assert weighted.n_iter_ == repeated.n_iter_
    assert weighted.score(rows, sample_weight=counts) == pytest.approx(repeated.score(np.repeat(rows, counts, axis=0)))
    assert weighted.score(rows) == pytest.approx(repeated.score(rows))


def test_weights_matter() -> None:
    rows, counts = data()
    plain = WeftClusterer(n_clusters=3, init=rows[[0, 9, 18]]).fit(rows)
    weighted = WeftClusterer(n_clusters=3, init=rows[[0, 9, 18]]).fit(rows, sample_weight=counts)
    ones = WeftClusterer(n_clusters=3, init=rows[[0, 9, 18]]).fit(rows, sample_weight=np.ones(len(rows)))
    assert not np.allclose(plain.cluster_centers_, weighted.cluster_centers_)
    np.testing.assert_array_equal(plain.cluster_centers_, ones.cluster_centers_)
    for j in range(3):
        mine = weighted.labels_ == j
        np.testing.assert_allclose(weighted.cluster_centers_[j], np.average(rows[mine], axis=0, weights=counts[mine]))


@pytest.mark.parametrize("method", ["spread", "random"])
def test_starts_draw_as_repetition_would(method: str) -> None:
    rows, counts = data()
    some, many = rows[counts > 0], counts[counts > 0].astype(np.float64)
    for seed in range(20):
        picked = start(method, some, 5, "c", "x", seed, many)
        np.testing.assert_array_equal(picked, start(method, np.repeat(rows, counts, axis=0), 5, "c", "x", seed))
        halves = start(method, np.concatenate([some, some]), 5, "c", "x", seed, np.concatenate([many, many]) / 2)
        np.testing.assert_array_equal(picked, halves)  # the same row twice, half as heavy


@pytest.mark.parametrize("spec", CLUSTERINGS)
def test_the_signature_tells_the_truth(spec: str) -> None:
    estimator = WeftClusterer(spec, 3)
    takes = spec in SUMS_AND_MEANS
    for method in (estimator.fit, estimator.score):
        assert ("sample_weight" in inspect.signature(method).parameters) is takes
    assert has_fit_parameter(estimator, "sample_weight") is takes
    if not takes:
        with pytest.raises(TypeError, match="sample_weight"):
            estimator.fit(data()[0], sample_weight=data()[1])
    estimator.set_params(spec="trimmed_kmeans" if takes else "lloyd")
    assert has_fit_parameter(estimator, "sample_weight") is not takes


def test_the_weighted_transformer_is_a_file_like_any_other() -> None:
    rows, counts = data()
    fitted = WeftClusterer(n_clusters=3, random_state=0).fit(rows, sample_weight=counts)
    assert fitted.model_.spec_name == "lloyd_weighted"
    assert "weighted w[i] where y[i,j]" in fitted.model_.spec_text
    assert weftc.verify(fitted.model_).verdict == "proved"


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        (frame("c[j] = mean[i] x[i] where y[i,j] else c[j]"), "mean[i] x[i] weighted w[i] where y[i,j] else c[j]"),
        (frame("c[j] = mean[i] x[i] weighted u[i] else c[j]"), "mean[i] x[i] weighted (w[i] * u[i]) else c[j]"),
        (frame("c[j] = c[j] / 2 + (sum[i] y[i,j] * x[i]) / count(points)"), "/ (sum[each] w[each])"),
        (frame("c[j] = mean[i] x[i] * (sum[l] u[l])"), "mean[i] (x[i] * (sum[l] (w[l] * u[l]))) weighted w[i]"),
    ],
)
def test_how_sums_and_means_count(text: str, becomes: str) -> None:
    made = counted(checked_spec(text), "points")
    assert made is not None
    assert becomes in made[0].spec.source.text
    assert forms_of(made[0].spec.source).weighted is not None


def test_a_mean_per_point_is_per_weight() -> None:
    """An objective divided by the number of points: weights count in both."""
    text = frame("c[j] = mean[i] x[i] where y[i,j] else c[j]", "(sum[i] min[j] |x[i] - c[j]|^2) / count(points)")
    text = text.replace("u[i] : R >= 0,  ", "")
    rows, counts = data()
    weighted = WeftClusterer(text, 3, random_state=0).fit(rows, sample_weight=counts)
    repeated = WeftClusterer(text, 3, random_state=0).fit(np.repeat(rows, counts, axis=0))
    assert weighted.inertia_ == pytest.approx(repeated.inertia_)


@pytest.mark.parametrize(
    "text",
    [
        frame("c[j] = sum[i] softmax[i](-|x[i] - c[j]|^2) * x[i]"),
        frame("c[j] = mean[i] x[i] by lowest[i](|x[i] - c[j]|^2, 3)"),
        frame("c[j] = mean[i] index(i) * x[i]"),
        frame("c[j] = mean[i] x[i]\n  r[i] = max[l] <x[i], x[l]>"),
        frame("c[j] = mean[i] x[i]\n  r[i] = sum[l] <x[i], x[l]> where i != l"),
        frame("c[j] = mean[i] x[i] * rate", param="count(points)"),
        frame("c[j] = mean[i] g[i] * x[i]", noise=True),
    ],
    ids=["softmax", "lowest", "index", "max", "different", "count-in-a-param", "noise"],
)
def test_specs_that_tell_copies_apart_take_no_weights(text: str) -> None:
    assert counted(checked_spec(text), "points") is None
    assert forms_of(checked_spec(text).spec.source).weighted is None


@pytest.mark.parametrize(
    ("body", "objective", "is_weight"),
    [
        ("c[j] = mean[i] x[i] weighted u[i] * y[i,j] else c[j]", "sum[i] u[i] * (min[j] |x[i] - c[j]|^2)", True),
        ("c[j] = mean[i] x[i] weighted u[i] * y[i,j] else c[j]", "sum[i] min[j] |x[i] - c[j]|^2", False),
        ("c[j] = mean[i] x[i] weighted u[i] * u[i] * y[i,j] else c[j]", "sum[i] u[i] * |x[i]|^2", False),
        ("c[j] = mean[i] u[i] * x[i] where y[i,j] else c[j]", "sum[i] u[i] * |x[i]|^2", False),
        ("c[j] = (sum[i] u[i] * x[i]) / count(points)", "sum[i] u[i] * |x[i]|^2", False),
    ],
)
def test_which_input_is_a_multiplicity(body: str, objective: str, is_weight: bool) -> None:
    checked = checked_spec(frame(body, objective))
    assert multiplies(checked, checked.fields["u"]) is is_weight
    roles = forms_of(checked.spec.source).plain
    assert roles.weight == ("u" if is_weight else None)


def test_a_multiplicity_of_the_spec_is_fed_by_sample_weight() -> None:
    rows, counts = data()
    ours = WeftClusterer("weighted_kmeans", 3, random_state=0).fit(rows, sample_weight=counts)
    other = WeftClusterer("lloyd", 3, random_state=0).fit(rows, sample_weight=counts)
    np.testing.assert_allclose(ours.cluster_centers_, other.cluster_centers_)
    assert ours.model_.spec_text == builtin("weighted_kmeans").text


@pytest.mark.parametrize(
    ("weights", "message"),
    [([0] * 27, "zero"), ([-1] + [1] * 26, "[Nn]egative"), ([1, 2], "sample_weight.shape")],
)
def test_weights_that_cannot_be(weights: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeftClusterer(n_clusters=3).fit(data()[0], sample_weight=weights)
