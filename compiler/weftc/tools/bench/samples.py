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
    if workload.kind == "fit":
        return {"x": _table(workload.data)}
    if workload.kind == "spec":
        every = [_problem(workload, chance) for _ in range(workload.problems)]
        return every[0] if len(every) == 1 else {name: np.stack([one[name] for one in every]) for name in every[0]}
    problems = [_clustering(workload, chance) for _ in range(workload.problems)]
    if workload.kind == "batch":
        return {"x": np.stack([x for x, _ in problems]).astype(dtype), "c": np.stack([c for _, c in problems])}
    x, c = problems[0]
    return {"x": x} if workload.kind == "seeding" else {"x": x, "c": c}


def _table(name: str) -> NDArray[Any]:
    """A table that comes with scikit-learn."""
    from sklearn import datasets

    return np.ascontiguousarray(getattr(datasets, f"load_{name}")().data, dtype=np.float64)


def _problem(workload: Workload, chance: np.random.Generator) -> Arrays:
    """The inputs of a spec: Gaussians whose means are N(0, 9 I), started at k of the points."""
    spec, dtype = workload.spec, np.dtype(workload.dtype)
    d, many = workload.d, 20 if spec in ("knn", "nearest_neighbor") else workload.k
    means = 3 * chance.standard_normal((many, d))
    x = (means[chance.integers(many, size=workload.n)] + chance.standard_normal((workload.n, d))).astype(dtype)
    if spec in ("knn", "nearest_neighbor"):
        queries = means[chance.integers(many, size=workload.k)] + chance.standard_normal((workload.k, d))
        return {"x": x, "t": chance.standard_normal((workload.n, 4)).astype(dtype), "z": queries.astype(dtype)}
    if spec in ("spherical_kmeans", "soft_spherical_kmeans"):
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    start = x[chance.choice(workload.n, workload.k, replace=False)].copy()
    found: Arrays = {"x": x, "m" if spec == "mean_shift" else "c": start}
    if spec == "weighted_kmeans":
        found["w"] = chance.uniform(0.5, 2, workload.n).astype(dtype)
    return found


def _clustering(workload: Workload, chance: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    x = chance.standard_normal((workload.n, workload.d), dtype=np.float32).astype(workload.dtype)
    if workload.data == "blobs":
        means = chance.uniform(-5, 5, (workload.k, workload.d)).astype(workload.dtype)
        x += means[chance.integers(0, workload.k, workload.n)]
    if workload.dtype == "float64":
        x += chance.standard_normal(x.shape) * 2.0**-30  # numbers that float32 could not hold
    return x, x[chance.choice(workload.n, workload.k, replace=False)].copy()


def _first(inputs: Arrays, many: int) -> Arrays:
    """The first points, and what belongs to each of them."""
    return {name: array[:many] if name in ("x", "w", "t") else array for name, array in inputs.items()}


def beginning(inputs: Arrays, workload: Workload, tiny: bool) -> Arrays:
    """A small part of the data, for a first run that starts threads and loads libraries; tiny for who is slow."""
    if workload.problems > 1:
        return {name: array[:2] for name, array in inputs.items()}
    if workload.kind in ("spec", "fit", "seeding"):
        return inputs if workload.n <= 2000 else _first(inputs, max(2000, 2 * workload.k))
    if workload.kind == "transport":
        return {name: array[: 100 if tiny else 600] for name, array in inputs.items()}
    many = 2 * workload.k if tiny else max(2 * workload.k, 2**18 // workload.k + 1)  # what large backends start at
    return {"x": inputs["x"][:many], "c": inputs["c"]}
