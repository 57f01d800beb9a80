"""Layers of best keys and sums, many in one native call: the same bits, layers, tiers and errors as one at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import weft_runtime
from linear_cases import assert_same_bits, compiled, problem
from weft.compiling import compile
from weft_runtime import Model, RunError, search
from weft_runtime.linear import Linear
from weft_runtime.native.library import DOUBT, OVERFLOWN, WIDER, Library, library

COUNTED = """
algorithm counted

tokens  i in points
        j in places : k

inputs  x[i] : R^d
        c[j] : R^d  init spread(x)

layer
  y[i,j] = argmax[j] <x[i], c[j]>
  then
  c[j]   = sum[i] x[i] where y[i,j]

outputs places = c, labels = y
"""
SMALLER = COUNTED.replace("sum[i] x[i] where y[i,j]", "mean[i] x[i] where y[i,j] else c[j] / 2")


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How native calls for rounds have ended."""
    assert library() is not None, "the tests need a C++ compiler"
    seen: Counter[int] = Counter()
    original = Library.rounds

    def noted(self: Library, rounds: Any) -> int:
        outcome = original(self, rounds)
        seen[outcome] += 1
        return outcome

    monkeypatch.setattr(Library, "rounds", noted)
    return seen


def one_by_one(model: Model, inputs: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """What a model answers and reports when every layer is a call of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Linear, "tape", lambda self, problem, many: None)
        return model.final(inputs, **options), model.report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", ["random", "exact ties on a grid", "near-ties of 1 to 16 ulp", "abandoned rows"])
@pytest.mark.parametrize("bounds", [search.NEVER, search.PAYING, search.ALWAYS])
@pytest.mark.parametrize("until", [False, True])
def test_rounds_are_the_layers(
    ends: Counter[int], monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, family: str, bounds: int, until: bool
) -> None:
    monkeypatch.setattr(search, "BOUNDS", bounds)
    model = weft_runtime.load(compiled("lloyd", width=9, count=6), dtype=dtype, backend="linear")
    inputs = problem("lloyd", family, 400, 3, str(dtype)[6:], d=9, k=6)
    options = {"until_stable": True} if until else {"layers": 9}
    expected, report = one_by_one(model, inputs, **options)
    assert not ends
    assert_same_bits(expected, model.final(inputs, **options))
    assert ends
    assert model.report.backend == report.backend  # not the linear one where numbers reach down to 5e-324
    assert model.report.layers == report.layers
    assert model.report.stable == report.stable
    assert model.report.total == report.total
    assert model.report.by_layer == report.by_layer


def test_ties_come_back_to_be_settled(ends: Counter[int]) -> None:
    model = weft_runtime.load(compiled("lloyd"), backend="linear")
    x = torch.tensor([[0.0, 0.1], [1.0, 0.1], [2.0, 0.1], [3.0, 0.1]], dtype=torch.float64).repeat(50, 1)
    c = torch.tensor([[1.0, 0.1], [1.0, 0.1], [3.0, 0.1]], dtype=torch.float64)  # two are the same, one is as far
    expected, report = one_by_one(model, {"x": x, "c": c}, layers=5)
    assert_same_bits(expected, model.final({"x": x, "c": c}, layers=5))
    assert ends[DOUBT] >= 1
    assert model.report.total == report.total
    assert model.report.total.exact > 0


def test_sums_that_need_more_room_get_it(ends: Counter[int]) -> None:
    model = weft_runtime.load(compiled("lloyd"), backend="linear")
    generator = torch.Generator().manual_seed(0)
    scale = 2.0 ** torch.randint(-90, 1, (500, 1), generator=generator).double()
    x = torch.randn(500, 2, generator=generator, dtype=torch.float64) * scale
    inputs = {"x": x, "c": x[:3].clone()}
    expected, _ = one_by_one(model, inputs, layers=4)
    assert_same_bits(expected, model.final(inputs, layers=4))
    assert ends[WIDER] >= 1
    reference = weft_runtime.load(compiled("lloyd"), backend="reference")
    assert_same_bits(reference.final(inputs, layers=4), expected)


def test_sums_without_a_division_are_rounds_too(ends: Counter[int]) -> None:
    checkpoint = compile(COUNTED, {"d": 3, "k": 4})
    linear, reference = (weft_runtime.load(checkpoint, backend=name) for name in ("linear", "reference"))
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inputs = {"x": x, "c": x[:4].clone()}
    assert_same_bits(reference(inputs, layers=3), linear(inputs, layers=3))
    assert ends


def assert_refused_alike(inputs: dict[str, Any]) -> None:
    """Both backends end with the same words."""
    checkpoint, told = compile(COUNTED, {"d": 1, "k": 2}), []
    for backend in ("reference", "linear"):
        model = weft_runtime.load(checkpoint, dtype=torch.float32, backend=backend)
        with pytest.raises(RunError) as caught:
            model(inputs, layers=1)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_what_grows_out_of_its_dtype_is_told_as_ever(ends: Counter[int]) -> None:
    inputs = {"x": torch.full((200, 1), 3e38), "c": torch.tensor([[1.0], [-1.0]])}
    assert_refused_alike(inputs)
    assert ends[OVERFLOWN] == 1


def test_sums_that_find_no_room_run_layer_by_layer(ends: Counter[int]) -> None:
    model = weft_runtime.load(compiled("lloyd"), backend="linear")
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[7] *= 2.0**-600
    inputs = {"x": x, "c": x[:3].clone()}
    expected, _ = one_by_one(model, inputs, layers=4)
    assert_same_bits(expected, model.final(inputs, layers=4))
    assert model.report.backend == "linear"
    assert ends[WIDER] == 2
    batch = {"x": torch.stack([x, x]), "c": torch.stack([inputs["c"]] * 2)}
    assert torch.equal(model(batch, layers=4)["centers"][1], model(inputs, layers=4)["centers"])


def test_another_fallback_is_no_round(ends: Counter[int]) -> None:
    checkpoint = compile(SMALLER, {"d": 2, "k": 5})
    linear, reference = (weft_runtime.load(checkpoint, backend=name) for name in ("linear", "reference"))
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    inputs = {"x": x, "c": torch.cat([x[:4], torch.zeros(1, 2, dtype=torch.float64)])}
    assert_same_bits(reference(inputs, layers=4), linear(inputs, layers=4))
    assert linear.report.backend == "linear"
    assert not ends


def test_layers_go_on_where_a_run_before_has_stopped(ends: Counter[int]) -> None:
    model = weft_runtime.load(compiled("lloyd"), backend="linear")
    inputs = problem("lloyd", "random", 300, 7)
    whole = model(inputs, layers=6)
    half = model(inputs, layers=3)
    assert_same_bits(whole, model({**inputs, "c": half["centers"]}, layers=3))
    assert ends


def test_a_long_run_is_cut_so_that_it_can_be_interrupted(ends: Counter[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model = weft_runtime.load(compiled("lloyd"), backend="linear")
    inputs = problem("lloyd", "random", 300, 8)
    expected = model(inputs, layers=7)
    assert sum(ends.values()) == 1
    monkeypatch.setattr("weft_runtime.rounds.LONG", 1)
    assert_same_bits(expected, model(inputs, layers=7))
    assert sum(ends.values()) == 8


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    tokens=st.integers(1, 200),
    width=st.sampled_from([1, 2, 3, 5, 8, 17]),
    count=st.integers(1, 9),
    whole=st.booleans(),
    threads=st.sampled_from([1, 2, 3]),
)
def test_any_size_and_any_number_of_threads(
    seed: int, tokens: int, width: int, count: int, whole: bool, threads: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, width, generator=generator, dtype=torch.float64)
    x = (x * 3).round() if whole else x
    c = x[torch.randint(0, tokens, (count,), generator=generator)]
    checkpoint = compiled("lloyd", width=width, count=count)
    reference, linear = (weft_runtime.load(checkpoint, backend=name) for name in ("reference", "linear"))
    with pytest.MonkeyPatch.context() as patch:
        for module in ("rounds", "search", "native.sums"):
            patch.setattr(f"weft_runtime.{module}.cores", lambda: threads)
        found = linear.final(x=x, c=c, layers=5)
    assert_same_bits(reference.final(x=x, c=c, layers=5), found)


# ---------------------------------------------------------------------- batches
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("until", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("family", ["random", "exact ties on a grid", "abandoned rows"])
def test_rounds_of_a_batch_are_those_of_its_problems(
    ends: Counter[int], family: str, ragged: bool, until: bool, dtype: torch.dtype
) -> None:
    model = weft_runtime.load(compiled("lloyd"), dtype=dtype, backend="linear")
    sizes = [40, 1, 25, 60] if ragged else [40] * 4
    problems = [problem("lloyd", family, size, seed, str(dtype)[6:]) for seed, size in enumerate(sizes)]
    options: dict[str, Any] = {"until_stable": True} if until else {"layers": 7}
    batch = {name: [torch.as_tensor(each[name]) for each in problems] for name in ("x", "c")}
    batch["c"] = torch.stack(batch["c"])
    batch["x"] = batch["x"] if ragged else torch.stack(batch["x"])
    answer, report = model.final(batch, **options), model.report
    assert report.backend == "linear"
    assert ends
    expected, one = one_by_one(model, batch, **options)
    assert_same_bits(expected, answer)
    assert (report.layers, report.stable, report.total, report.by_layer) == (
        one.layers,
        one.stable,
        one.total,
        one.by_layer,
    )
    for number, alone in enumerate(problems):
        found = model.final(alone, **options)
        assert torch.equal(found["centers"], answer["centers"][number])
        assert torch.equal(found["labels"].indices, answer["labels"].indices[number][: sizes[number]])
        assert list(model.report.layers) == [report.layers[number]]


def test_a_problem_of_a_batch_that_overflows_is_told_as_ever(ends: Counter[int]) -> None:
    x = torch.ones(3, 50, 1)
    x[1] = 3e38
    inputs = {"x": x, "c": torch.tensor([[1.0], [-1.0]]).expand(3, 2, 1).contiguous()}
    assert_refused_alike(inputs)
    assert ends[OVERFLOWN] >= 1
