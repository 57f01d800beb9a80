"""Heads that decide otherwise, under a plan: as the reference does, on the keys and columns that a query reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from weftc_runtime.data.results import Tiers, together
from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.rational import Choice, RationalScores
from weftc_runtime.exact.rows import Rows
from weftc_runtime.format.program import HARD, Head, Part, Score
from weftc_runtime.machines.head_task import HeadOutput, HeadTask, ListedRows, RenamedExact, classes, without_masks
from weftc_runtime.machines.sharded import ShownScores, SpreadHeadRun
from weftc_runtime.plan.narrow import NarrowHead
from weftc_runtime.plan.structure import table
from weftc_runtime.reference.feed_forward import unwatched
from weftc_runtime.reference.head import HeadResult, HeadRun

FEW = 1 << 16  # scores of a head that are made at once


def query_head(call: HeadTask, noted: bool) -> HeadOutput:
    """As the reference does it, one query at a time, over the keys and columns that this query reads; few at once."""
    if call.queries * call.every_key <= FEW or call.plan.strategy not in ("members", "queries"):
        return literal_head(call, noted)
    found = classes(call, scored=False) if call.plan.strategy == "members" else None
    head = call.plan.head if found is None else without_masks(call.plan.head)
    outs, chosen, tiers = [], [], []
    for number in range(call.queries):
        members = None if found is None else _members(call, found, number)
        if members is not None and _nobody(call, members):
            outs.append(_alone(call, number))
            chosen.append(members)
            tiers.append(Tiers(bound=1))
            continue
        result = _one_query(call, head, number, members, noted)
        outs.append(result.out)
        # masks were settled by the index
        tiers.append(Tiers(bound=1) if result.tiers is None else Tiers.of(result.tiers))
        picked = result.choice.chosen if result.choice.chosen is not None else result.choice.eligible
        if noted and picked is not None:
            keys = picked[0].nonzero()[:, 0]
            chosen.append(keys if members is None else members[keys[keys < len(members)]])
    choice = Choice(None, None)
    if noted and chosen:
        listed = cast(Any, ListedRows(chosen, len(call.keys)))
        choice = Choice(listed, None) if call.plan.head.weighting.kind in HARD else Choice(None, listed)
    decides = call.plan.head.masks or call.plan.head.weighting.kind in HARD
    decided = together(tiers).times(len(call.query) if call.plan.uniform_query else 1) if tiers and decides else None
    return HeadOutput(torch.cat(outs), choice=choice, tiers=decided)


def _nobody(call: HeadTask, members: Tensor) -> bool:
    """Whether a query has no eligible key, in any process."""
    if call.others is None:
        return len(members) == 0
    return int(call.others.sum(torch.tensor([len(members)]))) == 0


def _members(call: HeadTask, found: Any, number: int) -> Tensor:
    """The keys that are eligible for a query, in order."""
    held = found.index
    wanted = found.eligible[number]
    if bool(wanted[-1]):
        raise Uncovered("keys without an index are eligible")
    if held.place is None:
        hit = wanted[torch.where(held.index < 0, held.width, held.index).to(torch.int64)]
        return cast(Tensor, hit.nonzero()[:, 0])
    return cast(Tensor, held.place[wanted[held.index.to(torch.int64)]])


def _alone(call: HeadTask, number: int) -> Tensor:
    """What a query gets that has no eligible key."""
    own = call.narrow.head.self_key
    if own is None:
        raise Uncovered("a query has no eligible key and no `else`")
    if own.row is None and call.plan.head.weighting.kind in ("sum", "exp"):
        return torch.zeros(1, len(call.narrow.writes), dtype=torch.float64, device=call.device)
    return call.narrow.fallback(call.query, slice(number, number + 1))


def _one_query(call: HeadTask, head: Head, number: int, members: Tensor | None, noted: bool) -> HeadResult:
    row = slice(number, number + 1)
    z = call.narrow.query.read(call.query, row)
    tensors = dict(call.tensors)
    narrowed = replace(head, score=_features_used(call, head.score, "score", z, tensors))
    key = ("narrow", id(call.plan.head), number, tuple(len(tensors[part.k]) for part in narrowed.score.parts))
    narrow = call.static(key, (), lambda: NarrowHead.of(narrowed, tensors, joined=True))
    query, keys = (
        narrow.query.read(call.query, row),
        narrow.keys.read(call.keys, slice(None) if members is None else members),
    )
    radii = {
        "query": narrow.query.radius(call.query, row),
        "keys": narrow.keys.radius(call.keys, slice(None) if members is None else members),
    }
    asked = RenamedExact(call.exact, head, narrow.head, torch.tensor([number]), members)
    return _carried_out(call, narrow, {"query": query, "keys": keys}, radii, asked, noted)


def _carried_out(
    call: HeadTask,
    narrow: NarrowHead,
    z: Mapping[str, Tensor],
    radii: Mapping[str, Tensor],
    asked: RenamedExact,
    noted: bool,
) -> HeadResult:
    given = narrow.head, narrow.weights, z, radii, cast(RationalScores, asked), False, noted
    if call.others is None:
        return unwatched(HeadRun(*given).run(()))
    most = call.others.most(call.keys.stream.name, len(call.keys))
    return unwatched(SpreadHeadRun(call.others, most, *given).run(()))


def _features_used(call: HeadTask, score: Score, prefix: str, z: Tensor, tensors: dict[str, Tensor]) -> Score:
    """The score without the features that are zero for a query: they add nothing to an inner product."""
    parts = []
    for index, part in enumerate(score.parts):
        if part.kind == "l2" or call.uncertain("query"):
            parts.append(part)
            continue
        used = call.narrow.weights.linear(z, f"{prefix}{index}q")[0] != 0
        names = f"used.{prefix}{index}q", f"used.{prefix}{index}k"
        if not bool(used.any()):
            used[0] = True
        tensors[names[0]] = table(tensors[part.q])[used]
        tensors[names[1]] = table(tensors[part.k])[used]
        parts.append(Part(part.kind, *names, part.coefficient, part.scale))
    return Score(tuple(parts))


# ---------------------------------------------------------------------- as the reference does it
def literal_head(call: HeadTask, noted: bool) -> HeadOutput:
    """The reference's own head, over the columns it reads."""
    key = ("literal", id(call.plan.head))
    narrow = call.static(key, (), lambda: NarrowHead.of(call.plan.head, call.tensors, joined=True))
    z = {"query": narrow.query.read(call.query, call.rows), "keys": narrow.keys.read(call.keys)}
    radii = {"query": narrow.query.radius(call.query, call.rows), "keys": narrow.keys.radius(call.keys)}
    asked = RenamedExact(call.exact, call.plan.head, narrow.head, None, None)
    result = _carried_out(call, narrow, z, radii, asked, noted)
    choice = result.choice
    if call.plan.uniform_query:  # what one query chose, all chose
        rows = [
            None if rows is None else ListedRows([rows[0].nonzero()[:, 0]], rows.shape[1])
            for rows in (choice.chosen, choice.eligible)
        ]
        choice = Choice(*cast(Any, rows))
    many = len(call.query) if call.plan.uniform_query else 1
    return HeadOutput(
        result.out, choice=choice, tiers=None if result.tiers is None else Tiers.of(result.tiers).times(many)
    )


