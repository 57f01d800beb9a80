"""Numbers of a spec are learned through the compiled matrices, and what comes out is a spec like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weftc
from weftc.cli import main
from weftc.core.errors import InputError
from weftc.core.tied import Tied, symbols
from weftc.tools.bench.learning import SPEC, ratio

X = np.random.default_rng(0).normal(size=(6, 9, 2))


def spec(learn: str, layer: str, more: str = "") -> str:
    return f"algorithm a tokens i, l in points inputs x[i] : R^d {learn} {more} layer {layer} outputs points = x"


def test_numbers_that_carry_their_formulas_are_numbers() -> None:
    h, t = symbols({"h": 2.0, "t": 0.5}).values()
    assert 1 / (2 * h**2) == 1 / (h * h + h * h)
    assert float(1 / (2 * h**2)) == 0.125
    assert (1 + t) * (1 - t) - 1 + t * t == 0
    assert t - t == 0
    assert not isinstance(t - t, Tied)
    assert h != 2
    assert h > 1
    assert abs(-h) == h
    assert float((3 / (1 + t)) * (1 + t)) == pytest.approx(3)


@pytest.mark.parametrize(
    ("learn", "layer"),
    [
        ("learn h = 1.5 > 0", "x[i] = sum[l] softmax[l](-|x[i] - x[l]|^2 / (2*h^2)) * x[l]"),
        ("learn w = 0.3", "x[i] = exp(w) * x[i] + (mean[l] sqrt(1 + w^2) * x[l]) / (2 + w)"),
        ("learn a > 0, b in [0, 1]", "x[i] = (1 - b) * x[i] + b * (sum[l] exp(-a*|x[i] - x[l]|^2) * x[l])"),
        ("learn h = 2 > 0 param s = 1/h", "x[i] = tanh(s * x[i]) - log(h) * x[i]"),
    ],
)
def test_outputs_and_slopes_are_those_of_the_spec_with_numbers(learn: str, layer: str) -> None:
    """For any values, not only those it was compiled at: slopes by differences of what the interpreter says."""
    model = weftc.trainable(spec(learn, layer), dims={"d": 2}, layers=2)
    with torch.no_grad():
        for raw in model.raw.values():
            raw += 0.37

    def meant() -> float:
        found = [weftc.interpret(model.spec(), {"x": one}, 2)["points"] for one in X]
        return float(np.square(found).sum())

    value = model(x=X)["points"].square().sum()
    assert value.item() == pytest.approx(meant(), rel=1e-12)
    value.backward()
    for raw in model.raw.values():
        assert raw.grad is not None
        slope = raw.grad.item()
        ends = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                raw += step
            ends.append(meant())
        with torch.no_grad():
            raw += 1e-5
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("scores", ["dot", "l2"])
def test_gradients_are_those_of_plain_torch(scores: str) -> None:
    assert ratio(torch.float64, scores, 2, 10)[1] < 1e-12


def test_numbers_by_layer_are_found_again_and_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = weftc.trainable(SPEC, {"d": 2}, {"h": 0.7, "t": 0.6}, 2)(x=X)["points"].detach().numpy()
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "goal.npy", goal)
    (tmp_path / "moving.weft").write_text(
        SPEC + '# kept\nexample "of another number" x = [1, 1] layers 1 points = [1, 1]\n'
    )
    given = ["--data", f"x={tmp_path}/x.npy", "--target", f"points={tmp_path}/goal.npy", "--layers", "2"]
    place = tmp_path / "learned.weft"
    words = ["train", f"{tmp_path}/moving.weft", *given, "--steps", "120", "--rate", "0.05", "-o", str(place), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["loss"]["after"] < told["loss"]["before"] / 100
    assert told["learned"]["t"] == pytest.approx([0.6, 0.6], abs=0.05)
    text = place.read_text()
    assert "learn" not in text
    assert "example" not in text
    assert "# kept" in text
    assert text.count("then") == 1
    assert weftc.interpret(text, {"x": X[0]}, 1)["points"] == pytest.approx(goal[0], abs=0.01)
    assert weftc.check(text).params.keys() == {"h1", "h2", "t1", "t2"}
    assert main(words) == 2  # it exists


CHOOSING = """algorithm scaled tokens i in points, j in places : 2
inputs x[i] : R^2, q[i] : R^2, c[j] : R^2 init first(x)
learn w = 0.3 > 0
layer y[i,j] = argmin[j] (|x[i] - c[j]|^2 + w * |q[i] - c[j]|^2) then x[i] = sum[j] y[i,j] * c[j]
outputs points = x
"""


@pytest.mark.parametrize("options", [{"sharpness": 5.0}, {"sharpness": 2.0, "choices": "straight-through"}])
def test_choices_are_trained_as_softmaxes_or_straight_through(options: dict[str, Any]) -> None:
    data = {"x": X, "q": X[::-1]}
    model = weftc.trainable(CHOOSING, params={"w": 1.0})
    goal = {"points": model(**model.starts(data))["points"]}
    found = weftc.train(CHOOSING, data, goal, steps=40, rate=0.1, **options)
    hard = found.hardened
    assert (hard is None) == ("choices" in options)
    exact = found.after if hard is None else hard.exact
    assert exact < 0.2 * weftc.train(CHOOSING, data, goal, steps=1, rate=1e-9, sharpness=1.0).hardened.exact  # type: ignore[union-attr]
    if hard is not None:
        assert len(hard.certified) == len(X)
        assert all(bound > 0 for bound in hard.certified)


@pytest.mark.parametrize("each", ["", "per layer"])
def test_random_fields_and_the_number_of_the_layer_may_be_read(each: str) -> None:
    """One number or one for each layer: the spec that comes out is the same function of the same noise."""
    noisy = f"""algorithm a tokens i in points, j in centers : k inputs x[i] : R^d, c[j] : R^d init first(x)
        random g[i,j] : gumbel, u[j] : normal learn s = 0.5 > 0 {each} let tired[j] = u[j] * 0.5^layer
        layer c[j] = (sum[i] softmax[i]((g[i,j] - |x[i] - c[j]|^2) / s) * x[i]) + layer * tired[j] * c[j]
        outputs centers = c"""
    model = weftc.trainable(noisy, {"d": 2, "k": 3}, layers=3)
    data = {"x": X, "c": X[:, :3]}
    noise = model.noise(data, seed=4)
    found = model(**data, **noise)["centers"].detach().numpy()
    for n in range(len(X)):
        own = {name: layers[:, n] for name, layers in noise.items()}
        want = weftc.interpret(model.spec(), {name: one[n] for name, one in data.items()}, model.depth, noise=own)
        np.testing.assert_allclose(found[n], want["centers"], rtol=1e-12)
    assert not np.array_equal(*(model(**data)["centers"].detach().numpy() for _ in range(2)))  # drawn anew
    trained = weftc.train(noisy, {"x": X}, {"centers": X[:, :3]}, dims={"k": 3}, layers=3, steps=2)
    assert (
        trained.before == weftc.train(noisy, {"x": X}, {"centers": X[:, :3]}, dims={"k": 3}, layers=3, steps=1).before
    )
    assert len(trained.values["s"]) == (3 if each else 1)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("lloyd", {}, "nothing to learn"),
        (spec("learn t = 0 in [0, 1]", "x[i] = t * x[i]"), {}, "an end of its range"),
        (spec("learn t = 1 per layer", "x[i] = t * x[i]", "objective t"), {}, "read in the layer alone"),
        (spec("learn t = 1", "x[i] = x[i] * t"), {"layers": 0}, "at least 1"),
        (spec("learn t = 1 > 0", "x[i] = sum[l] normmax[l](-|x[i] - x[l]|^2, t) * x[l]"), {}, "need a sharpness"),
    ],
)
def test_what_cannot_be_learned_is_refused(text: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        weftc.trainable(text, dims={"d": 2, **({"k": 2} if text == "lloyd" else {})}, **options)


def test_mistakes_in_training_are_named() -> None:
    moving = spec("learn t = 1", "x[i] = t * x[i]")
    for data, goal, options, said in (
        ({"z": X}, {"points": X}, {}, "no input z"),
        ({"x": X}, {"centers": X}, {}, "no output centers"),
        ({"x": X}, {"points": X[:, :3]}, {}, "has the shape"),
        ({"x": X}, {}, {}, "needs targets"),
        ({"x": X}, {"points": X}, {"loss": "msee"}, "did you mean"),
        ({"x": X}, {"points": X[:2]}, {}, "different numbers of problems"),
        ({"x": X}, {"points": X}, {"loss": lambda outputs, targets: 1.0}, "one number"),
    ):
        with pytest.raises(InputError, match=said):
            weftc.train(moving, data, goal, dims={"d": 2}, steps=1, **options)  # type: ignore[arg-type]
