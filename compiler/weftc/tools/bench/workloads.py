"""What `weftc bench` measures: named workloads, each with the implementations that take part, ours first.

The sizes are those of the targets (`targets.py`); `quick` has small ones for a look in between. `scaled` makes the
sizes of a run. Every implementation gets the same numbers, start, element type and number of iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["means", "transport", "batch", "spec", "fit", "seeding"]
SMALLEST = 8  # points per center below which a scaled workload means nothing
CLUSTERING = ("weftc", "sklearn-lloyd", "sklearn-elkan", "faiss", "gemm")
WITHOUT_ELKAN = ("weftc", "sklearn-lloyd", "faiss", "gemm")  # its bounds take 4 k bytes per point


@dataclass(frozen=True, slots=True)
class Workload:
    """One problem and who solves it. `entries[0]` is ours; ratios are times of the others over its time.

    `few`: an entry that runs fewer iterations because it is slow; its time is scaled per iteration, and that is said.
    """

    name: str
    kind: Kind
    n: int  # points; of a batch: points per problem
    d: int
    k: int
    iterations: int
    entries: tuple[str, ...]
    quick: tuple[int, int]  # n (of a batch: problems) and iterations of a quick run
    data: Literal["gauss", "blobs", "uniform", "iris", "digits"] = "gauss"
    dtype: Literal["float32", "float64"] = "float32"
    problems: int = 1
    few: tuple[tuple[str, int], ...] = ()
    note: str = ""
    spec: str = ""  # of kind "spec": which one

    def iterations_of(self, entry: str, iterations: int) -> int:
        """How many iterations an entry runs when the others run `iterations`."""
        return min(dict(self.few).get(entry, iterations), iterations)

    @property
    def sizes(self) -> str:
        """The sizes in words."""
        many = f"{self.problems} x {self.n}" if self.problems > 1 else str(self.n)
        clusters = f", k {self.k}" if self.k else ""
        spec = f"{self.spec}, " if self.spec else ""
        return f"{spec}n {many}, d {self.d}{clusters}, T {self.iterations}, {self.data}, {self.dtype}"


def _means(
    name: str, n: int, d: int, k: int, iterations: int, quick: tuple[int, int], blobs: bool = False, **more: str
) -> Workload:
    entries = WITHOUT_ELKAN if k >= 1000 else CLUSTERING
    note = "scikit-learn elkan is left out: its bounds take 4 k bytes per point" if k >= 1000 else ""
    data: Literal["gauss", "blobs"] = "blobs" if blobs else "gauss"
    return Workload(name, "means", n, d, k, iterations, entries, quick, data, note=note)


ONE_LAYER = ("weftc-layer", "gemm")
TORCH = ("weftc-torch", "sklearn-lloyd")
CERTIFICATE = ("weftc-layer", "trusted", "certified")
UNCERTIFIED = "trusted: for this measure alone, answers of float32 as they come, without second best and float64"
POT_FLOAT32 = ("pot-knopp-numpy", "pot-knopp-torch", "pot-log-numpy", "pot-log-torch")


def _dual(n: int, iterations: int, quick: tuple[int, int], dtype: Literal["float32", "float64"]) -> Workload:
    name = f"dual-{n}" + ("-f64" if dtype == "float64" else "")
    few = (("pot-log-numpy", 5),)
    entries = ("weftc-dual", *POT_FLOAT32)
    return Workload(name, "transport", n, 2, 0, iterations, entries, quick, "uniform", dtype, few=few)


def _sweeps(n: int, iterations: int) -> Workload:
    note = "the same sweeps as POT's, in the log domain"
    few, entries = (("pot-log-numpy", 5),), ("weftc-sweeps", *POT_FLOAT32)
    quick = (min(n, 500), 10)
    return Workload(f"sweeps-{n}", "transport", n, 2, 0, iterations, entries, quick, "uniform", few=few, note=note)


WORKLOADS: tuple[Workload, ...] = (
    _means("lloyd-16-64-small", 100_000, 16, 64, 20, (20_000, 10)),
    _means("lloyd-16-64", 1_000_000, 16, 64, 10, (100_000, 5)),
    _means("lloyd-2-10", 1_000_000, 2, 10, 20, (100_000, 10)),
    _means("lloyd-128-256", 200_000, 128, 256, 10, (20_000, 3)),
    _means("lloyd-32-1000", 1_000_000, 32, 1000, 3, (20_000, 2)),
    _means("clustered-16-64", 500_000, 16, 64, 100, (50_000, 30), blobs=True),
    _means("clustered-128-256", 200_000, 128, 256, 30, (20_000, 10), blobs=True),
    _means("clustered-32-1000", 200_000, 32, 1000, 30, (20_000, 5), blobs=True),
    Workload("iteration-128-256", "means", 200_000, 128, 256, 1, ONE_LAYER, (20_000, 1)),
    Workload("iteration-32-1000", "means", 200_000, 32, 1000, 1, ONE_LAYER, (20_000, 1)),
    Workload("torch-16-64-small", "means", 100_000, 16, 64, 20, TORCH, (20_000, 10)),
    Workload("torch-16-64", "means", 1_000_000, 16, 64, 10, TORCH, (100_000, 5)),
    Workload("torch-128-256", "means", 200_000, 128, 256, 10, TORCH, (20_000, 3)),
    Workload("torch-32-1000", "means", 1_000_000, 32, 1000, 3, TORCH, (20_000, 2)),
    Workload("certificate-128-256", "means", 200_000, 128, 256, 1, CERTIFICATE, (20_000, 1), note=UNCERTIFIED),
    Workload("certificate-32-1000", "means", 200_000, 32, 1000, 1, CERTIFICATE, (20_000, 1), note=UNCERTIFIED),
    Workload(
        "lloyd-16-64-f64",
        "means",
        500_000,
        16,
        64,
        10,
        ("weftc", "sklearn-lloyd", "gemm"),
        (50_000, 5),
        dtype="float64",
        note="faiss is left out: it has no float64",
    ),
    Workload(
        "literal",
        "means",
        10_000,
        16,
        25,
        10,
        ("weftc-papers", "weftc", "weftc-literal", "weftc-reference", "sklearn-lloyd"),
        (1500, 10),
        few=(("weftc-literal", 1), ("weftc-reference", 1)),
        note="weftc-papers runs the file that weftc-literal runs: --erase attention, the papers' wiring",
    ),
    _dual(100, 200, (100, 20), "float32"),
    _dual(500, 100, (500, 20), "float32"),
    _dual(2000, 50, (1000, 10), "float32"),
    _dual(5000, 20, (1500, 10), "float32"),
    _dual(2000, 50, (1000, 10), "float64"),
    *(_sweeps(n, iterations) for n, iterations in ((100, 200), (500, 100), (2000, 50), (5000, 20))),
    Workload(
        "batch",
        "batch",
        200,
        8,
        10,
        10,
        ("weftc-batch", "weftc-ragged", "weftc-one-large", "sklearn-one-by-one"),
        (20, 5),
        "blobs",
        problems=1000,
        note="1,000 problems in one call beside one problem of as many points",
    ),
    Workload(
        "batch-soft",
        "batch",
        200,
        8,
        10,
        10,
        ("weftc-soft-batch", "weftc-soft-ragged", "weftc-soft-one-large"),
        (20, 5),
        "blobs",
        problems=1000,
        note="soft k-means: 1,000 problems in one call beside one problem of as many points",
    ),
)
NAMES = tuple(workload.name for workload in WORKLOADS)


def find(name: str) -> Workload:
    """The workload of a name, of those that stand alone."""
    return next(workload for workload in WORKLOADS if workload.name == name)


def scaled(workload: Workload, scale: float, quick: bool) -> Workload:
    """The workload at the sizes of a run: those of the targets, or quick ones, times a factor."""
    n, problems, iterations = workload.n, workload.problems, workload.iterations
    if workload.kind == "fit":
        return workload
    if workload.problems > 1:
        problems, iterations = (workload.quick[0], workload.quick[1]) if quick else (problems, iterations)
        return replace(workload, problems=max(2, round(problems * scale)), iterations=iterations)
    n, iterations = workload.quick if quick else (n, iterations)
    # arrays of pairs grow with the square of n
    factor = scale**0.5 if workload.kind == "transport" else scale
    least = 32 if workload.kind == "transport" else SMALLEST * workload.k
    return replace(workload, n=max(least, round(n * factor)), iterations=iterations)
