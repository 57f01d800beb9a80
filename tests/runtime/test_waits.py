"""How often a layer asks for a number that a device would have to be waited for, where torch does the work.

The budgets are what it takes now. Waits are only ever lowered: one for the errors of a step, then one for each head
that decides is the aim.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import weftc
from counting import Counting
from weftc_runtime.kernels.native import library

ROWS = 20_000
BUDGETS = {  # operations, waits
    "lloyd": (243, 8),  # choose and gather_sum
    "weighted_kmeans": (307, 15),  # gather_sum of weights that are made anew
    "soft_kmeans": (371, 5),  # soft
    "mean_shift": (153, 3),
}


def inputs(program: Any, rows: int) -> dict[str, torch.Tensor]:
    drawn = torch.tensor(np.random.default_rng(0).normal(size=(rows, 8)), dtype=torch.float32)
    found = {"x": drawn, "c": drawn[:16].clone(), "w": drawn[:, 0].abs() + 0.5}
    return {item.name: found[item.name] for item in program.inputs if item.name in found}


@pytest.mark.parametrize("spec", BUDGETS)
def test_a_layer_keeps_its_budget(spec: str) -> None:
    compiled = weftc.compile(spec, {"d": 8} if spec == "mean_shift" else {"d": 8, "k": 16})
    model = weftc.load(compiled, dtype="float32", backend="planned")
    given = inputs(compiled.program, 300 if spec == "mean_shift" else ROWS)
    seen: list[tuple[int, int]] = []

    def nothing() -> None:
        return None

    with (
        patch.object(library, "_known", nothing),
        patch.object(library, "_made", cache(nothing)),
        Counting() as counted,
    ):
        model(given, layers=7, progress=lambda *_: seen.append((counted.operations, counted.waits)))
    operations, waits = (after - before for before, after in zip(seen[-2], seen[-1], strict=True))
    assert operations <= BUDGETS[spec][0], counted.places
    assert waits <= BUDGETS[spec][1], counted.places


def test_waits_are_counted() -> None:
    numbers = torch.arange(5.0)
    with Counting() as counted:
        numbers.tolist()
        float(numbers.sum())
        numbers[numbers > 2]
        numbers + 1
    assert counted.waits == 3
    assert counted.operations >= 5
