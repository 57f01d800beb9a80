"""Rows of matrices -> affine functions of the few numbers of a token that a layer writes.

Everything else that a row reads is the same for all tokens, or stays what it is: a constant, and a number per token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from weftc_runtime.machines.exponentials import BLOCK, up
from weftc_runtime.plan.narrow import NarrowMatrices
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import UniformSlot

Numbers: TypeAlias = NDArray[np.float64]
Row: TypeAlias = tuple[tuple[str, int, float], ...]  # slot, column of the slot, coefficient


class NotAffine(Exception):
    """A row reads what is neither written as a cell nor there to stay."""


@dataclass(slots=True)
class Affine:
    """constant + base[token] + sum of factor * cell[token]; arrays are padded."""

    constant: float = 0.0
    base: Numbers | None = None
    terms: dict[int, float] = field(default_factory=dict)

    @property
    def is_number(self) -> bool:
        """Whether it is the same for all tokens, and stays so."""
        return self.base is None and not self.terms

    def add(self, other: Affine, factor: float) -> None:
        """Adds a multiple of another."""
        self.constant += factor * other.constant
        if other.base is not None:
            self.base = factor * other.base if self.base is None else self.base + factor * other.base
        for cell, coefficient in other.terms.items():
            self.terms[cell] = self.terms.get(cell, 0.0) + factor * coefficient

    def at(self, cells: list[Numbers], tokens: int) -> Numbers:
        """Its values now."""
        total = np.full(tokens, self.constant)
        if self.base is not None:
            total += self.base[:tokens]
        for cell, factor in self.terms.items():
            total += factor * cells[cell][:tokens]
        return total


@dataclass(frozen=True, slots=True)
class Frame:
    """The tokens of a stream: which of their numbers are cells, and which slots change without being cells."""

    residual: Residual
    cells: Mapping[tuple[str, int], int]  # slot and column -> number of the cell
    stale: frozenset[str]

    def affine(self, row: Row) -> Affine:
        """What a row of a matrix gives for every token."""
        found, constants = Affine(), []
        for slot, column, coefficient in row:
            cell = self.cells.get((slot, column))
            if cell is not None:
                found.terms[cell] = found.terms.get(cell, 0.0) + coefficient
                continue
            if slot in self.stale:
                raise NotAffine(slot)
            held = self.residual.slot(slot)
            if isinstance(held, UniformSlot):
                constants.append(coefficient * float(held.row[0, column]))
                continue
            part = padded(held.column(column).numpy()) * coefficient
            found.base = part if found.base is None else found.base + part
        found.constant = fsum(constants)
        return found


def padded(numbers: Numbers) -> Numbers:
    """The numbers, and zeros up to a multiple of the block."""
    out = np.zeros(up(len(numbers), BLOCK))
    out[: len(numbers)] = numbers
    return out


def rows_of(narrow: NarrowMatrices, residual: Residual, name: str, known: dict[Any, Any]) -> tuple[Row, ...]:
    """The rows of a matrix of a lens, each as the columns it reads; `known` remembers them."""
    key = ("rows", name)
    if key not in known:
        owner = {c: slot for slot in residual.stream.slots for c in range(slot.offset, slot.offset + slot.width)}
        places = [(owner[c].name, c - owner[c].offset) for c in narrow.columns]
        known[key] = tuple(_row(places, row) for row in narrow.matrices[name].tolist())
    return cast(tuple[Row, ...], known[key])


def _row(places: list[tuple[str, int]], row: Iterable[float]) -> Row:
    return tuple((*place, value) for place, value in zip(places, row, strict=True) if value)
