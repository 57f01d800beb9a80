"""Cases -> checks: runs models and interpreter, adds up what is seen, and makes small what fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.compiling import at_temperature, compile
from weftc.core.errors import WeftError
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.interpreter.interpreter import Interpreter
from weftc.language.bind import bind
from weftc.verification.cases.examples import Setting, answers, settings
from weftc.verification.cases.inputs import Case, cases
from weftc.verification.cases.shrinking import shrunk, written
from weftc.verification.judged import JudgedModel
from weftc.verification.runs.backends import Runners
from weftc.verification.steps.comparing import Observation, StepOutcome
from weftc.verification.steps.layers import Judge
from weftc.verification.steps.models import columns, plain
from weftc.verification.verdict import Check, Failure, SettledRows
from weftc_runtime import Checkpoint, WeftRuntimeError, load

Array = NDArray[Any]
SINGLES = 0.4  # of the cases, in float32: it stores what float64 computes
MORE = 12  # cases to try if nothing could be compared on those asked for
ORDINARY = "random"  # the family of a case that stands in for one outside the conditions of a model


# ---- examples --------------------------------------------------------------------------------------------------------


def examples(checked: Checked, model: Checkpoint | None, styles: Sequence[str], backend: str = "auto") -> list[Check]:
    """The example blocks by the interpreter, and by the model (where they fit it) or by one compiled for each."""
    ready = settings(checked)
    found = [_examples("examples, interpreter", [(s, _interpreted(checked, s)) for s in ready])]
    if model is not None and model.program.tempered:
        return found  # near the examples; how near is certified
    if model is not None:
        fitting = [s for s in ready if _fits(checked, model, s)]
        if fitting:
            found.append(_examples("examples, transformer", [(s, _run(model, s, backend)) for s in fitting]))
        return found
    for style in styles:
        models = [compile(checked, s.dims, s.params, scores=style) for s in ready]  # type: ignore[arg-type]
        runs = [(setting, _run(made, setting, backend)) for made, setting in zip(models, ready, strict=True)]
        found.append(_examples(f"examples, transformer ({style})", runs))
    return found


def _fits(checked: Checked, model: Checkpoint, setting: Setting) -> bool:
    """Whether an example is about the dimensions, parameters and layers that a model was compiled for."""
    if model.program.unrolled and setting.layers != model.program.layers:
        return False
    mine = dict(bind(checked, model.dims, model.params).params)
    return dict(setting.dims) == dict(model.dims) and dict(setting.params) == mine


def _interpreted(checked: Checked, setting: Setting) -> Mapping[str, Any] | str:
    try:
        made = Interpreter(checked, setting.dims, setting.params)
        return made.run(setting.inputs, setting.layers, noise=setting.noise or None)
    except WeftError as error:
        return str(error)


def _run(model: Checkpoint, setting: Setting, backend: str) -> Mapping[str, Any] | str:
    try:
        return dict(
            load(model, backend=backend)(dict(setting.inputs), layers=setting.layers, noise=columns(setting.noise))
        )
    except WeftRuntimeError as error:
        return str(error)
    except Exception as error:  # a fault of the runtime: evidence against the model, not against the caller
        return f"the run crashed with {type(error).__name__}: {error}"


def _examples(name: str, runs: Sequence[tuple[Setting, Mapping[str, Any] | str]]) -> Check:
    worst, detail = (0.0, 1.0), ""
    for setting, outputs in runs:
        if isinstance(outputs, str):
            detail = detail or f"{setting.title}: {outputs}"
            continue
        for answer in answers(setting, {key: plain(value) for key, value in outputs.items()}):
            if answer.error * worst[1] >= worst[0] * answer.allowed:
                worst = (answer.error, answer.allowed)
            if not answer.right:
                detail = detail or f"{setting.title}: {answer}"
    return Check(name, "outputs as written", len(runs), not detail, worst[0], worst[1], detail=detail)


# ---- layers ----------------------------------------------------------------------------------------------------------


def layers(
    checked: Checked,
    subjects: Sequence[JudgedModel],
    style: str,
    dtype: str,
    count: int,
    seed: int,
    backend: str = "reference",
    say: Callable[[str], None] = lambda text: None,
    runners: Runners | None = None,
) -> Check:
    """Every step of every layer on generated cases, by one backend."""
    name = f"layers ({style}, {dtype})"
    outcomes: list[StepOutcome] = []
    for subject in subjects:
        judge = judge_of(checked, subject.checkpoint, dtype, backend, runners)
        many = max(1, round(count * subject.share * (1.0 if dtype == "float64" else SINGLES)))
        first = len(outcomes)
        generated = cases(checked, subject.checkpoint.dims, many + MORE, seed, np.dtype(dtype), first=first)
        for case in generated:
            if len(outcomes) >= first + many and any(one.steps > 0 and not one.instead for one in outcomes):
                break  # further cases are for specs that have no value on the first ones
            say(f"case {len(outcomes) + 1}")
            outcomes.append(judge.judge(case))
            if outcomes[-1].outside:
                number = len(outcomes)
                (case,) = cases(
                    checked, subject.checkpoint.dims, 1, seed + 1, np.dtype(dtype), first=number, families=(ORDINARY,)
                )
                outcomes.append(judge.judge(case))
            if outcomes[-1].divergence is not None:
                return failed(name, judge, case, outcomes)
    return passed(name, outcomes, backend)


def on_data(
    checked: Checked,
    model: Checkpoint,
    style: str,
    dtype: str,
    data: Mapping[str, Any],
    seed: int,
    backend: str = "reference",
    runners: Runners | None = None,
) -> Check:
    """The user's own data, on one backend; inputs that are missing start by `init`, or are drawn."""
    name = f"your data ({style}, {dtype})"
    judge = judge_of(checked, model, dtype, backend, runners)
    given = {key: np.asarray(value) for key, value in data.items()}
    starting = {f.target.name for f in checked.spec.inputs if f.init is not None}
    (case,) = cases(checked, model.dims, 1, seed, np.dtype(dtype), given)
    inputs = {key: value for key, value in case.inputs.items() if key in given or key not in starting}
    case = replace(case, inputs=inputs, family="your data", layers=3, noise={})
    outcome = judge.judge(case, certify=True)
    if outcome.divergence:
        return failed(name, judge, case, [outcome])
    check = passed(name, [outcome], backend)
    lost = [line for line in judge.watched.model.report.warnings if line.startswith("precision")]
    if lost:
        return replace(check, passed=False, detail="; ".join([*lost, check.detail] if check.detail else lost))
    sure = outcome.steps > 0 and not outcome.undecided and np.isfinite(outcome.certified)
    return replace(check, certified=outcome.certified if sure else None)


