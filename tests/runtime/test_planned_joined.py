"""Batches that run as one: every problem gets the bits it gets alone, ragged or not, with ties, until it is stable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import weftc
import weftc_runtime
from joined_cases import batch, one
from planned_cases import both, compiled, plain, promises_bits
from weftc.files.locate import names
from weftc_runtime import Model
from weftc_runtime.errors import Uncovered
from weftc_runtime.kernels.native.library import forget
from weftc_runtime.machines import run
from weftc_runtime.machines.joined import ProblemOffsets, apart
from weftc_runtime.machines.native_machine import NativeMachine
from weftc_runtime.machines.planned import PlannedBackend
from weftc_runtime.plan.residual import Residual
from weftc_runtime.reference.state import Problem

NAMES = names("")


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each run joined its problems."""
    found: list[bool] = []
    original = run.Run.join

    def join(self: run.Run) -> None:
        original(self)
        found.append(self.joined is not None)

    monkeypatch.setattr(run.Run, "join", join)
    return found


def agree(model: Model, inputs: dict[str, list[torch.Tensor]], options: dict[str, Any]) -> None:
    outputs = model.final(inputs, **options)
    layers, stable = model.report.layers, model.report.stable
    alone = weftc_runtime.load(compiled(model.spec_name, count=4), dtype=model.dtype, backend="reference")
    for number in range(len(layers)):
        expected = alone.final(one(inputs, number), **options)
        for name in expected:
            wanted, found = plain(expected[name]), plain(outputs[name])[number]
            assert torch.equal(wanted, found[: len(wanted)]), (name, number)
        assert (layers[number],) == alone.report.layers
        assert (stable[number],) == alone.report.stable


