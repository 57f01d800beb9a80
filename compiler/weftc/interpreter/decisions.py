"""Decisions: which keys a hard weighting keeps, which comparisons hold, as exact arithmetic on stored fields has it.

Every row is settled by the cheapest tier that can do so with certainty:

    float64     scores differ by more than their error bounds
    rational    the scores that are too close are computed exactly, ties included
    undecided   they are not rational; scores closer than their bounds count as tied, and the row is reported
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from weftc.interpreter.rationals import Irrational
from weftc.interpreter.tables import ROUND, Bools, Floats

Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Decisions:
    """How many decisions each tier settled."""

    float64: int = 0
    rational: int = 0
    undecided: int = 0

    def __add__(self, other: Decisions) -> Decisions:
        return Decisions(self.float64 + other.float64, self.rational + other.rational, self.undecided + other.undecided)


@dataclass(slots=True)
class Tally:
    """Counts decisions while a step is evaluated."""

    total: Decisions = field(default_factory=Decisions)

    def count(self, float64: int = 0, rational: int = 0, undecided: int = 0) -> None:
        self.total += Decisions(float64, rational, undecided)


@dataclass(frozen=True, slots=True)
class Decision:
    """Rows of scores, larger ones better. `exact` gives the exact scores of keys of a row, or raises Irrational."""

    scores: Floats  # (rows, keys)
    errors: Floats
    eligible: Bools
    exact: Callable[[int, list[int]], dict[int, Fraction]]
    tally: Tally

    def bounds(self) -> tuple[Floats, Floats]:
        """Certain lower and upper bounds of the exact scores; minus infinity where a key is not eligible."""
        low, high = outward(self.scores, self.errors)
        return np.where(self.eligible, low, -np.inf), np.where(self.eligible, high, -np.inf)


def outward(values: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """values - errors and values + errors, rounded outward; everything where the error is infinite."""
    with np.errstate(all="ignore"):
        low = np.where(errors > 0, np.nextafter(values - errors, -np.inf), values)
        high = np.where(errors > 0, np.nextafter(values + errors, np.inf), values)
    return np.where(np.isfinite(errors), low, -np.inf), np.where(np.isfinite(errors), high, np.inf)


def keep_through(contest: Decision, position: Ints, whole: bool) -> Bools:
    """Keeps the keys from the best to the one at `position` (counted from 0, per row), the best first.

    Equal scores rank by index, the lower first; with `whole`, all keys equal to the last one kept stay as well.
    """
    low, high = contest.bounds()
    eligible = contest.eligible
    present = eligible.sum(axis=1)
    everything = position >= present - 1
    at = np.clip(position, 0, np.maximum(present - 1, 0))[:, np.newaxis]
    # the exact score at a rank lies between the low and the high bounds at the same rank
    least, most = _ranked(low, at), _ranked(high, at)
    above = eligible & (low > most)
    close = eligible & ~above & (high >= least)
    kept = np.where(everything[:, np.newaxis], eligible, above | close)
    open_rows = np.flatnonzero(~everything & (close.sum(axis=1) > 1))
    contest.tally.count(float64=int((present > 0).sum()) - len(open_rows))
    for row in open_rows.tolist():
        keys = np.flatnonzero(close[row]).tolist()
        exact = _settled(contest, row, keys)
        ranked = sorted(keys, key=lambda key: (-exact[key], key))
        last = int(at[row, 0]) - int(above[row].sum())
        chosen = [k for k in ranked if exact[k] >= exact[ranked[last]]] if whole else ranked[: last + 1]
        kept[row, keys] = False
        kept[row, chosen] = True
    return np.asarray(kept)


def _ranked(values: Floats, at: Ints) -> Floats:
    """The value at a rank of every row, (rows, 1); rank 0 is the largest."""
    if not at.any():
        return np.asarray(values.max(axis=1, keepdims=True))
    return -np.take_along_axis(np.sort(-values, axis=1), at, axis=1)


def _settled(contest: Decision, row: int, keys: list[int]) -> dict[int, Fraction]:
    """Exact scores of the keys; all equal if they are not rational. Counts the row."""
    if not contest.errors[row, keys].any():
        contest.tally.count(float64=1)
        return {key: Fraction(contest.scores[row, key]) for key in keys}
    try:
        exact = contest.exact(row, keys)
    except Irrational:
        contest.tally.count(undecided=1)
        return dict.fromkeys(keys, Fraction(0))
    contest.tally.count(rational=1)
    return exact


def keep_within(
    contest: Decision, epsilon: Floats, spread: Floats, rule: Callable[[int, dict[int, Fraction]], set[int]]
) -> Bools:
    """Keeps the first key whose score is at least the best one minus `epsilon` (per row, with its error).

    `rule` says the same of exact scores.
    """
    low, high = contest.bounds()
    smallest, largest = outward(epsilon, spread)
    with np.errstate(all="ignore"):
        # nextafter: the differences are rounded, the thresholds must not be
        inside = contest.eligible & (low >= np.nextafter(high.max(axis=1) - smallest, np.inf)[:, np.newaxis])
        possible = contest.eligible & (high >= np.nextafter(low.max(axis=1) - largest, -np.inf)[:, np.newaxis])
    kept = np.zeros_like(contest.eligible)
    for row in np.flatnonzero(contest.eligible.any(axis=1)).tolist():
        first = int(np.argmax(possible[row]))
        if inside[row, first] or possible[row].sum() == 1:
            contest.tally.count(float64=1)
            kept[row, first] = True
            continue
        try:
            exact = contest.exact(row, np.flatnonzero(possible[row]).tolist())
            kept[row, list(rule(row, exact))] = True
            contest.tally.count(rational=1)
        except Irrational:
            contest.tally.count(undecided=1)
            kept[row, first] = True
    return kept


def keep_budget(
    contest: Decision, gamma: Floats, spread: Floats, rule: Callable[[int, dict[int, Fraction]], set[int]]
) -> Bools:
    """Keeps the fewest best keys whose gaps to the next one add up to 1 / gamma (per row, with its error).

    With z the scores minus their maximum in falling order, the gaps up to rank m add up to sum z_i - m z_(m+1). Order
    statistics move by at most the largest error E of a row, so the sum is off by at most 2 m E; its rounding is below
    2 m (m + 4) ROUND |z_(m+1)|, as z_(m+1) is the largest of the numbers in absolute value.
    """
    eligible = contest.eligible
    keys = eligible.shape[1]
    present = eligible.sum(axis=1)
    with np.errstate(all="ignore"):
        values = np.where(eligible, contest.scores, -np.inf)
        ranked = -np.sort(-values, axis=1)
        z = ranked - ranked[:, :1]
        count = np.arange(1, keys)
        gaps = np.cumsum(z, axis=1)[:, :-1] - count * z[:, 1:]
        largest = np.max(np.where(eligible, contest.errors, 0.0), axis=1, keepdims=True)
        off = 2 * count * largest + 2 * count * (count + 4) * ROUND * np.abs(z[:, 1:])
        filled = gamma[:, np.newaxis] * gaps
        off = 2 * (gamma[:, np.newaxis] * off + spread[:, np.newaxis] * np.abs(gaps) + 2 * ROUND * np.abs(filled))
        beyond = count >= present[:, np.newaxis]  # nothing is left to compare with: the budget ends there
        surely = (filled - off >= 1) | beyond
        perhaps = ~(filled + off < 1) | beyond
    always = np.ones((len(present), 1), dtype=bool)
    sure = np.argmax(np.hstack([surely, always]), axis=1) + 1
    maybe = np.argmax(np.hstack([perhaps, always]), axis=1) + 1
    clear = (sure == maybe) | (present < 2)
    kept = np.zeros_like(eligible)
    settled = Decision(
        contest.scores[clear],
        contest.errors[clear],
        eligible[clear],
        lambda row, keys: contest.exact(int(np.flatnonzero(clear)[row]), keys),
        contest.tally,
    )
    # equal scores never straddle the end of the budget, so ranking them by index is as good as any
    kept[clear] = keep_through(settled, sure[clear] - 1, whole=False)
    for row in np.flatnonzero(~clear).tolist():
        try:
            exact = contest.exact(row, np.flatnonzero(eligible[row]).tolist())
            kept[row, list(rule(row, exact))] = True
            contest.tally.count(rational=1)
        except Irrational:
            contest.tally.count(undecided=1)
            order = sorted(np.flatnonzero(eligible[row]).tolist(), key=lambda key: (-contest.scores[row, key], key))
            kept[row, order[: maybe[row]]] = True
    return kept


def compare(
    op: str, difference: Floats, error: Floats, relevant: Bools, exact: Callable[[int], int], tally: Tally
) -> Bools:
    """Whether `difference op 0` holds. `exact` gives the sign of one difference, or raises Irrational."""
    low, high = outward(difference, error)
    sign = np.where(low > 0, 1, np.where(high < 0, -1, 0))
    open_places = np.flatnonzero((sign == 0) & ((error > 0) | np.isnan(difference)) & relevant)
    tally.count(float64=int(relevant.sum()) - len(open_places))
    for place in open_places.tolist():
        try:
            sign[place] = exact(place)
            tally.count(rational=1)
        except Irrational:
            tally.count(undecided=1)
    return np.asarray({">": sign > 0, ">=": sign >= 0, "<": sign < 0, "<=": sign <= 0}[op])
