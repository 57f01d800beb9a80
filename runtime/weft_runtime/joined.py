"""Problems of a batch, joined: their tokens one after the other in one state, so that a layer is one call for all.

Heads must not look across problems. Only plans whose layers are best keys and sums over segments are joined: there a
group of queries with its own keys, and labels counted on from problem to problem, are all it takes. Everything else
runs problem by problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

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

    @property
    def count(self) -> int:
        return len(next(iter(self.starts.values()))) - 1

    def part(self, residual: Residual, number: int) -> Residual:
        """One problem of a joined state."""
        starts = self.starts[residual.stream.name]
        return sliced(residual, starts[number], starts[number + 1])

    def owner(self, stream: str, tokens: Tensor) -> Tensor:
        """The problem that tokens belong to."""
        starts = torch.tensor(self.starts[stream][1:], device=tokens.device)
        return torch.bucketize(tokens, starts, right=True)


def may_join(program: Program, plan: Plan) -> bool:
    """Whether the layers of a plan can run on joined problems."""
    if program.noises or program.conditions:
        return False
    for path, sublayers in plan.steps.items():
        if not path.startswith("layer"):
            continue
        for sublayer in sublayers:
            if not isinstance(sublayer, AttendPlan):
                if not sublayer.dead:
                    return False
                continue
            for head in sublayer.heads:
                if head.strategy not in JOINED or head.once or head.head.weighting.ties != "first":
                    return False
    return True


def joined(problems: Sequence[Problem]) -> Problem | None:
    """The problems as one; None where their slots are not held alike."""
    state: dict[str, Residual] = {}
    for name in problems[0].z:
        parts = [cast(Residual, problem.z[name]) for problem in problems]
        slots: dict[str, Held] = {}
        for slot in parts[0].stored:
            held = _together([part.stored.get(slot) for part in parts])
            if held is None:
                return None
            slots[slot] = held
        if any(part.stored.keys() != parts[0].stored.keys() for part in parts):
            return None
        state[name] = parts[0].made_of(sum(len(part) for part in parts), slots)
    return Problem(cast(dict[str, Tensor], state), -1)


def starts(problems: Sequence[Problem]) -> dict[str, list[int]]:
    """Where the tokens of every problem start when they are joined."""
    return {name: [0, *accumulate(len(problem.z[name]) for problem in problems)] for name in problems[0].z}


def _together(parts: Sequence[Held | None]) -> Held | None:
    first = parts[0]
    if isinstance(first, Dense):
        values = [part.value for part in parts if isinstance(part, Dense)]
        return Dense(torch.cat(values)) if len(values) == len(parts) else None
    if isinstance(first, Uniform):
        rows = [part.row for part in parts if isinstance(part, Uniform)]
        same = all(row is first.row for row in rows) or bool((torch.cat(rows) == first.row).all())
        if len(rows) < len(parts) or not same:
            return None
        return Uniform(first.row, sum(part.tokens for part in parts if part is not None))
    if isinstance(first, Sparse):
        indices = [part.index for part in parts if isinstance(part, Sparse) and part.one_hot]
        return Sparse(sum(map(len, indices)), first.width, torch.cat(indices)) if len(indices) == len(parts) else None
    return None


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
            assert held.one_hot
            slots[name] = Sparse(last - first, held.width, held.index[first:last])
    return residual.made_of(last - first, slots)


def apart(problem: Problem, problems: Sequence[Problem]) -> None:
    """Gives every problem its part of the joined state."""
    ends = starts(problems)
    for number, each in enumerate(problems):
        for name in each.z:
            whole = cast(Residual, problem.z[name])
            each.z[name] = cast(Tensor, sliced(whole, ends[name][number], ends[name][number + 1]))
