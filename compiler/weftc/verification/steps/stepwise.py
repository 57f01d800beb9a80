"""The interpreter one step at a time, from whatever fields and logarithms stood before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.source import NOWHERE
from weftc.core.syntax import Equation, Ref
from weftc.interpreter.decisions import Decisions, Tally
from weftc.interpreter.environment import World
from weftc.interpreter.interpreter import Interpreter

OBJECTIVE = Ref(NOWHERE, "objective", ())
Array = NDArray[Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Stepped:
    """One step: what it read, the fields after it, the logarithms of softmax fields so far, and how it decided."""

    world: World
    fields: dict[str, Array]
    logs: dict[str, Array]
    decisions: Decisions


class Stepwise(Interpreter):
    """An interpreter that can be asked for single steps."""

    def world(self, fields: Arrays, noise: Arrays | None = None) -> World:
        """The world of stored fields, in float64."""
        return self.surroundings.world({n: np.asarray(v, np.float64) for n, v in fields.items()}, dict(noise or {}))

    def step(self, number: int, fields: Arrays, noise: Arrays, logs: Arrays) -> Stepped:
        """Step `number` of a layer; `noise` holds the random fields of this layer."""
        equations = self.checked.spec.steps[number].equations
        world = replace(self.world(fields, noise), logs=dict(logs))
        tally = Tally()
        after = {**world.fields, **self._step(world, equations, tally)}
        return Stepped(world, after, {**logs, **self._logarithms(world, equations)}, tally.total)

    def answers(self) -> tuple[Equation, ...]:
        """What is read at the end, as equations: the outputs that are computed then, and the objective."""
        spec, fields = self.checked.spec, self.checked.fields
        computed = (one for one in spec.outputs if self.checked.output_field(one.target.name) not in fields)
        found = [Equation(one.span, one.target, one.body) for one in computed]
        if spec.objective is not None:
            found.append(Equation(spec.objective.span, OBJECTIVE, spec.objective))
        return tuple(found)
