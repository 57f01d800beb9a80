"""Conditions under which a program equals its spec, checked on the state before every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.errors import RunError
from weftc_runtime.exact.rows import blocks
from weftc_runtime.format.program import Condition, Program
from weftc_runtime.plan.residual import Residual
from weftc_runtime.reference.state import Problem

MIX = (0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64))  # odd, of 64 bits
Read = Callable[[Problem, str, str], Tensor]  # problem, stream, slot -> [tokens, width]


def demand(program: Program, problem: Problem, layer: int, batched: bool, read: Read) -> None:
    """Refuses a state in which the program is not what its spec says; `read` gives a slot of a problem."""
    counted = f"counted from 0, problem {problem.number} of the batch" if batched else "counted from 0"
    for number, condition in enumerate(program.conditions):
        if condition.kind == "margin":  # seen only where the scores are
            continue
        stream, z = program.stream(condition.stream), problem.residuals[condition.stream]
        held = [z.slot(slot) for slot in condition.slots] if isinstance(z, Residual) else [z]
        before = problem.kept.get(number, [])
        if len(before) == len(held) and all(one is other for one, other in zip(before, held, strict=True)):
            continue  # nothing has been written since
        rows = torch.cat([read(problem, stream.name, slot) for slot in condition.slots], 1).detach()
        if rows.is_meta:
            continue
        wrong = _same(rows, stream.name) if condition.kind == "distinct" else _large(rows, condition)
        if wrong:
            raise RunError(f"{condition.text}: before a step of layer {layer}, {wrong} ({counted})")
        problem.kept[number] = held


def short_leads(program: Program, leads: Mapping[tuple[str, str], float]) -> tuple[str, ...]:
    """Choices at finite temperature whose best score led by too little; one line per condition, for the worst head."""
    found = []
    for condition in program.conditions:
        if condition.kind == "margin":
            mine = {head: lead for (stream, head), lead in leads.items() if stream == condition.stream}
            head = min(mine, key=lambda name: mine[name], default="")
            if head and mine[head] < condition.limit:
                found.append(f"{condition.text}; in {head} it led by {mine[head]:.3g} only")
    return tuple(found)


def _same(rows: Tensor, stream: str) -> str:
    """Names two equal rows."""
    if are_distinct(rows):
        return ""
    _, group = torch.unique(rows, dim=0, return_inverse=True)
    first = torch.full((len(rows),), len(rows), device=rows.device)
    places = torch.arange(len(rows), device=rows.device)
    first = first.scatter_reduce(0, group, places, "amin")
    later = (first[group] < places).nonzero()
    if not len(later):
        return ""
    return f"tokens {int(first[group[later[0, 0]]])} and {int(later[0, 0])} of {stream} are equal"


def _large(rows: Tensor, condition: Condition) -> str:
    """Names a row that holds too large a number."""
    above = (rows.abs() > condition.limit).any(1).nonzero()
    if not len(above):
        return ""
    return f"token {int(above[0, 0])} of {condition.stream} holds {float(rows[above[0, 0]].abs().max()):g}"


def are_distinct(rows: Tensor) -> bool:
    """Whether all rows (n, width) differ, 0.0 and -0.0 being equal: by hashes, by sorting where two meet."""
    if len(rows) < 2:
        return True
    hashes = torch.cat([_hashes(rows[block]) for block in blocks(len(rows), rows.shape[1])])
    ordered = np.sort(hashes.cpu().numpy())  # several times faster than torch
    if bool((ordered[1:] != ordered[:-1]).all()):  # equal rows would have equal hashes
        return True
    return len(torch.unique(rows + 0.0, dim=0)) == len(rows)


def _hashes(rows: Tensor) -> Tensor:
    """A number for every row, the same for equal rows."""
    bits = (rows.to(torch.float64) + 0.0).contiguous().view(torch.int64)
    total = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    for column in bits.T:
        total = (total ^ column) * MIX[0]
        total = (total ^ (total >> 29)) * MIX[1]
    return total ^ (total >> 32)
