"""Tables: the values of an expression for all tokens of its index variables at once, each with a bound on its error.

A table has one axis per index variable, in any order, and a last axis for the coordinates of a vector (of size one for
a number), so that numbers and vectors follow the same rules. `error` bounds the distance between `data`, computed in
float64, and the value in exact arithmetic on the same stored fields; decisions rest on it. `defined` marks where there
is a value at all; where there is none, an infinite error says that exact arithmetic might find one. A value too large
for float64 becomes NaN with infinite error, and stays so: nothing hides it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUND = 2.0**-53  # the largest relative error of one rounding
TINY = 2.0**-1072  # covers the absolute errors of a product or quotient, and of its bound, where they underflow
SLACK = 1.0 + 2.0**-45  # covers the roundings made while computing a bound from up to 2^7 others
LIBRARY = 16 * ROUND  # relative error allowed to exp, log, tanh of NumPy (its vector library promises 4 ulp = 8 ROUND)


@dataclass(frozen=True, slots=True)
class ValueTable:
    """Values over the tokens of `axes`."""

    axes: tuple[str, ...]
    data: Floats  # (*tokens, width)
    error: Floats  # same shape
    defined: Bools  # (*tokens, 1)

    @property
    def finite(self) -> Bools:
        """Where there is a value that float64 can hold (or none at all); shape (*tokens, 1)."""
        return every_coordinate(np.isfinite(self.data)) | ~self.defined


def every_coordinate(holds: Bools) -> Bools:
    """Whether something holds for all coordinates, (*tokens, 1)."""
    return np.asarray(holds.all(axis=-1, keepdims=True))


def constant(value: float, error: float = 0.0) -> ValueTable:
    """A number that depends on no token."""
    return ValueTable((), np.array([value]), np.array([error]), np.array([True]))


def stored(axes: Sequence[str], data: Any) -> ValueTable:
    """Data as it is: exact, and defined everywhere. Shape (*tokens, width)."""
    values = np.asarray(data, dtype=np.float64)
    shape = values.shape
    return ValueTable(tuple(axes), values, np.broadcast_to(0.0, shape), np.broadcast_to(True, (*shape[:-1], 1)))


# ---- axes ------------------------------------------------------------------------------------------------------------


def laid_out(array: NDArray[Any], have: Sequence[str], want: Sequence[str]) -> NDArray[Any]:
    """An array with axes `have` and one more, turned to the axes `want`; axes it lacks get size one."""
    array = array.transpose(*(have.index(a) for a in want if a in have), len(have))
    return array[(*(slice(None) if a in have else np.newaxis for a in want), slice(None))]


def turned(table: ValueTable, axes: Sequence[str]) -> ValueTable:
    """The table with its axes in the order of `axes`, a superset; missing ones have size one."""
    if table.axes == tuple(axes):
        return table
    data, error, defined = (laid_out(a, table.axes, axes) for a in (table.data, table.error, table.defined))
    return ValueTable(tuple(axes), data, error, defined)


def union(*axes: Sequence[str]) -> tuple[str, ...]:
    """All axes, each once, in order of first appearance."""
    return tuple(dict.fromkeys(a for some in axes for a in some))


def aligned(*tables: ValueTable) -> list[ValueTable]:
    """The tables over common axes; NumPy's broadcasting does the rest."""
    axes = union(*(t.axes for t in tables))
    return [turned(t, axes) for t in tables]


def renamed(table: ValueTable, names: Mapping[str, str]) -> ValueTable:
    """The table with other index names; two axes that get the same name become its diagonal."""
    axes = [names.get(a, a) for a in table.axes]
    arrays: list[NDArray[Any]] = [table.data, table.error, table.defined]
    while len(set(axes)) < len(axes):
        second = next(at for at, a in enumerate(axes) if a in axes[:at])
        first = axes.index(axes[second])
        arrays = [np.moveaxis(np.diagonal(a, axis1=first, axis2=second), -1, first) for a in arrays]
        del axes[second]
    return ValueTable(tuple(axes), arrays[0], arrays[1], arrays[2])


def taken(table: ValueTable, axis: str, tokens: NDArray[np.intp]) -> ValueTable:
    """The table at some tokens of one axis."""
    if axis not in table.axes:
        return table
    at = table.axes.index(axis)
    data, error = np.take(table.data, tokens, axis=at), np.take(table.error, tokens, axis=at)
    return ValueTable(table.axes, data, error, np.take(table.defined, tokens, axis=at))


# ---- zero ------------------------------------------------------------------------------------------------------------


