"""Moments, covariances, kernels and quotients far from zero: the precision of the spec as written, in every style.

Each spec is judged step by step against 16 * eps * kappa * max|f|, kappa that of the spec as written, on data that lie
far from zero beside their spread: up to 1e8 in float64, 1e3 in float32. The condition must not grow with the offset
either, so that the judge cannot bend.
"""

from __future__ import annotations

import numpy as np
import pytest

from weftc.compiling import checked_spec, compile
from weftc.verification.cases.inputs import Case
from weftc.verification.runs.runs import judge_of

FRAME = """algorithm t
tokens  i, l in points
        j, h in centers : 3
        g in summary : 1
inputs  x[i] : R,  y[i] : R,  v[i] : R^2,  c[j] : R^2,  r[j] : R,  w[i] : R >= 0,  a[i,j] : onehot
layer
  m[g] = mean[i] x[i]
  n[g] = mean[i] y[i]
  e[g] = mean[i] v[i]
  b[j] = mean[i] x[i] where a[i,j] else r[j]
  then
  {}
outputs {}
"""
EQUATIONS = {
    "variance": "s[g] = mean[i] (x[i] - m[g])^2",
    "third moment": "s[g] = mean[i] (x[i] - m[g])^3",
    "fourth moment": "s[g] = mean[i] (x[i] - m[g])^4",
    "covariance": "s[g] = mean[i] ((x[i] - m[g]) * (y[i] - n[g]))",
    "correlation": "s[g] = (mean[i] ((x[i] - m[g]) * (y[i] - n[g]))) / (mean[i] (x[i] - m[g])^2)",
    "weighted variance": "s[g] = mean[i] (x[i] - m[g])^2 weighted w[i] else 0",
    "variance of members": "s[j] = mean[i] (x[i] - b[j])^2 where a[i,j] else 0",
    "third moment of members": "s[j] = mean[i] (x[i] - b[j])^3 where a[i,j] else 0",
    "scatter of vectors": "s[g] = mean[i] |v[i] - e[g]|^2",
    "scatter squared": "s[g] = mean[i] |v[i] - e[g]|^2 * |v[i] - e[g]|^2",
    "inner products": "s[j] = mean[i] <v[i] - c[j], v[i] - c[j]>",
    "differences of pairs": "s[i] = sum[l] (x[i] - x[l])^2",
    "gaussian kernel": "s[j] = sum[i] exp(-|v[i] - c[j]|^2)",
    "gaussian kernel of points": "s[i] = sum[l] exp(-|v[i] - v[l]|^2)",
    "rational kernel": "s[j] = sum[i] 1 / (|v[i] - c[j]|^2 + 0.01)^3",
    "soft mean": "s[j] = sum[i] (softmax[i](-|v[i] - c[j]|^2) * (x[i] - r[j]))",
    "log of a kernel": "s[j] = log(sum[i] exp(-|v[i] - c[j]|^2))",
    "distance": "s[j] = mean[i] |v[i] - c[j]|",
    "nearest distance": "s[i] = min[j] |v[i] - c[j]|^2",
    "largest difference": "s[i] = max[l] (x[i] - x[l])",
    "function of a difference": "s[i] = tanh(x[i] - y[i]) + relu(y[i] - x[i])",
    "quotient of differences": "s[i] = (x[i] - y[i]) / (1 + (x[i] - y[i])^2)",
    "difference from an inline mean": "s[i] = (x[i] - (mean[l] x[l]))^2",
    "distance from an inline mean": "s[i] = |v[i] - (mean[l] v[l])|^2",
}


def _case(offset: float, dtype: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    many = 7
    inputs = {
        "x": offset + rng.normal(size=many),
        "y": offset + rng.normal(size=many),
        "v": offset + rng.normal(size=(many, 2)),
        "c": offset + rng.normal(size=(3, 2)),
        "r": offset + rng.normal(size=3),
        "w": rng.uniform(size=many),
        "a": np.eye(3)[rng.integers(3, size=many)],
    }
    stored = {name: values.astype(dtype).astype(np.float64) for name, values in inputs.items()}
    return Case("offset", stored, 1, seed)


@pytest.mark.parametrize("backend", ["reference", "planned"])
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("equation", EQUATIONS.values(), ids=EQUATIONS)
def test_precision_does_not_depend_on_the_offset(equation: str, scores: str, backend: str) -> None:
    checked = checked_spec(FRAME.format(equation, "s"))
    model = compile(checked, {}, scores=scores)  # type: ignore[arg-type]
    for dtype, offsets in (("float64", (1e4, 1e8)), ("float32", (1e3,))):
        judge = judge_of(checked, model, dtype, "auto" if backend == "planned" else backend)
        for offset in offsets:
            outcome = judge.judge(_case(offset, dtype, 3))
            assert outcome.divergence is None, f"offset {offset:g}, {dtype}: {outcome.divergence}"
            assert outcome.steps == 2
