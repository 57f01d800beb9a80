"""Exponentials that the native machine keeps: the numbers of single layers and of the reference, for any program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import weftc
import weftc_runtime
from planned_cases import assert_same_bits, both
from weftc_runtime import Checkpoint, Model, Outputs
from weftc_runtime.kernels.native.library import library
from weftc_runtime.machines import heads_kept
from weftc_runtime.machines.heads_kept import Kept
from weftc_runtime.machines.native_machine import KeptStore, NativeMachine
from weftc_runtime.machines.planned import PlannedBackend

HEAD = """
tokens i in left
       j in right
inputs x[i] : R^d,  y[j] : R^d
state  f[i] : R = 0,  g[j] : R = 0
"""
SPECS = {
    "sinkhorn_dual": "sinkhorn_dual",
    "sinkhorn_log": "sinkhorn_log",
    "sort": "sort",
    "scaled": f"""algorithm scaled
{HEAD}
inputs w[j] : R > 0
layer
  f[i] = -logsumexp[j] (g[j] - w[j] * |x[i] - y[j]|^2)
  then
  g[j] = -logsumexp[i] (f[i] - w[j] * |x[i] - y[j]|^2)
outputs f = f, g = g
""",
    "damped": f"""algorithm damped
{HEAD}
layer
  f[i] = 0.5 * f[i] - 0.5 * logsumexp[j] (g[j] + <x[i], y[j]>)
  g[j] = 0.5 * g[j] - 0.5 * logsumexp[i] (f[i] + <x[i], y[j]>)
outputs f = f, g = g
""",
    "drift": f"""algorithm drift
{HEAD}
layer
  f[i] += 0.01 * (1 - sum[j] exp(f[i] + g[j] - |x[i] - y[j]|^2))
  g[j] += 0.01 * (2 - sum[i] exp(f[i] + g[j] - |x[i] - y[j]|^2))
outputs f = f, g = g
""",
    "twice": f"""algorithm twice
{HEAD}
state h[i] : R = 1
layer
  f[i] = -logsumexp[j] (g[j] - |x[i] - y[j]|^2)
  h[i] = 0.25 * h[i] + 0.5 * logsumexp[j] (g[j] - |x[i] - y[j]|^2)
  then
  g[j] = -logsumexp[i] (f[i] - |x[i] - y[j]|^2) + 0.1 * logsumexp[i] (f[i] + h[i] - 2 * |x[i] - y[j]|^2)
outputs f = f, g = g, h = h
""",
}
SPECS["counted"] = f"""algorithm counted
{HEAD}
layer
  f[i] = 0.1 * f[i] - 0.1 * logsumexp[j] (count(left) * 0.1 * g[j] + count(left) / 7 - |x[i] - y[j]|^2)
  g[j] = 0.1 * g[j] - 0.1 * logsumexp[i] (f[i] * count(left) / 9 - count(left) / 3 - |x[i] - y[j]|^2)
outputs f = f, g = g
"""
PAIRED = {"sinkhorn_dual", "sort"}  # one set of tokens


@cache
def compiled(name: str, layers: int = 9, width: int = 2, scores: str = "l2", **params: float) -> Checkpoint:
    dims = {} if name == "sort" else {"d": width}
    return weftc.compile(SPECS[name], dims=dims, params=params, layers=layers, scores=scores)


def inputs(name: str, left: int, right: int, width: int = 2, seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    right = left if name in PAIRED else right
    found: dict[str, Any] = {"x": generator.uniform(size=(left, width)), "y": generator.uniform(size=(right, width))}
    if name == "sort":
        return {"x": generator.uniform(size=left)}
    if name == "sinkhorn_log":
        masses = (generator.uniform(0.5, 1.5, size=many) for many in (left, right))
        found |= {key: mass / mass.sum() for key, mass in zip("ab", masses, strict=True)}
    if name == "scaled":
        found["w"] = generator.uniform(0.5, 2.0, size=right)
    return found


@pytest.fixture
def leaps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many layers each call ran at once."""
    found: list[int] = []
    original = NativeMachine.run

    def run(machine: NativeMachine, *settings: Any) -> tuple[list[int], list[bool]]:
        ran, stable = original(machine, *settings)
        if not machine.plan.part.alone:
            found.append(ran[0])
        return ran, stable

    monkeypatch.setattr(NativeMachine, "run", run)
    return found


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> list[KeptStore]:
    """What the runs keep."""
    found: list[KeptStore] = []
    original = KeptStore.of
    monkeypatch.setattr(KeptStore, "of", lambda *given: found.append(original(*given)) or found[-1])
    return found


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> list[Kept]:
    """The matrices that torch made."""
    found: list[Kept] = []
    original = heads_kept.made
    monkeypatch.setattr(heads_kept, "made", lambda *given: found.append(original(*given)) or found[-1])
    return found


