"""Slots <-> residual during a run: plain columns where a stream has no basis, products with its basis where it has one.

A basis that mixes slots costs exactness: what a slot holds is known up to `radius`, so decisions closer than that are
not settled in rational arithmetic but follow the tie rule, and are reported as undecided.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.exact.bounds import U, widen
from weftc_runtime.exact.rational import NotRational, RationalScores
from weftc_runtime.exact.sums import weighted_sum
from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.basis import Basis, basis_of
from weftc_runtime.format.program import FFN, Head, Program, Score

ROUNDINGS = 8  # per column: making the matrices, applying them, and reading the slots back


class Bases:
    """The bases of one run."""

    def __init__(self, program: Program, weights: Weights) -> None:
        self.streams = {stream.name: stream for stream in program.streams}
        self.by_stream: dict[str, Basis] = {}
        self._matrix: dict[str, Tensor] = {}
        self._inverse: dict[str, Tensor] = {}
        for stream, name in program.basis.items():
            self._matrix[stream] = weights[name]
            if weights[name].is_meta:
                self._inverse[stream] = torch.empty_like(weights[name])
                continue
            basis = self.by_stream[stream] = basis_of(weights[name].detach().cpu().numpy(), name)
            learns = weights[name].requires_grad
            inverse = torch.linalg.inv(weights[name]) if learns else torch.as_tensor(basis.inverse)
            self._inverse[stream] = inverse.to(weights[name].device)

    @property
    def blurred(self) -> bool:
        """Whether some basis mixes slots."""
        return any(not basis.exact for basis in self.by_stream.values())

    # ------------------------------------------------------------------ there and back
    def enter(self, stream: str, slots: Tensor) -> Tensor:
        """The residual that holds these slots.      (tokens, width) -> (tokens, width)"""
        return weighted_sum(slots, self._matrix[stream].T) if stream in self._matrix else slots

    def slots(self, stream: str, z: Tensor) -> Tensor:
        """All slots of a residual, side by side."""
        return weighted_sum(z, self._inverse[stream].T) if stream in self._inverse else z

    def read(self, stream: str, slot: str, z: Tensor) -> Tensor:
        """One slot."""
        columns = self.streams[stream].slot(slot).columns
        if stream not in self._inverse:
            return z[:, columns]
        return weighted_sum(z, self._inverse[stream][columns].T)

    def replaced(self, stream: str, slot: str, z: Tensor, rows: Tensor) -> Tensor:
        """The residual with another value of one slot."""
        columns = self.streams[stream].slot(slot).columns
        slots = self.slots(stream, z)
        return self.enter(stream, torch.cat([slots[:, : columns.start], rows, slots[:, columns.stop :]], 1))

    def scaled(self, stream: str, z: Tensor, factors: Tensor) -> Tensor:
        """The residual with every column of the slots times a factor."""
        return self.enter(stream, self.slots(stream, z) * factors)

    # ------------------------------------------------------------------ what is known exactly
    def column(self, stream: str, column: int) -> int:
        """The column of the residual that holds a column of the slots; of a basis that does not mix them."""
        basis = self.by_stream.get(stream)
        return column if basis is None else int(basis.places[column])

    def radius(self, stream: str, z: Tensor) -> Tensor:
        """How far a residual may be from the one that holds its slots, as they are read, without rounding."""
        basis = self.by_stream.get(stream)
        if basis is None or basis.exact:
            return torch.zeros_like(z.detach())
        there, back = (torch.as_tensor(np.abs(m), device=z.device) for m in (basis.matrix, basis.inverse))
        return widen(ROUNDINGS * (len(there) + 1) * U * (z.detach().abs() @ back.T @ there.T))

    def unchanged(self, stream: str, slot: str, old: Tensor, new: Tensor) -> bool:
        """Whether a slot is what it was, as far as the basis can tell."""
        before, after = self.read(stream, slot, old), self.read(stream, slot, new)
        basis = self.by_stream.get(stream)
        if basis is None or basis.exact:
            return torch.equal(before, after)
        back = torch.as_tensor(np.abs(basis.inverse[self.streams[stream].slot(slot).columns]), device=new.device)
        return bool(((before - after).abs() <= self.radius(stream, new) @ back.T).all())


class Blurred(RationalScores):
    """The residual of a step where no decision can be settled exactly: a basis has mixed the fields."""

    blurred = True

    def __init__(self, plain: RationalScores) -> None:
        super().__init__(plain.weights, plain.base, {})

    def value(self, level: int, stream: str, token: int, column: int) -> Fraction:
        raise NotRational("a residual with a basis that mixes its slots")

    def score(self, score: Score, level: int, head: Head, query: int, key: int) -> Fraction:
        raise NotRational("a residual with a basis that mixes its slots")

    def is_zero(self, ffn: FFN, token: int) -> bool:
        raise NotRational("a residual with a basis that mixes its slots")
