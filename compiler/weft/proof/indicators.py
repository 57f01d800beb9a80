"""Rules of numbers that are 0 or 1, and of products that are zero by convention.

Two entries of a one-hot row are never both 1, and a 0-1 number is its own square. What divides by p, or holds weights
whose mass is p, counts as zero where p is zero: a product of it with the indicator of p = 0 is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.proof.atoms import INDICATORS, Atoms
from weft.proof.polynomials import UNIT, Mono, Number, Poly

BOUND = 1_000_000  # the name of a bound token while one looks inside a sum


class Indicators(Atoms):
    """The table with these rules."""

    def settled_bits(self, mono: Mono) -> dict[int, Number] | None:
        """The powers of a monomial with 0-1 numbers to the power 1; None where it is zero."""
        powers = dict(mono)
        rows: dict[Any, int] = {}
        for a, _ in mono:
            if a not in self.special:
                continue
            atom = self.atoms[a]
            if atom.kind == "field":
                if rows.setdefault((atom.data[0], atom.data[2], atom.tokens), a) != a:
                    return None  # two entries of a one-hot row are never both 1
                powers[a] = 1
            elif atom.kind in INDICATORS:
                powers[a] = 1
                if atom.kind == "nothing" and self._vanishes(a, powers):
                    return None
        return powers

    def _vanishes(self, nothing: int, powers: Mapping[int, Number]) -> bool:
        """Whether a product is zero, by convention, where p is: it divides by p, or holds weights whose mass is p."""
        divided = self._divided.get(nothing)
        if divided is not None and powers.get(divided, 0) > 0:
            return True
        return any(nothing in self.empties_of(a) for a in powers if self.atoms[a].kind in ("weight", "sum"))

    def empties_of(self, a: int) -> frozenset[int]:
        """The indicators at which a weight, or a sum that holds one, is zero by convention."""
        if a not in self._empty_of:
            atom = self.atoms[a]
            found: frozenset[int] = frozenset()
            if atom.kind == "weight":
                choice, places = atom.data[0], atom.data[1]
                closed = self.empties.get(choice)
                if closed is not None:
                    p = self.open(closed, atom.tokens[:places])
                    found = frozenset(b for mono in p for b, _ in mono if _is_one_at(p, b))
            elif atom.kind == "sum":
                names = {**dict(enumerate(atom.tokens)), len(atom.tokens): BOUND}
                inside = self.rename_mono(atom.data[1], names, tuple(sorted(names.items())))
                found = frozenset(e for b, _ in inside if self.atoms[b].kind == "weight" for e in self.empties_of(b))
            self._empty_of[a] = found
        return self._empty_of[a]


def _is_one_at(p: Poly, bit: int) -> bool:
    """Whether p is 1 wherever this bit is."""
    left: dict[Mono, Number] = {}
    for mono, coefficient in p.items():
        rest = tuple(part for part in mono if part[0] != bit)
        left[rest] = left.get(rest, 0) + coefficient
    return {mono: c for mono, c in left.items() if c} == {UNIT: 1}