def one_by_one(model: Model, given: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, **options: Any) -> Outputs:
    """A run that comes back to Python for every layer, and leaves none to the native machine."""
    with monkeypatch.context() as patched:
        patched.setattr(PlannedBackend, "many_layers", lambda *_: None)
        return model(given, **options)


def numbers(found: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The outputs that are numbers of tokens; nothing makes the whole plan."""
    yield from ((name, found[name].double()) for name in found if name not in ("plan", "map"))


def assert_close(one: Mapping[str, Any], other: Mapping[str, Any], bound: float) -> None:
    for (name, left), (_, right) in zip(numbers(one), numbers(other), strict=True):
        scale = max(1.0, float(left.abs().max()))
        assert float((left - right).abs().max()) <= bound * scale, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 7), (65, 130)])
@pytest.mark.parametrize("name", SPECS)
def test_the_numbers_are_those_of_the_reference_and_of_single_layers(
    name: str, sizes: tuple[int, int], dtype: torch.dtype, leaps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, planned = both(compiled(name), dtype)
    given = inputs(name, *sizes)
    found = planned(given)
    assert leaps == [9]
    assert planned.report.backend == "planned"
    assert planned.report.layers == (9,)
    assert len(planned.report.by_layer) == 9
    # kappa of a layer: 1 + what the largest score is, below 300 here; nine layers
    bound = 16 * torch.finfo(dtype).eps * (300 if name == "sort" else 30) * 9
    assert_close(reference(given), found, bound)
    assert_close(one_by_one(planned, given, monkeypatch), found, bound)
    assert leaps == [9]


@pytest.mark.parametrize("name", ["sinkhorn_dual", "sinkhorn_log"])
@pytest.mark.parametrize("width", [1, 5])
def test_other_lowerings_and_widths(name: str, width: int, leaps: list[int]) -> None:
    """Scores as dot products are split row by row: what moves is of one side alone."""
    given = inputs(name, 40, 50, width)
    reference, planned = both(compiled(name, width=width, scores="dot"))
    found = planned(given)
    assert leaps == [9]
    assert_close(reference(given), found, 16 * 2.0**-52 * 100 * 9)
    assert_close(both(compiled(name, width=width))[1](given), found, 1e-11)


@pytest.mark.parametrize("name", SPECS)
def test_one_matrix_serves_both_directions(name: str, stores: list[KeptStore]) -> None:
    both(compiled(name))[1](inputs(name, 60, 45))
    (store,) = stores
    made, passes, alive, _ = store.counts()
    read = {"sinkhorn_log": 3, "sort": 2}.get(name, 0)  # by what is read out: weights, and those of each coordinate
    assert made == alive == (2 if name == "twice" else 1)
    if name in ("sinkhorn_dual", "sort", "damped", "drift", "counted"):  # both heads in one step: one pass over it
        assert passes == 9 + read
    if name in ("sinkhorn_log", "scaled"):  # a step each
        assert passes == 18 + read


def test_costs_are_told_apart_by_their_numbers() -> None:
    def plans(second: str) -> list[tuple[int, bool]]:
        text = f"""algorithm two
{HEAD}
layer
  f[i] = -logsumexp[j] (g[j] - |x[i] - y[j]|^2)
  g[j] = -logsumexp[i] (f[i] - {second})
outputs f = f, g = g
"""
        plan = weftc_runtime.load(weftc.compile(text, dims={"d": 2})).plan()
        return [(head.cost_group, head.transposed) for _, head in plan.heads()]

    assert plans("|x[i] - y[j]|^2") == [(0, False), (0, True)]
    assert plans("|y[j] - x[i]|^2") == [(0, False), (0, True)]
    assert plans("2 * |x[i] - y[j]|^2") == [(0, False), (1, False)]
    assert plans("|2 * x[i] - y[j]|^2") == [(0, False), (1, False)]


@pytest.mark.parametrize("name", ["sinkhorn_log", "drift", "scaled"])
def test_terms_that_move_far_make_a_matrix_anew(
    name: str, stores: list[KeptStore], leaps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = inputs(name, 50, 70)
    model = both(compiled(name, layers=12))[1]
    expected = model(given)
    monkeypatch.setattr(heads_kept, "REACH", 0.04)
    found = model(given)
    assert leaps == [12, 12]
    before, now = stores
    assert now.counts()[0] > 2 * before.counts()[0]
    assert_close(expected, found, 1e-12)


def test_matrices_that_no_longer_serve_are_let_go(stores: list[KeptStore], monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    monkeypatch.setattr(heads_kept, "REACH", 0.04)
    given, model = inputs("sinkhorn_log", 50, 70), both(compiled("sinkhorn_log", layers=12))[1]
    model(given, progress=lambda *_: alive.extend(store.counts()[2] for store in stores))
    (store,) = stores
    assert store.counts()[0] > 8
    assert max(alive) == 2  # one of each side


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_that_underflow_get_a_matrix_of_their_own(
    dtype: torch.dtype,
    stores: list[KeptStore],
    by_torch: list[Kept],
    leaps: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None]
    mass = torch.full((40,), 1 / 40, dtype=torch.float64)
    given = {"x": x, "y": 2.0 * x + 30.0, "a": mass, "b": mass}
    reference, planned = both(compiled("sinkhorn_log", layers=8, width=1, **{"lambda": 0.01}), dtype)
    expected, found = reference(given), planned(given)
    assert leaps == [8]
    (store,) = stores
    assert store.counts()[0] >= 2  # the other side of the first holds nothing
    bound = 16 * torch.finfo(dtype).eps * 8  # kappa 1 beside potentials of 1000
    assert_close(expected, found, bound)
    by_torch.clear()
    assert_close(expected, one_by_one(planned, given, monkeypatch), bound)
    assert {kept.turned for kept in by_torch} == {False, True}
    assert any(kept.slack > 100 for kept in by_torch)  # the other side of it holds nothing


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["sinkhorn_dual", "sinkhorn_log", "drift"])
def test_any_number_of_threads_gives_the_same_bits(name: str, dtype: torch.dtype, leaps: list[int]) -> None:
    given = inputs(name, 1100, 300)
    model = both(compiled(name, layers=5), dtype)[1]
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(dict(numbers(model(given))))
    finally:
        torch.set_num_threads(before)
    assert_same_bits(found[0], found[1])
    assert_same_bits(found[0], found[2])
    assert leaps == [5] * 3


@pytest.mark.parametrize("name", ["sinkhorn_dual", "sinkhorn_log"])
def test_progress_is_told_every_layer(name: str, leaps: list[int]) -> None:
    given, model = inputs(name, 60, 50), both(compiled(name))[1]
    told: list[tuple[str, int, int | None]] = []
    found = model(given, progress=lambda *what: told.append(what))
    assert told == [("layer", layer, 9) for layer in range(10)]
    assert leaps == [1] * 9
    assert_same_bits(dict(numbers(found)), dict(numbers(model(given))))


def test_who_watches_sees_every_layer(leaps: list[int]) -> None:
    given, model = inputs("sinkhorn_log", 60, 50), both(compiled("sinkhorn_log"))[1]
    seen: list[float] = []
    model(given, until=lambda old, new: bool(seen.append(float(new["f"][0, 0])) or len(seen) == 4))
    assert len(set(seen)) == 4
    assert leaps == [1] * 4
    assert len(model.trace(given).fields) == 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_until_stable(dtype: torch.dtype, leaps: list[int]) -> None:
    text = SPECS["scaled"].replace("= -log", "= -0.1 * log")  # it contracts, to a point that rounding leaves alone
    given, model = inputs("scaled", 30, 70), both(weftc.compile(text, dims={"d": 2}), dtype)[1]
    found = model(given, until_stable=True, limit=2000)
    (layers,) = model.report.layers
    assert model.report.stable == (True,)
    assert leaps == [layers]
    assert 2 < layers < 2000
    assert_same_bits(dict(numbers(found)), dict(numbers(model(given, layers=layers - 1))))  # the last changed nothing
    earlier = dict(numbers(model(given, layers=layers - 2)))
    assert any(not torch.equal(value, earlier[key]) for key, value in numbers(found))
    model(given, until_stable=True, limit=2)
    assert model.report.stable == (False,)


def test_a_ragged_batch_is_its_problems(leaps: list[int]) -> None:
    model = both(compiled("damped"))[1]
    problems = [inputs("damped", left, right, seed=left) for left, right in ((5, 80), (70, 3), (20, 20))]
    x, y = torch.zeros(3, 70, 2, dtype=torch.float64), torch.zeros(3, 80, 2, dtype=torch.float64)
    mask = {"left": torch.zeros(3, 70, dtype=torch.bool), "right": torch.zeros(3, 80, dtype=torch.bool)}
    for number, one in enumerate(problems):
        x[number, : len(one["x"])], y[number, : len(one["y"])] = torch.from_numpy(one["x"]), torch.from_numpy(one["y"])
        mask["left"][number, : len(one["x"])], mask["right"][number, : len(one["y"])] = True, True
    whole = model(x=x, y=y, mask=mask)
    assert leaps == [9]  # one call for all of them
    assert model.report.layers == (9, 9, 9)
    for number, one in enumerate(problems):
        alone = model(one)
        assert torch.equal(whole["f"][number, : len(one["x"])], alone["f"])
        assert torch.equal(whole["g"][number, : len(one["y"])], alone["g"])


def test_what_overflows_is_told_as_the_reference_tells_it() -> None:
    text = SPECS["drift"].replace("0.01 * (1 -", "-9 * (1 -")
    reference, planned = both(weftc.compile(text, dims={"d": 2}), torch.float32)
    given = inputs("drift", 20, 20)
    with pytest.raises(weftc_runtime.RunError) as expected:
        reference(given, layers=30)
    with pytest.raises(weftc_runtime.RunError) as found:
        planned(given, layers=30)
    assert str(found.value) == str(expected.value)


def test_the_last_layer_must_not_overflow_either() -> None:
    """Nobody reads the field that does."""
    text = SPECS["drift"].replace("0.01 * (1 -", "1e38 * (1 -").replace("f[i] + g[j] -", "g[j] -")
    model = both(weftc.compile(text, dims={"d": 2}), torch.float32)[1]
    with pytest.raises(weftc_runtime.RunError):
        model.fields(inputs("drift", 20, 20), layers=1)


@pytest.mark.parametrize("name", ["damped", "sinkhorn_dual"])
def test_matrices_of_many_problems_are_let_go_where_they_take_too_much_room(
    name: str, stores: list[KeptStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = [inputs(name, 40, 40, seed=seed) for seed in range(4)]
    model = both(compiled(name))[1]
    given = {key: np.stack([one[key] for one in problems]) for key in ("x", "y")}
    expected = model(given)
    monkeypatch.setattr(heads_kept, "MEMORY", 2 * 40 * 80 * 8)  # room for two
    found = model(given)
    assert [store.counts()[::2] for store in stores] == [[4, 4], [4, 0]]
    assert_same_bits(dict(numbers(expected)), dict(numbers(found)))


def test_a_matrix_that_is_too_large_is_not_kept(
    stores: list[KeptStore], leaps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, (reference, planned) = inputs("sinkhorn_log", 40, 30), both(compiled("sinkhorn_log"))
    monkeypatch.setattr(heads_kept, "MEMORY", 1000)
    assert_close(reference(given), planned(given), 1e-13)
    assert leaps == [9]
    assert stores[0].counts() == [0, 0, 0, 0]


VALUES = f"""algorithm values
{HEAD}
state  h[i] : R^d = 0
layer
  f[i] = -logsumexp[j] (g[j] + <x[i], y[j]>)
  h[i] = sum[j] softmax[j](g[j] + <x[i], y[j]>) * (y[j] + g[j] * y[j])
  then
  g[j] = 0.5 * sum[i] softmax[i](f[i] + <x[i], y[j]>) * f[i]
outputs f = f, g = g, h = h
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(1, 1), (65, 30)])
def test_every_key_may_have_a_value_of_its_own(
    sizes: tuple[int, int], dtype: torch.dtype, stores: list[KeptStore], leaps: list[int]
) -> None:
    reference, planned = both(weftc.compile(VALUES, dims={"d": 2}, layers=5), dtype)
    given = inputs("damped", *sizes)
    found = planned(given)
    assert leaps == [5]
    assert stores[0].counts()[0] >= 1
    assert_close(reference(given), found, 16 * torch.finfo(dtype).eps * 30 * 5)


