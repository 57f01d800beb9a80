"""What a program costs: levels of attention, heads, feed-forwards, widths of the residual streams, parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weftc.emit.matrices import Array
from weftc_runtime.format.program import Attend, Program
from weftc_runtime.format.structure import numbers


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """The size of one layer, and of everything that the file holds."""

    levels: int  # sub-layers of a layer that have heads
    heads: int
    feed_forwards: int
    widths: Mapping[str, int]  # stream -> columns
    parameters: int  # numbers in all matrices of the file

    @property
    def width(self) -> int:
        return sum(self.widths.values())

    @property
    def as_data(self) -> dict[str, object]:
        """As plain data."""
        return {
            "levels": self.levels,
            "heads": self.heads,
            "feed_forwards": self.feed_forwards,
            "widths": dict(self.widths),
            "parameters": self.parameters,
        }


def program_cost(program: Program, tensors: Mapping[str, Array]) -> ProgramCost:
    """The cost of one layer of a program; of unrolled weights, of the first."""
    parts = [part for step in program.steps_of(0) for part in step.sublayers]
    heads = [len(part.heads) for part in parts if isinstance(part, Attend)]
    return ProgramCost(
        sum(1 for found in heads if found),
        sum(heads),
        len(parts) - len(heads),
        {stream.name: stream.width for stream in program.streams},
        numbers(tensors),
    )
