"""scikit-learn and faiss: k-means from given centers, the number of iterations given, no tolerance."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weftc.tools.bench.peers.contestant import Arrays, Contestant, PeerOutcome
from weftc.tools.bench.workloads import Workload

NO_LIMIT = 10**9  # points per center: faiss would otherwise train on a sample


class ScikitLearn(Contestant):
    """`KMeans`: stops when no label changes; gives the labels of the final centers."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        from sklearn.cluster import KMeans

        self._kmeans = KMeans
        return super().prepare(workload, threads)

    def hold(self, inputs: Arrays) -> Any:
        return inputs["x"], inputs["c"]

    def run(self, held: Any, iterations: int) -> Any:
        x, c = held
        fitting = self._kmeans(len(c), init=c, n_init=1, max_iter=iterations, tol=0, algorithm=self.algorithm)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged
            return fitting.fit(x)

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        arrays = {"centers": answer.cluster_centers_, "labels": answer.labels_}
        return PeerOutcome(int(answer.n_iter_), arrays, {"labels": "final"})


class OneByOne(ScikitLearn):
    """The problems of a batch, one after the other."""

    def __init__(self) -> None:
        super().__init__("lloyd")

    def run(self, held: Any, iterations: int) -> Any:
        return [super(OneByOne, self).run((x, c), iterations) for x, c in zip(*held, strict=True)]

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        arrays = {"centers": np.stack([one.cluster_centers_ for one in answer])}
        arrays["labels"] = np.concatenate([one.labels_ for one in answer])
        arrays["sizes"] = np.array([len(one.labels_) for one in answer])
        made = float(np.mean([one.n_iter_ for one in answer]))
        return PeerOutcome(max(1, round(made)), arrays, {"labels": "final", "iterations on average": made})


class Faiss(Contestant):
    """`faiss.Kmeans`, then a search for the labels of the final centers, which the others give too."""

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        import faiss

        faiss.omp_set_num_threads(threads)
        self._kmeans = faiss.Kmeans
        return super().prepare(workload, threads)

    def hold(self, inputs: Arrays) -> Any:
        return np.ascontiguousarray(inputs["x"]), np.ascontiguousarray(inputs["c"])

    def run(self, held: Any, iterations: int) -> Any:
        x, c = held
        fitting = self._kmeans(
            x.shape[1], len(c), niter=iterations, min_points_per_centroid=1, max_points_per_centroid=NO_LIMIT
        )
        fitting.train(x, init_centroids=c)
        return fitting.centroids, fitting.index.search(x, 1)[1]

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        centers, found = answer
        return PeerOutcome(iterations, {"centers": centers, "labels": found[:, 0]}, {"labels": "final"})
