"""`weftc verify`: what it accepts, what it says of right specs, and what it asks of examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from verifying import NEAREST, SMALL, edited
from weftc.compiling import checked_spec, compile
from weftc.core.errors import InputError
from weftc.verification.cases.examples import answers, settings
from weftc.verification.runs.runs import judge_of
from weftc.verification.verification import verify
from weftc_runtime.format.program import Condition


def test_a_model_file_is_judged_with_the_spec_in_it(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    compile(NEAREST, {"d": 1, "k": 2}, scores="dot").save(path)
    verdict = verify(path, cases=3)
    assert verdict.ok
    assert any(check.name == "examples, transformer" for check in verdict.checks), "its example fits this model"
    assert verify(str(path), cases=1, dtypes=["float64"]).ok


def test_a_model_is_judged_as_it_was_compiled() -> None:
    model = compile(NEAREST, {"d": 2, "k": 2})
    with pytest.raises(InputError, match="compiled with k = 2"):
        verify(model, dims={"k": 3})
    with pytest.raises(InputError, match="compiled without gamma"):
        verify(model, params={"gamma": 3.0})


def test_data_are_compared_on_and_fix_dimensions() -> None:
    verdict = verify(NEAREST, data={"x": np.arange(12.0).reshape(4, 3)}, dims={"k": 2}, cases=2, dtypes=["float64"])
    assert verdict.ok
    assert [c.name for c in verdict.rows if c.name.startswith("your data")] == [
        "your data (l2, float64)",
        "your data (dot, float64)",
    ]


def test_data_for_no_input_are_refused() -> None:
    with pytest.raises(InputError, match=r"no input z; its inputs are x, c"):
        verify(NEAREST, data={"z": np.zeros((2, 2))})


def test_progress_is_told_what_is_going_on() -> None:
    told: list[tuple[str, int, int | None]] = []
    verify(NEAREST, SMALL, cases=1, dtypes=["float64"], progress=lambda *one: told.append(one))
    words, done, totals = zip(*told, strict=True)
    assert (words[0], words[-1]) == ("examples", "done")
    assert "layers, dot, float64, case 1" in words
    assert list(done) == sorted(done)
    assert set(done) == set(range(done[-1] + 1))  # one after the other, none left out
    assert set(totals) == {done[-1]}


def test_a_wrong_example_is_caught_on_both_sides() -> None:
    verdict = verify(NEAREST.replace("  c = [1], [9]\n", "  c = [1], [8]\n"), SMALL, cases=1, dtypes=["float64"])
    failed = [check for check in verdict.checks if not check.passed]
    assert {check.name for check in failed} == {
        "examples, interpreter",
        "examples, transformer (l2)",
        "examples, transformer (dot)",
    }
    assert 'example 1 "by hand": c is [[1.], [9.]], the example says [[1.], [8.]]' in failed[0].detail


def test_about_means_one_unit_of_the_last_digit() -> None:
    text = NEAREST.replace("  c = [1], [9]\n", "  c ~ [1.01], [9.00]\n")
    (setting,) = settings(checked_spec(text))
    near, far = {"c": np.array([[1.0], [9.0]])}, {"c": np.array([[0.99], [9.0]])}
    assert answers(setting, near)[0].right
    assert not answers(setting, far)[0].right


def test_equal_means_up_to_rounding() -> None:
    (setting,) = settings(checked_spec(NEAREST))
    (answer,) = answers(setting, {"c": np.array([[1.0], [9.0 + 2e-14]])})
    assert answer.right
    (answer,) = answers(setting, {"c": np.array([[1.0], [9.0 + 4e-14]])})
    assert not answer.right


def test_conditions_are_stated_and_what_they_exclude_is_no_failure() -> None:
    model = compile(NEAREST, {"d": 1, "k": 2}, erase="attention")
    assert model.program.conditions
    verdict = verify(model, cases=10, dtypes=["float64"])
    assert verdict.ok, verdict.text()
    assert "pairwise distinct" in verdict.text().splitlines()[1]
    assert verdict.json()["conditions"] == list(verdict.conditions)
    found = [c for c in verdict.checks if c.name.startswith("layers")]
    assert [c.backend for c in found] == ["reference", "planned"]
    assert all("outside the conditions" in c.detail for c in found)


def test_only_equal_tokens_lie_outside_the_condition() -> None:
    model = compile(NEAREST, {"d": 1, "k": 2}, erase="attention")
    watched = judge_of(checked_spec(NEAREST), model, "float64").watched
    centers = np.array([[3.0], [3.0]])
    assert watched.is_outside({"x": np.array([[0.0], [1.0], [-0.0]]), "c": centers})
    assert not watched.is_outside({"x": np.array([[0.0], [1.0]]), "c": centers})


def test_the_objective_is_compared_on_every_case() -> None:
    good = compile("lloyd", {"d": 1, "k": 2})
    name = next(name for name in good.tensors if name.startswith("outputs") and name.endswith("l2.0.c"))
    for wrong in (-7.0, -1.5):
        bad = edited(good, name, np.asarray(wrong))
        verdict = verify(bad, cases=2, dtypes=["float64"])
        assert not verdict.ok
        assert "objective" in verdict.text()


def test_a_condition_that_no_case_meets_shows_nothing() -> None:
    model = compile("lloyd", {"d": 1, "k": 2}, members="offset")
    never = Condition("bounded", "points", ("x",), "no number is above 1e-300", 1e-300)
    bad = replace(model, program=replace(model.program, conditions=(never,)))
    verdict = verify(bad, cases=4, dtypes=["float64"])
    assert verdict.verdict == "not shown"
    assert "too few are left to show anything" in " ".join(verdict.text().split())


@pytest.mark.parametrize("erase", ["attention"])
def test_a_style_with_a_condition_is_judged_on_cases_that_meet_it(erase: str) -> None:
    assert verify(compile("lloyd", {"d": 1, "k": 2}, erase=erase), cases=12, dtypes=["float64"]).verdict == "proved"


def test_an_unrolled_model_gets_a_verdict_at_its_own_depth() -> None:
    made = compile("lloyd_split", {"d": 1, "k": 2}, weights="unrolled", layers=2)
    carry = np.array(made.tensors["layer.0.0.0.carry.points"])
    carry[1, 1] = 1.0  # y before the first layer is zero: nothing changes, but that is not proved
    assert verify(edited(made, "layer.0.0.0.carry.points", carry), cases=2).verdict == "tested"
    values = sorted(name for name in made.tensors if name.endswith(".v"))
    assert not verify(edited(made, values[0], 2 * np.asarray(made.tensors[values[0]])), cases=2).ok


@pytest.mark.parametrize(("sharpness", "near"), [(1e-6, False), (1.0, False), (1000.0, True)])
def test_a_softmax_too_warm_for_most_leads_is_not_near_the_spec(sharpness: float, near: bool) -> None:
    verdict = verify(compile("lloyd", {"d": 1, "k": 2}, hardmax="softmax", sharpness=sharpness), dtypes=["float64"])
    assert verdict.ok is near
    assert ("not near the spec" in verdict.text()) is not near
    assert verdict.line.startswith(f"proved up to eps = {verdict.eps:.2g} (" if near else "not shown")
