"""Values that do not exist: no value on either side is agreement, on one side a failure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verifying import NEAREST, SMALL
from weftc.compiling import checked_spec, compile
from weftc.verification.cases.inputs import Case
from weftc.verification.judged import JudgedModel
from weftc.verification.runs.runs import judge_of, layers
from weftc.verification.steps.layers import Judge
from weftc.verification.steps.stepwise import Stepwise
from weftc_runtime import RunError, load

LOGARITHM = """algorithm logs
tokens i in points
inputs x[i] : R
layer
  y[i] = log x[i]
outputs y
"""


def one_case(**inputs: list[float]) -> Case:
    return Case("by hand", {name: np.array(values) for name, values in inputs.items()}, layers=1)


def logs() -> Judge:
    checked = checked_spec(LOGARITHM)
    return judge_of(checked, compile(checked), "float64")


def test_no_value_on_either_side_is_agreement() -> None:
    outcome = logs().judge(one_case(x=[1.0, -1.0]))
    assert outcome.refused
    assert outcome.divergence is None


def test_an_output_too_large_for_the_precision_is_refused_and_that_is_agreement() -> None:
    text = NEAREST.replace("outputs c, y", "outputs c, big[i] = |x[i]|^2").split("example")[0]
    case = Case("by hand", {"x": np.array([[3e19]], np.float32), "c": np.ones((2, 1), np.float32)}, layers=1)
    checkpoint = compile(text, SMALL)
    with pytest.raises(RunError, match="output big does not fit float32; scale the inputs down"):
        load(checkpoint, torch.float32)(dict(case.inputs), layers=1)
    outcome = judge_of(checked_spec(text), checkpoint, "float32").judge(case, answers=True)
    assert outcome.divergence is None
    assert outcome.refused
    wide = Case("by hand", {name: values.astype(np.float64) for name, values in case.inputs.items()}, layers=1)
    assert not judge_of(checked_spec(text), checkpoint, "float64").judge(wide, answers=True).refused


def test_no_value_on_one_side_is_a_failure() -> None:
    judged = logs()
    judged.whole = Stepwise(checked_spec(LOGARITHM.replace("log x[i]", "x[i] + 1")), {}, {})
    outcome = judged.judge(one_case(x=[1.0, -1.0]))
    assert not outcome.refused
    assert "only one side has a value" in str(outcome.divergence)


def test_a_check_without_a_single_comparison_does_not_pass() -> None:
    checked = checked_spec(LOGARITHM.replace("log x[i]", "log(-|x[i]|^2)"))
    check = layers(checked, [JudgedModel(compile(checked))], "l2", "float64", 3, 0)
    assert not check.passed
    assert "no step could be compared" in check.detail
