"""A model whose weights are only near those that were proved, against the interpreter: cases -> one check.

Such a model (rotated residuals, mixed heads) cannot decide or store as exactly as its spec. What is asked of every step
is that it is the step of the spec on fields that differ from the stored ones by no more than the weights are off: the
interpreter runs on several such fields, and what the model stores must lie among what they give. Where exact ties are
broken either way by fields that near, either way is right. A residual whose slots are mixed drowns small numbers in
large ones: cases in which it holds numbers above `LARGEST` show nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import WeftError
from weftc.core.types import Checked
from weftc.prover import Proof
from weftc.verification.cases.inputs import cases
from weftc.verification.cases.shrinking import written
from weftc.verification.steps.condition import EPSILON, ROUNDINGS
from weftc.verification.steps.models import Crashed, Watched, columns
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.verdict import Check
from weftc_runtime import Checkpoint, WeftRuntimeError, load
from weftc_runtime.format.basis import bases_of

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Known = tuple[Arrays, Arrays]  # fields, and logarithms of softmax fields that earlier steps of the layer made

TRIALS = 12
REACH = 4.0  # what lies this many ranges outside of those seen is not among them
SLACK = 4.0  # times the deviation of the weights
LARGEST = 1e3
GENTLE = ("random", "exact ties on a grid", "positive", "duplicates", "collinear")


def is_rounded(proof: Proof, model: Checkpoint) -> bool:
    """Whether the scores of a model are only near those proved, or its residual mixes slots and rounds their sums."""
    if any(not basis.exact for basis in bases_of(model.program, model.tensors).values()):
        return proof.verdict in ("proved", "proved up to eps")
    return proof.verdict == "proved up to eps" and any(one.kind == "scores" for one in proof.deviations)


def rounded_layers(
    checked: Checked,
    model: Checkpoint,
    proof: Proof,
    style: str,
    dtype: str,
    count: int,
    seed: int,
    data: Arrays | None = None,
) -> Check:
    """Every step of every layer on generated cases, as the spec on fields nearby; the user's data among them."""
    name = f"layers ({style}, {dtype})"
    judge = _Judge(checked, model, proof, dtype)
    many = max(1, round(count * (1.0 if dtype == "float64" else 0.4)))
    steps, refused = 0, 0
    generated = list(cases(checked, model.dims, many, seed, np.dtype(dtype), families=GENTLE))
    if data:
        given = {key: np.asarray(value) for key, value in data.items()}
        generated += cases(checked, model.dims, 1, seed, np.dtype(dtype), given)
    for number, case in enumerate(generated):
        try:
            found = list(judge.steps(case))
        except _Refused:
            refused += 1
            continue
        except Crashed as error:
            return Check(name, f"{steps} steps", number + 1, False, detail=f"crashed with {error}\n{written(case)}")
        steps += len(found)
        wrong = next((one for one in found if one), "")
        if wrong:
            return Check(name, f"{steps} steps", number + 1, False, detail=f"{wrong}\n{written(case)}")
    detail = "the weights are rounded: what is stored is what the spec gives on fields nearby"
    detail += f"; {refused} of {len(generated)} cases are refused, or hold numbers above {LARGEST:g}" if refused else ""
    if judge.undecided:
        detail += f"; {judge.undecided} rows were closer than the residual can tell and followed the rule for ties"
    compared = f"{steps} steps, fields up to {judge.slack:.2g}"
    return Check(name, compared, len(generated), steps > 0, judge.worst, 1.0, detail=detail)


class _Refused(Exception):
    """The model does not run a case."""


