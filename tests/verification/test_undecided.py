"""Comparisons of roots closer than float64 can tell: reported as undecided, and no divergence; others still are one."""

from __future__ import annotations

import numpy as np
import pytest

from verifying import edited, head_values
from weftc.compiling import checked_spec, compile
from weftc.verification.cases.inputs import Case
from weftc.verification.runs.runs import judge_of
from weftc_runtime import load

ROOTS = """algorithm roots
tokens i in points, j in centers : k
inputs x[i] : R^d, c[j] : R^d
layer
  s[i] = sum[j] <x[i], c[j]> where |c[j]| > |x[i]|
  then
  n[j] = sum[i] 1 where |c[j]| >= |x[i]|
outputs s, n
"""
# 0.3 and 0.1 + 0.2 differ by one unit in the last place, and so do their lengths; only squares tell them apart
NEAR = {"x": np.array([[0.3, 0.0], [3.0, 4.0], [2.0, 0.5]]), "c": np.array([[0.1 + 0.2, 0.0], [0.0, 5.0], [0.7, 0.1]])}
# the same lengths exactly: both sides follow the rule for ties, > fails and >= holds
EQUAL = {"x": np.array([[3.0, 4.0], [5.0, 0.0]]), "c": np.array([[0.0, 5.0], [4.0, 3.0], [1.0, 1.0]])}


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("inputs", [NEAR, EQUAL], ids=["an ulp apart", "equal"])
def test_close_roots_are_undecided_not_wrong(inputs: dict[str, np.ndarray], scores: str) -> None:
    checked = checked_spec(ROOTS)
    model = compile(checked, {"d": 2, "k": 3}, scores=scores)  # type: ignore[arg-type]
    outcome = judge_of(checked, model, "float64").judge(Case("by hand", inputs, layers=1))
    assert outcome.divergence is None
    assert sum(one.undecided for one in outcome.settled) > 0, "the model says that it cannot tell"
    running = load(model)
    running(inputs, layers=1)
    assert running.report.total.undecided > 0


def test_a_model_that_is_wrong_elsewhere_is_still_caught() -> None:
    checked = checked_spec(ROOTS)
    model = compile(checked, {"d": 2, "k": 3})
    tensor = head_values(model)[0]
    wrong = judge_of(checked, edited(model, tensor, 1.5 * np.asarray(model.tensors[tensor])), "float64")
    clear = {"x": np.array([[1.0, 0.0]]), "c": np.array([[2.0, 1.0], [0.0, 5.0], [0.5, 0.1]])}
    assert wrong.judge(Case("by hand", clear, layers=1)).divergence is not None


def test_a_spec_without_roots_has_nothing_undecided() -> None:
    squares = checked_spec(ROOTS.replace("|c[j]|", "|c[j]|^2").replace("|x[i]|", "|x[i]|^2"))
    judge = judge_of(squares, compile(squares, {"d": 2, "k": 3}), "float64")
    assert not judge.irrational, "a model that could not tell would be wrong"
    outcome = judge.judge(Case("by hand", NEAR, layers=1))
    assert outcome.divergence is None
    assert sum(one.undecided for one in outcome.settled) == 0


def test_outputs_are_no_exception() -> None:
    text = ROOTS.replace("outputs s, n", "outputs s, few[j] = sum[i] 1 where |c[j]| > |x[i]|")
    checked = checked_spec(text)
    outcome = judge_of(checked, compile(checked, {"d": 2, "k": 3}), "float64").judge(Case("by hand", NEAR, layers=1))
    assert outcome.divergence is None
    assert outcome.undecided > 0
