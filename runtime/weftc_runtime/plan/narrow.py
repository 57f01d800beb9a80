"""Dense matrices -> the few columns they read: what a plan applies instead of matrices over the whole residual.

A `Lens` takes matrices over one stream and keeps their non-zero columns only; the products and sums it makes are those
of the whole matrix, bit for bit, because zeros add nothing. `NarrowHead` does so for everything that a head reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from weftc_runtime.exact.rows import Rows
from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import FFN, Factor, Head, Part, Score, Stream
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.plan.residual import Residual


@dataclass(frozen=True, slots=True)
class NarrowMatrices:
    """The columns that some matrices read, and the matrices over these columns alone."""

    columns: tuple[int, ...]
    matrices: Mapping[str, Tensor]
    known: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)  # slots

    @classmethod
    def of(cls, matrices: Mapping[str, Tensor]) -> NarrowMatrices:
        tables = {name: matrix if matrix.dim() == 2 else matrix[None] for name, matrix in matrices.items()}
        used: set[int] = set()
        for table in tables.values():
            used.update((table != 0).any(0).nonzero()[:, 0].tolist())
        columns = tuple(sorted(used))
        return cls(columns, {name: table[:, list(columns)] for name, table in tables.items()})

    def read(self, residual: Residual, rows: Rows = slice(None)) -> Tensor:
        """The columns of these rows."""
        return residual.columns(self.columns, rows)

    def radius(self, residual: Residual, rows: Rows = slice(None)) -> Tensor:
        """Bounds of the errors of what `read` gives."""
        return residual.columns(self.columns, rows, radius=True)

    def slots(self, stream: Stream, without: str = "") -> tuple[str, ...]:
        """The slots it reads, `without` those that only this matrix reads."""
        key = (stream.name, without)
        if key not in self.known:
            self.known[key] = self._slots(stream, without)
        return self.known[key]

    def _slots(self, stream: Stream, without: str) -> tuple[str, ...]:
        tables = [table for name, table in self.matrices.items() if name != without]
        used = torch.stack([(table != 0).any(0) for table in tables]).any(0).tolist() if tables else []
        columns = [column for column, read in zip(self.columns, used, strict=False) if read]
        return tuple(s.name for s in stream.slots if any(s.offset <= c < s.offset + s.width for c in columns))


def only_rows(matrix: Tensor, rows: tuple[int, ...]) -> Tensor:
    """Some rows of a matrix."""
    return matrix[list(rows)] if matrix.dim() == 2 else matrix


def written(matrix: Tensor) -> set[int]:
    """The rows of a matrix that are not zero."""
    return set((matrix != 0).any(1).nonzero()[:, 0].tolist())


@dataclass(frozen=True, slots=True)
class NarrowHead:
    """A head over narrow residuals: `head` names streams `query` and `keys` and the matrices of `weights`."""

    head: Head
    query: NarrowMatrices  # score, masks, self key
    keys: NarrowMatrices  # score and masks
    value: NarrowMatrices  # value
    own: NarrowMatrices  # what a query gets when no key is eligible
    writes: tuple[int, ...]  # columns of the query stream that the head adds to, in order
    weights: Weights
    kept: dict[Any, Any] = field(default_factory=dict)  # what runs found out and later ones may use

    @classmethod
    def of(cls, head: Head, tensors: Mapping[str, Tensor], joined: bool = False) -> NarrowHead:
        """`joined`: the lens of the keys reads the columns of the value too, as `HeadRun` expects."""
        query: dict[str, Tensor] = {}
        keys: dict[str, Tensor] = {}
        scalars: dict[str, Tensor] = {}

        def renamed(score: Score, prefix: str) -> Score:
            parts = []
            for index, part in enumerate(score.parts):
                name = f"{prefix}{index}"
                query[f"{name}q"], keys[f"{name}k"] = tensors[part.q], tensors[part.k]
                coefficient = None
                if part.coefficient is not None:
                    coefficient = f"{name}c"
                    scalars[coefficient] = tensors[part.coefficient]
                scale = None
                if part.scale is not None:
                    scale = (part.scale[0], f"{name}s")
                    (query if scale[0] == "query" else keys)[scale[1]] = tensors[part.scale[1]]
                factors = tuple(
                    Factor(factor.function, renamed(factor.score, f"{name}.{number}."))
                    for number, factor in enumerate(part.factors)
                )
                parts.append(Part(part.kind, f"{name}q", f"{name}k", coefficient, scale, factors))
            return Score(tuple(parts))

        score = renamed(head.score, "score")
        masks = tuple(replace(mask, score=renamed(mask.score, f"mask{i}.")) for i, mask in enumerate(head.masks))
        number = head.weighting.kind in NUMBER_HEADS
        rows: set[int] = written(tensors[head.value]) if head.value else set()
        own = head.self_key
        if own is not None:
            if own.value:
                rows |= written(tensors[own.value])
            if own.row is not None:
                query["self.row"] = tensors[own.row]
        writes = tuple(sorted(rows))
        value: dict[str, Tensor] = {}
        if head.value and writes:
            (scalars if number else keys if joined else value)["value"] = only_rows(tensors[head.value], writes)
        if own is not None:
            if own.value and writes:
                query["self.value"] = only_rows(tensors[own.value], writes)
            row = None if own.row is None else "self.row"
            own = replace(own, value="self.value" if own.value and writes else "", row=row)
        name = "value" if head.value and writes else ""
        alone = {"own.value": query["self.value"]} if "self.value" in query else {}
        lenses = NarrowMatrices.of(query), NarrowMatrices.of(keys), NarrowMatrices.of(value), NarrowMatrices.of(alone)
        over = replace(head, query="query", keys="keys", score=score, masks=masks, self_key=own, value=name)
        matrices = {name: matrix for narrow in lenses for name, matrix in narrow.matrices.items()} | scalars
        return cls(over, *lenses, writes, Weights(matrices))

    def fallback(self, query: Residual, rows: Rows) -> Tensor:
        """What these queries get that have no eligible key, (rows, writes)."""
        z = self.own.read(query, rows)
        return self.weights.linear(z, "own.value") if self.own.matrices else z.new_zeros(len(z), len(self.writes))

    def values(self, keys: Residual, rows: Rows = slice(None)) -> Tensor:
        """What the keys of these rows add, (rows, writes)."""
        z = self.value.read(keys, rows)
        if not self.head.value:
            return z.new_zeros(len(z), 0)
        return self.weights.linear(z, "value")


@dataclass(frozen=True, slots=True)
class NarrowFFN:
    """A feed-forward over the columns it reads and those it writes."""

    source: FFN
    ffn: FFN
    reads: NarrowMatrices
    writes: tuple[int, ...]
    weights: Weights
    kept: dict[Any, Any] = field(default_factory=dict, compare=False)  # what runs found out and later ones may use

    @classmethod
    def of(cls, ffn: FFN, tensors: Mapping[str, Tensor]) -> NarrowFFN:
        carry, out = tensors[ffn.carry], tensors[ffn.out]
        moved = (carry != torch.eye(len(carry), dtype=carry.dtype, device=carry.device)).any(1)
        writes = tuple(sorted(written(out) | set(moved.nonzero()[:, 0].tolist())))
        matrices = {"a": tensors[ffn.a], "carry": only_rows(carry, writes)}
        if ffn.b is not None:
            matrices["b"] = tensors[ffn.b]
        reads = NarrowMatrices.of(matrices)
        over = replace(ffn, a="a", b=None if ffn.b is None else "b", carry="carry", out="out")
        weights = Weights({**reads.matrices, "out": only_rows(out, writes)})
        return cls(ffn, over, reads, writes, weights)
