"""The parent's end of a worker: starts a process for an implementation, asks it, ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from weftc.core.errors import WeftError
from weftc.tools.bench.peers import PEERS, Peer

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SHOWN = 400  # characters of what a dead process left


class PeerFailed(WeftError):
    """An implementation could not do what it was asked."""


class Process:
    """One implementation, alive between runs."""

    def __init__(self, peer: Peer, threads: int) -> None:
        self._complaints = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weftc.tools.bench.worker", peer.needs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            encoding="utf-8",
            env={**os.environ, **dict.fromkeys(THREADS, str(threads)), "PYTHONWARNINGS": "ignore"},
        )

    def ask(self, do: str, **message: Any) -> dict[str, Any]:
        """Sends one message and waits for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **message}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (BrokenPipeError, OSError):
            line = ""
        if not line:
            raise PeerFailed(f"its process ended{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            raise PeerFailed(str(answer["error"]).splitlines()[0])
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        self._complaints.seek(0)
        words = " ".join(self._complaints.read()[-SHOWN:].split())
        reason = f" by signal {-code}" if code < 0 else f" with code {code}"
        return f"{reason}: {words}" if words else reason

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._complaints.close()


class Processes:
    """The processes of a run. Fresh ones for every workload, or one per implementation for all of them."""

    def __init__(self, threads: int, fresh: bool) -> None:
        self.threads, self.fresh = threads, fresh
        self._running: dict[str, Process] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.close()
        self._running.clear()

    def spawn(self, peers: Iterable[str]) -> None:
        """Starts processes that are not there yet, so that they import side by side."""
        for peer in peers:
            self.start(peer)

    def start(self, peer: str) -> Process:
        """The process of an implementation."""
        if peer not in self._running:
            self._running[peer] = Process(PEERS[peer], self.threads)
        return self._running[peer]

    def done(self, peer: str, failed: bool = False) -> None:
        """After a workload: the process forgets it, or ends."""
        process = self._running.get(peer)
        if process is None:
            return
        if not (self.fresh or failed):
            try:
                process.ask("drop")
                return
            except PeerFailed:
                pass
        del self._running[peer]
        process.close()
