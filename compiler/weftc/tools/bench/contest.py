"""A workload -> a `Contest`: every implementation in its own process, judged first, then timed in alternating rounds.

    open       import, compile, load; a run on a small part of the data
    first run  at full size: memory, agreement with the exact answer, how many iterations it makes
    rounds     A, B, C, A, B, C, ...

Where nothing changes any more before the last iteration, all are timed with as many iterations as that takes. One that
stops earlier, on a way of its own, is scaled per iteration. Slow ones take part in fewer rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from weftc.tools.bench.agreement import Ours, judge
from weftc.tools.bench.peers import PEERS, Peer
from weftc.tools.bench.process import PeerFailed, Processes
from weftc.tools.bench.results import Contest, Measurement
from weftc.tools.bench.samples import arrays
from weftc.tools.bench.workloads import Workload

PAUSE = 0.3  # seconds in which the threads of the last run come to rest: those of some libraries spin for 0.2
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How often each is timed: `rounds`, but not longer than `patience` seconds, and at least `least` times unless a
    single run takes longer than that."""

    rounds: int = 5
    patience: float = 20.0
    least: int = 2

    def repetitions(self, seconds: float) -> int:
        """How many runs of so many seconds are worth their while."""
        least = 1 if seconds > self.patience else min(self.least, self.rounds)
        return max(least, min(self.rounds, int(self.patience / max(seconds, 1e-9))))


class _Round:
    """One contest while it goes on."""

    def __init__(self, workload: Workload, processes: Processes, folder: Path, effort: Effort, say: Say) -> None:
        self.workload, self.processes, self.folder, self.effort, self.say = workload, processes, folder, effort, say
        self.notes: list[str] = [workload.note] if workload.note else []
        self.found: dict[str, Measurement] = {}
        self.first: dict[str, float] = {}  # seconds of the first run

    def open(self) -> None:
        """Starts everyone who can take part."""
        self.inputs = arrays(self.workload)
        files = {}
        for name, array in self.inputs.items():
            path = self.folder / f"{self.workload.name}.{name}.npy"
            np.save(path, array)
            files[name] = str(path)
        self.processes.spawn(name for name in self.workload.entries if PEERS[name].is_installed)
        for name in self.workload.entries:
            peer = PEERS[name]
            if not peer.is_installed:
                self.notes.append(f"{peer.title} is left out: not installed (pip install {peer.package})")
                continue
            self.say(f"{self.workload.name}: {peer.title}: starts")
            tiny = name in dict(self.workload.few)
            told = self._ask(name, "open", **opening(peer, self.workload, files, self.processes.threads, tiny))
            if told is not None:
                self.found[name] = Measurement(name, peer.title, told["version"], 0, (), facts=told["facts"])
        for file in files.values():
            Path(file).unlink()

    def judge(self) -> None:
        """The first full run of each, held against the exact answer."""
        ours: Ours | None = None
        for name in list(self.found):
            self.say(f"{self.workload.name}: {self.found[name].title}: answer")
            asked = self.workload.iterations_of(name, self.workload.iterations)
            told = self._ask(name, "run", iterations=asked, save=str(self.folder / f"{self.workload.name}.{name}"))
            if told is None:
                continue
            answer = {key: np.load(path) for key, path in told["arrays"].items()}
            for path in told["arrays"].values():
                Path(path).unlink()
            if answer:
                self.say(f"{self.workload.name}: {self.found[name].title}: is it right?")
            held = told["facts"].get("labels") == "held"
            made = told["iterations"]
            beside = ours if asked == self.workload.iterations else None  # fewer iterations end elsewhere
            agreement, inertia = judge(self.workload, name, self.inputs, answer, held, made, beside)
            if name == self.workload.entries[0] and inertia is not None:
                ours = Ours(inertia, agreement.empty or 0)
            self.first[name] = told["wall"]
            facts = {**self.found[name].facts, **told["facts"]}
            self.found[name] = replace(
                self.found[name], iterations=made, memory=told["memory"], agreement=agreement, facts=facts
            )

    def equal_iterations(self) -> int:
        """As many iterations as asked for, or as ours needs until nothing changes: nobody is timed doing nothing."""
        asked, ours = self.workload.iterations, self.workload.entries[0]
        if self.workload.kind != "means" or asked == 1 or ours not in self.found:
            return asked
        self.say(f"{self.workload.name}: {self.found[ours].title}: when does nothing change?")
        told = self._ask(ours, "settle", limit=asked)
        needed = asked if told is None else max(1, min(asked, told["iterations"]))
        if needed < asked:
            self.notes.append(f"after {needed} iterations nothing changes, so all are timed with {needed}")
        return needed

    def time(self, iterations: int) -> None:
        """Alternating rounds."""
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in self.found}
        made: dict[str, int] = {}
        wanted = {}
        for name, measurement in self.found.items():
            share = self.workload.iterations_of(name, iterations) / max(1, measurement.iterations)
            wanted[name] = 0 if measurement.agreement.trouble else self.effort.repetitions(self.first[name] * share)
        for number in range(max(wanted.values(), default=0)):
            for name in [n for n in list(self.found) if number < wanted[n]]:
                self.say(f"{self.workload.name}: round {number + 1}: {self.found[name].title}")
                time.sleep(PAUSE)
                told = self._ask(name, "run", iterations=self.workload.iterations_of(name, iterations))
                if told is not None:
                    times[name].append((told["wall"], told["cpu"]))
                    made[name] = told["iterations"]
        for name, measurement in self.found.items():
            many = made.get(name, measurement.iterations)
            self.found[name] = replace(measurement, times=tuple(times[name]), iterations=many)
            if name in made and many != iterations:
                self.notes.append(f"{measurement.title} ran {many} of {iterations} iterations: scaled per iteration")

    def _ask(self, name: str, do: str, **message: Any) -> dict[str, Any] | None:
        """Asks a process; one that fails is left out from then on."""
        try:
            return self.processes.start(name).ask(do, **message)
        except PeerFailed as error:
            self.notes.append(f"{PEERS[name].title} is left out: {error}")
            self.found.pop(name, None)
            self.processes.done(name, failed=True)
            return None

    def close(self) -> None:
        """Everyone forgets the workload."""
        for name in self.workload.entries:
            self.processes.done(name)


def opening(peer: Peer, workload: Workload, files: Mapping[str, str], threads: int, tiny: bool) -> dict[str, Any]:
    """The first message to a process."""
    told = {"peer": asdict(peer), "workload": asdict(workload), "files": dict(files), "threads": threads}
    return told | {"tiny": tiny}


def hold(workload: Workload, processes: Processes, folder: Path, effort: Effort, say: Say) -> Contest:
    """Holds one contest."""
    round_ = _Round(workload, processes, folder, effort, say)
    try:
        round_.open()
        round_.judge()
        round_.time(round_.equal_iterations())
    finally:
        round_.close()
    return Contest(workload, tuple(round_.found.values()), tuple(round_.notes))
