"""Best keys from minima of rectangles: what is certain is what exact arithmetic finds, whatever data and blocks."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from planned_cases import threads
from weftc_runtime.kernels import minima, nearest
from weftc_runtime.kernels.minima import Rectangle, Room, arranged, block_rows, even
from weftc_runtime.kernels.nearest import Found, Queries, as_stored, ready

CPU = torch.device("cpu")


def copied(kind: str, data: Tensor, blocks: list[slice]) -> Queries:
    """Queries as they are made of features that are not read where they lie."""
    wide = data.to(torch.float64)
    centre = wide.mean(0) if kind == "l2" else torch.zeros_like(wide[0])
    return ready(kind, lambda rows: (wide[rows], None), blocks, centre, float((wide - centre).abs().max()))


def certain(found: Found) -> Tensor:
    sure = torch.ones(len(found.index), dtype=torch.bool)
    if found.doubt is not None:
        sure[found.doubt] = False
    return sure


def whole_scores(kind: str, data: Tensor, keys: Tensor) -> Tensor:
    """Scores of small whole numbers, without rounding; small is good."""
    x, k = data.to(torch.int64), keys.to(torch.int64)
    return ((x[:, None] - k) ** 2).sum(2) if kind == "l2" else -(x[:, None] * k).sum(2)


# ---------------------------------------------------------------------- rectangles
@pytest.mark.parametrize("keys", [*range(1, 40), 64, 100, 127, 256, 1000, 1023, 1024])
def test_rectangles_hold_all_keys_and_every_row_and_column_can_be_left_out(keys: int) -> None:
    rows, columns = arranged(keys)
    assert rows >= 2
    assert columns >= 2
    assert keys <= rows * columns <= keys + max(3, keys // 8)
    assert block_rows(keys) * (rows + columns) <= minima.NUMBERS


@settings(max_examples=60, deadline=None)
@given(data=st.data(), keys=st.integers(1, 30), queries=st.integers(1, 90), scores=st.sampled_from([1, 64, 1 << 18]))
def test_best_and_second_best_are_those_of_all_scores(
    data: st.DataObject, keys: int, queries: int, scores: int
) -> None:
    number = st.integers(0, 40)
    table = torch.tensor(data.draw(st.lists(number, min_size=keys, max_size=keys)), dtype=torch.float32)
    block = torch.tensor(data.draw(st.lists(number, min_size=queries, max_size=queries)), dtype=torch.float32)
    bias = torch.tensor(data.draw(st.lists(number, min_size=keys, max_size=keys)), dtype=torch.float64)
    best, second, name = Rectangle.of(table[:, None], bias, CPU).look(block[:, None], 1.0, Room(CPU, scores))
    exact = (block[:, None] * table + bias + 1).to(torch.float32)
    least = exact.topk(min(2, keys), 1, largest=False).values
    near = torch.full((queries,), 2.0**-20)
    assert torch.all((best - least[:, 0]).abs() <= near * least[:, 0])
    assert torch.all((second - least[:, -1]).abs() <= near * least[:, -1] if keys > 1 else second > 2.0**99)
    clear = second - best > 0.5
    assert torch.equal(name[clear].to(torch.int64), exact.argmin(1)[clear])


@pytest.mark.parametrize(
    ("rows", "size", "times"), [(1, 5, 1), (100, 7, 2), (1000, 300, 2), (12345, 1024, 3), (9, 0, 4)]
)
def test_parts_hold_every_row_once(rows: int, size: int, times: int) -> None:
    parts = even(rows, size, times)
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(rows))


# ---------------------------------------------------------------------- certificates
@pytest.mark.parametrize("kind", ["l2", "dot"])
@pytest.mark.parametrize("keys", [1, 2, 3, 10, 64, 1000, 1030, 2100])
@pytest.mark.parametrize("count", [1, 2])
def test_whole_numbers_with_ties_and_twins(kind: str, keys: int, count: int) -> None:
    generator = torch.Generator().manual_seed(keys)
    data = torch.randint(-6, 7, (700, 3), generator=generator).to(torch.float32)
    table = torch.randint(-6, 7, (keys, 3), generator=generator).to(torch.float64)
    if keys > 2:
        table[-1] = table[0]
    scores = whole_scores(kind, data, table)
    least = scores.topk(min(2, keys), 1, largest=False).values
    alone = least[:, 0] != least[:, -1] if keys > 1 else torch.ones(len(data), dtype=torch.bool)
    with threads(count):
        for size in (1, 97, 1 << 12):
            for queries in (as_stored(kind, data, even(700, size, count)), copied(kind, data, even(700, size, count))):
                assert queries is not None
                found = nearest.nearest(queries, table, None)
                sure = certain(found)
                assert not bool((sure & ~alone).any())
                assert bool((sure == alone).all())
                assert torch.equal(found.index[sure].to(torch.int64), scores.argmin(1)[sure])


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from(["l2", "dot"]),
    width=st.integers(1, 6),
    offset=st.sampled_from([0.0, 1.0, 1e3]),
    scale=st.sampled_from([1.0, 2.0**-15, 2.0**15, 2.0**-60, 2.0**60]),
    size=st.sampled_from([1, 3, 64]),
)
def test_what_is_certain_of_stored_numbers_is_true(
    data: st.DataObject, kind: str, width: int, offset: float, scale: float, size: int
) -> None:
    near = st.one_of(st.integers(-3, 3).map(float), st.floats(-4, 4, width=32), st.just(1 + 2.0**-22))
    row = st.lists(near, min_size=width, max_size=width)
    rows = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=10)), dtype=torch.float32)
    points = (rows + offset) * scale
    keys = (torch.tensor(data.draw(st.lists(row, min_size=1, max_size=9)), dtype=torch.float64) + offset) * scale
    stored = as_stored(kind, points, even(len(points), size))
    queries = copied(kind, points, even(len(points), size)) if stored is None else stored
    found = nearest.nearest(queries, keys, None)
    for at in certain(found).nonzero()[:, 0].tolist():
        point = [Fraction(value) for value in points[at].tolist()]
        scores = []
        for key in keys.tolist():
            pairs = list(zip(point, map(Fraction, key), strict=True))
            scores.append(sum(((a - b) ** 2 if kind == "l2" else -a * b for a, b in pairs), Fraction(0)))
        assert [place for place, score in enumerate(scores) if score == min(scores)] == [int(found.index[at])]


def test_numbers_far_from_zero_or_of_unusual_size_are_copied() -> None:
    data = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    every = even(500, 128)
    assert as_stored("l2", data, every) is not None
    assert as_stored("l2", data + 1e3, every) is None
    assert as_stored("dot", data + 1e3, every) is not None
    assert as_stored("l2", data * 2.0**40, every) is None
    assert as_stored("dot", data * 2.0**-40, every) is None
    assert as_stored("l2", data * torch.nan, every) is None


def test_stored_numbers_are_read_where_they_lie() -> None:
    data = torch.randn(500, 6, generator=torch.Generator().manual_seed(0))[:, 1:4]
    queries = as_stored("l2", data, even(500, 128))
    assert queries is not None
    assert queries.blocks[0].data_ptr() == data.data_ptr()
    found = nearest.nearest(queries, data[:20].to(torch.float64), None)
    assert found.index[:20].tolist() == list(range(20))


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_few_rows_of_ordinary_data_are_in_doubt(offset: float) -> None:
    data = torch.randn(20_000, 16, generator=torch.Generator().manual_seed(1)) + offset
    every, keys = even(20_000, 5000), data[:64].to(torch.float64)
    stored = as_stored("l2", data, every)
    found = nearest.nearest(copied("l2", data, every) if stored is None else stored, keys, None)
    sure = certain(found)
    assert int((~sure).sum()) < 40
    assert torch.equal(torch.cdist(data.to(torch.float64), keys).argmin(1)[sure], found.index[sure].to(torch.int64))
