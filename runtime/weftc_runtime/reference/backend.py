"""The reference backend: carries out a program's dense matrices literally, one problem at a time.

Everything is computed in float64 whatever the storage dtype; at the end of a step its fields are rounded to that dtype,
once. Decisions (argmax, ranking, masks) are those of exact arithmetic on the fields as stored at the start of the step.
Problems of a batch advance side by side but never meet, so batching cannot change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import cast

import torch
from torch import Tensor, nn

from weftc_runtime.data.hooks import BlockSites, HookBlock, show
from weftc_runtime.data.results import Tiers
from weftc_runtime.errors import RunError
from weftc_runtime.exact.bounds import added, widen
from weftc_runtime.exact.rational import Choice, RationalScores
from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import FFN, HARD, Attend, Head, Program, ProgramStep, Sublayer
from weftc_runtime.reference import feed_forward as tokenwise
from weftc_runtime.reference.bases import Blurred
from weftc_runtime.reference.derived import DerivedSlots
from weftc_runtime.reference.feed_forward import Result, Stages, unwatched
from weftc_runtime.reference.head import HeadResult, HeadRun
from weftc_runtime.reference.state import Problem

Tap = Callable[[str, list[Problem]], None]  # told the state after a sub-layer
PatternTap = Callable[[str, list[Tensor]], None]


@dataclass(slots=True)
class Reference:
    """One run: the weights it uses, what it has initialised, what it reports."""

    program: Program
    derived_slots: DerivedSlots
    dtype: torch.dtype
    batched: bool = False
    tiers: dict[str, Tiers] = field(default_factory=dict)
    leads: dict[tuple[str, str], float] = field(default_factory=dict)  # stream and head at finite temperature
    prefix: str = ""  # of the names told to taps
    tap: Tap | None = None
    pattern_tap: PatternTap | None = None
    own: tuple[int, nn.ModuleList] | None = None  # sites of the current layer alone, and the number of its first block
    edited: bool = False  # whether a hook has changed something in the current sub-layer

    @property
    def weights(self) -> Weights:
        return self.derived_slots.weights

    @property
    def blurred(self) -> bool:
        """Whether a basis mixes slots, so that everything is known up to a bound only."""
        return self.derived_slots.bases.blurred

    def scratch_copy(self) -> Reference:
        """The same run for steps whose results are not kept: it reports, but nobody listens."""
        slots = self.derived_slots.fresh(self.derived_slots.ready)
        return Reference(self.program, slots, self.dtype, self.batched, self.tiers, self.leads)

    # ------------------------------------------------------------------ steps
    def step(
        self, step: ProgramStep, problems: list[Problem], blocks: Iterable[HookBlock], path: str, first: int
    ) -> None:
        """Runs one step on all problems: sub-layers, rounding of the fields, refresh of the derived slots."""
        for problem in problems:
            self.enter(problem, decides(step.sublayers) or self.blurred)
        sites = [self._sites(block, first + at) for at, block in enumerate(blocks)]
        if not step.sublayers:
            self._store(step, problems)
        for index, sublayer in enumerate(step.sublayers):
            later = step.sublayers[index + 1 :]
            name = f"{path}.{first + index}"
            self.edited = False
            self._resid(problems, sites[index], "hook_resid_pre")
            if isinstance(sublayer, FFN):
                self._feed_forward(sublayer, problems, sites[index], bool(later), decides(later) or self.blurred)
            else:
                bounded = decides(later) or (self.blurred and bool(later))
                self._attend(sublayer, problems, sites[index], name, bool(later), bounded)
            if self.edited:
                self._take_as_data(problems)
            self._resid(problems, sites[index], "hook_resid_mid")
            if not later:
                self._store(step, problems)
            self._resid(problems, sites[index], "hook_resid_post")
            if self.tap is not None:
                self.tap(self.prefix + name, problems)
        for problem in problems:
            problem.exact = problem.radii = None

    def enter(self, problem: Problem, bounded: bool) -> None:
        """Starts a step: from here on the fields are data and everything else follows from them."""
        problem.exact = self.derived_slots.exact(problem)
        problem.radii = self.derived_slots.radii(problem) if bounded else None

    def _store(self, step: ProgramStep, problems: list[Problem]) -> None:
        """Rounds the fields to the storage dtype and brings the derived slots up to date."""
        self.derived_slots.ready.update(step.writes)
        for problem in problems:
            for (name, slot), fault in problem.faults.items():
                if self.program.stream(name).slot(slot).role == "field":
                    raise fault.told("")
            for name, z in problem.residuals.items():
                problem.residuals[name] = self.rounded(name, z)
                self._check_fields(name, problem.residuals[name], problem.number, step)
        self.derived_slots.refresh(problems)

    def rounded(self, name: str, z: Tensor) -> Tensor:
        """The residual with its fields as the storage dtype holds them."""
        if self.dtype == torch.float64:
            return z
        slots = self.derived_slots.bases.slots(name, z)
        held = torch.where(self.derived_slots.fields[name].to(z.device), slots.to(self.dtype).to(torch.float64), slots)
        return self.derived_slots.bases.enter(name, held)

    def _check_fields(self, name: str, z: Tensor, number: int, step: ProgramStep) -> None:
        if z.is_meta or bool(torch.isfinite(z.detach()).all()):
            return
        slots = self.derived_slots.bases.slots(name, z.detach())
        row, column = (int(i) for i in (~torch.isfinite(slots)).nonzero()[0])
        slot = next(s.name for s in self.program.stream(name).slots if s.offset <= column < s.offset + s.width)
        where = f"; problem {number} of the batch" if self.batched else ""
        what = f" ({step.equations[0]})" if step.equations else ""
        dtype = str(self.dtype).removeprefix("torch.")
        place = f"{slot} of {name}, token {row} (counted from 0{where})"
        raise RunError(f"{place} does not fit {dtype}{what}; scale the inputs down")

    # ------------------------------------------------------------------ sub-layers
    def _feed_forward(self, ffn: FFN, problems: list[Problem], sites: BlockSites, noted: bool, bounded: bool) -> None:
        befores = [problem.residuals[ffn.stream].detach() for problem in problems]
        feed = self.derived_slots.feeding
        feeding = [feed(problem, ffn, cast(RationalScores, problem.exact)) for problem in problems]
        for problem, before, zero in zip(problems, befores, self._drive(feeding, sites.mlp()), strict=True):
            assert problem.exact is not None
            if bounded and problem.radii is not None:
                radius = tokenwise.radius(ffn, self.weights, before, problem.radii[ffn.stream], zero)
                problem.radii[ffn.stream] = radius
            if noted:
                problem.exact.ran(ffn, {})

    def _attend(
        self, attend: Attend, problems: list[Problem], sites: BlockSites, name: str, noted: bool, bounded: bool
    ) -> None:
        outs = [self._carry(attend, problem, bounded) for problem in problems]
        faults = [self.derived_slots.carried(problem, attend) if problem.faults else {} for problem in problems]
        choices: list[dict[str, Choice]] = [{} for _ in problems]
        for head in attend.heads:
            for index, result in enumerate(self._head(head, problems, sites.head(head.name), name, noted, bounded)):
                z, radii = outs[index]
                before = z[head.query]
                z[head.query] = before + result.out
                if radii is not None and result.radius is not None:
                    total = z[head.query].detach()
                    radius = radii[head.query] + result.radius
                    radii[head.query] = widen(radius + added(total, before.detach(), result.out.detach()))
                choices[index][head.name] = result.choice
                if result.lost is not None:
                    for slot in self.derived_slots.written_by(head):
                        place = (head.query, slot)
                        faults[index][place] = result.lost.joined(faults[index].get(place))
        for problem, (z, radii), choice, lost in zip(problems, outs, choices, faults, strict=True):
            problem.residuals, problem.radii, problem.faults = z, radii, lost
            if noted and problem.exact is not None:
                problem.exact.ran(attend, choice)

    def _carry(
        self, attend: Attend, problem: Problem, bounded: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
        z = dict(problem.residuals)
        radii = dict(problem.radii) if bounded and problem.radii is not None else None
        for stream, name in attend.carry.items():
            z[stream] = self.weights.linear(problem.residuals[stream], name)
            if radii is not None:
                radii[stream] = self.weights.radius(problem.residuals[stream].detach(), radii[stream], name)
        return z, radii

    def _head(
        self,
        head: Head,
        problems: list[Problem],
        sites: Mapping[str, list[nn.Module]],
        name: str,
        noted: bool,
        bounded: bool,
    ) -> list[HeadResult]:
        listens = {*sites, "hook_pattern"} if self.pattern_tap is not None else set(sites)
        runs = []
        for problem in problems:
            assert problem.exact is not None
            needed = problem.radii if _decides(head) or bounded or self.blurred else None
            null = problem.nulls.get(head.keys)
            run = HeadRun(head, self.weights, problem.residuals, needed, problem.exact, bounded, noted, null)
            run.watch(problem, self.derived_slots)
            runs.append(run.run(listens))
        results = self._drive(runs, sites)
        if self.pattern_tap is not None and all(result.patterns for result in results):
            self.pattern_tap(f"{self.prefix}{name}.{head.name}", [result.patterns[0] for result in results])
        for result in results:
            if result.lead is not None and head.weighting.sharpness is not None:
                place, lead = (head.query, f"{self.prefix}{name}.{head.name}"), result.lead / head.weighting.sharpness
                self.leads[place] = min(lead, self.leads.get(place, inf))
            if result.tiers is not None:
                self.tiers.setdefault(f"{name}.{head.name}", Tiers()).add(result.tiers)
        return results

    def _drive(self, runs: list[Stages[Result]], sites: Mapping[str, list[nn.Module]]) -> list[Result]:
        """Takes all problems from one site to the next, together."""
        if not sites:
            return [unwatched(run) for run in runs]
        results: dict[int, Result] = {}
        replies: list[Tensor | None] = [None] * len(runs)
        while len(results) < len(runs):
            asked: dict[int, tuple[str, Tensor]] = {}
            for index, run in enumerate(runs):
                if index in results:
                    continue
                try:
                    asked[index] = run.send(replies[index])
                except StopIteration as stop:
                    results[index] = stop.value
                replies[index] = None
            here = sites.get(next(iter(asked.values()))[0]) if asked else None
            if here:
                shown = [tensor for _, tensor in asked.values()]
                seen, changed = show(here, self.batched, shown)
                self.edited |= changed
                for index, old, new in zip(asked, shown, seen, strict=True):
                    replies[index] = new if changed or new is not old else None
        return [results[index] for index in range(len(runs))]

    # ------------------------------------------------------------------ hooks
    def _sites(self, block: HookBlock, number: int) -> BlockSites:
        if self.own is None:
            return BlockSites((block,))
        return BlockSites((cast(HookBlock, self.own[1][number - self.own[0]]), block))

    def _resid(self, problems: list[Problem], sites: BlockSites, place: str) -> None:
        changed = False
        for name in sites.every[0].streams:
            here = sites.resid(name, place)
            if not here:
                continue
            seen, edited = show(here, self.batched, [problem.residuals[name] for problem in problems])
            changed |= edited
            for problem, z in zip(problems, seen, strict=True):
                problem.residuals[name] = z
        if changed:
            self._take_as_data(problems)

    def _take_as_data(self, problems: list[Problem]) -> None:
        """What a hook wrote is data: it is not a function of the fields any more."""
        coordinates = self.derived_slots.bases
        for problem in problems:
            seen_exactly = RationalScores(self.derived_slots.exact_weights, problem.residuals, {})
            problem.exact = Blurred(seen_exactly) if coordinates.blurred else seen_exactly
            if problem.radii is not None:
                problem.radii = {key: coordinates.radius(key, value) for key, value in problem.residuals.items()}


def _decides(head: Head) -> bool:
    return head.weighting.kind in HARD or any(mask.op != "other" for mask in head.masks)


def decides(sublayers: tuple[Sublayer, ...]) -> bool:
    """Whether some head of these sub-layers decides by comparing scores."""
    return any(isinstance(sub, Attend) and any(_decides(head) for head in sub.heads) for sub in sublayers)
