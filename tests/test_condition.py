"""How precisely an equation can be computed: kappa, attention form, and what must agree bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from verifying import NEAREST
from weft.compiling import checked_spec
from weft.evidence.condition import EPSILON, bounds, is_settled, tolerance
from weft.evidence.forms import AttentionForm
from weft.evidence.stepwise import Stepwise
from weft.syntax import Num


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
        ("c[j] = mean[i] 2 * x[i] where |x[i]|^2 > 1 else c[j]", False),
    ],
)
def test_what_must_agree_bit_for_bit(equation: str, settled: bool) -> None:
    head = "algorithm t\ntokens i in points, j in centers : k\ninputs x[i] : R^d, c[j] : R^d\nlayer\n  "
    checked = checked_spec(head + equation + "\noutputs c\n")
    assert is_settled(checked, checked.spec.steps[0].equations[0].body) is settled


def test_attention_form_keeps_distances_in_scores_and_splits_values() -> None:
    text = """algorithm t
tokens i, l in points
inputs x[i] : R^d
layer
  a[i] = sum[l] softmax[l](-|x[i] - x[l]|^2) * |x[i] - x[l]|^2
outputs a
"""
    checked = checked_spec(text)
    (equation,) = checked.spec.steps[0].equations
    (whole,) = AttentionForm(checked, {"d": 2}, lifted=False, centred=True).equations((equation,))
    (lifted,) = AttentionForm(checked, {"d": 2}, lifted=True, centred=False).equations((equation,))
    assert str(whole.body).count("Square(") == 3, "three products, each weighted by the distance as it is"
    assert str(whole.body).count("(centre 2 of points)") > 0
    assert "Square(" not in str(lifted.body)
    assert "centre" not in str(lifted.body)


def test_literals_count_as_settled() -> None:
    checked = checked_spec(NEAREST)
    assert is_settled(checked, Num(checked.spec.span, 1.0))
