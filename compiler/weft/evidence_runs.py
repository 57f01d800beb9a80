"""Runs models and interpreter on cases and adds up what is seen: one `Check` per kind of evidence, style and precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.bind import bind
from weft.compiling import compile
from weft.errors import WeftError
from weft.evidence_condition import EPSILON, ROUNDINGS, is_settled
from weft.evidence_examples import Setting, answers, settings
from weft.evidence_inputs import Case, Shape, cases, draw, open_sizes, smaller
from weft.evidence_layers import Divergence, Judge, Observation, Outcome
from weft.evidence_models import columns, plain
from weft.interpreter import Interpreter
from weft.types import Checked
from weft.verdict import Check
from weft_runtime import Checkpoint, WeftRuntimeError, load

Array = NDArray[Any]
SHRINKINGS = 120  # smaller cases tried after a failure
ASKED = 4  # every how many cases the objective and the final outputs are compared too
PERTURBATIONS = 4
CHAOTIC = 1e-2  # relative error above which a whole run says nothing


class Under(Protocol):
    """A model under judgement, with its part of the cases."""

    @property
    def checkpoint(self) -> Checkpoint: ...
    @property
    def share(self) -> float: ...


# ---- examples --------------------------------------------------------------------------------------------------------


def examples(checked: Checked, model: Checkpoint | None, styles: Sequence[str]) -> list[Check]:
    """The example blocks by the interpreter, and by the model (those that fit it) or one compiled for each, per style."""
    ready = settings(checked)
    found = [_examples(checked, "examples, interpreter", [(s, _interpreted(checked, s)) for s in ready])]
    if model is not None:
        fitting = [s for s in ready if _fits(checked, model, s)]
        if fitting:
            found.append(_examples(checked, "examples, transformer", [(s, _run(model, s)) for s in fitting]))
        return found
    for style in styles:
        runs = [(s, _run(compile(checked, s.dims, s.params, scores=style), s)) for s in ready]  # type: ignore[arg-type]
        found.append(_examples(checked, f"examples, transformer ({style})", runs))
    return found


def _fits(checked: Checked, model: Checkpoint, setting: Setting) -> bool:
    """Whether an example is about the dimensions and parameters that a model was compiled for."""
    mine = dict(bind(checked, model.dims, model.params).params)
    return dict(setting.dims) == dict(model.dims) and dict(setting.params) == mine


def _interpreted(checked: Checked, setting: Setting) -> Mapping[str, Any] | str:
    try:
        made = Interpreter(checked, setting.dims, setting.params)
        return made.run(setting.inputs, setting.layers, noise=setting.noise or None)
    except WeftError as error:
        return str(error)


def _run(model: Checkpoint, setting: Setting) -> Mapping[str, Any] | str:
    try:
        return dict(load(model)(dict(setting.inputs), layers=setting.layers, noise=columns(setting.noise)))
    except WeftRuntimeError as error:
        return str(error)


def _examples(checked: Checked, name: str, runs: Sequence[tuple[Setting, Mapping[str, Any] | str]]) -> Check:
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
    what = "outputs with the values written"
    return Check(name, what, len(runs), not detail, worst[0], worst[1], detail=detail)


# ---- layers ----------------------------------------------------------------------------------------------------------


def layers(checked: Checked, subjects: Sequence[Under], style: str, dtype: str, count: int, seed: int) -> Check:
    """Every step of every layer on generated cases."""
    name = f"layers ({style}, {dtype})"
    outcomes: list[Outcome] = []
    for number, subject in enumerate(subjects):
        judge = judge_of(checked, subject.checkpoint, dtype)
        many = max(1, round(count * subject.share))
        generated = cases(checked, subject.checkpoint.dims, many, seed + 1000 * number, np.dtype(dtype))
        for turn, case in enumerate(generated):
            outcomes.append(judge.judge(case, answers=turn % ASKED == 0))
            if outcomes[-1].divergence is not None:
                return _failed(name, judge, case, outcomes)
    return _passed(name, outcomes)


def on_data(checked: Checked, model: Checkpoint, style: str, dtype: str, data: Mapping[str, Any], seed: int) -> Check:
    """The user's own data; inputs that are missing start by `init`, or are drawn."""
    name = f"your data ({style}, {dtype})"
    judge = judge_of(checked, model, dtype)
    given = {key: np.asarray(value) for key, value in data.items()}
    starting = {f.target.name for f in checked.spec.inputs if f.init is not None}
    (case,) = cases(checked, model.dims, 1, seed, np.dtype(dtype), given)
    inputs = {key: value for key, value in case.inputs.items() if key in given or key not in starting}
    case = replace(case, inputs=inputs, family="your data", layers=3, noise={})
    outcome = judge.judge(case)
    return _failed(name, judge, case, [outcome]) if outcome.divergence else _passed(name, [outcome])


