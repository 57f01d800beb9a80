"""Asserting that a model agrees with the interpreter under the numeric contract, with a small counterexample if not."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from weftc.compiling import checked_spec, compile
from weftc.core.source import Source
from weftc.core.types import Checked
from weftc.verification.cases.inputs import Case
from weftc.verification.cases.shrinking import shrunk, written
from weftc.verification.runs.runs import judge_of
from weftc.verification.steps.comparing import StepOutcome
from weftc.verification.steps.layers import Judge

INVENTIONS = Path(__file__).parent / "inventions"


@cache
def invention(name: str) -> Checked:
    """A spec that exists only in the tests."""
    return checked_spec(Source(f"{name}.weft", (INVENTIONS / f"{name}.weft").read_text(encoding="utf-8")))


def default_dims(checked: Checked, width: int = 2, count: int = 3) -> dict[str, int]:
    """A size for every dimension: vectors of `width`, sets of `count`."""
    counts = {size for size in checked.sets.values() if isinstance(size, str)}
    return {name: count if name in counts else width for name in checked.dims}


def judge(
    checked: Checked,
    dims: dict[str, int],
    scores: str = "l2",
    dtype: str = "float64",
    backend: str = "auto",
    **styles: Any,
) -> Judge:
    """The compiled spec, ready to be compared with its meaning."""
    return judge_of(checked, compile(checked, dims, scores=scores, **styles), dtype, backend)  # type: ignore[arg-type]


def assert_agrees(judge: Judge, cases: Iterable[Case], answers: bool = False) -> list[StepOutcome]:
    """Every case, every step, every field; at least one step must have been compared."""
    outcomes = []
    for case in cases:
        outcome = judge.judge(case, answers)
        if outcome.divergence is not None:
            small, why = shrunk(judge, case)
            raise AssertionError(f"{why}\n{small.family}, {small.layers} layers, seed {small.seed}\n{written(small)}")
        outcomes.append(outcome)
    assert sum(outcome.steps for outcome in outcomes) > 0, "no step could be compared"
    return outcomes
