"""Keeps derived slots up to date: functions of the fields of a token, recomputed whenever fields are stored.

A derived slot is computed once all its sources have been set. One that has no value (the logarithm of zero, say) is no
error until something reads it: it is cleared, and the reason kept with the problem.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from weft_runtime import tokenwise
from weft_runtime.coordinates import Blurred, Coordinates
from weft_runtime.errors import RunError
from weft_runtime.exact import Exact, ExactWeights, NotRational
from weft_runtime.ir import FFN, Attend, Program, Stream, Sublayer
from weft_runtime.state import Fault, Problem
from weft_runtime.tensor_checks import sources
from weft_runtime.tensors import slots_read
from weft_runtime.weights import Weights


class Upkeep:
    """The derived slots of one run, and which slots have been set so far."""

    def __init__(self, program: Program, weights: Weights) -> None:
        self.weights, self.exact_weights = weights, ExactWeights(weights)
        self.coordinates = Coordinates(program, weights)
        self.streams = {stream.name: stream for stream in program.streams}
        self.ready: set[tuple[str, str]] = set()
        self._known = -1  # how many slots were ready when `_active` was made
        self._active: dict[str, tuple[FFN, ...]] = {}
        self._makers: dict[tuple[str, int], FFN] = {}
        self._sources = {
            (stream.name, index): self._read(stream, ffn)
            for stream in program.streams
            for index, ffn in enumerate(stream.derived)
        }

    def _read(self, stream: Stream, ffn: FFN) -> set[str]:
        names = [name for name in (ffn.a, ffn.b, ffn.carry) if name is not None]
        if any(self.weights[name].is_meta for name in names):
            return set()
        tensors = {name: self.weights[name].detach().cpu().numpy() for name in names}
        return sources(stream, ffn, tensors, self.coordinates.bases.get(stream.name))

    def active(self) -> dict[str, tuple[FFN, ...]]:
        """The derived maps whose sources have all been set."""
        if self._known != len(self.ready):
            self._known = len(self.ready)
            self._active = {name: self._possible(stream) for name, stream in self.streams.items()}
            self._makers = {
                (name, self.coordinates.column(name, column)): ffn
                for name, ffns in self._active.items()
                for ffn in ffns
                for slot in ffn.writes
                for column in range(*self.streams[name].slot(slot).columns.indices(self.streams[name].width))
            }
        return self._active

    def _possible(self, stream: Stream) -> tuple[FFN, ...]:
        known = {slot.name for slot in stream.slots if slot.role in ("constant", "scratch")}
        known |= {slot for name, slot in self.ready if name == stream.name}
        found = []
        for index, ffn in enumerate(stream.derived):
            if self._sources[stream.name, index] <= known:
                found.append(ffn)
                known.update(ffn.writes)
        return tuple(found)

    def exact(self, problem: Problem) -> Exact:
        """The residual as it is now: fields are data, derived slots are functions of them."""
        self.active()
        exact = Exact(self.exact_weights, problem.z, self._makers)
        return Blurred(exact) if self.coordinates.blurred else exact

    def radii(self, problem: Problem) -> dict[str, Tensor]:
        """Radii of the residual at the start of a step: fields are exact, derived slots are rounded."""
        found = {name: self.coordinates.radius(name, z) for name, z in problem.z.items()}
        for name, ffns in self.active().items():
            for ffn in ffns:
                if not any((name, slot) in problem.faults for slot in ffn.writes):
                    z, zero = problem.z[name].detach(), problem.zeros[name, *ffn.writes]
                    found[name] = tokenwise.radius(ffn, self.weights, z, found[name], zero)
        return found

    def refresh(self, problems: list[Problem]) -> None:
        """Recomputes every derived slot whose sources are set."""
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
                direction = self.direction(problem.z[name], self.exact(problem), ffn)
                problem.z[name], zero = tokenwise.apply(ffn, self.weights, problem.z[name], direction)
                problem.zeros[name, *ffn.writes] = zero
                return
            except RunError as error:
                reason = _fault(error, ffn)
        self._clear(problem, ffn, reason)

    def _clear(self, problem: Problem, ffn: FFN, fault: Fault) -> None:
        """Notes that the slots of a feed-forward have no value."""
        stream = self.streams[ffn.stream]
        keep = torch.ones(stream.width, dtype=torch.float64, device=problem.z[ffn.stream].device)
        for slot in ffn.writes:
            keep[stream.slot(slot).columns] = 0.0
            problem.faults[ffn.stream, slot] = fault
        problem.z[ffn.stream] = self.coordinates.scaled(ffn.stream, problem.z[ffn.stream], keep)

    def excuse(self, error: RunError, problem: Problem, ffn: FFN, later: tuple[Sublayer, ...]) -> None:
        """Lets a feed-forward of a step fail if it only keeps derived slots that no later sub-layer of it reads."""
        if not self._keeps(ffn):
            raise error
        self._clear(problem, ffn, _fault(error, ffn))
        self.demand(problem, later)

    def inherits(self, problem: Problem, ffn: FFN) -> bool:
        """Whether a feed-forward of a step keeps derived slots and reads one without a value: then it has none."""
        if not problem.faults or not self._keeps(ffn):
            return False
        read = sorted(slots_read((ffn,), self.streams, self.weights, self.coordinates.bases))
        reason = next((problem.faults[place] for place in read if place in problem.faults), None)
        if reason is not None:
            self._clear(problem, ffn, reason)
        return reason is not None

    def _keeps(self, ffn: FFN) -> bool:
        stream = self.streams[ffn.stream]
        return bool(ffn.writes) and all(stream.slot(slot).role == "derived" for slot in ffn.writes)

    def direction(self, z: Tensor, exact: Exact, ffn: FFN) -> tokenwise.Direction:
        """Asks exactly what a norm of these rows divides by its length; what is not rational is taken as computed."""

        def found(token: int) -> list[float] | None:
            try:
                return exact.direction(ffn, token)
            except NotRational:
                row = z[token : token + 1].detach()
                radius = self.weights.radius(row, self.coordinates.radius(ffn.stream, row), ffn.a)
                known = radius if self.coordinates.blurred else torch.zeros_like(radius)
                return tokenwise.computed(ffn, self.weights, row, known)

        return found

    def demand(self, problem: Problem, sublayers: tuple[Sublayer, ...]) -> None:
        """Refuses to run sub-layers that read a derived slot without a value (the logarithm of zero, say)."""
        faults = dict(problem.faults)
        for sublayer in sublayers if faults else ():
            lost: Fault | None = None
            for part, origin in _apart(sublayer):
                for place in sorted(slots_read((part,), self.streams, self.weights, self.coordinates.bases)):
                    lost = lost or faults.get(place)
                    if place in faults and not (isinstance(sublayer, FFN) and self._keeps(sublayer)):
                        told = faults[place].told(origin.rstrip(": "))
                        raise RunError(told, place=told.rpartition(": ")[0])
            if isinstance(sublayer, FFN):  # it renews its slots, or hands on that they have no value
                for slot in sublayer.writes:
                    faults.pop((sublayer.stream, slot), None)
                    if lost is not None:
                        faults[sublayer.stream, slot] = lost


def _apart(sublayer: Sublayer) -> Iterator[tuple[Sublayer, str]]:
    """The parts of a sub-layer, each with the equation it stands for: who reads a slot is told about it."""
    if isinstance(sublayer, FFN):
        yield sublayer, sublayer.origin
        return
    yield from ((Attend({}, (head,)), head.origin) for head in sublayer.heads)
    yield Attend(sublayer.carry), ""


def _fault(error: RunError, ffn: FFN) -> Fault:
    """What an error of a feed-forward says, apart from the equation it names."""
    origin = ffn.origin.rstrip(": ")
    return Fault(origin, str(error).removeprefix(f"{origin}: "))
