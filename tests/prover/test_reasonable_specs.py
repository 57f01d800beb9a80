"""Specs that somebody might write, in no other test: whatever is made of sums, quotients and choices is proved."""

from __future__ import annotations

import re

import pytest

import weftc
from weftc.prover import prove

FRAME = """algorithm written
tokens  i, l in points
        j, h in centers : k
        g in one : 1
        q in others
inputs  x[i] : R^d,  c[j] : R^d,  u[i] : R,  w[i] : R,  v[j] : R,  r[q] : R^d,  mass[i] : R >= 0,  a[j] : R > 0
{sections}
layer
  {layer}
outputs {outputs}
"""
NEAREST = "y[i,j] = argmin[j] |x[i] - c[j]|^2 then "
SPECS = {
    "half way to the mean, a variance": "m[j] = mean[h] c[h] then c[j] = (c[j] + m[j]) / 2"
    "  f[j] = mean[h] |c[h] - m[h]|^2",
    "momentum": NEAREST
    + "m[j] = mean[i] x[i] where y[i,j] else c[j] then s[j] = 0.9 * s[j] + m[j] - c[j] then c[j] += s[j] / 8",
    "nesterov": "b[j] = c[j] + (c[j] - s[j]) / 2  s[j] = c[j] then y[i,j] = argmin[j] |x[i] - b[j]|^2"
    " then c[j] = mean[i] x[i] where y[i,j] else b[j]",
    "a ridge": NEAREST + "c[j] = (3 * c[j] + (sum[i] y[i,j] * x[i])) / (3 + (sum[i] y[i,j]))",
    "means of two sets": NEAREST + "z[q,j] = argmin[j] |r[q] - c[j]|^2 then"
    " c[j] = ((sum[i] y[i,j] * x[i]) + (sum[q] z[q,j] * r[q])) / ((sum[i] y[i,j]) + (sum[q] z[q,j])) else c[j]",
    "medoids among members": NEAREST + "m[j] = mean[i] x[i] where y[i,j] else c[j] then"
    " c[j] = (sum[i] argmin[i](|x[i] - m[j]|^2 where y[i,j]) * x[i]) else c[j]",
    "weighted, with a variance": NEAREST + "c[j] = mean[i] x[i] weighted (y[i,j] * mass[i]) else c[j]"
    " then t[j] = mean[i] |x[i] - c[j]|^2 weighted (y[i,j] * mass[i]) else 0",
    "rates by counts": NEAREST
    + "t[j] = t[j] + (sum[i] y[i,j]) then c[j] = c[j] + (sum[i] y[i,j] * (x[i] - c[j])) / t[j] else c[j]",
    "an else around a sum of quotients": "b[i] = (sum[l] (w[l] / u[l]) where w[l] > w[i]) else 9",
    "an else around logarithms": "b[i] = w[i] + (mean[l] log(u[l]) where i != l) else w[i]",
    "an else around the largest quotient": "b[i] = (max[l] 1 / u[l]) - (sum[l] softmax[l](-1 / u[l]) * w[l]) else 0",
    "a flat kernel": "x[i] = mean[l] x[l] where |x[i] - x[l]|^2 <= 4 else x[i]",
    "polynomial kernels": "f[i] = sum[l] (1 + <x[i], x[l]>)^2 * u[l]"
    "  e[j] = sum[i] (<x[i], c[j]> + 0.5)^3 * u[i]  c[j] = c[j]",
    "a heavy tail": "c[j] = mean[i] x[i] weighted 1 / (1 + |x[i] - c[j]|^2)",
    "a mixture with priors": "y[i,j] = softmax[j](log p[j] - |x[i] - c[j]|^2 / 2) then"
    " c[j] = (a[j] * c[j] + (sum[i] y[i,j] * x[i])) / (a[j] + (sum[i] y[i,j])) "
    " p[j] = ((sum[i] y[i,j]) + 1) / (count(points) + k)",
    "a prior on variances": "y[i,j] = softmax[j](-|x[i] - c[j]|^2 / (2 * p[j]) - d / 2 * log p[j])"
    " then c[j] = mean[i] x[i] weighted y[i,j]"
    " then p[j] = ((sum[i] y[i,j] * |x[i] - c[j]|^2) + 2) / ((sum[i] y[i,j]) * d + 2)",
    "two sets that attend": "r[q] = r[q] + (mean[i] x[i] by softmax[i](<r[q], x[i]>)) then"
    " x[i] = (x[i] + (mean[q] r[q] by softmax[q](<x[i], r[q]>))) / 2",
    "third moments": "m[j] = mean[i] x[i] then f[j] = mean[i] <x[i] - m[j], c[j]>^3"
    "  e[j] = mean[i] <x[i] - m[j], c[j]>^2",
    "a skewness": "m[g] = mean[i] u[i] then f[g] = (mean[i] (u[i] - m[g])^3) / (mean[i] (u[i] - m[g])^2) else 0",
    "repulsion": "c[j] = c[j] + (sum[h] (c[j] - c[h]) / (1 + |c[j] - c[h]|^2) where h != j) / 8",
    "leaders": "n[i] = sum[l] 1 where |x[i] - x[l]|^2 < 1 then"
    " x[i] = sum[l] argmax[l](n[l] where |x[i] - x[l]|^2 <= 1) * x[l] else x[i]",
    "the farthest point": "b[i] = min[j] |x[i] - c[j]|^2 then f[g] = sum[i] argmax[i](b[i]) * u[i]  e[g] = max[i] b[i]",
    "fuzzy": "p1[i,j] = normalize[j] (1 / (|x[i] - c[j]|^2 + 0.01))^2 then c[j] = mean[i] x[i] weighted p1[i,j]^2",
    "standard scores": "m[g] = mean[i] u[i] then f[g] = mean[i] (u[i] - m[g])^2"
    " then z[i] = sum[g] (u[i] - m[g]) / sqrt(f[g] + 0.001)",
    "a regression": "m[g] = mean[i] u[i]  n[g] = mean[i] w[i] then"
    " b[g] = (mean[i] (u[i] - m[g]) * (w[i] - n[g])) / (mean[i] (u[i] - m[g])^2) else 0"
    " then f[g] = n[g] - b[g] * m[g]",
    "gradients": "e[i] = <x[i], x[i]> - u[i] then x[i] = x[i] - (mean[l] e[l] * x[l]) / 8",
    "signed sums on a sphere": "y[i,j] = argmax[j] <x[i], c[j]>"
    " then c[j] = unit(sum[i] y[i,j] * w[i] * x[i]) else c[j]",
    "prefixes": "e[i] = sum[l] u[l] where l <= i  x[i] = mean[l] x[l] where l < i else x[i]"
    "  f[i] = max[l] u[l] where l <= i else 0",
    "a second choice": NEAREST + "b[i,j] = argmin[j](|x[i] - c[j]|^2 + 1e6 * y[i,j]) then"
    " c[j] = c[j] + (mean[i] (x[i] - c[j]) where y[i,j] else 0) / 8"
    " - (mean[i] (x[i] - c[j]) where b[i,j] else 0) / 64",
    "step sizes by gradients": "m[j] = mean[i] (c[j] - x[i]) then t[j] = t[j] + |m[j]|^2"
    " then c[j] = c[j] - m[j] / sqrt(t[j] + 0.01)",
    "within and between": NEAREST + "n[j] = sum[i] y[i,j]  c[j] = mean[i] x[i] where y[i,j] else c[j] then"
    " f[g] = (sum[i] sum[j] y[i,j] * |x[i] - c[j]|^2) / count(points)"
    "  e[g] = sum[j] n[j] * |c[j] - (mean[h] c[h])|^2",
    "a quotient of anything": "u[i] = (u[i] / (w[i] - u[i]) else 1 / w[i]) else 3",
    "roots where there are some": "u[i] = sqrt(u[i] - w[i]) else u[i]",
    "logarithms where there are some": "u[i] = log(u[i] * w[i]) else -1",
    "signs": "u[i] = (1 / u[i] else 0) + (u[i] / (u[i] * w[i]) else 5)",
    "a score that divides": "v[j] = mean[l] 1 by argmax[l](u[l] + 2 / v[j])",
    "a score with a logarithm": "v[j] = mean[l] w[l] by softmax[l](u[l] + log v[j])",
    "a correlation": "m[g] = mean[i] u[i]  n[g] = mean[i] w[i] then f[g] = (mean[i] (u[i] - m[g]) * (w[i] - n[g]))"
    " / (sqrt(mean[i] (u[i] - m[g])^2) * sqrt(mean[i] (w[i] - n[g])^2)) else 0",
    "a kurtosis": "m[g] = mean[i] u[i] then n[g] = mean[i] (u[i] - m[g])^2  f[g] = mean[i] (u[i] - m[g])^4"
    " then e[g] = f[g] / n[g]^2 - 3 else 0",
    "degrees": "n[i] = sum[l] 1 where |x[i] - x[l]|^2 < 1 and l != i then x[i] = sum[l] x[l] / n[l] where n[l] > 0",
    "a power iteration with kernels": "e[i] = sum[l] exp(-|x[i] - x[l]|^2) then"
    " u[i] = (sum[l] exp(-|x[i] - x[l]|^2) * u[l]) / e[i] then n[g] = sum[i] u[i]^2 then"
    " u[i] = sum[g] u[i] / sqrt(n[g]) else 0",
    "a geometric median": NEAREST + "c[j] = (sum[i] x[i] * y[i,j] / (|x[i] - c[j]| + 0.01))"
    " / (sum[i] y[i,j] / (|x[i] - c[j]| + 0.01)) else c[j]",
    "relaxation": "u[i] = (u[i] + ((w[i] - (sum[l] <x[i], x[l]> * u[l] where l != i)) / |x[i]|^2)) / 2 else 0",
    "newton": "u[i] = u[i] - (u[i]^2 - w[i]) / (2 * u[i]) else 0",
}
STATES = {"s": "s[j] : R^d = 0", "p": "p[j] : R = 1/k", "t": "t[j] : R = 0"}  # of the specs that write such a field
WRITTEN = re.compile(r"(?:^| then|  ) ?(\w+)\[[^]]*\] [+-]?=")


def text(layer: str) -> str:
    """A whole spec: everything that it writes is an output."""
    written = dict.fromkeys(WRITTEN.findall(layer))
    states = [declared for name, declared in STATES.items() if name in written]
    sections = "state " + ", ".join(states) if states else ""
    return FRAME.format(layer=layer, sections=sections, outputs=", ".join(written))


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", SPECS)
def test_a_reasonable_spec_is_proved(name: str, scores: str) -> None:
    made = weftc.compile(text(SPECS[name]), {"d": 2, "k": 3}, scores=scores)
    assert prove(made).verdict == "proved"
