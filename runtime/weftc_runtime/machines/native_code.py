"""What the native machine reads: the instructions of a layer as flat arrays of whole numbers and doubles."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weftc_runtime.format.program import ProgramStep
from weftc_runtime.plan.instructions import AttendPlan, HeadPlan, SlotWrite

VERSION = 1  # CODE_VERSION of machine.cpp
DENSE, UNIFORM, INDEX, LAZY, NOISE, IDENTITY = range(6)
MAP, WRITE, CHOOSE, GATHER, RANK, SOFT, MAKE_LAZY, MEMBER_SOFT, MAP_WHEN_READ, OWN, KEPT_SOFT, BEST = range(1, 13)
BLOCKED = ("sparse", "deferred")  # forms of what a feed-forward makes when it is read
RANKED = ("top", "normmax", "sparsemax")
KINDS = {"softmax": 0, "exp": 1, "sum": 2, "normalize": 3, "lse": 4, "max": 5}
NAMES = "product reciprocal log exp sqrt relu relu2 tanh copy unit layer abs select sigmoid softplus"
FUNCTIONS = {name: number for number, name in enumerate(NAMES.split())}
NOISES = {"gumbel": 1, "uniform": 2}
FORMS = {"uniform": UNIFORM, "sparse": INDEX, "deferred": LAZY}
Place = tuple[str, str]  # stream and slot
Row = tuple[tuple[int, int, float], ...]  # slot, column, coefficient


@dataclass(slots=True)
class Code:
    """What is written so far."""

    whole: list[int] = field(default_factory=list)
    real: list[float] = field(default_factory=list)

    def add(self, *numbers: int) -> None:
        self.whole.extend(map(int, numbers))

    def rows(self, rows: Iterable[Row], exact: bool = True) -> None:
        """Rows of a matrix; `exact`: sums are rounded once."""
        every = list(rows)
        self.add(len(every), exact)
        for row in every:
            self.add(len(row))
            for slot, column, factor in row:
                self.add(slot, column)
                self.real.append(factor)

    def join(self, other: Code) -> None:
        self.whole += other.whole
        self.real += other.real


@dataclass(frozen=True, slots=True)
class SlotCode:
    """A slot as the machine holds it."""

    place: Place
    kind: int
    width: int
    single: bool  # in float32
    role: str
    group: int  # lazy: of the heads that make it; noise: its kind
    name: int  # noise: the number of its name


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, and the head it stands for."""

    name: str
    text: str
    code: Code
    head: HeadPlan | None = None
    path: str = ""  # of the head in reports, which count its rows
    streams: frozenset[str] = frozenset()  # the sets whose tokens it works for
    keys: str = ""  # the set it looks at for these
    adds: bool = False  # whether processes that hold some of the keys each can add up what they come to

    @property
    def chooses(self) -> bool:
        return self.name == "choose"


@dataclass(frozen=True, slots=True)
class LazyWrite:
    """A slot whose rows are made when they are read, and the slots that are written after it or with it."""

    attend: AttendPlan
    write: SlotWrite
    later: frozenset[Place]

    @property
    def place(self) -> Place:
        return self.write.stream, self.write.slot

    @property
    def lasts(self) -> bool:
        """Whether the slot holds this at the end of the layer."""
        return self.place not in self.later


@dataclass(frozen=True, slots=True)
class StepGroup:
    """The steps that instructions are for: all of a layer, or one of those around the layers or of them."""

    steps: tuple[ProgramStep, ...]
    path: str = "blocks"
    first: int = 0  # the number of its first sub-layer there
    alone: bool = False  # one step: all that it writes counts, not only what lasts


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """The instructions of some steps."""

    part: StepGroup
    slots: tuple[SlotCode, ...]
    instructions: tuple[Instruction, ...]
    lazies: tuple[LazyWrite, ...]
    written: frozenset[Place]
    ends: tuple[int, ...]  # of every sub-layer: how many instructions there are up to here
    layers: int  # whose instructions these are: of one, or, where each has weights of its own, of all
    whole: npt.NDArray[np.int64]  # what the machine reads: see `Code`
    real: npt.NDArray[np.float64]
    tally: npt.NDArray[np.int64]  # rows settled in float64, exactly, and all, by instruction -> rows by tier and layer

    def __str__(self) -> str:
        return "\n".join(f"{each.name:<10} {each.text}" for each in self.instructions)


def tally(instructions: Sequence[Instruction], ends: Sequence[int]) -> npt.NDArray[np.int64]:
    """The matrix that counts the rows of each layer by tier; `ends`: how many instructions there are up to its end."""
    found = np.zeros((len(instructions), 3, len(ends), 3), dtype=np.int64)
    for at, instruction in enumerate(instructions):
        if instruction.path:
            layer = bisect_right(ends, at)
            found[at, 0, layer, 0] = found[at, 1, layer, 1] = 1
            if instruction.chooses:  # all others were settled fast
                found[at, :, layer, 2] = (-1, -1, 1)
    return found.reshape(len(instructions) * 3, len(ends) * 3)
