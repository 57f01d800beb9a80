"""Whole runs on both sides, each on its own way, and what a spec does to roundings from layer to layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import WeftError
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.verification.cases.inputs import Case, Shape, draw, open_sizes
from weftc.verification.cases.shrinking import written
from weftc.verification.runs.backends import Runners
from weftc.verification.steps.condition import EPSILON, ROUNDINGS, Distances, bounds, is_settled
from weftc.verification.steps.layers import distances_of
from weftc.verification.steps.models import plain
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.verdict import Check
from weftc_runtime import Checkpoint, WeftRuntimeError

Array = NDArray[Any]
DEPTH = 5
BATCH = 3  # problems at once
PERTURBATIONS = 4
SMALLEST = float(np.finfo(np.float64).smallest_normal)
CHAOTIC = 1e-2  # relative error above which a whole run says nothing


@dataclass(frozen=True, slots=True)
class ExpectedRun:
    """One run, or a batch of them, by the interpreter: its outputs, and how much each magnifies roundings."""

    cases: tuple[Case, ...]
    outputs: tuple[Mapping[str, Array], ...]
    kappas: tuple[Mapping[str, float], ...]

    @property
    def inputs(self) -> dict[str, Array]:
        """What a model is given."""
        first = self.cases[0].inputs
        if len(self.cases) == 1:
            return dict(first)
        return {name: np.stack([case.inputs[name] for case in self.cases]) for name in first}

    def each(self) -> Iterator[tuple[Case, Mapping[str, Array], Mapping[str, float]]]:
        """Its problems, one by one."""
        return zip(self.cases, self.outputs, self.kappas, strict=True)

    @property
    def seed(self) -> int | list[int]:
        """One seed for each problem."""
        seeds = [case.seed for case in self.cases]
        return seeds if len(seeds) > 1 else seeds[0]


class Trajectories:
    """What whole runs of a spec give, to be held against any model of it.

    Bit for bit where every equation is settled. Else errors travel from layer to layer, and kappa is what the spec
    itself does to them: the interpreter runs again from inputs moved by one unit in the last place, and the largest
    change of an output, in units of eps * max|f|, times the number of layers, is its condition. Where a style
    multiplies distances out, it runs again with every field moved within what that may lose in its step.
    """

    def __init__(self, checked: Checked, model: Checkpoint, seed: int, runners: Runners) -> None:
        self.checked, self.dims, self.seed, self.runners = checked, model.dims, seed, runners
        self.meaning = Stepwise(checked, model.dims, model.params)
        self.settled = is_settled_throughout(checked)
        self._known: dict[tuple[int, Distances], list[ExpectedRun | None]] = {}

    def against(self, model: Checkpoint, style: str, backend: str, depth: int = DEPTH) -> Check | None:
        """Outputs after several layers on both sides, each on its own way."""
        if model.program.unrolled:
            depth = model.program.layers
        distances = distances_of(Styles.read(model.program.options))
        if (depth, distances) not in self._known:
            self._known[depth, distances] = list(self._expected(depth, distances))
        name, compared = f"whole runs ({style}, float64)", f"{depth} layers"
        network = self.runners.model(model, "float64", backend)
        seen: list[tuple[float, float, float]] = []
        skipped = 0
        for number, expected in enumerate(self._known[depth, distances], 1):
            try:
                got = None if expected is None else network(expected.inputs, layers=depth, seed=expected.seed)
            except WeftRuntimeError:
                got = None  # one-sided errors are the business of `layers`
            except Exception as fault:  # a fault of the runtime: evidence against the model, not against the caller
                assert expected is not None
                detail = f"the run crashed with {type(fault).__name__}: {fault}\n{written(expected.cases[0])}"
                return Check(name, compared, number, False, detail=detail, backend=backend)
            if expected is None or got is None:
                skipped += 1
                continue
            answers = {key: plain(value) for key, value in got.items()}
            for at, (case, outputs, kappas) in enumerate(expected.each()):
                mine = answers if len(expected.cases) == 1 else {key: value[at] for key, value in answers.items()}
                for key, value in outputs.items():
                    error, allowed, kappa = self._held(mine[key], value, kappas.get(key, 1.0))
                    if allowed > CHAOTIC * float(np.max(np.abs(value), initial=0.0)) + SMALLEST:
                        skipped += 1
                        continue
                    seen.append((error, allowed, kappa))
                    if not error <= allowed:
                        batch = "" if len(expected.cases) == 1 else f" as problem {at + 1} of a batch"
                        detail = f"{key} differs by {error:.3g} after {depth} layers{batch}, allowed {allowed:.3g}"
                        detail += f"\n{written(case)}"
                        return Check(name, compared, number, False, error, allowed, kappa, detail, backend=backend)
        if not seen:
            return None
        worst = max(seen, key=lambda one: one[0] / (one[1] or 1.0))
        note = f"{skipped} outputs or runs have no value, or a condition at which nothing can be said" * (skipped > 0)
        return Check(name, compared, len(self._known[depth, distances]), True, *worst, detail=note, backend=backend)

    def _held(self, got: Array, want: Array, kappa: float) -> tuple[float, float, float]:
        """Error, what is allowed, and kappa."""
        scale = float(np.max(np.abs(want), initial=0.0))
        allowed = 0.0 if self.settled else ROUNDINGS * EPSILON * kappa * scale + SMALLEST
        return float(np.max(np.abs(got.reshape(want.shape) - want), initial=0.0)), allowed, kappa

    def _expected(self, depth: int, distances: Distances) -> Iterator[ExpectedRun | None]:
        """What the interpreter gives for every run; None where it has no value."""
        for number, many in enumerate((1, 1, 1, BATCH)):
            rng = np.random.default_rng((self.seed, 77, number))
            shape = Shape(self.dims, open_sizes(self.checked, self.dims, 1 + 3 * number, rng))
            family = ("random", "positive", "exact ties on a grid", "random")[number % (4 if self.settled else 2)]
            cases = tuple(replace(draw(self.checked, shape, family, rng), layers=depth) for _ in range(many))
            try:
                outputs = tuple(self.meaning.run(case.inputs, depth, seed=case.seed, noise=None) for case in cases)
            except WeftError:
                yield None
                continue
            pairs = zip(cases, outputs, strict=True)
            yield ExpectedRun(
                cases, outputs, tuple({} if self.settled else self._amplified(*one, distances, rng) for one in pairs)
            )

    def _amplified(
        self, case: Case, want: Mapping[str, Array], distances: Distances, rng: np.random.Generator
    ) -> dict[str, float]:
        """How much a whole run magnifies a change of the inputs by one unit in the last place, per output."""
        largest = dict.fromkeys(want, 1.0)
        for other in self._others(case, distances, rng):
            for name, value in want.items():
                scale = float(np.max(np.abs(value), initial=0.0))
                change = float(np.max(np.abs(other[name] - value), initial=0.0))
                largest[name] = max(largest[name], change / (EPSILON * scale) if scale else 1.0)
        return {name: case.layers * value for name, value in largest.items()}

    def _others(self, case: Case, distances: Distances, rng: np.random.Generator) -> Iterator[Mapping[str, Array]]:
        """Outputs of runs that roundings could have led to."""
        for _ in range(PERTURBATIONS):
            moved = nudged(self.checked, case, EPSILON, rng)
            try:
                yield self.meaning.run(moved.inputs, case.layers, seed=case.seed)
                if distances != "as written":
                    yield self._strayed(case, distances, rng)
            except WeftError:
                continue

    def _strayed(self, case: Case, distances: Distances, rng: np.random.Generator) -> Mapping[str, Array]:
        """The outputs of a run whose fields are moved, after every step, within what the style may lose there."""
        given = fields = self.meaning.start(case.inputs, seed=case.seed)
        for layer in range(case.layers):
            sizes = self.meaning.surroundings.world(fields).sizes
            noise = self.meaning.surroundings.noise(sizes, layer, case.seed, None)
            logs: Mapping[str, Array] = {}
            for number, step in enumerate(self.checked.spec.steps):
                made = self.meaning.step(number, fields, noise, logs)
                limits = bounds(made.world, step.equations, distances, given)
                near = {name: limit for name, limit in limits.items() if np.isfinite(limit)}
                moved = {
                    name: made.fields[name] + near[name] * rng.uniform(-1, 1, np.shape(made.fields[name]))
                    for name in near
                }
                settled = {e.target.name for e in step.equations if is_settled(self.checked, e.body)}
                fields = {**made.fields, **{name: values for name, values in moved.items() if name not in settled}}
                logs = made.logs
        computed = dict(self.meaning.outputs(fields))
        limits = bounds(self.meaning.world(fields), self.meaning.answers(), distances, given)
        for name in computed.keys() & {name for name, limit in limits.items() if np.isfinite(limit)}:
            computed[name] = computed[name] + limits[name] * rng.uniform(-1, 1, np.shape(computed[name]))
        shown = {one.target.name: self.checked.output_field(one.target.name) for one in self.checked.spec.outputs}
        return {name: fields[of] if of in fields else computed[name] for name, of in shown.items()}


def is_settled_throughout(checked: Checked) -> bool:
    """Whether whole runs must agree bit for bit."""
    bodies = [e.body for step in checked.spec.steps for e in step.equations] + [o.body for o in checked.spec.outputs]
    return all(is_settled(checked, body) or not _indexed(body) for body in bodies)


def nudged(checked: Checked, case: Case, epsilon: float, rng: np.random.Generator) -> Case:
    """A case with its inputs moved by one unit in the last place, up or down at random."""
    moved = {
        name: values
        if checked.fields[name].kind in ("onehot", "symbol")
        else (values * (1 + epsilon * rng.choice((-1.0, 1.0), values.shape))).astype(values.dtype)
        for name, values in case.inputs.items()
    }
    return replace(case, inputs=moved)


def _indexed(body: Any) -> bool:
    return not (hasattr(body, "indices") and not body.indices)
