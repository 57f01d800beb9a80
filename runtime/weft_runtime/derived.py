"""Keeps derived slots up to date: functions of the fields of a token, recomputed whenever fields are stored.

A derived slot is computed once all its sources have been set. One that has no value (the logarithm of zero, say) is no
error until something reads it: it is cleared, and the reason kept with the problem.
"""

from __future__ import annotations

import torch
from torch import Tensor

from weft_runtime import tokenwise
from weft_runtime.errors import RunError
from weft_runtime.exact import Exact, ExactWeights, NotRational
from weft_runtime.ir import FFN, Program, Stream, Sublayer
from weft_runtime.state import Problem
from weft_runtime.tensor_checks import sources
from weft_runtime.tensors import slots_read
from weft_runtime.weights import Weights


class Upkeep:
    """The derived slots of one run, and which slots have been set so far."""

    def __init__(self, program: Program, weights: Weights) -> None:
        self.weights, self.exact_weights = weights, ExactWeights(weights)
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
        return sources(stream, ffn, {name: self.weights[name].detach().cpu().numpy() for name in names})

    def active(self) -> dict[str, tuple[FFN, ...]]:
        """The derived maps whose sources have all been set."""
        if self._known != len(self.ready):
            self._known = len(self.ready)
            self._active = {name: self._possible(stream) for name, stream in self.streams.items()}
            self._makers = {
                (name, column): ffn
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
        return Exact(self.exact_weights, problem.z, self._makers)

    def radii(self, problem: Problem) -> dict[str, Tensor]:
        """Radii of the residual at the start of a step: fields are exact, derived slots are rounded."""
        found = {name: torch.zeros_like(z.detach()) for name, z in problem.z.items()}
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
                zero_test = self.zero_test(problem.z[name], self.exact(problem), ffn)
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

    def zero_test(self, z: Tensor, exact: Exact, ffn: FFN) -> tokenwise.Zero:
        """Asks exactly whether a norm of these rows divides by zero."""

        def is_zero(token: int) -> bool:
            try:
                return exact.is_zero(ffn, token)
            except NotRational:
                return bool((self.weights.linear(z[token : token + 1].detach(), ffn.a) == 0).all())

        return is_zero

    def demand(self, problem: Problem, sublayers: tuple[Sublayer, ...]) -> None:
        """Refuses to run sub-layers that read a derived slot without a value (the logarithm of zero, say)."""
        if problem.faults:
            for place in sorted(slots_read(sublayers, self.streams, self.weights)):
                if place in problem.faults:
                    raise RunError(problem.faults[place])
