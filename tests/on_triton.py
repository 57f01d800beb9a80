"""The programs for GPUs, interpreted, against exact answers. Run by `test_gpu_programs.py` in a process of its own."""

from __future__ import annotations

import decimal
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import weftc
from weftc_runtime.exact.merging import as_terms
from weftc_runtime.exact.sums import exact_sum, rounded_sum
from weftc_runtime.kernels import nearest
from weftc_runtime.kernels.gpu import adds_up, is_right, is_soft, soft_error
from weftc_runtime.kernels.native import library
from weftc_runtime.kernels.triton.launch import best_keys, scan, segment_sums, soft_sums
from weftc_runtime.machines import heads_segment, heads_stream

DTYPES = (torch.float32, torch.float64)


def exactly_best(queries: Tensor, keys: Tensor, distance: bool) -> list[int]:
    """The first of the best keys, in whole numbers: all data are multiples of 2^-30 here."""
    q, k = ([[int(x) for x in row] for row in (z.double() * 2.0**30).tolist()] for z in (queries, keys))
    found = []
    for row in q:
        scores = [
            sum((a - b) ** 2 for a, b in zip(row, key, strict=True))
            if distance
            else -sum(a * b for a, b in zip(row, key, strict=True))
            for key in k
        ]
        found.append(min(range(len(k)), key=lambda at: (scores[at], at)))
    return found


