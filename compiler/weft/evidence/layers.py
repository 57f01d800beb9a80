"""A model against the interpreter, step by step: every step is judged from the fields that the model itself had stored.

A case runs through the model once. For each step of each layer the interpreter is given the fields the model held
before it, and computes the same step. So an error cannot hide behind an earlier one, and a decision is held against
exact arithmetic on exactly the numbers it was made from. What must agree:

    choices, and means of chosen values      bit for bit, in the precision that the model stores
    other values                             to 16 * eps * kappa * max|f|, kappa as `evidence_condition` derives it
    inputs without a value (log of zero)     refused by both, or by neither

Decisions on scores that are not rational (with exp, log, roots) and closer than float64 can tell follow the tie rule on
either side and are counted as undecided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import WeftError
from weft.evidence.condition import Tolerance, bounds, is_settled, log_errors, sensitivity, tolerance
from weft.evidence.forms import AttentionForm
from weft.evidence.inputs import Case
from weft.evidence.models import Arrays, Crashed, Seen, Watched
from weft.evidence.stepwise import Stepped, Stepwise
from weft.meaning.world import World
from weft.source import NOWHERE
from weft.syntax import Equation, Ref
from weft.types import Checked
from weft_runtime import Model, WeftRuntimeError

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """One field at one place: how far apart the two sides are, and what is allowed."""

    place: str
    field: str
    error: float
    tolerance: Tolerance
    settled: bool  # must agree bit for bit

    @property
    def allowed(self) -> float:
        return 0.0 if self.settled else self.tolerance.allowed


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place at which the two sides disagree."""

    place: str
    field: str
    token: int | None
    got: str
    want: str
    why: str

    def __str__(self) -> str:
        where = self.place + (f", {self.field}" if self.field else "")
        where += "" if self.token is None else f", token {self.token + 1}"
        return f"{where}: {self.why}; the model has {self.got}, the spec {self.want}"


