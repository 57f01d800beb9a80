"""The native sums: every sum rounded once, whatever the order, the moves and the number of threads."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weftc_runtime.kernels.native import sums as sums_module
from weftc_runtime.kernels.native.library import library
from weftc_runtime.kernels.native.sums import NativeSums

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


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(NUMBERS, min_size=24, max_size=24),
    rounds=st.lists(
        st.tuples(
            st.lists(st.integers(-1, 1), min_size=24, max_size=24),
            st.lists(st.sampled_from([1.0, 0.1, -0.3, 0.0, 3e-7, 1e5]), min_size=24, max_size=24),
        ),
        min_size=2,
        max_size=4,
    ),
)
def test_weights_and_labels_that_are_counted_on(
    numbers: list[float], rounds: list[tuple[list[int], list[float]]]
) -> None:
    """Products are rounded once, their sums once; rows move when their label changes, or their weight alone."""
    kernels = library()
    assert kernels is not None
    data = torch.tensor(numbers, dtype=torch.float64).reshape(12, 2)
    base = (torch.arange(12) // 3 * 2).to(torch.int32)  # four groups of two segments
    total = NativeSums.of(kernels, data, 8, 1e36, base)
    assert total is not None
    for labels, factors in rounds:
        wanted, weights = labels[:12], torch.tensor(factors[:12], dtype=torch.float64)
        found = total.sums(torch.tensor(wanted, dtype=torch.int32), weights)
        if found is None:
            return  # too many bits apart: others add them
        for segment in range(8):
            rows = [row for row in range(12) if wanted[row] >= 0 and wanted[row] + int(base[row]) == segment]
            for column in range(2):
                parts = [float(weights[row]) * float(data[row, column]) for row in rows]
                assert float(found[segment, column]) == math.fsum(parts)
            assert int(total.counts[segment]) == len(rows)


def test_means_and_what_is_empty() -> None:
    data = torch.tensor([[1.0, 2.0], [2.0, 5.0], [4.0, -1.0], [0.1, 0.2]])
    total = summed(data, 4)
    found = total.means(torch.tensor([0, 0, 2, 0], dtype=torch.int32))
    assert found is not None
    column = data[[0, 1, 3]].to(torch.float64)
    assert found[0].tolist() == [math.fsum(part) / 3 for part in column.T.tolist()]
    assert found[2].tolist() == [4.0, -1.0]
    assert found[1].tolist() == found[3].tolist() == [0.0, 0.0]
    assert total.empty == 2
    kept = found.clone()
    again = total.means(torch.tensor([3, 0, 2, 0], dtype=torch.int32))
    assert again is not None
    assert total.empty == 1
    assert torch.equal(found, kept)  # what was given stays as it is
    assert again[3].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("rows", [3000, 200_000])
def test_sums_beyond_the_whole_numbers_of_a_double(rows: int) -> None:
    """Two pieces whose sum one addition rounds, and those that need 128 bits."""
    generator = torch.Generator().manual_seed(3)
    data = torch.rand(rows, 16, generator=generator, dtype=torch.float64) + 1
    found = summed(data, 1).sums(torch.zeros(rows, dtype=torch.int32))
    assert found is not None
    assert found[0].tolist() == [math.fsum(column) for column in data.T.tolist()]


@pytest.mark.parametrize("total", [1 << 26, 1 << 40])
@pytest.mark.parametrize("rows", [300, 70_000])
def test_sums_that_have_room_for_very_many_rows(rows: int, total: int) -> None:
    """Pieces then have fewer bits, 35 or 21, and some numbers need more than two of them."""
    kernels = library()
    assert kernels is not None
    generator = torch.Generator().manual_seed(4)
    data = torch.randn(rows, 3, generator=generator, dtype=torch.float64).pow(7)
    found = NativeSums.of(kernels, data, 4, kernels.peak(data, 1), total=total)
    assert found is not None
    labels = torch.randint(-1, 4, (rows,), generator=generator, dtype=torch.int32)
    for _ in range(2):
        sums = found.sums(labels)
        assert sums is not None
        assert sums.tolist() == [[math.fsum(data[labels == s, c].tolist()) for c in range(3)] for s in range(4)]
        labels = labels.roll(1)


@pytest.mark.slow
def test_more_rows_than_64_bits_hold_the_largest_pieces_of() -> None:
    """2^27 + 3 equal numbers: their sum is one product."""
    rows, number = (1 << 27) + 3, 2.0 - 2.0**-23
    data = torch.tensor([[number]], dtype=torch.float32).expand(rows, 1)
    found = summed(data, 2).means(torch.ones(1, dtype=torch.int32).expand(rows).contiguous())
    assert found is not None
    assert found[:, 0].tolist() == [0.0, number]
