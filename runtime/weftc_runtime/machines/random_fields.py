"""Random fields of a run: filled anew before every layer, from the generator or from arrays that the caller gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.data.batch import Batch
from weftc_runtime.data.noise import noise as draw
from weftc_runtime.data.noise import noise_at
from weftc_runtime.errors import RunError, shown, suggestion
from weftc_runtime.exact.rows import Rows
from weftc_runtime.format.program import Input, Program
from weftc_runtime.machines.planned import PlannedBackend
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, LazySlot, SlotValue
from weftc_runtime.reference.backend import Reference
from weftc_runtime.reference.state import Problem

Kind = Literal["gumbel", "normal", "uniform"]


@dataclass(frozen=True, slots=True)
class RandomFields:
    """The random fields of a program on a batch; `given`: arrays [batch, layers, tokens, columns] for some."""

    program: Program
    batch: Batch
    given: Mapping[str, Tensor]

    @classmethod
    def of(
        cls, program: Program, batch: Batch, noise: Mapping[str, Any], layers: int, device: torch.device
    ) -> RandomFields:
        return cls(program, batch, given_noise(program, noise, batch, layers, device) if noise else {})

    def fill(self, engine: Reference | PlannedBackend, problems: Iterable[Problem], layer: int) -> None:
        """Fills all of them before a layer."""
        problems = list(problems)
        for item in self.program.noises:
            for problem in problems:
                if isinstance(engine, PlannedBackend):
                    engine.fill(problem, item.stream, item.slot, self._drawn(engine, item, layer, problem))
                else:
                    rows = self._rows(item, layer, problem).to(engine.dtype).to(torch.float64)
                    z, bases = problem.residuals[item.stream], engine.derived_slots.bases
                    problem.residuals[item.stream] = bases.replaced(item.stream, item.slot, z, rows)
            engine.derived_slots.ready.add((item.stream, item.slot))
        if self.program.noises and isinstance(engine, Reference):
            engine.derived_slots.refresh(problems)

    def _given(self, item: Input, layer: int, problem: Problem) -> Tensor:
        return self.given[item.name][problem.number, layer][self.batch.layouts[item.stream].rows(problem.number)]

    def _rows(self, item: Input, layer: int, problem: Problem) -> Tensor:
        """A random field, as rows."""
        z, width = problem.residuals[item.stream], self.program.stream(item.stream).slot(item.slot).width
        if item.name in self.given:
            return self._given(item, layer, problem)
        if z.is_meta:
            return z.new_empty(len(z), width)
        seed = self.batch.seeds[problem.number]
        return torch.as_tensor(draw(cast(Kind, item.kind), seed, item.name, layer, len(z), width), device=z.device)

    def _drawn(self, engine: PlannedBackend, item: Input, layer: int, problem: Problem) -> SlotValue:
        """A random field that is drawn where it is read."""
        if item.name in self.given:
            return DenseSlot(self._given(item, layer, problem))
        kind, z = cast(Kind, item.kind), cast(Residual, problem.residuals[item.stream])
        seed, tokens, device = self.batch.seeds[problem.number], len(z), z.device
        width = self.program.stream(item.stream).slot(item.slot).width
        first = engine.collective.rows(item.stream, tokens)[0]
        order, columns = np.arange(first, first + tokens), np.arange(width)

        def make(rows: Rows) -> Tensor:
            picked = order[rows] if isinstance(rows, slice) else order[rows.cpu().numpy()]
            return torch.as_tensor(noise_at(kind, seed, item.name, layer, picked, columns), device=device)

        def make_column(column: int) -> Tensor:
            made = noise_at(kind, seed, item.name, layer, order, columns[column : column + 1])
            return torch.as_tensor(made[:, 0], device=device)

        return LazySlot(tokens, width, make, device, make_column)


def _without_columns(tensor: Tensor, tokens: int, batch: Batch) -> list[tuple[int, ...]]:
    """Shapes of noise for a number per token: [layers, tokens], perhaps with an axis in front for a batch."""
    layers = tensor.shape[-2] if tensor.dim() > 1 else 0
    return [(layers, tokens), (batch.count, layers, tokens)] if batch.batched else [(layers, tokens)]


def given_noise(
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
        tensor = array.to(device).to(torch.float64)  # which the device it comes from may not have
        numbers = width == 1 and tuple(tensor.shape) in _without_columns(tensor, tokens, batch)
        tensor = tensor[..., None] if numbers else tensor
        tensor = tensor[None].expand(batch.count, *tensor.shape) if tensor.dim() == 3 else tensor
        fits = tensor.dim() == 4 and len(tensor) == batch.count and tuple(tensor.shape[2:]) == (tokens, width)
        if not fits or tensor.shape[1] < layers:
            wanted = f"[layers, {tokens}, {width}], with an axis in front for a batch, and at least {layers} layers"
            raise RunError(f"noise {shown(name)} has shape {list(array.shape)}; it must be {wanted}")
        if not tensor.is_meta and not bool(torch.isfinite(tensor).all()):
            raise RunError(f"noise {shown(name)} holds a value that is not finite")
        found[name] = tensor
    return found
