"""`weft verify`: what it accepts, what it says, and above all that it can fail, for the right reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agreement import default_dims
from weft.compiling import checked_spec, compile
from weft.errors import InputError
from weft.evidence.condition import EPSILON, bounds, is_settled, tolerance
from weft.evidence.examples import answers, settings
from weft.evidence.forms import AttentionForm
from weft.evidence.inputs import FAMILIES, Case, cases, conform
from weft.evidence.layers import Judge
from weft.evidence.runs import Subject, judge_of, layers
from weft.evidence.shrinking import shrunk, smaller
from weft.evidence.stepwise import Stepwise
from weft.evidence.verdict import Check, Verdict
from weft.evidence.verification import verify
from weft.locate import names
from weft.lowering.styles import CHOICES
from weft.meaning.interpreter import Interpreter
from weft.syntax import Num
from weft_runtime import Checkpoint, RunError, load
from weft_runtime.ir import Attend

NEAREST = """algorithm nearest
tokens i in points, j in centers : k
inputs x[i] : R^d, c[j] : R^d
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  c[j] = mean[i] x[i] where y[i,j] else c[j]
outputs c, y
example "by hand"
  x = [0], [2]  c = [1], [9]  layers 1
  c = [1], [9]
"""
SMALL = {"d": 1, "k": 2}


# ---- verdicts --------------------------------------------------------------------------------------------------------


def test_a_right_spec_is_proved_and_tested() -> None:
    verdict = verify(NEAREST, cases=5)
    assert verdict.ok
    assert verdict.verdict == "proved"
    kinds = {check.name.split(" (")[0] for check in verdict.checks}
    assert kinds == {"proof", "examples, interpreter", "examples, transformer", "layers", "whole runs"}
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


# ---- targets ---------------------------------------------------------------------------------------------------------


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
    assert [c.name for c in verdict.checks if c.name.startswith("your data")] == [
        "your data (l2, float64)",
        "your data (dot, float64)",
    ]


def test_data_for_no_input_are_refused() -> None:
    with pytest.raises(InputError, match=r"no input z; its inputs are x, c"):
        verify(NEAREST, data={"z": np.zeros((2, 2))})


def test_progress_is_told_what_is_going_on() -> None:
    told: list[str] = []
    verify(NEAREST, SMALL, cases=1, dtypes=["float64"], progress=told.append)
    assert told[0] == "examples"
    assert "layers, dot, float64" in told


# ---- it can fail: specs ----------------------------------------------------------------------------------------------


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


# ---- it can fail: models ---------------------------------------------------------------------------------------------


def head_values(model: Checkpoint) -> list[str]:
    """The value matrices of all heads of the layer."""
    attends = [sub for step in model.program.layer for sub in step.sublayers if isinstance(sub, Attend)]
    return sorted({head.value for attend in attends for head in attend.heads if head.value})


def edited(model: Checkpoint, name: str, values: np.ndarray) -> Checkpoint:
    return replace(model, tensors={**model.tensors, name: values})


def is_caught(model: Checkpoint, count: int = 12) -> bool:
    checked = checked_spec(model.spec_text)
    judged = judge_of(checked, model, "float64")
    return any(judged.judge(case).divergence is not None for case in cases(checked, model.dims, count))


@pytest.mark.parametrize("scores", CHOICES["scores"])
@pytest.mark.parametrize("name", names())
def test_edited_values_are_caught(name: str, scores: str) -> None:
    checked = checked_spec(name)
    model = compile(checked, default_dims(checked), scores=scores)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    for tensor, factor in zip(head_values(model)[:2], (-1.0, 1.001), strict=False):
        values = np.asarray(model.tensors[tensor]).copy()
        at = tuple(rng.choice(np.argwhere(values != 0)))
        values[at] *= factor
        assert is_caught(edited(model, tensor, values)), f"{tensor}{list(at)} times {factor}"


@pytest.mark.parametrize("scores", CHOICES["scores"])
def test_swapped_columns_and_nudged_scores_are_caught(scores: str) -> None:
    model = compile(NEAREST, {"d": 2, "k": 3}, scores=scores)  # type: ignore[arg-type]
    (first, *_) = head_values(model)
    values = np.asarray(model.tensors[first])
    rows = np.flatnonzero(values.any(axis=1))[:2]
    swapped = values.copy()
    swapped[rows] = swapped[rows[::-1]]
    assert is_caught(edited(model, first, swapped))
    heads = [h for step in model.program.layer for s in step.sublayers if isinstance(s, Attend) for h in s.heads]
    part = heads[0].score.parts[0]
    keys = np.asarray(model.tensors[part.k]).copy()
    keys[tuple(np.argwhere(keys != 0)[0])] *= 1 + 1e-6  # decisions change only near ties: the adversarial cases see it
    assert is_caught(edited(model, part.k, keys), 40)


def test_a_failure_names_layer_field_and_token_with_a_small_input() -> None:
    model = compile(NEAREST, {"d": 2, "k": 3})
    tensor = head_values(model)[1]
    old = np.asarray(model.tensors[tensor]).copy()
    old[tuple(np.argwhere(old != 0)[0])] *= 1.5
    verdict = verify(edited(model, tensor, old), cases=10, dtypes=["float64"])
    assert verdict.verdict == "not shown"
    (failed,) = [check for check in verdict.checks if check.name.startswith("layers")]
    assert failed.detail.startswith("layer 1, step 2, c, token ")
    assert "bit for bit" in failed.detail
    assert failed.worst > 0
    shown = failed.detail[failed.detail.index("  x = ") : failed.detail.index("  c = ")]
    assert shown.count("[") <= 3, "one or two points are enough to show it"


def test_equivalent_weights_are_legitimate() -> None:
    model = compile(NEAREST, {"d": 2, "k": 3})
    part = next(s for s in model.program.layer[0].sublayers if isinstance(s, Attend)).heads[0].score.parts[0]
    assert part.kind == "l2"
    assert part.coefficient is not None
    louder = edited(model, part.coefficient, np.asarray(model.tensors[part.coefficient]) * 4.0)  # the order is the same
    assert verify(louder, cases=10, dtypes=["float64"]).ok


def test_a_crash_of_the_runtime_is_evidence_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = checked_spec(NEAREST)
    judged = judge_of(checked, compile(checked, {"d": 1, "k": 2}), "float64")

    def broken(*args: object, **options: object) -> None:
        raise IndexError("deep inside")

    monkeypatch.setattr(judged.watched.model, "trace", broken)
    (case,) = cases(checked, {"d": 1, "k": 2}, 1)
    assert "crashed with IndexError: deep inside" in str(judged.judge(case).divergence)


# ---- values that do not exist ----------------------------------------------------------------------------------------

LOGARITHM = """algorithm logs
tokens i in points
inputs x[i] : R
layer
  y[i] = log x[i]
