"""Single equations that nobody planned for, each in both styles of scores, against the interpreter.

Nested means, products of partial means, tabulated roots, cubic kernels, matrix products of pair fields, thresholds that
are themselves means, weightings inside scores: whatever the rules of lowering might not have thought of.
"""

from __future__ import annotations

from functools import cache

import pytest

from agreement import assert_agrees, judge
from weftc.compiling import checked_spec
from weftc.core.styles import CHOICES
from weftc.core.types import Checked
from weftc.verification.cases.inputs import FAMILIES, cases

BASE = """algorithm t
tokens  i, l in points
        j, h in centers : k
inputs  x[i] : R^d, w[i] : R >= 0, b[i] : R^e
        c[j] : R^d
state   s[j] : R = 2,  a[i] : R = 1
param   gamma = 0.7 > 0,  tau = 50 in [0, 100)
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  r[i,j] = softmax[j] <x[i], c[j]>
  then
  EQUATION
outputs c, s, a, y, r
"""

EQUATIONS = """
c[j] = sum[i] softmax[i](-|x[i] - c[j]|) * x[i]
c[j] = sum[i] normalize[i](1 / (1 + |x[i] - c[j]|^2)) * x[i] else c[j]
c[j] = sum[i] softmax[i](softmax[i](<x[i], c[j]>)) * x[i]
c[j] = sum[i] softmax[i](exp(gamma * <x[i], c[j]> / 5)) * x[i]
c[j] = sum[i] softmax[i](<x[i], c[j]>) * softmax[i](-|x[i] - c[j]|^2) * x[i]
r[i,j] = softmax[i] <x[i], c[j]>
c[j] = sum[i] softmax[i](<x[i], c[j]> + tanh(<x[i], c[j]>)) * x[i]
r[i,j] = softmax[j](-|x[i] - c[j]|^2 / (s[j] + a[i]))
r[i,j] = normalize[j] r[i,j] * exp(-|x[i] - c[j]|^2)
r[i,j] = r[i,j] * y[i,j]
r[i,j] = r[i,j]^2 / (sum[h] r[i,h]^2)
c[j] = (mean[i] x[i] where y[i,j] and w[i] > 0.5 else c[j]) * 0.5 + 0.5 * c[j]
c[j] = mean[i] x[i] where |x[i]|^2 >= |c[j]|^2 else c[j]
c[j] = mean[i] x[i] where |x[i] - c[j]|^2 >= 4 else 2 * c[j]
c[j] = c[j] + (mean[i] x[i] where y[i,j]) * s[j] else c[j]
s[j] = <c[j], (mean[i] x[i] where y[i,j])> else 7
s[j] = (mean[i] w[i] where y[i,j]) * (mean[i] a[i] * w[i] where y[i,j]) else -1
s[j] = (mean[i] w[i] where y[i,j]) / (1 + mean[h] s[h]^2) else s[j]
s[j] = sum[i] y[i,j] * |x[i] - c[j]|^2 * w[i]
s[j] = log(sum[i] exp(-gamma * |x[i] - c[j]|^2))
s[j] = log(1 + sum[i] y[i,j])
s[j] = sqrt(mean[i] |x[i] - c[j]|^2)
s[j] = (sum[i] w[i] * y[i,j] + 3) / (sum[i] y[i,j] + 1)
s[j] = (sum[i] w[i]) / (sum[i] y[i,j] + 1)
s[j] = sum[i] w[i] * <x[i], c[j]>^2 * <x[i], c[j]>
c[j] = sum[i] softmax[i](<x[i], c[j]>) * <x[i], c[j]> * x[i]
c[j] = c[j] - gamma * sum[h] exp(-|c[j] - c[h]|^2) * (c[j] - c[h])
c[j] = mean[h] c[h] weighted exp(-|c[j] - c[h]|^2) where j != h else c[j]
c[j] = sum[i] highest[i](<x[i], c[j]>, 2) * x[i]
c[j] = mean[i] x[i] by lowest[i](|x[i] - c[j]|^2 where y[i,j], tau%) else c[j]
c[j] = mean[i] (x[i] - c[j]) by sparsemax[i](gamma * <x[i], c[j]> * a[i])
a[i] = sum[j] y[i,j] * s[j]   s[j] = sum[i] y[i,j] * a[i]
a[i] = sum[l] softmax[l](-|x[i] - x[l]|^2) * w[l]
a[i] = relu(w[i] - mean[l] w[l]) / count(points)
a[i] = tanh(a[i]) * (sum[j] r[i,j] * s[j]) + |x[i]|^2 / (1 + |x[i]|^2)
a[i] = sum[l] exp(-|x[i] - x[l]|^2) * (w[l] - w[i])
a[i] = sum[l] argmin[l](|x[i] - x[l]|^2 where i != l) * w[l] else w[i]
a[i] = (a[i] + sum[l] exp(<x[i], x[l]> / 10) * w[l]) / (count(points) + sum[l] exp(<x[i], x[l]> / 10))
a[i] = index(i) * w[i] - mean[l] index(l)
c[j] = unit(c[j] + mean[i] x[i] where y[i,j] else c[j]) else c[j]
c[j] = mean[i] (unit(x[i] + 1e-3 * x[i]) else x[i]) weighted r[i,j]
c[j] = mean[i] x[i] / (1 + |x[i]|) weighted r[i,j]
c[j] = (sum[i] r[i,j] * x[i]) / (sum[i] r[i,j])
c[j] = (sum[i] r[i,j] * w[i] * x[i] + c[j]) / (sum[i] r[i,j] * w[i] + 1)
c[j] = (sum[i] r[i,j] * x[i] + s[j] * c[j]) / (sum[i] r[i,j] + s[j])
c[j] = mean[i] x[i] where |x[i] - c[j]|^2 < (mean[h] s[h]) else c[j]
c[j] = sum[i] argmax[i](w[i] where y[i,j]) * x[i] else c[j]
s[j] = sum[i] argmin[i](|x[i] - c[j]|^2 ties split) * w[i]
a[i] = sum[l] w[l] where |x[i] - x[l]|^2 <= 1 and index(l) < index(i)
r[i,j] = sum[h] r[i,h] * exp(-|c[h] - c[j]|^2)
r[i,j] = normalize[j] ((sum[h] y[i,h] * exp(-gamma * (index(h) - index(j))^2))) else r[i,j]
y[i,j] = argmin[j](|x[i] - c[j]|^2 where |x[i] - c[j]|^2 <= 1) else y[i,j]
r[i,j] = 0.5 * softmax[j](<x[i], c[j]> where s[j] > (a[i] + 3)) + 0.5 * r[i,j] else r[i,j]
c[j] = mean[i] x[i] weighted (sum[h] y[i,h] * exp(-|index(h) - index(j)|^2)) else c[j]
s[j] = sum[h] s[h] * <c[h], c[j]> / (1 + |c[h]|^2)
a[i] = sum[j] r[i,j] * (sum[l] r[l,j] * w[l])
c[j] = c[j] - gamma * (mean[i] (c[j] - x[i]) weighted exp(-|c[j] - x[i]|^2 / s[j]))
s[j] = sum[i] softmax[i](-s[j] * |x[i] - c[j]|^2) * |x[i] - c[j]|^2 * w[i]
c[j] = sum[i] (sum[l] <x[i], x[l]> * <x[l], c[j]>) * x[i]
a[i] = 1 / (1 + exp(-a[i])) + log(1 + exp(w[i]))
""".strip().splitlines()

