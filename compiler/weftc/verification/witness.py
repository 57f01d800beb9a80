"""A file that is not proved, and its spec -> an input on which they differ, if one is found: then the file is refuted.

Tried are small cases without odd scales, and points at the thresholds of the file: along one coordinate of an input,
every number whose sign decides something (a mask, a self key, a mass, what a quotient divides by) is followed at three
points, as a parabola; its roots, their neighbours and its vertex are tried. A difference counts when the matrices in
exact arithmetic and the run in float64 both differ from the interpreter: then no rounding is to blame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import InputError, WeftError
from weftc.core.types import Checked
from weftc.exact import Executor, NoValue, Number, Undecided
from weftc.interpreter.interpreter import EvaluationError, Interpreter
from weftc.verification.cases.inputs import Case, cases
from weftc_runtime import Checkpoint, Model, WeftRuntimeError, load

Floats = NDArray[np.float64]
Answers = Mapping[str, Floats] | None  # None: there is no value

FAMILIES = (
    "random",
    "exact ties on a grid",
    "duplicates",
    "collinear",
    "positive",
    "all rows equal",
)  # no scale is odd
CASES, SMALL = 24, 6  # cases, and the most tokens of one
LINES = 12  # coordinates that are followed, of all cases together
POINTS = 60  # tried on them
FAR = 1e-6  # a difference, relative to the largest number of a field; rounding is far below, on such small cases


@dataclass(frozen=True, slots=True)
class Witness:
    """An input, and the answer that is not the spec's on it."""

    case: Case
    answer: str
    found: Floats | None
    wanted: Floats | None

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {np.asarray(values).tolist()}" for name, values in self.case.inputs.items())
        sides = ["no value" if one is None else str(one.tolist()) for one in (self.found, self.wanted)]
        return f"on {given} the file gives {self.answer} = {sides[0]}, the spec {sides[1]}"


def witness(checked: Checked, made: Checkpoint, seed: int = 0) -> Witness | None:
    """An input on which a file computes something else than its spec."""
    try:
        model, meaning = load(made, backend="reference"), Interpreter(checked, made.dims, made.params)
    except (WeftError, WeftRuntimeError):
        return None
    for case in _points(checked, made, seed):
        wanted = _meant(meaning, case)
        answer = _difference(_exactly(made, case, meaning), wanted)
        if not answer:
            continue
        found = _run(model, case)
        if found != "outside" and (name := _difference(found, wanted)):
            return Witness(case, name, _of(found, name), _of(wanted, name))
    return None


def _of(answers: Any, name: str) -> Floats | None:
    return None if answers is None else answers.get(name)


def _points(checked: Checked, made: Checkpoint, seed: int) -> Iterator[Case]:
    small = [one for one in cases(checked, made.dims, CASES, seed, families=FAMILIES) if one.tokens <= SMALL]
    small = [replace(one, layers=made.program.own_layers) for one in small]
    yield from small
    rng = np.random.default_rng(seed)
    lines, points = 0, 0
    for case in small:
        for name, values in case.inputs.items():
            if checked.fields[name].kind not in ("number", "vector") or not np.size(values):
                continue
            lines += 1
            if lines > LINES or points > POINTS:
                return
            at = int(rng.integers(np.size(values)))
            for value in sorted(_thresholds(made, case, name, at)):
                points += 1
                yield _moved(case, name, at, value)


def _moved(case: Case, name: str, at: int, value: float) -> Case:
    values = np.array(case.inputs[name], dtype=np.float64)
    values.reshape(-1)[at] = value
    return replace(case, inputs={**case.inputs, name: values})


# ---- thresholds ------------------------------------------------------------------------------------------------------


def _thresholds(made: Checkpoint, case: Case, name: str, at: int) -> set[float]:
    """Values of one coordinate at which something is decided: roots of parabolas, beside them, and their vertices."""
    middle = float(np.ravel(case.inputs[name])[at])
    seen = [_watched(made, _moved(case, name, at, middle + by)) for by in (-1.0, 0.0, 1.0)]
    found: set[float] = set()
    for place in seen[0]:
        if place in seen[1] and place in seen[2]:
            low, mid, high = (one[place] for one in seen)
            a, b = (low + high) / 2 - mid, (high - low) / 2
            for root in _roots(a, b, mid):
                near = middle + float(root)
                found |= {near, *(near + by for by in (-(2.0**-12), 2.0**-12, -(2.0**-30), 2.0**-30))}
    return {value for value in found if np.isfinite(value) and abs(value) < 100}


