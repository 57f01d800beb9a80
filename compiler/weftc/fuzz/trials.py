"""A spec, sizes, a style and a case -> what happened: agreement, a refusal, or a failure with its kind.

refused    the lowering, or a style, says that it has no attention form; fine, and counted
failed     a crash anywhere, or a model that differs from the interpreter by more than the contract allows
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from weftc.compiling import compile
from weftc.core.errors import InputError, SpecError, WeftError
from weftc.core.styles import CHOICES
from weftc.core.types import Checked
from weftc.fuzz.specs import Drawn
from weftc.verification.cases.inputs import FAMILIES, Case, cases
from weftc.verification.runs.runs import judge_of
from weftc.verification.steps.layers import Judge
from weftc_runtime import RunError

Styles = Mapping[str, str]
BACKENDS = ("reference", "planned")
DEPTH = 2  # layers of a model whose weights are unrolled


@dataclass(frozen=True, slots=True)
class Trial:
    """Everything that is needed to see one comparison again."""

    checked: Checked
    dims: Mapping[str, int]
    styles: Styles
    dtype: str
    case: Case
    backend: str = "reference"

    @property
    def text(self) -> str:
        return self.checked.spec.source.text


@dataclass(frozen=True, slots=True)
class TrialFailure:
    """What went wrong. `kind` and `where` tell one fault from another while a case is made smaller."""

    kind: str  # crash | differs | one-sided
    where: str  # the exception, or the part of a run
    told: str


@dataclass(slots=True)
class TrialCounts:
    """What a number of trials came to."""

    specs: int = 0
    refused: int = 0  # specs that no style lowers
    styles: int = 0  # models compiled
    fast: int = 0  # of these: run by the planned backend too
    inapplicable: int = 0  # styles refused for a spec that lowers in another
    cases: int = 0
    steps: int = 0
    undecided: int = 0
    no_value: int = 0  # cases refused by both sides
    reasons: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        share = 100 * self.refused / self.specs if self.specs else 0
        return (
            f"{self.specs} specs, {self.refused} refused by the lowering ({share:.0f} %); {self.styles} models "
            f"({self.fast} also on the planned backend), {self.inapplicable} styles not applicable; "
            f"{self.cases} cases, {self.steps} steps compared, "
            f"{self.no_value} cases without a value on either side, {self.undecided} decisions too close for float64"
        )


def styles_for(rng: Random) -> Iterator[dict[str, str]]:
    """The styles a spec is compiled in: both kinds of scores, and one combination of the others."""
    yield {}
    yield {"scores": "dot"}
    combined = {style: rng.choice(values) for style, values in CHOICES.items() if rng.random() < 0.4}
    if combined:
        yield combined


def trials(
    drawn: Drawn, seed: int, number: int, tally: TrialCounts, count: int = 3
) -> Iterator[tuple[Trial, TrialFailure]]:
    """Compiles a spec in several styles, compares on several cases, and gives what fails."""
    rng = Random(f"trials {seed}/{number}")
    tally.specs += 1
    lowered = 0
    for styles in styles_for(rng):
        dtype = "float32" if rng.random() < 0.25 else "float64"
        given = list(_cases(drawn, rng, dtype, count))
        for backend in BACKENDS:
            judge, failure = prepared(drawn.checked, drawn.dims, styles, dtype, backend)
            if failure is not None:
                yield Trial(drawn.checked, drawn.dims, styles, dtype, given[0], backend), failure
                break
            if judge is None:
                tally.inapplicable += backend == BACKENDS[0]
                break
            lowered += 1
            tally.styles += backend == BACKENDS[0]
            tally.fast += backend != BACKENDS[0]
            for case in given:
                found = judged(judge, case, tally, answers=case is given[0])
                if found is not None:
                    yield Trial(drawn.checked, drawn.dims, styles, dtype, case, backend), found
                    break
    if not lowered:
        tally.refused += 1
        tally.inapplicable -= 1


def _cases(drawn: Drawn, rng: Random, dtype: str, count: int) -> Iterator[Case]:
    first = rng.randrange(3 * len(FAMILIES))
    yield from cases(drawn.checked, drawn.dims, count, rng.randrange(2**31), np.dtype(dtype), first=first)


def prepared(
    checked: Checked, dims: Mapping[str, int], styles: Styles, dtype: str, backend: str
) -> tuple[Judge | None, TrialFailure | None]:
    """A judge of the compiled spec; None where it is refused, or not for this backend; or a failure of the compiler."""
    depth: dict[str, Any] = {"layers": DEPTH} if styles.get("weights") == "unrolled" else {}
    try:
        made = compile(checked, dims, **styles, **depth)  # type: ignore[arg-type]
        judge = judge_of(checked, made, dtype, backend)
        if backend != BACKENDS[0]:
            judge.watched.model.plan()
        return judge, None
    except (SpecError, InputError):
        return None, None
    except RunError as error:
        return None, None if backend != BACKENDS[0] else _crash("compile", error)
    except Exception as error:  # whatever the compiler lets out is its fault
        return None, _crash("compile", error)


def judged(judge: Judge, case: Case, tally: TrialCounts | None = None, answers: bool = True) -> TrialFailure | None:
    """What comparing on one case shows; with `answers` also what is asked for after a run."""
    try:
        outcome = judge.judge(case, answers)
    except WeftError as error:
        return TrialFailure("crash", "interpreter", str(error))
    except Exception as error:
        return _crash("interpreter", error)
    if tally is not None:
        tally.cases += 1
        tally.steps += outcome.steps
        tally.undecided += outcome.undecided
        tally.no_value += outcome.refused
    found = outcome.divergence
    if found is None:
        return None
    if found.got.startswith("crashed"):
        return TrialFailure("crash", "runtime", str(found))
    if "only one side" in found.why:
        side = "the model refuses" if found.got.startswith("an error") else "the interpreter refuses"
        return TrialFailure("one-sided", side, str(found))
    return TrialFailure("differs", "bit for bit" if "bit for bit" in found.why else "in value", str(found))


def again(trial: Trial) -> TrialFailure | None:
    """The same comparison once more."""
    judge, failure = prepared(trial.checked, trial.dims, trial.styles, trial.dtype, trial.backend)
    return failure if judge is None else judged(judge, trial.case)


def _crash(where: str, error: Exception) -> TrialFailure:
    return TrialFailure("crash", f"{where}: {type(error).__name__}", f"{type(error).__name__}: {error}")
