"""`weftc verify` can fail, for the right reason: models that somebody has edited."""

from __future__ import annotations

import numpy as np
import pytest

from agreement import default_dims
from verifying import NEAREST, edited, head_values, is_caught
from weftc.compiling import checked_spec, compile
from weftc.core.styles import CHOICES
from weftc.files.locate import names
from weftc.verification.cases.inputs import cases
from weftc.verification.cases.shrinking import shrunk
from weftc.verification.runs.runs import judge_of
from weftc.verification.verification import verify
from weftc_runtime.format.program import Attend


@pytest.mark.parametrize("scores", CHOICES["scores"])
@pytest.mark.parametrize("name", names(""))
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
    assert verdict.verdict == "refuted"
    failed, other = [check for check in verdict.checks if check.name.startswith("layers")]
    assert (failed.backend, other.backend) == ("reference", "planned")
    assert "layers (l2, float64) on both backends: layer 1, step 2, c, token " in " ".join(verdict.text().split())
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
