"""Matrices by what is in them: identities, selectors and zeros are held as a few runs of one number each.

before    an identity of 4096 rows, 134 MB                     after    Run(0, 0, 4096, 1, 1, 1.0)

A compiled model holds its weights like that until somebody asks for one, loads it or writes the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]


class ConstantRun(NamedTuple):
    """`length` entries that all hold `value`, from (row, column) on in steps of (down, right)."""

    row: int
    column: int
    length: int
    down: int
    right: int
    value: float

    def moved(self, rows: int, columns: int) -> ConstantRun:
        return self._replace(row=self.row + rows, column=self.column + columns)

    def entries(self) -> Iterator[ConstantRun]:
        """Its entries, each a run of its own."""
        for n in range(self.length):
            yield ConstantRun(self.row + n * self.down, self.column + n * self.right, 1, 0, 0, self.value)

    def copied(self, times: int, down: int) -> Iterator[ConstantRun]:
        """So many copies of it, each `down` rows below the one before: along the run or across it, in fewer runs."""
        if times < self.length:
            yield from (self.moved(n * down, 0) for n in range(times))
        else:
            yield from (one._replace(length=times, down=down) for one in self.entries())


@dataclass(frozen=True, slots=True)
class Structured:
    """A matrix as a sum of runs."""

    rows: int
    columns: int
    runs: tuple[ConstantRun, ...] = ()
    flat: bool = False  # one row, as an array of one axis

    @classmethod
    def identity(cls, size: int) -> Structured:
        return cls(size, size, (ConstantRun(0, 0, size, 1, 1, 1.0),))

    @classmethod
    def stacked(cls, parts: Iterable[Structured]) -> Structured:
        """Matrices of as many columns, one below the other."""
        runs: list[ConstantRun] = []
        at = columns = 0
        for part in parts:
            runs += (run.moved(at, 0) for run in part.runs)
            at, columns = at + part.rows, part.columns
        return cls(at, columns, tuple(runs))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.columns,) if self.flat else (self.rows, self.columns)

    @property
    def transposed(self) -> Structured:
        runs = (ConstantRun(r.column, r.row, r.length, r.right, r.down, r.value) for r in self.runs)
        return Structured(self.columns, self.rows, tuple(runs))

    @property
    def negated(self) -> Structured:
        return Structured(self.rows, self.columns, tuple(r._replace(value=-r.value) for r in self.runs))

    def repeated(self, times: int) -> Structured:
        """Every row so many times, one below the other."""
        spread = (r._replace(row=r.row * times, down=r.down * times) for r in self.runs)
        return Structured(self.rows * times, self.columns, tuple(c for r in spread for c in r.copied(times, 1)))

    def tiled(self, times: int) -> Structured:
        """The whole so many times, one below the other."""
        copies = (c for r in self.runs for c in r.copied(times, self.rows))
        return Structured(self.rows * times, self.columns, tuple(copies))

    def placed(self, row: int, rows: int) -> Structured:
        """It, from a row on, in a matrix of so many rows."""
        return Structured(rows, self.columns, tuple(r.moved(row, 0) for r in self.runs))

    def dense(self) -> Array:
        out = np.zeros(self.rows * self.columns)
        for row, column, length, down, right, value in self.runs:
            start, step = row * self.columns + column, down * self.columns + right
            out[start : start + (length - 1) * step + 1 : step or 1] += value
        return out.reshape(self.shape)


class Tensors(Mapping[str, Array]):
    """Arrays by name. One that is held by its structure is made when somebody asks for it, and kept from then on."""

    def __init__(self, held: dict[str, Array | Structured], keep: bool = True) -> None:
        self._held, self._keep = held, keep

    def __getitem__(self, name: str) -> Array:
        found = self._held[name]
        if isinstance(found, Structured):
            found = found.dense()
            if self._keep:
                self._held[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: found.shape for name, found in self._held.items()}

    @property
    def passing(self) -> Tensors:
        """The same, of which nothing is kept."""
        return Tensors(self._held, keep=False)


def shapes(tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """The shapes of arrays, without making any."""
    return tensors.shapes if isinstance(tensors, Tensors) else {n: np.shape(array) for n, array in tensors.items()}


def one_at_a_time(tensors: Mapping[str, Array]) -> Mapping[str, Array]:
    """The same arrays for those who look at one after the other: none that had to be made is kept."""
    return tensors.passing if isinstance(tensors, Tensors) else tensors


def numbers(tensors: Mapping[str, Array]) -> int:
    """How many numbers they hold."""
    return sum(prod(shape) for shape in shapes(tensors).values())
