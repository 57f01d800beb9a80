"""What a matrix reads, as it lies in memory: columns of one stored slot, beside features that all tokens share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weftc_runtime.exact.weights import Weights
from weftc_runtime.plan.narrow import NarrowMatrices
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, UniformSlot


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Feature place[c] of token t is factor[c] * data[t, c], exactly; the other features are those of `constant`."""

    data: Tensor  # (tokens, columns), the numbers of a row side by side
    place: Tensor  # (columns,)
    factor: Tensor  # (columns,), powers of two
    constant: Tensor  # (features,), 0 at `place`
    plain: bool = field(init=False)  # the features are the stored numbers and nothing else
    aside: Tensor = field(init=False)  # (features,), true where a feature is constant

    def __post_init__(self) -> None:
        aside = torch.ones(len(self.constant), dtype=torch.bool)
        aside[self.place] = False
        object.__setattr__(self, "aside", aside)
        plain = len(self.place) == len(self.constant) and bool((self.factor == 1).all())
        object.__setattr__(self, "plain", plain)


def stored(residual: Residual, narrow: NarrowMatrices, weights: Weights, names: Sequence[str]) -> Stored | None:
    """The features that some matrices of a lens make, side by side; None where they must be computed."""
    place: list[int] = []
    factor: list[float] = []
    inner: list[int] = []
    source: tuple[str, DenseSlot] | None = None
    constant: list[float] = []
    for name in names:
        if not weights.copies(name):
            return None
        for column, coefficient in weights.selected(name):
            feature = len(constant)
            constant.append(0.0)
            if coefficient == 0:
                continue
            at = narrow.columns[column]
            slot = next(s for s in residual.stream.slots if s.offset <= at < s.offset + s.width)
            if slot.role == "derived":
                return None
            held = residual.slot(slot.name)
            if isinstance(held, UniformSlot):
                constant[feature] = float(held.row[0, at - slot.offset]) * coefficient
                continue
            if not isinstance(held, DenseSlot) or (source is not None and source[0] != slot.name):
                return None
            source = (slot.name, held)
            place.append(feature)
            factor.append(coefficient)
            inner.append(at - slot.offset)
    if source is None or inner != list(range(inner[0], inner[0] + len(inner))):
        return None
    data = source[1].value[:, inner[0] : inner[0] + len(inner)]
    if data.stride(1) != 1 or data.dtype not in (torch.float32, torch.float64):
        return None
    factors, constants = (torch.tensor(each, dtype=torch.float64, device=data.device) for each in (factor, constant))
    return Stored(data, torch.tensor(place), factors, constants)
