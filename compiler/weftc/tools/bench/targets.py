"""The ratios the runtime is held against, as data: on two cores, ours certified exact with order-free sums.

    at least   time of the fastest of `against` over ours is `must` or more, and should be `aim`
    within     ours over the time of `against` (a limit) is `must` or less
    milliseconds   of a whole run: `must` or less
    memory     bytes beyond the input, less `MEMORY_PER_THREAD` per thread, per point: `must` or less

A target over several workloads is judged by the worst of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weftc.tools.bench.specs import GROUPS, LARGE, SMALL

Sense = Literal["at least", "within", "memory", "milliseconds"]
MEMORY_PER_THREAD = 2 * 2**20  # bytes


@dataclass(frozen=True, slots=True)
class SpeedTarget:
    """One promise: of which workloads, against whom, and how much."""

    what: str
    workloads: tuple[str, ...]
    against: tuple[str, ...]
    must: float
    aim: float | None = None
    sense: Sense = "at least"


LLOYD, FAISS = ("sklearn-lloyd",), ("faiss",)
ANY_PEER = ("sklearn-lloyd", "sklearn-elkan", "faiss")
SMALL_AND_LARGE = ("lloyd-16-64-small", "lloyd-16-64")
CLUSTERED = ("clustered-16-64", "clustered-128-256", "clustered-32-1000")
TORCH = ("torch-16-64-small", "torch-16-64", "torch-128-256", "torch-32-1000")
DUAL = ("dual-500", "dual-2000", "dual-5000")

ALL_DUAL, SWEEPS = ("dual-100", *DUAL), ("sweeps-100", "sweeps-500", "sweeps-2000", "sweeps-5000")
POT = ("pot-knopp-numpy", "pot-knopp-torch", "pot-log-numpy", "pot-log-torch")
PLAIN, NEIGHBOURS = ("plain",), ("knn-2000", "nearest_neighbor-2000")


def _group(name: str) -> tuple[str, ...]:
    return tuple(work.name for work in GROUPS[name])


def _at(n: int) -> tuple[str, ...]:
    return tuple(work.name for work in GROUPS["specs"] if work.n == n)


TARGETS: tuple[SpeedTarget, ...] = (
    SpeedTarget("1e5..1e6, 16, 64", SMALL_AND_LARGE, LLOYD, 2.8, 4),
    SpeedTarget("1e5..1e6, 16, 64", SMALL_AND_LARGE, FAISS, 2.2, 3),
    SpeedTarget("1e6, 2, 10", ("lloyd-2-10",), LLOYD, 2.3, 4),
    SpeedTarget("2e5, 128, 256", ("lloyd-128-256",), LLOYD, 1.4, 2.2),
    SpeedTarget("1e6, 32, 1000", ("lloyd-32-1000",), LLOYD, 4, 6),
    SpeedTarget("1e6, 32, 1000", ("lloyd-32-1000",), FAISS, 1.4, 2),
    SpeedTarget("clustered, T = 100: 5e5, 16, 64", ("clustered-16-64",), LLOYD, 8, 15),
    SpeedTarget("clustered, T = 100: 5e5, 16, 64", ("clustered-16-64",), ANY_PEER, 3, 6),
    SpeedTarget("clustered, T = 30: 2e5, 128, 256", ("clustered-128-256",), LLOYD, 2.3, 6),
    SpeedTarget("clustered, T = 30: 2e5, 32, 1000", ("clustered-32-1000",), LLOYD, 5, 12),
    SpeedTarget("without a compiler, torch alone", TORCH, LLOYD, 1),
    SpeedTarget(
        "one iteration, d*k >= 8,000", ("iteration-128-256", "iteration-32-1000"), ("gemm",), 1.5, 1.2, "within"
    ),
    SpeedTarget(
        "certificate, d*k >= 8,000", ("certificate-128-256", "certificate-32-1000"), ("trusted",), 1.15, None, "within"
    ),
    SpeedTarget("literal layer, n = 1e4", ("literal",), ("weftc-literal",), 1000),
    SpeedTarget("dual layer, n = 500..5000", DUAL, ("pot-knopp-numpy", "pot-knopp-torch"), 1.2, 2),
    SpeedTarget("dual layer, n = 500..5000", DUAL, ("pot-log-torch",), 5, 10),
    SpeedTarget(
        "memory beyond the input, bytes per point",
        (*SMALL_AND_LARGE, "lloyd-2-10", "lloyd-128-256", "lloyd-32-1000", *CLUSTERED),
        (),
        24,
        sense="memory",
    ),
    *(SpeedTarget(f"clustering specs, n = {n:,}", _at(n), PLAIN, 1, 3) for n in SMALL),
    *(SpeedTarget(f"clustering specs, n = {n:,}", _at(n), PLAIN, 1.5, 4) for n in LARGE),
    SpeedTarget("1e6, 16, 64: hard specs", _group("specs-large"), PLAIN, 1.5, 4),
    SpeedTarget("1e6, 16, 64: memory, bytes per point", _group("specs-large"), (), 64, sense="memory"),
    SpeedTarget("1,000 problems of 200 points", _group("specs-batch"), PLAIN, 10, 50),
    SpeedTarget("torch machine, n = 300, 20,000", _group("specs-torch"), PLAIN, 0.5, 1),
    SpeedTarget("mixtures", ("gmm_em-sklearn", "gmm_em_spherical-sklearn"), ("sklearn-mixture",), 1, 3),
    SpeedTarget("mean shift", ("mean_shift-sklearn",), ("sklearn-shift",), 1, 3),
    SpeedTarget("neighbours", NEIGHBOURS, ("sklearn-neighbours", "faiss-neighbours"), 1, 3),
    SpeedTarget("sinkhorn, n = 100..5000", (*ALL_DUAL, *SWEEPS), POT, 1.2, 3),
    SpeedTarget("WeftClusterer.fit, iris and digits", ("fit-iris", "fit-digits"), ("sklearn-fit",), 1, 2),
    SpeedTarget("seeding, 1e6 x 8, k = 64", ("seeding-8-64",), ("sklearn-seeding",), 1, 4),
    SpeedTarget("one call, 150 points, 10 layers, ms", ("call-150",), (), 1, 0.3, "milliseconds"),
)
