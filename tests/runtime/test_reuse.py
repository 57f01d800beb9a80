"""Arrays that layers use again: never while somebody can still see them."""

from __future__ import annotations

import gc

import torch

import weftc_runtime
from planned_cases import compiled
from weftc_runtime.kernels.reuse import Pool


def test_an_array_comes_back_when_nobody_has_it() -> None:
    pool = Pool(100, torch.int32)
    first, second = pool.take(), pool.take()
    assert first.data_ptr() != second.data_ptr()
    assert (first.shape, first.dtype) == ((100,), torch.int32)
    where = first.data_ptr()
    del first
    assert pool.take().data_ptr() == where
    assert pool.take().data_ptr() not in (second.data_ptr(), 0)


def test_what_somebody_can_still_see_is_not_given_away() -> None:
    pool = Pool(100, torch.int32)
    for see in (lambda a: a[10:20], lambda a: a.numpy(), lambda a: a.view(10, 10), lambda a: [a], lambda a: a.detach()):
        taken = pool.take().fill_(7)
        seen = see(taken)
        del taken
        others = [pool.take().fill_(9) for _ in range(3)]
        del others
        pool.take().fill_(9)
        assert int(torch.as_tensor(seen[0] if isinstance(seen, list) else seen).flatten()[0]) == 7
        del seen


def test_layers_keep_few_labels() -> None:
    """Neither in use nor lost in a cycle that only the collector would find."""
    size = 9973
    model = weftc_runtime.load(compiled("lloyd", width=4, count=8), dtype=torch.float32, backend="planned")
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(0))
    found: list[int] = []

    def count(*_: object) -> None:
        every = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        found.append(sum(each.dtype == torch.int32 and each.shape == (size,) for each in every))

    model(x=x, c=x[:8], layers=1)
    gc.collect()
    gc.disable()
    try:
        outputs = model(x=x, c=x[:8], layers=12, progress=count)
    finally:
        gc.enable()
    assert model.report.backend == "planned"
    assert len(found) == 13
    assert 1 <= max(found) <= 3
    assert outputs["labels"].indices.dtype == torch.int64


def test_fields_that_were_shown_stay_as_they_were() -> None:
    """`until` sees the labels of every layer; later layers must not write to them."""
    model = weftc_runtime.load(compiled("lloyd", width=2, count=3), backend="planned")
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kept = []

    def until(before: weftc_runtime.Fields, after: weftc_runtime.Fields) -> bool:
        kept.append((before, after))
        return False

    model(x=x, c=x[:3], layers=6, until=until)
    for at, (before, after) in enumerate(kept):
        wanted = model.fields(x=x, c=x[:3], layers=at + 1)
        assert torch.equal(after["y"], wanted["y"])
        if at:
            assert torch.equal(before["y"], kept[at - 1][1]["y"])