def _roots(a: Fraction, b: Fraction, c: Fraction) -> Iterator[Fraction]:
    """The roots of a s^2 + b s + c, to 30 digits, and its vertex."""
    if a == 0:
        if b:
            yield -c / b
        return
    yield -b / (2 * a)
    inside = b * b - 4 * a * c
    if inside > 0:
        root = Fraction(isqrt(inside.numerator * 10**60 // inside.denominator), 10**30)
        yield (-b + root) / (2 * a)
        yield (-b - root) / (2 * a)


def _watched(made: Checkpoint, case: Case) -> dict[tuple[object, ...], Fraction]:
    """The numbers whose signs decide something in one layer, by place."""
    found: dict[tuple[object, ...], Fraction] = {}

    def watch(place: tuple[object, ...], value: Number) -> None:
        found.setdefault(place, (value.low + value.high) / 2)

    with suppress(NoValue, Undecided, KeyError, IndexError):  # what was seen until then is of use
        Executor(made, watch).run(case.inputs, case.layers, dict(case.noise) or None).final()
    return found


# ---- answers ---------------------------------------------------------------------------------------------------------


def _meant(meaning: Interpreter, case: Case) -> Answers:
    try:
        run = meaning.run(case.inputs, case.layers, seed=case.seed, noise=case.noise or None)
        last = max(case.layers - 1, 0)
        found = dict(meaning.final(run.fields, layer=last, seed=case.seed, noise=case.noise or None))
        if meaning.checked.spec.objective is not None:
            found["objective"] = np.asarray(meaning.objective(run.fields))
    except (EvaluationError, InputError):
        return None
    return {name: np.asarray(values, np.float64) for name, values in found.items()}


def _exactly(made: Checkpoint, case: Case, meaning: Interpreter) -> Any:
    """What the matrices say; "outside" where the file's conditions are not met or no enclosure tells."""
    try:
        fields = meaning.start(case.inputs, seed=case.seed)
        sizes, given = meaning.surroundings.world(fields).sizes, case.noise or None
        drawn = [meaning.surroundings.noise(sizes, layer, case.seed, given) for layer in range(case.layers)]
        noise = {name: [one[name] for one in drawn] for name in drawn[0]} if drawn else {}
        run = Executor(made).run(case.inputs, case.layers, noise)
        found: dict[str, Any] = dict(run.final())
        if made.program.objective is not None:
            found["objective"] = run.objective()
    except NoValue as error:
        return "outside" if str(error) in {one.text for one in made.program.conditions} else None
    except (Undecided, EvaluationError, InputError, KeyError, IndexError, ValueError):
        return "outside"
    return {name: np.vectorize(float, otypes=[float])(np.array(value, object)) for name, value in found.items()}


def _run(model: Model, case: Case) -> Any:
    options: dict[str, Any] = {"layers": case.layers, "seed": case.seed}
    if case.noise:
        options["noise"] = dict(case.noise)
    try:
        found = dict(model.final(dict(case.inputs), **options))
        if model.program.objective is not None:
            found["objective"] = model.objective(dict(case.inputs), **options)
    except WeftRuntimeError as error:
        return "outside" if any(one.text in str(error) for one in model.program.conditions) else None
    return {name: _dense(value) for name, value in found.items()}


def _dense(value: Any) -> Floats:
    dense = value.dense() if hasattr(value, "dense") else value
    return np.asarray(dense.detach().numpy() if hasattr(dense, "detach") else dense, np.float64)


def _difference(found: Any, wanted: Answers) -> str:
    """The first answer that differs; empty where all agree, or nothing can be said."""
    if isinstance(found, str) or (found is None and wanted is None):
        return ""
    if found is None or wanted is None:
        return next(iter(wanted or found))
    for name, values in wanted.items():
        if name not in found or np.size(found[name]) != np.size(values):
            return name
        gap = np.max(np.abs(np.ravel(found[name]) - np.ravel(values)), initial=0.0)
        if not gap <= FAR * (1 + np.max(np.abs(values), initial=0.0)):
            return name
    return ""
