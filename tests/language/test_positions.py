"""An index in a comparison is the position of its token: 1, 2, ..."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weftc

FRAME = """algorithm t
tokens  i, l in points
        j, h in centers : 3
inputs  x[i] : R,  c[j] : R
param   size = 2,  three = 3
layer
  {}
outputs {}
"""
X, C = [3.0, 1.0, 4.0, 1.5], [10.0, 20.0, 30.0]
WANTED: dict[str, Any] = {
    "x[i] = sum[l] x[l] where l <= i": np.cumsum(X),
    "x[i] = sum[l] x[l] where l < i": np.cumsum(X) - X,
    "x[i] = sum[l] x[l] where (i - 1) <= l and l < i": [0.0, *X[:-1]],
    "x[i] = sum[l] x[l] where i < l and l <= (i + 1)": [*X[1:], 0.0],
    "x[i] = sum[l] x[l] where l <= 2": [X[0] + X[1]] * 4,
    "x[i] = sum[l] x[l] where l >= 2 and l != i": [6.5, 5.5, 2.5, 5.0],
    "x[i] = max[l] x[l] where l <= i else 0": np.maximum.accumulate(X),
    "c[j] = sum[i] x[i] where i <= j": [3.0, 4.0, 8.0],
    "c[j] = mean[h] c[h] where 2 * h > j else 0": [20.0, 25.0, 25.0],
    "x[i] = x[i-1] else x[last]": [1.5, 3.0, 1.0, 4.0],
    "x[i] = (x[i+2] else 0) - x[first]": [1.0, -1.5, -3.0, -3.0],
    "x[i] = x[count(points) + 1 - i] else 0": X[::-1],
    "x[i] = c[index(i)] else x[last]": [*C, 1.5],
    "c[j] = c[2] + c[1] - c[3]": [0.0] * 3,
    "c[j] = x[2 * j] else c[j-1] else 7": [1.0, 1.5, 20.0],
    "x[i] = sum[l] (x[l-1] else 0) where l <= i": np.cumsum([0.0, *X[:-1]]),
    "x[i] = x[x[i]] else x[1]": [4.0, 3.0, 1.5, 3.0],
    "x[i] = sum[l] 1 where l != i and (x[l] - 2 * x[i]) = 1": [0.0, 1.0, 0.0, 1.0],
    "x[i] = sum[l] 1 where x[l] != x[i]": [3.0] * 4,
    "x[i] = sum[l] 1 where l = i and x[l] != 4": [1.0, 1.0, 0.0, 1.0],
    "x[i] = sum[l] x[l] where (sum[j] c[j] where size != three) > 0 and l <= i": np.cumsum(X),
}


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("equation", WANTED)
def test_an_index_in_a_comparison_is_its_position(equation: str, scores: str, backend: str) -> None:
    name = equation[0]
    text = FRAME.format(equation, name)
    meant = weftc.interpret(text, {"x": X, "c": C}, layers=1)[name]
    assert np.asarray(meant).tolist() == pytest.approx(list(WANTED[equation]))
    model = weftc.load(weftc.compile(text, {}, scores=scores), backend=backend)
    assert model(x=X, c=C)[name].tolist() == pytest.approx(list(WANTED[equation]))


def test_it_is_the_same_as_index_written_out() -> None:
    short = FRAME.format("x[i] = sum[l] x[l] where l <= i", "x")
    long = FRAME.format("x[i] = sum[l] x[l] where index(l) <= index(i)", "x")
    assert weftc.compile(short, {}).tensors.keys() == weftc.compile(long, {}).tensors.keys()
    assert "where l <= i" in weftc.format(short)


def test_a_declared_index_called_first_is_an_index() -> None:
    text = (
        FRAME.format("x[first] = 2 * x[first]", "x").replace("i, l in", "first, l in").replace("x[i] :", "x[first] :")
    )
    assert np.asarray(weftc.interpret(text, {"x": X, "c": C}, layers=1)["x"]).tolist() == [2 * value for value in X]


@pytest.mark.parametrize("scores", ["l2", "dot"])
def test_vectors_and_positions_are_compared_exactly(scores: str) -> None:
    text = """algorithm t
tokens  i, l in points
inputs  v[i] : R^d
layer
  n[i] = sum[l] 1 where v[l] = v[i]
  p[i] = v[i-1] else v[last]
  then
  m[i] = sum[l] 1 where p[l] != v[i] and n[l] = n[i]
outputs n, p, m
"""
    near = np.nextafter(0.1, 1)
    v = np.array([[0.1, 1e-200], [0.1, 0.0], [near, 0.0], [0.1, 0.0]])
    same = (v[:, None] == v).all(-1)
    n, p = same.sum(1), v[[3, 0, 1, 2]]
    m = (~(p[:, None] == v).all(-1) & (n[:, None] == n)).sum(0)
    for run in (
        weftc.interpret(text, {"v": v}, layers=1),
        weftc.load(weftc.compile(text, {"d": 2}, scores=scores))(v=v),
    ):
        assert np.asarray(run["n"]).tolist() == n.tolist()
        assert np.asarray(run["p"]).tolist() == p.tolist()
        assert np.asarray(run["m"]).tolist() == m.tolist()


def test_elsewhere_an_index_is_no_value() -> None:
    with pytest.raises(weftc.SpecError, match=r"write index\(i\) for the position"):
        weftc.check(FRAME.format("x[i] = i", "x"))
