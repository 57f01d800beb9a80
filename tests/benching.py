"""What the tests of `weftc bench` share: workers in this process, answers, measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

from weftc.tools.bench.contest import Effort
from weftc.tools.bench.judges import nearest
from weftc.tools.bench.peers import PEERS, Peer
from weftc.tools.bench.process import Processes
from weftc.tools.bench.results import Agreement, Contest, Measurement, Results, Start
from weftc.tools.bench.worker import Worker
from weftc.tools.bench.workloads import Workload, find

SMALL = Workload("small", "means", 300, 3, 4, 5, ("one", "two"), (300, 5), data="blobs")
TWICE = Effort(rounds=2)


def quiet(_: str) -> None:
    """Nobody watches."""


class Here:
    """A worker in this process."""

    def __init__(self) -> None:
        self.worker = Worker()

    def ask(self, do: str, **message: Any) -> dict[str, Any]:
        from weftc.tools.bench.process import PeerFailed

        try:
            answer: dict[str, Any] = getattr(self.worker, do)(json.loads(json.dumps(message)))
        except Exception as error:
            raise PeerFailed(str(error).splitlines()[0]) from None
        return answer

    def close(self) -> None:
        self.worker.held = None


class Local(Processes):
    """Everyone in this process."""

    def start(self, peer: str) -> Any:
        if peer not in self._running:
            self._running[peer] = Here()  # type: ignore[assignment]
        return self._running[peer]


def peer(cls: str = "Plain", needs: str = "json", **options: Any) -> Peer:
    return Peer(f"peer {cls} {options.get('name', '')}".strip(), f"bench_peers:{cls}", options, needs, "numpy", "keeps")


def distances(x: Any, c: Any) -> list[list[Fraction]]:
    exact = [[[Fraction(float(v)) for v in row] for row in rows] for rows in (x, c)]
    return [[sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) for q in exact[1]] for p in exact[0]]


def answer(inputs: dict[str, Any], wrong: int = 0) -> dict[str, Any]:
    labels = nearest(inputs["x"], inputs["c"])[0]
    labels[:wrong] = (labels[:wrong] + 1) % 4
    return {"centers": inputs["c"], "labels": labels}


def measured(
    name: str, walls: list[float], cpus: list[float] | None = None, iterations: int = 10, **more: Any
) -> Measurement:
    times = tuple(zip(walls, cpus or walls, strict=True))
    return Measurement(name, PEERS[name].title, "1", iterations, times, **more)


def results(*contests: Contest, exact: bool = True) -> Results:
    machine = {"cpu": "abacus", "cores": "2", "system": "Linux", "python": "3"}
    return Results(machine, "weftc bench", "2026-01-31", 2, exact, contests)


def contest(name: str, *measurements: Measurement, **more: Any) -> Contest:
    return Contest(replace(find(name), **more), measurements)


def sample() -> Results:
    ours = measured(
        "weftc",
        [0.1, 0.2],
        [0.15, 0.2],
        memory=16_000_000,
        agreement=Agreement(0, empty=1),
        facts={"backend": "planned", "tiers": {"bound": 1200, "exact": 3, "undecided": 0}},
    )
    lloyd = measured("sklearn-lloyd", [0.275, 0.3], memory=8_000_000, agreement=Agreement(2, excess=0.01, empty=0))
    made = replace(contest("lloyd-16-64", ours, lloyd), notes=("faiss is left out: not installed",))
    return replace(results(made, exact=False), starts=(Start("import weftc", (0.02, 0.04)),), notes=("that is all",))
