"""A workload -> its data: the same for every implementation, a function of the workload and the seed alone.

gauss is N(0, I), without clusters. blobs are k Gaussians of standard deviation 1 with means uniform in [-5, 5]^d.
The start is k points of the data, drawn without repetition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.tools.bench.workloads import Workload

Arrays = dict[str, NDArray[Any]]
REGULARISATION = 0.05  # of the transport workloads; exp(-C / it) stays far from underflow in the unit square
SHARPNESS = 0.1  # of soft k-means on blobs: shares that are neither choices nor all alike
STEP = REGULARISATION  # of gradient steps on the dual; the larger default of the spec overshoots from 0 until all is 0


def arrays(workload: Workload, seed: int = 0) -> Arrays:
    """The inputs of a workload by name."""
    chance = np.random.default_rng(seed)
    dtype = np.dtype(workload.dtype)
    if workload.kind == "transport":
        return {name: chance.random((workload.n, workload.d)).astype(dtype) for name in ("x", "y")}
    problems = [_clustering(workload, chance) for _ in range(workload.problems)]
    if workload.kind == "batch":
        return {"x": np.stack([x for x, _ in problems]).astype(dtype), "c": np.stack([c for _, c in problems])}
    x, c = problems[0]
    return {"x": x, "c": c}


def _clustering(workload: Workload, chance: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    x = chance.standard_normal((workload.n, workload.d), dtype=np.float32).astype(workload.dtype)
    if workload.data == "blobs":
        means = chance.uniform(-5, 5, (workload.k, workload.d)).astype(workload.dtype)
        x += means[chance.integers(0, workload.k, workload.n)]
    if workload.dtype == "float64":
        x += chance.standard_normal(x.shape) * 2.0**-30  # numbers that float32 could not hold
    return x, x[chance.choice(workload.n, workload.k, replace=False)].copy()


def beginning(inputs: Arrays, workload: Workload, tiny: bool) -> Arrays:
    """A small part of the data, for a first run that starts threads and loads libraries; tiny for who is slow."""
    if workload.kind == "batch":
        return {name: array[:2] for name, array in inputs.items()}
    if workload.kind == "transport":
        return {name: array[: 100 if tiny else 600] for name, array in inputs.items()}
    many = 2 * workload.k if tiny else max(2 * workload.k, 2**18 // workload.k + 1)  # what large backends start at
    return {"x": inputs["x"][:many], "c": inputs["c"]}
