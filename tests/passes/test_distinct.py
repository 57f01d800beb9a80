"""Rows that differ: proved by hashes, and found out by sorting where hashes meet."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weftc
from weftc_runtime import RunError
from weftc_runtime.machines import conditions
from weftc_runtime.machines.conditions import are_distinct

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e300])


@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=12))
def test_rows_are_distinct_when_no_two_are_equal(rows: list[tuple[float, ...]]) -> None:
    found = are_distinct(torch.tensor(rows, dtype=torch.float64).reshape(len(rows), 3))
    assert found == (len(set(rows)) == len(rows))  # 0.0 == -0.0 for tuples, too


def test_hashes_that_meet_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.arange(12.0, dtype=torch.float64).reshape(6, 2)
    assert are_distinct(rows)
    monkeypatch.setattr(conditions, "_hashes", lambda part: torch.zeros(len(part), dtype=torch.int64))
    assert are_distinct(rows)
    assert not are_distinct(torch.cat([rows, rows[2:3]]))


def test_grids_do_not_meet() -> None:
    """Hashes of rows that differ in few bits differ: sorting stays rare."""
    grid = torch.cartesian_prod(*[torch.arange(10.0)] * 4).to(torch.float64)
    assert len(torch.unique(conditions._hashes(grid))) == len(grid)


def test_many_rows_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(5000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("weftc_runtime.exact.rows.ENTRIES", 300)
    assert are_distinct(rows)
    rows[4999] = rows[3]
    assert not are_distinct(rows)


def test_final_answers_are_refused_where_tokens_have_become_equal() -> None:
    """What is evaluated once more on the final state is held to the conditions of the file, as every step is."""
    text = "algorithm merged tokens i in points j in centers : k inputs x[i] : R^d, c[j] : R^d "
    text += "layer p[i] = x[i] then x[i] = mean[j] c[j] outputs p"
    inputs = {"x": [[0.0], [1.0], [3.0]], "c": [[0.0], [1.0]]}
    model = weftc.load(weftc.compile(text, {"d": 1, "k": 2}, erase="attention"))
    assert model(inputs, layers=1)["p"].tolist() == inputs["x"]
    with pytest.raises(RunError, match="pairwise distinct"):
        model.final(inputs, layers=1)
