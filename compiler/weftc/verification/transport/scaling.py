"""A positive kernel K and two marginals -> the one coupling diag(p) K diag(q) that has them, and how far others are.

Everything is in logarithms. The coupling with marginals a and b is the minimum of the convex function

    F(f, g) = sum_ij exp(L_ij + f_i + g_j) - <a, f> - <b, g>,     L = log K

found by sweeps (each side normalised in turn) and Newton steps, with residuals in extended precision. `distance` says
how far a coupling is from it; how far it can be, from its own row and column sums alone, is said by `bounded`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Wide = NDArray[np.longdouble]

GOOD = 1e-13  # projective residual of what counts as the optimum
SWEEPS = 20  # before each round of Newton steps
ROUNDS = 60
STEPS = 12  # Newton steps per temperature
LONGEST = 2.0  # how far one Newton step may move an entry, in logarithms
COOLING = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the kernel: the next start is the last result


@dataclass(frozen=True, slots=True)
class Optimum:
    """The coupling with the marginals asked for. `residual`: how far one more sweep would move it, projectively."""

    rows: Wide  # logarithms of p
    columns: Wide  # of q
    log: Wide  # of the coupling, (rows, columns)
    residual: float

    @property
    def plan(self) -> Floats:
        return np.asarray(np.exp(self.log), dtype=np.float64)


def optimum(kernel: Floats, rows: Floats, columns: Floats) -> Optimum | None:
    """The scaling of exp(kernel) with these marginals, whose totals are equal; None where it is not found."""
    wide = np.asarray(kernel, dtype=np.longdouble)
    a, b = np.log(np.asarray(rows, np.longdouble)), np.log(np.asarray(columns, np.longdouble))
    good = max(GOOD, 64 * float(np.finfo(np.longdouble).eps) * (1 + float(np.max(np.abs(kernel)))))
    g: Wide = np.zeros(len(b), dtype=np.longdouble)
    f = a - _row_sums(wide, g)
    before = COOLING[0]
    for cooled in COOLING:
        scaled = wide * cooled
        f, g = f * (cooled / before), g * (cooled / before)
        before = cooled
        for _ in range(ROUNDS if cooled == 1.0 else 1):
            for _ in range(SWEEPS):
                f = a - _row_sums(scaled, g)
                g = b - _row_sums(scaled.T, f)
            f, g = _newton(scaled, a, b, f, g)
            if cooled == 1.0:
                f = a - _row_sums(scaled, g)
                swept = b - _row_sums(scaled.T, f)
                residual = float(np.ptp(swept - g))
                g = swept
                if residual < good:
                    return Optimum(f, g, scaled + f[:, np.newaxis] + g, residual)
    return None


def _row_sums(kernel: Wide, g: Wide) -> Wide:
    """log sum_j exp(kernel_ij + g_j)."""
    shifted = kernel + g
    top = shifted.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.sum(np.exp(shifted - top), axis=1)) + top[:, 0])


def _newton(kernel: Wide, a: Wide, b: Wide, f: Wide, g: Wide) -> tuple[Wide, Wide]:
    """A few Newton steps on F, each no longer than `LONGEST`; a step that does not lower the residual is not made."""
    for _ in range(STEPS):
        plan = np.exp(kernel + f[:, np.newaxis] + g)
        r, c = plan.sum(axis=1), plan.sum(axis=0)
        above, beside = np.exp(a) - r, np.exp(b) - c
        now = float(np.abs(above).sum() + np.abs(beside).sum())
        step = _solved(np.asarray(plan, float), np.asarray(r, float), np.asarray(c, float), above, beside)
        if now == 0 or step is None:
            break
        length = float(np.max(np.abs(step[0][:, np.newaxis] + step[1])))
        shrink = min(1.0, LONGEST / length) if length > 0 else 1.0
        f_new, g_new = f + shrink * step[0], g + shrink * step[1]
        plan = np.exp(kernel + f_new[:, np.newaxis] + g_new)
        after = float(np.abs(np.exp(a) - plan.sum(axis=1)).sum() + np.abs(np.exp(b) - plan.sum(axis=0)).sum())
        if not after < now:
            break
        f, g = f_new, g_new
    return f, g


def _solved(plan: Floats, r: Floats, c: Floats, above: Wide, beside: Wide) -> tuple[Floats, Floats] | None:
    """The Newton step: [diag r, P; P', diag c] (df, dg) = (above, beside), with the last dg at 0."""
    schur = np.diag(c) - plan.T @ (plan / r[:, np.newaxis])
    right = np.asarray(beside, float) - plan.T @ np.asarray(above / r, float)
    dg = np.zeros(len(c))
    try:
        dg[:-1] = np.linalg.solve(schur[:-1, :-1], right[:-1])
    except np.linalg.LinAlgError:
        return None
    df = (np.asarray(above, float) - plan @ dg) / r
    return (df, dg) if np.isfinite(df).all() and np.isfinite(dg).all() else None


# ---- how far a coupling is -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProjectiveDistance:
    """Between two couplings, or a bound on it.

    `projective`: Hilbert's metric, log of the largest over the smallest ratio of entries; it does not see a common
    factor. `entries`: the largest difference. `variation`: half the sum of all differences, per unit of mass.
    """

    projective: float
    entries: float
    variation: float


def distance(log: Wide, best: Optimum) -> ProjectiveDistance:
    """From a coupling, given by its logarithms, to the optimum."""
    apart = np.abs(np.exp(log) - np.exp(best.log))
    mass = np.sum(np.exp(best.log))
    return ProjectiveDistance(float(np.ptp(best.log - log)), float(np.max(apart)), float(np.sum(apart) / (2 * mass)))


def marginal_errors(log: Wide, rows: Floats, columns: Floats) -> tuple[float, float]:
    """Sums of the absolute errors of row and of column sums, per unit of mass."""
    plan = np.exp(log)
    mass = float(rows.sum())
    return float(np.abs(plan.sum(axis=1) - rows).sum()) / mass, float(np.abs(plan.sum(axis=0) - columns).sum()) / mass