def judge_of(
    checked: Checked, model: Checkpoint, dtype: str, backend: str = "auto", runners: Runners | None = None
) -> Judge:
    """A judge of a model in one precision; at finite temperature the spec is that of its style."""
    meant = at_temperature(checked, Styles.read(model.program.options))
    return Judge(meant, model.dims, model.params, (runners or Runners()).model(model, dtype, backend))


def passed(name: str, outcomes: Sequence[StepOutcome], backend: str) -> Check:
    """What cases show on which nothing diverged; on the reference, if that is where all of them ran in the end."""
    steps = sum(outcome.steps for outcome in outcomes)
    refused = sum(outcome.refused for outcome in outcomes)
    undecided = sum(outcome.undecided for outcome in outcomes)
    worst = _nearest([seen for outcome in outcomes for seen in outcome.seen])
    notes = []
    if refused:
        edges = sum(outcome.edges for outcome in outcomes)
        inside = f" ({edges} of them up to the precision of a field that is zero)" if edges else ""
        notes.append(f"{refused} of {len(outcomes)} cases have no value on either side{inside}")
    outside = sum(outcome.outside for outcome in outcomes)
    if outside:
        most = 2 * outside > len(outcomes)
        notes.append(
            f"{outside} of {len(outcomes)} cases lie outside the conditions, and the model refused them"
            + ": too few are left to show anything" * most
        )
    if undecided:
        notes.append(f"{undecided} decisions are closer than float64 can tell, on scores that are not rational")
    unbounded = sum(outcome.unbounded for outcome in outcomes)
    if unbounded:
        notes.append(f"{unbounded} values are computed where the spec has no finite condition")
    for reason in dict.fromkeys(outcome.instead for outcome in outcomes if outcome.instead):
        many = sum(outcome.instead == reason for outcome in outcomes)
        notes.append(f"{many} of {len(outcomes)} cases ran on the reference instead: {reason}")
    if not steps:
        notes.append("no step could be compared")
    ran = backend if any(one.steps > 0 and not one.instead for one in outcomes) or not steps else "reference"
    return Check(
        name,
        f"{steps} steps",
        len(outcomes),
        steps > 0 and 2 * outside <= len(outcomes),
        *_numbers(worst),
        detail="; ".join(notes),
        settled=_settled(outcomes),
        backend=ran,
        relative=max((seen.relative for outcome in outcomes for seen in outcome.seen), default=None),
    )


def failed(name: str, judge: Judge, case: Case, outcomes: Sequence[StepOutcome]) -> Check:
    """The first divergence, on an input as small as it can be made."""
    small, divergence = shrunk(judge, case)
    steps = sum(outcome.steps for outcome in outcomes)
    worst = _nearest(outcomes[-1].seen)
    many = "one layer" if small.layers == 1 else f"{small.layers} layers"
    detail = f"{divergence}\n  {many} from these inputs, with seed {small.seed} ({small.family}):\n{written(small)}"
    failure = Failure(
        divergence.place,
        divergence.field,
        None if divergence.token is None else divergence.token + 1,
        divergence.got,
        divergence.want,
        small.layers,
        small.seed,
        {key: np.asarray(values).tolist() for key, values in small.inputs.items()},
        {key: np.asarray(values).tolist() for key, values in small.noise.items()},
    )
    return Check(
        name,
        f"{steps} steps",
        len(outcomes),
        False,
        *_numbers(worst),
        detail=detail,
        settled=_settled(outcomes),
        failure=failure,
        backend=judge.backend,
    )


def _settled(outcomes: Sequence[StepOutcome]) -> tuple[SettledRows, ...]:
    """The decisions of all cases, layer by layer; nothing where nothing was decided."""
    total: dict[int, list[int]] = {}
    for one in (one for outcome in outcomes for one in outcome.settled):
        counts = total.setdefault(one.layer, [0, 0, 0, 0])
        for at, many in enumerate((one.float64, one.exact, one.undecided, one.fast)):
            counts[at] += many
    found = tuple(SettledRows(layer, *counts) for layer, counts in sorted(total.items()))
    return found if any(any(counts) for counts in total.values()) else ()


def _nearest(seen: Sequence[Observation]) -> Observation | None:
    """The observation nearest to its limit, or furthest beyond it."""
    rounded = [one for one in seen if one.allowed > 0]
    broken = [one for one in seen if one.error > one.allowed]
    return max(broken or rounded or seen, key=lambda one: (one.error / (one.allowed or 1.0), one.allowed), default=None)


def _numbers(seen: Observation | None) -> tuple[float, float, float]:
    return (0.0, 0.0, 1.0) if seen is None else (seen.error, seen.allowed, seen.tolerance.kappa)