STYLES = CHOICES["scores"]


@cache
def spec(equation: str) -> Checked:
    """The equation in its surroundings."""
    return checked_spec(BASE.replace("EQUATION", equation.replace("   s[j] =", "\n  s[j] =")))


def test_there_are_sixty() -> None:
    assert len(set(EQUATIONS)) == 60


@pytest.mark.parametrize("scores", STYLES)
@pytest.mark.parametrize("number", range(len(EQUATIONS)), ids=lambda n: f"{n:02} {EQUATIONS[n]}")
def test_equation_agrees(number: int, scores: str) -> None:
    checked = spec(EQUATIONS[number])
    dims = {"d": 1 + number % 3, "k": 1 + number % 4, "e": 2}
    first = 3 * number + STYLES.index(scores)
    hard, ordinary = (cases(checked, dims, 1, seed=8, first=at) for at in (first, len(FAMILIES) * number))
    assert_agrees(judge(checked, dims, scores, "float64"), [*hard, *ordinary])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scores", STYLES)
@pytest.mark.parametrize("number", range(len(EQUATIONS)), ids=lambda n: f"{n:02} {EQUATIONS[n]}")
def test_equation_long(number: int, scores: str, dtype: str) -> None:
    checked = spec(EQUATIONS[number])
    dims = {"d": 1 + number % 3, "k": 1 + number % 4, "e": 2}
    assert_agrees(judge(checked, dims, scores, dtype), cases(checked, dims, 3 * len(FAMILIES), seed=9, dtype=dtype))