def near_zero(table: ValueTable) -> Bools:
    """Where float64 cannot tell whether a number is zero, or whether a vector is the zero vector; shape (*tokens,)."""
    with np.errstate(all="ignore"):
        inside = np.abs(table.data) <= table.error
    return np.asarray(inside.all(axis=-1) & (table.error > 0).any(axis=-1) & table.defined[..., 0])


def rounded(value: Sequence[Fraction], width: int) -> tuple[Floats, Floats]:
    """An exact value, numbers spread over the width, and the error of rounding it. What is not zero stays so."""
    found = [float(v) or math.copysign(TINY, v) if v else 0.0 for v in value] or [0.0]
    data = np.array(found * (width // len(found)))
    return data, ROUND * np.abs(data) + np.where(np.abs(data) <= TINY, np.abs(data), 0.0)


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def made(axes: tuple[str, ...], data: Floats, error: Floats, defined: Bools) -> ValueTable:
    """A table from raw results: zeros where undefined, NaN with infinite error where float64 overflowed."""
    defined = np.broadcast_to(defined, (*data.shape[:-1], 1))
    broken = defined & ~np.isfinite(data)
    error = np.where(broken | np.isnan(error), np.inf, error * SLACK)
    doubt = np.where(every_coordinate(np.isfinite(error)), 0.0, np.inf)
    data = np.where(broken, np.nan, data)
    return ValueTable(axes, np.where(defined, data, 0.0), np.where(defined, error, doubt), defined)


def negated(a: ValueTable) -> ValueTable:
    return replace(a, data=-a.data)


def added(a: ValueTable, b: ValueTable) -> ValueTable:
    a, b = aligned(a, b)
    with np.errstate(all="ignore"):
        data = a.data + b.data
        return made(a.axes, data, a.error + b.error + ROUND * np.abs(data), a.defined & b.defined)


def multiplied(a: ValueTable, b: ValueTable) -> ValueTable:
    a, b = aligned(a, b)
    with np.errstate(all="ignore"):
        data = a.data * b.data
        error = np.abs(a.data) * b.error + np.abs(b.data) * a.error + a.error * b.error + ROUND * np.abs(data)
        # a factor that is exactly zero makes the product exactly zero
        inexact = ((a.data != 0) | (a.error != 0)) & ((b.data != 0) | (b.error != 0))
        return made(a.axes, data, error + TINY * inexact, a.defined & b.defined)


def divided(a: ValueTable, b: ValueTable) -> ValueTable:
    """The quotient; undefined where the divisor is exactly zero."""
    a, b = aligned(a, b)
    with np.errstate(all="ignore"):
        data = a.data / b.data
        least = np.abs(b.data) - b.error  # the divisor is at least this far from zero
        error = (a.error + np.abs(data) * b.error) / least + ROUND * np.abs(data) + TINY
        nonzero = every_coordinate(b.data != 0)
        error = np.where(least > 0, error, np.where((b.data == 0) & (b.error == 0), a.error, np.inf))
        return made(a.axes, np.where(nonzero, data, 0.0), error, a.defined & b.defined & nonzero)


def power(base: ValueTable, exponent: int) -> ValueTable:
    """Repeated multiplication from the left."""
    if exponent == 0:
        return ValueTable(base.axes, np.ones_like(base.data), np.zeros_like(base.data), base.defined)
    result = base
    for _ in range(exponent - 1):
        result = multiplied(result, base)
    return result


def inner(a: ValueTable, b: ValueTable) -> ValueTable:
    """Products of the coordinates, added from the first to the last."""
    a, b = aligned(a, b)
    with np.errstate(all="ignore"):
        products = a.data * b.data
        spread = np.abs(a.data) * b.error + np.abs(b.data) * a.error + a.error * b.error
        width = products.shape[-1]
        total = products[..., 0]
        for coordinate in range(1, width):
            total = total + products[..., coordinate]
        # n products and n - 1 additions: relative error n * ROUND / (1 - n * ROUND) of the sum of absolute values
        rounding = (width + 1) * ROUND * np.sum(np.abs(products), axis=-1, keepdims=True)
        error = np.sum(spread, axis=-1, keepdims=True) + rounding + width * TINY
        zero = every_coordinate(((a.data == 0) & (a.error == 0)) | ((b.data == 0) & (b.error == 0)))
        error = np.where(zero, 0.0, error) * (1 + 4 * (width + 1) * ROUND)
        return made(a.axes, total[..., np.newaxis], error, a.defined & b.defined)


def length(v: ValueTable) -> ValueTable:
    """|v|: the absolute value of a number; of a vector, the root of its squared length, safe from overflow."""
    if v.data.shape[-1] == 1:
        return replace(v, data=np.abs(v.data))
    small, exponent = _scaled(v)
    root = applied("sqrt", inner(small, small))
    with np.errstate(all="ignore"):
        error = np.ldexp(root.error, exponent) + np.where(root.error > 0, TINY, 0.0)
        return made(v.axes, np.ldexp(root.data, exponent), error, root.defined)


def unit(v: ValueTable) -> ValueTable:
    """v / |v|; undefined where v is the zero vector."""
    small, _ = _scaled(v)
    return divided(small, length(small))


def _scaled(v: ValueTable) -> tuple[ValueTable, NDArray[np.intc]]:
    """v times a power of two that brings its largest coordinate near one, and the exponent that undoes it."""
    largest = np.max(np.abs(v.data), axis=-1, keepdims=True)
    _, exponent = np.frexp(np.where(np.isfinite(largest), largest, 1.0))
    # a coordinate pushed below the normal range is negligible beside the largest: TINY covers what it loses
    error = np.ldexp(v.error, -exponent) + np.where(v.data != 0, TINY, 0.0)
    return ValueTable(v.axes, np.ldexp(v.data, -exponent), error, v.defined), exponent


def _log(a: ValueTable) -> tuple[Floats, Floats, Bools]:
    data = np.log(a.data)
    ratio = np.where(a.data > 0, a.error / a.data, 1.0)
    error = np.where(ratio < 1, -np.log1p(-np.minimum(ratio, 1.0)), np.inf)
    return data, np.where(a.data + a.error <= 0, 0.0, error), a.data > 0


def _sqrt(a: ValueTable) -> tuple[Floats, Floats, Bools]:
    data = np.sqrt(a.data)
    # |sqrt A - sqrt a| = |A - a| / (sqrt A + sqrt a)
    error = np.where(a.error == 0, 0.0, np.fmin(a.error / data, np.sqrt(a.error)))
    outside = np.where(a.data + a.error < 0, 0.0, np.inf)
    return data, np.where(a.data >= 0, error, outside), a.data >= 0


def _exp(a: ValueTable) -> tuple[Floats, Floats, Bools]:
    data = np.exp(a.data)
    return data, data * np.expm1(a.error) + TINY, np.ones_like(a.data, dtype=bool)


def _tanh(a: ValueTable) -> tuple[Floats, Floats, Bools]:
    return np.tanh(a.data), a.error, np.ones_like(a.data, dtype=bool)


def _sigmoid(a: ValueTable) -> tuple[Floats, Floats, Bools]:
    small = np.exp(-np.abs(a.data))
    data = np.where(a.data >= 0, 1.0, small) / (1 + small)
    # its slope is at most 1/4, and that of its logarithm at most 1
    error = np.minimum(a.error / 4, data * np.expm1(a.error)) + TINY
    return data, error, np.ones_like(a.data, dtype=bool)


def _softplus(a: ValueTable) -> tuple[Floats, Floats, Bools]:
    data = np.maximum(a.data, 0.0) + np.log1p(np.exp(-np.abs(a.data)))
    error = np.minimum(a.error, data * np.expm1(a.error)) + TINY  # likewise, with slopes of at most 1
    return data, error, np.ones_like(a.data, dtype=bool)


_FUNCTIONS: Mapping[str, Callable[[ValueTable], tuple[Floats, Floats, Bools]]] = {
    "log": _log,
    "sqrt": _sqrt,
    "exp": _exp,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
}
_WITHOUT_ROUNDING: Mapping[str, Callable[[Floats], Floats]] = {
    "relu": lambda data: np.maximum(data, 0.0),
    "abs": np.abs,
}


def applied(function: str, a: ValueTable) -> ValueTable:
    """A function of every coordinate; `log` and `sqrt` are undefined outside their domains."""
    if function in _WITHOUT_ROUNDING:
        return replace(a, data=_WITHOUT_ROUNDING[function](a.data))
    with np.errstate(all="ignore"):
        data, error, inside = _FUNCTIONS[function](a)
        # NaN in the argument is an overflow, not a value outside the domain
        inside = every_coordinate(inside | np.isnan(a.data))
        data = np.where(inside, data, 0.0)
        return made(a.axes, data, error + LIBRARY * np.abs(data), a.defined & inside)


def otherwise(body: ValueTable, fallback: ValueTable) -> ValueTable:
    """`body else fallback`."""
    body, fallback = aligned(body, fallback)
    width = np.broadcast_shapes(body.data.shape, fallback.data.shape)
    defined = np.broadcast_to(body.defined, (*width[:-1], 1))
    data = np.where(defined, body.data, fallback.data)
    # an infinite error of an undefined body says that it may be defined after all: then nothing is known
    error = np.where(defined, body.error, np.maximum(fallback.error, body.error))
    return ValueTable(body.axes, data, error, defined | fallback.defined)
