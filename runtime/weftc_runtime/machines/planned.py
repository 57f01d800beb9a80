"""The planned backend: carries out a plan. No array of queries x keys, nor of tokens x keys, unless one is asked for.

Same contract as the reference: decisions are those of exact arithmetic on the fields at the start of a step, hard means
are exact sums rounded once, fields are rounded to the storage dtype at the end of a step. What it meets and does not
cover (`Uncovered`, or an error that the reference words better) the caller runs again on the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import Any, cast

import torch
from torch import Tensor

from weftc_runtime.data.batch import InputRows
from weftc_runtime.data.results import Tiers
from weftc_runtime.data.stopping import Limit
from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.rational import Choice, RationalScores
from weftc_runtime.exact.rows import all_finite, blocks
from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import FFN, HARD, Embed, Program, ProgramStep
from weftc_runtime.kernels.collective import ALONE, Collective
from weftc_runtime.kernels.native.library import library
from weftc_runtime.machines.checks import Checks, unless_finite
from weftc_runtime.machines.conditions import are_distinct
from weftc_runtime.machines.devices import SCANNED
from weftc_runtime.machines.feed import derived_radius, feed
from weftc_runtime.machines.head_task import HeadOutput, HeadTask, all_keys
from weftc_runtime.machines.heads_equal import equal_head
from weftc_runtime.machines.heads_kept import kept_head
from weftc_runtime.machines.heads_nearest import best_head, nearest_head
from weftc_runtime.machines.heads_query import literal_head, query_head, shown_head
from weftc_runtime.machines.heads_segment import segment_head
from weftc_runtime.machines.heads_stream import least_lead, ring_stream_head, spread_stream_head, stream_head
from weftc_runtime.machines.heads_stream_joined import joined_stream_head
from weftc_runtime.machines.joined import ProblemOffsets, why_apart
from weftc_runtime.machines.native_code import BLOCKED, StepGroup
from weftc_runtime.machines.native_machine import NativeMachine, encoded
from weftc_runtime.machines.native_shares import refuse_to_share
from weftc_runtime.machines.planned_program import PlannedProgram
from weftc_runtime.machines.problem_cache import ProblemCache
from weftc_runtime.machines.sharded import Bringing, Ring, SpreadScores, Turns, nothing_asked
from weftc_runtime.machines.stored import stored
from weftc_runtime.machines.writing import Writer
from weftc_runtime.plan.instructions import AttendPlan, FFNPlan, HeadPlan
from weftc_runtime.plan.prepared import Prepared
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, SlotValue, UniformSlot, same, sparse
from weftc_runtime.reference.derived import DerivedSlots
from weftc_runtime.reference.state import Problem
from weftc_runtime.threads import alone

Sublayers = Iterator[dict[str, dict[str, SlotValue]]]


@dataclass(slots=True)
class PlannedBackend:
    """One run of a plan."""

    shared: PlannedProgram
    dtype: torch.dtype
    device: torch.device
    scan: torch.device  # where best keys are looked for in float32
    batched: bool = False
    collective: Collective = ALONE  # the processes that share some sets
    deterministic: bool = False  # sums with soft weights are exact, as the reference makes them
    tiers: dict[str, Tiers] = field(default_factory=dict)
    leads: dict[tuple[str, str], float] = field(default_factory=dict)  # stream and head at finite temperature
    prefix: str = ""
    tap: Callable[[str, list[Problem]], None] | None = None  # told the state after a sub-layer
    cache: defaultdict[int, ProblemCache] = field(default_factory=lambda: defaultdict(ProblemCache))  # per problem
    groups: ProblemOffsets | None = None  # of the problems that are joined
    program: Program = field(init=False)
    prepared: Prepared = field(init=False)
    weights: Weights = field(init=False)
    sources: dict[str, dict[str, tuple[str, ...]]] = field(init=False)
    writer: Writer = field(init=False)
    bringing: Bringing = field(init=False)
    _numbers: dict[float, Tensor] = field(default_factory=dict)  # constants, shared by all problems
    derived_slots: DerivedSlots = field(init=False)
    _native: bool | None = None  # see `are_native`
    _followed: dict[int, tuple[NativeMachine, Iterator[dict[str, dict[str, SlotValue]]]]] = field(
        default_factory=dict
    )  # problems that it runs

    def __post_init__(self) -> None:
        shared = self.shared
        self.program, self.prepared, self.weights = shared.program, shared.prepared, shared.weights
        self.sources, self.derived_slots = shared.sources, shared.derived.fresh()
        self.writer = Writer(self.prepared, self.device, self.deterministic)
        self.bringing = Bringing(self.collective)

    def scratch_copy(self) -> PlannedBackend:
        """The same run for steps whose results are not kept."""
        kept = self.batched, self.collective, self.deterministic, self.tiers, self.leads
        given = self.shared, self.dtype, self.device, self.scan, *kept
        other = PlannedBackend(*given, cache=self.cache, groups=self.groups)
        other.derived_slots.ready.update(self.derived_slots.ready)
        return other

    @property
    def keeps_exponentials(self) -> bool:
        """Whether a layer keeps for the next one what would round otherwise if it were made anew."""
        return any(head.kept for _, head in self.prepared.plan.heads())

    # ------------------------------------------------------------------ state
    def embed(
        self,
        filled: Mapping[tuple[str, str], Tensor],
        counts: Mapping[str, Sequence[int]],
        number: int,
        peaks: Mapping[tuple[str, str], float | None],
    ) -> Problem:
        """The state of one problem before the first step, or of several that are joined.

        `counts`: tokens of each. `peaks`: the largest size of the numbers that fill a slot, where it is known.
        """
        z: dict[str, Residual] = {}
        for stream in self.program.streams:
            many = counts[stream.name]
            slots: dict[str, SlotValue] = {}
            for one in self.shared.filled[stream.name]:
                given = filled.get(one.place)
                if given is not None:
                    if one.known:
                        raise Uncovered(f"{one.place[1]} of {stream.name} is given, but the plan knows it")
                    given, peak = given.to(self.dtype), peaks.get(one.place)
                    slots[one.place[1]] = DenseSlot(given)
                    if peak is not None:
                        self.cache[number].note_peak(given, peak)
                elif one.embed is not None and (held := self._embedded(one.embed, counts, many)) is not None:
                    slots[one.place[1]] = held
            z[stream.name] = Residual(stream, sum(many), slots, self._derive, self._bound, self.device)
        return Problem(cast(dict[str, Tensor], z), number)

    def _embedded(self, embed: Embed, counts: Mapping[str, Sequence[int]], many: Sequence[int]) -> SlotValue | None:
        """What a slot holds from the start; `many`: the tokens of its stream, by problem."""
        if embed.kind == "one":
            return self._all_tokens([1], many)
        if embed.kind == "count":
            return self._all_tokens([self.collective.total(embed.source, each) for each in counts[embed.source]], many)
        if embed.kind == "identity":
            order = torch.arange(many[0], dtype=torch.int32, device=self.device)
            return IndexSlot(sum(many), many[0], order.repeat(len(many)) if len(many) > 1 else order)
        if embed.kind == "position":
            first = 1 + self.collective.rows(embed.stream, 0)[0]
            places = [torch.arange(first, first + each, device=self.device) for each in many]
            return DenseSlot(torch.cat(places).to(torch.float64)[:, None])
        return None

    def _all_tokens(self, numbers: Sequence[int], many: Sequence[int]) -> SlotValue:
        """A number of each problem, for all its tokens."""
        if min(numbers) == max(numbers):
            value = float(numbers[0])
            if value not in self._numbers:
                self._numbers[value] = torch.full((1, 1), value, dtype=torch.float64, device=self.device)
            return UniformSlot(self._numbers[value], sum(many))
        each, tokens = (torch.tensor(list(found), device=self.device) for found in (numbers, many))
        return DenseSlot(each.to(torch.float64).repeat_interleave(tokens)[:, None])

    def _uniform(self, row: Tensor, tokens: int) -> UniformSlot:
        return UniformSlot(row.to(dtype=torch.float64, device=self.device), tokens)

    def held(self, problem: Problem) -> Problem:
        """A state of the reference, as a plan holds it."""
        made = self.embed({}, {name: [len(z)] for name, z in problem.residuals.items()}, problem.number, {})
        for stream in self.program.streams:
            found: dict[str, SlotValue] = {}
            for slot in stream.slots:
                form, rows = self.prepared.plan.forms[stream.name, slot.name], problem.residuals[stream.name]
                is_set = slot.role == "scratch" or (stream.name, slot.name) in self.derived_slots.ready
                if slot.role in ("field", "scratch") and is_set and form != "zero":
                    rows = rows[:, slot.columns]
                    one_hot = sparse(DenseSlot(rows)) if form == "sparse" else None
                    if form == "uniform":
                        found[slot.name] = UniformSlot(rows[:1], len(rows))
                    elif one_hot is not None and one_hot.one_hot:
                        found[slot.name] = one_hot
                    else:
                        found[slot.name] = DenseSlot(rows.to(self.dtype) if slot.role == "field" else rows)
            residual = cast(Residual, made.residuals[stream.name])
            made.residuals[stream.name] = cast(Tensor, residual.with_slots(found, self.sources[stream.name]))
        return made

    def fill(self, problem: Problem, stream: str, slot: str, held: SlotValue) -> None:
        """Sets a field from outside: noise."""
        residual = cast(Residual, problem.residuals[stream])
        changed = {slot: held.rounded(self.dtype)}
        problem.residuals[stream] = cast(Tensor, residual.with_slots(changed, self.sources[stream]))

    def unchanged(self, old: Mapping[str, Any], new: Mapping[str, Any], stream: str, slot: str) -> bool:
        """Whether a slot holds the same numbers in two states."""
        return not self.collective.any(not same(old[stream].slot(slot), new[stream].slot(slot)))

    # ------------------------------------------------------------------ batches
    def join(self, filled: Mapping[tuple[str, str], InputRows], counts: Mapping[str, Sequence[int]]) -> Problem | None:
        """The problems of a batch as one before the first step, where the plan allows it; `counts`: tokens of each."""
        if len(next(iter(counts.values()))) < 2 or self.tap is not None:
            return None
        native, searches = (
            self._may_be_native(),
            any(head.strategy in SCANNED for _, head in self.prepared.plan.heads()),
        )
        if not native and (self.shared.apart or (searches and (self.scan.type != "cpu" or library() is None))):
            return None
        try:
            every = {place: rows.every() for place, rows in filled.items()}
            whole = self.embed(every, counts, -1, {place: rows.peak for place, rows in filled.items()})
        except Uncovered:
            return None
        where = {name: [0, *accumulate(sizes)] for name, sizes in counts.items()}

        def exact(number: int) -> RationalScores:
            assert self.groups is not None
            parts = self.groups.parts(whole.residuals, number)
            return RationalScores(self.derived_slots.exact_weights, parts, self.makers())

        self.groups = ProblemOffsets(where, exact)
        if (native and self._is_encoded(whole)) or (not self.shared.apart and self.plain_scores(whole)):
            return whole
        self.groups = None
        return None

    def _is_encoded(self, whole: Problem) -> bool:
        try:
            encoded(self, whole)
        except Uncovered:
            return False
        return True

    def _may_be_native(self) -> bool:
        """Whether layers run natively where they have such a form."""
        cpu = self.device.type == "cpu" and self.scan.type == "cpu"
        return cpu and not self.program.conditions and library() is not None

    def plain_scores(self, whole: Problem) -> bool:
        """Whether the heads of layers that look for best keys score stored numbers as they are."""
        for path, plan in self.prepared.plan.heads():
            if not path.startswith("layer") or plan.strategy != "nearest":
                continue
            narrow, head = self.prepared.head(plan.head), plan.head
            parts, keys = narrow.head.score.parts, self.program.stream(head.keys)
            queries, names = cast(Residual, whole.residuals[head.query]), [part.q for part in parts]
            found = stored(queries, narrow.query, narrow.weights, names)
            fields = all(keys.slot(name).role != "derived" for name in narrow.keys.slots(keys))
            if found is None or not found.plain or not fields or not all(narrow.weights.copies(p.k) for p in parts):
                return False
        return True

    def standing(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[bool]:
        """For every joined problem whether a layer left every field it writes as it was."""
        groups = self.groups
        assert groups is not None
        still = torch.ones(groups.count, dtype=torch.bool)
        for step in self.program.layer:
            for stream, slot in step.writes:
                one, other = old[stream].slot(slot), new[stream].slot(slot)
                if isinstance(one, IndexSlot) and isinstance(other, IndexSlot) and one.one_hot and other.one_hot:
                    differs = one.index != other.index
                else:
                    parts = blocks(other.tokens, other.width)
                    differs = torch.cat([(one.rows(rows) != other.rows(rows)).any(1) for rows in parts])
                still[groups.owner(stream, differs.nonzero()[:, 0]).cpu()] = False
        return cast(list[bool], still.tolist())

    def apart(self, step: ProgramStep) -> str:
        """Why a step runs problem by problem; nothing where joined problems can run it."""
        return why_apart(self.shared.steps[id(step)])

    def noted(self) -> tuple[dict[str, Tiers], set[tuple[str, str]]]:
        """What steps add to besides the state of their problems."""
        return {name: replace(tiers) for name, tiers in self.tiers.items()}, set(self.derived_slots.ready)

    def taken_back(self, noted: tuple[dict[str, Tiers], set[tuple[str, str]]]) -> None:
        """As it was, to run problem by problem from here on."""
        self.tiers, self.derived_slots.ready = noted
        self.groups = None
        self.cache.pop(-1, None)

    # ------------------------------------------------------------------ many layers at once
    def many_layers(
        self,
        problem: Problem,
        index: int,
        seeds: Sequence[int],
        little: Mapping[tuple[str, str], Limit] | None = None,
        part: StepGroup | None = None,
    ) -> NativeMachine | None:
        """The next layers of a problem, or one of its steps, as one native run, where the plan allows it.

        `little`: see `Run`.
        """
        if self.device.type != "cpu" or self.scan.type != "cpu":
            return None
        try:
            found = NativeMachine.of(self, problem, index, seeds, part)
            found.limit(little or {})
            return found
        except Uncovered:
            return None

    def are_native(self, problem: Problem) -> bool:
        """Whether the native machine has the instructions of layers, in every process."""
        if self._native is None:
            try:
                refuse_to_share(encoded(self, problem), self.collective, self.deterministic)
                missing = library() is None
            except Uncovered:
                missing = True
            self._native = not self.collective.any(missing)
        return self._native

    def follow(self, problem: Problem, index: int, seed: int) -> None:
        """Lets the native machine run the next layer of a problem, sub-layer by sub-layer, where it can."""
        found = self.many_layers(problem, index, [seed])
        if found is not None:
            self._followed[problem.number] = found, found.sublayers()

    def _next(
        self, plan: AttendPlan | FFNPlan, problem: Problem, state: dict[str, Residual], exact: RationalScores
    ) -> dict[str, dict[str, SlotValue]] | None:
        """What the native machine makes of a sub-layer, if it runs this problem; exact arithmetic has seen no other."""
        if problem.number not in self._followed:
            return None
        machine, sublayers = self._followed[problem.number]
        try:
            found = next(sublayers)
        except Uncovered:
            del self._followed[problem.number]
            if exact.level:
                raise
            return None
        if isinstance(plan, FFNPlan):
            if plan.form in BLOCKED and not plan.dead:
                found = self._feed(plan, state, exact)
        else:
            for write in plan.slots:
                if not write.heads and write.carry == "clear":  # the machine forgets rows that it makes in blocks
                    made = self.writer.write(write, plan, state[write.stream], [], {})
                elif write.form == "deferred" and write.heads:
                    calls = [self.call(plan.heads[index], state, exact, problem.number) for index in write.heads]
                    slot = self.program.stream(write.stream).slot(write.slot)
                    made = self.writer.deferred(calls, range(slot.offset, slot.offset + slot.width))
                else:
                    continue
                found.setdefault(write.stream, {})[write.slot] = made
        if machine.finished:
            del self._followed[problem.number]
            for name, tiers in machine.tiers.items():
                self.tiers.setdefault(name, Tiers()).include(tiers)
        return found

    def take_over(self, problem: Problem, machine: NativeMachine) -> None:
        """Takes over what a machine has written."""
        for stream, slots in machine.slots().items():
            residual = cast(Residual, problem.residuals[stream])
            problem.residuals[stream] = cast(Tensor, residual.with_slots(slots, self.sources[stream]))
        for name, tiers in machine.tiers.items():
            self.tiers.setdefault(name, Tiers()).include(tiers)
        for step in machine.steps:
            self.derived_slots.ready.update(step.writes)

    # ------------------------------------------------------------------ derived slots
    def _derive(self, residual: Residual, slot: str) -> SlotValue:
        stream = residual.stream
        ffn = self.shared.makers.get((stream.name, slot))
        width = stream.slot(slot).width
        if ffn is None or ffn not in self.derived_slots.active()[stream.name]:
            return self._uniform(torch.zeros(1, width), len(residual))
        plan = self.prepared.plan.derived[stream.name, slot]
        return feed(plan, self.prepared.ffn(ffn), residual, self._exact_of(residual), self.prepared.tensors)[slot]

    def _bound(self, residual: Residual, slot: str) -> Tensor:
        ffn = self.shared.makers.get((residual.stream.name, slot))
        if ffn is None or ffn not in self.derived_slots.active()[residual.stream.name]:
            width = residual.stream.slot(slot).width
            return torch.zeros(1, width, dtype=torch.float64, device=self.device)
        return derived_radius(self.prepared.ffn(ffn), residual, self._exact_of(residual), slot)

    def _exact_of(self, residual: Residual) -> RationalScores:
        states = cast(Mapping[str, Tensor], {residual.stream.name: residual})
        return RationalScores(self.derived_slots.exact_weights, states, self.makers())

    def makers(self) -> dict[tuple[str, int], FFN]:
        """The map that makes each column of the derived slots that have a value."""
        return self.derived_slots.makers()

    # ------------------------------------------------------------------ steps
    def step(self, step: ProgramStep, problems: list[Problem], blocks: Iterable[Any], path: str, first: int) -> None:
        """Runs one step on all problems."""
        plans = self.shared.steps[id(step)]
        part = StepGroup((step,), path, first, alone=True) if self._may_step(plans, path) else None
        rest = [problem for problem in problems if part is None or not self._stepped(part, problem)]
        with alone():
            seen = [self._one(plans, problem, path, first) for problem in rest]
        self.derived_slots.ready.update(step.writes)
        if self.tap is not None:
            for index in range(len(plans)):
                last = index == len(plans) - 1
                self.tap(f"{self.prefix}{path}.{first + index}", problems if last else [each[index] for each in seen])

    def _may_step(self, plans: tuple[AttendPlan | FFNPlan, ...], path: str) -> bool:
        """Whether the native machine is asked for a step by itself: it adds up soft weights faster."""
        if self.tap is not None or self._followed or path == "prelude" or self.program.noises or self.deterministic:
            return False
        attends = [plan for plan in plans if isinstance(plan, AttendPlan)]
        soft = any(head.strategy in ("stream", "best") for attend in attends for head in attend.heads)
        whole = all(write.form != "deferred" for attend in attends for write in attend.slots)
        return soft and whole and self.collective.size == 1

    def _stepped(self, part: StepGroup, problem: Problem) -> bool:
        """Lets the native machine run one step of a problem; False where it cannot."""
        many = 1 if self.groups is None or problem.number >= 0 else self.groups.count
        machine = self.many_layers(problem, 0, [0] * many, None, part)
        try:
            if machine is None or not all(machine.run(1, False)[0]):
                return False
        except Uncovered:
            return False
        self.take_over(problem, machine)
        return True

    def _one(self, plans: tuple[AttendPlan | FFNPlan, ...], problem: Problem, path: str, first: int) -> list[Problem]:
        """Runs the sub-layers of a step on one problem; the states after each, where somebody wants to see them."""
        checks = self.cache[problem.number].checks
        with checks.at_the_end():
            return self._sublayers(plans, problem, path, first, checks)

    def _sublayers(
        self, plans: tuple[AttendPlan | FFNPlan, ...], problem: Problem, path: str, first: int, checks: Checks
    ) -> list[Problem]:
        seen: list[Problem] = []
        start = cast(dict[str, Residual], problem.residuals)
        exact = self._exact(start)
        changed: dict[str, dict[str, SlotValue]] = {}
        state = dict(start)
        noted = any(isinstance(plan, FFNPlan) and plan.ffn.function in ("unit", "layer") for plan in plans)
        for index, plan in enumerate(plans):
            name = f"{path}.{first + index}"
            if (followed := self._next(plan, problem, state, exact)) is not None:
                found = followed
                exact.ran(plan.ffn if isinstance(plan, FFNPlan) else plan.attend, {})
            elif isinstance(plan, FFNPlan):
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
        after = {}
        for stream, slots in changed.items():
            layout = self.program.stream(stream)
            kept = {
                name: self._stored(layout.slot(name).role, held, checks)
                for name, held in slots.items()
                if layout.slot(name).role != "derived"
            }
            after[stream] = cast(Tensor, start[stream].with_slots(kept, self.sources[stream]))
        checks.settle()
        problem.residuals.update(after)
        return seen

    def _stored(self, role: str, held: SlotValue, checks: Checks) -> SlotValue:
        """A slot at the end of a step: fields as the storage dtype holds them, all numbers finite."""
        held = held.rounded(self.dtype) if role == "field" else held
        numbers = held.value if isinstance(held, DenseSlot) else held.row if isinstance(held, UniformSlot) else None
        if numbers is not None:

            def confirm(numbers: Tensor = numbers) -> None:
                if not all_finite(numbers):
                    raise Uncovered("a number does not fit its dtype")

            checks.ask(unless_finite(numbers), confirm)
        return held

    # ------------------------------------------------------------------ feed-forwards
    def _feed(
        self, plan: FFNPlan, state: Mapping[str, Residual], exact: RationalScores
    ) -> dict[str, dict[str, SlotValue]]:
        narrow = self.prepared.ffn(plan.ffn)
        return {plan.ffn.stream: feed(plan, narrow, state[plan.ffn.stream], exact, self.prepared.tensors)}

    # ------------------------------------------------------------------ attention
    def _attend(
        self,
        plan: AttendPlan,
        state: Mapping[str, Residual],
        exact: RationalScores,
        number: int,
        name: str,
        noted: bool,
    ) -> tuple[dict[str, dict[str, SlotValue]], dict[str, Choice]]:
        needed = {i for write in plan.slots if write.form != "deferred" for i in write.heads}
        calls = [self.call(head, state, exact, number, index in needed) for index, head in enumerate(plan.heads)]
        given: dict[int, HeadOutput] = {}
        choices: dict[str, Choice] = {}
        for index, call in enumerate(calls):
            if call.plan.strategy == "self":
                self._distinct(call)
            if call.plan.head.weighting.sharpness is not None:
                self._measure(call, f"{self.prefix}{name}.{call.plan.head.name}")
            if index in needed:
                pair = any(write.form == "sparse" and index in write.heads for write in plan.slots)
                given[index] = self._run(call, pair, noted)
                choices[call.plan.head.name] = given[index].choice
                tiers = given[index].tiers
                mine = self.collective.rank == 0 or self.collective.shares(call.query.stream.name)
                if tiers is not None and mine:
                    self.tiers.setdefault(f"{name}.{call.plan.head.name}", Tiers()).include(tiers)
            else:
                choices[call.plan.head.name] = all_keys(call)
        found: dict[str, dict[str, SlotValue]] = {}
        for write in plan.slots:
            held = self.writer.write(write, plan, state[write.stream], calls, given)
            found.setdefault(write.stream, {})[write.slot] = held
        return found, choices

    def _measure(self, call: HeadTask, name: str) -> None:
        """Notes by how much the best score leads, where a softmax stands for an argmax."""
        if self.collective.size > 1 or call.groups is not None:
            raise Uncovered(
                f"the lead of head {call.plan.head.name}, at finite temperature, is measured in one process"
            )
        place = call.plan.head.query, name
        self.leads[place] = min(least_lead(call), self.leads.get(place, inf))

    def exact(self, problem: Problem) -> RationalScores:
        """Exact arithmetic on a problem as it is."""
        return self._exact(problem.residuals)

    def _exact(self, state: Mapping[str, Any]) -> RationalScores:
        given = self.derived_slots.exact_weights, cast(Mapping[str, Tensor], state), self.makers()
        return RationalScores(*given) if self.collective.size == 1 else SpreadScores(self.collective, *given)

    def part(self, residual: Residual, number: int) -> Residual:
        """One of the problems that are joined."""
        assert self.groups is not None
        return self.groups.part(residual, number)

    def call(
        self, plan: HeadPlan, state: Mapping[str, Residual], exact: RationalScores, number: int, now: bool = False
    ) -> HeadTask:
        """A head on a state; `now`: it is carried out at once, for all its queries."""
        head, together = plan.head, self.collective
        cache = self.cache[number]
        narrow, groups = self.prepared.head(head), self.groups if number < 0 else None
        query, keys, tensors = state[head.query], state[head.keys], self.prepared.tensors
        if not together.shares(head.keys):
            return HeadTask(plan, narrow, query, keys, exact, tensors, cache, self.scan, groups)
        if not together.shares(head.query):
            return HeadTask(plan, narrow, query, keys, exact, tensors, cache, self.scan, groups, together)
        names = (*narrow.keys.slots(keys.stream), *narrow.value.slots(keys.stream))
        ring = Ring(together, keys, tuple(dict.fromkeys(names)))
        many = now and not plan.uniform_query and plan.strategy != "self" and ring.is_needed()
        decides = bool(head.masks) or head.weighting.kind in HARD
        if many and plan.strategy == "stream" and not (decides or self.deterministic):
            return HeadTask(plan, narrow, query, keys, exact, tensors, cache, self.scan, ring=ring)
        if many:
            start = cast(Residual, exact.base[head.query])
            read = self._stored_origins(query, (*narrow.query.slots(query.stream), *narrow.own.slots(query.stream)))
            shown = start.made_of(len(query), {name: query.slot(name) for name in read})
            turns = Turns(together, shown, read)
            return HeadTask(plan, narrow, query, keys, exact, tensors, cache, self.scan, others=together, turns=turns)
        if decides:
            exact = self.bringing.scores(head, exact)
        every = self.bringing.keys(keys, None if decides else names)
        return HeadTask(plan, narrow, query, every, exact, tensors, cache, self.scan)

    def _stored_origins(self, residual: Residual, names: Iterable[str]) -> tuple[str, ...]:
        """The slots that are stored, of these and of what derived ones among them are made from."""
        found: dict[str, None] = {}
        left = list(names)
        while left:
            name = left.pop()
            if residual.stream.slot(name).role == "derived":
                left += self.sources[residual.stream.name][name]
            else:
                found[name] = None
        return tuple(sorted(found))

    def _run(self, call: HeadTask, pair: bool, noted: bool) -> HeadOutput:
        given = self._carried_out(call, pair, noted)
        if call.groups is not None and call.plan.uniform_query and given.out is not None:
            # one row of a problem, for all its queries
            stream = call.query.stream.name
            given.out = given.out[call.groups.owner(stream, torch.arange(len(call.query), device=self.device))]
        return given

    def _carried_out(self, call: HeadTask, pair: bool, noted: bool) -> HeadOutput:
        strategy, spread = call.plan.strategy, call.others is not None
        if call.ring is not None:
            return ring_stream_head(call, call.ring)
        if call.turns is not None:
            return shown_head(call)
        if len(call.query) == 0 and self.collective.shares(call.query.stream.name):
            return nothing_asked(call, pair)
        if strategy == "self":
            return HeadOutput(call.narrow.values(call.query))
        if spread and strategy in ("nearest", "best"):
            return literal_head(call, noted)
        if strategy == "nearest":
            return nearest_head(call, pair)
        if strategy == "best":
            return best_head(call)
        if strategy == "segment":
            return segment_head(call)
        if strategy == "equal":
            return equal_head(call, noted)
        if strategy in ("members", "queries"):
            return query_head(call, noted)
        if strategy == "stream":
            if self.deterministic:
                return literal_head(call, noted)
            if spread:
                return spread_stream_head(call)
            if call.groups is not None:
                return joined_stream_head(call, call.groups)
            kept = kept_head(call, self.dtype) if call.plan.kept and self.collective.size == 1 else None
            return stream_head(call) if kept is None else kept
        return literal_head(call, noted)

    def _distinct(self, call: HeadTask) -> None:
        """An erase by self-attention is a linear erase only if no two tokens look the same."""
        part = call.narrow.head.score.parts[0]
        if part.kind != "l2":
            return

        def look() -> bool:
            z = call.narrow.weights.linear(call.narrow.query.read(call.query), part.q)
            return are_distinct(z)

        if not call.static(("distinct", id(call.plan.head)), call.sources("query"), look):
            raise Uncovered("two tokens are equal, so that an erase by attention is not a linear one")


def layers_at_a_time(program: Program, prepared: Prepared) -> str:
    """The instructions that the native machine carries out layer by layer, or why it does not."""
    if not program.layer:
        return "none"
    device = torch.device("cpu")
    engine = PlannedBackend(PlannedProgram.of(program, prepared), torch.float64, device, device)
    counts = {stream.name: [stream.size or 1] for stream in program.streams}
    try:
        found = encoded(engine, engine.embed({}, counts, 0, {}))
    except Uncovered as reason:
        return f"one by one, by torch: {reason}"
    listed = "".join(f"\n  {line}" for line in str(found).splitlines())
    return f"many in one native call; the instructions of one{listed}"
