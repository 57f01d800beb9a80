"""Compiled specs on finite inputs: values that only exact arithmetic sees, and rows that nobody needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weftc
from weftc_runtime import RunError

BACKENDS = ("reference", "planned")

UNDERFLOWING = """algorithm t
tokens  j, h in centers : k
inputs  c[j] : R^d
layer
  b[j] = |c[j]|^2
  then
  c[j] = mean[h] c[h] weighted (|c[j] - c[h]|^2 * exp(b[h])) else c[j]
outputs c
"""
MASKED = """algorithm t
tokens  i in points
        h in centers : 3
inputs  u[i] : R,  p[h] : R,  w[h] : R >= 0,  v[h] : R
layer
  r[i] = mean[h] v[h] weighted (exp(p[h]) * w[h]) where v[h] > u[i] else 3
outputs r
"""
CANCELLING = """algorithm t
tokens  l in points
        q in others
inputs  x[l] : R^d,  z[q] : R^d
layer
  s[q] = |z[q] - (mean[l] x[l] weighted |z[q]|^2)|^2 else 1
outputs s
"""
CONSTANT = """algorithm t
tokens  i in points
        w in others
inputs  g[i] : R,  m[w] : R
layer
  p[i] = mean[w] g[i] where m[w] >= 0 else 1
outputs p
"""
SHARED = """algorithm t
tokens  l in points
        j in centers : k
inputs  v[j] : R,  A[l,j] : real
layer
  v[j] = v[j]
outputs shown[j] = sum[l] (highest[l](A[l,j], 99.9%) * v[j])
"""
UNREAD = """algorithm t
tokens  i, l in nodes
inputs  p[i] : R,  deg[i] : R
layer
  p[i] = sum[l] p[l] / deg[l] where i != l
outputs p
"""
UNREAD_BY_SIZE = """algorithm t
tokens  i in points
        j in centers : 2
inputs  x[i] : R,  w[i] : R,  c[j] : R
layer
  c[j] = sum[i] log(x[i]) where w[i] > c[j]
outputs c
"""
EMPTY = """algorithm t
tokens  i, l in points
inputs  x[i] : R^d
layer
  x[i] = mean[l] x[l] weighted |x[i] - x[l]|^2 else 7 * x[i]
