"""Points and centers small enough to follow by hand, drawn ones, and batches of problems of different sizes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

POINTS = [[-3.0], [-2.0], [0.0], [2.0], [3.0]]
CENTERS = [[-1.0], [1.0]]


def data(seed: int, n: int, d: int = 2) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, d)))


def ragged(places: list[list[int]], width: int, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    whole = torch.full((len(parts), width, parts[0].shape[1]), 77.0, dtype=torch.float64)
    mask = torch.zeros(len(parts), width, dtype=torch.bool)
    for number, (rows, part) in enumerate(zip(places, parts, strict=True)):
        whole[number, rows] = part.double()
        mask[number, rows] = True
    return whole, mask
