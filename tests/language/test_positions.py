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


def test_elsewhere_an_index_is_no_value() -> None:
    with pytest.raises(weftc.SpecError, match=r"write index\(i\) for the position"):
        weftc.check(FRAME.format("x[i] = i", "x"))
