"""Slots derived from a field that has no logarithm or reciprocal: refused when something reads them, not before."""

from __future__ import annotations

import numpy as np
import pytest

from agreement import invention
from weftc.compiling import checked_spec, compile
from weftc.core.errors import WeftError
from weftc.core.styles import CHOICES
from weftc.interpreter.interpreter import Interpreter
from weftc_runtime import Model, RunError, load

POINT = {"x": np.array([[1.0, 2.0]]), "c": np.zeros((1, 2))}  # one point: the variance becomes zero
STYLES = CHOICES["scores"]


def mixture(scores: str) -> Model:
    return load(compile("gmm_em", {"d": 2, "k": 1}, scores=scores))  # type: ignore[arg-type]


@pytest.mark.parametrize("scores", STYLES)
def test_a_variance_of_zero_is_an_answer(scores: str) -> None:
    got = mixture(scores)(POINT, layers=1)
    want = Interpreter(checked_spec("gmm_em"), {"k": 1}).run(POINT, 1)
    assert {name: np.asarray(value).tolist() for name, value in got.items()} == {
        name: value.tolist() for name, value in want.items()
    }
    assert got["variance"].tolist() == [0.0]


@pytest.mark.parametrize("scores", STYLES)
def test_who_divides_by_it_is_named(scores: str) -> None:
    with pytest.raises(RunError, match=r"^line 11: softmax\[j\] ?\(log pi.*token 0 of components.*division by zero"):
        mixture(scores)(POINT, layers=2)
    with pytest.raises(RunError, match=r"^line 21: logsumexp\[j\].*(a division by zero|logarithm)"):
        mixture(scores).objective(POINT, layers=1)


@pytest.mark.parametrize("scores", STYLES)
def test_inputs_without_a_logarithm_are_no_fault_until_it_is_read(scores: str) -> None:
    checked = invention("markov_mix")
    inputs = {"A": np.eye(2), "x": np.zeros((3, 1)), "c": np.array([[0.0], [1.0]]), "p": np.array([-1.0, 1.0])}
    model = load(compile(checked, {"d": 1, "k": 2}, scores=scores))  # type: ignore[arg-type]
    assert model.start(inputs)["p"][:, 0].tolist() == [-1.0, 1.0]
    assert model(inputs, layers=0)["p"].tolist() == [-1.0, 1.0]
    with pytest.raises(RunError, match=r"^line 10: softmax\[j\].*token 0 of states.*not positive, in slot log\(p\)"):
        model(inputs, layers=1)
    with pytest.raises(WeftError, match=r"the logarithm needs a positive number[\s\S]*:10:"):
        Interpreter(checked).run(inputs, 1)


def test_the_fault_of_one_problem_is_not_the_fault_of_another() -> None:
    model = mixture("l2")
    two = {"x": np.array([[[1.0, 2.0], [1.0, 2.0]], [[0.0, 1.0], [4.0, 1.0]]]), "c": np.zeros((2, 1, 2))}
    together = model(two, layers=1)
    for number in range(2):
        alone = model({name: values[number] for name, values in two.items()}, layers=1)
        assert all(np.array_equal(together[name][number], alone[name]) for name in alone)
    assert together["variance"][0] == 0
    assert together["variance"][1] > 0
