"""Scores as coefficient arrays, where weights need only be near the constants they stand for.

A dot product <Q z, K z'> is <z, P z'> with P = Q^T K; a distance |Q z - K z'|^2 has three such arrays. Queries and keys
may be mixed by any A and A^-T without changing them, but not without rounding: the arrays are computed with a bound of
their error, and read as the constants they are near to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from weftc.prover.kernel.polynomials import Poly, add, scale
from weftc.prover.model_side.matrices import Coefficient, ProgramMatrices, Row, Vector
from weftc.prover.near.error_matrix import Array, ErrorMatrix
from weftc_runtime.format.program import Part, Score


@dataclass(frozen=True, slots=True)
class Form:
    """One coefficient array: its rows, how far they are off altogether, and how much they add up to."""

    rows: tuple[Row, ...]
    off: float
    size: float


@dataclass(frozen=True, slots=True)
class TermArrays:
    """A part of a score: <z, qk z'>, or <z, qq z> - 2 <z, qk z'> + <z', kk z'> times a coefficient.

    `off` and `size` bound its error and its magnitude when no coordinate of z and z' is larger than 1.
    """

    qk: Form
    qq: Form | None
    kk: Form | None
    coefficient: Coefficient
    off: float
    size: float


@dataclass(slots=True)
class ScoreArrays:
    """The coefficient arrays of the scores of a program, made when they are asked for."""

    matrices: ProgramMatrices
    _known: dict[tuple[str, str, str | None], TermArrays] = field(default_factory=dict)

    def value(self, part: Part, z: Vector, key: Vector) -> Poly:
        """What a part of a score is, but for its scale."""
        terms = self.terms(part)
        if terms.qq is None or terms.kk is None:
            return self._bilinear(terms.qk, z, key)
        cross = scale(self._bilinear(terms.qk, z, key), -2)
        raw = add(self._bilinear(terms.qq, z, z), cross, self._bilinear(terms.kk, key, key))
        return self.matrices.times(terms.coefficient, raw)

    def _bilinear(self, form: Form, left: Vector, right: Vector) -> Poly:
        multiply, combine = self.matrices.algebra.multiply, self.matrices.combine
        found = [multiply(p, combine(row, right)) for row, p in zip(form.rows, left, strict=True) if row and p]
        return add(*found) if found else {}

    def terms(self, part: Part) -> TermArrays:
        """The arrays of a part."""
        key = (part.q, part.k, part.coefficient)
        if key not in self._known:
            self._known[key] = self._terms(part)
        return self._known[key]

    def _terms(self, part: Part) -> TermArrays:
        q, k = self.matrices.bounded(part.q), self.matrices.bounded(part.k)
        qk = self._form(q.turned @ k, part)
        if part.kind == "dot":
            return TermArrays(qk, None, None, 1, qk.off, qk.size)
        qq, kk = self._form(q.turned @ q, part), self._form(k.turned @ k, part)
        assert part.coefficient is not None
        coefficient = self.matrices.scalar(part.coefficient)
        most = abs(float(np.reshape(self.matrices.tensors[part.coefficient], -1)[0]))
        loose = float(self.matrices.deviations[part.coefficient].sum())
        off, size = qq.off + 2 * qk.off + kk.off, qq.size + 2 * qk.size + kk.size
        return TermArrays(qk, qq, kk, coefficient, most * off + loose * (size + off), (most + loose) * size)

    def _form(self, known: ErrorMatrix, part: Part) -> Form:
        rows, off = self.matrices.rows(known, f"{part.q} {part.k}")
        return Form(rows, _sum(off), _sum(known.size))

    def error(self, scores: Sequence[Score]) -> float:
        """The largest error of these scores when no coordinate of the two tokens is larger than 1."""
        return max((sum(self._part_error(part) for part in score.nested()) for score in scores), default=0.0)

    def _part_error(self, part: Part) -> float:
        terms = self.terms(part)
        if part.scale is None:
            return terms.off
        name = part.scale[1]
        row = self.matrices.bounded(name)
        self.matrices[name]
        loose = _sum(self.matrices.deviations[name])
        return terms.off * _sum(row.size) + (terms.size + terms.off) * loose


def _sum(array: Array) -> float:
    return float(array.sum()) * (1 + 2.0**-30)
