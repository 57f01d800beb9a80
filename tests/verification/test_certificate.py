"""Certificates of finite temperature: what is measured never exceeds the bound, and the bound is worth having."""

from __future__ import annotations

import numpy as np
import pytest

import weftc
from agreement import default_dims
from weftc.compiling import checked_spec
from weftc.files.locate import names
from weftc.interpreter.interpreter import EvaluationError
from weftc.interpreter.noise import draw
from weftc.passes.finite_temperature import has_choices
from weftc.passes.sharpness import lead
from weftc.verification.cases.inputs import FAMILIES, cases
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.temperature.certificate import Certificate, Certifier

CHOOSING = [name for name in names("") if has_choices(checked_spec(name))]
SHARPNESS = (3.0, 1e2, 1e4, 1e6)


def certified(name: str, count: int, first: int, seed: int) -> list[Certificate]:
    checked = checked_spec(name)
    dims = default_dims(checked)
    found = []
    for number, case in enumerate(cases(checked, dims, count, seed=seed, first=first)):
        start = Stepwise(checked, dims, {})
        try:
            fields = start.start(case.inputs, seed=case.seed)
            sizes = start.world(fields).sizes
            noise = {
                f.name: np.stack(
                    [draw(f.kind, case.seed, f.name, t, (sizes[f.home], sizes[str(f.columns)])) for t in range(3)]
                )
                for f in checked.fields.values()
                if f.role == "random"
            }
            found.append(Certifier(checked, dims, {}, SHARPNESS[number % 4]).certify(fields, 3, noise))
        except EvaluationError:
            continue  # no value on either side
    return found


@pytest.mark.parametrize("name", CHOOSING)
def test_nothing_measured_is_beyond_its_bound(name: str) -> None:
    found = certified(name, 8, 8 * CHOOSING.index(name), seed=1)
    assert found
    assert all(c.holds for c in found), [layer for c in found for layer in c.layers if not layer.holds]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOOSING)
def test_nothing_measured_is_beyond_its_bound_on_thousands(name: str) -> None:
    found = certified(name, 40 * len(FAMILIES), 0, seed=2)
    assert all(c.holds for c in found)
    assert any(np.isfinite(c.bound) for c in found)


def test_far_apart_clusters_are_certified_to_rounding() -> None:
    checked = checked_spec("lloyd")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) + 30 * rng.integers(0, 3, size=(60, 1))
    c = np.array([[0.0, 0.0], [30.0, 30.0], [60.0, 60.0]])
    found = Certifier(checked, {"d": 2, "k": 3}, {}, 1e3).certify({"x": x, "c": c}, 5, {})
    assert found.margin > 1
    assert found.bound < 1e-9
    assert all(layer.enough == pytest.approx(lead(3) / layer.margin) for layer in found.layers)


def test_a_tie_has_no_certificate() -> None:
    checked = checked_spec("lloyd")
    fields = {"x": np.array([[0.0], [5.0]]), "c": np.array([[-1.0], [1.0]])}
    found = Certifier(checked, {"d": 1, "k": 2}, {}, 1e6).certify(fields, 1, {})
    assert found.margin <= 0
    assert found.layers[0].enough == np.inf
    assert found.layers[0].bounds["y"] >= found.layers[0].measured["y"] == 0.5


def test_the_bound_shrinks_with_the_temperature() -> None:
    checked = checked_spec("lloyd")
    fields = {"x": np.array([[0.0], [1.0], [4.0]]), "c": np.array([[0.0], [4.0]])}
    bounds = [Certifier(checked, {"d": 1, "k": 2}, {}, g).certify(fields, 1, {}).bound for g in (0.5, 1.0, 2.0, 4.0)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < 1e-3 < bounds[0]


def test_a_verdict_shows_leads_layer_by_layer() -> None:
    made = weftc.compile("lloyd", {"d": 1, "k": 2}, hardmax="softmax", sharpness=50.0)
    points = {"x": np.array([[0.0], [1.0], [9.0], [10.0]]), "c": np.array([[0.0], [6.0]])}
    verdict = weftc.verify(made, data=points, cases=1, dtypes=("float64",))
    (check,) = [check for check in verdict.checks if check.leads]
    assert check.name == "temperature (sharpness 50)"
    first = check.leads[0]
    assert first.margin == pytest.approx(24), "of the point at 1: 25 against 1"
    assert first.enough == pytest.approx(lead(2) / first.margin)
    assert all(one.measured <= one.bound for one in check.leads if one.bound is not None)
    head = next(line for line in verdict.text().splitlines() if "smallest lead" in line)
    assert head.split()[0] == "layer"
    assert verdict.json()["checks"][-1]["leads"][0]["margin"] == first.margin
