"""Values of expressions on the side of the spec: tokens that indices stand for, rows, and where there is no value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from weftc.prover.kernel.polynomials import Poly, number


@dataclass(frozen=True, slots=True)
class SpecToken:
    """A token of a set: `place` in a fixed set, or a `name` (a number) in an open one."""

    set: str
    place: int | None
    name: int = -1


Env = Mapping[str, SpecToken]


@dataclass(frozen=True, slots=True)
class Value:
    """One row, or one per coordinate of a vector."""

    rows: tuple[Poly, ...]
    undefined: tuple[Poly, ...] = ()  # what `else` catches: there is no value where one of these is not zero
    vector: bool = False
    errors: tuple[Poly, ...] = ()  # what keys of sums lack: a run stops where one is not zero, for any of their tokens
    caught: tuple[Poly, ...] = ()  # the same about this token alone, for an `else`: some key lacks what is read of it
    loose: bool = False  # that is not known of all keys: weights with signs may add up to zero

    @property
    def missing(self) -> tuple[Poly, ...]:
        """Where a run that needs this value stops."""
        return self.undefined + self.errors

    @property
    def poly(self) -> Poly:
        return self.rows[0]


def exactly(value: float) -> Poly:
    """A float64 as the rational number it is."""
    return number(int(value) if float(value).is_integer() else Fraction(value))


def matched(a: Value, b: Value) -> tuple[tuple[Poly, ...], tuple[Poly, ...]]:
    """The rows of both, a single row repeated."""
    width = max(len(a.rows), len(b.rows))
    return (a.rows if len(a.rows) == width else a.rows * width), (b.rows if len(b.rows) == width else b.rows * width)
