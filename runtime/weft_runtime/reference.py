"""The reference backend: carries out a program's dense matrices literally, one problem at a time.

Everything is computed in float64 whatever the storage dtype; at the end of a step its fields are rounded to that dtype,
once. Decisions (argmax, ranking, masks) are those of exact arithmetic on the fields as stored at the start of the step.
Problems of a batch advance side by side but never meet, so batching cannot change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft_runtime import tokenwise
from weft_runtime.attention import HeadRun, Result
from weft_runtime.bounds import added, widen
from weft_runtime.errors import RunError
from weft_runtime.exact import Choice, Exact, ExactWeights, NotRational
from weft_runtime.hooks import Block, HeadSites, listens, visit
from weft_runtime.ir import FFN, HARD, Attend, Head, Program, Step, Stream, Sublayer
from weft_runtime.results import Tiers
from weft_runtime.tensors import slots_read
from weft_runtime.validate import sources
from weft_runtime.weights import Weights

Tap = Callable[[str, list["Problem"]], None]  # told the state after a sub-layer
PatternTap = Callable[[str, list[Tensor]], None]


@dataclass(slots=True)
class Problem:
    """One problem of a batch: the residual of every stream, in float64 with fields rounded to the storage dtype."""

    z: dict[str, Tensor]
    number: int = 0  # its place in the batch
    faults: dict[tuple[str, str], str] = field(default_factory=dict)  # derived slots without a value, and why
    zeros: dict[tuple[str, ...], Tensor] = field(default_factory=dict)  # rows where a derived norm took its fallback
    exact: Exact | None = None
    radii: dict[str, Tensor] | None = None

    def copy(self) -> Problem:
        return Problem(dict(self.z), self.number, dict(self.faults), dict(self.zeros))


@dataclass(slots=True)
class Reference:
    """One run: the weights it uses, what it has initialised, what it reports."""

    program: Program
    weights: Weights
    dtype: torch.dtype
    batched: bool = False
    tiers: dict[str, Tiers] = field(default_factory=dict)
    ready: set[tuple[str, str]] = field(default_factory=set)
    prefix: str = ""  # of the names told to taps
    tap: Tap | None = None
    pattern_tap: PatternTap | None = None
    streams: dict[str, Stream] = field(init=False)
    exact_weights: ExactWeights = field(init=False)
    _sources: dict[tuple[str, int], set[str]] = field(init=False)
    _columns: dict[str, Tensor] = field(init=False)
    _active: tuple[int, dict[str, tuple[FFN, ...]]] = field(init=False)
    _makers: dict[tuple[str, int], FFN] = field(init=False)

    def __post_init__(self) -> None:
        self.streams = {stream.name: stream for stream in self.program.streams}
        self.exact_weights = ExactWeights(self.weights)
        self._sources = {}
        self._columns = {}
        self._active = (-1, {})
        self._makers = {}
        for stream in self.program.streams:
            mask = torch.zeros(stream.width, dtype=torch.bool)
            for slot in stream.slots:
                mask[slot.columns] = slot.role == "field"
            self._columns[stream.name] = mask
            for index, ffn in enumerate(stream.derived):
                self._sources[stream.name, index] = self._read(stream, ffn)

    def _read(self, stream: Stream, ffn: FFN) -> set[str]:
        names = [name for name in (ffn.a, ffn.b, ffn.carry) if name is not None]
        if any(self.weights[name].is_meta for name in names):
            return set()
        return sources(stream, ffn, {name: self.weights[name].detach().cpu().numpy() for name in names})

    # ------------------------------------------------------------------ steps
    def step(self, step: Step, problems: list[Problem], blocks: Iterable[Block], path: str, first: int) -> None:
        """Runs one step on all problems: sub-layers, rounding of the fields, refresh of the derived slots."""
        for problem in problems:
            self.demand(problem, step.sublayers)
            self.enter(problem, decides(step.sublayers))
        sites = list(blocks)
        if not step.sublayers:
            self._store(step, problems)
        for index, sublayer in enumerate(step.sublayers):
            later = step.sublayers[index + 1 :]
            name = f"{path}.{first + index}"
            self._resid(problems, sites[index], post=False, bounded=decides(step.sublayers[index:]))
            if isinstance(sublayer, FFN):
                self._feed_forward(sublayer, problems, bool(later), decides(later))
            else:
                self._attend(sublayer, problems, sites[index], name, bool(later), decides(later))
            if not later:
                self._store(step, problems)
            self._resid(problems, sites[index], post=True, bounded=decides(later))
            if self.tap is not None:
                self.tap(self.prefix + name, problems)
        for problem in problems:
            problem.exact = problem.radii = None

    def enter(self, problem: Problem, bounded: bool) -> None:
        """Starts a step: from here on the fields are data and everything else follows from them."""
        active = self.active()
        problem.exact = self._exact(problem)
        problem.radii = None
        if bounded:
            problem.radii = {name: torch.zeros_like(z.detach()) for name, z in problem.z.items()}
            for name, ffns in active.items():
                for ffn in ffns:
                    if not any((name, slot) in problem.faults for slot in ffn.writes):
                        z, zero = problem.z[name].detach(), problem.zeros[name, *ffn.writes]
                        problem.radii[name] = tokenwise.radius(ffn, self.weights, z, problem.radii[name], zero)

    def demand(self, problem: Problem, sublayers: tuple[Sublayer, ...]) -> None:
        """Refuses to run sub-layers that read a derived slot without a value (the logarithm of zero, say)."""
        if problem.faults:
            for place in sorted(slots_read(sublayers, self.streams, self.weights)):
                if place in problem.faults:
                    raise RunError(problem.faults[place])

    def _store(self, step: Step, problems: list[Problem]) -> None:
        """Rounds the fields to the storage dtype and brings the derived slots up to date."""
        self.ready.update(step.writes)
        for problem in problems:
            for name, z in problem.z.items():
                problem.z[name] = self.rounded(name, z)
                self._check_fields(name, problem.z[name], problem.number, step)
        self.refresh(problems)

    def rounded(self, name: str, z: Tensor) -> Tensor:
        """The residual with its fields as the storage dtype holds them."""
        if self.dtype == torch.float64:
            return z
        return torch.where(self._columns[name].to(z.device), z.to(self.dtype).to(torch.float64), z)

    def _check_fields(self, name: str, z: Tensor, number: int, step: Step) -> None:
        if z.is_meta or bool(torch.isfinite(z.detach()).all()):
            return
        row, column = (int(i) for i in (~torch.isfinite(z.detach())).nonzero()[0])
        slot = next(s.name for s in self.streams[name].slots if s.offset <= column < s.offset + s.width)
        where = f"; problem {number} of the batch" if self.batched else ""
        what = f" ({step.equations[0]})" if step.equations else ""
        dtype = str(self.dtype).removeprefix("torch.")
        place = f"{slot} of {name}, token {row} (counted from 0{where})"
        raise RunError(f"{place} does not fit {dtype}{what}; scale the inputs down")

    def active(self) -> dict[str, tuple[FFN, ...]]:
        """The derived maps whose sources have all been set."""
        if self._active[0] == len(self.ready):
            return self._active[1]
        found: dict[str, tuple[FFN, ...]] = {}
        for stream in self.program.streams:
            known = {slot.name for slot in stream.slots if slot.role in ("constant", "scratch")}
            known |= {slot for name, slot in self.ready if name == stream.name}
            ffns = []
            for index, ffn in enumerate(stream.derived):
                if self._sources[stream.name, index] <= known:
                    ffns.append(ffn)
                    known.update(ffn.writes)
            found[stream.name] = tuple(ffns)
        self._active = (len(self.ready), found)
        self._makers = {
            (name, column): ffn
            for name, ffns in found.items()
            for ffn in ffns
            for slot in ffn.writes
            for column in range(*self.streams[name].slot(slot).columns.indices(self.streams[name].width))
        }
        return found

    def _exact(self, problem: Problem) -> Exact:
        """The residual as it is now: fields are data, derived slots are functions of them."""
        self.active()
        return Exact(self.exact_weights, problem.z, self._makers)

    def refresh(self, problems: list[Problem]) -> None:
        """Recomputes every derived slot whose sources are set.

        A slot that has no value is not an error until something reads it: it is cleared, and the reason kept.
        """
        for problem in problems:
            problem.faults.clear()
            for name, ffns in self.active().items():
                for ffn in ffns:
                    self._derive(problem, name, ffn)

    def _derive(self, problem: Problem, name: str, ffn: FFN) -> None:
        index = self.streams[name].derived.index(ffn)
        inherited = [problem.faults.get((name, slot)) for slot in self._sources[name, index]]
        reason = next((fault for fault in inherited if fault is not None), None)
        if reason is None:
            try:
                zero_test = self._zero_test(problem.z[name], self._exact(problem), ffn)
                problem.z[name], zero = tokenwise.apply(ffn, self.weights, problem.z[name], zero_test)
                problem.zeros[name, *ffn.writes] = zero
                return
            except RunError as error:
                reason = str(error)
        keep = torch.ones(self.streams[name].width, dtype=torch.float64, device=problem.z[name].device)
        for slot in ffn.writes:
            keep[self.streams[name].slot(slot).columns] = 0.0
            problem.faults[name, slot] = reason
        problem.z[name] = problem.z[name] * keep

    def _zero_test(self, z: Tensor, exact: Exact, ffn: FFN) -> tokenwise.Zero:
        def is_zero(token: int) -> bool:
            try:
                return exact.is_zero(ffn, token)
            except NotRational:
                return bool((self.weights.linear(z[token : token + 1].detach(), ffn.a) == 0).all())

        return is_zero

    # ------------------------------------------------------------------ sub-layers
    def _feed_forward(self, ffn: FFN, problems: list[Problem], noted: bool, bounded: bool) -> None:
        for problem in problems:
            assert problem.exact is not None
            z = problem.z[ffn.stream]
            problem.z[ffn.stream], zero = tokenwise.apply(ffn, self.weights, z, self._zero_test(z, problem.exact, ffn))
            if bounded and problem.radii is not None:
                radius = tokenwise.radius(ffn, self.weights, z.detach(), problem.radii[ffn.stream], zero)
                problem.radii[ffn.stream] = radius
            if noted:
                problem.exact.ran(ffn, {})

    def _attend(
        self, attend: Attend, problems: list[Problem], block: Block, name: str, noted: bool, bounded: bool
    ) -> None:
        outs = [self._carry(attend, problem, bounded) for problem in problems]
        choices: list[dict[str, Choice]] = [{} for _ in problems]
        for head in attend.heads:
            for index, result in enumerate(self._head(head, problems, block.head(head.name), name, bounded)):
                z, radii = outs[index]
                before = z[head.query]
                z[head.query] = before + result.out
                if radii is not None and result.radius is not None:
                    total = z[head.query].detach()
                    radius = radii[head.query] + result.radius
                    radii[head.query] = widen(radius + added(total, before.detach(), result.out.detach()))
                choices[index][head.name] = result.choice
        for problem, (z, radii), choice in zip(problems, outs, choices, strict=True):
            problem.z, problem.radii = z, radii
            if noted and problem.exact is not None:
                problem.exact.ran(attend, choice)

    def _carry(
        self, attend: Attend, problem: Problem, bounded: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
        z = dict(problem.z)
        radii = dict(problem.radii) if bounded and problem.radii is not None else None
        for stream, name in attend.carry.items():
            z[stream] = self.weights.linear(problem.z[stream], name)
            if radii is not None:
                radii[stream] = self.weights.radius(problem.z[stream].detach(), radii[stream], name)
        return z, radii

    def _head(self, head: Head, problems: list[Problem], sites: HeadSites, name: str, bounded: bool) -> list[Result]:
        watched = listens(sites.hook_attn_scores) or listens(sites.hook_pattern) or self.pattern_tap is not None
        runs = []
        for problem in problems:
            assert problem.exact is not None
            needed = problem.radii if _decides(head) or bounded else None
            runs.append(HeadRun(head, self.weights, problem.z, needed, problem.exact, bounded).run(watched))
        results = self._drive(runs, sites, f"{name}.{head.name}")
        for result in results:
            if result.tiers is not None:
                self.tiers.setdefault(f"{name}.{head.name}", Tiers()).add(result.tiers)
        if listens(sites.hook_z):
            seen, changed = self.through(sites.hook_z, [result.out for result in results])
            for result, out in zip(results, seen, strict=True):
                result.out = out if changed else result.out
        return results

    def _drive(
        self, runs: list[Generator[tuple[str, Tensor], Tensor, Result]], sites: HeadSites, name: str
    ) -> list[Result]:
        """Takes the heads of all problems from one site to the next, together."""
        results: dict[int, Result] = {}
        replies: list[Tensor | None] = [None] * len(runs)
        while len(results) < len(runs):
            asked: dict[int, tuple[str, Tensor]] = {}
            for index, run in enumerate(runs):
                if index in results:
                    continue
                try:
                    reply = replies[index]
                    asked[index] = next(run) if reply is None else run.send(reply)
                except StopIteration as stop:
                    results[index] = stop.value
            if not asked:
                continue
            site = sites.hook_attn_scores if next(iter(asked.values()))[0] == "scores" else sites.hook_pattern
            tensors = [tensor for _, tensor in asked.values()]
            seen, changed = self.through(site, tensors)
            for index, old, new in zip(asked, tensors, seen, strict=True):
                replies[index] = new if changed else old
        ordered = [results[index] for index in range(len(runs))]
        if self.pattern_tap is not None and all(result.patterns for result in ordered):
            self.pattern_tap(self.prefix + name, [result.patterns[0] for result in ordered])
        return ordered

    # ------------------------------------------------------------------ hooks
    def _resid(self, problems: list[Problem], block: Block, post: bool, bounded: bool) -> None:
        for name, stream_sites in block.streams.items():
            site: nn.Module = stream_sites.hook_resid_post if post else stream_sites.hook_resid_pre
            if not listens(site):
                continue
            seen, changed = self.through(site, [problem.z[name] for problem in problems])
            if changed:
                for problem, z in zip(problems, seen, strict=True):
                    problem.z[name] = z
                    # What a hook wrote is data: it is not a function of the fields any more.
                    problem.exact = Exact(self.exact_weights, problem.z, {})
                    if problem.radii is not None:
                        problem.radii = {key: torch.zeros_like(value.detach()) for key, value in problem.z.items()}

    def through(self, site: nn.Module, tensors: list[Tensor]) -> tuple[list[Tensor], bool]:
        """Shows tensors of all problems to a site, as one batch padded with zeros."""
        if not self.batched:
            out, changed = visit(site, tensors[0])
            return [out], changed
        out, changed = visit(site, padded(tensors))
        return [out[i][tuple(slice(n) for n in t.shape)] for i, t in enumerate(tensors)], changed


def padded(tensors: list[Tensor]) -> Tensor:
    """Tensors of different sizes as one, filled up with zeros."""
    sizes = [max(t.shape[axis] for t in tensors) for axis in range(tensors[0].dim())]
    rows = []
    for tensor in tensors:
        pads = [n for size, have in zip(reversed(sizes), reversed(tensor.shape), strict=True) for n in (0, size - have)]
        rows.append(nn.functional.pad(tensor, pads) if any(pads) else tensor)
    return torch.stack(rows)


def _decides(head: Head) -> bool:
    return head.weighting.kind in HARD or any(mask.op != "other" for mask in head.masks)


def decides(sublayers: tuple[Sublayer, ...]) -> bool:
    """Whether some head of these sub-layers decides by comparing scores."""
    return any(isinstance(sub, Attend) and any(_decides(head) for head in sub.heads) for sub in sublayers)