def judge_of(checked: Checked, model: Checkpoint, dtype: str) -> Judge:
    """A judge of a model in one precision."""
    import torch

    return Judge(checked, model.dims, model.params, load(model, dtype=getattr(torch, dtype)))


def _passed(name: str, outcomes: Sequence[Outcome]) -> Check:
    steps = sum(outcome.steps for outcome in outcomes)
    refused = sum(outcome.refused for outcome in outcomes)
    undecided = sum(outcome.undecided for outcome in outcomes)
    worst = _nearest([seen for outcome in outcomes for seen in outcome.seen])
    notes = []
    if refused:
        notes.append(f"{refused} of {len(outcomes)} cases have no value on either side")
    if undecided:
        notes.append(f"{undecided} decisions are closer than float64 can tell, on scores that are not rational")
    if not steps:
        notes.append("no step could be compared")
    compared = f"{steps} steps, every field"
    return Check(name, compared, len(outcomes), steps > 0, *_numbers(worst), detail="; ".join(notes))


def _failed(name: str, judge: Judge, case: Case, outcomes: Sequence[Outcome]) -> Check:
    small, divergence = shrunk(judge, case)
    steps = sum(outcome.steps for outcome in outcomes)
    worst = _nearest(outcomes[-1].seen)
    detail = f"{divergence}\n  family: {small.family}; {small.layers} layers, seed {small.seed}\n{_written(small)}"
    return Check(name, f"{steps} steps, every field", len(outcomes), False, *_numbers(worst), detail=detail)


def _nearest(seen: Sequence[Observation]) -> Observation | None:
    """The observation nearest to its limit, or furthest beyond it."""
    rounded = [one for one in seen if one.allowed > 0]
    broken = [one for one in seen if one.error > one.allowed]
    return max(broken or rounded or seen, key=lambda one: one.error / (one.allowed or 1.0), default=None)


def _numbers(seen: Observation | None) -> tuple[float, float, float]:
    return (0.0, 0.0, 1.0) if seen is None else (seen.error, seen.allowed, seen.tolerance.kappa)


def shrunk(judge: Judge, case: Case) -> tuple[Case, Divergence]:
    """A case as small as can be found quickly that still fails, and how it fails."""
    answers = judge.judge(case).divergence is None  # then it fails only in what is asked for at the end
    divergence = judge.judge(case, answers).divergence
    assert divergence is not None
    tries = SHRINKINGS
    found = True
    while found and tries > 0:
        found = False
        for candidate in smaller(judge.checked, case):
            tries -= 1
            worse = judge.judge(candidate, answers).divergence
            if worse is not None:
                case, divergence, found = candidate, worse, True
                break
            if tries <= 0:
                break
    return case, divergence


def _written(case: Case) -> str:
    """The inputs of a case, to paste."""
    lines = []
    for name, values in (*case.inputs.items(), *case.noise.items()):
        text = np.array2string(np.asarray(values), separator=", ", threshold=60, floatmode="unique", max_line_width=110)
        indent = " " * (len(name) + 5)
        lines.append(f"  {name} = {text}".replace("\n", "\n" + indent))
    return "\n".join(lines)


