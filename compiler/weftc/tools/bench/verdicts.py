"""Contests + targets -> what was measured beside what was promised, and whether it was kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weftc.tools.bench.peers import PEERS
from weftc.tools.bench.results import Clock, Contest, Results
from weftc.tools.bench.targets import MEMORY_PER_THREAD, TARGETS, SpeedTarget

Mark = Literal["aim met", "met", "not met", "not measured"]


@dataclass(frozen=True, slots=True)
class TargetVerdict:
    """One target and the worst of its workloads. `complete`: whether all of them were measured."""

    target: SpeedTarget
    against: str
    measured: float | None
    typical: float | None  # the same from medians
    workload: str
    mark: Mark
    complete: bool = True


def verdicts(
    results: Results, clock: Clock = "wall", targets: tuple[SpeedTarget, ...] = TARGETS
) -> list[TargetVerdict]:
    """One verdict per target that has anything to do with the workloads that ran."""
    ran = {contest.workload.name for contest in results.contests}
    return [_verdict(target, results, clock) for target in targets if ran & set(target.workloads)]


def _verdict(target: SpeedTarget, results: Results, clock: Clock) -> TargetVerdict:
    found = []
    for name in target.workloads:
        contest = results.contest(name)
        if contest is not None:
            found += [(value, name, peer) for value, peer in [_measured(target, contest, results.threads, clock)]]
    known = [(value, name, peer) for value, name, peer in found if value is not None]
    if not known:
        against = " / ".join(PEERS[peer].title for peer in target.against)
        return TargetVerdict(target, against, None, None, "", "not measured", False)
    value, name, peer = (max if target.sense != "at least" else min)(known, key=lambda one: one[0])
    contest = results.contest(name)
    assert contest is not None
    typical = None if not peer else _ratio(target, contest, peer, clock, typical=True)
    against = PEERS[peer].title if peer else ""
    return TargetVerdict(
        target, against, value, typical, name, mark(target, value), len(known) == len(target.workloads)
    )


def _measured(target: SpeedTarget, contest: Contest, threads: int, clock: Clock) -> tuple[float | None, str]:
    """What a target asks about, in one contest, and the peer it is about: the fastest of those it names."""
    ours = contest.ours
    if target.sense == "memory":
        if ours is None or ours.memory is None or ours.agreement.trouble:
            return None, ""
        return max(0.0, ours.memory - MEMORY_PER_THREAD * threads) / contest.workload.n, ""
    if target.sense == "milliseconds":
        return (None, "") if ours is None or ours.agreement.trouble else (ours.seconds(clock) * 1e3, "")
    ratios = {peer: contest.ratio(peer, clock) for peer in target.against}
    known = {peer: ratio for peer, ratio in ratios.items() if ratio is not None}
    if not known:
        return None, ""
    fastest = min(known, key=lambda peer: known[peer])
    return _ratio(target, contest, fastest, clock), fastest


def _ratio(target: SpeedTarget, contest: Contest, peer: str, clock: Clock, typical: bool = False) -> float | None:
    ratio = contest.ratio(peer, clock, typical)
    return ratio if ratio is None or target.sense == "at least" else 1 / ratio


def mark(target: SpeedTarget, value: float) -> Mark:
    """Whether a value keeps a target."""
    if target.sense == "at least":
        kept, reached = value >= target.must, target.aim is not None and value >= target.aim
    else:
        kept, reached = value <= target.must, target.aim is not None and value <= target.aim
    return "aim met" if reached else "met" if kept else "not met"
