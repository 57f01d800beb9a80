"""The planned backend on every built-in spec: the reference's bits where they are promised, the contract elsewhere."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import weftc_runtime
from agreement import assert_agrees, default_dims
from planned_cases import assert_same_bits, both, compiled, plain, problem, promises_bits
from weftc.compiling import checked_spec
from weftc.core.styles import CHOICES
from weftc.files.locate import names
from weftc.verification.cases.inputs import FAMILIES, cases
from weftc.verification.runs.runs import judge_of
from weftc_runtime import RunError
from weftc_runtime.data.results import Tiers

NAMES = names("")
COMBINATIONS = [(name, scores) for name in NAMES for scores in CHOICES["scores"]]
DTYPES = (torch.float64, torch.float32)


def test_most_specs_promise_bits() -> None:
    exact = [name for name in NAMES if promises_bits(weftc_runtime.load(compiled(name)).plan())]
    assert {"lloyd", "lloyd_split", "weighted_kmeans", "trimmed_kmeans", "kmedoids", "knn"} <= set(exact)


def rows(tiers: Tiers) -> tuple[int, int]:
    """How many rows were decided, and how many were not."""
    return tiers.fast + tiers.bound + tiers.exact, tiers.undecided


@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_linear_backend_covers_it_and_gives_the_promised_bits(name: str, scores: str, dtype: torch.dtype) -> None:
    reference, planned = both(compiled(name, scores=scores), dtype)
    families = sorted(FAMILIES)
    turn = COMBINATIONS.index((name, scores))
    compared = 0
    for number in (turn, turn + 3, turn + 5):
        inputs = problem(name, families[number % len(families)], 23, number, str(dtype)[6:])
        try:
            expected = reference.final(inputs, seed=number)
        except RunError as error:
            with pytest.raises(RunError, match=re.escape(str(error))):
                planned.final(inputs, seed=number)
            continue
        outputs = planned.final(inputs, seed=number)
        if promises_bits(planned.plan()):
            assert (planned.report.backend, planned.report.why) == ("planned", "")
            assert_same_bits(expected, outputs)
            assert rows(reference.report.total) == rows(planned.report.total)
        compared += 1
    assert compared, "no family has a value"


@pytest.mark.parametrize(("name", "scores"), COMBINATIONS)
def test_every_step_agrees_with_the_meaning(name: str, scores: str) -> None:
    checked = checked_spec(name)
    turn = COMBINATIONS.index((name, scores))
    dims = default_dims(checked)
    dtype = ("float64", "float32")[turn % 2]
    judge = judge_of(checked, compiled(name, scores=scores), dtype, backend="planned")
    assert_agrees(judge, cases(checked, dims, 2, seed=5, dtype=np.dtype(dtype), first=turn), answers=dtype == "float64")


@pytest.mark.parametrize("name", NAMES)
def test_objectives_agree(name: str) -> None:
    reference, planned = both(compiled(name))
    if reference.program.objective is None:
        with pytest.raises(RunError, match="states no objective"):
            planned.objective(problem(name, "random", 9, 1))
        return
    inputs = problem(name, "random", 31, 2)
    one, other = reference.objective(inputs), planned.objective(inputs)
    if promises_bits(planned.plan()):
        assert torch.equal(one, other)
    # A sum of 31 terms: kappa is 31 times that of a term; 1 + gamma * distance is below 10 for these data.
    assert torch.allclose(one, other, rtol=0, atol=16 * 2.0**-52 * 310 * max(1.0, float(one.abs())))


@pytest.mark.parametrize(
    "name", ["lloyd", "soft_kmeans", "spherical_kmeans", "weighted_kmeans", "trimmed_kmeans", "sinkhorn_dual"]
)
def test_an_erase_by_attention_is_a_linear_one_for_distinct_tokens(name: str) -> None:
    reference, planned = both(compiled(name, erase="attention"))
    assert "self" in {head.strategy for _, head in planned.plan().heads()}
    inputs = problem(name, "random", 19, 7)
    expected, outputs = reference(inputs), planned(inputs)
    assert planned.report.backend == "planned"
    if promises_bits(planned.plan()):
        assert_same_bits(expected, outputs)
    else:
        for key in expected:  # kappa: 1 + distances / lambda, three layers
            assert torch.allclose(expected[key], outputs[key], rtol=0, atol=16 * 2.0**-52 * 1000)


def test_an_erase_by_attention_refuses_equal_tokens_on_both_backends() -> None:
    reference, planned = both(compiled("lloyd", erase="attention"))
    inputs = {"x": [[1.0, 2.0], [1.0, 2.0], [3.0, 1.0]], "c": [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]}
    for model in (reference, planned):
        with pytest.raises(RunError, match="distinct"):
            model(inputs)


@pytest.mark.parametrize("name", ["lloyd", "kmedoids", "sinkhorn_dual"])
def test_unrolled_weights_run_too(name: str) -> None:
    reference, planned = both(compiled(name, weights="unrolled"))
    inputs = problem(name, "random", 17, 3)
    expected, outputs = reference(inputs, seed=4), planned(inputs, seed=4)
    assert planned.report.backend == "planned"
    for key in expected:
        one, other = plain(expected[key]), plain(outputs[key])
        assert torch.allclose(one, other, rtol=0, atol=16 * 2.0**-52 * 1000)
