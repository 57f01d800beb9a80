"""Batches of problems, whether they ran as one, and every step of such a run held against the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from planned_cases import problem
from weftc.verification.cases.inputs import Case
from weftc.verification.steps.comparing import StepOutcome
from weftc.verification.steps.layers import Judge
from weftc_runtime import Model
from weftc_runtime.format.program import ProgramStep
from weftc_runtime.machines import answers, run
from weftc_runtime.machines.planned import PlannedBackend
from weftc_runtime.reference.state import Problem

Fields = dict[str, Any]


def batch(name: str, family: str, sizes: list[int], dtype: str = "float64") -> dict[str, list[torch.Tensor]]:
    """One problem of each size, as lists of arrays."""
    problems = [problem(name, family, size, number, dtype, k=4) for number, size in enumerate(sizes)]
    return {key: [torch.as_tensor(each[key]) for each in problems] for key in problems[0]}


def one(inputs: dict[str, list[torch.Tensor]], number: int) -> dict[str, torch.Tensor]:
    return {key: values[number] for key, values in inputs.items()}


@dataclass
class Steps:
    """What a joined run stored before the first layer and after every step, one problem after the other."""

    model: Model
    states: list[list[Fields]] = field(default_factory=list)  # after each step, of each problem
    start: list[Fields] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Listens to joined runs from here on."""
        step = PlannedBackend.step
        go = run.Run.layer

        def stepped(
            engine: PlannedBackend, what: ProgramStep, problems: list[Problem], blocks: Any, path: str, first: int
        ) -> None:
            step(engine, what, problems, blocks, path, first)
            if problems[0].number == -1 and path == "blocks" and what.writes:
                self.states.append(list(self._fields(engine, problems[0])))

        def layer(self_: run.Run, index: int, until_stable: bool = False) -> bool:
            if index == 0 and self_.joined is not None:
                assert isinstance(self_.engine, PlannedBackend)
                self.start = list(self._fields(self_.engine, self_.joined))
            return go(self_, index, until_stable)

        monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)  # the torch machine, step by step
        monkeypatch.setattr(PlannedBackend, "step", stepped)
        monkeypatch.setattr(run.Run, "layer", layer)

    def _fields(self, engine: PlannedBackend, whole: Problem) -> Iterator[Fields]:
        assert engine.groups is not None
        for number in range(engine.groups.count):
            found: Fields = {}
            for item in answers.field_inputs(self.model.program):
                if (item.stream, item.slot) in engine.derived_slots.ready:
                    rows = slice(*engine.groups.ends(item.stream, number))
                    held: Any = whole.residuals[item.stream]
                    found[item.name] = held.slot(item.slot).rows(rows).to(self.model.dtype)
            yield found

    def judged(self, judge: Judge, cases: list[Case]) -> Iterator[StepOutcome]:
        """Every step of every problem, from the fields it was made from."""
        many, layers = len(judge.steps), cases[0].layers
        assert len(self.states) == many * layers, "the problems did not run as one"
        for number, case in enumerate(cases):
            outcome, before = StepOutcome(), judge.watched.stored(self.start[number])
            world = judge.whole.world({name: before[name] for name in case.inputs})
            made = [judge.watched.stored(state[number]) for state in self.states]
            for layer in range(layers):
                drawn = judge.watched.noise(case, world.sizes, layer)
                steps = made[layer * many : (layer + 1) * many]
                judge._layer(outcome, f"problem {number}, layer {layer + 1}", before, steps, drawn)
                before = steps[-1]
            yield outcome
