"""The planned backend where blocks, threads, ties and batches could show: they must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import weftc
import weftc_runtime
from planned_cases import assert_same_bits, both, compiled, plain, problem, threads
from weftc_runtime.errors import Uncovered
from weftc_runtime.exact import limbs
from weftc_runtime.exact import rows as held
from weftc_runtime.exact import segments as segment
from weftc_runtime.kernels import minima, nearest
from weftc_runtime.kernels.native.library import Library
from weftc_runtime.machines import heads_nearest, heads_segment, heads_stream, search
from weftc_runtime.machines.planned import PlannedBackend

HARD = ["lloyd", "lloyd_split", "weighted_kmeans", "spherical_kmeans", "kmedoids", "trimmed_kmeans", "nearest_neighbor"]


def shrink(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    """Blocks of about so many numbers, in all modules that work in blocks."""
    monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)  # torch works in blocks
    monkeypatch.setattr(heads_nearest, "library", lambda build: None)
    monkeypatch.setattr(heads_segment, "library", lambda build: None)
    monkeypatch.setattr(heads_nearest, "block_rows", lambda keys: max(1, entries // keys))
    monkeypatch.setattr(nearest, "KEYS", 4)
    monkeypatch.setattr(minima, "SCORES", entries)
    monkeypatch.setattr(segment, "FLUSHED", entries)
    monkeypatch.setattr(heads_nearest, "SETTLED", entries)
    monkeypatch.setattr(limbs, "BLOCK", entries)
    monkeypatch.setattr(heads_stream, "TILE", entries)
    monkeypatch.setattr(heads_stream, "KEYS", 4)
    monkeypatch.setattr(held, "ENTRIES", entries)


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("entries", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_block_size_changes_a_bit(
    name: str, entries: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, planned = both(compiled(name, count=6), dtype)
    inputs = problem(name, "exact ties on a grid", 29, 5, str(dtype)[6:], k=6)
    expected = reference.final(inputs, seed=1)
    shrink(monkeypatch, entries)
    assert_same_bits(expected, planned.final(inputs, seed=1))
    assert planned.report.backend == "planned"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("family", ["exact ties on a grid", "random"])
def test_native_kernels_change_no_bit(
    name: str, family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_nearest, "NATIVE", 0)
    monkeypatch.setattr(heads_segment, "NATIVE", 0)
    monkeypatch.setattr(search, "BOUNDS", search.ALWAYS)
    monkeypatch.setattr(search, "NARROW", 0)  # a first look whatever the width
    asked: list[str] = []
    monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)  # the kernels one by one
    for each in ("find",):
        original = getattr(Library, each)
        monkeypatch.setattr(Library, each, lambda self, *call, run=original: asked.append(name) or run(self, *call))
    reference, planned = both(compiled(name, count=6), dtype)
    inputs = problem(name, family, 150, 5, str(dtype)[6:], k=6)
    layers = {} if name == "nearest_neighbor" else {"layers": 9}
    assert_same_bits(reference.final(inputs, seed=1, **layers), planned.final(inputs, seed=1, **layers))
    assert planned.report.backend == "planned"
    assert asked


@pytest.mark.parametrize("name", ["soft_kmeans", "sinkhorn_dual", "gmm_em", "mean_shift"])
@pytest.mark.parametrize("entries", [1, 50])
def test_tiles_of_soft_heads_agree(name: str, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, planned = both(compiled(name))
    inputs = problem(name, "random", 29, 6)
    expected = reference.final(inputs)
    shrink(monkeypatch, entries)
    outputs = planned.final(inputs)
    assert planned.report.backend == "planned"
    for key in expected:  # kappa: 1 + distance / temperature, below 500 for these data, over three layers
        assert torch.allclose(expected[key], outputs[key], rtol=0, atol=16 * 2.0**-52 * 1500)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_number_of_threads_changes_a_bit(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(20_000, 2, generator=generator, dtype=torch.float64)
    model = weftc_runtime.load(compiled("lloyd", count=5), backend="planned")
    with threads(1):
        expected = model(x=points, c=points[:5])
    with threads(count):
        assert_same_bits(expected, model(x=points, c=points[:5]))
        assert torch.get_num_threads() == count


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("family", ["random", "exact ties on a grid"])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_torch_alone_changes_no_bit(count: int, family: str, offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {key: value + offset for key, value in problem("lloyd", family, 4000, 8, "float32", k=20).items()}
    inputs["c"][7] = inputs["c"][3]
    reference, planned = both(compiled("lloyd", count=20), torch.float32)
    expected = reference.final(inputs, layers=4)
    monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)
    monkeypatch.setattr(heads_nearest, "library", lambda build: None)
    monkeypatch.setattr(heads_segment, "library", lambda build: None)
    monkeypatch.setattr(minima, "WIDEST", 1024)
    with threads(count):
        assert_same_bits(expected, planned.final(inputs, layers=4))
    assert planned.report.backend == "planned"
    assert reference.report.total.exact == planned.report.total.exact


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("offset", [0.0, 1e6, -3e3])
def test_near_ties_are_decided_as_the_reference_decides_them(dtype: torch.dtype, offset: float) -> None:
    reference, planned = both(compiled("lloyd", count=4), dtype)
    centers = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]], dtype=dtype) + offset
    middle = torch.tensor([1.0, 1.0], dtype=dtype) + offset
    points = [middle]
    for step in range(1, 6):
        for sign in (-1.0, 1.0):
            moved = middle.clone()
            for _ in range(step):
                moved[step % 2] = torch.nextafter(moved[step % 2], torch.tensor(sign * np.inf, dtype=dtype))
            points.append(moved)
    x = torch.stack(points * 40)
    expected, outputs = reference(x=x, c=centers, layers=1), planned(x=x, c=centers, layers=1)
    assert_same_bits(expected, outputs)
    assert reference.report.total == planned.report.total
    assert planned.report.total.exact > 0
    assert len(set(outputs["labels"].indices.tolist())) > 1


def test_equal_points_equal_centers_and_empty_clusters() -> None:
    reference, planned = both(compiled("lloyd", count=5))
    x = torch.tensor([[0.0, 0.0]] * 30 + [[1.0, 1.0]] * 20)
    c = torch.tensor([[0.0, 0.0], [0.0, 0.0], [5.0, 5.0], [1.0, 1.0], [9.0, 9.0]])
    expected, outputs = reference(x=x, c=c, until_stable=True), planned(x=x, c=c, until_stable=True)
    assert_same_bits(expected, outputs)
    assert reference.report.layers == planned.report.layers
    assert outputs["centers"][4].tolist() == [9.0, 9.0]


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e150, 1e200])
def test_any_range_of_the_data(scale: float) -> None:
    reference, planned = both(compiled("lloyd"))
    inputs = {key: np.asarray(value) * scale for key, value in problem("lloyd", "random", 40, 11).items()}
    assert_same_bits(reference(inputs), planned(inputs))


def test_an_outlier_does_not_hide_the_others() -> None:
    reference, planned = both(compiled("lloyd"))
    inputs = problem("lloyd", "random", 40, 12)
    inputs["x"] = np.concatenate([inputs["x"], [[1e12, -1e12]]])
    assert_same_bits(reference(inputs), planned(inputs))


def test_lower_matmul_precision_does_not_change_decisions() -> None:
    reference, planned = both(compiled("lloyd", width=8, count=4))
    inputs = problem("lloyd", "random", 400, 13, d=8, k=4)
    expected = reference(inputs)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert_same_bits(expected, planned(inputs))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", ["lloyd", "soft_kmeans", "kmedoids", "weighted_kmeans", "sinkhorn_dual"])
def test_batches_and_ragged_batches(name: str) -> None:
    reference, planned = both(compiled(name))
    first, second = problem(name, "random", 12, 1), problem(name, "random", 7, 2)
    whole = {key: np.stack([np.asarray(first[key])[:7] if key != "c" else first[key], second[key]]) for key in first}
    ragged: dict[str, Any] = {key: [torch.as_tensor(first[key]), torch.as_tensor(second[key])] for key in first}
    for inputs in (whole, ragged):
        expected, outputs = reference.final(inputs, seed=[3, 4]), planned.final(inputs, seed=[3, 4])
        assert planned.report.backend == "planned"
        assert reference.report.layers == planned.report.layers
        for key in expected:
            one, other = plain(expected[key]), plain(outputs[key])
            assert one.shape == other.shape
            assert torch.allclose(one.double(), other.double(), rtol=0, atol=16 * 2.0**-52 * 1500)


def test_a_mask_leaves_padding_out() -> None:
    reference, planned = both(compiled("lloyd"))
    inputs = problem("lloyd", "random", 10, 3)
    x = np.stack([inputs["x"], inputs["x"][::-1]])
    mask = {"points": np.arange(10)[None] < np.array([[6], [10]])}
    c = np.stack([inputs["c"], inputs["c"]])
    expected, outputs = reference(x=x, c=c, mask=mask), planned(x=x, c=c, mask=mask)
    assert_same_bits(expected, outputs)
    assert outputs["labels"].indices[0, 6:].tolist() == [-1] * 4


def test_explicit_noise_of_numbers_needs_no_axis_for_columns() -> None:
    text = """algorithm walk