@dataclass(slots=True)
class Outcome:
    """What one case showed."""

    seen: list[Observation] = field(default_factory=list)
    steps: int = 0
    undecided: int = 0
    refused: bool = False  # both sides found no value
    edges: int = 0  # of these: the interpreter, only where a field is zero up to its precision
    divergence: Divergence | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where two sides are compared: what the equations read, and how they are to be bounded."""

    name: str
    world: World
    equations: tuple[Equation, ...]  # in attention form
    settled: frozenset[str]
    doubts: Mapping[str, Array] = field(default_factory=dict)  # errors of the logarithms they weigh by


OBJECTIVE = Ref(NOWHERE, "objective", ())


class Judge:
    """One model, held against the spec it claims to compute."""

    def __init__(self, checked: Checked, dims: Mapping[str, int], params: Mapping[str, float], model: Model) -> None:
        self.checked = checked
        self.watched = Watched(checked, model)
        self.dtype = self.watched.dtype
        self.whole = Stepwise(checked, dims, params)
        options = model.program.options
        lifted, centred = options.get("scores") == "dot", options.get("centre") != "off"
        self.form = AttentionForm(checked, dims, lifted, centred)
        spec = checked.spec
        starts = tuple(Equation(f.span, f.target, f.start) for f in spec.state if f.start is not None)
        shown = {o.target.name for o in spec.outputs if checked.output_field(o.target.name) in checked.fields}
        computed = tuple(Equation(o.span, o.target, o.body) for o in spec.outputs if o.target.name not in shown)
        self.starts, self.outputs = self._prepared(starts), self._prepared(computed)
        self.held = [self.whole.softmaxes_before(number) for number in range(len(spec.steps))]
        self.steps = [self._prepared(step.equations, held) for step, held in zip(spec.steps, self.held, strict=True)]
        last = {e.target.name: e for step in spec.steps for e in step.equations}
        fields = {name: checked.output_field(name) for name in sorted(shown)}
        again = tuple(
            replace(last[f], target=replace(last[f].target, name=name)) for name, f in fields.items() if f in last
        )
        self.finals = self._prepared(again + computed)
        goal = () if spec.objective is None else (Equation(spec.objective.span, OBJECTIVE, spec.objective),)
        self.objective = self._prepared(goal)

    def _prepared(
        self, equations: tuple[Equation, ...], softmaxes: Mapping[str, Equation] | None = None
    ) -> tuple[tuple[Equation, ...], frozenset[str]]:
        """Equations in attention form, and the names of those that must agree bit for bit."""
        settled = frozenset(e.target.name for e in equations if is_settled(self.checked, e.body))
        return self.form.equations(equations, softmaxes), settled

    # ---- one case ----------------------------------------------------------------------------------------------------

    def judge(self, case: Case, answers: bool = False) -> Outcome:
        """Runs a case on both sides and compares everything that is stored on the way.

        With `answers` also what is asked for after a run: the objective, and outputs made anew on the final fields.
        """
        outcome = Outcome()
        if not self.watched.fits(len(self.steps)):
            has, wants = (f"{len(found)} steps" for found in (self.watched.ends, self.steps))
            outcome.divergence = Divergence("layer", "", None, has, wants, "they are built differently")
            return outcome
        if self.watched.depth is not None:
            case = replace(case, layers=self.watched.depth, noise={})
        start, refusal = self._start(case)
        try:
            seen = self.watched.watch(case)
        except Crashed as error:
            outcome.divergence = _one_sided("run", f"crashed with {error}", "a value or an error of its own")
        except WeftRuntimeError as error:
            outcome.refused = True
            if start is not None:
                self._stopped(outcome, case, 0, start, str(error))
        else:
            if start is None:
                outcome.divergence = _one_sided("start", "a value", f"an error: {refusal}")
            else:
                self._compare(outcome, case, start, seen, answers)
        return outcome

    def _start(self, case: Case) -> tuple[Arrays | None, str]:
        try:
            return self.whole.start(case.inputs, seed=case.seed), ""
        except WeftError as error:
            return None, str(error)

    def _compare(self, outcome: Outcome, case: Case, start: Arrays, seen: Seen, answers: bool) -> None:
        """Start, every step, outputs; ends at the first divergence."""
        written = {e.target.name for e in self.starts[0]}
        given = {name: seen.start[name] for name in start if name not in written and name in seen.start}
        world = self.whole.world(given)
        centres = self.form.centres(given, world.sizes)
        self._hold(outcome, Place("start", _with(world, centres), *self.starts), seen.start, start)
        before = seen.start
        for layer, steps in enumerate(seen.layers):
            drawn = self.watched.noise(case, world.sizes, layer)
            logs: Arrays = {}
            doubts: Arrays = {}
            for number, after in enumerate(steps):
                if outcome.divergence is not None:
                    return
                name = f"layer {layer + 1}" + (f", step {number + 1}" if len(self.steps) > 1 else "")
                try:
                    made = self.whole.step(number, before, drawn, logs)
                except WeftError as error:
                    outcome.divergence = _one_sided(name, "a value", f"an error: {error}")
                    return
                # a softmax that could be put in as it is defined brings its error along; the others are doubtful
                world_here, doubtful = _with(made.world, centres), set(doubts) - set(self.held[number])
                unsure = {key: doubts[key] for key in sorted(doubtful)}
                self._step(outcome, Place(name, world_here, *self.steps[number], unsure), made, after)
                before, logs = after, made.logs
                doubts = {**doubts, **log_errors(world_here, self.steps[number][0], set(logs))}
        if outcome.divergence is not None:
            return
        if seen.stopped:
            self._stopped(outcome, case, len(seen.layers), before, seen.stopped)
        else:
            self._outputs(outcome, seen, centres)
            if answers and outcome.divergence is None:
                self._answers(outcome, case, seen, centres)

    def _step(self, outcome: Outcome, place: Place, made: Stepped, after: Arrays) -> None:
        outcome.steps += 1
        outcome.undecided += made.decisions.undecided
        self._hold(outcome, place, after, made.fields)
        if made.decisions.undecided:
            outcome.divergence = None

    def _stopped(self, outcome: Outcome, case: Case, layer: int, before: Arrays, why: str) -> None:
        """The model refused a layer: so must the interpreter.

        A model computes what the next layer will read (the logarithm of a field, say) as soon as the field is stored,
        so it may refuse one layer earlier. And where a field is zero up to its own precision (a variance of equal
        points), being zero is as good an answer as being tiny: then the layer behind it is judged from zero. What is
        too large for the model's precision is no value either.
        """
        outcome.refused = True
        centres = self.form.centres(before, self.whole.world(before).sizes)
        fields, edge = before, False
        for number in range(layer, (self.watched.depth or layer + 1) + 1):
            drawn = self.watched.noise(case, self.whole.world(before).sizes, number)
            logs: Arrays = {}
            for step, (equations, settled) in enumerate(self.steps):
                try:
                    made = self.whole.step(step, fields, drawn, logs)
                except WeftError:
                    outcome.edges += edge
                    return
                fields, logs = made.fields, made.logs
                for name, bound in bounds(_with(made.world, centres), equations).items():
                    allowed = tolerance(bound, fields[name], self.dtype)
                    if allowed.scale > float(np.finfo(self.dtype).max):
                        return
                    if name not in settled:
                        tiny = (fields[name] != 0) & (np.abs(fields[name]) <= allowed.bound + allowed.smallest)
                        edge = edge or bool(tiny.any())
                        fields = {**fields, name: np.where(tiny, 0.0, fields[name])}
        outcome.refused = False
        outcome.divergence = _one_sided(f"layer {layer + 1}", f"an error: {why}", "a value")

    def _outputs(self, outcome: Outcome, seen: Seen, centres: Arrays) -> None:
        """Outputs are functions of the final fields."""
        try:
            want = self.whole.outputs(seen.end)
        except WeftError as error:
            outcome.divergence = _one_sided("outputs", "a value", f"an error: {error}")
            return
        place = Place("outputs", _with(self.whole.world(seen.end), centres), *self.outputs)
        self._hold(outcome, place, seen.outputs, want)

    def _answers(self, outcome: Outcome, case: Case, seen: Seen, centres: Arrays) -> None:
        """The objective, and outputs that are made once more from the final fields."""
        depth = len(seen.layers)
        world = _with(self.whole.world(seen.end), centres)
        last = max(0, depth - 1)
        drawn = self.watched.noise(case, world.sizes, last)
        world = replace(world, noise=drawn)
        every = {name: np.stack([values] * (last + 1)) for name, values in drawn.items()}
        asked: list[tuple[str, Any, Any, Any]] = []
        if depth:
            want = lambda: self.whole.final(seen.end, layer=last, noise=every)  # noqa: E731
            asked.append(("final outputs", self.finals, self.watched.final, want))
        if self.checked.spec.objective is not None:
            wanted = lambda: {"objective": np.asarray(self.whole.objective(seen.end))}  # noqa: E731
            asked.append(("objective", self.objective, self.watched.objective, wanted))
        for name, prepared, ask, answer in asked:
            got, refusal = self.watched.attempt(ask, case)
            try:
                expected = answer()
            except WeftError as error:
                if got is not None:
                    outcome.divergence = _one_sided(name, "a value", f"an error: {error}")
                    return
                continue
            if got is None:
                outcome.divergence = _one_sided(name, f"an error: {refusal}", "a value")
                return
            self._hold(outcome, Place(name, world, *prepared), got, expected)

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def _hold(self, outcome: Outcome, place: Place, got: Arrays, want: Arrays) -> None:
        """Compares all fields; what no equation writes must be what it was."""
        limits = bounds(place.world, place.equations)
        if place.doubts:
            more = sensitivity(place.world, place.equations, place.doubts)
            limits = {name: limit + more[name] for name, limit in limits.items()}
        for name in want:
            exact = name in place.settled or name not in limits
            self._field(outcome, place.name, name, got.get(name), want[name], limits.get(name, 0.0), exact)

    def _field(
        self, outcome: Outcome, place: str, name: str, got: Array | None, want: Array, bound: float, exact: bool
    ) -> None:
        if got is None or got.shape != want.shape:
            has = "nothing" if got is None else f"shape {list(got.shape)}"
            wrong = Divergence(place, name, None, has, f"shape {list(want.shape)}", "they have different shapes")
            outcome.divergence = outcome.divergence or wrong
            return
        allowed = tolerance(bound, want, self.dtype)
        if exact:
            with np.errstate(over="ignore"):
                want = want.astype(self.dtype)
        elif not np.isfinite(bound):
            return  # the spec itself says nothing about the precision of this value
        gaps = np.abs(got.astype(np.float64) - want.astype(np.float64))
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        seen = Observation(place, name, float(np.max(gaps, initial=0.0)), allowed, exact)
        outcome.seen.append(seen)
        if seen.error > seen.allowed and outcome.divergence is None:
            at = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
            limit = "bit for bit" if exact else f"within {seen.allowed:.3g} (kappa {allowed.kappa:.3g})"
            why = f"they differ by {seen.error:.3g}, but must agree {limit}"
            token = int(at[0]) if at else None
            outcome.divergence = Divergence(place, name, token, _shown(got, at), _shown(want, at), why)


def _with(world: World, more: Arrays) -> World:
    return replace(world, fields={**world.fields, **more})


def _one_sided(place: str, got: str, want: str) -> Divergence:
    return Divergence(place, "", None, got, want, "only one side has a value")


def _shown(values: Array, at: tuple[Any, ...]) -> str:
    row = values[int(at[0])] if at else values
    return np.array2string(np.asarray(row, dtype=np.float64), precision=17, threshold=8, separator=", ")
