"""One run of a program: embedding, prelude, layers, read-out, on all problems of a batch.

A `Run` owns the residuals of its problems and the backend that advances them; `answers` reads results from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from weft_runtime.errors import RunError, shown, suggestion
from weft_runtime.hooks import Block
from weft_runtime.inputs import Batch
from weft_runtime.ir import Input, Program, Step
from weft_runtime.noise import noise as draw
from weft_runtime.reference import Reference
from weft_runtime.state import Problem
from weft_runtime.weights import Weights


@dataclass(slots=True)
class Sites:
    """The hook sites of a model, one block per sub-layer."""

    prelude: nn.ModuleList
    layer: nn.ModuleList
    readout: nn.ModuleList


@dataclass(slots=True)
class Run:
    """A run under way."""

    program: Program
    sites: Sites
    engine: Reference
    batch: Batch
    problems: list[Problem]
    noise: Mapping[str, Tensor]
    layers: list[int] = field(default_factory=list)  # per problem
    stable: list[bool] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        program: Program,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        sites: Sites,
        batch: Batch,
        places: Mapping[str, tuple[str, str]],
        noise: Mapping[str, Any],
        layers: int,
    ) -> Run:
        """The residual right after the embedding; `places` says which slot each array of the batch fills."""
        device = next(iter(weights.values())).device
        engine = Reference(program, Weights(weights), dtype, batch.batched)
        problems = []
        for number, values in enumerate(batch.values):
            filled = {places[name]: rows for name, rows in values.items()}
            problems.append(Problem(embed(program, filled, batch, number, device), number))
        engine.upkeep.ready.update(places[name] for name in batch.values[0])
        engine.upkeep.refresh(problems)
        explicit = explicit_noise(program, noise, batch, layers, device)
        return cls(program, sites, engine, batch, problems, explicit, [0] * batch.count, [False] * batch.count)

    # ------------------------------------------------------------------ phases
    def prelude(self) -> None:
        """The steps before the first layer."""
        for step, blocks, first in placed(self.program.prelude, self.sites.prelude):
            self.engine.step(step, self.problems, blocks, "prelude", first)

    def layer(self, index: int, until_stable: bool = False) -> bool:
        """One layer on every problem that is not stable yet; False when none is left."""
        active = [problem for problem in self.problems if not self.stable[problem.number]]
        if not active:
            return False
        before = [dict(problem.z) for problem in active]
        self.refill(index, active)
        self._demand(index, active)
        for problem in active:
            self._check_conditions(problem, index)
        self.engine.prefix = f"layers.{index}."
        for step, blocks, first in self.steps(index):
            self.engine.step(step, active, blocks, "blocks", first)
        self.engine.prefix = ""
        for problem, old in zip(active, before, strict=True):
            self.layers[problem.number] += 1
            self.stable[problem.number] = until_stable and self._unchanged(old, problem.z)
        return True

    def _check_conditions(self, problem: Problem, index: int) -> None:
        """Refuses data for which this program is not known to equal its spec."""
        for condition in self.program.conditions:
            stream = self.program.stream(condition.stream)
            columns = [c for name in condition.slots for c in range(*stream.slot(name).columns.indices(stream.width))]
            looks = problem.z[condition.stream].detach()[:, columns]
            if not looks.is_meta and len(torch.unique(looks, dim=0)) < len(looks):
                raise RunError(f"this model needs that {condition.text}; before layer {index + 1} two tokens are equal")

    def steps(self, index: int) -> Iterator[tuple[Step, list[Block], int]]:
        """The steps of one layer with their hook sites; unrolled weights have their own for each layer."""
        every = list(placed(self.program.layer, self.sites.layer))
        if not is_unrolled(self.program):
            yield from every
            return
        each = len(every) // self.program.layers
        yield from every[index * each : (index + 1) * each]

    def again(self, step: int) -> list[Problem]:
        """The final state after one more pass through one step of the layer, on a copy."""
        problems = [problem.copy() for problem in self.problems]
        if not any(self.layers):
            self.refill(0, problems)
        last = max(0, self.program.layers - 1) if is_unrolled(self.program) else 0
        chosen, blocks, first = list(self.steps(last))[step]
        self.engine.aside().step(chosen, problems, blocks, "again", first)
        return problems

    def readout(self) -> None:
        """The steps after the last layer."""
        for step, blocks, first in placed(self.program.readout, self.sites.readout):
            self.engine.step(step, self.problems, blocks, "readout", first)

    # ------------------------------------------------------------------ details
    def refill(self, index: int, problems: list[Problem]) -> None:
        """Fills the random fields anew before a layer."""
        for item in self.program.noises:
            for problem in problems:
                self._fill(item, index, problem)
            self.engine.upkeep.ready.add((item.stream, item.slot))
        if self.program.noises:
            self.engine.upkeep.refresh(problems)

    def _fill(self, item: Input, index: int, problem: Problem) -> None:
        slot = self.program.stream(item.stream).slot(item.slot)
        z = problem.z[item.stream]
        if item.name in self.noise:
            rows = self.noise[item.name][problem.number, index]
            rows = rows[self.batch.layouts[item.stream].rows[problem.number]]
        elif z.is_meta:
            rows = z.new_empty(len(z), slot.width)
        else:
            kind = cast(Literal["gumbel", "normal", "uniform"], item.kind)
            made = draw(kind, self.batch.seeds[problem.number], item.name, index, len(z), slot.width)
            rows = torch.as_tensor(made, device=z.device)
        rows = rows.to(self.engine.dtype).to(torch.float64)
        problem.z[item.stream] = torch.cat([z[:, : slot.offset], rows, z[:, slot.offset + slot.width :]], 1)

    def _demand(self, index: int, problems: list[Problem]) -> None:
        """Refuses a state in which the program is not what its spec says."""
        for condition in self.program.conditions:
            stream = self.program.stream(condition.stream)
            for problem in problems:
                rows = torch.cat([problem.z[stream.name][:, stream.slot(slot).columns] for slot in condition.slots], 1)
                pair = None if rows.is_meta else _same_rows(rows.detach())
                if pair is not None:
                    where = f", problem {problem.number} of the batch" if self.batch.batched else ""
                    what = f"tokens {pair[0]} and {pair[1]} of {stream.name} (counted from 0{where}) are equal"
                    raise RunError(f"{condition.text}: before layer {index}, {what}")

    def _unchanged(self, old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> bool:
        """Whether a layer left every field it writes as it was."""
        for step in self.program.layer:
            for name, slot in step.writes:
                columns = self.program.stream(name).slot(slot).columns
                if not torch.equal(old[name][:, columns], new[name][:, columns]):
                    return False
        return True


def _same_rows(rows: Tensor) -> tuple[int, int] | None:
    """The first two rows that are equal."""
    _, group, counts = torch.unique(rows + 0.0, dim=0, return_inverse=True, return_counts=True)  # -0.0 is 0.0
    repeated = (counts[group] > 1).nonzero()[:, 0].tolist()
    if not repeated:
        return None
    first = repeated[0]
    return first, next(row for row in repeated[1:] if group[row] == group[first])


def is_unrolled(program: Program) -> bool:
    """Whether every layer has weights of its own."""
    return program.options.get("weights") == "unrolled"


def placed(steps: Sequence[Step], sites: nn.ModuleList) -> Iterator[tuple[Step, list[Block], int]]:
    """Every step with its blocks of hook sites and the number of its first block."""
    at = 0
    for step in steps:
        yield step, [cast(Block, sites[at + i]) for i in range(len(step.sublayers))], at
        at += len(step.sublayers)


def embed(
    program: Program, filled: Mapping[tuple[str, str], Tensor], batch: Batch, number: int, device: torch.device
) -> dict[str, Tensor]:
    """The residual of one problem before the first step: inputs and constants in their slots, zeros elsewhere."""
    instructions = {(embed.stream, embed.slot): embed for embed in program.embedding}
    sizes = {name: len(layout.rows[number]) for name, layout in batch.layouts.items()}
    state: dict[str, Tensor] = {}
    for stream in program.streams:
        tokens = sizes[stream.name]
        pieces = []
        for slot in stream.slots:
            place = (stream.name, slot.name)
            piece = torch.zeros(tokens, slot.width, dtype=torch.float64, device=device)
            instruction = instructions.get(place)
            if place in filled:
                piece = filled[place]
            elif instruction is not None and instruction.kind == "one":
                piece = torch.ones_like(piece)
            elif instruction is not None and instruction.kind == "identity":
                piece = torch.eye(tokens, dtype=torch.float64, device=device)
            elif instruction is not None and instruction.kind == "position":
                piece = torch.arange(1, tokens + 1, dtype=torch.float64, device=device)[:, None]
            elif instruction is not None and instruction.kind == "count":
                piece = torch.full_like(piece, sizes[instruction.source])
            pieces.append(piece)
        state[stream.name] = torch.cat(pieces, 1)
    return state


def explicit_noise(
    program: Program, noise: Mapping[str, Any], batch: Batch, layers: int, device: torch.device
) -> dict[str, Tensor]:
    """Arrays that replace the generator, as [batch, layers, tokens, columns]."""
    known = {item.name: item for item in program.noises}
    found: dict[str, Tensor] = {}
    for name, value in noise.items():
        if name not in known:
            raise RunError(f"noise for an unknown random field {shown(name)}{suggestion(str(name), known)}")
        item = known[name]
        width, tokens = program.stream(item.stream).slot(item.slot).width, batch.layouts[item.stream].places
        try:
            array = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value, dtype=np.float64))
        except (TypeError, ValueError):
            raise RunError(f"noise {shown(name)} is not an array of numbers") from None
        tensor = array.to(device=device, dtype=torch.float64)
        tensor = tensor[None].expand(batch.count, *tensor.shape) if tensor.dim() == 3 else tensor
        fits = tensor.dim() == 4 and len(tensor) == batch.count and tuple(tensor.shape[2:]) == (tokens, width)
        if not fits or tensor.shape[1] < layers:
            wanted = f"[layers, {tokens}, {width}], with an axis in front for a batch, and at least {layers} layers"
            raise RunError(f"noise {shown(name)} has shape {list(array.shape)}; it must be {wanted}")
        if not tensor.is_meta and not bool(torch.isfinite(tensor).all()):
            raise RunError(f"noise {shown(name)} holds a value that is not finite")
        found[name] = tensor
    return found
