"""A program and a number of layers -> its operations in order, with the derived slots that have to be made again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weftc_runtime.format.basis import Basis, bases_of
from weftc_runtime.format.program import FFN, Input, Program, ProgramStep, Sublayer
from weftc_runtime.format.tensor_checks import sources

Place = tuple[str, str]  # stream, slot


@dataclass(frozen=True, slots=True)
class Operation:
    """One sub-layer, one derived slot made again, or one random field drawn anew, and where that is."""

    path: str
    what: Sublayer | Input
    layer: int = 0  # of a random field


@dataclass(slots=True)
class DerivedOrder:
    """Which derived slots have to be made when: as soon as their sources are there, and whenever these change."""

    program: Program
    tensors: Mapping[str, npt.NDArray[np.float64]]
    ready: set[Place] = field(init=False)
    _bases: Mapping[str, Basis] = field(init=False)

    def __post_init__(self) -> None:
        self.ready = {(one.stream, one.slot) for one in self.program.inputs}
        self._bases = bases_of(self.program, self.tensors)

    def first(self) -> Iterator[FFN]:
        """Those that the inputs are enough for."""
        return self._due(set(self.ready), (), True)

    def after(self, changed: Collection[Place], done: Collection[object] = ()) -> Iterator[FFN]:
        """Those whose sources have changed, but for what a step has done itself."""
        self.ready |= set(changed)
        return self._due(set(changed), done, False)

    def _due(self, changed: set[Place], done: Collection[object], first: bool) -> Iterator[FFN]:
        for stream in self.program.streams:
            known = {slot.name for slot in stream.slots if slot.role in ("constant", "scratch")}
            known |= {slot for name, slot in self.ready if name == stream.name}
            moved = {slot for name, slot in changed if name == stream.name}
            for ffn in stream.derived:
                names = [name for name in (ffn.a, ffn.b, ffn.carry) if name is not None]
                matrices = {name: self.tensors[name] for name in names}
                read = sources(stream, ffn, matrices, self._bases.get(stream.name))
                if read <= known:
                    known |= set(ffn.writes)
                    if first or read & moved:
                        moved |= set(ffn.writes)
                        if ffn not in done:
                            yield ffn


def operations(program: Program, tensors: Mapping[str, npt.NDArray[np.float64]], layers: int) -> Iterator[Operation]:
    """Everything a run of so many layers does, in order, under the names that its hook sites have."""
    derived = DerivedOrder(program, tensors)

    def made(where: str, ffns: Iterator[FFN]) -> Iterator[Operation]:
        return (Operation(f"{where}.derived.{ffn.stream}.{'+'.join(ffn.writes)}", ffn) for ffn in ffns)

    def run(where: str, steps: tuple[ProgramStep, ...]) -> Iterator[Operation]:
        block = 0
        for step in steps:
            for sublayer in step.sublayers:
                yield Operation(f"{where}.{block}", sublayer)
                block += 1
            yield from made(f"{where}.{max(block - 1, 0)}", derived.after(step.writes, step.sublayers))

    yield from made("embedding", derived.first())
    yield from run("prelude", program.prelude)
    for layer in range(layers):
        yield from (Operation(f"layers.{layer}.noise.{one.name}", one, layer) for one in program.noises)
        yield from made(f"layers.{layer}.noise", derived.after([(one.stream, one.slot) for one in program.noises]))
        yield from run(f"layers.{layer}.blocks", program.steps_of(layer))
    yield from run("readout", program.readout)
