"""A model against the interpreter, step by step: every step is judged from the fields that the model itself had stored.

A case runs through the model once. For each step of each layer the interpreter is given the fields the model held
before it, and computes the same step. So an error cannot hide behind an earlier one, and a decision is held against
exact arithmetic on exactly the numbers it was made from. What must agree:

    choices, and means of chosen values      bit for bit, in the precision that the model stores
    other values                             to 16 * eps * kappa * max|f|, kappa as `condition` derives it from the spec
    inputs without a value (log of zero)     refused by both, or by neither

Decisions on scores that are not rational (with exp, log, roots) and closer than float64 can tell follow the tie rule on
either side and are counted as undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import WeftError
from weftc.core.styles import Styles
from weftc.core.syntax import Call, Equation, Norm, walk
from weftc.core.types import Checked
from weftc.interpreter.environment import World
from weftc.verification.cases.inputs import Case
from weftc.verification.steps.comparing import Arrays, Divergence, FieldPlace, StepOutcome, hold, one_sided
from weftc.verification.steps.condition import Distances, bounds, is_settled, loses_a_distance, tolerance
from weftc.verification.steps.magnitudes import leaves_range
from weftc.verification.steps.models import Crashed, Seen, Watched
from weftc.verification.steps.stepwise import OBJECTIVE, Stepwise
from weftc_runtime import Model, WeftRuntimeError

Array = NDArray[Any]
_Prepared = tuple[tuple[Equation, ...], frozenset[str]]


def distances_of(styles: Styles) -> Distances:
    """How a style asks for squared distances to be written."""
    if styles.scores != "dot":
        return "as written"
    return "multiplied out from zero" if styles.centre == "off" else "multiplied out"


class Judge:
    """One model, held against the spec it claims to compute."""

    def __init__(self, checked: Checked, dims: Mapping[str, int], params: Mapping[str, float], model: Model) -> None:
        self.checked = checked
        self.watched = Watched(checked, model)
        self.dtype, self.backend = self.watched.dtype, model.backend
        self.whole = Stepwise(checked, dims, params)
        self.distances = distances_of(Styles.read(model.program.options))
        self.given: Arrays = {}  # the inputs of the case under judgement
        spec = checked.spec
        starts = tuple(Equation(f.span, f.target, f.start) for f in spec.state if f.start is not None)
        shown = {o.target.name for o in spec.outputs if checked.output_field(o.target.name) in checked.fields}
        computed = tuple(Equation(o.span, o.target, o.body) for o in spec.outputs if o.target.name not in shown)
        self.starts, self.outputs = self._prepared(starts), self._prepared(computed)
        self.steps = [self._prepared(step.equations) for step in spec.steps]
        last = {e.target.name: e for step in spec.steps for e in step.equations}
        fields = {name: checked.output_field(name) for name in sorted(shown)}
        again = tuple(
            replace(last[f], target=replace(last[f].target, name=name)) for name, f in fields.items() if f in last
        )
        self.finals = self._prepared(again + computed)
        bodies = [e.body for e in (*(e for step in spec.steps for e in step.equations), *computed)]
        bodies += [let.body for let in checked.lets.values()]
        self.irrational = any(isinstance(part, Norm | Call) for body in bodies for part in walk(body))
        goal = () if spec.objective is None else (Equation(spec.objective.span, OBJECTIVE, spec.objective),)
        self.objective = self._prepared(goal)

    def _prepared(self, equations: tuple[Equation, ...]) -> _Prepared:
        """Equations as written, and the names of those that must agree bit for bit."""
        return equations, frozenset(e.target.name for e in equations if is_settled(self.checked, e.body))

    def _place(self, name: str, world: World, made: _Prepared, *rest: Any) -> FieldPlace:
        return replace(FieldPlace(name, world, *made, *rest), distances=self.distances, given=self.given)

    # ---- one case ----------------------------------------------------------------------------------------------------

    def judge(self, case: Case, answers: bool = True, certify: bool = False) -> StepOutcome:
        """Runs a case on both sides and compares everything that is stored on the way.

        With `answers` also what is asked for after a run: the objective, and outputs made anew on the final fields.
        With `certify` the distance from exact arithmetic is bounded: that from the interpreter, and its own.
        """
        outcome = StepOutcome(certify=certify)
        if not self.watched.fits(len(self.steps)):
            has, wants = (f"{len(found)} steps" for found in (self.watched.ends, self.steps))
            outcome.divergence = Divergence("layer", "", None, has, wants, "they are built differently")
            return outcome
        if self.watched.depth is not None:
            case = replace(case, layers=self.watched.depth, noise={})
        start, refusal = self._start(case)
        self.given = {} if start is None else start
        try:
            seen = self.watched.watch(case)
        except Crashed as error:
            outcome.divergence = one_sided("run", f"crashed with {error}", "a value or an error of its own")
        except WeftRuntimeError as error:
            outcome.refused = start is None
            if start is not None:
                self._stopped(outcome, case, 0, start, str(error))
        else:
            outcome.settled, outcome.instead = seen.settled, seen.instead
            if start is None:
                outcome.divergence = one_sided("start", "a value", f"an error: {refusal}")
            else:
                self._compare(outcome, case, start, seen, answers)
        return outcome

    def _start(self, case: Case) -> tuple[Arrays | None, str]:
        try:
            return self.whole.start(case.inputs, seed=case.seed), ""
        except WeftError as error:
            return None, str(error)

    def _compare(self, outcome: StepOutcome, case: Case, start: Arrays, seen: Seen, answers: bool) -> None:
        """Start, every step, outputs; ends at the first divergence."""
        written = {e.target.name for e in self.starts[0]}
        given = {name: seen.start[name] for name in start if name not in written and name in seen.start}
        world = self.whole.world(given)
        hold(outcome, self._place("start", world, self.starts), seen.start, start, self.dtype)
        before = seen.start
        for layer, steps in enumerate(seen.layers):
            if outcome.divergence is None:
                drawn = self.watched.noise(case, world.sizes, layer)
                self._layer(outcome, f"layer {layer + 1}", before, steps, drawn)
                self._forgive(outcome, seen.settled[layer].undecided if layer < len(seen.settled) else 0)
            before = steps[-1]
        if outcome.divergence is not None:
            return
        if seen.stopped:
            self._stopped(outcome, case, len(seen.layers), before, seen.stopped)
            return
        self._outputs(outcome, seen)
        if answers and outcome.divergence is None:
            self._answers(outcome, case, seen)

    def _forgive(self, outcome: StepOutcome, undecided: int) -> None:
        """Takes a divergence back where the model says that it could not tell, as it may on scores with roots.

        The interpreter compares roots by their squares, exactly.
        """
        if outcome.divergence is not None and undecided and self.irrational:
            outcome.divergence = None
            outcome.undecided += undecided

    def _layer(self, outcome: StepOutcome, name: str, before: Arrays, steps: Sequence[Arrays], drawn: Arrays) -> None:
        """The steps of one layer, each from what the model had stored before it."""
        logs: Arrays = {}
        earlier: tuple[tuple[World, tuple[Equation, ...]], ...] = ()
        for number, after in enumerate(steps):
            here = name + (f", step {number + 1}" if len(steps) > 1 else "")
            try:
                made = self.whole.step(number, before, drawn, logs)
            except WeftError as error:
                _without_value(outcome, here, error)
                return
            place = self._place(here, made.world, self.steps[number], frozenset(logs), earlier)
            hold(outcome, place, after, made.fields, self.dtype)
            outcome.steps += 1
            outcome.undecided += made.decisions.undecided
            if made.decisions.undecided:
                outcome.divergence = None
            if outcome.divergence is not None:
                return
            earlier += ((made.world, self.steps[number][0]),)
            before, logs = after, made.logs

    def _stopped(self, outcome: StepOutcome, case: Case, layer: int, before: Arrays, why: str) -> None:
        """The model refused a layer: so must the interpreter.

        Where a field is zero up to its own precision (a variance of equal points), being zero is as good an answer as
        being tiny: then what follows is judged from zero as well. So it is with a distance that the style multiplies
        out, where the model divides by it. What is too large for the model's precision is no value either, also as an
        output.
        """
        if self.watched.is_outside(before):
            outcome.outside = True
        elif self._refuses(case, layer, before, snap=False, range_too=_is_range(why)):
            outcome.refused = True
        elif self._refuses(case, layer, before, snap=True, divides=_is_division(why)):
            outcome.refused = True
            outcome.edges += 1
        else:
            outcome.divergence = one_sided(f"layer {layer + 1}", f"an error: {why}", "a value")

    def _refuses(
        self, case: Case, layer: int, before: Arrays, snap: bool, range_too: bool = False, divides: bool = False
    ) -> bool:
        """Whether the interpreter refuses a layer; with `snap`, from zero where a field may be zero.

        With `range_too`, whether something on its way leaves the range of float64; with `divides`, whether a distance
        that is multiplied out cannot be told from zero.
        """
        world = self.whole.world(before)
        fields, errors = before, dict[str, float]()
        for number in range(layer, self.watched.depth or layer + 1):
            drawn = self.watched.noise(case, world.sizes, number)
            logs: Arrays = {}
            for step, (equations, settled) in enumerate(self.steps):
                if self.watched.is_outside(fields, errors):  # the fields of the model itself are not seen there
                    return True
                try:
                    made = self.whole.step(step, fields, drawn, logs)
                except WeftError:
                    return True
                if range_too and leaves_range(made.world, equations):
                    return True
                if divides and loses_a_distance(made.world, equations, self.distances, self.given):
                    return True
                fields, logs = made.fields, made.logs
                written = [equation.target.name for equation in equations]
                if not self._fit({name: fields[name] for name in written}):
                    return True
                stored = {name: fields[name].astype(self.dtype).astype(np.float64) for name in written}
                fields = {**fields, **stored}  # what follows reads them as the model stores them
                if snap:
                    limits = bounds(made.world, equations, self.distances, self.given)
                    for name in set(written) - settled:
                        allowed = tolerance(limits[name], fields[name], self.dtype)
                        errors[name] = allowed.allowed
                        tiny = np.abs(fields[name]) <= allowed.bound + allowed.smallest
                        fields = {**fields, name: np.where(tiny, 0.0, fields[name])}
        try:
            return not self._fit(self.whole.outputs(fields))
        except WeftError:
            return True

    def _fit(self, values: Arrays) -> bool:
        """Whether the precision of the model can hold values."""
        return all(np.max(np.abs(v), initial=0.0) <= np.finfo(self.dtype).max for v in values.values())

    def _outputs(self, outcome: StepOutcome, seen: Seen) -> None:
        """Outputs are functions of the final fields."""
        try:
            want = self.whole.outputs(seen.end)
        except WeftError as error:
            _without_value(outcome, "outputs", error)
            return
        place = self._place("outputs", self.whole.world(seen.end), self.outputs)
        hold(outcome, place, seen.outputs, want, self.dtype)
        self._forgive(outcome, seen.elsewhere)

    def _answers(self, outcome: StepOutcome, case: Case, seen: Seen) -> None:
        """The objective, and outputs that are made once more from the final fields."""
        last = max(0, len(seen.layers) - 1)
        ended = self.watched.ended(case, seen)
        end = seen.end if ended is None else self.watched.stored(ended)  # of the run that answers
        world = self.whole.world(end)
        world = replace(world, noise=self.watched.noise(case, world.sizes, last))
        every = {name: np.stack([values] * (last + 1)) for name, values in world.noise.items()}
        if seen.layers:
            place = self._place("final outputs", world, self.finals)
            want = partial(self.whole.final, end, layer=last, noise=every)
            self._answer(outcome, place, self.watched.attempt(self.watched.final, case, ended), want)
        if self.checked.spec.objective is not None and outcome.divergence is None:
            place = self._place("objective", world, self.objective)
            asked = self.watched.attempt(self.watched.objective, case, ended)
            self._answer(outcome, place, asked, lambda: {"objective": np.asarray(self.whole.objective(end))})

    def _answer(
        self,
        outcome: StepOutcome,
        place: FieldPlace,
        asked: tuple[dict[str, Array] | None, str],
        answer: Callable[[], Mapping[str, Array]],
    ) -> None:
        got, refusal = asked
        try:
            want = answer()
        except WeftError as error:
            if got is not None:
                _without_value(outcome, place.name, error)
            return
        if got is None:
            excused = _is_range(refusal) and leaves_range(place.world, place.equations)
            if self.watched.is_outside(place.world.fields):
                outcome.outside = True
            elif self._fit(want) and not excused:
                outcome.divergence = one_sided(place.name, f"an error: {refusal}", "a value")
        else:
            hold(outcome, place, got, want, self.dtype)
            self._forgive(outcome, self.watched.elsewhere)


def _is_range(refusal: str) -> bool:
    """Whether a model refuses because a number leaves the range of its precision."""
    return "overflow" in refusal


def _is_division(refusal: str) -> bool:
    """Whether a model refuses because something to divide by is zero."""
    return "a division by zero" in refusal or "the total weight is zero" in refusal


def _without_value(outcome: StepOutcome, place: str, error: WeftError) -> None:
    """Notes that only the model has a value; where the spec's is only out of range, the model need not compute that."""
    if "too large for float64" in str(error):
        outcome.refused = True
    else:
        outcome.divergence = one_sided(place, "a value", f"an error: {error}")
