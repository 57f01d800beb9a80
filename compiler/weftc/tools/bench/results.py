"""What a run of `weftc bench` finds out, as data, and the ratios in it. A ratio is a peer's time over ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from weftc.tools.bench.workloads import Workload

Clock = Literal["wall", "cpu"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How an answer compares with the exact one.

    `rows`: points whose label is not the exact nearest of the centers that came with it. `error`: of transport, the
    largest relative error of an entry of the plan; of soft means, that of a center. `excess`: inertia relative to ours,
    less 1.
    """

    rows: int | None = None
    error: float | None = None
    excess: float | None = None
    empty: int | None = None
    trouble: str = ""  # why it does not count as the same work; empty when it does


@dataclass(frozen=True, slots=True)
class Measurement:
    """One implementation on one workload: (wall, CPU) seconds of every repetition, in order."""

    peer: str
    title: str
    version: str
    iterations: int
    times: tuple[tuple[float, float], ...]
    memory: int | None = None  # bytes beyond the input at the peak of the first full run
    agreement: Agreement = Agreement()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def seconds(self, clock: Clock, typical: bool = False) -> float:
        """The fastest repetition, or the median."""
        values = [wall if clock == "wall" else cpu for wall, cpu in self.times]
        return median(values) if typical else min(values)

    def per_iteration(self, clock: Clock, typical: bool = False) -> float:
        """Seconds per iteration."""
        return self.seconds(clock, typical) / max(1, self.iterations)


@dataclass(frozen=True, slots=True)
class Contest:
    """A workload, who took part (ours first, if it did) and what there is to say."""

    workload: Workload
    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()

    @property
    def ours(self) -> Measurement | None:
        """The implementation the others are compared with."""
        return self.of(self.workload.entries[0])

    def of(self, peer: str) -> Measurement | None:
        """The measurement of a peer, if it took part and was timed."""
        return next((m for m in self.measurements if m.peer == peer and m.times), None)

    def ratio(self, peer: str, clock: Clock = "wall", typical: bool = False) -> float | None:
        """Time per iteration of a peer over ours; None where either is missing or did something else."""
        ours, other = self.ours, self.of(peer)
        if ours is None or other is None or ours.agreement.trouble or other.agreement.trouble:
            return None
        mine = ours.seconds(clock, typical) * max(1, other.iterations)
        return other.seconds(clock, typical) * max(1, ours.iterations) / mine


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds to get something ready in a fresh process, of every repetition."""

    what: str
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """One run: where, how, and what came out."""

    machine: Mapping[str, str]
    command: str
    date: str
    threads: int
    exact_sizes: bool  # whether the sizes are those of the targets
    contests: tuple[Contest, ...]
    starts: tuple[Start, ...] = ()
    notes: tuple[str, ...] = ()

    def contest(self, name: str) -> Contest | None:
        """The contest of a workload."""
        return next((contest for contest in self.contests if contest.workload.name == name), None)

    @property
    def troubles(self) -> list[str]:
        """Every answer that is not what it should be."""
        return [
            f"{contest.workload.name}: {m.title}: {m.agreement.trouble}"
            for contest in self.contests
            for m in contest.measurements
            if m.agreement.trouble
        ]