def points(kind: str, queries: int, keys: int, features: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(queries + keys)
    x = torch.randn(queries, features, generator=drawn, dtype=torch.float64)
    c = torch.randn(keys, features, generator=drawn, dtype=torch.float64)
    if kind == "ties":
        x, c = torch.round(x), torch.round(c)
    if kind == "near ties":  # keys that differ by a few units of float32
        c = c[: max(1, keys // 4)].repeat(5, 1)[:keys]
        c = c + torch.randint(-2, 3, c.shape, generator=drawn) * 2.0**-23
    if kind == "far":
        x, c = x + 64, c + 64
    return (torch.round(x * 2.0**14) / 2.0**14).to(dtype), torch.round(c * 2.0**23) / 2.0**23


@pytest.mark.parametrize("distance", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["plain", "ties", "near ties", "far"])
@pytest.mark.parametrize("sizes", [(70, 9, 3), (33, 70, 17), (5, 1, 1), (64, 32, 16)])
def test_certain_rows_are_right(kind: str, sizes: tuple[int, int, int], dtype: torch.dtype, distance: bool) -> None:
    queries, keys = points(kind, *sizes, dtype)
    found = best_keys(queries, keys, distance)
    wanted = exactly_best(queries, keys, distance)
    doubt = set(found.doubt().tolist())
    assert len(doubt) == int(found.many)
    wrong = [row for row, key in enumerate(found.index.tolist()) if key != wanted[row]]
    assert set(wrong) <= doubt
    if kind == "plain":
        assert len(doubt) <= len(queries) // 8 + 1
    if len(keys) == 1:
        assert not doubt
    if kind == "ties" and len(keys) > 60 and sizes[2] < 4:
        assert doubt  # equal scores are never certain


@pytest.mark.parametrize("distance", [True, False])
@pytest.mark.parametrize("kind", ["plain", "ties", "near ties"])
def test_the_search_of_a_gpu_is_right_where_it_is_certain(
    kind: str, distance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "scan_of", lambda *_: scan)
    queries, keys = points(kind, 150, 70, 5, torch.float32)
    wide, parts = queries.to(torch.float64), [slice(0, 60), slice(60, 150)]
    made = nearest.ready(
        "l2" if distance else "dot", lambda rows: (wide[rows], None), parts, torch.zeros(5, dtype=torch.float64),
        float(wide.abs().max()),
    )  # fmt: skip
    found = nearest.nearest(made, keys, None)
    doubt = set() if found.doubt is None else set(found.doubt.tolist())
    wanted = exactly_best(queries, keys, distance)
    assert {row for row, key in enumerate(found.index.tolist()) if key != wanted[row]} <= doubt
    assert len(doubt) < 20 or kind != "plain"
    assert doubt or kind == "plain"


def test_a_device_is_tried_out() -> None:
    assert is_right(scan, torch.device("cpu"))

    def careless(blocks: Any, keys: Tensor, bias: Tensor, margins: Any) -> tuple[Tensor, Tensor]:
        return scan(blocks, keys, bias, [-1.0 for _ in margins])

    def rough(blocks: Any, keys: Tensor, bias: Tensor, margins: Any) -> tuple[Tensor, Tensor]:
        return scan([block.to(torch.bfloat16).to(torch.float32) for block in blocks], keys, bias, margins)

    assert not is_right(careless, torch.device("cpu"))
    assert not is_right(rough, torch.device("cpu"))


def test_a_device_that_adds_up_wrongly_is_not_believed() -> None:
    here = torch.device("cpu")
    assert adds_up(segment_sums, here)
    assert is_soft(soft_sums, here)
    assert not adds_up(lambda *_: None, here)
    assert not adds_up(lambda rows, *given: segment_sums(rows.to(torch.float32), *given), here)
    assert not is_soft(lambda q, k, v, f, d: soft_sums(q, k, v, f * (1 + 2.0**-30), d), here)


@pytest.mark.parametrize(
    ("spec", "dims", "exact"),
    [
        ("lloyd", {"d": 3, "k": 5}, True),
        ("weighted_kmeans", {"d": 3, "k": 5}, True),
        ("mean_shift", {"d": 3}, False),
        ("hopfield", {"d": 3}, False),
    ],
)
def test_runs_call_the_programs(spec: str, dims: dict[str, int], exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that is one by name only; the layers are those of the CPU."""
    rows = np.random.default_rng(0).normal(size=(150, 3)).astype(np.float32)
    checkpoint = weftc.compile(spec, dims)
    given = {"x": rows, "w": rows[:, 0] ** 2 + 1, "c": rows[:5], "z": rows[:40]}
    if spec == "hopfield":
        given["w"] = rows
    given = {item.name: given[item.name] for item in checkpoint.program.inputs if item.name in given}
    model = weftc.load(checkpoint, dtype="float32")
    wanted = model(given, layers=3)
    called: list[str] = []

    def noted(name: str, program: Any) -> Any:
        return lambda *_: lambda *asked: (called.append(name), program(*asked))[1]

    monkeypatch.setattr(library, "_known", lambda: None)
    monkeypatch.setattr(library, "_made", cache(lambda: None))
    monkeypatch.setattr(nearest, "scan_of", noted("choose", scan))
    monkeypatch.setattr(heads_segment, "sums_of", noted("gather_sum", segment_sums))
    monkeypatch.setattr(heads_stream, "soft_sums_of", noted("soft", soft_sums))
    found = weftc.load(checkpoint, dtype="float32", backend="planned")(given, layers=3)
    assert set(called) == ({"choose", "gather_sum"} if exact else {"soft"})
    for name in wanted:
        ours, theirs = (one[name] if isinstance(one[name], Tensor) else one[name].indices for one in (found, wanted))
        assert torch.equal(ours, theirs) if exact else torch.allclose(ours, theirs, rtol=2.0**-22), name


def test_no_queries() -> None:
    found = best_keys(torch.zeros(0, 3), torch.zeros(2, 3, dtype=torch.float64), True)
    assert len(found.index) == 0
    assert len(found.doubt()) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(200, 3, 7), (65, 17, 3), (1, 1, 1), (0, 2, 4)])
@pytest.mark.parametrize("spread", [0, 20, 90])
def test_sums_have_the_bits_of_exact_ones(shape: tuple[int, int, int], spread: int, dtype: torch.dtype) -> None:
    rows, columns, segments = shape
    drawn = torch.Generator().manual_seed(rows)
    powers = torch.randint(-spread, spread + 1, (rows, columns), generator=drawn)
    numbers = torch.randn(rows, columns, generator=drawn, dtype=torch.float64).to(dtype) * 2.0 ** (powers.to(dtype) / 2)
    labels = torch.randint(-1, segments, (rows,), generator=drawn, dtype=torch.int32)
    found = segment_sums(numbers, labels, segments)
    assert found is not None
    sums = rounded_sum(as_terms(found[0]))
    wide = numbers.to(torch.float64)
    wanted = torch.stack([exact_sum(wide[labels == one], 0) for one in range(segments)])
    assert torch.equal(sums, wanted)
    assert torch.equal(found[1], torch.bincount(labels[labels >= 0].long(), minlength=segments))


def test_sums_in_another_order_have_the_same_integers() -> None:
    numbers = torch.randn(300, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(300, dtype=torch.int32) % 5
    order = torch.randperm(300, generator=torch.Generator().manual_seed(2))
    one, other = (
        segment_sums(numbers, labels, 5),
        segment_sums(numbers[order].contiguous(), labels[order].contiguous(), 5),
    )
    assert one is not None
    assert other is not None
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one[0], other[0], strict=True))


def test_numbers_that_are_too_far_apart_are_left_to_others() -> None:
    assert (
        segment_sums(torch.tensor([[1e300], [1e-200]], dtype=torch.float64), torch.zeros(2, dtype=torch.int32), 1)
        is None
    )
    infinite = torch.tensor([[torch.inf]])
    assert segment_sums(infinite, torch.zeros(1, dtype=torch.int32), 1) is None


@pytest.mark.parametrize("distance", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(40, 9, 3, 2), (33, 70, 17, 5), (3, 200, 2, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_soft_sums_are_within_their_bound(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, distance: bool, scale: float
) -> None:
    """Against 60 digits. Later keys score higher, so that every tile raises the peak."""
    drawn = np.random.default_rng(4)
    queries, keys, features, width = sizes
    x, c, v = (drawn.normal(size=shape) * scale for shape in ((queries, features), (keys, features), (keys, width)))
    order = np.argsort(-np.square(x[0] - c).sum(1) if distance else c @ x[0])
    given = [torch.tensor(one).to(dtype) for one in (x, c[order], v)]
    factor = -0.5 if distance else 0.75
    found = soft_sums(*given, factor, distance)
    bounds = soft_error(*given, factor, distance, found[0])
    wanted = softly(*(one.tolist() for one in given), factor, distance, found[0].tolist())
    for made, exact, bound in zip(found, wanted, bounds, strict=True):
        assert bool(((made.to(torch.float64) - torch.tensor(exact, dtype=torch.float64)).abs() <= bound).all())
    if scale == 1.0 and distance:  # the bound is no excuse
        assert float((bounds[1] / found[1]).max()) < (2e-4 if dtype == torch.float32 else 1e-12)


def softly(x: Any, c: Any, v: Any, factor: float, distance: bool, peaks: Any) -> tuple[Any, Any, Any]:
    """Largest scores, and masses and weighted sums relative to given peaks, with many digits."""
    exact: Any = ([], [], [])
    with decimal.localcontext(prec=60):
        for row, peak in zip(x, peaks, strict=True):
            q = [Decimal(one) for one in row]
            scores = []
            for key in c:
                pairs = [(a, Decimal(b)) for a, b in zip(q, key, strict=True)]
                total = sum((a - b) ** 2 if distance else a * b for a, b in pairs)
                scores.append(Decimal(factor) * total)
            weights = [(score - Decimal(peak)).exp() for score in scores]
            exact[0].append(float(max(scores)))
            exact[1].append(float(sum(weights)))
            columns = list(zip(*v, strict=True))
            exact[2].append([float(sum(w * Decimal(a) for w, a in zip(weights, one, strict=True))) for one in columns])
    return exact


def test_soft_sums_do_not_overflow() -> None:
    far = torch.tensor([[0.0], [1e3]], dtype=torch.float64)
    peak, mass, total = soft_sums(far, far, torch.ones(2, 1, dtype=torch.float64), -1.0, True)
    assert peak.tolist() == [0.0, 0.0]
    assert mass.tolist() == total[:, 0].tolist() == [1.0, 1.0]
