"""A model against the interpreter, step by step: every step is judged from the fields that the model itself had stored.

A case runs through the model once, traced. At the end of each step of each layer the interpreter is given the fields the
model held before it, and computes the same step. So an error cannot hide behind an earlier one, and a decision is held
against exact arithmetic on exactly the numbers it was made from. What must agree:

    choices, and means of chosen values      bit for bit, in the precision that the model stores
    other values                             to 16 * eps * kappa * max|f|, kappa as `evidence_condition` derives it
    inputs without a value (log of zero)     refused by both, or by neither

Decisions on scores that are not rational (with exp, log, roots) and closer than float64 can tell follow the tie rule on
either side and are counted as undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import WeftError
from weft.evidence_condition import Tolerance, bounds, is_settled, multiplied_out, tolerance
from weft.evidence_inputs import Case
from weft.interpreter import Interpreter
from weft.meaning_noise import draw
from weft.syntax import Equation, Step
from weft.types import Checked
from weft_runtime import Model, WeftRuntimeError
from weft_runtime.ir import Program

Array = NDArray[Any]
Arrays = Mapping[str, Array]


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
    divergence: Divergence | None = None


class Crashed(Exception):
    """The runtime failed in a way that it does not report itself."""


class Judge:
    """One model, held against the spec it claims to compute."""

    def __init__(self, checked: Checked, dims: Mapping[str, int], params: Mapping[str, float], model: Model) -> None:
        self.checked, self.model = checked, model
        self.program: Program = model.program
        self.dtype: Any = np.dtype(str(model.dtype).removeprefix("torch."))
        self.whole = Interpreter(checked, dims, params)
        lifted = self.program.options.get("scores") == "dot"
        bounding = multiplied_out(checked) if lifted else checked
        self.bounding = Interpreter(bounding, dims, params)
        self.ends = list(_ends(self.program))
        self.singles = [Interpreter(_only(checked, step), dims, params) for step in checked.spec.steps]

    # ---- one case ----------------------------------------------------------------------------------------------------

    def judge(self, case: Case) -> Outcome:
        """Runs a case on both sides and compares everything that is stored on the way."""
        outcome = Outcome()
        if len(self.ends) != len(self.checked.spec.steps):
            has, wants = (f"{len(found)} steps" for found in (self.ends, self.checked.spec.steps))
            outcome.divergence = Divergence("layer", "", None, has, wants, "they are built differently")
            return outcome
        try:
            start: Arrays | None = self.whole.start(case.inputs, seed=case.seed)
        except WeftError as error:
            start, refusal = None, str(error)
        try:
            trace, depth, stopped = self._trace(case)
        except Crashed as error:
            outcome.divergence = _one_sided("run", f"crashed with {error}", "a value or an error of its own")
            return outcome
        except WeftRuntimeError as error:
            outcome.refused = True
            if start is not None:
                self._stopped(outcome, case, 0, start, str(error))
            return outcome
        if start is None:
            outcome.divergence = _one_sided("start", "a value", f"an error: {refusal}")
            return outcome
        before = self._stored(trace.fields[0])
        starts = tuple(Equation(f.span, f.target, f.start) for f in self.checked.spec.state if f.start is not None)
        inputs = {name: before[name].astype(np.float64) for name in start if name not in {e.target.name for e in starts}}
        self._hold(outcome, "start", before, start, starts, self.bounding.surroundings.world(inputs), self._started())
        for layer in range(depth):
            for number, after in enumerate(self._after_steps(trace, layer)):
                if outcome.divergence is None:
                    self._step(outcome, case, layer, number, before, after)
                before = after
        if stopped and outcome.divergence is None:
            self._stopped(outcome, case, depth, before, stopped)
        elif outcome.divergence is None:
            self._outputs(outcome, before, trace.outputs)
        return outcome

    def _trace(self, case: Case) -> tuple[Any, int, str]:
        """The trace of as many layers as the model can run, their number, and why it stopped before the last."""
        stopped = ""
        for depth in range(case.layers, -1, -1):
            try:
                trace = self.model.trace(dict(case.inputs), layers=depth, seed=case.seed, noise=self._columns(case))
                return trace, depth, stopped
            except WeftRuntimeError as error:
                if depth == 0:
                    raise
                stopped = str(error)
            except Exception as error:  # a fault of the runtime: evidence against the model, not against the caller
                raise Crashed(f"{type(error).__name__}: {error}") from error
        raise AssertionError("a trace of no layers either runs or raises")

    def _noise(self, case: Case, fields: Arrays, layers: int) -> dict[str, Array]:
        """Random fields [layers, ...] as a model stores them: as given or drawn, rounded to its precision."""
        found = {}
        for one in (self.checked.fields[f.target.name] for f in self.checked.spec.random):
            if one.name in case.noise and len(case.noise[one.name]) >= layers:
                values = case.noise[one.name]
            else:
                shape = tuple(self._size(index, fields) for index in one.indices)
                values = np.array([draw(one.kind, case.seed, one.name, t, shape) for t in range(layers)])
            found[one.name] = values.astype(self.dtype)
        return found

    def _size(self, index: str, fields: Arrays) -> int:
        """The number of tokens an index runs over."""
        home = self.checked.index[index]
        return next(s.size or 0 for s in self.program.streams if s.name == home) or next(
            len(values) for name, values in fields.items() if self.checked.fields[name].home == home
        )

    def _columns(self, case: Case) -> dict[str, Array] | None:
        """Explicit noise as a model takes it: [layers, tokens, columns]."""
        columns = {name: v if v.ndim == 3 else v[..., np.newaxis] for name, v in case.noise.items()}
        return columns or None

    # ---- what the model stored ---------------------------------------------------------------------------------------

    def _stored(self, fields: Mapping[str, Any]) -> dict[str, Array]:
        """The fields that last from layer to layer; random ones are fresh in each."""
        kept = {name for name, one in self.checked.fields.items() if one.role != "random"}
        return {name: self._array(name, value) for name, value in fields.items() if name in kept}

    def _array(self, name: str, value: Any) -> Array:
        found = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
        flat = self.checked.fields[name].width is None and not self.checked.fields[name].is_pair
        return (found[..., 0] if flat and found.ndim == 2 else found).astype(self.dtype)

    def _after_steps(self, trace: Any, layer: int) -> Iterator[dict[str, Array]]:
        """The fields as stored at the end of each step of a layer."""
        fields = self._stored(trace.fields[layer])
        for step, block in zip(self.checked.spec.steps, self.ends, strict=True):
            for equation in step.equations:
                name = equation.target.name
                home = self.checked.fields[name].home
                fields = {**fields, name: self._array(name, trace[f"layers.{layer}.blocks.{block}.{home}.{name}"])}
            yield fields

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def _step(self, outcome: Outcome, case: Case, layer: int, number: int, before: Arrays, after: Arrays) -> None:
        equations = self.checked.spec.steps[number].equations
        place = f"layer {layer + 1}" + (f", step {number + 1}" if len(self.checked.spec.steps) > 1 else "")
        drawn = self._noise(case, before, layer + 1)
        try:
            made = self.singles[number].advance(before, layer, noise=drawn)
        except WeftError as error:
            outcome.divergence = _one_sided(place, "a value", f"an error: {error}")
            return
        outcome.steps += 1
        outcome.undecided += made.decisions.undecided
        here = {name: values[layer].astype(np.float64) for name, values in drawn.items()}
        world = self.bounding.surroundings.world({n: v.astype(np.float64) for n, v in before.items()}, here)
        bodies = self.bounding.checked.spec.steps[number].equations
        settled = {e.target.name for e in equations if is_settled(self.checked, e.body)}
        self._hold(outcome, place, after, made.fields, bodies, world, settled)
        if made.decisions.undecided:
            outcome.divergence = None

    def _hold(
        self,
        outcome: Outcome,
        place: str,
        got: Arrays,
        want: Arrays,
        equations: tuple[Equation, ...],
        world: Any,
        settled: set[str],
    ) -> None:
        """Compares all targets; what no equation writes must be what it was."""
        limits = bounds(world, equations)
        for name in want:
            bound = limits.get(name, 0.0)
            exact = name in settled or name not in limits
            seen = self._field(outcome, place, name, got.get(name), want[name], bound, exact)
            if seen is not None:
                outcome.seen.append(seen)

    def _field(
        self, outcome: Outcome, place: str, name: str, got: Array | None, want: Array, bound: float, exact: bool
    ) -> Observation | None:
        allowed = tolerance(bound, want, self.dtype)
        if got is None or got.shape != want.shape:
            has = "nothing" if got is None else f"shape {list(got.shape)}"
            outcome.divergence = outcome.divergence or Divergence(
                place, name, None, has, f"shape {list(want.shape)}", "different shapes"
            )
            return None
        if exact:
            with np.errstate(over="ignore"):
                want = want.astype(self.dtype)
        if not np.isfinite(allowed.bound) and not exact:
            return None  # the spec itself says nothing about this value
        gaps = np.abs(got.astype(np.float64) - want.astype(np.float64))
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        seen = Observation(place, name, float(np.max(gaps, initial=0.0)), allowed, exact)
        if seen.error > seen.allowed and outcome.divergence is None:
            at = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
            limit = "bit for bit" if exact else f"within {seen.allowed:.3g} (kappa {allowed.kappa:.3g})"
            outcome.divergence = Divergence(
                place, name, int(at[0]) if at else None, _shown(got, at), _shown(want, at),
                f"they differ by {seen.error:.3g}, but must agree {limit}",
            )  # fmt: skip
        return seen

    def _started(self) -> set[str]:
        spec = self.checked.spec
        return {f.target.name for f in spec.state if f.start is not None and is_settled(self.checked, f.start)}

    def _stopped(self, outcome: Outcome, case: Case, layer: int, before: Arrays, why: str) -> None:
        """The model refused a layer: so must the interpreter, or its value must not fit the model's precision.

        A model computes what the next layer will read (the logarithm of a field, say) as soon as the field is stored, so it
        may refuse one layer earlier.
        """
        outcome.refused = True
        fields: Mapping[str, Any] = before
        for number in (layer, layer + 1):
            try:
                made = self.whole.advance(fields, number, noise=self._noise(case, before, number + 1))
            except WeftError:
                return
            largest = max(float(np.max(np.abs(v), initial=0.0)) for step in made.steps for v in step.values())
            if largest > float(np.finfo(self.dtype).max):
                return
            fields = made.fields
        outcome.refused = False
        outcome.divergence = _one_sided(f"layer {layer + 1}", f"an error: {why}", "a value")

    def _outputs(self, outcome: Outcome, fields: Arrays, got: Mapping[str, Any]) -> None:
        """Outputs are functions of the final fields."""
        try:
            want = self.whole.outputs(fields)
        except WeftError as error:
            outcome.divergence = _one_sided("outputs", "a value", f"an error: {error}")
            return
        spec = self.checked.spec
        world = self.bounding.surroundings.world({n: v.astype(np.float64) for n, v in fields.items()})
        shown = {o.target.name: self.checked.output_field(o.target.name) for o in spec.outputs}
        written = tuple(
            Equation(o.span, o.target, o.body)
            for o in self.bounding.checked.spec.outputs
            if shown[o.target.name] not in self.checked.fields
        )
        settled = {o.target.name for o in spec.outputs if is_settled(self.checked, o.body)}
        have = {name: np.asarray(_plain(value)).reshape(want[name].shape) for name, value in got.items()}
        self._hold(outcome, "outputs", have, want, written, world, settled)


def _ends(program: Program) -> Iterator[int]:
    """The last sub-layer of each step that writes fields; other steps prepare the next one (they centre the data)."""
    block = -1
    for step in program.layer:
        block += len(step.sublayers)
        if step.writes:
            yield block


def _only(checked: Checked, step: Step) -> Checked:
    return replace(checked, spec=replace(checked.spec, steps=(step,)))


def _plain(value: Any) -> Array:
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value.numpy())


def _one_sided(place: str, got: str, want: str) -> Divergence:
    return Divergence(place, "", None, got, want, "only one side has a value")


def _shown(values: Array, at: tuple[Any, ...]) -> str:
    row = values[int(at[0])] if at else values
    return np.array2string(np.asarray(row, dtype=np.float64), precision=17, threshold=8, separator=", ")
