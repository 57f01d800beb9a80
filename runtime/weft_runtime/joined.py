"""Problems of a batch, joined: their tokens one after the other in one state, so that a layer is one call for all.

Heads must not look across problems. Only plans whose layers are best keys, sums over segments and maps of tokens are
joined: there a group of queries with its own keys, and labels counted on from problem to problem, are all it takes.
Everything else runs problem by problem.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast, overload

import torch
from torch import Tensor

from weft_runtime.exact import Exact
from weft_runtime.held import Dense, Held, Sparse, Uniform
from weft_runtime.ir import Program
from weft_runtime.plan import AttendPlan, Plan
from weft_runtime.residual import Residual
from weft_runtime.state import Problem

JOINED = frozenset({"nearest", "segment"})


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Where the tokens of every problem start, by stream; `exact` is exact arithmetic on one problem alone."""

    starts: dict[str, list[int]]  # with the end of the last one
    exact: Callable[[int], Exact]
    _places: dict[str, Tensor] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(next(iter(self.starts.values()))) - 1

    def part(self, residual: Residual, number: int) -> Residual:
        """One problem of a joined state."""
        starts = self.starts[residual.stream.name]
        return sliced(residual, starts[number], starts[number + 1])

    def places(self, stream: str) -> Tensor:
        """The same starts as an array on the CPU, int64."""
        if stream not in self._places:
            self._places[stream] = torch.tensor(self.starts[stream])
        return self._places[stream]

    def of(self, stream: str, token: int) -> int:
        """The problem that one token belongs to."""
        return bisect_right(self.starts[stream], token) - 1

    def owner(self, stream: str, tokens: Tensor) -> Tensor:
        """The problem that tokens belong to."""
        return torch.bucketize(tokens, self.places(stream)[1:].to(tokens.device), right=True)


def may_join(program: Program, plan: Plan) -> bool:
    """Whether the layers of a plan can run on joined problems."""
    if program.noises or program.conditions:
        return False
    for path, sublayers in plan.steps.items():
        if not path.startswith("layer"):
            continue
        for sublayer in sublayers:
            if not isinstance(sublayer, AttendPlan):
                continue  # a map of every token by itself
            for head in sublayer.heads:
                if head.strategy not in JOINED or head.once or head.head.weighting.ties != "first":
                    return False
    return True


def sliced(residual: Residual, first: int, last: int) -> Residual:
    """Some tokens of a residual."""
    slots: dict[str, Held] = {}
    for name, held in residual.stored.items():
        if isinstance(held, Dense):
            slots[name] = Dense(held.value[first:last])
        elif isinstance(held, Uniform):
            slots[name] = Uniform(held.row, last - first)
        else:
            assert isinstance(held, Sparse)
            assert held.place is None
            values = None if held.values is None else held.values[first:last]
            slots[name] = Sparse(last - first, held.width, held.index[first:last], values=values)
    return residual.made_of(last - first, slots)


def joined_as(problems: Sequence[Problem]) -> Problem | None:
    """The state that joins problems, where there is one."""
    return problems.whole if isinstance(problems, Problems) else None


class Problems(Sequence[Problem]):
    """The problems of a batch, each made when it is asked for: from its inputs, or from the state that joins all."""

    def __init__(self, count: int, make: Callable[[int], Problem]) -> None:
        self._make, self._made = make, cast(list[Problem | None], [None] * count)
        self.whole: Problem | None = None  # all of them, joined

    @classmethod
    def of(cls, whole: Problem, groups: Groups) -> Problems:
        """The problems that a state joins."""

        def part(number: int) -> Problem:
            z = {name: groups.part(cast(Residual, residual), number) for name, residual in whole.z.items()}
            return Problem(cast(dict[str, Tensor], z), number)

        made = cls(groups.count, part)
        made.whole = whole
        return made

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, place: int) -> Problem: ...
    @overload
    def __getitem__(self, place: slice) -> list[Problem]: ...
    def __getitem__(self, place: int | slice) -> Problem | list[Problem]:
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        found = self._made[place]
        if found is None:
            found = self._made[place] = self._make(range(len(self))[place])
        return found

    def alone(self) -> list[Problem]:
        """The problems one by one, to be changed: what joins them is forgotten."""
        every = list(self)
        self.whole = None
        return every
