"""Soft heads whose costs stay: their exponentials are kept from layer to layer, within the numeric contract."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import weftc
import weftc_runtime
from planned_cases import both, compiled, problem
from weftc_runtime.kernels.native.library import library
from weftc_runtime.machines import heads_kept
from weftc_runtime.machines.planned import PlannedBackend

STILL = ["sinkhorn_dual", "sinkhorn_log"]


def kept_parts(name: str) -> set[tuple[str, bool]]:
    return {(plan.head.name, bool(plan.kept)) for _, plan in both(compiled(name))[1].plan().heads()}


def test_the_plan_sees_which_costs_stay() -> None:
    assert kept_parts("sinkhorn_dual") == {("u", True), ("v", True)}
    assert dict(kept_parts("soft_kmeans"))["y"] is False  # the centers move
    assert "exponentials of costs that stay are kept" in str(both(compiled("sinkhorn_dual"))[1].plan())


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", STILL)
def test_the_values_are_those_of_the_reference(
    name: str, dtype: torch.dtype, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)
    reference, planned = both(compiled(name), dtype)
    state = dict(reference.start(problem(name, "random", 90, 3, str(dtype)[6:])))
    # kappa: 1 + (largest cost + potentials) / lambda, below 1000 for these data
    bound = 16 * torch.finfo(dtype).eps * 1000
    for layer in range(6):  # from the same stored state each time
        expected = reference.advance(state, layer)
        found = planned.advance(state, layer)
        assert planned.report.backend == "planned"
        for field in expected:
            scale = max(1.0, float(expected[field].abs().max()))
            assert float((expected[field] - found[field]).abs().max()) <= bound * scale, (field, layer)
        state = dict(expected)


@pytest.mark.parametrize("gamma", [0.1, 1.0])
@pytest.mark.parametrize("name", STILL)
def test_whole_runs_agree(name: str, gamma: float) -> None:
    """Potentials start as one number for all tokens, and do not stay so."""
    params = {"gamma": gamma} if name == "sinkhorn_dual" else {}
    reference, planned = both(weftc.compile(name, dims={"d": 2}, params=params, layers=12))
    inputs = problem(name, "random", 70, 8)
    expected, found = reference(inputs), planned(inputs)
    assert planned.report.backend == "planned"
    for output in expected:  # kappa of a layer is below 1000 for these data; twelve layers
        assert torch.allclose(expected[output], found[output], rtol=1e-9, atol=1e-9), output


def test_the_matrix_is_kept_while_it_serves_and_made_anew_when_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    original = heads_kept.made
    monkeypatch.setattr(heads_kept, "made", lambda *given: made.append(1) or original(*given))
    monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)  # natively: test_native_kept.py
    model = weftc_runtime.load(compiled("sinkhorn_log"), backend="planned")
    inputs = problem("sinkhorn_log", "random", 60, 3)
    model(inputs, layers=40)
    often = len(made)
    assert 1 <= often < 40  # two heads, forty layers each
    model(inputs, layers=80)
    assert len(made) == 2 * often  # a run starts anew; near the fixed point nothing moves
    made.clear()
    monkeypatch.setattr(heads_kept, "REACH", 1e-9)
    model(inputs, layers=5)
    assert len(made) > 8


def test_a_matrix_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_kept, "MEMORY", 1000)
    monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)
    monkeypatch.setattr(heads_kept, "made", lambda *given: pytest.fail("a matrix was made"))
    model = weftc_runtime.load(compiled("sinkhorn_dual"), backend="planned")
    model(problem("sinkhorn_dual", "random", 60, 3))
    assert model.report.backend == "planned"


def test_far_clouds_do_not_underflow() -> None:
    checkpoint = weftc.compile("sinkhorn_log", dims={"d": 1}, params={"lambda": 0.01}, layers=8)
    x = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None]
    mass = torch.full((40,), 1 / 40, dtype=torch.float64)
    inputs = {"x": x, "y": x + 30.0, "a": mass, "b": mass}  # exp(-C / lambda) is zero in float64 everywhere
    reference, planned = both(checkpoint, torch.float64)
    expected, found = reference(inputs), planned(inputs)
    assert planned.report.backend == "planned"
    assert torch.allclose(expected["f"], found["f"], rtol=1e-9, atol=0)
    assert float(expected["plan"].sum()) > 0.5


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "columns"), [(8, 64), (72, 128), (1032, 192), (80, 1088)])
def test_products(rows: int, columns: int, dtype: torch.dtype, turned: bool) -> None:
    """In both directions, with the same bits for any number of threads."""
    kernels = library()
    assert kernels is not None
    generator = torch.Generator().manual_seed(columns)
    matrix = torch.rand(rows, columns + 16, generator=generator, dtype=torch.float64).to(dtype)
    vector = torch.rand(rows if turned else columns, generator=generator, dtype=torch.float64).to(dtype)
    whole = matrix[:, :columns].numpy().astype(np.longdouble)
    expected = (whole.T if turned else whole) @ vector.numpy().astype(np.longdouble)
    found = kernels.product(matrix, columns, vector, turned, 2)
    assert float(np.abs((found.numpy() - expected) / expected).max()) <= 8 * torch.finfo(dtype).eps
    assert torch.equal(found, kernels.product(matrix, columns, vector, turned, 1))
