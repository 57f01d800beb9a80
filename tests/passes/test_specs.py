"""Every built-in spec in every style of scores and every precision, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agreement import assert_agrees, default_dims, judge
from strategies import dimensions, family_cases, free_cases
from weftc.compiling import checked_spec
from weftc.core.styles import CHOICES
from weftc.files.locate import names
from weftc.interpreter.interpreter import Interpreter
from weftc.verification.cases.examples import answers
from weftc.verification.cases.examples import settings as example_settings
from weftc.verification.cases.inputs import FAMILIES, cases

NAMES = names("")
STYLES = CHOICES["scores"]
COMBINATIONS = [(name, style) for name in NAMES for style in STYLES]
SIZES = ((2, 3), (1, 1), (3, 2), (1, 4))
QUICK = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
def test_every_step_agrees_in_float64(name: str, scores: str) -> None:
    checked = checked_spec(name)
    turn = COMBINATIONS.index((name, scores))
    dims = default_dims(checked, *SIZES[turn % 2])
    assert_agrees(judge(checked, dims, scores, "float64"), cases(checked, dims, 5, seed=1, first=5 * turn))


@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
def test_every_step_agrees_in_float32(name: str, scores: str) -> None:
    checked = checked_spec(name)
    turn = COMBINATIONS.index((name, scores))
    dims = default_dims(checked, *SIZES[2 + turn % 2])
    at = (3 * turn, len(FAMILIES) * turn)  # a family in turn, and ordinary data
    hard, ordinary = (cases(checked, dims, 1, seed=2, dtype=np.float32, first=number) for number in at)
    assert_agrees(judge(checked, dims, scores, "float32"), [*hard, *ordinary])


@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
def test_objective_and_final_outputs_agree(name: str, scores: str) -> None:
    checked = checked_spec(name)
    dims = default_dims(checked)
    assert_agrees(judge(checked, dims, scores, "float64"), cases(checked, dims, 1, seed=3, first=8), answers=True)


@pytest.mark.parametrize("name", NAMES)
def test_examples_hold_for_the_interpreter(name: str) -> None:
    checked = checked_spec(name)
    found = example_settings(checked)
    assert found, f"{name} has no example"
    for setting in found:
        meaning = Interpreter(checked, setting.dims, setting.params)
        for answer in answers(setting, meaning.run(setting.inputs, setting.layers, noise=setting.noise or None)):
            assert answer.right, f"{setting.title}: {answer}"


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(data=st.data())
def test_agrees_on_whatever_hypothesis_finds(name: str, data: st.DataObject) -> None:
    checked = checked_spec(name)
    dims = data.draw(dimensions(checked))
    scores = data.draw(st.sampled_from(STYLES))
    dtype = data.draw(st.sampled_from(("float64", "float32")))
    case = data.draw(
        st.one_of(family_cases(checked, dims, np.dtype(dtype)), free_cases(checked, dims, np.dtype(dtype)))
    )
    outcome = judge(checked, dims, scores, dtype).judge(case)
    assert outcome.divergence is None, str(outcome.divergence)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
@pytest.mark.parametrize("size", SIZES)
def test_long_sweep(name: str, scores: str, size: tuple[int, int]) -> None:
    checked = checked_spec(name)
    dims = default_dims(checked, *size)
    assert_agrees(
        judge(checked, dims, scores, "float64"), cases(checked, dims, 8 * len(FAMILIES), seed=4), answers=True
    )


def test_the_registry_is_the_folder() -> None:
    assert len(NAMES) >= 3
    assert sorted(set(NAMES)) == list(NAMES)
