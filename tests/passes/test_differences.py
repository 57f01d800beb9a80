"""Differences are kept as differences: far from 0 a model is as precise as the spec as written."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import weftc

OFFSETS = {"float64": (1.0, 1e3, 1e6, 1e8), "float32": (1.0, 1e3)}
EXPONENTS = (1, 2, 3, 4)


def moment_spec(power: int, groups: str) -> str:
    return f"""algorithm t
tokens  i in points
        g in groups{groups}
inputs  x[i] : R,  m[g] : R,  w[i] : R > 0
layer
  s[g] = mean[i] (x[i] - m[g])^{power}
  v[g] = sum[i] w[i] * (x[i] - m[g])^{power}
outputs s, v
""".replace("^1", "")


@pytest.mark.parametrize("dtype", OFFSETS)
@pytest.mark.parametrize("groups", ["", " : 2"], ids=["open", "fixed"])
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("power", EXPONENTS)
def test_moments_of_differences_do_not_depend_on_the_offset(power: int, scores: str, groups: str, dtype: str) -> None:
    model = weftc.load(weftc.compile(moment_spec(power, groups), scores=scores), dtype=getattr(torch, dtype))  # type: ignore[arg-type]
    rng = np.random.default_rng(power)
    for offset in OFFSETS[dtype]:
        grid = float(np.spacing(np.array(offset * 4, dtype)))
        x = offset + np.round(rng.normal(size=7) / grid) * grid
        m = offset + np.round(rng.normal(size=2) / grid) * grid
        w = np.array(rng.uniform(0.5, 1, size=7), dtype).astype(float)
        found = model(x=x, m=m, w=w)
        exact = [[(Fraction(a) - Fraction(b)) ** power for a in x.tolist()] for b in m.tolist()]
        weights = [Fraction(a) for a in w.tolist()]
        for g, row in enumerate(exact):
            allowed = 64 * float(np.finfo(dtype).eps) * float(sum(map(abs, row))) * 2**power
            assert abs(float(found["s"][g]) - float(sum(row) / 7)) <= allowed
            weighed = float(sum(a * b for a, b in zip(weights, row, strict=True)))
            assert abs(float(found["v"][g]) - weighed) <= allowed


def one_layer(text: str, inputs: dict[str, object], field: str, **style: str) -> list[float]:
    model = weftc.load(weftc.compile(text, **style))  # type: ignore[arg-type]
    return np.ravel(model(inputs, layers=1)[field].numpy()).tolist()


def test_a_variance_far_from_zero() -> None:
    text = """algorithm t
tokens  i in points
        g in summary : 1
inputs x[i] : R
layer
  m[g] = mean[i] x[i]
  then
  s[g] = mean[i] (x[i] - m[g])^2
outputs s
"""
    inputs = {"x": [100000001.0, 100000002.0, 100000004.0]}
    for scores in ("l2", "dot"):
        assert one_layer(text, inputs, "s", scores=scores) == pytest.approx([14 / 9], rel=1e-7)


def test_vectors_of_another_space_are_not_shifted() -> None:
    text = """algorithm t
tokens  i in points
        j, h in units : 2
inputs  x[i] : R^2,  c[j] : R^2,  grid[j] : R^2
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  n[j] = sum[h] exp(-|grid[h] - grid[j]|^2)
outputs n
"""
    inputs = {"x": [[1e8, 1e8]], "c": [[1e8, 1e8]] * 2, "grid": [[0.0, 0.0], [0.0, 1.0]]}
    assert one_layer(text, inputs, "n", scores="dot") == pytest.approx([1 + np.exp(-1)] * 2, rel=1e-15)


def test_powers_of_a_distance_are_powers_of_the_score() -> None:
    text = """algorithm t
tokens  i in points
        j in centers : 2
inputs x[i] : R^2, c[j] : R^2
layer
  s[j] = sum[i] 1 / (|x[i] - c[j]|^2 + 0.01)^3
outputs s
"""
    inputs = {"x": [[30.0, 40.0], [0.0, 0.0], [-20.0, 10.0]], "c": [[30.0, 40.0], [1.0, 1.0]]}
    assert one_layer(text, inputs, "s", scores="dot") == pytest.approx([1e6, 0.1231436020197439], rel=1e-14)


def test_distances_between_whole_numbers_are_whole_in_both_styles() -> None:
    text = """algorithm t
tokens  i, l in points
        j in centers : 1
inputs  x[i] : R^2,  c[j] : R^2
layer
  far[i] = min[j] |x[i] - c[j]|^2
  then
  n[i] = sum[l] 1 where far[l] > far[i]
outputs n
"""
    inputs = {"x": [[-2.0, 3.0], [3.0, 2.0], [-1.0, 2.0]], "c": [[1.0, -2.0]]}
    for scores in ("l2", "dot"):
        assert one_layer(text, inputs, "n", scores=scores) == [0.0, 1.0, 1.0]
