"""Every implementation that can take part, by name: what it is, what it needs, and the class that runs it.

Nothing here imports the libraries themselves; each is imported in the process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from weftc.tools.bench.peers.contestant import Contestant


@dataclass(frozen=True, slots=True)
class Peer:
    """An implementation: the class that runs it, as module:class, its options and the package it needs."""

    title: str
    home: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = "torch"  # module
    package: str = "torch"  # what to install, which also has the version
    policy: str = ""  # what happens to an empty cluster

    @property
    def is_installed(self) -> bool:
        """Whether the module it needs can be found."""
        return find_spec(self.needs) is not None

    def make(self) -> Contestant:
        """The contestant itself; imports what it needs."""
        module, _, name = self.home.partition(":")
        made: Contestant = getattr(import_module(module), name)(**self.options)
        return made


KEEPS = "an empty cluster keeps its center"
MOVES = "an empty cluster moves to the point farthest from its center"
SPLITS = "an empty cluster takes half of a large one"


def _ours(title: str, **options: Any) -> Peer:
    return Peer(title, "weftc.tools.bench.peers.ours:ClusteringPeer", options, policy=KEEPS)


def _in_float32(how: str, **options: Any) -> Peer:
    return Peer(f"weftc, float32 at once, {how}", "weftc.tools.bench.peers.ours:InFloat32", options, policy=KEEPS)


def _batch(how: str, **options: Any) -> Peer:
    policy = "" if "spec" in options else KEEPS
    return Peer(f"weftc, {how}", "weftc.tools.bench.peers.ours:BatchPeer", options, policy=policy)


def _sklearn(algorithm: str) -> Peer:
    title = f"scikit-learn {algorithm}"
    return Peer(
        title,
        "weftc.tools.bench.peers.clustering:ScikitLearn",
        {"algorithm": algorithm},
        "sklearn",
        "scikit-learn",
        MOVES,
    )


def _library(title: str, home: str, **options: Any) -> Peer:
    return Peer(title, f"weftc.tools.bench.peers.libraries:{home}", options, "sklearn", "scikit-learn")


def _pot(method: str, arrays: str) -> Peer:
    title = f"POT {'Knopp' if method == 'sinkhorn' else 'log'}, {arrays}"
    return Peer(title, "weftc.tools.bench.peers.transport:Pot", {"method": method, "arrays": arrays}, "ot", "POT")


PEERS: dict[str, Peer] = {
    "weftc": _ours("weftc"),
    "weftc-layer": _ours("weftc, one layer", again=False),
    "weftc-torch": Peer("weftc, torch alone", "weftc.tools.bench.peers.ours:TorchAlone", policy=KEEPS),
    "trusted": _in_float32("trusted", trusted=True),
    "certified": _in_float32("certified", trusted=False),
    "weftc-papers": _ours("weftc, the papers' wiring", styles={"erase": "attention"}),
    "weftc-literal": _ours(
        "weftc, the papers' wiring, literally", backend="reference", styles={"erase": "attention"}, again=False
    ),
    "weftc-reference": _ours("weftc, reference backend", backend="reference", again=False),
    "weftc-dual": Peer("weftc", "weftc.tools.bench.peers.ours:Transport", {"spec": "sinkhorn_dual"}),
    "weftc-sweeps": Peer("weftc", "weftc.tools.bench.peers.ours:Transport", {"spec": "sinkhorn_log"}),
    "weftc-batch": _batch("a batch in one call", form="batch"),
    "weftc-ragged": _batch("a ragged batch in one call", form="ragged"),
    "weftc-one-large": _batch("one large problem", form="large"),
    "weftc-soft-batch": _batch("a batch in one call", form="batch", spec="soft_kmeans"),
    "weftc-soft-ragged": _batch("a ragged batch in one call", form="ragged", spec="soft_kmeans"),
    "weftc-soft-one-large": _batch("one large problem", form="large", spec="soft_kmeans"),
    "sklearn-lloyd": _sklearn("lloyd"),
    "sklearn-elkan": _sklearn("elkan"),
    "sklearn-one-by-one": Peer(
        "scikit-learn lloyd, one by one",
        "weftc.tools.bench.peers.clustering:OneByOne",
        {},
        "sklearn",
        "scikit-learn",
        MOVES,
    ),
    "faiss": Peer("faiss", "weftc.tools.bench.peers.clustering:Faiss", {}, "faiss", "faiss-cpu", SPLITS),
    "weftc-spec": Peer("weftc", "weftc.tools.bench.peers.ours:SpecPeer"),
    "weftc-spec-torch": Peer("weftc, torch alone", "weftc.tools.bench.peers.ours:SpecPeer", {"alone": True}),
    "plain": Peer("plain torch", "weftc.tools.bench.peers.plain:PlainTorch"),
    "sklearn-mixture": _library("scikit-learn GaussianMixture", "Mixture"),
    "sklearn-shift": _library("scikit-learn MeanShift", "Shift"),
    "sklearn-neighbours": _library("scikit-learn NearestNeighbors", "Neighbours", library="sklearn"),
    "faiss-neighbours": Peer(
        "faiss IndexFlatL2", "weftc.tools.bench.peers.libraries:Neighbours", {"library": "faiss"}, "faiss", "faiss-cpu"
    ),
    "weftc-fit": _library("weftc, WeftClusterer", "Fit", ours=True),
    "sklearn-fit": _library("scikit-learn KMeans", "Fit", ours=False),
    "weftc-seeding": _library("weftc, spread", "Seeding", ours=True),
    "sklearn-seeding": _library("scikit-learn k-means++", "Seeding", ours=False),
    "gemm": Peer("pure GEMM (limit)", "weftc.tools.bench.peers.matmul:Gemm"),
    "pot-knopp-numpy": _pot("sinkhorn", "numpy"),
    "pot-knopp-torch": _pot("sinkhorn", "torch"),
    "pot-log-numpy": _pot("sinkhorn_log", "numpy"),
    "pot-log-torch": _pot("sinkhorn_log", "torch"),
}
