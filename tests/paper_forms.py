"""Matrices of the papers on Weft's tokens, and whether those of a checkpoint are the same.

A paper's token is a row of coordinates in the paper's order. `token` says where each of them is in Weft's slots; as a
matrix E it takes a Weft token to the paper's. A score of the paper, z' A z, is then z' E' A E z on Weft's tokens. Q and
K are compared by what scores depend on: Q'K for dot products, Q'Q, Q'K and K'K for distances (KT, Remark 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weftc.emit.matrices import Array
from weftc_runtime.format import program as ir
from weftc_runtime.format.checkpoint import Checkpoint

Coordinates = Sequence[tuple[int, Mapping[str, float]]]  # how many, and where each is: slot -> factor


# ---- reading a checkpoint --------------------------------------------------------------------------------------------


def token(made: Checkpoint, stream: str, coordinates: Coordinates) -> Array:
    """E: a Weft token -> the paper's token."""
    slots = made.program.stream(stream)
    rows = []
    for width, places in coordinates:
        block = np.zeros((width, slots.width))
        for name, factor in places.items():
            columns = slots.slot(name).columns
            assert columns.stop - columns.start == width
            block[:, columns] = factor * np.eye(width)
        rows.append(block)
    return np.concatenate(rows)


def sublayer(made: Checkpoint, place: str) -> Any:
    """The sub-layer at a place such as layer.0.0."""
    part, step, at = place.split(".")
    steps: tuple[ir.ProgramStep, ...] = getattr(made.program, part)
    return steps[int(step)].sublayers[int(at)]


def head(made: Checkpoint, place: str, name: str) -> ir.Head:
    found: ir.Head = next(h for h in sublayer(made, place).heads if h.name == name)
    return found


def parts(made: Checkpoint, score: ir.Score, kind: str) -> list[tuple[Array, Array, float]]:
    """The summands of a score of one kind: Q, K and the coefficient."""
    found = [p for p in score.parts if p.kind == kind]
    one = np.array(1.0)
    return [
        (made.tensors[p.q], made.tensors[p.k], float(made.tensors[p.coefficient] if p.coefficient else one))
        for p in found
    ]


def assert_dot(made: Checkpoint, score: ir.Score, form: Array) -> None:
    """The score is one dot product, z' form z'."""
    ((q, k, _),) = parts(made, score, "dot")
    np.testing.assert_array_equal(q.T @ k, form)
    assert len(score.parts) == 1


def assert_l2(made: Checkpoint, score: ir.Score, q: Array, k: Array, coefficient: float) -> None:
    """The score is one distance, coefficient * |q z - k z'|^2."""
    ((weftc_q, weftc_k, c),) = parts(made, score, "l2")
    for one, two, mine, yours in ((weftc_q, weftc_q, q, q), (weftc_q, weftc_k, q, k), (weftc_k, weftc_k, k, k)):
        np.testing.assert_array_equal(c * one.T @ two, coefficient * mine.T @ yours)
    assert len(score.parts) == 1


def assert_value(made: Checkpoint, found: ir.Head, query: Array, value: Array, keys: Array) -> None:
    """What the head writes is `value` in the paper's coordinates."""
    np.testing.assert_array_equal(made.tensors[found.value], query.T @ value @ keys)


def assert_carry(made: Checkpoint, tensor: str, stream: str, cleared: Sequence[str]) -> None:
    """The carry is the identity but for the slots that are cleared."""
    keeps = np.ones(made.program.stream(stream).width)
    for slot in cleared:
        keeps[made.program.stream(stream).slot(slot).columns] = 0
    np.testing.assert_array_equal(made.tensors[tensor], np.diag(keeps))


# ---- the papers' own matrices ----------------------------------------------------------------------------------------


def select(width: int, start: int, stop: int) -> Array:
    """P[start:stop], the sources' I^{start+1:stop}."""
    out = np.zeros((width, width))
    out[range(start, stop), range(start, stop)] = 1
    return out


def swap(width: int, d: int) -> Array:
    """Pi: twice the identity on x, twice the swap of the next two coordinates, 0 elsewhere."""
    out = 2 * select(width, 0, d)
    out[d, d + 1] = out[d + 1, d] = 2
    return out


def plain(d: int, k: int) -> tuple[Coordinates, Coordinates]:
    """Tokens [x; y] and [c; e]."""
    return [(d, {"x": 1}), (k, {"y": 1})], [(d, {"c": 1}), (k, {"id()": 1})]


def lifted(d: int, k: int) -> tuple[Coordinates, Coordinates]:
    """Tokens [x; |x|^2; -1/2; y] and [c; |c|^2; -1/2; e]."""
    half = (1, {"1": -0.5})
    return (
        [(d, {"x": 1}), (1, {"|x|^2": 1}), half, (k, {"y": 1})],
        [(d, {"c": 1}), (1, {"|c|^2": 1}), half, (k, {"id()": 1})],
    )


def streams(made: Checkpoint, layout: tuple[Coordinates, Coordinates], centers: str = "centers") -> tuple[Array, Array]:
    return token(made, "points", layout[0]), token(made, centers, layout[1])
