"""A run -> what the user asked for: outputs, fields, the objective, a trace.

Rows of a batch go back to the places they came from; padding is zero, and -1 among indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from weftc_runtime.data.hooks import padded
from weftc_runtime.data.results import Fields, Later, Lazy, OneHot, Outputs, Trace
from weftc_runtime.errors import RunError, Uncovered, shown
from weftc_runtime.exact.rows import all_finite
from weftc_runtime.exact.sums import binned_sum, exact_sum
from weftc_runtime.format.program import Input, Program, ProgramOutput
from weftc_runtime.machines.joined import JoinedProblems, joined_as
from weftc_runtime.machines.planned import PlannedBackend
from weftc_runtime.machines.run import Run
from weftc_runtime.reference.backend import Reference
from weftc_runtime.reference.faults import together
from weftc_runtime.reference.head import HeadRun
from weftc_runtime.reference.state import Problem


def field_inputs(program: Program) -> list[Input]:
    """Every field slot as an array [tokens, width] that can be given and taken."""
    return [
        Input(slot.name, stream.name, slot.name, "real")
        for stream in program.streams
        for slot in stream.slots
        if slot.role == "field"
    ]


def fields(run: Run) -> Fields:
    """The stored fields that something has set."""
    found = {
        item.name: slot_values(run, run.problems, item.stream, item.slot)
        for item in field_inputs(run.program)
        if (item.stream, item.slot) in run.engine.derived_slots.ready
    }
    return Fields(found)


def lazy_fields(run: Run) -> Fields:
    """The stored fields as they are now, each made when it is asked for."""
    now = copied(run)
    found = {
        item.name: Lazy(partial(slot_values, run, now, item.stream, item.slot))
        for item in field_inputs(run.program)
        if (item.stream, item.slot) in run.engine.derived_slots.ready
    }
    return Fields(found)


def ended(run: Run) -> Fields:
    """The stored fields at the end of a run, each made when it is asked for."""
    return Fields(lazy_fields(run).unmade(), later(run, run.problems))


def later(run: Run, end: Sequence[Problem]) -> Later:
    """What else the end of a run can be asked for."""

    def other() -> Run:
        problems = [problem.copy() for problem in end]
        return replace(run, engine=run.engine.scratch_copy(), problems=problems)  # nobody listens

    return {
        "final": Lazy(lambda: outputs(other(), again=True)),
        "objective": Lazy(lambda: objective(other())),
    }


def copied(run: Run) -> Sequence[Problem]:
    """The problems of a run as they are now."""
    whole = joined_as(run.problems)
    if whole is not None and isinstance(run.engine, PlannedBackend) and run.engine.groups is not None:
        return JoinedProblems.of(whole.copy(), run.engine.groups)
    return [problem.copy() for problem in run.problems]


def outputs(run: Run, again: bool) -> Outputs:
    """The outputs as the layers hold them; with `again` those that are out of date are made once more."""
    redone: dict[int, Sequence[Problem]] = {}
    if again:
        for step in sorted({output.again for output in run.program.outputs if output.again is not None}):
            redone[step] = run.again(step)
    run.readout(run.program.outputs)
    run.forget()
    found: dict[str, Any] = {}
    for output in run.program.outputs:
        problems = redone[output.again] if again and output.again is not None else run.problems
        if output.kind == "pattern" and output.head is not None and run.collective.shares(output.head.keys):
            found[output.name] = Lazy(partial(_spread_pattern, output))
        elif output.kind == "pattern":  # n x k: made only when somebody asks for it
            found[output.name] = Lazy(partial(answer, run, output, problems))
        elif run.defers(output, problems):
            found[output.name] = _in_blocks(run, output, problems)
        else:
            found[output.name] = answer(run, output, problems)
    return Outputs(found)


def _spread_pattern(output: ProgramOutput) -> Tensor:
    """No process holds the keys of a pattern over a shared set."""
    assert output.head is not None
    raise RunError(
        f"{shown(output.name)} has a column for every row of {output.head.keys}, which several processes share; "
        "run in one process for it"
    )


def _in_blocks(run: Run, output: ProgramOutput, problems: Sequence[Problem]) -> Lazy:
    """A pair field that is made where it is read: whole, or some rows of it at a time."""
    make = partial(answer, run, output, problems)
    if run.batch.batched:
        return Lazy(make)
    held, dtype = run.held(problems[0], output.stream, output.slot), run.engine.dtype

    def rows(part: slice) -> Tensor:
        return _fitting(output, held.rows(part).to(dtype), dtype)

    return Lazy(make, rows, held.tokens, held.width, dtype)


def answer(run: Run, output: ProgramOutput, problems: Sequence[Problem]) -> Tensor | OneHot:
    """One output, read from these problems; where the plan does not cover what is read, by the reference."""
    try:
        return _read(run, output, problems)
    except (Uncovered, RunError) as reason:
        other = replace(run, problems=problems)
        other.hand_over(reason)
        run.why = other.why
        return _read(other, output, other.problems)


def _read(run: Run, output: ProgramOutput, problems: Sequence[Problem]) -> Tensor | OneHot:
    dtype = run.engine.dtype
    for problem in problems if joined_as(problems) is None else ():
        fault = problem.faults.get((output.stream, output.slot))
        if fault is not None:
            raise fault.told("")
    if output.kind == "pattern":
        return _fitting(output, _pattern(run, output, problems), dtype)
    if output.kind in ("total", "common"):
        if output.kind == "total" and joined_as(problems) is not None:  # padding is zero, and sums are exact
            rows = slot_values(run, problems, output.stream, output.slot, torch.float64)
            return _fitting(output, exact_sum(rows[..., 0], 1).to(dtype), dtype)
        columns = [run.read(p, output.stream, output.slot)[:, 0] for p in problems]
        found = [
            (_total(run, output, c) if output.kind == "total" else _common(run, output, c)).to(dtype) for c in columns
        ]
        return _fitting(output, torch.stack(found) if run.batch.batched else found[0], dtype)
    indices = run.indices(problems, output.stream, output.slot) if output.kind == "onehot" else None
    if indices is not None:
        return OneHot(indices, run.program.stream(output.stream).slot(output.slot).width, dtype, output.symbols)
    value = _fitting(output, slot_values(run, problems, output.stream, output.slot), dtype)
    if output.kind == "number":
        return value[..., 0]
    if output.kind == "onehot":
        plain = value.detach()
        filled = plain > 0.5 if run.engine.derived_slots.bases.blurred else plain != 0
        return OneHot(torch.where(filled.any(-1), plain.argmax(-1), -1), plain.shape[-1], dtype, output.symbols)
    return value


def _total(run: Run, output: ProgramOutput, column: Tensor) -> Tensor:
    """The sum of a number of all tokens."""
    if not run.collective.shares(output.stream):
        return exact_sum(column, 0)
    return binned_sum([(column, torch.zeros_like(column, dtype=torch.int64))], 1, run.collective)[0]


def _common(run: Run, output: ProgramOutput, column: Tensor) -> Tensor:
    """The number that all tokens have."""
    if not run.collective.shares(output.stream):
        return column[0]
    mine = column[0] if len(column) else torch.tensor(-torch.inf, dtype=torch.float64)
    return run.collective.max(mine.reshape(1))[0]


def _fitting(output: ProgramOutput, value: Tensor, dtype: torch.dtype) -> Tensor:
    """The value, unless it became infinite in the storage dtype."""
    if not value.is_meta and not all_finite(value.detach()):
        name = str(dtype).removeprefix("torch.")
        raise RunError(f"output {shown(output.name)} does not fit {name}; scale the inputs down")
    return value


def slot_values(
    run: Run, problems: Sequence[Problem], stream: str, slot: str, dtype: torch.dtype | None = None
) -> Tensor:
    """A slot of all problems, [tokens, width] or [batch, tokens, width]."""
    whole = joined_as(problems)
    parts = [run.read(p, stream, slot) for p in (problems if whole is None else [whole])]
    return _placed_back(run, parts, stream).to(dtype or run.engine.dtype)


def _placed_back(run: Run, parts: list[Tensor], stream: str) -> Tensor:
    """Rows of all problems at the places they came from, as one batch."""
    if not run.batch.batched:
        return parts[0]
    return run.batch.layouts[stream].placed(parts[0] if len(parts) == 1 else torch.cat(parts), 0)


def _pattern(run: Run, output: ProgramOutput, problems: Sequence[Problem]) -> Tensor:
    """The weights of a head on the state as it is, times a number of each query."""
    head = output.head
    assert head is not None
    engine, dense = run.literal(problems)
    parts = []
    for problem in dense:
        engine.enter(problem, bounded=True)
        assert problem.exact is not None
        null = problem.nulls.get(head.keys)
        head_run = HeadRun(head, engine.weights, problem.residuals, problem.radii, problem.exact, null=null)
        head_run.watch(problem, engine.derived_slots)
        pattern = next(head_run.run({"hook_pattern"}))[1][:, : len(problem.residuals[head.keys])]
        if output.scale is not None:
            if problem.faults:
                read = engine.derived_slots.slots_read_by(head.query, output.scale)
                lost = together(problem.faults, head.query, read)
                if lost is not None:
                    raise lost.told("")
            pattern = pattern * engine.weights.linear(problem.residuals[head.query], output.scale)
        parts.append(pattern.to(engine.dtype))
        problem.exact = problem.radii = None
    if not run.batch.batched:
        return parts[0]
    keys = run.batch.layouts[head.keys]
    wide = [keys.spread(part.T, number).T for number, part in enumerate(parts)]
    return _placed_back(run, wide, head.query)


class Tracer:
    """Notes every slot after every sub-layer of a run."""

    def __init__(self, patterns: bool) -> None:
        self.patterns = patterns
        self.seen: dict[str, Tensor | Lazy] = {}  # slots are made when they are asked for
        self.fields: list[Fields] = []

    def watch(self, run: Run) -> None:
        """Listens to a run from here on."""
        self.run = run
        run.engine.tap = self._tap
        if not isinstance(run.engine, Reference):
            return
        run.engine.pattern_tap = self._pattern_tap if self.patterns else None

    def started(self) -> None:
        """Notes the state before the first layer."""
        self._tap("start", list(self.run.problems))
        self.fields.append(fields(self.run))

    def layer_done(self) -> None:
        """Notes the fields after a layer."""
        self.fields.append(fields(self.run))

    def trace(self) -> Trace:
        """Everything noted."""
        end = [problem.copy() for problem in self.run.problems]
        self.fields[-1] = Fields(self.fields[-1], later(self.run, end))
        return Trace(self.seen, self.fields, outputs(self.run, again=False))

    def _tap(self, path: str, problems: list[Problem]) -> None:
        current = {problem.number: problem for problem in (*self.run.problems, *problems)}
        ordered = [current[number].copy() for number in sorted(current)]  # as they are now
        for stream in self.run.program.streams:
            for slot in stream.slots:
                made = partial(slot_values, self.run, ordered, stream.name, slot.name)
                self.seen[f"{path}.{stream.name}.{slot.name}"] = Lazy(made)

    def _pattern_tap(self, path: str, found: list[Tensor]) -> None:
        whole = padded(found) if self.run.batch.batched else found[0]
        self.seen[f"{path}.pattern"] = whole.to(self.run.engine.dtype)


def objective(run: Run) -> Tensor:
    """The objective of the final state."""
    if run.program.objective is None:
        raise RunError(f"{shown(run.program.name)} states no objective")
    run.readout((run.program.objective,))
    return cast(Tensor, answer(run, run.program.objective, run.problems))
