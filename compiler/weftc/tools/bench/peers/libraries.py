"""scikit-learn and faiss on the problems of other specs than k-means, and its estimators beside ours, whole fits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weftc.tools.bench.peers.contestant import Arrays, Contestant, PeerOutcome
from weftc.tools.bench.workloads import Workload

STARTS = 10  # of a whole fit


class Mixture(Contestant):
    """`GaussianMixture` from the same means, weights and variances; what it ends with, where it is the same model."""

    def run(self, held: Any, iterations: int) -> Any:
        from sklearn.mixture import GaussianMixture

        x, c = held["x"], held["c"]
        k, d = c.shape
        own = self.workload.spec == "gmm_em_spherical"
        kind, precisions = ("spherical", np.ones(k)) if own else ("tied", np.eye(d))
        given = {"means_init": c, "weights_init": np.full(k, 1 / k), "precisions_init": precisions.astype(x.dtype)}
        fitting = GaussianMixture(k, covariance_type=kind, max_iter=iterations, tol=0, reg_covar=1e-6, **given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged
            return fitting.fit(x)

    def hold(self, inputs: Arrays) -> Any:
        return inputs

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        same = self.workload.spec == "gmm_em_spherical"  # the other one has full matrices
        return PeerOutcome(int(answer.n_iter_), {"found": answer.means_} if same else {})


class Shift(Contestant):
    """`MeanShift` from the same queries: a flat kernel, so only the time of its iterations is compared."""

    def hold(self, inputs: Arrays) -> Any:
        return inputs

    def run(self, held: Any, iterations: int) -> Any:
        from sklearn.cluster import MeanShift

        return MeanShift(bandwidth=1.0, seeds=held["m"], max_iter=iterations).fit(held["x"])

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        return PeerOutcome(max(1, int(answer.n_iter_)))


class Neighbours(Contestant):
    """`NearestNeighbors`, by brute force, or an index of faiss; then the mean of the targets."""

    def __init__(self, library: str) -> None:
        self.library = library

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        if self.library == "faiss":
            import faiss

            faiss.omp_set_num_threads(threads)
        return super().prepare(workload, threads)

    def hold(self, inputs: Arrays) -> Any:
        return inputs

    def run(self, held: Any, iterations: int) -> Any:
        many = 3 if self.workload.spec == "knn" else 1
        if self.library == "faiss":
            import faiss

            index = faiss.IndexFlatL2(held["x"].shape[1])
            index.add(held["x"])
            found = index.search(held["z"], many)[1]
        else:
            from sklearn.neighbors import NearestNeighbors

            search = NearestNeighbors(n_neighbors=many, algorithm="brute").fit(held["x"])
            found = search.kneighbors(held["z"], return_distance=False)
        return held["t"][found].mean(1)

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        return PeerOutcome(iterations, {"found": answer})


class Fit(Contestant):
    """A whole fit of an estimator with starts of its own: `WeftClusterer` or `KMeans`."""

    def __init__(self, ours: bool) -> None:
        self.ours = ours

    def hold(self, inputs: Arrays) -> Any:
        return inputs["x"]

    def run(self, held: Any, iterations: int) -> Any:
        from sklearn.cluster import KMeans

        from weftc.sklearn import WeftClusterer

        settings: dict[str, Any] = {"n_clusters": self.workload.k, "n_init": STARTS, "random_state": 0, "max_iter": 300}
        return (WeftClusterer("lloyd", **settings) if self.ours else KMeans(**settings)).fit(held)

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        return PeerOutcome(1, {"centers": answer.cluster_centers_, "labels": answer.labels_})


class Seeding(Contestant):
    """The rows that k-means starts from: `init spread` or k-means++."""

    def __init__(self, ours: bool) -> None:
        self.ours = ours

    def hold(self, inputs: Arrays) -> Any:
        return inputs["x"]

    def run(self, held: Any, iterations: int) -> Any:
        from sklearn.cluster import kmeans_plusplus

        from weftc_runtime.data.initial import start

        if self.ours:
            return start("spread", held, self.workload.k, "c", "x", 0)
        return kmeans_plusplus(held, self.workload.k, random_state=0)[0]

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        return PeerOutcome(1, {"found": answer})
