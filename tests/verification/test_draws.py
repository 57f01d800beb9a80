"""Draws as evidence: frequencies over noise are held against the spec's own chances, and wrong ones are caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import weftc_runtime.machines.random_fields as random_fields
from weftc.compiling import checked_spec, compile
from weftc.verification.runs.sampling import UNLIKELY, critical, likelihood, merged, sampling
from weftc.verification.verification import verify

DRAWS = """algorithm draws
tokens i in points
       j in options : k
inputs s[i] : R, b[j] : R
random g[i,j] : gumbel
layer
  y[i,j] = sample[j](s[i] * b[j] noise g[i,j])
outputs y
"""


def test_the_chance_of_a_chi_square_is_that_of_scipy() -> None:
    for freedom in (1, 4, 30):
        for statistic in (0.1, 3.0, 50.0):
            assert likelihood(statistic, freedom) == pytest.approx(chi2.sf(statistic, freedom), rel=1e-9)
        assert critical(freedom) == pytest.approx(chi2.isf(UNLIKELY, freedom), rel=1e-6)


def test_rare_cells_are_put_together() -> None:
    cells = merged(np.array([0.0, 7.0, 1.0, 12.0]), np.array([1.0, 8.0, 1.0, 10.0]))
    assert cells == [(8.0, 10.0), (12.0, 10.0)]
    assert merged(np.array([20.0, 0.0]), np.array([19.0, 1.0])) == [], "one cell can only be right"


@pytest.mark.parametrize("name", ["kmedoids", DRAWS], ids=["medoids", "stored"])
def test_draws_follow_the_scores(name: str) -> None:
    checked = checked_spec(name)
    check = sampling(checked, compile(checked, {"d": 1, "k": 3} if "d" in checked.dims else {"k": 3}), "l2", seed=0)
    assert check is not None
    assert check.passed, check.detail
    assert check.cases >= 300
    assert 0 < check.worst < check.allowed


def damped(kind: str, *where: Any) -> np.ndarray:
    """Noise at half its strength: draws at another temperature."""
    return np.asarray(running_draw(kind, *where)) / 2


def stuck(kind: str, seed: int, *where: Any) -> np.ndarray:
    """The same noise whatever the seed."""
    return np.asarray(running_draw(kind, 0, *where))


running_draw: Callable[..., Any] = random_fields.draw


@pytest.mark.parametrize("fault", [damped, stuck])
def test_wrong_noise_is_caught(fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_fields, "draw", fault)
    checked = checked_spec(DRAWS)
    check = sampling(checked, compile(checked, {"k": 3}), "l2", seed=0)
    assert check is not None
    assert not check.passed
    assert "do not follow its scores" in check.detail


def test_what_has_no_chance_must_not_be_drawn() -> None:
    text = DRAWS.replace("noise g[i,j])", "where b[j] > 0.5 noise g[i,j]) else argmin[j] b[j]")
    checked = checked_spec(text)
    model = compile(checked, {"k": 4})
    honest = sampling(checked, model, "l2", seed=0)
    assert honest is not None
    assert honest.passed
    other = checked_spec(text.replace("> 0.5", "> 1.5"))
    check = sampling(other, model, "l2", seed=0)
    assert check is not None
    assert not check.passed
    assert "no chance" in check.detail


def test_verify_judges_draws_once() -> None:
    verdict = verify(compile(DRAWS, {"k": 3}), cases=1, dtypes=["float64"])
    assert [check.name for check in verdict.checks if check.name.startswith("draws")] == ["draws (l2)"]
    silent = DRAWS.replace("sample[j](s[i] * b[j] noise g[i,j])", "argmin[j] (s[i] - b[j] + g[i,j])")
    other = verify(compile(silent, {"k": 2}), cases=1, dtypes=["float64"])
    assert not any(check.name.startswith("draws") for check in other.checks)


def test_draws_of_other_noise_have_no_known_chances() -> None:
    checked = checked_spec(DRAWS.replace("gumbel", "normal"))
    assert sampling(checked, compile(checked, {"k": 3}), "l2", seed=0) is None
