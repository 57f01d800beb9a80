"""The matrices of a file over slots, in whatever basis they are stored, and what every port of a node reads with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weftc_runtime.format.basis import NOISE, Basis, bases_of
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import FFN, Head, ProgramOutput
from weftc_runtime.format.tensors import NUMBER_HEADS

Array = npt.NDArray[np.float64]
Arrived = Callable[[str, bool], Array]


@dataclass(frozen=True, slots=True)
class Port:
    """Where a node reads: `q`, `k`, `v` and `self` of a head, `in` of a feed-forward, `out` of an output."""

    name: str
    stream: str
    matrices: tuple[Array, ...]  # over slots
    keys: bool = False  # a null token is read, too

    def reads(self, arrived: Array) -> Array:
        """Which slots it reads of what has arrived there; columns are what was sent."""
        found = np.zeros(len(arrived), dtype=bool)
        for matrix in self.matrices:
            if (matrix @ arrived).any():
                found |= (matrix != 0).any(0) & (arrived != 0).any(1)
        return found


@dataclass(slots=True)
class SlotMatrices:
    """Tensors by name, as they act on slots: exactly, or without what rounding leaves where a basis mixes slots."""

    checkpoint: Checkpoint
    bases: dict[str, Basis] = field(init=False)
    _known: dict[tuple[str, str, str], Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bases = bases_of(self.checkpoint.program, self.checkpoint.tensors)

    def of(self, name: str, columns: str = "", rows: str = "") -> Array:
        """A tensor as a matrix; `columns` and `rows` are the streams whose residual it reads and adds to."""
        key = (name, columns, rows)
        if key not in self._known:
            matrix = np.atleast_2d(np.asarray(self.checkpoint.tensors[name], np.float64))
            if rows and not columns and self.checkpoint.tensors[name].ndim == 1:
                matrix = matrix.T
            self._known[key] = self._over_slots(matrix, columns, rows)
        return self._known[key]

    def _over_slots(self, matrix: Array, columns: str, rows: str) -> Array:
        if columns in self.bases:
            matrix = self.bases[columns].over_slots(matrix)
        if rows in self.bases:
            inverse = self.bases[rows].inverse
            terms = np.abs(inverse) @ np.abs(matrix)
            matrix = inverse @ matrix
            matrix = np.where(np.abs(matrix) <= NOISE * terms, 0.0, matrix)
        return matrix

    # ---- what nodes send ---------------------------------------------------------------------------------------------

    def sent(self, node: Head | FFN) -> Array:
        """What a node can add to its residual: the columns of a matrix."""
        if isinstance(node, FFN):
            return self.of(node.out, rows=node.stream)
        number = node.weighting.kind in NUMBER_HEADS
        parts = [self.of(node.value, "" if number else node.keys, node.query)] if node.value else []
        if node.self_key is not None and node.self_key.value:
            parts.append(self.of(node.self_key.value, node.query, node.query))
        width = self.checkpoint.program.stream(node.query).width
        return np.concatenate(parts, 1) if parts else np.zeros((width, 1))

    # ---- what nodes read ---------------------------------------------------------------------------------------------

    def ports(self, node: Head | FFN, arrived: Arrived) -> Iterator[Port]:
        """The ports of a node; `arrived` says what there is in a stream, as columns (with the null token, or not).

        What is multiplied by nothing is not read: of queries counts what meets keys, and the other way round.
        """
        if isinstance(node, FFN):
            a, b = self.of(node.a, node.stream), None if node.b is None else self.of(node.b, node.stream)
            if node.function == "product" and b is not None:
                there = arrived(node.stream, False)
                a, b = a[(b @ there).any(1)], b[(a @ there).any(1)]
            yield Port("in", node.stream, (a,) if b is None else (a, b))
            return
        own = node.self_key
        row = (self.of(own.row, node.query),) if own is not None and own.row is not None else ()
        yield from self._scores(node, arrived, row)
        if node.value and node.weighting.kind not in NUMBER_HEADS:
            yield Port("v", node.keys, (self.of(node.value, node.keys, node.query),), True)
        if own is not None and own.value:
            yield Port("self", node.query, (self.of(own.value, node.query, node.query),))

    def output_ports(self, output: ProgramOutput, arrived: Arrived) -> Iterator[Port]:
        """What an answer is read from."""
        if output.head is None:
            stream = self.checkpoint.program.stream(output.stream)
            yield Port("out", output.stream, (np.eye(stream.width)[stream.slot(output.slot).columns],))
            return
        scale = () if output.scale is None else (self.of(output.scale, output.head.query),)
        yield from self._scores(output.head, arrived, scale)

    def _scores(self, head: Head, arrived: Arrived, row: tuple[Array, ...]) -> Iterator[Port]:
        """Queries and keys: of <Q z, K z'> each reads through the other."""
        query, key = list(row), list[Array]()
        queries, keys = arrived(head.query, False), arrived(head.keys, True)
        parts = [part for score in (head.score, *(mask.score for mask in head.masks)) for part in score.nested()]
        for part in parts:
            q, k = self.of(part.q, head.query), self.of(part.k, head.keys)
            alive = True
            if part.kind == "dot":
                q, k = _through(k @ keys, q), _through(q @ queries, k)
                alive = bool((q @ queries).any())
            query.append(q)
            key.append(k)
            if part.scale is not None and alive:
                side, name = part.scale
                (query if side == "query" else key).append(self.of(name, head.query if side == "query" else head.keys))
        yield Port("q", head.query, tuple(query))
        yield Port("k", head.keys, tuple(key), True)


def _through(met: Array, matrix: Array) -> Array:
    """A matrix as what it is multiplied by sees it; noise is cleared."""
    terms = np.abs(met).T @ np.abs(matrix)
    found = met.T @ matrix
    return np.where(np.abs(found) <= NOISE * terms, 0.0, found)
