"""Verdicts: what checks add up to, as a value, as JSON and as text."""

from __future__ import annotations

import json

import numpy as np

from verifying import NEAREST, SMALL
from weftc.compiling import compile
from weftc.verification.verdict import Check, Verdict, merged
from weftc.verification.verification import verify

BACKENDS = (("reference", 1e-4), ("planned", 5e-4))


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


def test_the_first_line_says_what_is_known_of_rounding() -> None:
    proof = Check("proof (l2)", "all inputs", 1, True, shows="proved", proof=True)
    near = Check("proof (l2)", "all inputs", 1, True, shows="proved up to eps", proof=True, eps=1e-15)
    seen = Check("layers (l2, float64)", "8 steps", 2, True, relative=3e-15)
    sure = Check("your data (l2, float64)", "2 steps", 1, True, relative=1e-16, certified=4e-16)
    single = Check("layers (l2, float32)", "8 steps", 2, True, relative=3e-8)
    lines = {
        "proved (exact arithmetic); rounding not bounded": Verdict("t", (proof,)),
        "proved (exact arithmetic); rounding measured to 3e-15": Verdict("t", (proof, seen, single)),
        "proved (exact arithmetic); rounding certified to 4e-16 on your data": Verdict("t", (proof, seen, sure)),
        "proved up to eps = 1e-15 (exact arithmetic); rounding measured to 3e-15": Verdict("t", (near, seen)),
        "tested; rounding measured to 3e-15": Verdict("t", (seen,)),
        "not shown": Verdict("t", (proof, Check("a", "x", 1, False))),
    }
    assert {line: verdict.line for line, verdict in lines.items()} == {line: line for line in lines}
    for line, verdict in lines.items():
        assert verdict.text().splitlines()[0] == f"t: {line}"
        assert verdict.json()["line"] == line
    assert Verdict("t", (seen,)).json()["rounding"] == {"kind": "measured", "bound": 3e-15}


def test_what_is_refuted_is_never_ok() -> None:
    refuted = Check("proof (l2)", "all inputs", 1, False, shows="refuted", proof=True)
    assert refuted.strength == "refuted"
    verdict = Verdict("t", (refuted, Check("layers (l2, float64)", "8 steps", 2, True)))
    assert (verdict.verdict, verdict.line, verdict.ok) == ("refuted", "refuted", False)


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


def test_what_holds_on_both_backends_is_one_line() -> None:
    both = [Check("layers (l2, float64)", "8 steps", 2, True, worst, 1e-3, backend=b) for b, worst in BACKENDS]
    (row,) = merged(both)
    assert row.compared == "8 steps on both backends"
    assert row.worst == 5e-4, "the one nearer to its limit"
    text = Verdict("t", tuple(both)).text()
    assert text.count("layers (l2, float64)") == 1
    assert "both backends: the reference," in text


def test_a_failure_names_its_backend() -> None:
    fine, broken = (
        Check("layers (l2, float64)", "8 steps", 2, ok, backend=b, detail="" if ok else "it went wrong")
        for b, ok in (("reference", True), ("planned", False))
    )
    verdict = Verdict("t", (fine, broken))
    assert [check.compared for check in verdict.rows] == ["8 steps on reference", "8 steps on planned"]
    lines = verdict.text().splitlines()
    assert lines[3].startswith("NO  layers (l2, float64)  8 steps on planned")
    assert lines[-1] == "layers (l2, float64) on planned: it went wrong"
    assert [check["backend"] for check in verdict.json()["checks"]] == ["reference", "planned"]


def test_rows_that_say_the_same_of_both_backends_are_named_once() -> None:
    checks = [Check("a", "x", 1, True, backend=b, detail="why") for b, _ in BACKENDS]
    assert Verdict("t", tuple(checks)).text().splitlines()[-1] == "a on both backends: why"


def test_every_style_and_precision_is_judged_on_every_backend() -> None:
    verdict = verify(NEAREST, SMALL, cases=1)
    judged = {(check.name, check.backend) for check in verdict.checks if check.name.startswith("layers")}
    names = {name for name, _ in judged}
    assert {"layers (l2, float64)", "layers (dot, float32)", "layers (weights=unrolled, float64)"} <= names
    assert judged == {(name, backend) for name in names for backend in ("reference", "planned")}
    one = verify(NEAREST, SMALL, cases=1, dtypes=["float64"], backend="reference")
    assert {check.backend for check in one.checks} == {"", "reference"}


def test_what_the_fast_backend_does_not_cover_is_said() -> None:
    verdict = verify(compile("sinkhorn_dual", {"d": 1}, scores="dot", null="token"), cases=1, dtypes=["float64"])
    assert verdict.ok
    assert {check.backend for check in verdict.checks} == {"", "reference"}
    assert "the planned backend does not run this: stream pairs has a null token" in " ".join(verdict.text().split())
