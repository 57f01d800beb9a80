"""The kernels of the planned backend alone: exact segment sums, certified nearest keys, squared distances."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.exact import limbs
from weftc_runtime.exact import segments as segment
from weftc_runtime.exact.decide import EXACT, decide
from weftc_runtime.exact.distances import Squares
from weftc_runtime.exact.segments import SegmentSum
from weftc_runtime.exact.sums import rounded_sum
from weftc_runtime.format.program import Weighting
from weftc_runtime.kernels.nearest import Found, nearest, ready
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, LazySlot, UniformSlot, same, sparse
from weftc_runtime.threads import each

CPU = torch.device("cpu")
NUMBERS = st.one_of(
    st.floats(-1e6, 1e6).map(lambda x: round(x, 9)),
    st.integers(-9, 9).map(lambda i: i * 1e-9 / 7),
    st.integers(-3, 3).map(float),
)


# ---------------------------------------------------------------------- sums
@settings(max_examples=40, deadline=None)
@given(
    numbers=st.lists(NUMBERS, min_size=1, max_size=60),
    first=st.lists(st.integers(-1, 3), min_size=60, max_size=60),
    second=st.lists(st.integers(-1, 3), min_size=60, max_size=60),
)
def test_segment_sums_are_correctly_rounded_and_moving_rows_is_exact(
    numbers: list[float], first: list[int], second: list[int]
) -> None:
    values = torch.tensor(numbers, dtype=torch.float64)[:, None]
    total = SegmentSum(lambda rows: values[rows], len(values), 1, 4, CPU)
    for labels in (first, second, first):
        wanted = labels[: len(numbers)]
        found = total.sums(torch.tensor(wanted, dtype=torch.int32))[:, 0].tolist()
        assert found == [math.fsum(x for x, label in zip(numbers, wanted, strict=True) if label == s) for s in range(4)]
        assert total.counts is not None
        assert total.counts.tolist() == [wanted.count(s) for s in range(4)]


def test_sums_of_numbers_too_far_apart_are_left_to_the_reference() -> None:
    values = torch.tensor([[1e200], [1e-300]], dtype=torch.float64)
    with pytest.raises(Uncovered, match="orders of magnitude"):
        SegmentSum(lambda rows: values[rows], 2, 1, 1, CPU).sums(torch.tensor([0, 0]))


@pytest.mark.parametrize("family", ["ordinary", "many orders", "whole", "tiny", "huge", "offset", "double"])
@pytest.mark.parametrize("flushed", [1, 16, segment.FLUSHED])
@pytest.mark.parametrize("count", [1, 2])
def test_sums_of_stored_numbers_have_the_bits_of_exact_sums(
    family: str, flushed: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "FLUSHED", flushed)
    monkeypatch.setattr(limbs, "BLOCK", 97)
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(900, 3, generator=generator)
    values = {
        "ordinary": values,
        "many orders": values * 2.0 ** torch.randint(-30, 1, (900, 3), generator=generator),
        "whole": (values * 9).round(),
        "tiny": values * 2.0**-100,
        "huge": values * 2.0**100,
        "offset": values + 1e3,
        "double": torch.randn(900, 3, generator=generator, dtype=torch.float64),
    }[family]
    values[5:8] *= 2.0**-24  # rows that do not fit where others do
    total = SegmentSum(lambda rows: values[rows], 900, 3, 4, CPU)
    labels = torch.randint(-1, 4, (900,), generator=generator).to(torch.int32)
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        for moved in (0.0, 0.1, 1.0, 0.02, 0.0):
            change = torch.rand(900, generator=generator) < moved
            labels = torch.where(change, torch.randint(-1, 4, (900,), generator=generator).to(torch.int32), labels)
            found = total.sums(labels)
            for one in range(4):
                mine = values[labels == one].to(torch.float64)
                assert found[one].tolist() == [math.fsum(mine[:, column].tolist()) for column in range(3)]
                assert total.counts is not None
                assert int(total.counts[one]) == len(mine)
    finally:
        torch.set_num_threads(before)


def test_most_numbers_of_data_need_not_be_cut() -> None:
    values = torch.randn(4000, 3, generator=torch.Generator().manual_seed(4))
    values[100] *= 2.0**-24
    labels = torch.zeros(4000, dtype=torch.int32)
    cut: list[int] = []
    original = limbs.LimbSum.terms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limbs.LimbSum, "terms", lambda self, wanted: cut.append(self.rows) or original(self, wanted))
        SegmentSum(lambda rows: values[rows], 4000, 3, 1, CPU).sums(labels)
        wide = values.to(torch.float64) / 3
        SegmentSum(lambda rows: wide[rows], 4000, 3, 1, CPU).sums(labels)
    assert 1 <= cut[0] < 40
    assert cut[1] == 4000


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(-(2**53), 2**53), st.integers(-60, 60)), min_size=3, max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_a_few_terms_are_rounded_once(numbers: list[list[tuple[int, int]]]) -> None:
    terms = [torch.tensor([math.ldexp(a, b) for a, b in term], dtype=torch.float64) for term in numbers]
    assert rounded_sum(terms).tolist() == [
        math.fsum(column) for column in zip(*(t.tolist() for t in terms), strict=True)
    ]


def test_a_few_terms_that_end_in_the_middle_of_two_numbers() -> None:
    for parts in (
        [1.0, 2.0**-53],
        [1.0, 2.0**-53, 2.0**-107],
        [1.0, 2.0**-53, -(2.0**-107)],
        [1.0, 2.0**-53, 2.0**-120, -(2.0**-121)],
    ):
        terms = [torch.tensor([part], dtype=torch.float64) for part in parts]
        assert rounded_sum(terms).item() == math.fsum(parts)


# ---------------------------------------------------------------------- cores
def test_threads_stay_and_leave_the_number_of_cores_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = set(each(lambda _: (threading.get_ident(), torch.get_num_threads()), range(20), CPU))
        again = set(each(lambda _: (threading.get_ident(), torch.get_num_threads()), range(20), CPU))
        assert {cores for _, cores in first | again} == {1}
        assert len({name for name, _ in first | again}) <= 2
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 2
        with pytest.raises(ZeroDivisionError):
            each(lambda item: 1 // item, range(3), CPU)
        nested = each(lambda _: len(set(each(lambda _: threading.get_ident(), range(9), CPU))), range(4), CPU)
        assert nested == [1] * 4
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    program = """
import os, torch
from weftc_runtime.threads import each
torch.set_num_threads(2)
cpu = torch.device("cpu")
assert each(lambda item: item + 1, range(4), cpu) == [1, 2, 3, 4]
child = os.fork()
if not child:
    os._exit(0 if each(lambda item: item + 2, range(4), cpu) == [2, 3, 4, 5] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr


# ---------------------------------------------------------------------- nearest keys
def certain(found: Found) -> list[bool]:
    """For every query whether its best key is proved."""
    open_rows = set() if found.doubt is None else set(found.doubt.tolist())
    return [row not in open_rows for row in range(len(found.index))]


def exact_best(kind: str, query: list[float], keys: Tensor) -> list[int]:
    """All keys with the best score, in rational arithmetic."""
    scores = []
    for key in keys.tolist():
        pairs = [(Fraction(a), Fraction(b)) for a, b in zip(query, key, strict=True)]
        scores.append(sum((-((a - b) ** 2) if kind == "l2" else a * b for a, b in pairs), Fraction(0)))
    return [index for index, score in enumerate(scores) if score == max(scores)]


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from(["l2", "dot"]),
    width=st.integers(1, 5),
    offset=st.sampled_from([0.0, 1e3, 1e6]),
)
def test_what_is_certain_is_true(data: st.DataObject, kind: str, width: int, offset: float) -> None:
    near = st.one_of(st.integers(-3, 3).map(float), st.floats(-4, 4, allow_nan=False), st.just(1 + 2.0**-22))
    row = st.lists(near, min_size=width, max_size=width)
    queries = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=12)), dtype=torch.float64) + offset
    keys = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=9)), dtype=torch.float64) + offset
    centre = queries.mean(0) if kind == "l2" else torch.zeros(width, dtype=torch.float64)
    peak = float((queries - centre).abs().max())
    made = ready(kind, lambda rows: (queries[rows], None), [slice(0, len(queries))], centre, peak)
    found = nearest(made, keys, None)
    for query, index, sure in zip(queries.tolist(), found.index.tolist(), certain(found), strict=True):
        if sure:
            assert exact_best(kind, query, keys) == [index]


