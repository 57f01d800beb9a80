"""Rows settled by tier, layer by layer: in the report of a run, in verdicts, as text and as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weftc
from verifying import NEAREST
from weftc.verification.verdict import Check, SettledRows, Verdict
from weftc_runtime.data.results import Tiers, together


@pytest.mark.parametrize("backend", ["reference", "planned"])
def test_a_run_reports_every_layer(backend: str) -> None:
    model = weftc.load(weftc.compile(NEAREST, {"d": 1, "k": 2}), backend=backend)
    x = np.array([[0.0], [1.0], [2.0], [7.0]])
    model(x=x, c=[[0.0], [2.0]], layers=3)
    layers = model.report.by_layer
    assert len(layers) == 3
    assert together(layers) == model.report.total
    assert all(one.fast + one.bound + one.exact >= 4 for one in layers), "four points choose in every layer"


def test_exact_rows_are_counted_in_the_layer_that_met_them() -> None:
    model = weftc.load(weftc.compile(NEAREST, {"d": 1, "k": 2}, scores="dot"), backend="reference")
    third = 1 / 3
    model(x=[[-1.0], [third], [9.0]], c=[[0.0], [2 * third]], layers=2)  # the tie is gone once the centers have moved
    first, second = model.report.by_layer
    assert first.exact > second.exact == 0


def test_counts_are_differences() -> None:
    assert Tiers(5, 3, 1).since(Tiers(2, 3, 0)) == Tiers(3, 0, 1)
    assert together([]) == Tiers()


def test_a_verdict_has_a_table_of_layers() -> None:
    verdict = weftc.verify(weftc.compile(NEAREST, {"d": 1, "k": 2}), cases=8, dtypes=("float64",))
    checks = {(check.name, check.backend): check for check in verdict.checks}
    rows = checks["layers (l2, float64)", "reference"].settled
    fast = checks["layers (l2, float64)", "planned"].settled
    assert [row.float64 + row.exact for row in rows] == [row.fast + row.float64 + row.exact for row in fast]
    assert [row.layer for row in rows] == [1, 2, 3]
    assert all(row.float64 > 0 and row.undecided == 0 for row in rows)
    assert sum(row.exact for row in rows) > 0, "near-ties are among the cases"
    back = json.loads(json.dumps(verdict.json()))
    named = [check for check in back["checks"] if check["name"] == "layers (l2, float64)"]
    (listed,) = [check["settled"] for check in named if check["backend"] == "reference"]
    assert listed[0] == {"layer": 1, "float64": rows[0].float64, "exact": rows[0].exact, "undecided": 0, "fast": 0}


def test_the_table_prefers_the_users_data() -> None:
    own = Check("layers (l2, float64)", "x", 1, True, settled=(SettledRows(1, 6, 2, 0),))
    data = Check(
        "your data (l2, float64)", "x", 1, True, settled=(SettledRows(1, 100, 0, 3), SettledRows(2, 101, 2, 0, 7))
    )
    lines = Verdict("t", (own, data)).text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("rows of decisions"))
    assert lines[start].split()[-5:] == ["fast", "in", "float64", "exactly", "undecided"]
    assert lines[start + 1].split()[-4:] == ["0", "100", "0", "3"]
    assert lines[start + 2].split() == ["2", "7", "101", "2", "0"]
    assert not any("layers (l2" in line for line in lines[start:])


def test_specs_that_decide_nothing_have_no_table() -> None:
    assert "rows of decisions" not in Verdict("t", (Check("layers (l2, float64)", "x", 1, True),)).text()
