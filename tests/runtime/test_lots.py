"""Tokens of joined problems side by side: nothing is lost, nothing is counted twice, tiles keep to their size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from weftc_runtime.machines.batching import Lot, firsts, lot, runs, tiles


def starts(*sizes: int) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0)


@pytest.mark.parametrize("sizes", [(3, 3, 3), (1, 5, 2, 5)])
def test_rows_come_back_as_they_went(sizes: tuple[int, ...]) -> None:
    places = starts(*sizes)
    values = torch.arange(float(places[-1]))[:, None]
    for numbers in (slice(0, len(sizes)), slice(1, 3), torch.tensor([2, 0])):
        found = lot(places, numbers)
        mine = values[found.rows]
        beside = found.spread(mine)
        assert torch.equal(found.gathered(beside), mine)
        for at, number in enumerate(torch.arange(len(sizes))[numbers].tolist()):
            own = values[places[number] : places[number + 1]]
            assert torch.equal(beside[at, : len(own)], own)
            assert bool((beside[at, len(own) :] == own[-1]).all())  # the last one stands in
            assert found.empty is None or int(found.empty[at].sum()) == found.size - len(own)


def test_the_first_token_of_each() -> None:
    found = firsts(starts(4, 1, 2), torch.tensor([2, 0]))
    assert isinstance(found.rows, Tensor)
    assert (found.rows.tolist(), found.size) == ([5, 0], 1)


def test_equal_problems_make_tiles_of_neighbours() -> None:
    many = torch.full((7,), 10)
    assert list(tiles(many, torch.full((7,), 3), 60)) == [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 7)]


def test_every_problem_is_in_one_tile_and_tiles_keep_to_their_size() -> None:
    chance = torch.Generator().manual_seed(0)
    queries, keys = torch.randint(1, 60, (50,), generator=chance), torch.randint(1, 60, (50,), generator=chance)
    seen: list[int] = []
    for found in tiles(queries, keys, 2000):
        if isinstance(found, int):
            assert queries[found] * keys[found] > 2000
            seen.append(found)
            continue
        assert len(queries[found]) * queries[found].max() * keys[found].max() <= 2000
        seen += torch.arange(50)[found].tolist()
    assert sorted(seen) == list(range(50))


@pytest.mark.parametrize("rows", [slice(0, 9), slice(2, 6), slice(3, 4), torch.tensor([8, 0, 1, 0, 4, 5, 8])])
def test_rows_fall_into_runs_of_their_problems(rows: slice | Tensor) -> None:
    places = starts(3, 1, 5)
    numbers, counts = runs(places, rows)
    owner = torch.bucketize(torch.arange(9)[rows], places[1:], right=True)
    assert torch.equal(torch.arange(3)[numbers].repeat_interleave(counts), owner)
    assert int(counts.min()) > 0
    assert len(Lot.of(rows, counts).gathered(Lot.of(rows, counts).spread(owner))) == len(owner)
