"""The meaning of every spec: a direct evaluation of its equations in NumPy float64, for all tokens at once.

It starts from a `Checked` spec and shares nothing with lowering or runtime; it is the arbiter for both.

    values      float64; sums over tokens are exact sums of rounded terms, means divide once (meaning_reductions)
    decisions   as exact arithmetic on the stored fields has them (meaning_decisions, meaning_rationals)
    nothing     an undefined value may be caught by `else`; storing one, or an overflow, is an EvaluationError

A layer is its steps in order. A step evaluates all its equations on the fields as they are, then stores the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weftc.core.errors import InputError
from weftc.core.syntax import Call, Equation, Expr, Ref, Weigh
from weftc.core.types import Checked
from weftc.interpreter.blame import no_value
from weftc.interpreter.decisions import Decisions, Tally
from weftc.interpreter.environment import EvaluationError, World, footprint, is_vector, names_read
from weftc.interpreter.environment_builder import Noise, Surroundings
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.initial import initial_rows
from weftc.interpreter.inputs import admit, array, encoded, known_names, with_token
from weftc.interpreter.pairs import with_entries
from weftc.interpreter.rationals import ExactEvaluator
from weftc.interpreter.tables import Floats, turned

__all__ = ["Advance", "Decisions", "EvaluationError", "InterpretedRun", "Interpreter"]

BLOCK = 2**21  # the most numbers a table should hold; larger equations are evaluated in blocks of tokens

Fields = dict[str, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Advance:
    """One layer: the fields after it, and after each of its steps, and how its decisions were settled."""

    fields: Fields
    steps: tuple[Fields, ...]
    decisions: Decisions


@dataclass(frozen=True, slots=True, eq=False)
class InterpretedRun(Mapping[str, Floats]):
    """The outputs by name, as the layers left them. `layers` is filled by `trace`."""

    outputs: Fields
    fields: Fields
    decisions: Decisions = field(default_factory=Decisions)
    layers: tuple[Advance, ...] = ()

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {list(values.shape)}" for name, values in self.outputs.items())
        return f"Run({shapes})"

    @property
    def undecided(self) -> int:
        """Rows whose candidates are closer than float64 can tell and whose scores are not rational."""
        return self.decisions.undecided

    def __getitem__(self, name: str) -> Floats:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


class Interpreter:
    """A checked spec with the dimensions and parameters that were given; the rest follows from inputs and defaults."""

    def __init__(
        self, checked: Checked, dims: Mapping[str, int] | None = None, params: Mapping[str, float] | None = None
    ) -> None:
        self.checked = checked
        self.surroundings = Surroundings(checked, dims or {}, params or {})

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(
        self, inputs: Mapping[str, Any], layers: int, *, seed: int = 0, noise: Noise = None, trace: bool = False
    ) -> InterpretedRun:
        """The outputs after a number of layers. `noise` replaces random fields: name -> array [layers, ...]."""
        if layers < 0:
            raise InputError(f"the number of layers must not be negative, but is {layers}")
        fields = self.start(inputs, seed=seed)
        decisions, kept = Decisions(), []
        for layer in range(layers):
            advance = self.advance(fields, layer, seed=seed, noise=noise)
            fields, decisions = advance.fields, decisions + advance.decisions
            if trace:
                kept.append(advance)
        return InterpretedRun(self.outputs(fields), fields, decisions, tuple(kept))

    def start(self, inputs: Mapping[str, Any], *, seed: int = 0) -> Fields:
        """The fields before the first layer: inputs, those that `init` makes, and state."""
        checked = self.checked
        declared = {f.target.name: f for f in checked.spec.inputs}
        inputs = with_entries(checked.spec, inputs)
        known_names("input", inputs, declared, checked.spec.name)
        given = {
            name: with_token(checked, name, array(name, encoded(checked.fields[name], inputs[name])))
            for name in declared
            if name in inputs
        }
        shapes = self.surroundings.shapes()
        for name, values in given.items():
            shapes.learn(name, values)
        for name, one in declared.items():
            if name in given:
                admit(checked.fields[name], given[name], inputs[name])
            elif one.init is None:
                raise InputError(f"{checked.spec.name} needs the input {name} ({one.type.kind} per token)")
            elif one.init.of not in given:
                raise InputError(f"{name} starts from {one.init.of} (`init {one.init.kind}`), which was not given")
            elif one.init.kind == "copy":
                shapes.learn(name, given[str(one.init.of)])
        shapes.settled()
        fields: Fields = {}
        for name, one in declared.items():
            if name not in given:
                assert one.init is not None
                source, shape = str(one.init.of), shapes.shape(checked.fields[name])
                rows = given[source].reshape(len(given[source]), -1)
                given[name] = initial_rows(one.init.kind, name, source, rows, shape[0], seed).reshape(shape)
                admit(checked.fields[name], given[name], given[name])
            fields[name] = given[name]
        starts = [Equation(f.span, f.target, f.start) for f in checked.spec.state if f.start is not None]
        return fields | self._step(self.surroundings.world(fields), starts, Tally())

    def advance(self, fields: Mapping[str, Any], layer: int, *, seed: int = 0, noise: Noise = None) -> Advance:
        """One layer, `layer` counted from 0, from stored fields."""
        tally = Tally()
        current = {name: array(name, values) for name, values in fields.items()}
        drawn = self.surroundings.noise(self.surroundings.world(current).sizes, layer, seed, noise)
        steps = []
        logs: Fields = {}
        for step in self.checked.spec.steps:
            world = replace(self.surroundings.world(current, drawn), logs=logs)
            logs = logs | self._logarithms(world, step.equations)
            current = current | self._step(world, step.equations, tally)
            steps.append(current)
        return Advance(current, tuple(steps), tally.total)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def outputs(self, fields: Mapping[str, Any]) -> Fields:
        """The named outputs of stored fields: what the layers held."""
        current = {name: array(name, values) for name, values in fields.items()}
        world = self.surroundings.world(current)
        result: Fields = {}
        for output in self.checked.spec.outputs:
            shown = self.checked.output_field(output.target.name)
            if shown is not None and shown in self.checked.fields:
                if shown not in current:
                    raise InputError(f"{shown} has no value before the first layer; run at least one")
                result[output.target.name] = current[shown]
            else:
                result[output.target.name] = self._read(world, output.target, output.body)
        return result

    def final(self, fields: Mapping[str, Any], *, layer: int = 0, seed: int = 0, noise: Noise = None) -> Fields:
        """The outputs, with those re-evaluated that were computed before a field they depend on changed.

        After the last layer a field may be out of date: its equation read what a later step of the same layer has
        replaced. Each such field that is an output is computed once more, by its own equation on the final fields.
        `layer` is the last one, for equations that read random fields.
        """
        result = self.outputs(fields)
        current = {name: array(name, values) for name, values in fields.items()}
        world = self.surroundings.world(current)
        for output in self.checked.spec.outputs:
            name = output.target.name
            equation = self._outdated(self.checked.output_field(name))
            if equation is not None:
                drawn = self.surroundings.noise(world.sizes, layer, seed, noise)
                (result[name],) = self._step(self.surroundings.world(current, drawn), [equation], Tally()).values()
        return result

    def objective(self, fields: Mapping[str, Any]) -> float:
        """The value of the spec's objective."""
        body = self.checked.spec.objective
        if body is None:
            raise InputError(f"{self.checked.spec.name} states no objective")
        world = self.surroundings.world({name: array(name, values) for name, values in fields.items()})
        return float(self._read(world, Ref(body.span, "objective", ()), body))

    def _outdated(self, name: str | None) -> Equation | None:
        """The equation of a field if it reads a field that a later step of the layer writes."""
        steps = self.checked.spec.steps
        for at in range(len(steps) - 1, -1, -1):
            for equation in steps[at].equations:
                if equation.target.name == name:
                    later = {e.target.name for step in steps[at + 1 :] for e in step.equations}
                    return equation if later & names_read(self.checked, equation.body) else None
        return None

    # ---- evaluating --------------------------------------------------------------------------------------------------

    def _step(self, world: World, equations: Sequence[Equation], tally: Tally) -> Fields:
        """The new values of all targets, every one computed from the old fields."""
        evaluator = Evaluator(world, ExactEvaluator(world), tally)
        result = {}
        for equation in equations:
            size = self._width(world, equation.target)
            values = self._values(evaluator, equation.target, equation.body, size or 1)
            result[equation.target.name] = values[..., 0] if size is None else values
        return result

    def _width(self, world: World, target: Ref) -> int | None:
        """How wide the values of an equation are; None for numbers, of a vector that is set by its coordinates too."""
        field = self.checked.fields[target.name]
        if len(target.indices) == 2:
            return None
        if field.columns is not None:
            return world.sizes[field.columns]
        return world.dims[field.width] if isinstance(field.width, str) else field.width

    def _logarithms(self, world: World, equations: Sequence[Equation]) -> Fields:
        """The logarithms of the fields that are softmaxes, however often they are written."""
        found: Fields = {}
        for equation in equations:
            if self._is_softmax(equation.target.name):
                body = Call(equation.body.span, "log", equation.body)
                evaluator = Evaluator(world, ExactEvaluator(world), Tally())
                found[equation.target.name] = self._values(evaluator, equation.target, body, 1)[..., 0]
        return found

    def _is_softmax(self, name: str) -> bool:
        """Whether every equation of a computed field is a softmax of all candidates over its second index."""
        kind = self.checked.fields[name]
        written = [e for step in self.checked.spec.steps for e in step.equations if e.target.name == name]
        return kind.role == "computed" and kind.is_pair and all(_plain_softmax(e) for e in written)

    def _read(self, world: World, target: Ref, body: Expr) -> Floats:
        """The value of an output or objective, which is not stored."""
        values = self._values(Evaluator(world, ExactEvaluator(world), Tally()), target, body, 1)
        return values if is_vector(self.checked, body) else values[..., 0]

    def _values(self, evaluator: Evaluator, target: Ref, body: Expr, width: int) -> Floats:
        """`body` at all tokens of `target`, (*tokens, width), numbers spread over the width; all must have a value."""
        world, axes = evaluator.world, target.indices
        size = world.size(axes[0]) if axes else 1
        rows = max(1, BLOCK * size // footprint(world, body)) if axes else 1
        parts = []
        for first in range(0, size, rows):
            tokens = np.arange(first, min(first + rows, size))
            block = evaluator if rows >= size else evaluator.over({axes[0]: tokens})
            table = turned(block.table(body), axes)
            if not (table.defined & table.finite).all():
                bad = np.argwhere(~(table.defined & table.finite)[..., 0])[0].tolist()
                at = {axis: int(block.tokens(axis)[place]) for axis, place in zip(axes, bad, strict=True)}
                raise no_value(evaluator, target, body, at)
            shape = tuple(len(block.tokens(axis)) for axis in axes)
            parts.append(np.broadcast_to(table.data, (*shape, max(width, table.data.shape[-1]))))
        return (np.concatenate(parts) if axes else parts[0]) + 0.0  # + 0.0: a stored zero has no sign


def _plain_softmax(equation: Equation) -> bool:
    body = equation.body
    return (
        isinstance(body, Weigh)
        and body.kind == "softmax"
        and not body.where
        and body.index == equation.target.indices[1]
    )
