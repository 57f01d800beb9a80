"""Sums over the tokens of one index: exact sums of rounded terms (`math.fsum`), so that no order of adding matters.

A sum may carry a divisor; dividing once, after the sum, is what makes a mean of kept values independent of how its
equal weights would have been rounded one by one.
"""

from __future__ import annotations

import math

import numpy as np

from weftc.interpreter.tables import ROUND, TINY, Bools, Floats, ValueTable, aligned, divided, made, turned, union

HUGE = 2.0**960  # above this a sum of many terms may leave the range of float64 although a mean of them does not
SHRINK = 64  # then terms are scaled by 2^-64, which is exact for everything that matters beside them
NARROW = 64  # rows up to this long are added whole, zeros included; longer ones only where terms count


def summed(
    terms: ValueTable, index: str, size: int, counted: ValueTable | None = None, divisor: ValueTable | None = None
) -> ValueTable:
    """The sum of the terms over `index`, a set of `size` tokens, divided by `divisor`.

    `counted` (a table of ones and zeros) leaves out the terms at its zeros, undefined ones too. Undefined where a
    counted term, the divisor or `counted` itself is.
    """
    axes = union(terms.axes, counted.axes if counted else ())
    rows = (*(a for a in axes if a != index), index)
    terms = turned(terms, rows)
    width = terms.data.shape[-1]
    chosen = counted and turned(counted, rows)
    tokens = np.broadcast_shapes(terms.data.shape[:-1], chosen.data.shape[:-1] if chosen else (1,) * len(rows))
    tokens = (*tokens[:-1], size)
    keep = np.broadcast_to(chosen.data[..., 0] != 0, tokens) if chosen else None
    data = np.moveaxis(np.broadcast_to(terms.data, (*tokens, width)), -1, -2)  # (*rows, width, keys)
    error = np.moveaxis(np.broadcast_to(terms.error, (*tokens, width)), -1, -2)
    largest = np.max(np.abs(data), initial=0.0, where=np.isfinite(data))
    shrink = SHRINK if largest > HUGE else 0
    sums, spread = _added(np.ldexp(data, -shrink) if shrink else data, error, keep)
    # the bounds are added in floating point: n additions of n non-negative numbers
    spread = np.ldexp(spread, -shrink) * (1 + 2 * size * ROUND) + ROUND * np.abs(sums) + (TINY if shrink else 0.0)
    lost = ~terms.defined[..., 0] if keep is None else keep & ~terms.defined[..., 0]
    defined = np.asarray(~np.broadcast_to(lost, tokens).any(axis=-1))
    if chosen:
        defined &= np.broadcast_to(chosen.defined[..., 0], tokens).all(axis=-1)
    total = made(rows[:-1], sums, spread, defined[..., np.newaxis])
    if divisor is not None:
        total = divided(total, divisor)
    if not shrink:
        return total
    with np.errstate(all="ignore"):
        return made(total.axes, np.ldexp(total.data, shrink), np.ldexp(total.error, shrink), total.defined)


def _added(data: Floats, error: Floats, keep: Bools | None) -> tuple[Floats, Floats]:
    """Sums over the last axis of (*rows, width, keys), and of the errors, where `keep` (*rows, keys) says so."""
    shape = data.shape[:-1]
    if keep is not None and data.shape[-1] <= NARROW:
        whole = keep[..., np.newaxis, :]
        data, error, keep = np.where(whole, data, 0.0), np.where(whole, error, 0.0), None
    if keep is None:
        rows = data.reshape(-1, data.shape[-1]).tolist()
        return np.array([math.fsum(row) for row in rows]).reshape(shape), np.sum(error, axis=-1)
    sums, spread = np.empty(shape), np.empty(shape)
    for at in np.ndindex(*keep.shape[:-1]):
        keys = keep[at]
        sums[at] = [math.fsum(row) for row in data[at][:, keys].tolist()]
        spread[at] = np.sum(error[at][:, keys], axis=-1)
    return sums, spread


def extreme(values: ValueTable, index: str, size: int, counted: ValueTable | None, sign: int) -> ValueTable:
    """The largest (sign 1) or smallest (sign -1) value over `index`; undefined where nothing counts."""
    axes = union(values.axes, counted.axes if counted else ())
    rows = (*(a for a in axes if a != index), index)
    data, error, keep, lost = candidates(values, index, size, counted, rows[:-1])
    best = np.max(np.where(keep, sign * data, -np.inf), axis=-1)
    broken = (keep & np.isnan(data)).any(axis=-1)
    best = np.where(broken, np.nan, sign * best)
    spread = np.max(np.where(keep, error, 0.0), axis=-1)
    defined = keep.any(axis=-1) & ~lost
    column = (..., np.newaxis)
    return made(rows[:-1], np.where(defined, best, 0.0)[column], spread[column], defined[column])


def candidates(
    values: ValueTable, index: str, size: int, counted: ValueTable | None, rows: tuple[str, ...]
) -> tuple[Floats, Floats, Bools, Bools]:
    """Values, errors and whether they count, each (*rows, keys), and rows (*rows) spoilt by an undefined value."""
    axes = (*rows, index)
    values = turned(values, axes)
    chosen = counted and turned(counted, axes)
    tokens = np.broadcast_shapes(values.data.shape[:-1], chosen.data.shape[:-1] if chosen else (1,) * len(axes))
    tokens = (*tokens[:-1], size)
    keep = np.broadcast_to(chosen.data[..., 0] != 0, tokens) if chosen else np.broadcast_to(True, tokens)
    lost = np.asarray((keep & ~values.defined[..., 0]).any(axis=-1))
    if chosen:
        lost = lost | (~np.broadcast_to(chosen.defined[..., 0], tokens)).any(axis=-1)
    return np.broadcast_to(values.data[..., 0], tokens), np.broadcast_to(values.error[..., 0], tokens), keep, lost


def indicator(axes: tuple[str, ...], holds: Bools, defined: Bools | None = None) -> ValueTable:
    """A table of ones and zeros from truth values of shape (*tokens,)."""
    known = np.broadcast_to(True, holds.shape) if defined is None else np.broadcast_to(defined, holds.shape)
    data = holds.astype(np.float64)[..., np.newaxis]
    return ValueTable(axes, data, np.broadcast_to(0.0, data.shape), known[..., np.newaxis])


def nonzero(table: ValueTable) -> ValueTable:
    """Where a number is not exactly zero."""
    return indicator(table.axes, table.data[..., 0] != 0, table.defined[..., 0])


def both(a: ValueTable | None, b: ValueTable) -> ValueTable:
    """Where both hold; an undefined condition does not matter where the other one fails."""
    if a is None:
        return b
    a, b = aligned(a, b)
    fails = (a.defined & (a.data == 0)) | (b.defined & (b.data == 0))
    holds = (a.data != 0) & (b.data != 0)
    return indicator(a.axes, holds[..., 0], ((a.defined & b.defined) | fails)[..., 0])


def only(table: ValueTable, counted: ValueTable | None) -> ValueTable:
    """The table with exact zeros where nothing counts, whatever stood there."""
    if counted is None:
        return table
    table, counted = aligned(table, counted)
    keep = np.broadcast_to(counted.data != 0, np.broadcast_shapes(table.data.shape, counted.data.shape))
    data, error = np.where(keep, table.data, 0.0), np.where(keep, table.error, 0.0)
    return ValueTable(table.axes, data, error, table.defined | ~keep)
