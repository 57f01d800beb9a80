"""Keeps derived slots up to date: functions of the fields of a token, recomputed whenever fields are stored.

A derived slot is computed once all its sources have been set. Rows that have no value (the logarithm of zero, say) are
no error until something needs them: they are cleared, and the reason is kept with the problem (`faults`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from weftc_runtime.exact.rational import ExactWeights, NotRational, RationalScores
from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import FFN, Attend, Head, Program, Score, Stream
from weftc_runtime.format.tensor_checks import sources
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.reference import feed_forward as tokenwise
from weftc_runtime.reference.bases import Bases, Blurred
from weftc_runtime.reference.faults import Fault, Unreadable, together
from weftc_runtime.reference.state import Problem

REASONS = 8  # rows of a fault that are named
GROWING = ("product", "relu2", "relu", "abs", "copy")  # functions that have a value wherever their arguments have


@dataclass(frozen=True, slots=True)
class Active:
    """The derived maps of every stream that can be carried out, and the one that makes each column."""

    ffns: dict[str, tuple[FFN, ...]]
    makers: dict[tuple[str, int], FFN]


class DerivedSlots:
    """The derived slots of one run, and which slots have been set so far."""

    def __init__(self, program: Program, weights: Weights) -> None:
        self.weights, self.exact_weights = weights, ExactWeights(weights)
        self.bases = Bases(program, weights)
        self.streams = {stream.name: stream for stream in program.streams}
        self.fields: dict[str, Tensor] = {}  # which columns of a stream are fields
        for stream in program.streams:
            self.fields[stream.name] = torch.zeros(stream.width, dtype=torch.bool)
            for slot in stream.slots:
                self.fields[stream.name][slot.columns] = slot.role == "field"
        self.ready: set[tuple[str, str]] = set()
        self._known = -1  # how many slots were ready when `_now` was made
        self._now = Active({}, {})
        self._by_ready: dict[frozenset[tuple[str, str]], Active] = {}
        self._slots: dict[tuple[str, str, bool], list[frozenset[str]]] = {}
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
        return sources(stream, ffn, tensors, self.bases.by_stream.get(stream.name))

    def fresh(self, ready: Iterable[tuple[str, str]] = ()) -> DerivedSlots:
        """The same slots in another run, where these have been set."""
        other = object.__new__(DerivedSlots)
        other.__dict__.update(self.__dict__, ready=set(ready), _known=-1)
        return other

    def active(self) -> dict[str, tuple[FFN, ...]]:
        """The derived maps whose sources have all been set."""
        return self._present().ffns

    def makers(self) -> dict[tuple[str, int], FFN]:
        """The map that makes each column of the derived slots that have a value."""
        return self._present().makers

    def _present(self) -> Active:
        if self._known != len(self.ready):  # it only grows
            self._known, ready = len(self.ready), frozenset(self.ready)
            found = self._by_ready.get(ready)
            self._now = self._by_ready[ready] = self._made() if found is None else found
        return self._now

    def _made(self) -> Active:
        ffns = {name: self._possible(stream) for name, stream in self.streams.items()}
        makers = {
            (name, self.bases.column(name, column)): ffn
            for name, some in ffns.items()
            for ffn in some
            for slot in ffn.writes
            for column in self._columns(name, slot)
        }
        return Active(ffns, makers)

    def _possible(self, stream: Stream) -> tuple[FFN, ...]:
        known = {slot.name for slot in stream.slots if slot.role in ("constant", "scratch")}
        known |= {slot for name, slot in self.ready if name == stream.name}
        found = []
        for index, ffn in enumerate(stream.derived):
            if self._sources[stream.name, index] <= known:
                found.append(ffn)
                known.update(ffn.writes)
        return tuple(found)

    def exact(self, problem: Problem) -> RationalScores:
        """The residual as it is now: fields are data, derived slots are functions of them."""
        exact = RationalScores(self.exact_weights, problem.residuals, self.makers())
        return Blurred(exact) if self.bases.blurred else exact

    def radii(self, problem: Problem) -> dict[str, Tensor]:
        """Radii of the residual at the start of a step: fields are exact, derived slots are rounded."""
        found = {name: self.bases.radius(name, z) for name, z in problem.residuals.items()}
        for name, ffns in self.active().items():
            for ffn in ffns:
                z, zero = problem.residuals[name].detach(), problem.zeros[name, *ffn.writes]
                found[name] = tokenwise.radius(ffn, self.weights, z, found[name], zero)
                lost = together(problem.faults, name, ffn.writes)
                if lost is not None:  # whatever stands there instead
                    found[name] = torch.where(lost.rows[:, None], self._unknown(name, ffn, found[name]), found[name])
        return found

    def _unknown(self, stream: str, ffn: FFN, radius: Tensor) -> Tensor:
        if stream in self.bases.by_stream:
            return torch.full_like(radius, torch.inf)
        found = radius.clone()
        for slot in ffn.writes:
            found[:, self.streams[stream].slot(slot).columns] = torch.inf
        return found

    def refresh(self, problems: list[Problem]) -> None:
        """Recomputes every derived slot whose sources are set."""
        for problem in problems:
            for ffns in self.active().values():
                for ffn in ffns:
                    self.feed(problem, ffn, self.exact(problem))

    # ------------------------------------------------------------------ rows without a value
    def feed(self, problem: Problem, ffn: FFN, exact: RationalScores) -> Tensor:
        """Carries out a feed-forward; which rows of a norm were zero. What has no value is noted, or an error."""
        return tokenwise.unwatched(self.feeding(problem, ffn, exact))

    def feeding(self, problem: Problem, ffn: FFN, exact: RationalScores) -> tokenwise.Stages[Tensor]:
        """The same, shown on the way."""
        z = problem.residuals[ffn.stream]
        lost = self._inherited(problem, ffn) if problem.faults else None
        made, zero, wrong = yield from tokenwise.stages(ffn, self.weights, z, self.direction(z, exact, ffn))
        if wrong is not None and lost is not None:
            wrong = wrong & ~lost.rows
        if wrong is not None and bool(wrong.any()):
            reasons = {row: tokenwise.reason(ffn, row) for row in wrong.nonzero()[:, 0].tolist()[:REASONS]}
            overflow = ffn.function in GROWING
            lost = Fault(ffn.origin.rstrip(": "), reasons, wrong, overflow).joined(lost)
        if lost is not None and not self._keeps(ffn):
            raise lost.told(ffn.origin)
        problem.residuals[ffn.stream], problem.zeros[ffn.stream, *ffn.writes] = made, zero
        for slot in ffn.writes:
            problem.faults.pop((ffn.stream, slot), None)
            if lost is not None:
                problem.faults[ffn.stream, slot] = lost
        if lost is not None:
            self._clear(problem, ffn, lost.rows)
        return zero

    def _clear(self, problem: Problem, ffn: FFN, rows: Tensor) -> None:
        stream, z = self.streams[ffn.stream], problem.residuals[ffn.stream]
        keep = torch.ones(stream.width, dtype=torch.float64, device=z.device)
        for slot in ffn.writes:
            keep[stream.slot(slot).columns] = 0.0
        problem.residuals[ffn.stream] = torch.where(rows[:, None], self.bases.scaled(ffn.stream, z, keep), z)

    def _keeps(self, ffn: FFN) -> bool:
        """Whether a feed-forward writes derived slots only."""
        stream = self.streams[ffn.stream]
        return bool(ffn.writes) and all(stream.slot(slot).role == "derived" for slot in ffn.writes)

    def _inherited(self, problem: Problem, ffn: FFN) -> Fault | None:
        """The rows for which a feed-forward reads what has no value; of a selection, only what it selects counts."""
        name, faults = ffn.stream, problem.faults
        a = together(faults, name, self.slots_read_by(name, ffn.a))
        b = None if ffn.b is None else together(faults, name, self.slots_read_by(name, ffn.b))
        if ffn.function == "select" and ffn.b is not None:
            flag = self.weights.linear(problem.residuals[name], ffn.b)[:, -1].detach() > 0.5
            unknown = together(faults, name, self._rows_read(name, ffn.b)[-1])
            sides = (unknown, a and a.only(flag), b and b.only(~flag))
        else:
            sides = (None, a, b)
        carry = self._rows_read(name, ffn.carry, between=True)
        written = [carry[at] for slot in ffn.writes for at in self._columns(name, slot)]
        found = together(faults, name, frozenset().union(*written) - set(ffn.writes))
        for side in sides:
            found = side.joined(found) if side is not None else found
        return found

    def _columns(self, stream: str, slot: str) -> range:
        where = self.streams[stream].slot(slot)
        return range(where.offset, where.offset + where.width)

    def _rows_read(self, stream: str, matrix: str, between: bool = False) -> list[frozenset[str]]:
        """The slots that every row of a matrix reads; `between`: of a matrix from the stream to itself."""
        key = (stream, matrix, between)
        if key not in self._slots:
            array = self.weights[matrix].detach().cpu().numpy()
            if stream in self.bases.by_stream:
                array = self.bases.by_stream[stream].over_slots(array, between=between)
            rows = array if array.ndim == 2 else array[None]
            slots = self.streams[stream].slots
            self._slots[key] = [
                frozenset(slot.name for slot in slots if (row[slot.columns] != 0).any()) for row in rows
            ]
        return self._slots[key]

    def slots_read_by(self, stream: str, matrix: str) -> frozenset[str]:
        return frozenset().union(*self._rows_read(stream, matrix))

    def carried(self, problem: Problem, attend: Attend) -> dict[tuple[str, str], Fault]:
        """What has no value after a sub-layer has carried the residuals, before its heads."""
        found = {place: fault for place, fault in problem.faults.items() if place[0] not in attend.carry}
        for stream, matrix in attend.carry.items():
            rows = self._rows_read(stream, matrix, between=True)
            for slot in self.streams[stream].slots:
                read = frozenset().union(*(rows[at] for at in self._columns(stream, slot.name)))
                lost = together(problem.faults, stream, read)
                if lost is not None:
                    found[stream, slot.name] = lost
        return found

    def unreadable(self, problem: Problem, head: Head, score: Score) -> Unreadable:
        """What a score of a head cannot read."""
        if not problem.faults:
            return Unreadable()
        query, keys = set[str](), set[str]()
        for part in score.nested():
            query |= self.slots_read_by(head.query, part.q)
            keys |= self.slots_read_by(head.keys, part.k)
            if part.scale is not None:
                side, name = part.scale
                (query if side == "query" else keys).update(
                    self.slots_read_by(head.query if side == "query" else head.keys, name)
                )
        if score is head.score and head.self_key is not None and head.self_key.row is not None:
            query |= self.slots_read_by(head.query, head.self_key.row)
        return Unreadable(together(problem.faults, head.query, query), together(problem.faults, head.keys, keys))

    def unreadable_values(self, problem: Problem, head: Head) -> Unreadable:
        """What a head cannot read as values: of its keys, and of the query token itself."""
        own, keys = head.self_key, None
        if not problem.faults:
            return Unreadable()
        if head.value and head.weighting.kind not in NUMBER_HEADS:
            keys = together(problem.faults, head.keys, self.slots_read_by(head.keys, head.value))
        mine = self.slots_read_by(head.query, own.value) if own is not None and own.value else frozenset[str]()
        return Unreadable(together(problem.faults, head.query, mine), keys)

    def written_by(self, head: Head) -> list[str]:
        """The slots that a head adds to."""
        own = head.self_key
        names = [name for name in (head.value, own.value if own is not None else "") if name]
        stream = self.streams[head.query]
        if head.query in self.bases.by_stream:
            return [slot.name for slot in stream.slots]
        filled = [(self.weights[name].detach() != 0).any(1) for name in names]
        return [slot.name for slot in stream.slots if any(bool(rows[slot.columns].any()) for rows in filled)]

    def direction(self, z: Tensor, exact: RationalScores, ffn: FFN) -> tokenwise.Direction:
        """Asks exactly what a norm of these rows divides by its length; what is not rational is taken as computed."""

        def found(token: int) -> list[float] | None:
            try:
                return exact.direction(ffn, token)
            except NotRational:
                row = z[token : token + 1].detach()
                radius = self.weights.radius(row, self.bases.radius(ffn.stream, row), ffn.a)
                known = radius if self.bases.blurred else torch.zeros_like(radius)
                return tokenwise.computed(ffn, self.weights, row, known)

        return found
