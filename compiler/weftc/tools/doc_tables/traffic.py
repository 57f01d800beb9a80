"""What the processes of a run send to each other, spec by spec, as docs/scale.md has it.

A process that only pretends to have others runs the layers: it holds all rows, they hold none. What it sends is what
it would send to any others, but for what data decide: candidates that are close, and limbs of numbers of many sizes.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

import weftc_runtime
from weftc.compiling import checked_spec, compile
from weftc.files.locate import names
from weftc.show.style_effects import sizes
from weftc.verification.cases.inputs import FAMILIES, Shape, draw
from weftc_runtime.kernels.collective import Collective, ProcessGroup

CENTERS, COLUMNS, PROCESSES = 64, 16, 4
ROWS = (256, 512)


class Rehearsal(ProcessGroup):
    """One process among others that hold nothing and say the same."""

    def __init__(self, size: int) -> None:
        Collective.__init__(self, 0, size)
        self._device, self.operations = torch.device("cpu"), 0

    def share(self, counts: Any) -> None:
        """All rows are here."""
        self.starts = {name: [0, *[count] * self.size] for name, count in counts.items()}

    def _next(self, what: str) -> None:
        self.operations += 1
        super()._next(what)

    def _all(self, numbers: Tensor, largest: bool) -> Tensor:
        return numbers

    def _of_all(self, numbers: Tensor) -> list[Tensor]:
        return [numbers, *[torch.zeros_like(numbers)] * (self.size - 1)]

    def _to_next(self, numbers: Tensor, found: Tensor) -> Tensor:
        return found

    def _of(self, numbers: Tensor, source: int) -> Tensor:
        return numbers

    def _listed(self, mine: Any) -> list[Any]:
        self.sent += len(pickle.dumps(mine))
        return [mine] * self.size


class Meter:
    """What a process has sent when its layers are behind it. It is told no sooner: layers run as if nobody watched."""

    pause = inf

    def __init__(self, group: Collective) -> None:
        self._group, self.sent, self.operations = group, 0, 0

    def __call__(self, what: str, done: int, total: int | None, /) -> None:
        self.sent, self.operations = self._group.sent, getattr(self._group, "operations", 0)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one process sends in a layer: bytes for any number of rows, bytes for each of its rows, and operations."""

    fixed: int
    a_row: float
    operations: int


def a_layer(name: str, deterministic: bool = False) -> Traffic:
    """The fourth layer: those before find out what lasts."""
    found = [sent(name, rows, deterministic) for rows in ROWS]
    a_row = (found[1][0] - found[0][0]) / (ROWS[1] - ROWS[0])
    return Traffic(round(found[0][0] - a_row * ROWS[0]), a_row, found[0][1])


def sent(name: str, rows: int, deterministic: bool = False) -> tuple[int, int]:
    """Bytes and operations that a fourth layer takes of one process."""
    checked = checked_spec(name)
    dims = {dim: CENTERS if small == 3 else COLUMNS for dim, small in sizes(checked).items()}
    made = compile(checked, dims)
    homes = {home: size if isinstance(size, int) else dims.get(size or "", rows) for home, size in checked.sets.items()}
    drawn = draw(checked, Shape(dims, homes), next(iter(FAMILIES)), np.random.default_rng(0)).inputs
    needed = {item.name: drawn[item.name] for item in made.program.inputs if item.init is None}
    ends = []
    for layers in (3, 4):
        group = Rehearsal(PROCESSES)
        meter = Meter(group)
        model = weftc_runtime.load(made, dtype="float32", group=group, deterministic=deterministic)
        model(needed, layers=layers, progress=meter)
        ends.append((meter.sent, meter.operations))
    return ends[1][0] - ends[0][0], ends[1][1] - ends[0][1]


def traffic() -> str:
    """Every built-in spec, with 64 centers and 16 columns, in float32."""
    lines = ["| spec | bytes of a layer | operations |", "|---|--:|--:|"]
    for name in names(""):
        try:
            found = a_layer(name)
        except weftc_runtime.RunError as refusal:
            lines.append(f"| {name} | refused: {refusal} | |")
            continue
        each = f" + {found.a_row:.3g} a row" if found.a_row else ""
        total = f"{found.fixed:,}{each}" if found.operations else "nothing"
        lines.append(f"| {name} | {total} | {found.operations} |")
    return "\n".join(lines)
