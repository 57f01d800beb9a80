"""Every implementation that can take part, by name: what it is, what it needs, and the class that runs it.

Nothing here imports the libraries themselves; each is imported in the process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from weft.bench.peers.contestant import Contestant


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
    return Peer(title, "weft.bench.peers.ours:Clustering", options, policy=KEEPS)


def _in_float32(how: str, **options: Any) -> Peer:
    return Peer(f"weft, float32 at once, {how}", "weft.bench.peers.ours:InFloat32", options, policy=KEEPS)


def _batch(how: str, **options: Any) -> Peer:
    policy = "" if "spec" in options else KEEPS
    return Peer(f"weft, {how}", "weft.bench.peers.ours:Batch", options, policy=policy)


def _sklearn(algorithm: str) -> Peer:
    title = f"scikit-learn {algorithm}"
    return Peer(
        title, "weft.bench.peers.clustering:ScikitLearn", {"algorithm": algorithm}, "sklearn", "scikit-learn", MOVES
    )


def _pot(method: str, arrays: str) -> Peer:
    title = f"POT {'Knopp' if method == 'sinkhorn' else 'log'}, {arrays}"
    return Peer(title, "weft.bench.peers.transport:Pot", {"method": method, "arrays": arrays}, "ot", "POT")


PEERS: dict[str, Peer] = {
    "weft": _ours("weft"),
    "weft-layer": _ours("weft, one layer", again=False),
    "weft-torch": Peer("weft, torch alone", "weft.bench.peers.ours:TorchAlone", policy=KEEPS),
    "trusted": _in_float32("trusted", trusted=True),
    "certified": _in_float32("certified", trusted=False),
    "weft-papers": _ours("weft, the papers' wiring", styles={"erase": "attention"}),
    "weft-literal": _ours(
        "weft, the papers' wiring, literally", backend="reference", styles={"erase": "attention"}, again=False
    ),
    "weft-reference": _ours("weft, reference backend", backend="reference", again=False),
    "weft-dual": Peer("weft", "weft.bench.peers.ours:Transport", {"spec": "sinkhorn_dual"}),
    "weft-sweeps": Peer("weft", "weft.bench.peers.ours:Transport", {"spec": "sinkhorn_log"}),
    "weft-batch": _batch("a batch in one call", form="batch"),
    "weft-ragged": _batch("a ragged batch in one call", form="ragged"),
    "weft-one-large": _batch("one large problem", form="large"),
    "weft-soft-batch": _batch("a batch in one call", form="batch", spec="soft_kmeans"),
    "weft-soft-ragged": _batch("a ragged batch in one call", form="ragged", spec="soft_kmeans"),
    "weft-soft-one-large": _batch("one large problem", form="large", spec="soft_kmeans"),
    "sklearn-lloyd": _sklearn("lloyd"),
    "sklearn-elkan": _sklearn("elkan"),
    "sklearn-one-by-one": Peer(
        "scikit-learn lloyd, one by one", "weft.bench.peers.clustering:OneByOne", {}, "sklearn", "scikit-learn", MOVES
    ),
    "faiss": Peer("faiss", "weft.bench.peers.clustering:Faiss", {}, "faiss", "faiss-cpu", SPLITS),
    "gemm": Peer("pure GEMM (limit)", "weft.bench.peers.matmul:Gemm"),
    "pot-knopp-numpy": _pot("sinkhorn", "numpy"),
    "pot-knopp-torch": _pot("sinkhorn", "torch"),
    "pot-log-numpy": _pot("sinkhorn_log", "numpy"),
    "pot-log-torch": _pot("sinkhorn_log", "torch"),
}
