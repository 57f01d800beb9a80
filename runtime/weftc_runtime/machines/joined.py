"""Problems of a batch, joined: their tokens one after the other in one state, so that a layer is one call for all.

Heads must not look across problems. Best keys take a group of queries with its own keys, sums over segments take labels
counted on from problem to problem, soft weights tiles of several problems side by side (`lots`). What has no such form
runs problem by problem (`apart` says why), and so does a batch that meets something that only a problem alone can have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast, overload

import torch
from torch import Tensor

from weftc_runtime.exact.rational import RationalScores
from weftc_runtime.exact.rows import Rows
from weftc_runtime.format.program import Program
from weftc_runtime.machines.batching import Lot, Pairs, firsts, lot, runs, tiles
from weftc_runtime.plan.instructions import AttendPlan, HeadPlan, Plan, SublayerPlan
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, LazySlot, SlotValue, UniformSlot
from weftc_runtime.reference.state import Problem

JOINED = frozenset({"nearest", "best", "segment", "stream"})


@dataclass(frozen=True, slots=True, eq=False)
class ProblemOffsets:
    """Where the tokens of every problem start, by stream; `exact` is exact arithmetic on one problem alone."""

    starts: dict[str, list[int]]  # with the end of the last one
    exact: Callable[[int], RationalScores]
    _places: dict[str, Tensor] = field(default_factory=dict)
    _tiles: dict[tuple[str, str, bool], list[Pairs | int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(next(iter(self.starts.values()))) - 1

    def ends(self, stream: str, number: int) -> tuple[int, int]:
        """The tokens of one problem: the first, and the one behind the last."""
        return self.starts[stream][number], self.starts[stream][number + 1]

    def part(self, residual: Residual, number: int) -> Residual:
        """One problem of a joined state."""
        return sliced(residual, *self.ends(residual.stream.name, number))

    def parts(self, state: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
        """One problem of a joined state, all streams."""
        return {name: cast(Tensor, self.part(cast(Residual, z), number)) for name, z in state.items()}

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

    def tiles(self, query: str, keys: str, once: bool, scores: int, device: torch.device) -> list[Pairs | int]:
        """All problems, some at a time; `once`: with one query each. A number is a problem beyond that many scores."""
        name = (query, keys, once)
        if name not in self._tiles:
            one, other = self.places(query).to(device), self.places(keys).to(device)
            queries = torch.ones_like(one[1:]) if once else one.diff()
            some = firsts if once else lot
            self._tiles[name] = [
                found if isinstance(found, int) else Pairs(some(one, found), lot(other, found), found)
                for found in tiles(queries, other.diff(), scores)
            ]
        return self._tiles[name]

    def pairs(self, query: str, keys: str, rows: Rows, device: torch.device) -> Pairs:
        """Some queries, and the keys of their problems."""
        numbers, sizes = runs(self.places(query).to(device), rows)
        return Pairs(Lot.of(rows, sizes), lot(self.places(keys).to(device), numbers), numbers)


def apart(program: Program, plan: Plan) -> str:
    """Why the problems of a batch run one by one; nothing where they can be joined."""
    if program.noises or program.conditions:
        return "a random field or a condition belongs to each problem"
    for path, sublayers in plan.steps.items():
        why = "" if path.startswith("readout") else why_apart(sublayers)
        if why:
            return why
    return ""


def why_apart(sublayers: Sequence[SublayerPlan]) -> str:
    """The same for one step."""
    for sublayer in sublayers:
        if isinstance(sublayer, AttendPlan):
            for head in sublayer.heads:
                if why := _looks_across(head):
                    return f"head {head.head.name}: {why}"
    return ""  # all else is a map of every token by itself


def _looks_across(plan: HeadPlan) -> str:
    if plan.strategy not in JOINED:
        return f"strategy {plan.strategy} looks at one problem"
    if plan.kept:
        return "exponentials that are kept belong to each problem"
    if plan.strategy in ("nearest", "best") and (plan.uniform_query or plan.head.weighting.ties != "first"):
        return "several keys may share a query, or one query stands for all"
    return ""


def sliced(residual: Residual, first: int, last: int) -> Residual:
    """Some tokens of a residual."""
    return residual.made_of(last - first, {name: cut(held, first, last) for name, held in residual.stored.items()})


def viewed(residual: Residual, first: int, last: int) -> Residual:
    """The same to be read only: derived slots are those of the whole."""

    def derive(_: Residual, name: str) -> SlotValue:
        return cut(residual.slot(name), first, last)

    def bound(_: Residual, name: str) -> Tensor:
        return residual.radius(name, slice(first, last))

    slots = {name: cut(held, first, last) for name, held in residual.stored.items()}
    return Residual(residual.stream, last - first, slots, derive, bound, residual.device)


def cut(held: SlotValue, first: int, last: int) -> SlotValue:
    """Some tokens of a slot."""
    many = last - first
    if isinstance(held, DenseSlot):
        return DenseSlot(held.value[first:last])
    if isinstance(held, UniformSlot):
        return UniformSlot(held.row, many)
    if isinstance(held, IndexSlot):
        assert held.place is None
        values = None if held.values is None else held.values[first:last]
        return IndexSlot(many, held.width, held.index[first:last], values=values)

    def make(rows: Rows) -> Tensor:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(many)
            return held.make(slice(first + start, first + stop))
        return held.make(rows + first)

    return LazySlot(many, held.width, make, held.device, dtype=held.dtype)


def joined_as(problems: Sequence[Problem]) -> Problem | None:
    """The state that joins problems, where there is one."""
    return problems.whole if isinstance(problems, JoinedProblems) else None


class JoinedProblems(Sequence[Problem]):
    """The problems of a batch, each made when it is asked for: from its inputs, or from the state that joins all."""

    def __init__(self, count: int, make: Callable[[int], Problem]) -> None:
        self._make, self._made = make, cast(list[Problem | None], [None] * count)
        self.whole: Problem | None = None  # all of them, joined

    @classmethod
    def of(cls, whole: Problem, groups: ProblemOffsets) -> JoinedProblems:
        """The problems that a state joins."""

        def part(number: int) -> Problem:
            return Problem(groups.parts(whole.residuals, number), number)

        made = cls(groups.count, part)
        made.whole = whole
        return made

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Problem]:
        return map(self.__getitem__, range(len(self._made)))

    @overload
    def __getitem__(self, place: int) -> Problem: ...
    @overload
    def __getitem__(self, place: slice) -> list[Problem]: ...
    def __getitem__(self, place: int | slice) -> Problem | list[Problem]:
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        found = self._made[place]
        if found is None:
            found = self._made[place] = self._make(place if place >= 0 else len(self) + place)
        return found

    def alone(self) -> list[Problem]:
        """The problems one by one, to be changed: what joins them is forgotten."""
        every = list(self)
        self.whole = None
        return every
