"""Token-wise maps: values, fallbacks, values that do not exist, and when that matters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from programs import countdown, largest, normed
from weftc_runtime import RunError, load


def test_a_derived_slot_without_value_is_an_error_only_when_it_is_read() -> None:
    model = load(countdown())
    out = model(x=[2.0, 4.0], layers=2)
    assert out["x"].tolist() == [0.0, 2.0]
    assert out["y"].tolist() == [1.0, 1 / 3]
    with pytest.raises(RunError, match=r"reciprocal of x\[t\]: token 0 of tokens.*division by zero, in slot r"):
        model(x=[2.0, 4.0], layers=3)
    with pytest.raises(RunError, match="division by zero"):
        model.final(x=[2.0, 4.0], layers=2)
    assert model(x=[0.0], layers=0)["x"].tolist() == [0.0]


def test_one_problem_without_value_does_not_hurt_the_others() -> None:
    model = load(countdown())
    out = model(x=[[2.0, 7.0], [5.0, 9.0]], layers=2)
    assert out["x"].tolist() == [[0.0, 5.0], [3.0, 7.0]]
    with pytest.raises(RunError, match="division by zero"):
        model(x=[[5.0, 9.0], [2.0, 7.0]], layers=3)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        ("reciprocal", lambda x: 1 / x),
        ("log", math.log),
        ("exp", math.exp),
        ("sqrt", math.sqrt),
        ("tanh", math.tanh),
        ("relu", lambda x: max(x, 0.0)),
        ("relu2", lambda x: max(x, 0.0) ** 2),
        ("abs", abs),
        ("copy", lambda x: x),
    ],
)
def test_functions(function: str, value: object) -> None:
    x = [0.3, 1.0, 2.5, 7.0] + ([-1.5] if function in ("relu", "relu2", "abs", "copy", "tanh", "exp") else [])
    out = load(countdown(function))(x=x)["y"].tolist()
    assert out == pytest.approx([value(v) for v in x], rel=4e-16)  # type: ignore[operator]


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200, 5e-324])
def test_unit_survives_squares_out_of_range(scale: float) -> None:
    x = np.array([[3.0, 0.0, 4.0], [-1.0, 2.0, 2.0], [0.0, 0.0, 7.0]]) * scale
    y = load(normed("unit"))(x=x, f=np.ones((3, 3)))["y"].numpy()
    exact = np.array([[0.6, 0.0, 0.8], [-1 / 3, 2 / 3, 2 / 3], [0.0, 0.0, 1.0]])
    assert np.abs(y - exact).max() <= 4e-16


def test_unit_of_zero_takes_the_fallback() -> None:
    y = load(normed("unit"))(x=[[0.0, 0.0, 0.0], [0.0, 2.0, 0.0]], f=[[7.0, 8.0, 9.0], [1.0, 1.0, 1.0]])["y"]
    assert y.tolist() == [[7.0, 8.0, 9.0], [0.0, 1.0, 0.0]]


def test_layer_norm_subtracts_the_mean_first() -> None:
    x = np.array([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0], [0.1, 0.1, 0.1]])
    y = load(normed("layer"))(x=x, f=np.full((3, 3), 9.0))["y"].numpy()
    centred = x[0] - 3.0
    assert np.abs(y[0] - centred / np.linalg.norm(centred)).max() <= 4e-16
    assert y[1:].tolist() == [[9.0] * 3] * 2  # 0.1 + 0.1 + 0.1 is not 0.3, but the vector is constant


def test_unit_has_gradients() -> None:
    model = load(normed("unit"))
    x = torch.tensor([[1.0, 2.0, 2.0], [0.5, -1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    f = torch.ones(2, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: model(x=x, f=f)["y"], (x,))


def test_a_product_of_extremes_is_settled_exactly() -> None:
    """a * a underflows to 0 for both; exact arithmetic still knows the larger."""
    model = load(largest("product", 2))
    assert model(x=[0.0], a=[1e-200, 2e-200])["y"].indices.tolist() == [1]
    assert model.report.total.exact == 1
