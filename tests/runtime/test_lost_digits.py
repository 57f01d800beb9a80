"""Runs say how many digits multiplied-out distances have lost, verify fails on such data, and certifies the others."""

from __future__ import annotations

import numpy as np
import pytest

import weftc
from weftc.verification.verification import verify

RNG = np.random.default_rng(5)
NEAR = RNG.normal(size=(40, 2))
FAR = np.concatenate([[[1e6, 1e6]], NEAR])


@pytest.mark.parametrize("backend", ["reference", "planned"])
@pytest.mark.parametrize("spec", ["soft_kmeans", "mean_shift", "lloyd"])
def test_a_run_says_what_it_has_lost(spec: str, backend: str) -> None:
    dims = {name: 2 for name in weftc.check(spec).dims}
    model = weftc.load(weftc.compile(spec, dims, scores="dot"), backend=backend)
    given = {one.name: FAR if one.name == "x" else FAR[1:3] for one in model.program.inputs}
    model(given, layers=1)
    assert any("has lost 1" in line and line.startswith("precision: ") for line in model.report.warnings)
    for fine in (NEAR, NEAR + 1e8, FAR[::-1].copy()):
        model({name: fine if name == "x" else fine[:2] for name in given}, layers=1)
        assert not model.report.warnings


def test_distances_that_are_kept_lose_nothing() -> None:
    model = weftc.load(weftc.compile("soft_kmeans", {"d": 2, "k": 2}))
    model(x=FAR, c=FAR[1:3], layers=1)
    assert not model.report.warnings


def test_verify_fails_on_data_that_cost_digits_and_certifies_others() -> None:
    model = weftc.compile("soft_kmeans", {"d": 2, "k": 2}, scores="dot")
    lossy = verify(model, data={"x": FAR, "c": FAR[1:3]}, cases=1, dtypes=["float64"])
    assert lossy.verdict == "not shown"
    assert "y has lost" in lossy.text()
    fine = verify(model, data={"x": NEAR, "c": NEAR[:2]}, cases=1, dtypes=["float64"])
    assert fine.rounding.kind == "certified"
    assert 2**-53 <= fine.rounding.bound < 1e-12


@pytest.mark.parametrize("spec", ["lloyd", "soft_kmeans", "gmm_em"])
def test_a_certificate_is_a_bound(spec: str) -> None:
    """What is certified is at least as large as what was measured on the same data."""
    verdict = verify(weftc.compile(spec, {"d": 2, "k": 2}), data={"x": NEAR}, cases=1, dtypes=["float64"])
    own = [check for check in verdict.checks if check.name.startswith("your data")]
    assert own
    for check in own:
        assert check.certified is not None
        assert check.relative is not None
        assert check.certified >= check.relative
