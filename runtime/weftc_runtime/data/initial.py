"""How an input starts when the user gives none: rows picked from another input, as a function of the seed alone.

All picks work on the distinct rows in lexicographic order with their multiplicities, so the order in which the rows
are given does not matter (except for `first`).

`spread` takes squared distances relative to the largest one left, each computed at a power of two of its own: no range
of the data makes one overflow, or all of them vanish. `spectral` does the same with the rows' images along the leading
eigenvectors of the sum of x x^T.

Rows are read where they lie and in the dtype they have; what is made of them is float64 and goes through in blocks.
Large ones are drawn from by native code (`native/starts.cpp`), which gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from weftc_runtime.data.noise import first_columns
from weftc_runtime.data.progress import Progress, silence
from weftc_runtime.errors import RunError, shown
from weftc_runtime.kernels.native.starts import OutOfRange, native_urn

Array = npt.NDArray[np.float64]
Given = npt.NDArray[Any]  # float32 or float64
LEAST = 4096  # a power of two below which everything is zero beside 1
UNREACHED = 2**20  # a power of two that no squared distance has
ENTRIES = 1 << 17  # numbers of a block
NATIVE = 1 << 17  # numbers times picks that are worth compiling native code


def start(
    method: str,
    rows: Given,
    size: int | None,
    name: str,
    source: str,
    seed: int,
    mass: Array | None = None,
    progress: Progress = silence,
) -> Array:
    """The rows (size, width) an input starts with; `rows` (n, width), all finite, are those of its source.

    `mass` (n,), all > 0: how often every row counts; picks are those of rows that are repeated as often.
    `progress` is told every row that has been picked.
    """
    return starts(method, rows, size, name, source, [seed], mass, progress)[0]


def starts(
    method: str,
    rows: Given,
    size: int | None,
    name: str,
    source: str,
    seeds: Sequence[int],
    mass: Array | None = None,
    progress: Progress = silence,
) -> list[Array]:
    """The same for several seeds: what does not depend on them is done once."""
    if method == "copy":
        if size is not None and size != len(rows):
            raise RunError(f"{shown(name)} has {size} rows, but {shown(source)}, which it copies, has {len(rows)}")
        return [rows.astype(np.float64)] * len(seeds)
    if size is None:
        raise RunError(f"give {shown(name)}: how many rows it has is not known, so it cannot start by itself")
    if method == "first":
        return [rows[_enough(_first(rows, size), size, name, source)].astype(np.float64)] * len(seeds)
    every = first_columns(seeds, "init:" + name, size)
    spectral = method == "spectral"
    urn = PlainUrn(rows, mass, _images(rows, mass, size)) if spectral else _urn(rows, mass, size * len(seeds))
    _enough(range(urn.count), size, name, source)
    found = []
    for numbers in every:
        try:
            picks = _draw(urn.full(), method, numbers, progress)
        except OutOfRange:
            urn = PlainUrn(rows, mass)
            picks = _draw(urn.full(), method, numbers, progress)
        found.append(rows[picks].astype(np.float64) + 0.0)  # -0.0 is 0.0
    return found


def _enough(found: Sequence[int], size: int, name: str, source: str) -> Sequence[int]:
    """What was found, if it is as much as is needed."""
    if len(found) < size:
        raise RunError(
            f"{shown(name)} starts from {size} different rows of {shown(source)}, which has only {len(found)}; "
            f"give {shown(name)} yourself, or more data"
        )
    return found


class Urn(Protocol):
    """The distinct rows in their order, each with its mass: `count` of them, drawn by place."""

    count: int

    def full(self) -> Urn:
        """One with all rows that were there at first, to be drawn from; it shares what no draw changes."""

    def draw(self, u: float) -> int:
        """The smallest place whose cumulative mass exceeds u times the total."""

    def remove(self, place: int) -> None:
        """A row that is drawn has no mass any more."""

    def move_away(self, place: int) -> None:
        """Masses become multiplicities times squared distances to the nearest place given so far."""

    def row(self, place: int) -> int:
        """Where a distinct row first stands among the rows."""


def _draw(urn: Urn, method: str, numbers: list[float], progress: Progress) -> list[int]:
    """Rows drawn one after the other, with chances that follow from those drawn before."""
    picks: list[int] = []
    for number in numbers:
        progress("start", len(picks), len(numbers))
        if picks and method in ("spread", "spectral"):
            urn.move_away(picks[-1])
        elif picks:
            urn.remove(picks[-1])
        picks.append(urn.draw(number))
    progress("start", len(picks), len(numbers))
    return [urn.row(place) for place in picks]


def _first(rows: Given, size: int) -> list[int]:
    """Where the first different rows stand, at most `size`."""
    seen: set[bytes] = set()
    found: list[int] = []
    for block in _blocks(len(rows), rows.shape[1]):
        values, at = np.unique(rows[block] + 0.0, axis=0, return_index=True)
        for place in np.argsort(at).tolist():
            text = values[place].tobytes()
            if text not in seen:
                seen.add(text)
                found.append(block.start + int(at[place]))
                if len(found) == size:
                    return found
    return found


def _urn(rows: Given, mass: Array | None, size: int) -> Urn:
    found = native_urn(rows, mass, build=rows.size * size >= NATIVE)
    return PlainUrn(rows, mass) if found is None else found


def _blocks(count: int, width: int) -> Iterator[slice]:
    step = max(1, ENTRIES // max(1, width))
    return (slice(at, min(count, at + step)) for at in range(0, count, step))


def _images(rows: Given, mass: Array | None, size: int) -> Array:
    """The rows along the leading eigenvectors of the sum of x x^T, as many as are picked, up to a power of two."""
    power = -int(np.frexp(np.abs(rows).max())[1])
    moments = np.zeros((rows.shape[1], rows.shape[1]))
    for block in _blocks(len(rows), rows.shape[1]):
        values = np.ldexp(rows[block].astype(np.float64), power)
        moments += values.T @ (values if mass is None else values * mass[block, np.newaxis])
    leading = np.linalg.eigh(moments).eigenvectors[:, ::-1][:, :size]
    blocks = _blocks(len(rows), rows.shape[1])
    return np.concatenate([np.ldexp(rows[block].astype(np.float64), power) @ leading for block in blocks])


class PlainUrn:
    """Distinct rows in NumPy, block by block; `seen`: what stands for them in distances."""

    def __init__(self, rows: Given, mass: Array | None, seen: Array | None = None) -> None:
        self._seen = rows if seen is None else seen
        order = np.lexsort(rows.T[::-1])
        fresh = np.ones(len(rows), dtype=bool)
        for block in _blocks(len(rows) - 1, rows.shape[1]):
            below, above = order[block], order[block.start + 1 : block.stop + 1]
            fresh[block.start + 1 : block.stop + 1] = (rows[below] != rows[above]).any(axis=1)
        self._first = order[fresh]  # of equal rows the first: the sort is stable
        self.count = len(self._first)
        place = np.empty(len(rows), dtype=np.int64)
        place[order] = np.cumsum(fresh) - 1
        self._weights = np.bincount(place, weights=mass, minlength=self.count).astype(np.float64)
        self._mantissa = np.ones(self.count)  # of the distance to the nearest pick
        self._power = np.full(self.count, UNREACHED, dtype=np.int32)
        self._spread = False

    def full(self) -> PlainUrn:
        other = copy(self)
        other._weights, other._mantissa, other._power = self._weights.copy(), self._mantissa.copy(), self._power.copy()
        return other

    def row(self, place: int) -> int:
        return int(self._first[place])

    def remove(self, place: int) -> None:
        self._weights[place] = 0.0

    def move_away(self, place: int) -> None:
        self._spread = True
        self._weights[place] = 0.0
        pick = self._seen[self._first[place]].astype(np.float64)
        for block in _blocks(self.count, len(pick)):
            values = self._seen[self._first[block]].astype(np.float64)
            mantissa, power = _squared_distance(values, pick)
            nearer = (self._power[block] > power) | ((self._power[block] == power) & (self._mantissa[block] > mantissa))
            self._mantissa[block][nearer], self._power[block][nearer] = mantissa[nearer], power[nearer]

    def draw(self, u: float) -> int:
        return _pick(self._masses(), self.count, u)

    def _masses(self) -> Callable[[slice], Array]:
        if not self._spread:
            return lambda block: self._weights[block]
        top = self._power.max()
        if top == -UNREACHED:  # no row is away from all picks
            return lambda block: self._weights[block]
        return lambda block: (
            self._weights[block] * np.ldexp(self._mantissa[block], np.maximum(self._power[block] - top, -LEAST))
        )


def _pick(mass: Callable[[slice], Array], count: int, u: float) -> int:
    """The smallest index whose cumulative mass exceeds u times the total; masses are added one by one."""

    def cumulative(block: slice, before: float) -> Array:
        found = mass(block).copy()
        found[0] += before
        return np.cumsum(found)

    every, sums = list(_blocks(count, 1)), [0.0]
    for block in every:
        sums.append(float(cumulative(block, sums[-1])[-1]))
    target = u * sums[-1]
    for block, before, after in zip(every, sums, sums[1:], strict=False):
        if after > target:
            return int(block.start) + int(np.searchsorted(cumulative(block, before), target, side="right"))
    ends = ((int(block.start), np.flatnonzero(mass(block))) for block in reversed(every))
    return next(first + int(found[-1]) for first, found in ends if len(found))  # u * total was rounded up to the total


def _squared_distance(values: Array, row: Array) -> tuple[Array, npt.NDArray[np.int32]]:
    """Squared distances as mantissa (0, or from 1/2 to 1) and power of two."""
    with np.errstate(over="ignore"):
        difference = values - row
    wide = ~np.isfinite(difference).all(axis=1)  # then halves differ by a finite number
    difference[wide] = values[wide] / 2 - row / 2
    scale = np.frexp(np.abs(difference).max(axis=1))[1]
    total = np.zeros(len(values))
    for column in range(values.shape[1]):  # left to right, so that every implementation gets the same bits
        total += np.square(np.ldexp(difference[:, column], -scale))
    mantissa, power = np.frexp(total)
    return mantissa, np.where(total > 0, power + 2 * (scale + wide), -UNREACHED).astype(np.int32)
