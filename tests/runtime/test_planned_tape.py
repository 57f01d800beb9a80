"""Many layers in one native call: the numbers of single layers and of the reference, for any program of the kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import pytest
import torch

import weftc
import weftc_runtime
from planned_cases import assert_same_bits, both
from weftc_runtime import Checkpoint, Model, Outputs
from weftc_runtime.machines import heads_kept
from weftc_runtime.machines.exponentials import Kept
from weftc_runtime.machines.run import Run
from weftc_runtime.machines.tape import Tape

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
    original = Tape.run

    def run(tape: Tape, *settings: Any) -> tuple[list[int], list[bool]]:
        ran, stable = original(tape, *settings)
        found.append(ran[0])
        return ran, stable

    monkeypatch.setattr(Tape, "run", run)
    return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Kept]:
    """The matrices that were made."""
    found: list[Kept] = []
    original = heads_kept.made

    def make(*given: Any) -> Kept:
        found.append(original(*given))
        return found[-1]

    monkeypatch.setattr(heads_kept, "made", make)
    return found


def one_by_one(model: Model, given: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, **options: Any) -> Outputs:
    """A run that comes back to Python for every layer."""
    with monkeypatch.context() as patched:
        patched.setattr(Run, "run_many", lambda *_: 0)
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
def test_one_matrix_serves_both_directions(name: str, made: list[Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[tuple[int, int]] = []
    original = Tape._passes

    def noted(tape: Tape, step: Any) -> Any:
        found = original(tape, step)
        passes.extend((one.along, one.across) for one in found)
        return found

    monkeypatch.setattr(Tape, "_passes", noted)
    both(compiled(name))[1](inputs(name, 60, 45))
    costs = 2 if name == "twice" else 1
    assert len(made) == costs
    if name in (
        "sinkhorn_dual",
        "sort",
        "damped",
        "drift",
        "counted",
    ):  # both heads in one step: one pass over the matrix
        assert passes == [(0, 1)]
    if name in ("sinkhorn_log", "scaled"):  # a step each
        assert passes == [(0, -1), (-1, 0)]


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
    name: str, made: list[Kept], leaps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = inputs(name, 50, 70)
    model = both(compiled(name, layers=12))[1]
    expected = model(given)
    before = len(made)
    monkeypatch.setattr(heads_kept, "REACH", 0.02)
    found = model(given)
    assert leaps == [12, 12]
    assert len(made) - before > before
    assert_close(expected, found, 1e-12)


def test_matrices_that_no_longer_serve_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    every: list[ReferenceType[Kept]] = []
    original = heads_kept.made

    def make(*given: Any) -> Kept:
        found = original(*given)
        every.append(ref(found))
        alive.append(sum(one() is not None for one in every))
        return found

    monkeypatch.setattr(heads_kept, "made", make)
    monkeypatch.setattr(heads_kept, "REACH", 0.02)
    both(compiled("sinkhorn_log", layers=12))[1](inputs("sinkhorn_log", 50, 70))
    assert len(alive) > 8
    assert max(alive) == 2  # one of each side


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_that_underflow_get_a_matrix_of_their_own(
    dtype: torch.dtype, made: list[Kept], leaps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None]
    mass = torch.full((40,), 1 / 40, dtype=torch.float64)
    given = {"x": x, "y": 2.0 * x + 30.0, "a": mass, "b": mass}
    reference, planned = both(compiled("sinkhorn_log", layers=8, width=1, **{"lambda": 0.01}), dtype)
    expected, found = reference(given), planned(given)
    assert leaps == [8]
    assert {kept.turned for kept in made} == {False, True}
    assert any(kept.slack > 100 for kept in made)  # the other side of it holds nothing
    bound = 16 * torch.finfo(dtype).eps * 8  # kappa 1 beside potentials of 1000
    assert_close(expected, found, bound)
    made.clear()
    assert_close(expected, one_by_one(planned, given, monkeypatch), bound)
    assert {kept.turned for kept in made} == {False, True}


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
    assert leaps == [9] * 3
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


def test_what_a_tape_does_not_cover_runs_layer_by_layer(leaps: list[int]) -> None:
    changed = SPECS["damped"].replace("<x[i], y[j]>", "<x[i], y[j]> * g[j]")  # the costs move
    model = both(weftc.compile(changed, dims={"d": 2}, layers=3))[1]
    model(inputs("damped", 30, 30))
    square = SPECS["damped"].replace("(g[j] +", "(g[j] * g[j] / 9 +")  # a number that follows from what is written
    reference, planned = both(weftc.compile(square, dims={"d": 2}, layers=3))
    assert_close(reference(inputs("damped", 30, 30)), planned(inputs("damped", 30, 30)), 1e-12)
    unrolled = both(weftc.compile(SPECS["damped"], dims={"d": 2}, layers=3, weights="unrolled"))[1]
    unrolled(inputs("damped", 30, 30))
    assert leaps == []


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
    text = f"""algorithm plain
{HEAD}
layer
  f[i] = -logsumexp[j] (g[j] + <x[i], y[j]>)
outputs f = f
"""
    generator = np.random.default_rng(0)
    lowest = -86.0 if dtype == torch.float32 else -700.0
    scores = np.concatenate([[0.0], -(generator.uniform(size=4000) ** 3) * -lowest, [lowest * 1.01, lowest * 20]])
    found: list[Kept] = []
    with pytest.MonkeyPatch.context() as patched:
        original = heads_kept.made
        patched.setattr(heads_kept, "made", lambda *given: found.append(original(*given)) or found[-1])
        given = {"x": np.ones((1, 1)), "y": scores.astype(np.float32)[:, None]}
        weftc_runtime.load(weftc.compile(text, dims={"d": 1}, layers=1), dtype=dtype, backend="planned")(given)
    (kept,) = found
    entries = kept.matrix[0, : len(scores)].numpy().astype(np.longdouble)
    expected = np.exp(scores.astype(np.float32).astype(np.longdouble))
    error = np.abs(entries - expected)[:-2] / expected[:-2]
    assert float(error.max()) <= 1.01 * torch.finfo(dtype).eps
    assert not entries[-2:].any()
    assert not kept.matrix[1:].any()
    assert not kept.matrix[:, len(scores) :].any()
