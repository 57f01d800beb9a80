"""The limit: the matrix product of points and centers alone, in blocks, by the fastest way found on this machine.

No distances, no choice, no sums. One product per iteration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.tools.bench.peers.contestant import Arrays, Contestant, PeerOutcome
from weftc.tools.bench.workloads import Workload

BLOCKS = (1024, 4096, 16384)
TRIALS = 3
ROWS = 32768  # rows of the trial
Multiply = Callable[[], None]


class Gemm(Contestant):
    """Products by torch and by NumPy, which come with different libraries, and blocks of several sizes; threads share
    each product, or each thread has products of its own."""

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        import torch

        torch.set_num_threads(threads)
        self._way = ""
        return super().prepare(workload, threads)

    def hold(self, inputs: Arrays) -> Any:
        x, c = inputs["x"], inputs["c"]
        ways = {f"{name}, blocks of {block}": (make, block) for name, make in MAKERS.items() for block in BLOCKS}
        seconds = {name: _fastest(make(x[:ROWS], c, block, self.threads)) for name, (make, block) in ways.items()}
        self._way = min(seconds, key=lambda name: seconds[name])
        make, block = ways[self._way]
        return make(x, c, block, self.threads)

    def run(self, held: Any, iterations: int) -> Any:
        for _ in range(iterations):
            held()

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        return PeerOutcome(iterations, facts={"way": self._way})


def _fastest(multiply: Multiply) -> float:
    multiply()
    found = []
    for _ in range(TRIALS):
        begun = time.perf_counter()
        multiply()
        found.append(time.perf_counter() - begun)
    return min(found)


def _torch_product(x: NDArray[Any], c: NDArray[Any], block: int, threads: int) -> Multiply:
    import torch

    points, centers = torch.from_numpy(x), torch.from_numpy(c).T.contiguous()
    out = torch.ones(min(block, len(x)), len(c), dtype=points.dtype)

    def multiply() -> None:
        torch.set_num_threads(threads)
        for at in range(0, len(points), block):
            rows = points[at : at + block]
            torch.mm(rows, centers, out=out[: len(rows)])

    return multiply


def _torch_products(x: NDArray[Any], c: NDArray[Any], block: int, threads: int) -> Multiply:
    import torch

    points, centers = torch.from_numpy(x), torch.from_numpy(c).T.contiguous()
    pool = ThreadPoolExecutor(threads)
    share = -(-len(x) // threads)
    outs = [torch.ones(min(block, len(x)), len(c), dtype=points.dtype) for _ in range(threads)]

    def part(number: int) -> None:
        torch.set_num_threads(1)
        for at in range(number * share, min((number + 1) * share, len(points)), block):
            rows = points[at : min(at + block, (number + 1) * share)]
            torch.mm(rows, centers, out=outs[number][: len(rows)])

    def multiply() -> None:
        torch.set_num_threads(1)
        list(pool.map(part, range(threads)))

    return multiply


def _numpy_product(x: NDArray[Any], c: NDArray[Any], block: int, threads: int) -> Multiply:
    centers = np.ascontiguousarray(c.T)
    out = np.ones((min(block, len(x)), len(c)), dtype=x.dtype)

    def multiply() -> None:
        for at in range(0, len(x), block):
            rows = x[at : at + block]
            np.matmul(rows, centers, out=out[: len(rows)])

    return multiply


MAKERS: dict[str, Callable[[NDArray[Any], NDArray[Any], int, int], Multiply]] = {
    "torch": _torch_product,
    "torch, a product per thread": _torch_products,
    "numpy": _numpy_product,
}
