"""The rows about every shipped spec: groups of workloads, each with a name of its own.

specs          every clustering spec at every size, beside the torch that a user would write instead
specs-large    1e6 points, d 16, k 64, with memory
specs-batch    1,000 problems of 200 points in one call, beside a loop of plain torch
specs-torch    the machine in torch operations, as without a C++ compiler
libraries      mixtures, mean shift, neighbours beside scikit-learn and faiss
estimators     whole fits, starts, one small call
"""

from __future__ import annotations

from weftc.tools.bench.workloads import WORKLOADS, Workload

SIZES = (300, 2000, 20_000, 200_000, 1_000_000)
SMALL, LARGE = SIZES[:2], SIZES[2:]
CLUSTERING_SPECS = (
    "lloyd",
    "lloyd_split",
    "weighted_kmeans",
    "spherical_kmeans",
    "soft_kmeans",
    "soft_spherical_kmeans",
    "trimmed_kmeans",
    "trimmed_normmax",
    "robust_kmeans",
    "robust_softmax",
    "kmedoids",
    "gmm_em",
    "gmm_em_spherical",
    "mean_shift",
)
HARD = ("kmedoids", "trimmed_kmeans", "robust_kmeans", "robust_softmax", "spherical_kmeans")


def _spec(
    name: str, spec: str, n: int, entries: tuple[str, ...], d: int = 8, k: int = 20, problems: int = 1
) -> Workload:
    iterations = 1 if spec in ("knn", "nearest_neighbor") else 10
    quick = (20, 3) if problems > 1 else (min(n, 2000), min(iterations, 3))
    return Workload(name, "spec", n, d, k, iterations, entries, quick, "blobs", problems=problems, spec=spec)


OURS = ("weftc-spec", "plain")
_MIXTURES, _SHIFT = ("weftc-spec", "plain", "sklearn-mixture"), ("weftc-spec", "plain", "sklearn-shift")
_NEIGHBOURS = ("weftc-spec", "plain", "sklearn-neighbours", "faiss-neighbours")
_FIT = ("weftc-fit", "sklearn-fit")

GROUPS: dict[str, tuple[Workload, ...]] = {
    "specs": tuple(_spec(f"{spec}-{n}", spec, n, OURS) for spec in CLUSTERING_SPECS for n in SIZES),
    "specs-large": tuple(_spec(f"{spec}-16-64", spec, 1_000_000, OURS, 16, 64) for spec in HARD),
    "specs-batch": tuple(_spec(f"{spec}-batch", spec, 200, OURS, 8, 10, 1000) for spec in CLUSTERING_SPECS),
    "specs-torch": tuple(
        _spec(f"{spec}-torch-{n}", spec, n, ("weftc-spec-torch", "plain"))
        for spec in CLUSTERING_SPECS
        for n in (300, 20_000)
    ),
    "libraries": (
        _spec("gmm_em-sklearn", "gmm_em", 20_000, _MIXTURES),
        _spec("gmm_em_spherical-sklearn", "gmm_em_spherical", 20_000, _MIXTURES),
        _spec("mean_shift-sklearn", "mean_shift", 2000, _SHIFT),
        _spec("knn-2000", "knn", 20_000, _NEIGHBOURS, 16, 2000),
        _spec("nearest_neighbor-2000", "nearest_neighbor", 20_000, _NEIGHBOURS, 16, 2000),
    ),
    "estimators": (
        Workload("fit-iris", "fit", 150, 4, 3, 1, _FIT, (150, 1), "iris", "float64"),
        Workload("fit-digits", "fit", 1797, 64, 10, 1, _FIT, (1797, 1), "digits", "float64"),
        Workload("seeding-8-64", "seeding", 1_000_000, 8, 64, 1, ("weftc-seeding", "sklearn-seeding"), (20_000, 1)),
        _spec("call-150", "lloyd", 150, OURS, 4, 3),
    ),
}
NAMED = {work.name: work for work in (*WORKLOADS, *(work for group in GROUPS.values() for work in group))}


def named(name: str) -> tuple[Workload, ...]:
    """The workload of a name, or those of a group."""
    return GROUPS[name] if name in GROUPS else (NAMED[name],)
