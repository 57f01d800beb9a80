"""The generators of evidence: what they make fits the declarations, reaches all sizes, and models agree on it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from agreement import default_dims, invention, judge
from weftc.compiling import checked_spec
from weftc.core.types import Checked
from weftc.files.locate import names
from weftc.interpreter.interpreter import Interpreter
from weftc.verification.cases.families import FAMILIES, REAL
from weftc.verification.cases.inputs import ALL, cases
from weftc.verification.cases.sweeps import BUDGET, COUNTS, TOKENS, WIDTHS, sweep

TYPES = """algorithm types
tokens i in points, j in centers : k
inputs x[i] : R^d, v[i] : unit R^d, w[i] : R > 0, u[i] : R in [-1, 2], g[i,j] : onehot, p[i,j] : simplex, r[i,j] : real
layer x[i] = x[i] outputs x
"""


@pytest.mark.parametrize("family", ALL)
def test_every_family_keeps_every_declaration(family: str) -> None:
    checked = checked_spec(TYPES)
    for case in cases(checked, {"d": 3, "k": 4}, 6, seed=2, families=(family,)):
        Interpreter(checked).start(case.inputs)
        assert case.family == family


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_have_ordinary_magnitudes(family: str) -> None:
    checked = checked_spec(TYPES)
    for case in cases(checked, {"d": 3, "k": 4}, 12, seed=5, families=(family,)):
        for name in ("x", "w", "r"):
            sizes = np.abs(case.inputs[name])[case.inputs[name] != 0]
            assert np.all((sizes > 1e-20) & (sizes < 1e20)), f"{name}: nobody's data are 4e-323"


def test_three_does_not_divide_the_number_of_families() -> None:
    assert len(FAMILIES) % 3, "or the special sizes would always meet the same families"


def test_rows_of_a_data_set_are_its_rows() -> None:
    checked = checked_spec("lloyd")
    rows = {tuple(row) for row in load_iris(return_X_y=True)[0].tolist()}
    whole = 0
    for case in cases(checked, {"d": 4, "k": 3}, 20, seed=3, families=("iris",)):
        columns = [tuple(np.roll(row, shift)) for shift in range(4) for row in case.inputs["x"][:1].tolist()]
        whole += any(row in rows for row in columns)
    assert 0 < whole < 20, "in its own units and standardised"


def test_a_sweep_reaches_all_sizes_and_families() -> None:
    checked = checked_spec("lloyd")
    seen = [(dims, case) for dims, case in sweep(checked, 300, seed=0)]
    assert {dims["d"] for dims, _ in seen} == set(WIDTHS)
    assert {dims["k"] for dims, _ in seen} == set(COUNTS)
    assert {len(case.inputs["x"]) for _, case in seen} >= {1, 2, 1024, 4096}
    assert {case.family for _, case in seen} == {*FAMILIES, *REAL}
    assert max(WIDTHS) == max(COUNTS) == 64
    assert max(TOKENS) == 4096
    for dims, case in seen:
        assert len(case.inputs["x"]) * dims["d"] * dims["k"] <= BUDGET
        Interpreter(checked).start(case.inputs)


def test_sets_that_meet_themselves_stay_within_the_budget() -> None:
    for dims, case in sweep(checked_spec("sinkhorn_dual"), 60, seed=1):
        assert len(case.inputs["x"]) ** 2 * dims["d"] <= BUDGET


def agree(checked: Checked, count: int, seed: int, budget: int, scores: str = "l2") -> None:
    for dims, case in sweep(checked, count, seed, budget=budget):
        outcome = judge(checked, dims, scores, "float64").judge(case)
        assert outcome.divergence is None, f"{dims}, {case.family}, {case.tokens} tokens: {outcome.divergence}"


@pytest.mark.parametrize("name", names(""))  # those in folders are judged beside what they are about
def test_models_agree_at_larger_sizes(name: str) -> None:
    agree(checked_spec(name), 2, seed=names("").index(name), budget=2**15)


@pytest.mark.parametrize("family", REAL)
@pytest.mark.parametrize("name", ["lloyd", "soft_kmeans", "spherical_kmeans", "knn"])
def test_models_agree_on_real_data(name: str, family: str) -> None:
    checked = checked_spec(name)
    dims = default_dims(checked, 4, 3)
    for case in cases(checked, dims, 2, seed=6, families=(family,), first=1):
        outcome = judge(checked, dims, "dot", "float64").judge(case)
        assert outcome.divergence is None, str(outcome.divergence)


@pytest.mark.slow
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", names(""))  # those in folders are judged beside what they are about
def test_long_sweep(name: str, scores: str) -> None:
    agree(checked_spec(name), len(ALL), seed=5, budget=2**19, scores=scores)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vote", "som", "fuzzy_cmeans"])
def test_long_sweep_of_inventions(name: str) -> None:
    agree(invention(name), len(ALL), seed=5, budget=2**17)
