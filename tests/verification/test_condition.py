"""How precisely an equation can be computed: kappa, and what must agree bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from verifying import NEAREST
from weftc.compiling import checked_spec, compile
from weftc.core.syntax import Num
from weftc.verification.runs.backends import Runners
from weftc.verification.runs.trajectories import Trajectories
from weftc.verification.steps.condition import EPSILON, bounds, is_settled, tolerance
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.verification import verify
from weftc_runtime import load


def test_kappa_is_one_for_values_that_only_round() -> None:
    allowed = tolerance(EPSILON / 2, np.array([2.0, -3.0]), np.float64)
    assert allowed.kappa == 1.0
    assert allowed.allowed == pytest.approx(16 * EPSILON * 3.0)


def test_kappa_grows_with_the_range_of_the_scores() -> None:
    text = """algorithm soft
tokens i in points, j in centers : k
inputs x[i] : R^d, c[j] : R^d
param gamma = 1 > 0
layer
  y[i,j] = softmax[j] -gamma * |x[i] - c[j]|^2
outputs y
"""
    checked = checked_spec(text)
    (equation,) = checked.spec.steps[0].equations
    fields = {"x": np.array([[1.0]]), "c": np.array([[0.0], [2.5]])}
    kappas = []
    for gamma in (1e-3, 10.0, 100.0):
        world = Stepwise(checked, {"d": 1, "k": 2}, {"gamma": gamma}).world(fields)
        kappas.append(tolerance(bounds(world, (equation,))["y"], np.array([1.0]), np.float64).kappa)
    small, middle, large = kappas
    assert 1 <= small < 4
    assert small < middle <= 1 + 10.0 * (1.5**2 - 1), "the contract: 1 + gamma * range of distances"
    assert large > middle or large == 1.0, "at last the other weight is zero to the last bit"


def test_float32_is_held_to_its_own_epsilon() -> None:
    double, single = (tolerance(0.0, np.array([1.0]), dtype) for dtype in (np.float64, np.float32))
    assert single.allowed / double.allowed == pytest.approx(2.0**29)


@pytest.mark.parametrize(
    ("equation", "settled"),
    [
        ("y[i,j] = argmin[j] |x[i] - c[j]|^2", True),
        ("y[i,j] = softmax[j] <x[i], c[j]>", False),
        ("c[j] = mean[i] x[i] where |x[i]|^2 > 1 else c[j]", True),
        ("c[j] = sum[i] argmin[i](|x[i] - c[j]|^2) * x[i]", True),
        ("c[j] = mean[i] x[i] by lowest[i](|x[i] - c[j]|^2, 2)", True),
        ("c[j] = mean[i] x[i] weighted exp(<x[i], c[j]>)", False),
        ("c[j] = 0.5 * c[j]", False),
        ("m[e] = mean[i] x[i,e]", False),
        ("m[e] = max[i] x[i,e]", True),
        ("c[j] = mean[i] 2 * x[i] where |x[i]|^2 > 1 else c[j]", False),
    ],
)
def test_what_must_agree_bit_for_bit(equation: str, settled: bool) -> None:
    sets = "i in points, j in centers : k, e in coordinates : d"
    head = f"algorithm t\ntokens {sets}\ninputs x[i] : R^d, c[j] : R^d\nlayer\n  "
    checked = checked_spec(head + equation + "\noutputs c\n")
    assert is_settled(checked, checked.spec.steps[0].equations[0].body) is settled


VARIANCE = """algorithm t
tokens i in points, g in summary : 1
inputs x[i] : R, m[g] : R
layer
  s[g] = mean[i] (x[i] - m[g])^2
outputs s
"""


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e8])
def test_kappa_is_that_of_the_spec_as_written(offset: float) -> None:
    checked = checked_spec(VARIANCE)
    fields = {"x": offset + np.array([1.0, 2.0, 4.0]), "m": np.array([offset + 7 / 3])}
    world = Stepwise(checked, {}, {}).world(fields)
    allowed = tolerance(bounds(world, checked.spec.steps[0].equations)["s"], np.array([14 / 9]), np.float64)
    assert allowed.allowed < 1e-13, "differences of stored numbers are good, however far from zero these are"


@pytest.mark.parametrize("style", ["l2", "dot"])
def test_a_difference_multiplied_out_far_from_zero_turns_verify_red(style: str) -> None:
    text = VARIANCE.replace(", m[g] : R\nlayer\n", "\nlayer\n  m[g] = mean[i] x[i]\n  then\n")
    data = {"x": [100000001.0, 100000002.0, 100000004.0]}
    model = compile(text, scores=style)
    s = load(model, backend="reference")(data, layers=1)["s"]
    verdict = verify(model, data=data, cases=1, dtypes=["float64"])
    assert verdict.ok is (abs(float(s) - 14 / 9) < 1e-7)


def test_in_dot_style_a_distance_is_good_to_how_far_the_data_are_apart() -> None:
    checked = checked_spec(
        "algorithm t\ntokens i in points, j in centers : k\ninputs x[i] : R^d, c[j] : R^d\n"
        "layer\n  s[j] = sum[i] |x[i] - c[j]|^2\noutputs s\n"
    )
    (equation,) = checked.spec.steps[0].equations
    fields = {"x": 1e6 + np.array([[0.0], [1.0]]), "c": 1e6 + np.array([[0.5], [0.25]])}
    world = Stepwise(checked, {"d": 1, "k": 2}, {}).world(fields)
    written, shifted, plain = (
        bounds(world, (equation,), one)["s"] for one in ("as written", "multiplied out", "multiplied out from zero")
    )
    assert written < shifted < 1e-13 < 1e-5 < plain


def test_in_dot_style_roots_of_small_distances_are_as_good_in_whole_runs_as_in_steps() -> None:
    """A center on a point: its distance is a root of what rounding leaves of zero, layer after layer."""
    text = """algorithm near
tokens  i in points
        j in centers : k
inputs  x[i] : R^d,  c[j] : R^d
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  c[j] = mean[i] x[i] weighted (y[i,j] / (|x[i] - c[j]| + 0.01)) else c[j]
outputs c
"""
    checked = checked_spec(text)
    model = compile(checked, {"d": 2, "k": 2}, scores="dot")
    for seed in (1, 2, 11):
        runs = Trajectories(checked, model, seed, Runners()).against(model, "dot", "reference")
        assert runs is not None
        assert runs.passed
        assert runs.allowed < 1e-2


def test_literals_count_as_settled() -> None:
    checked = checked_spec(NEAREST)
    assert is_settled(checked, Num(checked.spec.span, 1.0))
