"""Verdicts: what checks add up to, as a value, as JSON and as text."""

from __future__ import annotations

import json

import numpy as np

from verifying import NEAREST, SMALL
from weft.evidence.verdict import Check, Verdict
from weft.evidence.verification import verify


def test_a_right_spec_is_proved_and_tested() -> None:
    verdict = verify(NEAREST, cases=5)
    assert verdict.ok
    assert verdict.verdict == "proved"
    kinds = {check.name.split(" (")[0] for check in verdict.checks}
    assert kinds == {"proof", "examples, interpreter", "examples, transformer", "layers", "whole runs", "large runs"}
    assert all(check.cases > 0 for check in verdict.checks)


def test_the_verdict_is_as_strong_as_its_weakest_check() -> None:
    proved = Check("a", "all inputs", 0, True, shows="proved")
    tested = Check("b", "some inputs", 3, True)
    failed = Check("c", "some inputs", 3, False, shows="proved")
    assert Verdict("t", (proved,)).verdict == "proved"
    assert Verdict("t", (proved, tested)).verdict == "tested"
    assert Verdict("t", (proved, failed)).verdict == "not shown"
    assert not Verdict("t", ()).ok


def test_json_is_plain_and_finite() -> None:
    verdict = Verdict("t", (Check("a", "x", 1, False, worst=np.inf, detail="why"),), seed=4)
    back = json.loads(json.dumps(verdict.json(), allow_nan=False))
    assert back["verdict"] == "not shown"
    assert back["checks"][0]["worst"] is None
    assert back["seed"] == 4


def test_text_is_a_table_with_reasons_below() -> None:
    verdict = Verdict("t", (Check("a", "x", 1, True), Check("b", "y", 2, False, 0.5, 1e-3, 2.0, "it went wrong")))
    lines = verdict.text().splitlines()
    assert lines[0] == "t: not shown"
    assert lines[2].startswith("ok  a")
    assert lines[3].startswith("NO  b")
    assert lines[3].split()[-3:] == ["0.5", "0.001", "2"]
    assert lines[-1] == "b: it went wrong"


def test_the_same_seed_gives_the_same_verdict() -> None:
    first, second = (verify(NEAREST, SMALL, cases=2, seed=7, dtypes=["float64"]) for _ in range(2))
    assert first.json() == second.json()