outputs x
"""


def _both(text: str, inputs: dict[str, Any], dims: dict[str, int], backend: str, **style: Any) -> tuple[Any, Any]:
    (name,) = weftc.check(text).spec.outputs
    made = weftc.load(weftc.compile(text, dims, **style), backend=backend)(inputs)[name.target.name]
    meant = weftc.interpret(text, inputs, layers=1, dims=dims)[name.target.name]
    return np.asarray(made), np.asarray(meant)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scores", ["l2", "dot"])
def test_an_else_is_not_taken_because_a_mass_underflows(backend: str, scores: str) -> None:
    made, meant = _both(UNDERFLOWING, {"c": [[-461.0], [7.0]]}, {"k": 2, "d": 1}, backend, scores=scores)
    assert meant.tolist() == [[7.0], [-461.0]]
    assert made.tolist() == meant.tolist()


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize(("w", "wanted"), [([1.0, 1.0, 1.0], 2.0), ([1.0, 1.0, 0.0], 1.0), ([1.0, 0.0, 0.0], 3.0)])
def test_weights_that_do_not_count_do_not_make_others_vanish(backend: str, w: list[float], wanted: float) -> None:
    inputs = {"u": [0.5], "p": [1e6, 10.0, 1000.0], "w": w, "v": [0.0, 1.0, 2.0]}
    made, meant = _both(MASKED, inputs, {}, backend)
    assert meant.tolist() == [wanted]
    assert made.tolist() == [wanted]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e8])
def test_a_difference_from_a_mean_that_may_be_empty_is_kept(backend: str, offset: float) -> None:
    inputs = {"x": [[offset], [offset + 1]], "z": [[offset + 0.54]]}
    made, meant = _both(CANCELLING, inputs, {"d": 1}, backend)
    assert made == pytest.approx(meant, rel=1e-7 * max(1.0, offset / 1e8) + 1e-15 * offset)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_mean_of_a_constant_is_that_constant(backend: str) -> None:
    g = [-1.3476624821871481, 2.762498454935362, 0.3]
    made, meant = _both(CONSTANT, {"g": g, "m": [0.0, 1.0, 0.0]}, {}, backend)
    assert made.tolist() == meant.tolist() == g


@pytest.mark.parametrize("backend", BACKENDS)
def test_shares_of_a_constant_add_up_to_it(backend: str) -> None:
    made, meant = _both(SHARED, {"v": [1.4598136924522422], "A": [[-2.0], [3.0], [0.0], [1.0]]}, {"k": 1}, backend)
    assert made.tolist() == meant.tolist() == [1.4598136924522422]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_quotient_that_no_token_reads_stops_nothing(backend: str) -> None:
    made, meant = _both(UNREAD, {"p": [1.0], "deg": [0.0]}, {}, backend)
    assert made.tolist() == meant.tolist() == [0.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_quotient_that_a_token_reads_stops_the_run(backend: str) -> None:
    model = weftc.load(weftc.compile(UNREAD, {}), backend=backend)
    with pytest.raises(RunError, match=r"token 1 of nodes .*: a division by zero"):
        model(p=[1.0, 2.0], deg=[1.0, 0.0])
    with pytest.raises(weftc.WeftError):
        weftc.interpret(UNREAD, {"p": [1.0, 2.0], "deg": [1.0, 0.0]}, layers=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_logarithm_of_points_that_are_left_out_stops_nothing(backend: str) -> None:
    inputs = {"x": [1.0, -1.0, np.e], "w": [1.0, 0.0, 1.0], "c": [0.0, 9.0]}
    made, meant = _both(UNREAD_BY_SIZE, inputs, {}, backend)
    assert made.tolist() == pytest.approx(meant.tolist())
    with pytest.raises(RunError, match=r"token 1 of points .*: the logarithm of a number that is not positive"):
        weftc.load(weftc.compile(UNREAD_BY_SIZE, {}), backend=backend)({**inputs, "w": [1.0, 1.0, 1.0]})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize(
    "x",
    [
        [[1001.219, 1001.537]] * 3,
        [[1001.219, 1001.537]] * 3 + [[5.0, 5.0]],
        [[1e-200, 0.0], [2e-200, 0.0], [0.0, 0.0]],
        [[0.0, 0.0]],
    ],
)
def test_whether_a_mass_is_zero_is_decided_exactly(backend: str, scores: str, x: list[list[float]]) -> None:
    made, meant = _both(EMPTY, {"x": x}, {"d": 2}, backend, scores=scores)
    np.testing.assert_allclose(made, meant, rtol=1e-14, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [1e40, 1e160, 1e300])
def test_dot_scores_decide_beyond_the_range_of_squares(backend: str, scale: float) -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}, scores="dot"), backend=backend)
    found = model(x=[[scale], [3 * scale]], c=[[scale], [4 * scale]])
    assert found["labels"].indices.tolist() == [0, 1]
    assert found["centers"].tolist() == [[scale], [3 * scale]]


WEIGHTINGS = {
    "lowest": "lowest[i](|x[i] - c[j]|^2, 3)",
    "a share of members": "lowest[i](|x[i] - c[j]|^2 where y[i,j], 90%)",
    "sparsemax": "sparsemax[i](-|x[i] - c[j]|^2)",
    "argmin": "argmin[i](|x[i] - c[j]|^2)",
    "softmax of members": "softmax[i](-|x[i] - c[j]|^2 where y[i,j])",
}


@pytest.mark.parametrize("weight", ["w[i]", "y[i,j]"])
@pytest.mark.parametrize("weighting", WEIGHTINGS.values(), ids=WEIGHTINGS)
def test_a_mean_by_two_weights_is_the_quotient_of_its_sums(weighting: str, weight: str) -> None:
    frame = """algorithm t
tokens  i in points
        j in centers : 3
inputs  x[i] : R^2,  c[j] : R^2,  w[i] : R >= 0,  y[i,j] : onehot
layer
  c[j] = {} else c[j]
outputs c
"""
    rng = np.random.default_rng(1)
    inputs = {"x": rng.normal(size=(6, 2)), "c": rng.normal(size=(3, 2)), "w": rng.uniform(size=6)}
    inputs["y"] = np.eye(3)[[0, 1, 1, 0, 0, 1]]
    both = f"sum[i] {weighting} * {weight}"
    made, meant = _both(frame.format(f"mean[i] x[i] weighted {weight} by {weighting}"), inputs, {}, "auto")
    np.testing.assert_allclose(made, meant, rtol=1e-13)
    divided, quotient = _both(frame.format(f"({both} * x[i]) / ({both})"), inputs, {}, "auto")
    np.testing.assert_allclose(divided, quotient, rtol=1e-13)
    np.testing.assert_allclose(meant, quotient, rtol=1e-13)


COUNTED = """algorithm t
tokens  i in points
        j, h in centers : 2
inputs  x[i] : R
state   s[j] : R = 2
layer
  p[j,h] = tanh(s[h] * count(points) / 8)
  s[j] = 1
outputs p
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_by_numbers_that_change_are_those_of_this_run_and_layer(backend: str) -> None:
    model = weftc.load(weftc.compile(COUNTED), backend=backend)
    for count, layers in ((6, 1), (4, 2), (5, 3), (6, 1)):
        said = np.tanh((2.0 if layers == 1 else 1.0) * count / 8)
        assert np.allclose(model(x=np.arange(float(count)), layers=layers)["p"], said, rtol=1e-14), (count, layers)
