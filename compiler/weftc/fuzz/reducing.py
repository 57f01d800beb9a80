"""A trial that fails -> one as small as can be found that fails in the same way: spec, style, sizes and inputs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from weftc.core.errors import WeftError
from weftc.core.source import Source
from weftc.core.syntax import Spec
from weftc.core.types import Checked
from weftc.core.unparse import written
from weftc.fuzz.simpler import simpler
from weftc.fuzz.trials import BACKENDS, Trial, TrialFailure, again
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.verification.cases.inputs import Case
from weftc.verification.cases.shrinking import smaller as smaller_cases

SECONDS = 60.0  # spent on one failure


def reduced(trial: Trial, failure: TrialFailure, seconds: float = SECONDS) -> tuple[Trial, TrialFailure]:
    """The smallest trial found in time, and how it fails."""
    until = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for candidate in _candidates(trial):
            if time.monotonic() > until:
                return trial, failure
            worse = again(candidate)
            if worse is not None and (worse.kind, worse.where) == (failure.kind, failure.where):
                trial, failure, found = candidate, worse, True
                break
    return trial, failure


def _candidates(trial: Trial) -> Iterator[Trial]:
    if trial.backend != BACKENDS[0]:
        yield replace(trial, backend=BACKENDS[0])
    for style in trial.styles:
        yield replace(trial, styles={name: value for name, value in trial.styles.items() if name != style})
    if trial.dtype != "float64":
        yield replace(trial, dtype="float64", case=_converted(trial.case))
    if trial.case.layers > 1:
        yield replace(trial, case=replace(trial.case, layers=1))
    for spec in simpler(trial.checked.spec):
        checked = _read(spec)
        if checked is not None:
            yield _fitted(trial, checked)
    for name, value in trial.dims.items():
        if value > 1:
            yield _narrowed(trial, name, value - 1)
    for case in smaller_cases(trial.checked, trial.case):
        yield replace(trial, case=case)


def _read(spec: Spec) -> Checked | None:
    """A tree, written and read again: what it means as a text; None if the checker refuses it."""
    try:
        return check(parse(Source("fuzz", written(spec))))
    except WeftError:
        return None


def _converted(case: Case) -> Case:
    inputs = {name: np.asarray(values, np.float64) for name, values in case.inputs.items()}
    return replace(case, inputs=inputs, noise={name: np.asarray(v, np.float64) for name, v in case.noise.items()})


def _fitted(trial: Trial, checked: Checked) -> Trial:
    """The trial for a simpler spec: only what it still declares."""
    declared = {f.target.name for f in checked.spec.inputs}
    random = {f.target.name for f in checked.spec.random}
    case = replace(
        trial.case,
        inputs={name: values for name, values in trial.case.inputs.items() if name in declared},
        noise={name: values for name, values in trial.case.noise.items() if name in random},
    )
    return replace(trial, checked=checked, dims={n: v for n, v in trial.dims.items() if n in checked.dims}, case=case)


def _narrowed(trial: Trial, dimension: str, size: int) -> Trial:
    """The trial with a smaller dimension: the first rows and columns of everything that has it."""
    checked = trial.checked

    def cut(name: str, values: Any, axis: int) -> Any:
        one = checked.fields[name]
        columns = checked.sets[one.columns] if one.columns is not None else one.width
        for at, length in ((axis, checked.sets[one.home]), (axis + 1, columns)):
            if length == dimension and values.ndim > at:
                values = values.take(range(size), axis=at)
        return values

    case = replace(
        trial.case,
        inputs={name: cut(name, values, 0) for name, values in trial.case.inputs.items()},
        noise={name: cut(name, values, 1) for name, values in trial.case.noise.items()},
    )
    return replace(trial, dims={**trial.dims, dimension: size}, case=case)
