"""Parameters -> the tensors of a program: every entry that follows from them is its formula, all computed at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from weftc.core.tied import RECIPROCAL, AppliedFunction, Factor, Formula
from weftc.emit.matrices import Array

FUNCTIONS: Mapping[str, Any] = {
    RECIPROCAL: torch.reciprocal,
    "log": torch.log,
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
}


class _Sums:
    """Formulas over the same factors as two matrices: products of powers, and sums of those."""

    def __init__(self, formulas: Sequence[Formula], factors: Sequence[Factor]) -> None:
        place = {factor: n for n, factor in enumerate(factors)}
        products = sorted({powers for formula in formulas for powers, _ in formula}, key=repr)
        row = {powers: n for n, powers in enumerate(products)}
        powers_ = np.zeros((len(products), len(factors)))
        for n, powers in enumerate(products):
            for factor, power in powers:
                powers_[n, place[factor]] = power
        sums = np.zeros((len(formulas), len(products)))
        for n, formula in enumerate(formulas):
            for powers, c in formula:
                sums[n, row[powers]] = float(c)
        self.powers, self.sums = torch.from_numpy(powers_), torch.from_numpy(sums)

    def __call__(self, factors: Tensor) -> Tensor:
        return self.sums @ torch.pow(factors, self.powers).prod(1)


@dataclass(frozen=True, slots=True)
class _Entries:
    """Where one tensor of the program stands in one flat array, and what it is without its formulas."""

    start: int
    shape: tuple[int, ...]


class TiedTensors:
    """The tensors of a program as functions of parameters; computed in float64."""

    def __init__(self, arrays: Mapping[str, Array], floats: Mapping[float, Formula], names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.entries: dict[str, _Entries] = {}
        self.fixed: dict[str, Tensor] = {}
        formulas: dict[Formula, int] = {}
        base: list[Array] = []
        places: list[int] = []
        which: list[int] = []
        start = 0
        for name, array in arrays.items():
            flat = np.asarray(array, dtype=np.float64).reshape(-1)
            found = [(n, floats[value]) for n, value in enumerate(flat.tolist()) if value in floats]
            if not found:
                self.fixed[name] = torch.from_numpy(np.array(array, dtype=np.float64))
                continue
            self.entries[name] = _Entries(start, array.shape)
            base.append(flat)
            places += [start + n for n, _ in found]
            which += [formulas.setdefault(formula, len(formulas)) for _, formula in found]
            start += len(flat)
        self.base = torch.from_numpy(np.concatenate([*base, np.zeros(0)]))
        self.places, self.which = torch.tensor(places, dtype=torch.long), torch.tensor(which, dtype=torch.long)
        # functions of formulas become factors themselves, innermost first
        self.factors: list[Factor] = list(self.names)
        self.applied: list[tuple[str, _Sums]] = []
        for formula in formulas:
            self._prepare(formula)
        self.sums = _Sums(list(formulas), self.factors)

    def _prepare(self, formula: Formula) -> None:
        for powers, _ in sorted(formula, key=repr):
            for factor, _ in powers:
                if isinstance(factor, AppliedFunction) and factor not in self.factors:
                    self._prepare(factor.formula)
                    self.applied.append((factor.function, _Sums([factor.formula], self.factors)))
                    self.factors.append(factor)

    def __call__(self, values: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        """The tensors that change, for parameters in the order of `names`."""
        factors = values
        for function, inside in self.applied:
            factors = torch.cat([factors, FUNCTIONS[function](inside(factors))])
        flat = self.base.index_put((self.places,), self.sums(factors)[self.which]).to(dtype)
        return {
            name: flat[one.start : one.start + int(np.prod(one.shape, dtype=np.int64))].view(one.shape)
            for name, one in self.entries.items()
        }
