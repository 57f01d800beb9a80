"""One rule for definedness: what `else` catches, in the interpreter, on both backends, and as the prover sees it."""

from __future__ import annotations

import numpy as np
import pytest

import weftc
from weftc_runtime.errors import RunError

FRAME = """algorithm t
tokens  i, l in points
        j in centers : k
inputs  x[i] : R,  w[i] : R,  c[j] : R,  y[i,j] : onehot
layer
  {}
outputs {}
"""
DATA = {"x": [3.0, 1.0, 0.0], "w": [2.0, 0.0, -2.0], "c": [7.0, 0.0, 5.0], "y": [[1, 0, 0], [0, 1, 0], [1, 0, 0]]}
CASES = {
    "means that can be empty, divided": "c[j] = (mean[i] x[i] where y[i,j]) / (mean[i] w[i] where y[i,j]) else c[j]",
    "a sum over a count": "c[j] = (sum[i] y[i,j] * x[i]) / (sum[i] y[i,j]) else c[j]",
    "a quotient of fields": "x[i] = 1 / w[i] else 9",
    "a quotient inside a function": "x[i] = exp(1 / w[i]) + 1 else 9",
    "a product of two quotients": "x[i] = x[i] / w[i] + 1 / x[i] else 9",
    "a difference in the divisor": "x[i] = 1 / (w[i] - x[i] + 1) else 9",
    "a logarithm": "x[i] = log(w[i]) else 9",
    "a root": "x[i] = sqrt(w[i]) else 9",
    "nested": "x[i] = (1 / w[i] else 1 / (x[i] - 1)) else 5",
    "nested, the first fallback not needed": "x[i] = (1 / (w[i] - 2) else 1 / (x[i] - 1)) else 5",
    "a fallback that is a quotient": "x[i] = 1 / w[i] else 4 / x[i]",
    "inside a sum": "c[j] = sum[i] (y[i,j] / w[i] else 9)",
    "around a sum of quotients": "c[j] = sum[i] (1 / w[i]) where y[i,j] else 9",
    "around a sum over other tokens": "x[i] = sum[l] (1 / w[l]) where x[l] > x[i] else 9",
    "a value that cancels": "x[i] = 1 / w[i] - 1 / w[i] else 9",
    "a value that is always 0": "c[j] = mean[i] (x[i] - x[i]) where y[i,j] else 9",
    "times zero": "x[i] = 0 * (1 / w[i]) else 9",
    "an exponential of a mean that can be empty": "c[j] = exp(mean[i] x[i] where y[i,j]) else 9",
    "a constant of the query inside a sum": "c[j] = sum[i] (1 / c[j]) where y[i,j] else 9",
}


@pytest.mark.parametrize("backend", ["reference", "planned"])
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("equation", CASES.values(), ids=CASES)
def test_else_is_taken_where_the_spec_takes_it(equation: str, scores: str, backend: str) -> None:
    name = equation.partition("[")[0]
    text = FRAME.format(equation, name)
    meant = weftc.interpret(text, DATA, layers=1)[name]
    model = weftc.load(weftc.compile(text, {"k": 3}, scores=scores), backend=backend)
    assert model(DATA, layers=1)[name].numpy() == pytest.approx(meant, rel=1e-12)
    batch = {name: [values, values] for name, values in DATA.items()}
    assert model(batch, layers=1)[name].numpy() == pytest.approx(np.array([meant, meant]), rel=1e-12)


@pytest.mark.parametrize("backend", ["reference", "planned"])
def test_a_quotient_that_could_cancel_still_divides(backend: str) -> None:
    text = FRAME.format("x[i] = x[i] + w[i] * (x[i] - w[i]) / w[i]", "x")
    model = weftc.load(weftc.compile(text, {"k": 3}), backend=backend)
    with pytest.raises(weftc.WeftError, match="divi"):
        weftc.interpret(text, DATA, layers=1)
    with pytest.raises(RunError, match="division by zero"):
        model(DATA, layers=1)


@pytest.mark.parametrize("backend", ["reference", "planned"])
def test_whether_a_vector_is_zero_is_decided_of_its_exact_value(backend: str) -> None:
    text = """algorithm t
tokens  g in one : 1
inputs  a[g] : R^d,  v[g] : R^d,  w[g] : R^d
layer
  w[g] = unit(a[g] - <a[g], v[g]> * v[g]) else w[g]
outputs w
"""
    a = [[1.6355194667674076, 27.363707756281276, 10.965044132679829]]
    v = [[-0.055395855256574575, -0.9268223490767759, -0.37139148142115447]]
    model = weftc.load(weftc.compile(text, {"d": 3}), backend=backend)
    for one, two in ((a, v), ([[3.0, 0, 0]], [[1.0, 0, 0]])):
        data = {"a": one, "v": two, "w": [[0.0, 1.0, 0.0]]}
        meant = weftc.interpret(text, data, layers=1)["w"]
        assert model(data, layers=1)["w"].numpy() == pytest.approx(meant, rel=1e-12)


OTHERS = {
    "in a score": (
        "b[i] = mean[q] z[q] by argmin[q](|(mean[l] x[l] weighted |x[i] - x[l]|^2) - z[q]|^2) else x[i]",
        {"x": [[1.0, 2.0], [1.0, 2.0]], "z": [[0.5, 1.0]]},
    ),
    "a value that is always 0": (
        "b[q] = mean[i] |x[i] - x[i]|^2 by softmax[i](1 where |x[i]|^2 < 1) else 1",
        {"x": [[1.0, 2.0], [3.0, 2.0]], "z": [[0.5, 1.0]]},
    ),
    "of a pair of tokens": (
        "b[i,j] = sum[l] softmax[l](-|x[i] - x[l]|^2 where i != l) * <x[l], e[j]> else 7",
        {"x": [[1.0, 2.0]], "z": [[0.5, 1.0]], "e": [[1.0, 0.0], [0.0, 1.0]]},
    ),
}


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize(("equation", "data"), OTHERS.values(), ids=OTHERS)
def test_else_sees_what_no_value_shows(equation: str, data: dict[str, object], backend: str) -> None:
    text = f"""algorithm t
tokens  i, l in points
        q in queries
        j in columns : 2
inputs  x[i] : R^2,  z[q] : R^2,  e[j] : R^2
layer
  {equation}
outputs b
"""
    inputs = {"e": [[1.0, 0.0], [0.0, 1.0]], **data}
    meant = weftc.interpret(text, inputs, layers=1)["b"]
    found = weftc.load(weftc.compile(text), backend=backend)(inputs, layers=1)["b"].numpy()
    assert found == pytest.approx(np.asarray(meant), rel=1e-12)
