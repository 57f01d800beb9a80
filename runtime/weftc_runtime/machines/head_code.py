"""Heads -> their instructions: those that decide, those that add up exactly, and those with soft weights."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import frexp

import torch

from weftc_runtime.errors import Uncovered
from weftc_runtime.format.program import Head
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.machines.dataflow import Dataflow
from weftc_runtime.machines.head_task import HeadTask, classes
from weftc_runtime.machines.heads_segment import classes_of, grouping_of
from weftc_runtime.machines.native_code import (
    BEST,
    CHOOSE,
    DENSE,
    GATHER,
    INDEX,
    KINDS,
    MEMBER_SOFT,
    NOISES,
    OWN,
    RANK,
    RANKED,
    Code,
    Instruction,
    Row,
)
from weftc_runtime.machines.slot_rows import SlotRows
from weftc_runtime.plan.instructions import HeadPlan
from weftc_runtime.plan.narrow import NarrowHead, NarrowMatrices
from weftc_runtime.plan.structure import table


class HeadEncoder:
    """Writes the instructions of heads; `calls` gives a head on one problem."""

    def __init__(self, flow: Dataflow, rows: SlotRows, calls: Callable[[HeadPlan], HeadTask]) -> None:
        self.flow, self.rows, self.calls = flow, rows, calls
        self.outs = self.rankings = 0
        self.instructions: list[Instruction] = []

    def _check_distinct(self, head: Head) -> None:
        """A token attends to itself alone where no other is equal: a condition says so of what the score compares."""
        part = head.score.parts[0]
        if part.kind != "l2":
            return
        stream = self.flow.streams[head.query]
        rows = [
            [column for column, factor in enumerate(row) if factor]
            for row in table(self.flow.prepared.tensors[part.q]).tolist()
        ]
        compared = {row[0] for row in rows if len(row) == 1}
        for condition in self.flow.program.conditions:
            slots = [stream.slot(slot) for slot in condition.slots] if condition.stream == head.query else []
            columns = {column for slot in slots for column in range(slot.offset, slot.offset + slot.width)}
            if condition.kind == "distinct" and columns and columns <= compared:
                return
        raise Uncovered(f"head {head.name} looks for the token itself, and another may be equal")

    def head(self, plan: HeadPlan, out: int, path: str) -> None:
        if plan.strategy == "segment":
            self._gather(plan, out, path)
        elif plan.strategy == "members":
            self._members(plan, out, path)
        elif plan.strategy == "self":
            self._check_distinct(plan.head)
            narrow, code = self.flow.prepared.head(plan.head), Code()
            code.add(OWN, self.flow.order[plan.head.query], out)
            code.rows(self.rows.values(plan.head, narrow))
            text = f"{plan.head.name}: what the token itself adds"
            self.instructions.append(Instruction("map", text, code, streams=frozenset({plan.head.query})))
        elif plan.head.weighting.kind == "argmax":
            self.choose(plan, -1, out, path)
        elif plan.strategy == "best":
            self._best(plan, out)
        elif plan.head.weighting.kind in RANKED and not plan.head.masks:
            everyone = Code()
            everyone.add(-1, 0, True)
            self._rank(plan, everyone, -1, out, path)
        else:
            raise Uncovered(f"head {plan.head.name} has no native form")

    def _note(self, name: str, plan: HeadPlan, code: Code, path: str, adds: bool = False) -> None:
        text, head = f"{plan.head.name}: {plan.head.weighting.kind}, {plan.why}", plan.head
        place = f"{path}.{head.name}"
        self.instructions.append(Instruction(name, text, code, plan, place, frozenset({head.query}), head.keys, adds))

    def choose(self, plan: HeadPlan, slot: int, out: int, path: str) -> None:
        head, narrow = plan.head, self.flow.prepared.head(plan.head)
        if head.weighting.ties != "first" or head.weighting.epsilon or head.masks or head.self_key is not None:
            raise Uncovered(f"head {head.name} may share a query among keys")
        if slot >= 0 and plan.uniform_query:
            raise Uncovered(f"head {head.name} has one query for all")
        score, stored, bounded, noise = self.rows.score(head, narrow)
        few = plan.uniform_query or self.flow.streams[head.query].size is not None  # keys are scanned for every query
        if not (stored or (bounded and few)) or noise - set(NOISES):
            raise Uncovered(f"head {head.name} compares computed numbers")
        code = Code()
        code.add(CHOOSE, self.flow.order[head.query], self.flow.order[head.keys], plan.uniform_query)
        code.add(self._is_searched(plan, narrow))
        code.add("gumbel" in noise, slot, out, len(narrow.writes))
        code.join(score)
        code.rows(self.rows.values(head, narrow) if out >= 0 else [])
        self._note("choose", plan, code, path)

    def _best(self, plan: HeadPlan, out: int) -> None:
        """The best score, with the bits that the reference gives it."""
        head, narrow = plan.head, self.flow.prepared.head(plan.head)
        score, stored, _, noise = self.rows.score(head, narrow)
        factors = [
            float(narrow.weights[p.coefficient]) for p in narrow.head.score.parts if p.kind == "dot" and p.coefficient
        ]
        if noise or not stored or any(abs(frexp(factor)[0]) != 0.5 for factor in factors):
            raise Uncovered(f"head {head.name} has the best of computed numbers")
        code = Code()
        code.add(BEST, self.flow.order[head.query], self.flow.order[head.keys], out)
        code.add(len(narrow.writes), plan.uniform_query)
        code.join(score)
        code.real.extend(table(narrow.weights["value"])[:, 0].tolist())
        text, streams = f"{head.name}: max of {head.keys}, {plan.why}", frozenset({head.query})
        self.instructions.append(Instruction("best", text, code, streams=streams, keys=head.keys))

    def _is_searched(self, plan: HeadPlan, narrow: NarrowHead) -> bool:
        """Whether the certified search serves: many queries as they are stored, a distance or an inner product."""
        parts = narrow.head.score.parts
        if plan.strategy != "nearest" or plan.uniform_query or len(parts) != 1:
            return False
        rows = self.rows.of(plan.head.query, narrow.query, parts[0].q)
        if not rows or any(len(row) != 1 or row[0][2] != 1.0 for row in rows):
            return False
        slot, first, _ = rows[0][0]
        return self.flow.kind(self.rows.places[slot]) == DENSE and all(
            row[0][:2] == (slot, first + at) for at, row in enumerate(rows)
        )

    def _check_constant(self, plan: HeadPlan, scored: bool) -> None:
        """Refuses a head whose classes of keys depend on data, on either side; `scored`: by masks and scores."""
        head = self.flow.prepared.head(plan.head)
        for narrow, called in ((head.query, plan.head.query), (head.keys, plan.head.keys)):
            stream = self.flow.streams[called]
            counts = ("mask", "score", "self.row") if scored else ("mask",)
            read = {name: matrix for name, matrix in narrow.matrices.items() if name.startswith(counts)}
            for name in NarrowMatrices(narrow.columns, read).slots(stream):
                embed = self.flow.embedded.get((called, name))
                constant = embed is not None and embed.kind in ("one", "identity")
                if (not constant or (called, name) in self.flow.written) and (
                    narrow is head.query or name != plan.index
                ):
                    raise Uncovered(f"head {plan.head.name} counts keys by numbers that may change")

    def _gather(self, plan: HeadPlan, out: int, path: str) -> None:
        head, narrow = plan.head, self.flow.prepared.head(plan.head)
        self._check_constant(plan, scored=True)
        call = self.calls(plan)
        found = classes_of(call)
        assert found.scores is not None
        grouping = grouping_of(call, found.eligible, found.scores)
        index, weight = plan.index, list[Row]()
        number = self.rows.numbers.get((head.keys, index), -1)
        made = self.rows.maps.get(number)
        if number in self.rows.stale:
            raise Uncovered(f"head {head.name} counts keys by what is gone")
        if made is not None:  # an index times a number of every token
            if not made.number or not made.index or not grouping.ones:
                raise Uncovered(f"head {head.name} has weights of its own")
            stream, index = self.flow.streams[head.keys], made.index
            numbers = table(self.flow.prepared.tensors[made.number])[0].tolist()
            weight = self.rows.readable([self.rows.row(stream, range(stream.width), numbers)])
        if index and self.flow.kind((head.keys, index)) != INDEX:
            raise Uncovered(f"head {head.name} counts keys by what is no index")
        code = self._gather_start(plan, narrow, out, head.weighting.kind != "sum", bool(head.masks))
        code.add(-1, self.rows.numbers[head.keys, index] if index else -1, len(grouping.label) - 1, grouping.same)
        code.add(*(() if grouping.same else grouping.label.tolist()), not grouping.ones)
        code.real.extend(() if grouping.ones else grouping.number.tolist())
        code.rows(weight)
        code.rows(self.rows.values(head, narrow))
        code.rows(self.rows.own(head, narrow) if head.self_key is not None else [])
        self._note("gather_sum", plan, code, path, adds=True)

    def _gather_start(self, plan: HeadPlan, narrow: NarrowHead, out: int, divide: bool, masked: bool) -> Code:
        code, head = Code(), plan.head
        code.add(GATHER, self.flow.order[head.query], self.flow.order[head.keys], len(narrow.writes), out)
        code.add(plan.uniform_query, divide, masked, head.self_key is not None)
        return code

    def _members(self, plan: HeadPlan, out: int, path: str) -> None:
        head, narrow, kind = plan.head, self.flow.prepared.head(plan.head), plan.head.weighting.kind
        if self.flow.kind((head.keys, plan.index)) != INDEX or (head.keys, plan.index) in self.flow.derived:
            raise Uncovered(f"head {head.name} looks at members of what is no index")
        self._check_constant(plan, scored=False)
        eligible = classes(self.calls(plan), scored=False).eligible
        if bool(eligible[:, -1].any()) or bool((eligible.sum(0) > 1).any()):
            raise Uncovered("a key counts for several queries, or without an index")
        members = Code()
        members.add(self.rows.numbers[head.keys, plan.index], eligible.shape[1] - 1)
        same = torch.equal(eligible[:, :-1], torch.eye(len(eligible), eligible.shape[1] - 1, dtype=torch.bool))
        members.add(same)
        if not same:
            members.add(len(eligible))
            for row in eligible:
                listed = row.nonzero()[:, 0].tolist()
                members.add(len(listed), *listed)
        code = Code()
        if kind in KINDS:
            code.add(MEMBER_SOFT)
            code.join(members)
            code.join(self.soft_head(plan, out))
            self._note("soft", plan, code, path)
            return
        sparse = kind == "sparsemax"
        ranking = -1 if sparse else self.rankings
        self._rank(plan, members, ranking, out if sparse else -1, path)
        if not sparse:
            self.rankings += 1
            code = self._gather_start(plan, narrow, out, True, False)
            code.add(ranking, -1, 0, True, False)
            code.rows([])
            code.rows(self.rows.values(head, narrow))
            code.rows(self.rows.own(head, narrow) if head.self_key is not None else [])
            text, streams = f"{head.name}: means of those", frozenset({head.query})
            self.instructions.append(Instruction("gather_sum", text, code, streams=streams, keys=head.keys))

    def _rank(self, plan: HeadPlan, members: Code, ranking: int, out: int, path: str) -> None:
        """Ranks members of an index, or all keys: to a ranking, or the mean of the values of the best to `out`."""
        head, narrow = plan.head, self.flow.prepared.head(plan.head)
        score, stored, _, noise = self.rows.score(head, narrow)
        if noise or not stored or (head.self_key is not None and head.self_key.row is not None):
            raise Uncovered(f"head {head.name} ranks computed numbers, or a key of its own")
        number, above, below = self._ranking(head)
        code = Code()
        code.add(RANK)
        code.join(members)
        code.add(self.flow.order[head.query], self.flow.order[head.keys], number, plan.uniform_query)
        code.add(ranking, out, len(narrow.writes), head.self_key is not None, above, below)
        code.join(score)
        code.rows(self.rows.values(head, narrow))
        code.rows(self.rows.own(head, narrow))
        self._note("rank", plan, code, path)

    @staticmethod
    def _ranking(head: Head) -> tuple[int, int, int]:
        """Which ranking, and its number as a fraction."""
        weighting = head.weighting
        if weighting.kind == "sparsemax":
            return 3, 1, 1
        if weighting.count is not None:
            return 0, weighting.count, 1
        if weighting.kind == "argmax" and weighting.epsilon:
            raise Uncovered("keys within a tolerance of the best are not ranked")
        if weighting.kind == "argmax":  # all of the best share, or the first of them alone
            return (1, 0, 1) if weighting.ties == "split" else (0, 1, 1)
        normmax = weighting.kind == "normmax"
        share = Fraction((weighting.gamma if normmax else weighting.percent) or 0) / (1 if normmax else 100)
        if max(share.numerator, share.denominator) >= 1 << 62:
            raise Uncovered("a share has too many digits")
        return 2 if normmax else 1, share.numerator, share.denominator

    def soft_head(self, plan: HeadPlan, out: int) -> Code:
        head, narrow, kind = plan.head, self.flow.prepared.head(plan.head), plan.head.weighting.kind
        self.check_lead(head)
        own = 0 if head.self_key is None else 1 if head.self_key.row is None else 2
        code = Code()
        code.add(self.flow.order[head.query], self.flow.order[head.keys], KINDS[kind], len(narrow.writes), out)
        code.add(plan.uniform_query, False, self.flow.is_diagonal(plan), own)
        score, _, _, noise = self.rows.score(head, narrow)
        if noise - {"uniform"}:
            raise Uncovered("random numbers are weighed")
        code.join(score)
        if kind in NUMBER_HEADS:
            code.real.extend(table(narrow.weights["value"])[:, 0].tolist())
        else:
            code.rows(self.rows.values(head, narrow), exact=False)
        if own == 2:
            code.rows(self.rows.of(head.query, narrow.query, "self.row"), exact=False)
        if own:
            code.rows(self.rows.own(head, narrow), exact=False)
        return code

    def kept_head(self, plan: HeadPlan, out: int) -> Code:
        """A head as any other, then what of its score stays, and the terms of each side alone."""
        head, narrow, kept = plan.head, self.flow.prepared.head(plan.head), dict(plan.kept)
        own, other = (
            list[tuple[Row, Row]](),
            list[tuple[Row, Row]](),
        )  # what varies, and what is the same for all tokens
        for index, part in enumerate(narrow.head.score.parts):
            q, k = self.rows.of(head.query, narrow.query, part.q), self.rows.of(head.keys, narrow.keys, part.k)
            for at in set(range(len(q))).difference(kept.get(index, ())):
                (other if self.rows.is_same(q[at]) else own).append(
                    (k[at], q[at]) if self.rows.is_same(q[at]) else (q[at], k[at])
                )
        values = [] if head.weighting.kind in NUMBER_HEADS else self.rows.values(head, narrow)
        code = self.soft_head(plan, out)
        code.add(plan.cost_group, plan.transposed, all(map(self.rows.is_same, values)))
        code.join(self.rows.score(head, narrow, kept)[0])
        for terms in (own, other):
            code.rows([varies for varies, _ in terms], exact=False)
            code.rows([same for _, same in terms], exact=False)
        return code

    @staticmethod
    def check_lead(head: Head) -> None:
        if head.weighting.sharpness is not None:
            raise Uncovered(f"the lead of head {head.name}, at finite temperature, is measured")