def test_most_rows_of_ordinary_data_are_certain() -> None:
    generator = torch.Generator().manual_seed(0)
    for kind in ("l2", "dot"):
        queries = torch.randn(5000, 8, generator=generator, dtype=torch.float64) + (100 if kind == "l2" else 0)
        keys = torch.randn(3000, 8, generator=generator, dtype=torch.float64) + (100 if kind == "l2" else 0)
        centre = queries.mean(0) if kind == "l2" else torch.zeros(8, dtype=torch.float64)
        peak = float((queries - centre).abs().max())
        parts = [slice(start, start + 1000) for start in range(0, 5000, 1000)]
        made = ready(kind, lambda rows: (queries[rows], None), parts, centre, peak)  # noqa: B023
        found = nearest(made, keys, None)
        scores = -torch.cdist(queries, keys) if kind == "l2" else queries @ keys.T
        sure = torch.tensor(certain(found))
        assert float(sure.double().mean()) > 0.9
        assert bool((scores.argmax(1) == found.index)[sure].all())


def test_errors_of_features_are_counted() -> None:
    queries, keys = (
        torch.tensor([[0.0], [0.9]], dtype=torch.float64),
        torch.tensor([[-1.0], [1.2]], dtype=torch.float64),
    )
    for error, wanted in ((0.0, [True, True]), (0.2, [False, True]), (2.0, [False, False])):
        radius = torch.full_like(queries, error)
        made = ready("l2", lambda rows: (queries[rows], radius[rows]), [slice(0, 2)], queries[0] * 0, 1.0)  # noqa: B023
        assert certain(nearest(made, keys, None)) == wanted