class _Judge:
    def __init__(self, checked: Checked, model: Checkpoint, proof: Proof, dtype: str) -> None:
        import torch

        self.checked = checked
        self.watched = Watched(checked, load(model, dtype=getattr(torch, dtype), backend="reference"))
        self.whole = Stepwise(checked, model.dims, model.params)
        widest = max(stream.width for stream in model.program.streams)
        self.slack = SLACK * (proof.eps + widest * EPSILON)
        self.epsilon = float(np.finfo(dtype).eps)
        self.undecided = 0  # rows that the model could not decide
        self.worst = 0.0  # how far outside of what was seen, in units of what is allowed

    def steps(self, case: Any) -> Iterator[str]:
        """What is wrong with each step of a case; empty where nothing is."""
        try:
            seen = self.watched.watch(case)
            if not self._is_moderate(case, len(seen.layers)):
                raise _Refused("it holds large numbers")
        except WeftRuntimeError as error:
            raise _Refused(str(error)) from None
        self.undecided += sum(layer.undecided for layer in seen.settled)
        rng = np.random.default_rng((case.seed, 5))
        before = seen.start
        sizes = self.whole.world(before).sizes
        for layer, steps in enumerate(seen.layers):
            drawn = self.watched.noise(case, sizes, layer)
            logs: list[Arrays] = [{}] * (TRIALS + 1)
            for number, after in enumerate(steps):
                place = f"layer {layer + 1}, step {number + 1}"

                def advance(known: Known, number: int = number, drawn: Arrays = drawn) -> Known:
                    made = self.whole.step(number, known[0], drawn, known[1])
                    return made.fields, made.logs

                answers = self._nearby(before, logs, rng, advance)
                logs = [{} if answer is None else answer[1] for answer in answers]
                yield self._outside(place, after, [answer[0] for answer in answers if answer is not None], before)
                before = after
        if seen.layers and not seen.stopped:
            answers = self._nearby(
                before, [{}] * (TRIALS + 1), rng, lambda known: (self.whole.outputs(known[0]), known[1])
            )
            yield self._outside("outputs", seen.outputs, [a[0] for a in answers if a is not None], before)

    def _is_moderate(self, case: Any, layers: int) -> bool:
        """Whether no slot ever holds a large number."""
        trace = self.watched.model.trace(dict(case.inputs), layers=layers, seed=case.seed, noise=columns(case.noise))
        return all(float(values.abs().max()) <= LARGEST for values in trace.values() if values.numel())

    def _nearby(
        self, fields: Arrays, logs: list[Arrays], rng: np.random.Generator, advance: Callable[[Known], Known]
    ) -> list[Known | None]:
        """A step from the stored fields and from fields nearby; None where it has no value."""
        found: list[Known | None] = []
        for trial, known in enumerate(logs):
            size = self.slack * _largest(fields, known) if trial else 0.0
            moved = {name: self._moved(name, value, size, rng) for name, value in fields.items()}
            try:
                found.append(advance((moved, {n: v + size * rng.uniform(-1, 1, v.shape) for n, v in known.items()})))
            except WeftError:
                found.append(None)
        return found

    def _moved(self, name: str, value: Array, size: float, rng: np.random.Generator) -> Array:
        if self.checked.fields[name].kind in ("onehot", "symbol") or not size:
            return np.asarray(value, np.float64)
        return np.asarray(value + size * rng.uniform(-1, 1, value.shape))

    def _outside(self, place: str, got: Arrays, seen: list[Arrays], before: Arrays) -> str:
        """The first field that is not among what was seen."""
        if not seen:
            return f"{place}: the model has a value, the spec none, here or nearby"
        for name in seen[0]:
            every = np.stack([np.asarray(one[name], np.float64) for one in seen])
            low, high = every.min(0), every.max(0)
            scale = float(np.abs(every).max(initial=0.0))
            own = self.slack * _largest(before, {}) + ROUNDINGS * self.epsilon * scale
            allowed = REACH * (high - low) + own + np.finfo(np.float64).smallest_normal
            value = np.asarray(got[name], np.float64).reshape(low.shape)
            gap = np.maximum(low - value, value - high) / allowed
            gap = np.where(np.isnan(gap), np.inf, gap)
            worst = float(gap.max(initial=0.0))
            self.worst = max(self.worst, worst)
            if worst > 1:
                at = np.unravel_index(int(np.argmax(gap)), gap.shape)
                return f"{place}, {name}: the model has {value[at]!r}, the spec {low[at]!r} to {high[at]!r} nearby"
        return ""


def _largest(fields: Arrays, logs: Arrays) -> float:
    """The largest number that a residual with these fields may hold: squares and logarithms are in it too."""
    sizes = [float(np.max(np.abs(v), initial=0.0)) for v in (*fields.values(), *logs.values())]
    widest = max((v[0].size for v in fields.values() if len(v) and np.ndim(v)), default=1)
    largest = max(sizes, default=1.0)
    return max(1.0, largest, widest * largest**2)