tokens p in walkers
inputs x[p] : R
random a[p] : normal
layer
  x[p] = x[p] + a[p]
outputs x
"""
    for backend in ("reference", "planned"):
        model = weftc_runtime.load(weftc.compile(text, layers=2), backend=backend)
        steps = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]], dtype=torch.float64)
        flat = model(x=[0.0, 0.0, 0.0], noise={"a": steps})["x"]
        assert flat.tolist() == [1.5, 2.5, 3.5]
        assert torch.equal(flat, model(x=[0.0, 0.0, 0.0], noise={"a": steps[..., None]})["x"])


def test_deterministic_sums_with_soft_weights_are_the_references() -> None:
    model = weftc_runtime.load(compiled("soft_kmeans"), deterministic=True)
    generator = torch.Generator().manual_seed(2)
    points = torch.randn(60_000, 2, generator=generator, dtype=torch.float64)
    expected = model(x=points, c=points[:3], layers=1)
    assert model.report.backend == "reference"
    assert "soft weights" in model.report.why
    order = torch.randperm(len(points), generator=generator)
    assert torch.equal(model(x=points[order], c=points[:3], layers=1)["centers"], expected["centers"])
    hard = weftc_runtime.load(compiled("lloyd"), deterministic=True)
    hard(x=points, c=points[:3])
    assert hard.report.backend == "planned"


@pytest.mark.parametrize("layers", [(1,), (0, 1, 4)])
@pytest.mark.parametrize("name", ["lloyd", "gmm_em", "kmedoids", "lloyd_split", "sinkhorn_log"])
def test_the_reference_takes_over_for_some_layers_and_hands_back(
    name: str, layers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = weftc_runtime.load(compiled(name))
    inputs = problem(name, "random", 20, seed=1)
    expected = model(inputs, layers=12)
    step, many = PlannedBackend.step, PlannedBackend.many_layers

    def stops(self: PlannedBackend, *given: Any) -> None:
        if self.prefix in {f"layers.{layer}." for layer in layers}:
            raise Uncovered("told to")
        step(self, *given)

    def ends(self: PlannedBackend, problem: Any, index: int, *given: Any) -> Any:
        return None if index in layers else many(self, problem, index, *given)

    monkeypatch.setattr(PlannedBackend, "step", stops)
    monkeypatch.setattr(PlannedBackend, "many_layers", ends)
    found = model(inputs, layers=12, progress=lambda *_: None)
    assert model.report.backend == "planned"
    assert model.report.why == "the reference ran some layers: told to"
    for output in expected:
        torch.testing.assert_close(plain(found[output]), plain(expected[output]), rtol=1e-12, atol=1e-12)
