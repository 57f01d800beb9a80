"""`weftc verify` on every built-in spec, in every style that applies to it."""

from __future__ import annotations

import pytest

import weftc
from agreement import default_dims
from weftc.compiling import checked_spec
from weftc.files.locate import names
from weftc.passes.finite_temperature import has_choices

NAMES = names("")
CHOOSING = [name for name in NAMES if has_choices(checked_spec(name))]
# Offsets of softmax, sparsemax and normmax equal a mask up to exp(-2^61) only: no rule of the proof says so yet.
TESTED = {"robust_kmeans", "robust_softmax", "trimmed_normmax"}


@pytest.mark.parametrize("name", NAMES)
def test_every_style_is_verified(name: str) -> None:
    verdict = weftc.verify(name, dims=default_dims(checked_spec(name)), cases=3)
    assert verdict.verdict == ("tested" if name in TESTED else "proved"), verdict.text()


@pytest.mark.parametrize("name", CHOOSING)
def test_finite_temperature_is_certified(name: str) -> None:
    made = weftc.compile(name, default_dims(checked_spec(name)), hardmax="softmax")
    verdict = weftc.verify(made, cases=3, dtypes=("float64",))
    assert verdict.verdict == "proved up to eps", verdict.text()