# ---------------------------------------------------------------------- distances
@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (1e6, 1.0), (-1e8, 1e-3), (3.0, 5.0), (0.0, 1e-90)])
@pytest.mark.parametrize("width", [1, 3, 40])
def test_squared_distances_do_not_cancel(offset: float, scale: float, width: int) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50, width, generator=generator, dtype=torch.float64) * scale + offset
    y = x[:30] + torch.randn(30, width, generator=generator, dtype=torch.float64) * scale * 1e-3
    squares = Squares(torch.minimum(x.amin(0), y.amin(0)), torch.maximum(x.amax(0), y.amax(0)), 10 / scale**2)
    assert not squares.direct
    found = squares.distances(squares.query(x), squares.key(y))
    for i in range(0, 50, 7):
        for j in range(0, 30, 4):
            pairs = zip(x[i].tolist(), y[j].tolist(), strict=True)
            exact = float(sum(((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs), Fraction(0)))
            # one rounding of the sum, and less than 2^-52 beside 1 in a score of ten times the distance
            assert abs(float(found[i, j]) - exact) <= 2.0**-51 * exact + 2.0**-52 * scale**2 / 10


def test_distances_that_could_show_are_formed_directly() -> None:
    low, high = torch.tensor([-1e6], dtype=torch.float64), torch.tensor([1e6], dtype=torch.float64)
    squares = Squares(low, high, 1e12)
    assert squares.direct
    one = torch.tensor([[1.0]], dtype=torch.float64)
    assert squares.distances(squares.query(one), squares.key(one + 2.0**-20)).item() == 2.0**-40


# ---------------------------------------------------------------------- decisions
def test_equal_keys_are_tied_without_computing_every_score() -> None:
    scores, asked = torch.zeros(200, 64, dtype=torch.float64), []

    def oracle(row: int, key: int) -> Fraction:
        asked.append((row, key))
        return Fraction(0)

    radius, eligible = torch.full_like(scores, 1e-9), torch.ones_like(scores, dtype=torch.bool)
    twins = torch.zeros(64, dtype=torch.int64)
    chosen, tiers = decide(Weighting("argmax"), scores, radius, eligible, oracle, twins)
    assert chosen.nonzero()[:, 1].tolist() == [0] * 200
    assert tiers.tolist() == [EXACT] * 200
    assert len(asked) == 1
    split, _ = decide(Weighting("argmax", ties="split"), scores, radius, eligible, oracle, twins)
    assert bool(split.all())


# ---------------------------------------------------------------------- slots
def test_all_forms_give_the_same_rows_and_columns() -> None:
    table = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    forms = [
        DenseSlot(table),
        IndexSlot(3, 2, torch.tensor([1, 0, 1], dtype=torch.int32)),
        IndexSlot(3, 2, torch.tensor([1, 0, 1]), torch.tensor([0, 1, 2]), torch.ones(3, dtype=torch.float64)),
        LazySlot(3, 2, lambda rows: table[rows], CPU),
    ]
    for form in forms:
        assert torch.equal(form.rows(slice(0, 3)), table)
        assert torch.equal(form.rows(torch.tensor([2, 0])), table[[2, 0]])
        assert torch.equal(form.column(1), table[:, 1])
        assert same(form, forms[0])
        assert torch.equal(sparse(form).index.to(torch.int64), torch.tensor([1, 0, 1]))
    row = UniformSlot(table[:1], 3)
    assert torch.equal(row.rows(slice(1, 3)), table[[0, 0]])
    assert not same(row, forms[0])
    empty = sparse(UniformSlot(torch.zeros(1, 2, dtype=torch.float64), 3))
    assert torch.equal(empty.rows(slice(0, 3)), torch.zeros(3, 2, dtype=torch.float64))


def test_sums_of_many_full_numbers_are_correctly_rounded() -> None:
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(4000, 3, generator=generator, dtype=torch.float64) * 1e3
    labels = torch.randint(0, 2, (4000,), generator=generator)
    found = SegmentSum(lambda rows: values[rows], 4000, 3, 2, CPU).sums(labels)
    for one in range(2):
        assert found[one].tolist() == [math.fsum(values[labels == one, c].tolist()) for c in range(3)]


def test_queries_a_rounding_away_from_the_middle_are_not_certain() -> None:
    keys = torch.tensor([[-1.0], [1.0 + 2.0**-40]], dtype=torch.float64)
    queries = torch.linspace(-1e-9, 1e-9, 101, dtype=torch.float64)[:, None]
    made = ready(
        "l2", lambda rows: (queries[rows], None), [slice(0, 101)], torch.tensor([0.3], dtype=torch.float64), 1.0
    )
    assert not any(certain(nearest(made, keys, None)))
