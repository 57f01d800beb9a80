"""POT: entropy-regularised transport from a cost matrix, by scaling (Knopp) or in the log domain."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weftc.tools.bench.peers.contestant import Arrays, Contestant, PeerOutcome
from weftc.tools.bench.samples import REGULARISATION
from weftc.tools.bench.workloads import Workload


class Pot(Contestant):
    """`ot.sinkhorn`. The cost matrix is made before the clock runs, and counted as input."""

    def __init__(self, method: str, arrays: str) -> None:
        self.method, self.arrays = method, arrays

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        import ot

        if self.arrays == "torch":
            import torch

            torch.set_num_threads(threads)
        self._solve = ot.sinkhorn
        return super().prepare(workload, threads)

    def hold(self, inputs: Arrays) -> Any:
        x, y = inputs["x"].astype(np.float64), inputs["y"].astype(np.float64)
        costs = ((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T).astype(self.workload.dtype)
        mass = np.full(len(x), 1 / len(x), dtype=self.workload.dtype)
        if self.arrays == "numpy":
            return mass, mass, costs
        import torch

        return torch.from_numpy(mass), torch.from_numpy(mass), torch.from_numpy(costs)

    def run(self, held: Any, iterations: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged
            return self._solve(
                *held, REGULARISATION, method=self.method, numItermax=iterations, stopThr=0, log=True, warn=False
            )[1]

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        if self.method == "sinkhorn":
            logs = [np.log(np.asarray(answer[name], dtype=np.float64)) for name in ("u", "v")]
        else:
            logs = [np.asarray(answer[f"log_{name}"], dtype=np.float64) for name in ("u", "v")]
        f, g = (REGULARISATION * one for one in logs)
        return PeerOutcome(int(answer["niter"]) + 1, {"f": f, "g": g})