def test_costs_that_move_are_not_kept(stores: list[KeptStore], leaps: list[int]) -> None:
    changed = SPECS["damped"].replace("<x[i], y[j]>", "<x[i], y[j]> * g[j]")
    reference, planned = both(weftc.compile(changed, dims={"d": 2}, layers=3))
    assert_close(reference(inputs("damped", 30, 30)), planned(inputs("damped", 30, 30)), 1e-12)
    assert leaps == [3]
    assert stores == []


def test_terms_may_follow_from_what_is_written(stores: list[KeptStore]) -> None:
    square = SPECS["damped"].replace("(g[j] +", "(g[j] * g[j] / 9 +")
    for weights in ("shared", "unrolled"):
        reference, planned = both(weftc.compile(square, dims={"d": 2}, layers=3, weights=weights))
        assert_close(reference(inputs("damped", 30, 30)), planned(inputs("damped", 30, 30)), 1e-12)
    assert [store.counts()[0] for store in stores] == [1, 1]


def test_a_changed_weight_changes_the_numbers() -> None:
    model = both(compiled("damped"))[1]
    given = inputs("damped", 30, 30)
    before = model(given)["f"].clone()
    names = [name for name, _ in model.weights.named_parameters() if name.endswith("v")]
    with torch.no_grad():
        model.weights.get_parameter(names[0]).mul_(0.5)
    assert not torch.equal(before, model(given)["f"])
    assert model.report.backend == "planned"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials(dtype: torch.dtype) -> None:
    """Entries of a matrix are exp of their score to a unit in the last place, whatever its size."""
    kernels = library()
    assert kernels is not None
    generator = np.random.default_rng(0)
    lowest = -86.0 if dtype == torch.float32 else -700.0
    scores = np.concatenate([[0.0, 20.0], -(generator.uniform(size=4028) ** 3) * -lowest, [lowest * 1.01, lowest * 20]])
    entries = kernels.exponentials(scores, dtype == torch.float32).astype(np.longdouble)
    expected = np.exp(scores.astype(np.longdouble))
    error = np.abs(entries - expected)[:-2] / expected[:-2]
    assert float(error.max()) <= 1.01 * torch.finfo(dtype).eps
    assert not entries[-2:].any()
