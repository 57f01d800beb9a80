"""Heads whose keys count where their number equals the query's: the reference's bits, without an array of all pairs."""

from __future__ import annotations

import numpy as np
import pytest

import weftc

SPEC = """algorithm equal
tokens  i, l in nodes
        e in edges
inputs  x[i] : R^2,  u[i] : R,  from[e] : R,  to[e] : R,  w[e] : R >= 0,  s[e] : R,  v[e] : R^2
layer
  {}
outputs a
"""
EQUATIONS = (
    "a[e] = x[from[e]] else 0",
    "a[i] = mean[e] v[e] weighted w[e] where to[e] = i else x[i]",
    "a[i] = sum[e] w[e] * v[e] where to[e] = i and s[e] > 0",
    "a[i] = mean[e] v[e] where to[e] = i and s[e] > 0 and s[e] <= 1 else 0",
    "a[i] = sum[e] softmax[e](s[e] where to[e] = i) * v[e] else x[i]",
    "a[i] = sum[e] exp(s[e]) where to[e] = i",
    "a[i] = max[e] s[e] where to[e] = i else -1",
    "a[i] = mean[e] v[e] by argmin[e](s[e] where to[e] = i) else x[i]",
    "a[i] = mean[l] x[l] where u[l] = u[i] else 0",
    "a[i] = mean[l] x[l] where u[l] = (u[i] + 1) else 0",
    "a[i] = mean[l] x[l] where 3 * u[l] = u[i] else 0",
    "a[i] = u[i-1] else -7",
    "a[i] = u[count(nodes) + 1 - i] else 0",
)


def data(nodes: int, edges: int) -> dict[str, np.ndarray]:
    """Numbers with ties, edges that lead nowhere, weights of which many are zero."""
    rng = np.random.default_rng(1)
    return {
        "x": rng.normal(size=(nodes, 2)),
        "u": rng.integers(-5, 6, nodes).astype(float),
        "from": rng.integers(0, nodes + 2, edges).astype(float),
        "to": rng.integers(0, nodes + 1, edges).astype(float),
        "w": rng.integers(0, 2, edges) * rng.uniform(size=edges),
        "s": rng.integers(-3, 4, edges) * 0.25,
        "v": rng.normal(size=(edges, 2)),
    }


@pytest.mark.parametrize("equation", EQUATIONS)
def test_it_has_the_bits_of_the_reference(equation: str) -> None:
    checkpoint = weftc.compile(SPEC.format(equation))
    planned, reference = (weftc.load(checkpoint, backend=name) for name in ("planned", "reference"))
    assert [head.strategy for _, head in planned.plan().heads()] == ["equal"]
    given = data(120, 500)
    found = planned(**given, layers=1)["a"]
    assert found.tolist() == reference(**given, layers=1)["a"].tolist()
    assert planned.report.backend == "planned"


def test_many_edges_need_no_array_of_all_pairs() -> None:
    """30,000 nodes and 200,000 edges have 6e9 pairs."""
    model = weftc.load(weftc.compile(SPEC.format(EQUATIONS[1])), backend="planned")
    given = data(30_000, 200_000)
    place, weight = given["to"].astype(int), given["w"]
    mass = np.bincount(place, weight, 30_001)[1:]
    sums = np.stack([np.bincount(place, weight * given["v"][:, e], 30_001)[1:] for e in (0, 1)], 1)
    meant = np.where(mass[:, None] > 0, sums / np.maximum(mass, 1e-300)[:, None], given["x"])
    assert np.abs(model(**given, layers=1)["a"].numpy() - meant).max() < 1e-12
