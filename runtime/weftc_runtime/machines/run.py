"""One run of a program: embedding, prelude, layers, read-out, on all problems of a batch.

A `Run` owns the residuals of its problems and the backend that advances them; `answers` reads results from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from weftc_runtime.data.batch import Batch
from weftc_runtime.data.hooks import HookBlock, LayerSites
from weftc_runtime.data.results import Tiers, together
from weftc_runtime.data.stopping import Limit
from weftc_runtime.errors import RunError, Uncovered
from weftc_runtime.format.program import Program, ProgramOutput, ProgramStep
from weftc_runtime.format.tensors import pattern_reads, slots_read, writes
from weftc_runtime.kernels.collective import ALONE, Collective
from weftc_runtime.machines.conditions import demand
from weftc_runtime.machines.joined import JoinedProblems, ProblemOffsets, joined_as
from weftc_runtime.machines.planned import PlannedBackend
from weftc_runtime.machines.random_fields import RandomFields
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, LazySlot, SlotValue
from weftc_runtime.reference.backend import Reference
from weftc_runtime.reference.embedding import embed, null_tokens
from weftc_runtime.reference.state import Problem

PlacedStep = tuple[ProgramStep, list[HookBlock], int]  # with its hook sites, and the number of the first


@dataclass(slots=True)
class Sites:
    """The hook sites of a model, one block per sub-layer."""

    prelude: nn.ModuleList
    layer: nn.ModuleList
    readout: nn.ModuleList
    layers: LayerSites


@dataclass(slots=True)
class Run:
    """A run under way."""

    program: Program
    sites: Sites
    engine: Reference | PlannedBackend
    batch: Batch
    problems: Sequence[Problem]
    places: Mapping[str, tuple[str, str]]
    random: RandomFields
    layers: list[int] = field(default_factory=list)  # per problem
    stable: list[bool] = field(default_factory=list)
    settled: list[Tiers] = field(default_factory=list)  # by the heads of each layer
    joined: Problem | None = None  # all problems as one, while layers run
    little: Mapping[tuple[str, str], Limit] = field(default_factory=dict)  # until stable: how much slots may change
    why: str = ""  # why the reference runs, or took over
    planned: PlannedBackend | None = None  # from which the reference took over
    wait: int = 1  # layers of the reference until it hands back: more every time
    _left: int = 0  # of these
    _placed: list[PlacedStep] | None = None

    @classmethod
    def begin(
        cls,
        engine: Reference | PlannedBackend,
        sites: Sites,
        batch: Batch,
        places: Mapping[str, tuple[str, str]],
        noise: Mapping[str, Any],
        layers: int,
        device: torch.device,
    ) -> Run:
        """The residual right after the embedding; `places` says which slot each array of the batch fills."""
        program = engine.program
        random = RandomFields.of(program, batch, noise, layers, device)
        still = [0] * batch.count, [False] * batch.count
        engine.derived_slots.ready.update(places[name] for name in batch.values)
        if isinstance(engine, PlannedBackend):

            def held(number: int) -> Problem:
                counts = {name: [layout.counts[number]] for name, layout in batch.layouts.items()}
                filled = {places[name]: rows for name, rows in batch.of(number).items()}
                peaks = {places[name]: rows.peak for name, rows in batch.values.items()} if batch.count == 1 else {}
                return engine.embed(filled, counts, number, peaks)

            return cls(program, sites, engine, batch, JoinedProblems(batch.count, held), places, random, *still)
        problems = []
        for number in range(batch.count):
            filled = {places[name]: rows for name, rows in batch.of(number).items()}
            enter = engine.derived_slots.bases.enter
            slots = embed(program, filled, batch, number, device)
            problem = Problem({name: enter(name, z) for name, z in slots.items()}, number)
            nulls = null_tokens(program, {name: len(z) for name, z in problem.residuals.items()}, device)
            problem.nulls = {name: enter(name, z) for name, z in nulls.items()}
            problems.append(problem)
        engine.derived_slots.refresh(problems)
        return cls(program, sites, engine, batch, problems, places, random, *still)

    @property
    def collective(self) -> Collective:
        """The processes that share sets of this run."""
        return self.engine.collective if isinstance(self.engine, PlannedBackend) else ALONE

    # ------------------------------------------------------------------ phases
    def prelude(self) -> None:
        """The steps before the first layer."""
        steps = list(placed(self.program.prelude, self.sites.prelude))
        if not steps or (self.joined is not None and self._together(steps, "prelude")):
            return
        engine, alone = self.engine, self.batch.count == 1
        if alone and isinstance(engine, PlannedBackend) and engine.shared.prelude.restore(engine, self.problems[0]):
            return
        self._steps(steps, range(self.batch.count), None, "prelude")
        if alone and isinstance(engine, PlannedBackend) and engine is self.engine:
            engine.shared.prelude.keep(engine, self.problems[0])

    def _together(self, steps: Iterable[PlacedStep], path: str) -> bool:
        """Steps on joined problems. Where only a problem alone can tell what is wrong: False, and they are parted."""
        engine, whole = self.engine, self.joined
        assert isinstance(engine, PlannedBackend)
        assert whole is not None
        steps = list(steps)
        state, noted = dict(whole.residuals), engine.noted()
        try:
            for step, _, _ in steps:
                if why := engine.apart(step):
                    raise Uncovered(why)
            for step, blocks, first in steps:
                engine.step(step, [whole], blocks, path, first)
        except (RunError, Uncovered):
            whole.residuals = state
            self._alone()
            engine.taken_back(noted)
            return False
        return True

    def _alone(self) -> None:
        """Lets joined problems run one by one from here on."""
        self.part()
        assert isinstance(self.problems, JoinedProblems)
        self.problems = self.problems.alone()

    # ------------------------------------------------------------------ steps that a plan does not cover
    def _steps(self, steps: Sequence[PlacedStep], numbers: Sequence[int], layer: int | None, path: str = "") -> None:
        """Steps of some problems, of a layer or around all. What the plan does not cover the reference takes over."""
        if not steps:
            return None
        problems, path = [self.problems[number] for number in numbers], path or "blocks"

        def go() -> None:
            for at, (step, blocks, first) in enumerate(steps):
                for problem in problems if at and layer is not None else ():
                    demand(self.program, problem, layer or 0, self.batch.batched, self.read)
                self.engine.step(step, problems, blocks, path, first)

        if isinstance(self.engine, Reference):
            return go()
        before, noted = [dict(problem.residuals) for problem in problems], self.engine.noted()
        try:
            go()
        except (Uncovered, RunError) as reason:  # the reference words errors better
            for problem, state in zip(problems, before, strict=True):
                problem.residuals = state
            self.engine.taken_back(noted)
            self.hand_over(reason)
            self._steps(steps, numbers, layer, path)

    def hand_over(self, reason: Exception) -> None:
        """Lets the reference go on from the state as it is."""
        engine = self.engine
        if not isinstance(engine, PlannedBackend) or (self.collective.size > 1 and isinstance(reason, RunError)):
            raise reason
        if self.collective.size > 1:
            raise RunError(f"several processes cannot run this: {reason}")
        whole = joined_as(self.problems)
        problems = list(self.problems) if whole is None else JoinedProblems.of(whole, _grouped(engine)).alone()
        literal, self.problems = self.literal(problems)
        literal.prefix, literal.tap, literal.leads = engine.prefix, engine.tap, engine.leads
        self.engine, self.joined, self.why = literal, None, str(reason)
        self.planned, self.wait, self._left = engine, 2 * self.wait, self.wait

    def hand_back(self) -> None:
        """Lets the plan go on behind layers that it did not cover."""
        self._left -= 1
        engine, literal = self.planned, self.engine
        if engine is None or self._left > 0 or isinstance(literal, PlannedBackend) or literal.tap is not None:
            return
        if any(problem.faults for problem in self.problems):
            return
        engine.derived_slots.ready.update(literal.derived_slots.ready)
        engine.cache.clear()
        engine.groups, engine.prefix = None, ""
        self.problems = [engine.held(problem) for problem in self.problems]
        self.engine, self.planned, self.why = engine, None, f"the reference ran some layers: {self.why}"

    def layer(self, index: int, until_stable: bool = False) -> bool:
        """One layer on every problem that is not stable yet; False when none is left."""
        if all(self.stable):
            return False
        if self.joined is not None and self._joined_layer(index, until_stable):
            return True
        numbers = [problem.number for problem in self._active()]
        self.settled.append(self._layer_of(numbers, index, until_stable))
        return True

    def _layer_of(self, numbers: Sequence[int], index: int, until_stable: bool) -> Tiers:
        """One layer of some problems; the rows that it settled."""
        active = [self.problems[number] for number in numbers]
        before = [dict(problem.residuals) for problem in active]
        decided = together(self.engine.tiers.values())
        self.random.fill(self.engine, active, index)
        self.engine.prefix = f"layers.{index}."
        watched = isinstance(self.engine, PlannedBackend) and self.engine.tap is not None
        if isinstance(self.engine, PlannedBackend) and watched and not self.random.given and not self.program.unrolled:
            for problem in active:
                self.engine.follow(problem, index, self.batch.seeds[problem.number])
        steps, own = self.steps(index), self.sites.layers.known(index)
        if isinstance(self.engine, Reference) and own is not None and steps:
            self.engine.own = (steps[0][2], own)
        for problem in active:
            if steps:
                demand(self.program, problem, index, self.batch.batched, self.read)
        self._steps(steps, numbers, index)
        self.engine.prefix = ""
        if isinstance(self.engine, Reference):
            self.engine.own = None
        for number, old in zip(numbers, before, strict=True):
            self.layers[number] += 1
            self.stable[number] = until_stable and self._unchanged(old, self.problems[number].residuals)
        return together(self.engine.tiers.values()).since(decided)

    def run_many(self, index: int, many: int, until_stable: bool = False) -> int:
        """Runs up to `many` layers without coming back for each, where the plan has such: how many, or 0."""
        if self.planned is not None:
            self.hand_back()
        if not isinstance(self.engine, PlannedBackend) or self.random.given:
            return 0
        each = self.program.own_layers  # layers at a time
        if each > 1 and (index or many < each or self.little):
            return 0
        if self.engine.shared.conditional or many < 1 or all(self.stable):
            return 0
        whole = self.joined is not None
        active = [self.joined] if self.joined is not None else self._active()
        if self.collective.size > 1 and not self.engine.are_native(active[0]):
            return 0
        machines = []
        for problem in active:
            if not whole:
                demand(self.program, problem, index, self.batch.batched, self.read)
            seeds = self.batch.seeds if whole else [self.batch.seeds[problem.number]]
            machine = self.engine.many_layers(problem, index, seeds, self.little)
            if self.collective.any(machine is None) or machine is None:
                return 0
            machines.append(machine)
        settled, behind = list[Tiers](), list[tuple[int, int]]()  # by layer; by problem, where it got to
        for problem, machine in zip(active, machines, strict=True):
            numbers = range(len(self.layers)) if whole else [problem.number]
            try:
                ran, stable = machine.run(many // each, until_stable, [self.stable[number] for number in numbers])
                ran = [layers * each for layers in ran]
            except Uncovered:  # which of several it is comes out one by one
                ran, stable = [0], [False]
            if not any(ran) and len(active) == 1:
                return 0
            if any(ran):
                self.engine.take_over(problem, machine)
                if not whole:  # what is read at the end reads the draws of the last layer
                    self.random.fill(self.engine, [problem], index + ran[0] - 1)
            _include(settled, 0, machine.settled)
            for number, layers, still in zip(numbers, ran, stable, strict=True):
                self.layers[number] += layers
                self.stable[number] = still
            behind.append((problem.number, ran[0]))
            if len(active) > 1:  # matrices of one problem at a time
                self.engine.cache.pop(problem.number, None)
        for number, ran_alone in behind if len(active) > 1 else ():  # those that the machine did not get through
            for layer in range(ran_alone, many):
                if not self.stable[number]:
                    _include(settled, layer, [self._layer_of([number], index + layer, until_stable)])
        self.settled.extend(settled)
        return len(settled)

    def _active(self) -> list[Problem]:
        """The problems that still run."""
        return [problem for problem in self.problems if not self.stable[problem.number]]

    def join(self) -> None:
        """Lets the problems of a batch run as one from here on, where that may be."""
        if isinstance(self.engine, PlannedBackend) and self.batch.count > 1:
            filled = {self.places[name]: rows for name, rows in self.batch.values.items()}
            counts = {name: layout.counts for name, layout in self.batch.layouts.items()}
            self.joined = self.engine.join(filled, counts)

    def part(self) -> None:
        """Gives every problem its own state again, when somebody asks for it."""
        if self.joined is not None:
            assert isinstance(self.engine, PlannedBackend)
            assert self.engine.groups is not None
            self.problems, self.joined = JoinedProblems.of(self.joined, self.engine.groups), None

    def _joined_layer(self, index: int, until_stable: bool) -> bool:
        """One layer on all problems at once, or False. A problem that stands still stays as it is."""
        whole = self.joined
        assert whole is not None
        assert isinstance(self.engine, PlannedBackend)
        before, decided = dict(whole.residuals), together(self.engine.tiers.values())
        self.engine.prefix = f"layers.{index}."
        if not self.engine.plain_scores(whole):
            self._alone()
            return False
        if not self._together(self.steps(index), "blocks"):
            return False
        self.engine.prefix = ""
        self.settled.append(together(self.engine.tiers.values()).since(decided))
        self.layers = [many + (not stable) for many, stable in zip(self.layers, self.stable, strict=True)]
        if until_stable:
            still = self._standing(before, whole.residuals)
            self.stable = [stable or now for stable, now in zip(self.stable, still, strict=True)]
        return True

    def steps(self, index: int) -> list[PlacedStep]:
        """The steps of one layer with their hook sites; unrolled weights have their own for each layer."""
        if self._placed is None:
            self._placed = list(placed(self.program.layer, self.sites.layer))
        every = self._placed
        if not self.program.unrolled:
            return every
        each = len(every) // self.program.layers
        return every[index * each : (index + 1) * each]

    def again(self, step: int) -> Sequence[Problem]:
        """The final state after one more pass through one step of the layer, on a copy."""
        whole = joined_as(self.problems)
        problems = [] if whole is not None else [problem.copy() for problem in self.problems]
        if not any(self.layers):
            self.random.fill(self.engine, problems, 0)
        last = max(0, self.program.own_layers - 1)
        chosen, blocks, first = self.steps(last)[step]
        for problem in problems:  # problems with conditions are never joined
            demand(self.program, problem, max(self.layers, default=0), self.batch.batched, self.read)
        engine, groups = self.engine.scratch_copy(), None if whole is None else _grouped(self.engine)
        copied = problems if whole is None else [whole.copy()]
        before = [dict(problem.residuals) for problem in copied]
        try:
            engine.step(chosen, copied, blocks, "again", first)
        except (Uncovered, RunError) as reason:
            for problem, state in zip(copied, before, strict=True):
                problem.residuals = state
            alone = copied if groups is None else JoinedProblems.of(copied[0], groups).alone()
            other = replace(self, problems=alone)
            other.hand_over(reason)
            other.engine.step(chosen, list(other.problems), blocks, "again", first)
            return other.problems
        return copied if groups is None else JoinedProblems.of(copied[0], groups)

    def readout(self, asked: Iterable[ProgramOutput]) -> None:
        """The steps after the last layer that answer what is asked; others need not have a value."""
        needed = self._needed(asked)
        for index, placed_step in enumerate(placed(self.program.readout, self.sites.readout)):
            if index not in needed or self._read_together(*placed_step):
                continue
            if isinstance(self.problems, JoinedProblems):
                self.problems = self.problems.alone()
            self._steps([placed_step], range(len(self.problems)), None, "readout")

    def _needed(self, asked: Iterable[ProgramOutput]) -> frozenset[int]:
        """The steps of the read-out that outputs depend on, through what later ones read of earlier ones."""
        if not self.program.readout:
            return frozenset()
        if not isinstance(self.engine, PlannedBackend):
            return _steps_needed(self.program, asked, self.engine)
        asked = tuple(asked)
        known, key = self.engine.shared.needed, frozenset(map(id, asked))  # answers of the program, which stay
        if key not in known:
            known[key] = _steps_needed(self.program, asked, self.engine)
        return known[key]

    def _read_together(self, step: ProgramStep, blocks: list[HookBlock], first: int) -> bool:
        """A step of the read-out on all problems at once, where that may be."""
        self.joined = joined_as(self.problems)
        if self.joined is None or not isinstance(self.engine, PlannedBackend) or self.engine.apart(step):
            self.joined = None
            return False
        done = self._together([(step, blocks, first)], "readout")
        self.part()
        return done

    def forget(self) -> None:
        """Drops what only further layers would use, before answers are made."""
        if isinstance(self.engine, PlannedBackend):
            for cache in self.engine.cache.values():
                cache.clear()

    # ------------------------------------------------------------------ what answers ask
    def literal(self, problems: Sequence[Problem]) -> tuple[Reference, list[Problem]]:
        """The reference backend and dense residuals, for what only they can answer."""
        if isinstance(self.engine, Reference):
            return self.engine, list(problems)
        slots = self.engine.derived_slots.fresh(self.engine.derived_slots.ready)
        engine = Reference(self.program, slots, self.engine.dtype, self.engine.batched, self.engine.tiers)
        dense = []
        for problem in problems:
            z = {}
            for name, residual in problem.residuals.items():
                z[name] = cast(Residual, residual).dense()
            dense.append(Problem(z, problem.number))
        engine.derived_slots.refresh(dense)
        return engine, dense

    def held(self, problem: Problem, stream: str, slot: str) -> SlotValue:
        """A slot as the backend holds it."""
        z = problem.residuals[stream]
        return z.slot(slot) if isinstance(z, Residual) else DenseSlot(self.read(problem, stream, slot))

    def read(self, problem: Problem, stream: str, slot: str) -> Tensor:
        """A slot of one problem, [tokens, width]."""
        return self._slot_of(problem.residuals, stream, slot)

    def _slot_of(self, state: Mapping[str, Tensor], stream: str, slot: str) -> Tensor:
        z = state[stream]
        if isinstance(z, Residual):
            return z.slot(slot).rows(slice(0, len(z)))
        return self.engine.derived_slots.bases.read(stream, slot, z)

    def defers(self, output: ProgramOutput, problems: Sequence[Problem]) -> bool:
        """Whether an output is a pair field that is made only where it is read."""
        if output.kind != "pair" or not isinstance(self.engine, PlannedBackend):
            return False
        return isinstance(self.held(problems[0], output.stream, output.slot), LazySlot | IndexSlot)

    def indices(self, problems: Sequence[Problem], stream: str, slot: str) -> Tensor | None:
        """The index of every row of a one-hot slot, -1 for padding; None where it is held as an array."""
        parts = []
        whole = joined_as(problems)
        for problem in problems if whole is None else [whole]:
            held = self.held(problem, stream, slot)
            if not isinstance(held, IndexSlot) or not held.one_hot:
                return None
            parts.append(held.index)
        if not self.batch.batched:
            return parts[0]
        rows = parts[0] if len(parts) == 1 else torch.cat(parts)
        return self.batch.layouts[stream].placed(rows.to(torch.int64), -1)

    def _standing(self, old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> list[bool]:
        """The same for every joined problem."""
        assert isinstance(self.engine, PlannedBackend)
        if not self.little:
            return self.engine.standing(old, new)
        groups = _grouped(self.engine)
        parts = ([groups.parts(state, number) for state in (old, new)] for number in range(self.batch.count))
        return [self._unchanged(before, after) for before, after in parts]

    def _unchanged(self, old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> bool:
        """Whether a layer left every field it writes as it was, or changed those with limits by little."""
        if self.little:
            read = self._slot_of
            held = (limit.holds(read(old, *at), read(new, *at)) for at, limit in self.little.items())
            return not self.collective.any(not all(held))
        for step in self.program.layer:
            for name, slot in step.writes:
                if isinstance(self.engine, PlannedBackend):
                    if not self.engine.unchanged(old, new, name, slot):
                        return False
                    continue
                if not self.engine.derived_slots.bases.unchanged(name, slot, old[name], new[name]):
                    return False
        return True


def _include(settled: list[Tiers], layer: int, more: Sequence[Tiers]) -> None:
    """Adds the rows that layers settled, from one layer on, to those that others settled in the same layers."""
    settled.extend(Tiers() for _ in range(layer + len(more) - len(settled)))
    for total, tiers in zip(settled[layer:], more, strict=False):
        total.include(tiers)


def _steps_needed(
    program: Program, asked: Iterable[ProgramOutput], engine: Reference | PlannedBackend
) -> frozenset[int]:
    weights, bases = engine.weights, engine.derived_slots.bases.by_stream
    streams = {stream.name: stream for stream in program.streams}
    wanted: set[tuple[str, str]] = set()
    for output in asked:
        wanted |= {(output.stream, output.slot)} if output.head is None else set()
        wanted |= pattern_reads(output, streams, weights, bases)
    found: set[int] = set()
    for index, step in reversed(list(enumerate(program.readout))):
        for stream in program.streams:
            for ffn in reversed(stream.derived):
                if wanted & {(stream.name, slot) for slot in ffn.writes}:
                    wanted |= slots_read((ffn,), streams, weights, bases)
        if wanted & set(writes(step)):
            found.add(index)
            wanted |= slots_read(step.sublayers, streams, weights, bases)
    return frozenset(found)


def _grouped(engine: Reference | PlannedBackend) -> ProblemOffsets:
    assert isinstance(engine, PlannedBackend)
    assert engine.groups is not None
    return engine.groups


def placed(steps: Sequence[ProgramStep], sites: nn.ModuleList) -> Iterator[PlacedStep]:
    """Every step with its blocks of hook sites and the number of its first block."""
    at = 0
    for step in steps:
        yield step, [cast(HookBlock, sites[at + i]) for i in range(len(step.sublayers))], at
        at += len(step.sublayers)
