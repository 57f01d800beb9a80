"""Sums that other engines add up: the bits of exact ones, in any order and grouping."""

from __future__ import annotations

import subprocess
import sys
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest
import torch

from weftc_runtime.errors import RunError
from weftc_runtime.exact.mergeable import MergeableSums
from weftc_runtime.exact.sums import exact_sum

EXTREMES = {
    torch.float32: [3.4e38, -3.4e38, 1e-45, 1.0, -1e-45],
    torch.float64: [1.7e308, -1.7e308, 5e-324, 1.0, 1e-300],
}


@pytest.mark.parametrize("dtype", EXTREMES)
def test_any_order_and_grouping(dtype: torch.dtype) -> None:
    drawn = np.random.default_rng(0)
    numbers = torch.tensor(drawn.normal(size=(60, 3)) * 10.0 ** drawn.integers(-30, 30, (60, 3)), dtype=dtype)
    numbers[:5, 0] = torch.tensor(EXTREMES[dtype], dtype=dtype)
    labels = torch.tensor(drawn.integers(-1, 4, 60))
    labels[:5] = 2
    wanted = torch.stack([exact_sum(numbers[labels == one].to(torch.float64), 0) for one in range(4)])
    order = torch.tensor(drawn.permutation(60))
    for cut in (1, 7, 60):
        parts = [MergeableSums.of(numbers[some], labels[some], 4) for some in order.split(cut)]
        total = reduce(add, reversed(parts))
        assert torch.equal(total.sums(), wanted)
        assert torch.equal(total.sums(), wanted)  # asked again
        assert torch.equal(total.counts, torch.bincount(labels[labels >= 0], minlength=4))


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(RunError, match="finite"):
        MergeableSums.of(torch.tensor([[torch.inf]]), torch.tensor([0]), 1)


def test_the_example_has_the_bits_of_one_run() -> None:
    example = Path(__file__).parents[2] / "examples" / "cluster" / "step.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False)
    assert done.stdout == "the same bits: True\n", done.stderr
