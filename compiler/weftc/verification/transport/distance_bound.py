"""How far a coupling can be from the one with given marginals, from its own row and column sums: rigorous bounds.

Let P = diag(p) K diag(q) have row sums r and column sums c, where a and b are asked for, and P* the optimum.

contraction   A sweep T (rows, then columns) contracts Hilbert's projective metric d by tanh^2(D/4), where D is the
              projective diameter of K (Birkhoff). So d(q, q*) <= d(q, Tq) / (1 - tanh^2(D/4)) = d(q, Tq) cosh^2(D/4),
              the same for p, and the distance of the couplings is the sum of both.

curvature     Let s_ij = log(P*_ij / P_ij) = df_i + dg_j, m = max |s_ij|, and H = [diag r, P; P', diag c] the curvature
              of F at P, with N^2 = <e, H^-1 e> for e = (r - a, c - b). Along the way from P to P*, the curvature is at
              least H times the mean of exp(-t m), t in [0, 1]; so |s|_H (1 - exp(-m)) / m <= N. With
              L = max_ij sqrt(<e_i + e_j, H^-1 (e_i + e_j)>), m <= L |s|_H, hence 1 - exp(-m) <= L N and
              m <= -log(1 - L N) wherever L N < 1. The projective distance is at most 2 m.

Residuals are computed in floating point; what their rounding can hide is added to them, and the eigenvalues of H are
lowered by what theirs can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from weftc.verification.transport.scaling import ProjectiveDistance, Wide

Floats = NDArray[np.float64]

EPSILON = float(np.finfo(np.float64).eps)
WHOLE = 2 * 10**8  # comparisons of rows up to which the diameter is computed as it is defined

How = Literal["contraction", "curvature", "none"]


@dataclass(frozen=True, slots=True)
class DistanceBound:
    """The smallest of the bounds that hold, and the argument for the projective one."""

    distance: ProjectiveDistance
    how: How


def diameter(kernel: Floats) -> float:
    """The projective diameter of exp(kernel): max over i, j, k, l of L_ik + L_jl - L_jk - L_il, or a bound on it."""
    rows, columns = kernel.shape
    if rows * rows * columns > WHOLE:
        centred = kernel - kernel.mean(axis=1, keepdims=True)
        return 2 * float(np.ptp(centred - centred.mean(axis=0)))
    return max(float(np.max(np.ptp(kernel - row, axis=1))) for row in kernel)


def bound(log: Wide, rows: Floats, columns: Floats, across: float) -> DistanceBound:
    """How far exp(log) can be from the coupling with these marginals; `across` is the diameter of its kernel."""
    plan = np.exp(log)
    r, c = plan.sum(axis=1), plan.sum(axis=0)
    # a sum of terms exp(l), each with l off by a few units in its last place
    rounding = 8 * EPSILON * (4 + float(np.max(np.abs(log))) + sum(plan.shape) * EPSILON)
    mass = abs(float(np.log(rows.sum()) - np.log(r.sum())))
    by_contraction = _contraction(log, r, c, rows, columns, across, rounding)
    by_curvature = _curvature(
        np.asarray(plan, float), np.asarray(r, float), np.asarray(c, float), rows, columns, rounding
    )
    projective = min(by_contraction, 2 * by_curvature)
    largest = min(by_contraction + mass + rounding, by_curvature)
    how: How = "none" if not np.isfinite(projective) else "contraction" if projective == by_contraction else "curvature"
    # P* is at most as large as its row and column sums, whatever P is
    most = np.maximum(np.asarray(plan, float), np.minimum(rows[:, np.newaxis], columns))
    with np.errstate(over="ignore"):
        apart = np.minimum(np.asarray(plan, float) * np.expm1(min(largest, 1e3)), most) * (1 + rounding)
    total = float(rows.sum())
    half = min(float(apart.sum()), float(r.sum()) + total) / (2 * total)
    return DistanceBound(ProjectiveDistance(projective, float(apart.max()), half * (1 + rounding)), how)


def _contraction(log: Wide, r: Wide, c: Wide, rows: Floats, columns: Floats, across: float, rounding: float) -> float:
    """d(q, Tq) and d(p, Tp), added up, times cosh^2(across / 4)."""
    if across > 1400:  # cosh^2 leaves the range of float64
        return np.inf
    by_rows, by_columns = np.log(rows / r), np.log(columns / c)  # what the two halves of a sweep add to log p, log q
    after_rows, after_columns = log + by_rows[:, np.newaxis], log + by_columns
    moved = np.log(columns / np.exp(after_rows).sum(axis=0)), np.log(rows / np.exp(after_columns).sum(axis=1))
    apart = sum(float(np.ptp(m)) + 4 * rounding for m in moved)
    return apart * float(np.cosh(across / 4) ** 2)


def _curvature(plan: Floats, r: Floats, c: Floats, rows: Floats, columns: Floats, rounding: float) -> float:
    """-log(1 - L N); infinite where L N is not below one, or H too flat for float64."""
    n = len(r)
    sums = np.concatenate([r, c])
    scale = 1 / np.sqrt(sums)
    if not np.isfinite(scale).all():
        return np.inf
    # H in the units of its diagonal, plus 1 along the direction that changes nothing
    middle = plan * scale[:n, np.newaxis] * scale[n:]
    flat = np.concatenate([np.sqrt(r), -np.sqrt(c)])
    flat /= np.linalg.norm(flat)
    curved = np.block([[np.eye(n), middle], [middle.T, np.eye(len(c))]]) + np.outer(flat, flat)
    values, vectors = np.linalg.eigh(curved)
    values = values - 16 * len(sums) * EPSILON
    if values[0] <= 0:
        return np.inf
    asked = np.concatenate([rows, columns])
    error = scale * (sums - asked)
    spread = float(np.linalg.norm(scale * rounding * (sums + asked))) / float(np.sqrt(values[0]))
    decrement = float(np.sqrt(np.sum((vectors.T @ error) ** 2 / values))) + spread
    inverse = (vectors / values) @ vectors.T * scale[:, np.newaxis] * scale
    own = np.diag(inverse)
    longest = np.sqrt(max(0.0, float(np.max(own[:n, np.newaxis] + own[n:] + 2 * inverse[:n, n:]))))
    together = (1 + 1e-6) * longest * decrement
    return float(-np.log1p(-together)) if together < 1 else np.inf
