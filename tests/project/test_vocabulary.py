"""Every stage knows every word of the vocabulary, and refuses a word that is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import weftc
from weftc.core.vocabulary import CHOICES, DECIDING, FUNCTIONS, WEIGHTINGS
from weftc.editor.hover import MEANINGS
from weftc.exact.executor import _function
from weftc.exact.numbers import exact
from weftc.interpreter.tables import ValueTable, applied
from weftc.language.check.constants import VALUES
from weftc.prover import prove
from weftc.verification.steps.program_rounding import ErrorRange
from weftc.verification.steps.program_rounding import _function as rounding
from weftc_runtime.exact.bounds import function_radius
from weftc_runtime.machines.native_code import FUNCTIONS as NATIVE

NUMBERS = tuple(word for word, traits in FUNCTIONS.items() if traits.numbers)
ARGUMENTS = {"normmax": ", 2", "lowest": ", 2", "highest": ", 50%"}


def of_one(word: str) -> str:
    return f"algorithm one tokens i in points inputs x[i] : R >= 0.5 layer a[i] = {word}(x[i]) outputs a"


def weighting(word: str) -> str:
    noise = " noise g[i,j]" if word == "sample" else ""
    random = "random g[i,j] : gumbel" if word == "sample" else ""
    score = f"exp(-|x[i] - c[j]|^2){noise}{ARGUMENTS.get(word, '')}"
    return (
        f"algorithm one tokens i in points j in centers : k inputs x[i] : R^d, c[j] : R^d {random}\n"
        f"layer y[i,j] = {word}[j]({score}) outputs y"
    )


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("word", [*FUNCTIONS, *WEIGHTINGS])
def test_every_word_means_compiles_runs_and_is_proved(word: str, scores: Any) -> None:
    """The interpreter is the judge of the model, the prover of the file."""
    text = weighting(word) if word in WEIGHTINGS else of_one(word)
    if word in FUNCTIONS and not FUNCTIONS[word].numbers:
        text = text.replace("R >= 0.5", "R^d").replace(") outputs", ") else x[i] outputs")
    random = np.random.default_rng(3)
    inputs = {"x": random.random((7, 2) if "x[i] : R^d" in text else 7) + 0.5}
    inputs |= {"c": random.random((3, 2))} if word in WEIGHTINGS else {}
    dims = {name: {"d": 2, "k": 3}[name] for name in weftc.check(text).dims}
    made = weftc.compile(text, dims, scores=scores)
    assert prove(made).verdict == "proved"
    meant = weftc.interpret(text, inputs, layers=1, dims=dims)
    for backend in ("reference", "auto"):
        found = weftc.load(made, backend=backend)(inputs, layers=1)
        for name in meant:
            got = found[name].dense() if hasattr(found[name], "dense") else found[name]
            assert np.allclose(np.asarray(got), meant[name], rtol=0, atol=1e-14), (name, backend)


@pytest.mark.parametrize("word", NUMBERS)
def test_every_table_of_functions_has_the_word(word: str) -> None:
    number = 0.75
    value = VALUES[word](number)
    table = ValueTable((), np.array([number]), np.zeros(1), np.ones(1, dtype=bool))
    assert abs(applied(word, table).data[0] - value) < 1e-15
    (made,) = _function(word, [exact(number)], None)
    assert made.low - 1e-12 <= value <= made.high + 1e-12  # type: ignore[union-attr]
    one = torch.tensor([number], dtype=torch.float64)
    assert 0 <= float(function_radius(word, one, torch.zeros(1, dtype=torch.float64))) < 1e-14
    bound = rounding(word, ErrorRange.of(np.array([1.0]), np.zeros(1)), None, np.array([value]))
    assert float(bound.error[0]) < 1e-14
    assert word in NATIVE
    assert word in MEANINGS


@pytest.mark.parametrize(
    "ask",
    [
        lambda word: applied(word, ValueTable((), np.ones(1), np.zeros(1), np.ones(1, dtype=bool))),
        lambda word: _function(word, [exact(1.0)], None),
        lambda word: function_radius(word, torch.ones(1), torch.zeros(1)),
        lambda word: rounding(word, ErrorRange.of(np.ones(1), np.zeros(1)), None, np.ones(1)),
    ],
)
def test_no_table_guesses(ask: Callable[[str], object]) -> None:
    with pytest.raises((KeyError, AssertionError)):
        ask("frobnicate")


@pytest.mark.parametrize("word", NUMBERS)
def test_traits_of_functions_are_true(word: str) -> None:
    """Domain, sign, zero and order, on numbers on both sides of every bound."""
    traits, f = FUNCTIONS[word], VALUES[word]
    numbers = np.sort(np.random.default_rng(1).normal(size=200))
    inside = {"all numbers": numbers, "positive": numbers[numbers > 0], "nonnegative": numbers[numbers >= 0]}[
        traits.domain
    ]
    values = np.array([f(x) for x in inside])
    assert traits.sign == "any" or (values >= 0).all()
    assert traits.sign != "positive" or (values > 0).all()
    assert traits.zero is None or (values[inside > traits.zero] > 0).all()
    assert (
        not traits.increasing or (np.diff(values) > 0).all() or word in ("tanh", "sigmoid")
    )  # they saturate in float64
    if traits.domain != "all numbers":
        with pytest.raises(ValueError, match="math domain error"):
            f(-1.0)


@pytest.mark.parametrize("word", WEIGHTINGS)
def test_traits_of_weightings_are_true(word: str) -> None:
    """What decides has weights that are equal or zero; what chooses has one; low scores are good where it is said."""
    inputs = {"x": np.array([[0.0], [0.4], [1.0]]), "c": np.array([[0.0], [0.45], [0.8], [3.0]])}
    noise = {"g": np.zeros((1, 3, 4))} if word == "sample" else None
    weights = weftc.interpret(weighting(word), inputs, layers=1, dims={"d": 1, "k": 4}, noise=noise)["y"]
    weights = np.asarray(weights)
    if weights.ndim == 1:
        weights = np.eye(4)[weights]
    assert np.allclose(weights.sum(1), 1, rtol=0, atol=1e-15)
    few = [len(set(row[row > 0].tolist())) for row in weights]
    assert (set(few) == {1}) == (word in DECIDING)
    assert ((weights > 0).sum(1) == 1).all() == (word in CHOICES)
    assert (weights[0, 3] > weights[0, 0]) == WEIGHTINGS[word].lowest
    assert (word in CHOICES and word != "sample") == (WEIGHTINGS[word].ties is None)