@pytest.mark.parametrize("options", [{"layers": 3}, {"until_stable": True}])
@pytest.mark.parametrize("family", ["random", "exact ties on a grid", "duplicates"])
@pytest.mark.parametrize("name", ["lloyd", "weighted_kmeans", "spherical_kmeans"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_problem_gets_the_bits_it_gets_alone(
    name: str, family: str, dtype: torch.dtype, options: dict[str, Any], joins: list[bool]
) -> None:
    model = weftc_runtime.load(compiled(name, count=4), dtype=dtype, backend="planned")
    agree(model, batch(name, family, [9, 30, 4, 17, 30], str(dtype)[6:]), options)
    assert joins[0]


SHIFTED = """
algorithm shifted

tokens  i in points
        j in centers : k

inputs  x[i] : R^d
        c[j] : R^d
        s[j] : R^d

layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  c[j]   = unit((mean[i] x[i] where y[i,j] else c[j]) - s[j]) else c[j]

outputs centers = c, labels = y
"""


def test_whether_a_vector_is_zero_is_asked_of_its_own_problem(joins: list[bool], tmp_path: Path) -> None:
    """In the second problem a mean is where it must not be, which exact arithmetic finds, and the center stays."""
    path = tmp_path / "shifted.weft"
    path.write_text(SHIFTED)
    checkpoint = weftc.compile(path, dims={"d": 2, "k": 2}, layers=1)
    x = torch.tensor([[[1, 0], [2, 0], [9, 1]], [[1, 0], [3, 0], [9, 9]]], dtype=torch.float64)
    c = torch.tensor([[[1, 0], [9, 3]]] * 2, dtype=torch.float64)
    s = torch.tensor([[[0, 1], [0, 0]], [[2, 0], [0, 0]]], dtype=torch.float64)
    model = weftc_runtime.load(checkpoint, backend="planned")
    found = model(x=x, c=c, s=s)
    assert joins == [True]
    assert (model.report.backend, model.report.why) == ("planned", "")
    assert found["centers"][1, 0].tolist() == [1.0, 0.0]
    reference = weftc_runtime.load(checkpoint, backend="reference")
    for number in range(2):
        assert torch.equal(found["centers"][number], reference(x=x[number], c=c[number], s=s[number])["centers"])


@pytest.mark.parametrize("sizes", [[9, 9, 9], [9, 1, 30, 6], [5, 6, 200]], ids=["equal", "ragged", "one large"])
@pytest.mark.parametrize("name", NAMES)
def test_every_spec_gives_in_a_batch_what_it_gives_alone(name: str, sizes: list[int]) -> None:
    """Whether problems run as one or one by one: bits where they are promised, the contract elsewhere."""
    reference, model = both(compiled(name, count=4))
    bits = promises_bits(model.plan())
    inputs = batch(name, "random", sizes if bits else [size + 3 for size in sizes])  # one point has no variance
    seeds = list(range(7, 7 + len(sizes)))
    found = model.final(inputs, seed=seeds, layers=2)
    assert model.report.backend == "planned"
    for number, seed in enumerate(seeds):
        for key, value in reference.final(one(inputs, number), seed=seed, layers=2).items():
            wanted = plain(value)
            got = plain(found[key])[number][tuple(slice(0, size) for size in wanted.shape)]
            # kappa: 1 + distances / lambda, below 1e4 for these data, two layers
            allowed = 0.0 if bits else 16 * 2.0**-52 * 2e4 * max(1.0, float(wanted.abs().max()))
            assert torch.allclose(got, wanted, rtol=0, atol=allowed), key


def test_problems_with_equal_sizes_may_come_as_one_array(joins: list[bool]) -> None:
    inputs = batch("lloyd", "random", [12] * 6)
    model = weftc_runtime.load(compiled("lloyd", count=4), backend="planned")
    stacked = {key: torch.stack(values) for key, values in inputs.items()}
    first, second = model(stacked), model(inputs)
    assert all(torch.equal(plain(first[name]), plain(second[name])) for name in first)
    assert joins == [True, True]
    assert first["labels"].columns == 4


@pytest.mark.parametrize("ragged", [False, True])
def test_problems_that_run_as_one_are_never_made_one_by_one(ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [5, 12, 9, 12] if ragged else [12] * 4
    inputs = batch("lloyd", "random", sizes)
    model = weftc_runtime.load(compiled("lloyd", count=4), backend="planned")
    made: list[int] = []
    embed, part = PlannedBackend.embed, ProblemOffsets.part

    def embedded(self: PlannedBackend, filled: Any, counts: Any, number: int, peaks: Any) -> Problem:
        made.append(number)
        return embed(self, filled, counts, number, peaks)

    def parted(self: ProblemOffsets, residual: Residual, number: int) -> Residual:
        made.append(number)
        return part(self, residual, number)

    monkeypatch.setattr(PlannedBackend, "embed", embedded)
    monkeypatch.setattr(ProblemOffsets, "part", parted)
    outputs = model.final(inputs, layers=3)
    assert model.report.layers == (3,) * 4
    # the state of all, and the first problem, which stands for the others
    assert set(made) == {-1, 0}
    assert outputs["centers"].shape == (4, 4, 2)
    assert outputs["labels"].indices.shape == (4, 12)
    padding = outputs["labels"].indices[0, sizes[0] :]
    assert padding.tolist() == [-1] * (12 - sizes[0])


@pytest.mark.parametrize("family", ["random", "exact ties on a grid", "duplicates"])
@pytest.mark.parametrize("name", ["lloyd", "weighted_kmeans", "spherical_kmeans"])
def test_objectives_are_those_of_each_problem_alone(name: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = weftc_runtime.load(compiled(name, count=4), backend="planned")
    inputs = batch(name, family, [9, 30, 1, 17, 30])
    alone = [model.objective(one(inputs, number), layers=3) for number in range(5)]
    parted: list[Any] = []
    monkeypatch.setattr(PlannedBackend, "taken_back", lambda self, noted: parted.append(noted))
    assert torch.equal(model.objective(inputs, layers=3), torch.stack(alone))
    assert not parted


def test_what_is_given_once_is_shared_by_all_problems(joins: list[bool]) -> None:
    inputs = batch("lloyd", "random", [12] * 3)
    model = weftc_runtime.load(compiled("lloyd", count=4), backend="planned")
    found = model.final(x=torch.stack(inputs["x"]), c=inputs["c"][0], layers=3)
    for number in range(3):
        alone = model.final(x=inputs["x"][number], c=inputs["c"][0], layers=3)
        assert all(torch.equal(plain(found[name])[number], plain(alone[name])) for name in alone)
    assert joins[0]


def test_what_looks_across_tokens_otherwise_runs_problem_by_problem(joins: list[bool]) -> None:
    model = weftc_runtime.load(compiled("lloyd_split", count=4), backend="planned")
    assert "share" in apart(model.program, model.plan())
    agree(model, batch("lloyd_split", "random", [9, 12]), {"layers": 3})
    assert not any(joins)


@pytest.mark.parametrize(
    "name", ["knn", "kmedoids", "trimmed_kmeans", "trimmed_normmax", "robust_kmeans", "robust_softmax", "sinkhorn_dual"]
)
def test_what_the_native_machine_runs_is_joined(name: str, joins: list[bool]) -> None:
    model = weftc_runtime.load(compiled(name, count=4), backend="planned")
    assert apart(model.program, model.plan())
    inputs, seeds = batch(name, "random", [12, 30, 12]), [3, 1, 2]
    found = model(inputs, layers=3, seed=seeds)
    joined = list(joins)
    for number, seed in enumerate(seeds):
        alone = model(one(inputs, number), layers=3, seed=seed)
        for answer in alone:
            rows = plain(alone[answer])
            assert torch.equal(plain(found[answer])[number][tuple(map(slice, rows.shape))], rows), answer
    assert joined == [True]


@pytest.mark.parametrize("name", ["knn", "kmedoids", "trimmed_kmeans"])
def test_what_it_cannot_run_is_parted_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = weftc_runtime.load(compiled(name, count=4), backend="planned")
    inputs = batch(name, "random", [9, 14])
    wanted = model(inputs, layers=2, seed=0)

    def refuses(*_: object) -> None:
        raise Uncovered("not today")

    monkeypatch.setattr(NativeMachine, "of", refuses)
    found = model(inputs, layers=2, seed=0)
    assert all(torch.equal(plain(found[answer]), plain(wanted[answer])) for answer in wanted)


def test_scores_of_computed_numbers_run_problem_by_problem(joins: list[bool]) -> None:
    model = weftc_runtime.load(compiled("lloyd", count=4, scores="dot"), backend="planned")
    model(batch("lloyd", "random", [9, 12]))
    assert not any(joins)
    assert (model.report.backend, model.report.why) == ("planned", "")


def test_without_native_kernels_problems_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFTC_NATIVE", "off")
    forget()
    try:
        model = weftc_runtime.load(compiled("lloyd", count=4), backend="planned")
        agree(model, batch("lloyd", "random", [9, 30]), {"layers": 3})
        assert model.report.backend == "planned"
    finally:
        forget()
