"""The native sums: every sum rounded once, whatever the order, the moves and the number of threads."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft_runtime.native import sums as sums_module
from weft_runtime.native.library import library
from weft_runtime.native.sums import NativeSums

NUMBERS = st.one_of(
    st.floats(-1e6, 1e6),
    st.integers(-9, 9).map(lambda i: i * 1e-9 / 7),
    st.sampled_from([1e30, -1e30, 1e-30, 2.0**-140, 0.0, 1.0]),
)


def summed(data: torch.Tensor, segments: int) -> NativeSums:
    kernels = library()
    assert kernels is not None
    found = NativeSums.of(kernels, data, segments, kernels.peak(data, 1))
    assert found is not None
    return found


@settings(max_examples=80, deadline=None)
@given(
    numbers=st.lists(NUMBERS, min_size=2, max_size=120),
    labels=st.lists(st.lists(st.integers(-1, 3), min_size=60, max_size=60), min_size=2, max_size=4),
    columns=st.integers(1, 9),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_sums_are_correctly_rounded_and_moving_rows_is_exact(
    numbers: list[float], labels: list[list[int]], columns: int, dtype: torch.dtype
) -> None:
    rows = min(60, len(numbers))
    first = torch.tensor(numbers[:rows], dtype=torch.float64).to(dtype)
    data = torch.stack([first.roll(shift) for shift in range(columns)], 1).contiguous()
    total = summed(data, 4)
    for each in [*labels, labels[0]]:
        wanted = each[:rows]
        found = total.sums(torch.tensor(wanted, dtype=torch.int32))
        if found is None:
            sizes = [abs(x) for x in data.flatten().tolist() if x]
            assert max(sizes) > min(sizes) * 2.0 ** (36 * 12 - 64)
            return
        for segment in range(4):
            for column in range(columns):
                parts = [float(data[row, column]) for row in range(rows) if wanted[row] == segment]
                assert float(found[segment, column]) == math.fsum(parts)
        assert total.counts.tolist() == [wanted.count(segment) for segment in range(4)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 3])
def test_many_rows(dtype: torch.dtype, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums_module, "cores", lambda: threads)
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(70_000, 3, generator=generator, dtype=torch.float64).pow(5).to(dtype)  # of very different sizes
    labels = torch.randint(-1, 5, (70_000,), generator=generator, dtype=torch.int32)
    total = summed(data, 5)
    for _ in range(2):
        found = total.sums(labels)
        assert found is not None
        wanted = [[math.fsum(data[labels == s, c].tolist()) for c in range(3)] for s in range(5)]
        assert found.tolist() == wanted
        labels = labels.clone()
        labels[::7] = 2


def test_numbers_too_far_apart_are_left_to_others() -> None:
    data = torch.tensor([[1e200], [1e-300]], dtype=torch.float64)
    assert summed(data, 1).sums(torch.tensor([0, 0], dtype=torch.int32)) is None
    kernels = library()
    assert kernels is not None
    assert NativeSums.of(kernels, data * 1e100, 1, 1e300) is None


def test_columns_of_a_wider_array() -> None:
    wide = torch.arange(40.0).reshape(10, 4)
    found = summed(wide[:, 1:3], 1).sums(torch.zeros(10, dtype=torch.int32))
    assert found is not None
    assert found.tolist() == [wide[:, 1:3].sum(0).tolist()]