# ---- whole runs ------------------------------------------------------------------------------------------------------


def whole_runs(checked: Checked, model: Checkpoint, style: str, seed: int, count: int = 6, depth: int = 6) -> Check:
    """Outputs after several layers on both sides, each on its own way.

    Bit for bit where every equation is settled. Else errors travel from layer to layer, and kappa is what the spec itself
    does to them: the interpreter runs again from inputs moved by one unit in the last place, and the largest change of an
    output, in units of eps * max|f|, times the number of layers, is its condition.
    """
    name = f"whole runs ({style}, float64)"
    network = load(model)
    meaning = Interpreter(checked, model.dims, model.params)
    bodies = [e.body for step in checked.spec.steps for e in step.equations] + [o.body for o in checked.spec.outputs]
    settled = all(is_settled(checked, body) or not _indexed(body) for body in bodies)
    seen: list[tuple[float, float, float]] = []
    skipped = 0
    for number in range(count):
        rng = np.random.default_rng((seed, 77, number))
        sizes = open_sizes(checked, model.dims, 1 + 3 * number, rng)
        family = ("random", "positive", "exact ties on a grid")[number % (3 if settled else 2)]
        case = replace(draw(checked, Shape(model.dims, sizes), family, rng), layers=depth)
        try:
            want = meaning.run(case.inputs, depth, seed=case.seed, noise=None)
            got = network(dict(case.inputs), layers=depth, seed=case.seed)
        except (WeftError, WeftRuntimeError):
            skipped += 1  # one-sided errors are the business of `layers`
            continue
        kappas = {} if settled else _amplified(meaning, case, want, rng)
        for key, value in want.items():
            scale = float(np.max(np.abs(value), initial=0.0))
            kappa = kappas.get(key, 1.0)
            allowed = 0.0 if settled else ROUNDINGS * EPSILON * kappa * scale
            if allowed > CHAOTIC * scale:
                skipped += 1
                continue
            error = float(np.max(np.abs(plain(got[key]).reshape(value.shape) - value), initial=0.0))
            seen.append((error, allowed, kappa))
            if not error <= allowed:
                detail = f"{key} differs by {error:.3g} after {depth} layers, allowed {allowed:.3g}\n{_written(case)}"
                return Check(name, f"outputs after {depth} layers", number + 1, False, error, allowed, kappa, detail)
    worst = max(seen, key=lambda one: one[0] / (one[1] or 1.0), default=(0.0, 0.0, 1.0))
    note = f"{skipped} outputs or runs have no value, or a condition at which nothing can be said" if skipped else ""
    return Check(name, f"outputs after {depth} layers", count, True, *worst, detail=note)


def _indexed(body: Any) -> bool:
    return not (hasattr(body, "indices") and not body.indices)


def _amplified(
    meaning: Interpreter, case: Case, want: Mapping[str, Array], rng: np.random.Generator
) -> dict[str, float]:
    """How much a whole run magnifies a change of the inputs by one unit in the last place, per output."""
    largest = dict.fromkeys(want, 1.0)
    for _ in range(PERTURBATIONS):
        moved = {
            name: values
            if meaning.checked.fields[name].kind == "onehot"
            else values * (1 + EPSILON * rng.choice((-1.0, 1.0), values.shape))
            for name, values in case.inputs.items()
        }
        try:
            other = meaning.run(moved, case.layers, seed=case.seed)
        except WeftError:
            continue
        for name, value in want.items():
            scale = float(np.max(np.abs(value), initial=0.0))
            change = float(np.max(np.abs(other[name] - value), initial=0.0))
            largest[name] = max(largest[name], change / (EPSILON * scale) if scale else 1.0)
    return {name: case.layers * value for name, value in largest.items()}
