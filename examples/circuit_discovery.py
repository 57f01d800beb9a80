"""Two methods that look for circuits, scored where the circuit is known.

    python examples/circuit_discovery.py [models]

Models are drawn as `weftc benchmark make` draws them: shipped and random specs, varied in size, many in disguise.
*Activation patching* gives every edge, one after the other, what it carried in a run on other inputs, and sees how far
the outputs move. *Edge attribution* estimates the same for all edges at once, from one gradient: the slope of that
movement as edges begin to change. Printed: how well both tell the edges of the circuit from the others. Attribution
costs one run instead of one per edge, and sees nothing through a decision: an argmax has no slope.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from weftc.circuits.benchmark import BenchmarkItem, items
from weftc.circuits.routed import Change, RoutedModel, key_of

Effects = dict[str, float]


def problem(item: BenchmarkItem, number: int) -> dict[str, np.ndarray]:
    """One of the problems that come with a model."""
    return {name.split(".", 1)[1]: rows for name, rows in item.inputs.items() if name.startswith(f"{number}.")}


def noise(item: BenchmarkItem) -> dict[str, np.ndarray]:
    """Values for the random fields of a spec, if it has any."""
    program, rng = item.checkpoint.program, np.random.default_rng(0)
    rows = {one.stream: len(item.inputs[f"0.{one.name}"]) for one in program.inputs}
    found = {}
    for one in program.noises:
        stream = program.stream(one.stream)
        shape = (item.circuit.layers, stream.size or rows[one.stream], stream.slot(one.slot).width)
        found[one.name] = rng.uniform(0.1, 0.9, shape)
    return found


def patched(item: BenchmarkItem, clean: dict, other: dict) -> Effects:
    """How far the outputs move when an edge carries what it carried on other inputs, edge by edge."""
    model, edges = RoutedModel(item.circuit), item.circuit.candidates
    elsewhere = model.run(other, noise=noise(item), record=True).sent
    shares = torch.eye(len(edges), dtype=torch.float64)
    cut = {key_of(edge): Change(shares[at], elsewhere[key_of(edge)]) for at, edge in enumerate(edges)}
    before = model.run(clean, runs=len(edges), noise=noise(item)).outputs
    after = model.run(clean, cut, runs=len(edges), noise=noise(item)).outputs
    moved = sum((after[name] - before[name]).reshape(len(edges), -1).norm(dim=1) for name in before)
    return {edge.name: float(torch.nan_to_num(moved[at], torch.inf)) for at, edge in enumerate(edges)}


def attributed(item: BenchmarkItem, clean: dict, other: dict) -> Effects:
    """The slope of a random sum of the outputs in the share of every edge that comes from other inputs."""
    model, edges = RoutedModel(item.circuit), item.circuit.candidates
    elsewhere = model.run(other, noise=noise(item), record=True).sent
    shares = [torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in edges]
    cut = {key_of(e): Change(share, elsewhere[key_of(e)]) for e, share in zip(edges, shares, strict=True)}
    outputs = model.run(clean, cut, noise=noise(item)).outputs
    random = torch.Generator().manual_seed(0)
    total = sum((torch.randn(v.shape, generator=random, dtype=v.dtype) * v).sum() for v in outputs.values())
    if not total.requires_grad:
        return {edge.name: 0.0 for edge in edges}
    slopes = torch.autograd.grad(total, shares, allow_unused=True)
    return {e.name: 0.0 if s is None else float(torch.nan_to_num(s).abs()) for e, s in zip(edges, slopes, strict=True)}


METHODS = {"activation patching": patched, "edge attribution": attributed}


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    models = list(items(count, seed=7))
    edges = sum(len(item.circuit.edges) for item in models)
    candidates = sum(len(item.circuit.candidates) for item in models)
    print(
        f"{count} models, {sum(item.shipped for item in models)} of them shipped specs; {edges} of {candidates} edges"
    )
    print(f"{'':22}{'AUROC':>8}{'average precision':>20}{'best F1':>10}")
    good = True
    for name, method in METHODS.items():
        scores = [item.circuit.score(method(item, problem(item, 0), problem(item, 1))) for item in models]
        mean = {word: float(np.mean([one[word] for one in scores])) for word in scores[0]}
        print(f"{name:22}{mean['auroc']:8.3f}{mean['average_precision']:20.3f}{mean['f1']:10.3f}")
        good &= mean["auroc"] > 0.5
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
