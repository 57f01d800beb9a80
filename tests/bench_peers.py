"""Implementations for the tests of `weftc bench`: right, wrong, dying, and one that stops by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from weftc.tools.bench.judges import nearest
from weftc.tools.bench.peers.contestant import Arrays, Contestant, PeerOutcome

ORDER: list[str] = []  # who ran, when everything runs in one process


class Plain(Contestant):
    """k-means in NumPy. `wrong` labels are false; it stops after `stops` iterations; `shift` moves its centers; it
    says that nothing changes after `settled` iterations."""

    def __init__(
        self, name: str = "plain", wrong: int = 0, stops: int = 10**9, shift: float = 0.0, settled: int = 10**9
    ) -> None:
        self.name, self.wrong, self.stops, self.shift, self.settled = name, wrong, stops, shift, settled

    def hold(self, inputs: Arrays) -> Any:
        return inputs

    def run(self, held: Any, iterations: int) -> Any:
        ORDER.append(self.name)
        x, c = held["x"], held["c"].copy()
        for _ in range(min(iterations, self.stops)):
            labels = nearest(x, c)[0]
            for j in np.unique(labels):
                c[j] = x[labels == j].mean(0)
        c += np.asarray(self.shift, dtype=c.dtype)
        labels = nearest(x, c)[0]
        labels[: self.wrong] = (labels[: self.wrong] + 1) % len(c)
        return c, labels

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        return PeerOutcome(
            min(iterations, self.stops), {"centers": answer[0], "labels": answer[1]}, {"labels": "final"}
        )

    def settles(self, held: Any, limit: int) -> int:
        return min(limit, self.settled)


class Failing(Plain):
    """Cannot run."""

    def run(self, held: Any, iterations: int) -> Any:
        raise ValueError("no room left\nand more")


class Dying(Plain):
    """Takes its process with it."""

    def run(self, held: Any, iterations: int) -> Any:
        print("I was never well", flush=True)
        os._exit(7)


class Large(Plain):
    """Takes 64 MiB for a while."""

    def run(self, held: Any, iterations: int) -> Any:
        np.ones(2**23).sum()
        return super().run(held, iterations)


HERE = str(Path(__file__).parent)
