"""The ten lines of torch that a user would write instead of a spec: one problem, no certificates.

In float32 they are peers; in float64 they are what answers of specs are held against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from weftc.tools.bench.peers.contestant import Arrays, Contestant, PeerOutcome
from weftc.tools.bench.workloads import Workload

Inputs = Mapping[str, Tensor]
Step = Callable[[Tensor, Tensor], Tensor]


def distances(x: Tensor, c: Tensor) -> Tensor:
    """Squared, by one product."""
    return torch.as_tensor((x * x).sum(1)[:, None] - 2 * x @ c.T + (c * c).sum(1))


def _means(x: Tensor, labels: Tensor, c: Tensor, weights: Tensor | None = None) -> Tensor:
    numbers = x if weights is None else x * weights[:, None]
    sums = torch.zeros_like(c).index_add_(0, labels, numbers)
    mass = torch.bincount(labels, weights, minlength=len(c))[:, None].to(x.dtype)
    return torch.where(mass > 0, sums / mass.clamp(min=torch.finfo(x.dtype).tiny), c)


def lloyd(x: Tensor, c: Tensor, weights: Tensor | None = None) -> Tensor:
    return _means(x, distances(x, c).argmin(1), c, weights)


def spherical(x: Tensor, c: Tensor) -> Tensor:
    return normalize(_means(x, (x @ c.T).argmax(1), c))


def soft(x: Tensor, c: Tensor) -> Tensor:
    shares = torch.softmax(-distances(x, c), 1)
    return (shares.T @ x) / shares.sum(0)[:, None]


def soft_spherical(x: Tensor, c: Tensor) -> Tensor:
    shares = torch.softmax(4 * x @ c.T, 1)
    return normalize((shares.T @ x) / shares.sum(0)[:, None])


def _by_member(mean: Callable[[Tensor, Tensor], Tensor], x: Tensor, c: Tensor) -> Tensor:
    """Cluster by cluster: `mean` gets the members and their squared distances."""
    apart = distances(x, c)
    labels, out = apart.argmin(1), c.clone()
    for j in range(len(c)):
        members = (labels == j).nonzero()[:, 0]
        if len(members):
            out[j] = mean(x[members], apart[members, j])
    return out


def _nearest(x: Tensor, apart: Tensor) -> Tensor:
    kept = 90 * (len(apart) - 1) // 100 + 1
    return x[apart.topk(kept, largest=False).indices].mean(0)


def _sparsemax(x: Tensor, apart: Tensor) -> Tensor:
    ordered = apart.neg().sort(descending=True).values
    sums, count = ordered.cumsum(0), torch.arange(1, len(apart) + 1, dtype=x.dtype)
    inside = (1 + count * ordered > sums).sum()
    return (-apart - (sums[inside - 1] - 1) / inside).clamp(min=0) @ x


def _softmax(x: Tensor, apart: Tensor) -> Tensor:
    return torch.softmax(-apart, 0) @ x


def _normmax(x: Tensor, apart: Tensor) -> Tensor:
    ordered, order = apart.neg().sort(descending=True)
    count = torch.arange(1, len(apart), dtype=x.dtype)
    enough = 0.1 * (ordered.cumsum(0)[:-1] - count * ordered[1:]) >= 1
    kept = int(enough.int().argmax()) + 1 if bool(enough.any()) else len(apart)
    return x[order[:kept]].mean(0)


def medoids(x: Tensor, c: Tensor) -> Tensor:
    apart = distances(x, c)
    own = one_hot(apart.argmin(1), len(c)).to(x.dtype)
    noise = -torch.log(-torch.log(torch.rand_like(apart)))
    return x[(-apart - 20 * (1 - own) + noise).argmax(0)]


def shift(x: Tensor, c: Tensor) -> Tensor:
    return torch.softmax(-distances(c, x) / 2, 1) @ x


def mixture(x: Tensor, c: Tensor, iterations: int, shared: bool) -> Tensor:
    """EM with one variance for all, or one for each."""
    share, variance = torch.full((len(c),), 1 / len(c), dtype=x.dtype), torch.ones(len(c), dtype=x.dtype)
    d = x.shape[1]
    for _ in range(iterations):
        logits = share.log() - distances(x, c) / (2 * variance) - (0 if shared else d / 2 * variance.log())
        shares = torch.softmax(logits, 1)
        mass = shares.sum(0)
        c = (shares.T @ x) / mass[:, None]
        apart = (shares * distances(x, c)).sum(0) / mass / d
        share = mass / len(x)
        variance = (share * apart).sum().expand(len(c)) if shared else apart + 1e-6
    return c


def neighbours(inputs: Inputs, many: int) -> Tensor:
    """The mean target of the nearest points."""
    nearest = distances(inputs["z"], inputs["x"]).topk(many, 1, largest=False).indices
    return inputs["t"][nearest].mean(1)


STEPS: dict[str, Step] = {
    "lloyd": lloyd,
    "lloyd_split": lloyd,
    "spherical_kmeans": spherical,
    "soft_kmeans": soft,
    "soft_spherical_kmeans": soft_spherical,
    "trimmed_kmeans": partial(_by_member, _nearest),
    "trimmed_normmax": partial(_by_member, _normmax),
    "robust_kmeans": partial(_by_member, _sparsemax),
    "robust_softmax": partial(_by_member, _softmax),
    "kmedoids": medoids,
    "mean_shift": shift,
}


def solve(spec: str, inputs: Inputs, iterations: int, stored: torch.dtype | None = None) -> Tensor:
    """Centers, or answers, after some iterations; `stored`: how centers are kept between these."""
    if spec in ("knn", "nearest_neighbor"):
        return neighbours(inputs, 3 if spec == "knn" else 1)
    x, c = inputs["x"], inputs["m" if spec == "mean_shift" else "c"]
    if spec.startswith("gmm_em"):
        return mixture(x, c, iterations, spec == "gmm_em")
    step = partial(lloyd, weights=inputs["w"]) if spec == "weighted_kmeans" else STEPS[spec]
    for _ in range(iterations):
        c = step(x, c)
        c = c if stored is None else c.to(stored).to(c.dtype)
    return c


class PlainTorch(Contestant):
    """Plain torch; the problems of a batch one after the other."""

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        torch.set_num_threads(threads)
        return super().prepare(workload, threads)

    def hold(self, inputs: Arrays) -> Any:
        return {name: torch.from_numpy(array) for name, array in inputs.items()}

    def run(self, held: Any, iterations: int) -> Any:
        spec = self.workload.spec
        if self.workload.problems == 1:
            return solve(spec, held, iterations)
        every = range(len(held["x"]))
        return torch.stack([solve(spec, {name: a[at] for name, a in held.items()}, iterations) for at in every])

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        return PeerOutcome(iterations, {"found": answer.numpy()})
