"""Specs that exist only here: nothing in the compiler can have been made for them. Each in both styles of scores."""

from __future__ import annotations

import numpy as np
import pytest

from agreement import INVENTIONS, assert_agrees, default_dims, invention, judge
from weftc.compiling import compile
from weftc.core.styles import CHOICES
from weftc.files.locate import names
from weftc.verification.cases.examples import answers, settings
from weftc.verification.cases.inputs import FAMILIES, cases
from weftc.verification.steps.models import columns
from weftc_runtime import load

NAMES = sorted(path.stem for path in INVENTIONS.glob("*.weft"))
STYLES = CHOICES["scores"]
COMBINATIONS = [(name, style) for name in NAMES for style in STYLES]


def test_at_least_ten_are_unknown_to_the_catalogue() -> None:
    assert len(set(NAMES) - set(names())) >= 10


@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
def test_every_step_agrees(name: str, scores: str) -> None:
    checked = invention(name)
    turn = COMBINATIONS.index((name, scores))
    dims = default_dims(checked, 2 - turn % 2, 3)
    hard = cases(checked, dims, 4, seed=5, first=3 * turn)
    ordinary = cases(checked, dims, 1, seed=5, first=1, families=("positive",))
    assert_agrees(judge(checked, dims, scores, "float64"), [*hard, *ordinary])


@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
def test_every_step_agrees_in_float32_with_answers(name: str, scores: str) -> None:
    checked = invention(name)
    turn = COMBINATIONS.index((name, scores))
    dims = default_dims(checked, 3, 2)
    compared = cases(checked, dims, 1, seed=6, dtype=np.float32, first=7 + 3 * turn)
    for case in compared:
        outcome = judge(checked, dims, scores, "float32").judge(case, answers=True)
        assert outcome.divergence is None, str(outcome.divergence)


@pytest.mark.parametrize("scores", STYLES)
@pytest.mark.parametrize("name", [name for name in NAMES if invention(name).spec.examples])
def test_examples_hold_for_the_transformer(name: str, scores: str) -> None:
    checked = invention(name)
    for setting in settings(checked):
        model = load(compile(checked, setting.dims, setting.params, scores=scores))  # type: ignore[arg-type]
        outputs = model(dict(setting.inputs), layers=setting.layers, noise=columns(setting.noise))
        for answer in answers(setting, {key: np.asarray(value) for key, value in outputs.items()}):
            assert answer.right, f"{setting.title}: {answer}"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
def test_long_sweep(name: str, scores: str) -> None:
    checked = invention(name)
    dims = default_dims(checked)
    assert_agrees(
        judge(checked, dims, scores, "float64"), cases(checked, dims, 6 * len(FAMILIES), seed=7), answers=True
    )