outputs y
"""


def one_case(**inputs: list[float]) -> Case:
    return Case("by hand", {name: np.array(values) for name, values in inputs.items()}, layers=1)


def logs() -> Judge:
    checked = checked_spec(LOGARITHM)
    return judge_of(checked, compile(checked), "float64")


def test_no_value_on_either_side_is_agreement() -> None:
    outcome = logs().judge(one_case(x=[1.0, -1.0]))
    assert outcome.refused
    assert outcome.divergence is None


def test_an_output_too_large_for_the_precision_is_refused_and_that_is_agreement() -> None:
    text = NEAREST.replace("outputs c, y", "outputs c, big[i] = |x[i]|^2").split("example")[0]
    case = Case("by hand", {"x": np.array([[3e19]], np.float32), "c": np.ones((2, 1), np.float32)}, layers=1)
    checkpoint = compile(text, SMALL)
    with pytest.raises(RunError, match="output big does not fit float32; scale the inputs down"):
        load(checkpoint, torch.float32)(dict(case.inputs), layers=1)
    outcome = judge_of(checked_spec(text), checkpoint, "float32").judge(case, answers=True)
    assert outcome.divergence is None
    assert outcome.refused
    wide = Case("by hand", {name: values.astype(np.float64) for name, values in case.inputs.items()}, layers=1)
    assert not judge_of(checked_spec(text), checkpoint, "float64").judge(wide, answers=True).refused


def test_no_value_on_one_side_is_a_failure() -> None:
    judged = logs()
    judged.whole = Stepwise(checked_spec(LOGARITHM.replace("log x[i]", "x[i] + 1")), {}, {})
    outcome = judged.judge(one_case(x=[1.0, -1.0]))
    assert not outcome.refused
    assert "only one side has a value" in str(outcome.divergence)


def test_a_check_without_a_single_comparison_does_not_pass() -> None:
    checked = checked_spec(LOGARITHM.replace("log x[i]", "log(-|x[i]|^2)"))
    check = layers(checked, [Subject(compile(checked))], "l2", "float64", 3, 0)
    assert not check.passed
    assert "no step could be compared" in check.detail


# ---- kappa -----------------------------------------------------------------------------------------------------------


def test_kappa_is_one_for_values_that_only_round() -> None:
    allowed = tolerance(EPSILON / 2, np.array([2.0, -3.0]), np.float64)
    assert allowed.kappa == 1.0
    assert allowed.allowed == pytest.approx(16 * EPSILON * 3.0)


def test_kappa_grows_with_the_range_of_the_scores() -> None:
    text = """algorithm soft
tokens i in points, j in centers : k
inputs x[i] : R^d, c[j] : R^d
param gamma = 1 > 0
layer
  y[i,j] = softmax[j] -gamma * |x[i] - c[j]|^2
