"""One implementation in a process of its own: JSON lines in, JSON lines out.

    {"do": "open", "peer", "workload", "files",
     "threads", "tiny"}                                      prepares the workload, runs a (tiny) part of it once
    {"do": "run", "iterations", "save"}                      one run: seconds, iterations; with save also memory, arrays
    {"do": "settle", "limit"}                                after how many iterations nothing changes any more
    {"do": "profile", "iterations"}                          where the time of a run goes, as text
    {"do": "drop"}                                           forgets the workload

The argument of the process is the module it imports first: the slow part, while other processes do the same.

Arrays travel as .npy files. What libraries print goes to stderr.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from weftc.tools.bench.memory import Peak
from weftc.tools.bench.peers import Peer
from weftc.tools.bench.peers.contestant import Contestant
from weftc.tools.bench.profiling import profile
from weftc.tools.bench.samples import beginning
from weftc.tools.bench.workloads import Workload

SHORT = 0.05  # seconds: shorter runs are repeated for so long, and the fastest counts


class Worker:
    """Holds one contestant and one workload at a time."""

    contestant: Contestant
    held: Any = None

    def open(self, message: dict[str, Any]) -> dict[str, Any]:
        """Prepares a workload."""
        peer = Peer(**message["peer"])
        given = message["workload"]
        given["entries"], given["quick"] = tuple(given["entries"]), tuple(given["quick"])
        given["few"] = tuple((name, many) for name, many in given["few"])
        workload = Workload(**given)
        begun = time.perf_counter()
        self.contestant = peer.make()
        facts = self.contestant.prepare(workload, message["threads"])
        facts["prepare seconds"] = time.perf_counter() - begun
        inputs = {name: np.load(path) for name, path in message["files"].items()}
        small = self.contestant.hold(beginning(inputs, workload, message["tiny"]))
        answer = self.contestant.run(small, 1)  # starts threads, loads libraries
        self.contestant.outcome(answer, 1)
        del answer, small
        self.held = self.contestant.hold(inputs)
        return {"facts": facts, "version": installed(peer)}

    def run(self, message: dict[str, Any]) -> dict[str, Any]:
        """One run."""
        iterations = message["iterations"]
        gc.collect()
        peak = Peak() if message.get("save") else None
        answer, wall, used = self._timed(iterations)
        spent = 0.0 if peak is None else SHORT
        while (spent := spent + wall) < SHORT:  # the caches are cold at first
            answer, *again = self._timed(iterations)
            wall, used = min(wall, again[0]), min(used, again[1])
        said: dict[str, Any] = {"wall": wall, "cpu": used, "iterations": iterations}
        if peak is not None:
            said["memory"] = peak.beyond()
        outcome = self.contestant.outcome(answer, iterations)
        said["iterations"] = outcome.iterations
        if message.get("save"):
            said["facts"], said["arrays"] = dict(outcome.facts), {}
            for name, array in outcome.arrays.items():
                path = f"{message['save']}.{name}.npy"
                np.save(path, np.asarray(array))
                said["arrays"][name] = path
        return said

    def _timed(self, iterations: int) -> tuple[Any, float, float]:
        """An answer, and seconds: of the clock, and of the processor."""
        cpu, begun = time.process_time(), time.perf_counter()
        answer = self.contestant.run(self.held, iterations)
        return answer, time.perf_counter() - begun, time.process_time() - cpu

    def settle(self, message: dict[str, Any]) -> dict[str, Any]:
        """When nothing changes any more."""
        return {"iterations": self.contestant.settles(self.held, message["limit"])}

    def profile(self, message: dict[str, Any]) -> dict[str, Any]:
        """Where the time goes."""
        return {"text": profile(self.contestant, self.held, message["iterations"])}

    def drop(self, message: dict[str, Any]) -> dict[str, Any]:
        """Forgets the workload."""
        self.held = None
        del self.contestant
        gc.collect()
        return {}


def installed(peer: Peer) -> str:
    """The version of the package a peer comes from."""
    try:
        return version(peer.package)
    except PackageNotFoundError:
        return ""


def serve(questions: TextIO, answers: TextIO) -> None:
    """Answers until there are no more questions."""
    worker = Worker()
    actions = {"open": worker.open, "run": worker.run, "settle": worker.settle}
    actions |= {"profile": worker.profile, "drop": worker.drop}
    for line in questions:
        message = json.loads(line)
        try:
            said = {"ok": True, **actions[message["do"]](message)}
        except Exception as error:  # told to the parent, which knows what to leave out
            said = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


def main() -> None:
    """Keeps the pipe to the parent apart from what libraries print."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    if Path.cwd() != Path("/") and str(Path.cwd()) in sys.path:
        sys.path.remove(str(Path.cwd()))  # a file of the user's named like a library must not be imported
    import_module(sys.argv[1])
    gc.freeze()  # what libraries made at import is not looked through before every run
    serve(sys.stdin, pipe)


if __name__ == "__main__":
    main()