def shown_head(call: HeadTask) -> HeadOutput:
    """The same for queries that all processes look at in turn, each among its own keys."""
    assert call.turns is not None
    assert call.others is not None
    outs = [torch.zeros(0, len(call.narrow.writes), dtype=torch.float64, device=call.device)]
    tiers: list[Tiers] = []
    for source, queries in call.turns:
        exact = ShownScores(call.exact, call.plan.head, queries)
        found = literal_head(replace(call, query=queries, exact=exact, turns=None), False)
        if source == call.others.rank and found.out is not None:
            outs.append(found.out)
            tiers += [] if found.tiers is None else [found.tiers]
    return HeadOutput(torch.cat(outs), tiers=together(tiers) if tiers else None)


def literal_rows(calls: Sequence[HeadTask]) -> Callable[[Rows], list[Tensor]]:
    """The outputs of heads for any rows, as the reference makes them."""
    narrowed = [NarrowHead.of(call.plan.head, call.tensors, joined=True) for call in calls]

    def rows_of(rows: Rows) -> list[Tensor]:
        outs = []
        for call, narrow in zip(calls, narrowed, strict=True):
            z = {"query": narrow.query.read(call.query, rows), "keys": narrow.keys.read(call.keys)}
            radii = {side: torch.zeros_like(one) for side, one in z.items()}
            asked = RenamedExact(call.exact, call.plan.head, narrow.head, None, None)
            outs.append(_carried_out(call, narrow, z, radii, asked, False).out)
        return outs

    return rows_of
