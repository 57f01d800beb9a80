"""Golden numbers of the constructions, on compiled models, in every style of scores that applies to a spec.

The points are -3, -2, 0, 2, 3 and the centers -1, 1 unless a case says otherwise; one layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from weftc.api import load
from weftc.compiling import compile
from weftc.emit.matrices import Array
from weftc.passes.sharpness import sharpness_for
from weftc_runtime.data.results import OneHot

STYLES: dict[str, dict[str, Any]] = {
    "l2": {},
    "dot": {"scores": "dot", "centre": "off"},
    "centred": {"scores": "dot", "centre": "on"},
}
IN_EVERY_STYLE = pytest.mark.parametrize("style", STYLES)
LINE = {"x": [[-3.0], [-2.0], [0.0], [2.0], [3.0]], "c": [[-1.0], [1.0]]}
CLUSTER = {"x": [[0.0], [1.0], [2.0], [3.0], [10.0]], "c": [[0.0]]}  # one cluster, its center at 0
PAIR = {"x": [[0.0], [1.0]], "y": [[0.0], [1.0]]}


def answers(
    spec: str, style: str, inputs: Mapping[str, Any], params: Mapping[str, float] | None = None, layers: int = 1
) -> dict[str, Array]:
    """What the compiled model gives."""
    dims = {"d": 1} | ({"k": len(inputs["c"])} if "c" in inputs else {})
    model = load(compile(spec, dims, params, layers, **STYLES[style]))
    given = {name: np.array(value) for name, value in inputs.items()}
    out = model(**given).items()
    return {name: (value.dense() if isinstance(value, OneHot) else value).numpy() for name, value in out}


@IN_EVERY_STYLE
@pytest.mark.parametrize(
    ("spec", "centers"),
    [("lloyd", (-5 / 3, 2.5)), ("lloyd_split", (-2.0, 2.0)), ("lloyd_printed", (-2.5, 2.5))],
)
def test_ties(spec: str, centers: tuple[float, float], style: str) -> None:
    assert tuple(answers(spec, style, LINE)["centers"][:, 0]) == centers


@IN_EVERY_STYLE
def test_soft(style: str) -> None:
    found = answers("soft_kmeans", style, LINE, {"gamma": 0.5})
    np.testing.assert_allclose(found["shares"][:, 0], [0.997527, 0.982014, 0.5, 0.017986, 0.002473], rtol=0, atol=5e-7)
    np.testing.assert_allclose(found["centers"][:, 0], [-1.965288, 1.965288], rtol=0, atol=5e-7)


@IN_EVERY_STYLE
@pytest.mark.parametrize(("tau", "kept"), [(0, 1), (50, 3), (70, 3), (75, 4), (90, 4), (99, 4)])
def test_trimmed_by_percentile(tau: float, kept: int, style: str) -> None:
    found = answers("trimmed_kmeans", style, CLUSTER, {"tau": tau})
    assert found["centers"].item() == sum(range(kept)) / kept


@IN_EVERY_STYLE
@pytest.mark.parametrize(("gamma", "kept"), [(2, 1), (0.5, 2), (0.1, 3), (0.01, 4), (0.001, 5)])
def test_trimmed_by_gaps(gamma: float, kept: int, style: str) -> None:
    found = answers("trimmed_normmax", style, CLUSTER, {"gamma": gamma})
    assert found["centers"].item() == sum((0, 1, 2, 3, 10)[:kept]) / kept


@IN_EVERY_STYLE
def test_robust(style: str) -> None:
    sparse = answers("robust_kmeans", style, CLUSTER, {"gamma": 0.25})["centers"].item()
    assert sparse == pytest.approx(0.375, abs=1e-15)  # 0.625 * 0 + 0.375 * 1
    soft = answers("robust_softmax", style, CLUSTER, {"gamma": 0.25})["centers"].item()
    assert soft == pytest.approx(0.812919, abs=5e-7)


@IN_EVERY_STYLE
def test_assignment_by_gradient_steps(style: str) -> None:
    for layers, expected, digits in ((1, -0.00213857, 5e-9), (2, -0.0028494, 5e-8)):
        found = answers("sinkhorn_dual", style, PAIR, {"lambda": 1, "gamma": 1}, layers)
        for name in ("u", "v"):
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=digits)


def test_the_prompt_takes_the_same_steps() -> None:
    prompt = compile("sinkhorn_dual", {"d": 1}, {"lambda": 1, "gamma": 1}, 2, scores="dot", centre="off", null="token")
    found = load(prompt)(**{name: np.array(value) for name, value in PAIR.items()})
    np.testing.assert_allclose(found["u"], -0.0028494, rtol=0, atol=5e-8)


@IN_EVERY_STYLE
def test_sinkhorn_sweep(style: str) -> None:
    half = np.array([0.5, 0.5])
    found = answers("sinkhorn_log", style, {**PAIR, "a": half, "b": half}, {"lambda": 1})
    np.testing.assert_allclose(found["f"], -1.00640887, rtol=0, atol=5e-9)
    np.testing.assert_allclose(found["g"], 0, rtol=0, atol=1e-15)
    plan = [[0.36552929, 0.13447071], [0.13447071, 0.36552929]]
    np.testing.assert_allclose(found["plan"], plan, rtol=0, atol=5e-9)


@IN_EVERY_STYLE
@pytest.mark.parametrize(
    ("spec", "variance", "params"), [("gmm_em", "variance", {}), ("gmm_em_spherical", "variances", {"floor": 0})]
)
def test_mixtures(spec: str, variance: str, params: dict[str, float], style: str) -> None:
    found = answers(spec, style, LINE, params)
    np.testing.assert_allclose(found["means"][:, 0], [-1.965288, 1.965288], rtol=0, atol=5e-7)
    np.testing.assert_allclose(found["weights"], 0.5, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found[variance], 1.337644, rtol=0, atol=5e-7)


def test_temperature_for_an_accuracy() -> None:
    """Scores (1, 0, ..., 0): at this sharpness the weights are exactly eps from one-hot, as the bound is tight."""
    eps, m = 1e-3, 8
    sharpness = sharpness_for(1, m, eps)
    assert sharpness == pytest.approx(math.log(7 * 1.999 / 1e-3), rel=1e-15)
    assert sharpness == pytest.approx(9.546, abs=5e-4)
    text = """algorithm choose
    tokens i in points, j in options : k
    inputs x[i] : R^d, c[j] : R^d
    layer
      y[i,j] = argmax[j] <x[i], c[j]>
    outputs y"""
    model = load(compile(text, {"d": 1, "k": m}, hardmax="softmax", sharpness=sharpness))
    weights = model(x=np.ones((1, 1)), c=np.eye(m)[:, :1])["y"].numpy()[0]
    assert np.abs(weights - np.eye(m)[0]).sum() == pytest.approx(eps, rel=1e-12)
