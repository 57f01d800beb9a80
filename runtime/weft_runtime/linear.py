"""The linear backend: carries out a plan. No array of queries x keys, nor of tokens x keys, unless one is asked for.

Same contract as the reference: decisions are those of exact arithmetic on the fields at the start of a step, hard means
are exact sums rounded once, fields are rounded to the storage dtype at the end of a step. What it meets and does not
cover (`Uncovered`, or an error that the reference words better) the caller runs again on the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from weft_runtime.calls import Call, Given
from weft_runtime.derived import Upkeep
from weft_runtime.exact import Choice, Exact
from weft_runtime.feed import derived_radius, feed
from weft_runtime.heads_decide import best_head, literal_head, nearest_head, query_head
from weft_runtime.heads_sum import segment_head, shared_rows, stream_head
from weft_runtime.held import Deferred, Dense, Held, Rows, Sparse, Uniform, blocks, same
from weft_runtime.ir import FFN, Head, Program, Step
from weft_runtime.lens import FFNLens, HeadLens, Lens
from weft_runtime.plan import AttendPlan, FFNPlan, HeadPlan, Plan, SlotWrite, Uncovered
from weft_runtime.residual import Residual
from weft_runtime.results import Tiers
from weft_runtime.state import Problem
from weft_runtime.weights import Weights
from weft_runtime.workers import alone, each


@dataclass(slots=True)
class Prepared:
    """A plan with the narrow matrices it applies; valid as long as the tensors it was made from."""

    plan: Plan
    tensors: Mapping[str, Tensor]
    heads: dict[int, HeadLens] = field(default_factory=dict)
    ffns: dict[int, FFNLens] = field(default_factory=dict)
    carries: dict[tuple[str, str], tuple[Lens, Weights]] = field(default_factory=dict)

    def head(self, head: Head) -> HeadLens:
        if id(head) not in self.heads:
            self.heads[id(head)] = HeadLens.of(head, self.tensors)
        return self.heads[id(head)]

    def ffn(self, ffn: FFN) -> FFNLens:
        if id(ffn) not in self.ffns:
            self.ffns[id(ffn)] = FFNLens.of(ffn, self.tensors)
        return self.ffns[id(ffn)]

    def carry(self, name: str, slot: str, columns: slice) -> tuple[Lens, Weights]:
        if (name, slot) not in self.carries:
            lens = Lens.of({"carry": self.tensors[name][columns]})
            self.carries[name, slot] = lens, Weights(lens.matrices)
        return self.carries[name, slot]


@dataclass(slots=True)
class Linear:
    """One run of a plan."""

    program: Program
    prepared: Prepared
    weights: Weights
    dtype: torch.dtype
    device: torch.device
    batched: bool = False
    tiers: dict[str, Tiers] = field(default_factory=dict)
    prefix: str = ""
    tap: Callable[[str, list[Problem]], None] | None = None  # told the state after a sub-layer
    cache: dict[int, dict[Any, Any]] = field(default_factory=dict)  # per problem
    upkeep: Upkeep = field(init=False)
    _plans: dict[int, tuple[AttendPlan | FFNPlan, ...]] = field(init=False)
    _sources: dict[str, dict[str, tuple[str, ...]]] = field(init=False)
    _makers: dict[tuple[str, str], FFN] = field(init=False)

    def __post_init__(self) -> None:
        self.upkeep = Upkeep(self.program, self.weights)
        self._plans = {id(step): self.prepared.plan.steps[path] for path, step in self.program.places()}
        self._sources, self._makers = {}, {}
        for stream in self.program.streams:
            found: dict[str, tuple[str, ...]] = {}
            for ffn in stream.derived:
                for slot in ffn.writes:
                    found[slot] = self.prepared.ffn(ffn).lens.slots(stream)
                    self._makers[stream.name, slot] = ffn
            self._sources[stream.name] = found

    def aside(self) -> Linear:
        """The same run for steps whose results are not kept."""
        other = Linear(
            self.program,
            self.prepared,
            self.weights,
            self.dtype,
            self.device,
            self.batched,
            self.tiers,
            cache=self.cache,
        )
        other.upkeep.ready = set(self.upkeep.ready)
        return other

    # ------------------------------------------------------------------ state
    def embed(self, filled: Mapping[tuple[str, str], Tensor], sizes: Mapping[str, int], number: int) -> Problem:
        """The state of one problem before the first step."""
        forms = self.prepared.plan.forms
        instructions = {(embed.stream, embed.slot): embed for embed in self.program.embedding}
        z: dict[str, Residual] = {}
        for stream in self.program.streams:
            tokens = sizes[stream.name]
            slots: dict[str, Held] = {}
            for slot in stream.slots:
                place = (stream.name, slot.name)
                instruction = instructions.get(place)
                if place in filled:
                    if forms[place] in ("zero", "uniform"):
                        raise Uncovered(f"{slot.name} of {stream.name} is given, but the plan knows it")
                    slots[slot.name] = Dense(filled[place].to(self.dtype))
                elif instruction is not None and instruction.kind in ("one", "count"):
                    value = 1.0 if instruction.kind == "one" else float(sizes[instruction.source])
                    slots[slot.name] = self._uniform(torch.full((1, 1), value), tokens)
                elif instruction is not None and instruction.kind == "identity":
                    slots[slot.name] = Dense(torch.eye(tokens, dtype=torch.float64, device=self.device))
                elif instruction is not None and instruction.kind == "position":
                    order = torch.arange(1, tokens + 1, dtype=torch.float64, device=self.device)
                    slots[slot.name] = Dense(order[:, None])
            z[stream.name] = Residual(stream, tokens, slots, self._derive, self._bound, self.device)
        return Problem(cast(dict[str, Tensor], z), number)

    def _uniform(self, row: Tensor, tokens: int) -> Uniform:
        return Uniform(row.to(dtype=torch.float64, device=self.device), tokens)

    def start(self, problems: list[Problem]) -> None:
        """Derived slots are made when they are read."""

    def fill(self, problem: Problem, stream: str, slot: str, held: Held) -> None:
        """Sets a field from outside: noise."""
        residual = cast(Residual, problem.z[stream])
        changed = {slot: held.rounded(self.dtype)}
        problem.z[stream] = cast(Tensor, residual.with_slots(changed, self._sources[stream]))

    def unchanged(self, old: Mapping[str, Any], new: Mapping[str, Any], stream: str, slot: str) -> bool:
        """Whether a slot holds the same numbers in two states."""
        return same(old[stream].slot(slot), new[stream].slot(slot))

    # ------------------------------------------------------------------ derived slots
    def _derive(self, residual: Residual, slot: str) -> Held:
        stream = residual.stream
        ffn = self._makers.get((stream.name, slot))
        width = stream.slot(slot).width
        if ffn is None or ffn not in self.upkeep.active()[stream.name]:
            return self._uniform(torch.zeros(1, width), len(residual))
        plan = self.prepared.plan.derived[stream.name, slot]
        exact = Exact(self.upkeep.exact_weights, cast(Mapping[str, Tensor], {stream.name: residual}), self._columns())
        return feed(plan, self.prepared.ffn(ffn), residual, exact, self.prepared.tensors)[slot]

    def _bound(self, residual: Residual, slot: str) -> Tensor:
        ffn = self._makers.get((residual.stream.name, slot))
        if ffn is None or ffn not in self.upkeep.active()[residual.stream.name]:
            width = residual.stream.slot(slot).width
            return torch.zeros(1, width, dtype=torch.float64, device=self.device)
        exact = Exact(
            self.upkeep.exact_weights, cast(Mapping[str, Tensor], {residual.stream.name: residual}), self._columns()
        )
        return derived_radius(self.prepared.ffn(ffn), residual, exact, slot)

    def _columns(self) -> dict[tuple[str, int], FFN]:
        """The map that makes each column of the derived slots that have a value."""
        active = self.upkeep.active()
        found = {}
        for (stream, slot), ffn in self._makers.items():
            if ffn in active[stream]:
                where = self.program.stream(stream).slot(slot)
                found.update({(stream, column): ffn for column in range(where.offset, where.offset + where.width)})
        return found

    # ------------------------------------------------------------------ steps
    def step(self, step: Step, problems: list[Problem], blocks: Iterable[Any], path: str, first: int) -> None:
        """Runs one step on all problems."""
        plans = self._plans[id(step)]
        with alone():
            seen = [self._one(plans, problem, path, first) for problem in problems]
        self.upkeep.ready.update(step.writes)
        if self.tap is not None:
            for index in range(len(plans)):
                last = index == len(plans) - 1
                self.tap(f"{self.prefix}{path}.{first + index}", problems if last else [each[index] for each in seen])

    def _one(self, plans: tuple[AttendPlan | FFNPlan, ...], problem: Problem, path: str, first: int) -> list[Problem]:
        """Runs the sub-layers of a step on one problem; the states after each, where somebody wants to see them."""
        seen: list[Problem] = []
        start = cast(dict[str, Residual], problem.z)
        exact = Exact(self.upkeep.exact_weights, cast(Mapping[str, Tensor], start), self._columns())
        changed: dict[str, dict[str, Held]] = {}
        state = dict(start)
        for index, plan in enumerate(plans):
            name = f"{path}.{first + index}"
            noted = any(isinstance(later, FFNPlan) and later.ffn.function in ("unit", "layer") for later in plans)
            if isinstance(plan, FFNPlan):
                found = {} if plan.dead else self._feed(plan, state, exact)
                exact.ran(plan.ffn, {})
            else:
                found, choices = self._attend(plan, state, exact, problem.number, name, noted)
                exact.ran(plan.attend, choices)
            for stream, slots in found.items():
                changed.setdefault(stream, {}).update(slots)
                state[stream] = start[stream].overlaid(changed[stream])
            if self.tap is not None:
                seen.append(Problem(cast(dict[str, Tensor], dict(state)), problem.number))
        for stream, slots in changed.items():
            layout = self.program.stream(stream)
            kept = {
                name: self._stored(layout.slot(name).role, held)
                for name, held in slots.items()
                if layout.slot(name).role != "derived"
            }
            problem.z[stream] = cast(Tensor, start[stream].with_slots(kept, self._sources[stream]))
        return seen

    def _stored(self, role: str, held: Held) -> Held:
        """A slot at the end of a step: fields as the storage dtype holds them, all numbers finite."""
        held = held.rounded(self.dtype) if role == "field" else held
        if isinstance(held, Dense) and not bool(torch.isfinite(held.value).all()):
            raise Uncovered("a number does not fit its dtype")
        if isinstance(held, Uniform) and not bool(torch.isfinite(held.row).all()):
            raise Uncovered("a number does not fit its dtype")
        return held

    # ------------------------------------------------------------------ feed-forwards
    def _feed(self, plan: FFNPlan, state: Mapping[str, Residual], exact: Exact) -> dict[str, dict[str, Held]]:
        lens = self.prepared.ffn(plan.ffn)
        return {plan.ffn.stream: feed(plan, lens, state[plan.ffn.stream], exact, self.prepared.tensors)}

    # ------------------------------------------------------------------ attention
    def _attend(
        self, plan: AttendPlan, state: Mapping[str, Residual], exact: Exact, number: int, name: str, noted: bool
    ) -> tuple[dict[str, dict[str, Held]], dict[str, Choice]]:
        calls = [self._call(head, state, exact, number) for head in plan.heads]
        needed = {i for write in plan.slots if write.form != "deferred" for i in write.heads}
        given: dict[int, Given] = {}
        choices: dict[str, Choice] = {}
        for index, call in enumerate(calls):
            if call.plan.strategy == "self":
                self._distinct(call)
            if index in needed:
                pair = any(write.form == "sparse" and index in write.heads for write in plan.slots)
                given[index] = self._run(call, pair, noted)
                choices[call.plan.head.name] = given[index].choice
                tiers = given[index].tiers
                if tiers is not None:
                    many = len(call.query) if call.plan.once else 1
                    self.tiers.setdefault(f"{name}.{call.plan.head.name}", Tiers()).add(tiers.repeat(many))
            else:
                choices[call.plan.head.name] = Choice(None, None)
        found: dict[str, dict[str, Held]] = {}
        for write in plan.slots:
            held = self._write(write, plan, state[write.stream], calls, given)
            found.setdefault(write.stream, {})[write.slot] = held
        return found, choices

    def _call(self, plan: HeadPlan, state: Mapping[str, Residual], exact: Exact, number: int) -> Call:
        head = plan.head
        cache = self.cache.setdefault(number, {})
        lens = self.prepared.head(head)
        return Call(plan, lens, state[head.query], state[head.keys], exact, self.prepared.tensors, cache)

    def _run(self, call: Call, pair: bool, noted: bool) -> Given:
        strategy = call.plan.strategy
        if strategy == "self":
            return Given(call.lens.values(call.query))
        if strategy == "nearest":
            return nearest_head(call, pair)
        if strategy == "best":
            return best_head(call)
        if strategy == "segment":
            return segment_head(call)
        if strategy in ("members", "queries"):
            return query_head(call, noted)
        if strategy == "stream":
            return stream_head(call)
        return literal_head(call, noted)

    def _distinct(self, call: Call) -> None:
        """An erase by self-attention is a linear erase only if no two tokens look the same."""
        part = call.lens.head.score.parts[0]
        if part.kind != "l2":
            return

        def look() -> bool:
            z = call.lens.weights.linear(call.lens.query.read(call.query), part.q)
            return len(torch.unique(z + 0.0, dim=0)) == len(z)

        if not call.static(("distinct", id(call.plan.head)), call.sources("query"), look):
            raise Uncovered("two tokens are equal, so that an erase by attention is not a linear one")

    def _write(
        self, write: SlotWrite, plan: AttendPlan, residual: Residual, calls: list[Call], given: Mapping[int, Given]
    ) -> Held:
        slot = residual.stream.slot(write.slot)
        columns = range(slot.offset, slot.offset + slot.width)
        if write.form in ("deferred", "sparse") and write.carry != "clear" and write.heads:
            before = residual.slot(write.slot)  # the plan counts on a slot that is still empty
            if not isinstance(before, Uniform) or bool(before.row.any()):
                raise Uncovered(f"slot {write.slot} of {write.stream} is not empty")
        if write.form == "deferred" and write.heads:
            return self._deferred([calls[i] for i in write.heads], columns)
        base = self._carried(write, plan, residual)
        if not write.heads:
            return base
        if write.form == "sparse" and len(write.heads) == 1:
            held = given[write.heads[0]].held
            assert isinstance(held, Sparse)
            return held
        total: Tensor | None = None
        if not (isinstance(base, Uniform) and write.carry == "clear"):
            total = base.row if isinstance(base, Uniform) else base.rows(slice(0, len(residual)))
        for index in write.heads:
            out = given[index].out
            assert out is not None
            part = _columns_of(out, calls[index].lens.writes, columns)
            total = part + 0.0 if total is None else total + part
        assert total is not None
        if write.form == "uniform" and len(total) == 1:
            return Uniform(total, len(residual))
        return Dense(total if len(total) == len(residual) else total.expand(len(residual), -1))

    def _carried(self, write: SlotWrite, plan: AttendPlan, residual: Residual) -> Held:
        """A slot after the carry, before the heads."""
        slot = residual.stream.slot(write.slot)
        if write.carry == "clear":
            return self._uniform(torch.zeros(1, slot.width), len(residual))
        if write.carry == "keep":
            return residual.slot(write.slot)
        lens, weights = self.prepared.carry(plan.attend.carry[write.stream], write.slot, slot.columns)
        if all(isinstance(residual.slot(name), Uniform) for name in lens.slots(residual.stream)):
            return Uniform(weights.linear(lens.read(residual, slice(0, 1)), "carry"), len(residual))

        def carry(rows: slice) -> Tensor:
            return weights.linear(lens.read(residual, rows), "carry")

        return Dense(torch.cat(each(carry, blocks(len(residual), max(len(lens.columns), slot.width)), self.device)))

    def _deferred(self, calls: list[Call], columns: range) -> Deferred:
        """A slot that heads with few keys fill: rows are made when they are read."""
        makers: list[Callable[[Rows], list[Tensor]]] = []

        def make(rows: Rows) -> Tensor:
            if not makers:
                makers.append(shared_rows(calls))
            total: Tensor | None = None
            for call, out in zip(calls, makers[0](rows), strict=True):
                part = _columns_of(out, call.lens.writes, columns)
                total = part + 0.0 if total is None else total + part
            assert total is not None
            return total

        return Deferred(len(calls[0].query), len(columns), make, self.device)


def _columns_of(out: Tensor, writes: tuple[int, ...], columns: range) -> Tensor:
    """The columns of a slot in what a head wrote; those it does not write are zero."""
    if tuple(columns) == writes:
        return out
    place = {column: at for at, column in enumerate(writes)}
    wanted = [place.get(column, -1) for column in columns]
    if all(at >= 0 for at in wanted):
        return out[:, wanted]
    padded = torch.cat([out, out.new_zeros(len(out), 1)], 1)
    return padded[:, wanted]
