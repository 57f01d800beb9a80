"""Edges that a method has found, beside those of a circuit -> how well they agree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from weftc.circuits.circuit import Circuit, CircuitEdge
from weftc.core.errors import InputError


def score(circuit: Circuit, found: Any) -> dict[str, float]:
    """Precision, recall and F1 of a choice of edges; of a score for every edge, the areas under two curves.

    `found`: edges or their names, or a mapping from these to numbers, larger for edges that matter more; edges that
    are not in it have the least score. `auroc` is the area under the ROC curve, `average_precision` that under the
    curve of precision over recall, and `f1` that of the best threshold.
    """
    names = {edge.name for edge in circuit.candidates}
    inside = {edge.name for edge in circuit.edges}
    if isinstance(found, Mapping):
        scores = {_name(edge): float(value) for edge, value in found.items()}
        _known(scores, names)
        return agreement(
            np.array([name in inside for name in sorted(names)]),
            np.array([scores.get(name, -np.inf) for name in sorted(names)]),
        )
    chosen = {_name(edge) for edge in found}
    _known(chosen, names)
    right = len(chosen & inside)
    precision, recall = right / max(len(chosen), 1), right / max(len(inside), 1)
    return {"precision": precision, "recall": recall, "f1": 2 * right / max(len(chosen) + len(inside), 1)}


def agreement(inside: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> dict[str, float]:
    """How well scores tell true from false; equal scores are one threshold."""
    levels = np.unique(scores)[::-1]
    hits = np.array([(inside & (scores >= level)).sum() for level in levels], float)
    taken = np.array([(scores >= level).sum() for level in levels], float)
    positive, negative = max(int(inside.sum()), 1), max(int((~inside).sum()), 1)
    recall, precision = hits / positive, hits / taken
    false = (taken - hits) / negative
    area = np.trapezoid(np.concatenate([[0.0], recall]), np.concatenate([[0.0], false]))
    average = float((np.diff(np.concatenate([[0.0], recall])) * precision).sum())
    return {"auroc": float(area), "average_precision": average, "f1": float((2 * hits / (taken + positive)).max())}


def _name(edge: CircuitEdge | str) -> str:
    return edge if isinstance(edge, str) else edge.name


def _known(found: Iterable[str], names: Collection[str]) -> None:
    for name in found:
        if name not in names:
            raise InputError(f"this model has no edge {name!r}; `circuit.candidates` are all that it could have")
