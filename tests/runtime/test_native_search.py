"""The native search: what it calls certain is true in rational arithmetic, with and without bounds, on awkward data."""

from __future__ import annotations

import subprocess
from ctypes import c_float
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import weftc
from weftc_runtime.errors import Uncovered
from weftc_runtime.kernels.native import building
from weftc_runtime.kernels.native.library import Library, address, library
from weftc_runtime.kernels.nearest import Found
from weftc_runtime.machines import search as search_module
from weftc_runtime.machines.search import Search
from weftc_runtime.machines.stored import Stored


@pytest.fixture(scope="module")
def kernels() -> Library:
    found = library()
    assert found is not None, "the tests need a C++ compiler"
    return found


def searched(kernels: Library, data: Tensor, kind: str) -> Search:
    """A search over stored rows."""
    columns = data.shape[1]
    ones, zeros = torch.ones(columns, dtype=torch.float64), torch.zeros(columns, dtype=torch.float64)
    stored = Stored(data, torch.arange(columns), ones, zeros)
    return Search(kernels, stored, kind == "l2", kernels.peak(data, 1))


def bounded(kernels: Library, data: Tensor) -> Search:
    """A search that keeps bounds whether they pay or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "BOUNDS", search_module.ALWAYS)
        return searched(kernels, data, "l2")


def doubts(found: Found) -> set[int]:
    return set() if found.doubt is None else set(found.doubt.tolist())


def exact_best(kind: str, query: Tensor, keys: Tensor) -> list[int]:
    """All keys with the best score, in rational arithmetic."""
    scores = []
    for key in keys.tolist():
        pairs = [(Fraction(a), Fraction(b)) for a, b in zip(query.tolist(), key, strict=True)]
        scores.append(sum((-((a - b) ** 2) if kind == "l2" else a * b for a, b in pairs), Fraction(0)))
    return [index for index, score in enumerate(scores) if score == max(scores)]


def check(kind: str, data: Tensor, keys: Tensor, found: Found, first: bool) -> None:
    for row in sorted(set(range(len(data))) - doubts(found)):
        best = exact_best(kind, data[row].double(), keys)
        assert int(found.index[row]) == best[0]
        assert first or len(best) == 1


@settings(max_examples=50, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from(["l2", "dot"]),
    width=st.integers(1, 19),
    offset=st.sampled_from([0.0, 1e3, 1e6]),
    scale=st.sampled_from([1.0, 2.0**-60, 2.0**70]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    first=st.booleans(),
)
def test_what_is_certain_is_true(
    data: st.DataObject, kind: str, width: int, offset: float, scale: float, dtype: torch.dtype, first: bool
) -> None:
    kernels = library()
    assert kernels is not None
    near = st.one_of(st.integers(-3, 3).map(float), st.floats(-4, 4, allow_nan=False), st.just(1 + 2.0**-22))
    row = st.lists(near, min_size=width, max_size=width)
    queries = (torch.tensor(data.draw(st.lists(row, min_size=1, max_size=40))).double() + offset).mul(scale).to(dtype)
    found = searched(kernels, queries, kind)
    for _ in range(3):
        keys = (torch.tensor(data.draw(st.lists(row, min_size=1, max_size=9))).double() + offset) * scale
        check(kind, queries, keys, found.find(keys, None, first=first), first)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 20),
    count=st.integers(2, 12),
    step=st.sampled_from([0.0, 1e-9, 1e-3, 0.3]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_bounds_carried_along_never_keep_a_wrong_key(
    seed: int, width: int, count: int, step: float, dtype: torch.dtype
) -> None:
    kernels = library()
    assert kernels is not None
    generator = torch.Generator().manual_seed(seed)
    data = torch.randn(60, width, generator=generator, dtype=torch.float64).to(dtype)
    data[:20] = data[20:40]  # equal rows
    keys = data[:count].double().clone()  # keys on rows: distance zero, and equal keys
    keys[-1] = keys[0]
    found = bounded(kernels, data)
    moving(found, data, keys, step, generator)
    assert found.last.carried


def moving(found: Search, data: Tensor, keys: Tensor, step: float, generator: torch.Generator) -> None:
    """Searches while the keys move, checking every answer."""
    for _ in range(6):
        result = found.find(keys, None)
        check("l2", data, keys, result, False)
        for at in doubts(result):  # as the caller settles them
            result.index[at] = exact_best("l2", data[at].double(), keys)[0]
        keys = keys + step * torch.randn(keys.shape, generator=generator, dtype=torch.float64)


def test_bounds_save_the_scan_and_give_the_same_labels(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(200, 8, generator=generator) * 10
    data = centres[torch.randint(0, 200, (5000,), generator=generator)] + torch.randn(5000, 8, generator=generator)
    carrying = bounded(kernels, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "BOUNDS", search_module.NEVER)
        plain = searched(kernels, data, "l2")
    scanned: list[int] = []
    keys = centres.double()
    for _ in range(5):
        assert torch.equal(carrying.find(keys, None).index, plain.find(keys, None).index)
        scanned.append(carrying.last.scanned)
        assert not plain.last.carried
        keys = keys + 0.01 * torch.randn(keys.shape, generator=generator, dtype=torch.float64)
    assert scanned[0] == 5000
    assert max(scanned[1:]) < 500


def test_bounds_that_do_not_pay_are_given_up_and_tried_again(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(2000, 16, generator=generator)
    found = searched(kernels, data, "l2")
    carried = []
    for _ in range(20):
        result = found.find(torch.randn(40, 16, generator=generator).double(), None)  # keys that jump
        assert len(result.index) == len(data)
        carried.append(bool(found.last.carried))
    assert 1 <= sum(carried) <= 4
    assert not any(one and other for one, other in pairwise(carried))


def test_most_rows_of_ordinary_data_are_certain(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(0)
    for kind in ("l2", "dot"):
        data = torch.randn(5000, 8, generator=generator, dtype=torch.float64) + (100 if kind == "l2" else 0)
        keys = torch.randn(3000, 8, generator=generator, dtype=torch.float64) + (100 if kind == "l2" else 0)
        found = searched(kernels, data, kind).find(keys, None)
        scores = (
            -torch.cdist(data, keys, compute_mode="donot_use_mm_for_euclid_dist") if kind == "l2" else data @ keys.T
        )
        assert len(doubts(found)) < 5
        assert torch.equal(scores.argmax(1).to(torch.int32), found.index)


def test_errors_of_features_and_of_keys_are_counted(kernels: Library) -> None:
    data, keys = torch.tensor([[0.0], [0.9]]).double(), torch.tensor([[-1.0], [1.2]]).double()
    for error, wanted in ((0.0, set()), (0.2, {0}), (2.0, {0, 1})):
        columns = torch.arange(1), torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        found = Search(kernels, Stored(data, *columns), True, kernels.peak(data, 1), slack=error)
        assert doubts(found.find(keys, None)) == wanted
        assert doubts(searched(kernels, data, "l2").find(keys, torch.full_like(keys, error))) == wanted


def test_whole_numbers_are_decided_without_doubt_and_the_first_of_equals_wins(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(3)
    data = torch.randint(0, 4, (400, 3), generator=generator).float()
    keys = data[:30].double()
    found = searched(kernels, data, "l2")
    assert found.whole
    result = found.find(keys, None, first=True)
    assert result.doubt is None
    check("l2", data, keys, result, True)
    assert doubts(found.find(keys, None, first=False))  # shared ties are the caller's


def test_constant_features_and_factors_are_part_of_the_score(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(4)
    data = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    factor, constant = torch.tensor([2.0, -0.5]).double(), torch.tensor([0.0, 0.7, 0.0]).double()
    keys = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    features = torch.stack([data[:, 0] * 2, torch.full((300,), 0.7).double(), data[:, 1] * -0.5], 1)
    stored = Stored(data, torch.tensor([0, 2]), factor, constant)
    found = Search(kernels, stored, False, kernels.peak(data, 1)).find(keys, None)
    check("dot", features, keys, found, False)
    stored = Stored(data, torch.tensor([0, 2]), torch.ones(2).double(), constant)
    features = torch.stack([data[:, 0], torch.full((300,), 0.7).double(), data[:, 1]], 1)
    found = Search(kernels, stored, True, kernels.peak(data, 1)).find(keys, None)
    check("l2", features, keys, found, False)


def test_all_rows_may_be_in_doubt(kernels: Library) -> None:
    data = torch.full((100, 2), 0.1)
    result = searched(kernels, data, "l2").find(torch.full((4, 2), 0.25).double(), None)
    assert doubts(result) == set(range(100))


def test_keys_far_out_are_left_to_the_caller(kernels: Library) -> None:
    data = torch.tensor([[0.5], [0.25]]).double()
    result = searched(kernels, data, "dot").find(torch.tensor([[1.0], [-1.0]]).double(), None)
    assert doubts(result) == set()
    result = searched(kernels, data, "l2").find(torch.tensor([[1.0], [2.0**40]]).double(), None)
    assert doubts(result) == {0, 1}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_no_number_of_threads_changes_a_label(kernels: Library, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(5)
    data = torch.randn(30_000, 5, generator=generator)
    keys = data[:17].double()
    expected = searched(kernels, data, "l2").find(keys, None).index
    monkeypatch.setattr(search_module, "cores", lambda: threads)
    assert torch.equal(searched(kernels, data, "l2").find(keys, None).index, expected)


# ---------------------------------------------------------------------- the first look in 16 bits
@pytest.mark.parametrize("kind", ["l2", "dot"])
@pytest.mark.parametrize("width", [8, 11, 16, 40])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_a_first_look_settles_most_rows_and_none_wrongly(
    kernels: Library, kind: str, width: int, offset: float
) -> None:
    generator = torch.Generator().manual_seed(width)
    data = torch.randn(700, width, generator=generator) + offset
    keys = torch.randn(23, width, generator=generator).double() + offset
    found = searched(kernels, data, kind)
    result = found.find(keys, None)
    assert found.last.looked
    if kind == "l2" or not offset:
        assert found.last.refined < 0.1 * len(data)
    lead = torch.cdist(data.double(), keys) if kind == "l2" else -(data.double() @ keys.T)
    two = lead.topk(2, largest=False).values
    close = (two[:, 1] - two[:, 0]).argsort()[:25]  # the rows that are easiest to get wrong
    settled = torch.tensor([row for row in close.tolist() if row not in doubts(result)])
    check(kind, data[settled], keys, Found(result.index[settled], None, 0), False)


def test_rows_between_two_keys_are_looked_at_again(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(12, 16, generator=generator).double()
    middle = (keys[:1] + keys[1:2]) / 2
    away = keys[1] - keys[0]
    for exponent in range(8, 40, 4):  # farther and farther from the middle, on both sides
        side = torch.tensor([2.0**-exponent, -(2.0**-exponent)]).double()
        data = (middle + side[:, None] * away).repeat(64, 1)
        found = searched(kernels, data, "l2")
        result = found.find(keys, None)
        check("l2", data[:4], keys, Found(result.index[:4], result.doubt, 0), False)
        if exponent >= 16:
            assert found.last.refined == len(data)


def test_a_first_look_that_settles_little_is_given_up(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(2)
    data = torch.randn(2000, 16, generator=generator)
    keys = data[:1].double() + 1e-6 * torch.randn(30, 16, generator=generator).double()
    found = searched(kernels, data, "l2")
    for looks in (True, False, False):
        result = found.find(keys, None)
        assert bool(found.last.looked) == looks
        check("l2", data[:20], keys, Found(result.index[:20], result.doubt, 0), False)


def test_one_long_row_does_not_overflow_the_first_look(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(3)
    data = torch.randn(5000, 64, generator=generator) / 8
    data[77] = torch.where(
        torch.arange(64) % 2 == 0, 4.0, -4.0
    )  # 32 times as long as the others, and not in the sample
    keys = torch.cat([data[77:78] * (1.5 / 32), data[:40]]).double()  # its product with this one leaves 32 bits
    rows = slice(70, 90)
    result = searched(kernels, data, "l2").find(keys, None)
    check("l2", data[rows], keys, Found(result.index[rows], None, 0), False)
    assert int(result.index[77]) == 0


def test_bounds_from_a_first_look_hold(kernels: Library) -> None:
    generator = torch.Generator().manual_seed(6)
    data, keys = torch.randn(3000, 24, generator=generator), torch.randn(40, 24, generator=generator).double()
    found = bounded(kernels, data)
    index = found.find(keys, None).index.long()
    distances = torch.cdist(data.double(), keys, compute_mode="donot_use_mm_for_euclid_dist")
    own = distances.gather(1, index[:, None])[:, 0]
    others = distances.scatter(1, index[:, None], torch.inf).amin(1)
    assert found.last.looked
    upper, lower = ((c_float * len(data)).from_address(at) for at in (found.last.upper, found.last.lower))
    above, below = (torch.frombuffer(numbers, dtype=torch.float32) for numbers in (upper, lower))
    assert bool((above >= own).all())
    assert bool((below <= others).all())
    assert float((above - own).amax()) < 1e-2  # and are worth something
    assert float((others - below).amax()) < 1e-2


@pytest.mark.parametrize("kind", ["l2", "dot"])
@pytest.mark.parametrize("many", [1019, 1025, 2500, 5003])
def test_names_of_many_keys_start_anew(kernels: Library, kind: str, many: int) -> None:
    generator = torch.Generator().manual_seed(many)
    data = torch.randn(300, 8, generator=generator)
    keys = torch.randn(many, 8, generator=generator).double()
    keys[-3:] = keys[:3]  # the same key in the first span and in the last
    found = searched(kernels, data, kind)
    result = found.find(keys, None)
    assert found.last.looked
    scores = -torch.cdist(data.double(), keys) if kind == "l2" else data.double() @ keys.T
    two = scores.topk(2)
    lead = two.values[:, 0] - two.values[:, 1]
    certain = torch.tensor([row not in doubts(result) for row in range(len(data))])
    assert torch.equal(result.index[certain].long(), two.indices[certain, 0])
    assert not bool(certain[lead == 0].any())
    assert bool(certain[lead > 1e-5].all())
    for row in (lead + torch.where(certain, 0.0, torch.inf)).argsort()[:5].tolist():
        near = scores[row].topk(10).indices
        assert exact_best(kind, data[row].double(), keys[near]) == [0]


TURNS = """
#include <atomic>
#include <cstdio>
#include <vector>
#include "team.h"
int main() {
  for (int threads : {1, 3})
    for (int64_t count : {0, 1, 2, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 21) + 3}) {
      std::vector<std::atomic<int>> seen(count);
      weftc::Team::run(threads, [&](weftc::Team& team) { team.share(count, [&](int64_t at) { seen[at]++; }); });
      for (auto& many : seen)
        if (many != 1) return 1;
    }
  return 0;
}
"""


def test_a_task_may_have_more_pieces_than_a_ticket_has_room_for(tmp_path: Path) -> None:
    (tmp_path / "turns.cpp").write_text(TURNS)
    headers = Path(building.__file__).parent
    command = [building._compiler(), "-O1", "-std=c++17", "-pthread", "-I", str(headers), "turns.cpp", "-o", "turns"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "turns"], check=True, timeout=60)


@pytest.mark.parametrize("scale", [1e37, 1e38, 1e39, 1e50, 1e100, 1e139])
@pytest.mark.parametrize("backend", ["auto", "planned"])
def test_data_beyond_the_range_of_float32_are_searched_in_float64(scale: float, backend: str) -> None:
    made = weftc.compile("lloyd", {"d": 2, "k": 3}, layers=3)
    x = scale * (3 + np.random.default_rng(0).normal(size=(400, 2)))
    found, meant = (weftc.load(made, backend=one)(x=x, c=x[:3]) for one in (backend, "reference"))
    assert found["centers"].equal(meant["centers"])
    assert found["labels"] == meant["labels"]


def test_native_kernels_are_given_memory_of_the_cpu_alone() -> None:
    assert address(torch.zeros(1)) != 0
    with pytest.raises(Uncovered, match="native kernels run on the CPU, not on meta"):
        address(torch.zeros(1, device="meta"))
    runtime = Path(building.__file__).parents[2]
    found = {path.name: path.read_text().count(".data_ptr()") for path in runtime.rglob("*.py")}
    identities = {
        "choose.py": 1,
        "native_machine.py": 1,
        "problem_cache.py": 1,
    }  # which array it is, not where its numbers are
    assert {name: many for name, many in found.items() if many} == {"library.py": 1, **identities}


@pytest.mark.parametrize("scale", [1e154, 1e160, 1e300])
@pytest.mark.parametrize("style", ["l2", "dot"])
def test_beyond_the_range_of_squares_decisions_are_settled_on_every_backend(scale: float, style: str) -> None:
    given = {"x": [[scale], [3 * scale]], "c": [[scale], [4 * scale]]}
    for backend in ("reference", "planned", "auto"):
        out = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}, scores=style), backend=backend)(given)
        assert out["labels"].indices.tolist() == [0, 1]
        assert out["centers"].tolist() == [[scale], [3 * scale]]


def test_the_mean_of_a_constant_has_the_same_bits_on_both_backends() -> None:
    text = "algorithm t\ntokens i in points\n       w in others\ninputs g[i] : R, m[w] : R\nstate s[w] : R = 1\n"
    made = weftc.compile(text + "layer\n  p[i] = mean[w] g[i] where s[w] >= 0.25 else 1\noutputs p\n")
    given = {"g": np.random.default_rng(0).normal(size=50), "m": [0.0, 1.0, 0.0]}
    one, other = (weftc.load(made, backend=backend)(given)["p"] for backend in ("reference", "planned"))
    assert one.equal(other)