outputs y
"""
    checked = checked_spec(text)
    (equation,) = checked.spec.steps[0].equations
    fields = {"x": np.array([[1.0]]), "c": np.array([[0.0], [2.5]])}
    kappas = []
    for gamma in (1e-3, 10.0, 100.0):
        world = Stepwise(checked, {"d": 1, "k": 2}, {"gamma": gamma}).world(fields)
        kappas.append(tolerance(bounds(world, (equation,))["y"], np.array([1.0]), np.float64).kappa)
    small, middle, large = kappas
    assert 1 <= small < 4
    assert small < middle <= 1 + 10.0 * (1.5**2 - 1), "the contract: 1 + gamma * range of distances"
    assert large > middle or large == 1.0, "at last the other weight is zero to the last bit"


def test_float32_is_held_to_its_own_epsilon() -> None:
    double, single = (tolerance(0.0, np.array([1.0]), dtype) for dtype in (np.float64, np.float32))
    assert single.allowed / double.allowed == pytest.approx(2.0**29)


@pytest.mark.parametrize(
    ("equation", "settled"),
    [
        ("y[i,j] = argmin[j] |x[i] - c[j]|^2", True),
        ("y[i,j] = softmax[j] <x[i], c[j]>", False),
        ("c[j] = mean[i] x[i] where |x[i]|^2 > 1 else c[j]", True),
        ("c[j] = sum[i] argmin[i](|x[i] - c[j]|^2) * x[i]", True),
        ("c[j] = mean[i] x[i] by lowest[i](|x[i] - c[j]|^2, 2)", True),
        ("c[j] = mean[i] x[i] weighted exp(<x[i], c[j]>)", False),
        ("c[j] = 0.5 * c[j]", False),
        ("c[j] = mean[i] 2 * x[i] where |x[i]|^2 > 1 else c[j]", False),
    ],
)
def test_what_must_agree_bit_for_bit(equation: str, settled: bool) -> None:
    head = "algorithm t\ntokens i in points, j in centers : k\ninputs x[i] : R^d, c[j] : R^d\nlayer\n  "
    checked = checked_spec(head + equation + "\noutputs c\n")
    assert is_settled(checked, checked.spec.steps[0].equations[0].body) is settled


def test_attention_form_keeps_distances_in_scores_and_splits_values() -> None:
    text = """algorithm t
tokens i, l in points
inputs x[i] : R^d
layer
  a[i] = sum[l] softmax[l](-|x[i] - x[l]|^2) * |x[i] - x[l]|^2
outputs a
"""
    checked = checked_spec(text)
    (equation,) = checked.spec.steps[0].equations
    (whole,) = AttentionForm(checked, {"d": 2}, lifted=False, centred=True).equations((equation,))
    (lifted,) = AttentionForm(checked, {"d": 2}, lifted=True, centred=False).equations((equation,))
    assert str(whole.body).count("Square(") == 3, "three products, each weighted by the distance as it is"
    assert str(whole.body).count("(centre 2 of points)") > 0
    assert "Square(" not in str(lifted.body)
    assert "centre" not in str(lifted.body)


# ---- cases -----------------------------------------------------------------------------------------------------------

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


def test_shrinking_ends_with_a_case_that_still_fails() -> None:
    checked = checked_spec(NEAREST)
    model = compile(checked, {"d": 2, "k": 2})
    tensor = head_values(model)[1]
    judged = judge_of(checked, edited(model, tensor, np.asarray(model.tensors[tensor]) * 3.0), "float64")
    case = next(c for c in cases(checked, {"d": 2, "k": 2}, 30) if judged.judge(c).divergence is not None)
    small, why = shrunk(judged, case)
    assert judged.judge(small).divergence == why
    assert small.layers == 1
    assert small.tokens <= case.tokens


def test_literals_count_as_settled() -> None:
    checked = checked_spec(NEAREST)
    assert is_settled(checked, Num(checked.spec.span, 1.0))


def test_conditions_are_stated_and_what_they_exclude_is_no_failure() -> None:
    model = compile(NEAREST, {"d": 1, "k": 2}, erase="attention")
    assert model.program.conditions
    verdict = verify(model, cases=10, dtypes=["float64"])
    assert verdict.ok, verdict.text()
    assert "pairwise distinct" in verdict.text().splitlines()[1]
    assert verdict.json()["conditions"] == list(verdict.conditions)
    (check,) = [c for c in verdict.checks if c.name.startswith("layers")]
    assert "outside the conditions" in check.detail


def test_only_equal_tokens_lie_outside_the_condition() -> None:
    model = compile(NEAREST, {"d": 1, "k": 2}, erase="attention")
    watched = judge_of(checked_spec(NEAREST), model, "float64").watched
    centers = np.array([[3.0], [3.0]])
    assert watched.is_outside({"x": np.array([[0.0], [1.0], [-0.0]]), "c": centers})
    assert not watched.is_outside({"x": np.array([[0.0], [1.0]]), "c": centers})
