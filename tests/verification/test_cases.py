"""The cases that verification compares on: declared ranges, sizes, near-ties, and smaller ones."""

from __future__ import annotations

import numpy as np
import pytest

from verifying import NEAREST
from weftc.compiling import checked_spec
from weftc.interpreter.interpreter import Interpreter
from weftc.verification.cases.inputs import FAMILIES, cases, conform
from weftc.verification.cases.shrinking import smaller

DECLARED = """algorithm declared
tokens i in points, j in centers : k
inputs u[i] : unit R^d
       a[i] : R > 0
       b[i] : R in [0, 1]
       e[i] : R <= 2
       o[i,j] : onehot
       s[i,j] : simplex
random g[i,j] : gumbel
layer
  z[i] = a[i] + b[i] + e[i]
  y[i,j] = argmax[j] (s[i,j] + g[i,j])
outputs z, y
"""


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_generated_inputs_keep_every_declaration(dtype: type) -> None:
    checked = checked_spec(DECLARED)
    dims = {"d": 3, "k": 4}
    meaning = Interpreter(checked, dims)
    families = set()
    for case in cases(checked, dims, 3 * len(FAMILIES), dtype=dtype):
        meaning.start(case.inputs)  # refuses whatever a declaration rules out
        assert all(values.dtype == dtype for values in case.inputs.values())
        families.add(case.family)
    assert families == set(FAMILIES)


def test_sizes_at_which_things_go_wrong_all_occur() -> None:
    checked = checked_spec(NEAREST)
    sizes = {case.tokens for case in cases(checked, {"d": 1, "k": 3}, 60)}
    rows = {len(case.inputs["x"]) for case in cases(checked, {"d": 1, "k": 3}, 60)}
    assert {1, 2, 3, 4} <= rows, "one point, fewer than centers, as many, more"
    assert max(sizes) >= 8


def test_near_ties_are_near_in_either_precision() -> None:
    checked = checked_spec(NEAREST)
    for dtype in (np.float64, np.float32):
        moved = 0
        for case in cases(checked, {"d": 1, "k": 3}, 3 * len(FAMILIES), dtype=dtype):
            if "ulp" in case.family:
                values = np.concatenate([v.reshape(-1) for v in case.inputs.values()]).astype(np.float64)
                moved += int(((values != np.round(values, 1)) & (np.abs(values - np.round(values)) < 1e-5)).sum())
        assert moved > 0


def test_smaller_cases_stay_inside_declared_ranges() -> None:
    checked = checked_spec(DECLARED)
    bound = checked.fields["a"].bound
    assert bound is not None
    (case,) = cases(checked, {"d": 2, "k": 2}, 1)
    for small in smaller(checked, case):
        assert all(bound.admits(float(v)) for v in small.inputs["a"])
        assert small.tokens <= case.tokens


def test_conform_reflects_values_into_open_ranges() -> None:
    one = checked_spec(DECLARED).fields["a"]
    found = conform(one, np.array([-2.0, 0.0, 3.0]), (3,), "random", np.random.default_rng(0), np.float64)
    assert found.tolist() == [2.0, 1.0, 3.0]
