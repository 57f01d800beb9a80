"""The native machine: the bits, layers, tiers and errors of the torch machine and the reference, whatever the grouping.

Every step of every spec is held against the NumPy interpreter in test_planned_specs.py, sub-layer by sub-layer on this
machine; here are whole runs, of many layers in one call, of batches, on any number of threads.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import weftc
import weftc_runtime
from pages import ROOT
from planned_cases import assert_same_bits, compiled, plain, problem
from weftc.compiling import compile
from weftc.core.source import Source
from weftc.estimators.derived_specs import forms_of
from weftc_runtime import Model, RunError
from weftc_runtime.data.noise import noise
from weftc_runtime.kernels.native.library import Library, library
from weftc_runtime.machines import native_machine
from weftc_runtime.machines.native_machine import DOUBT, LAYER
from weftc_runtime.machines.planned import PlannedBackend

HARD = [
    "lloyd",
    "spherical_kmeans",
    "trimmed_kmeans",
    "trimmed_normmax",
    "robust_kmeans",
    "weighted_kmeans",
    "kmedoids",
]
SOFT = [
    "soft_kmeans",
    "soft_spherical_kmeans",
    "robust_softmax",
    "gmm_em",
    "gmm_em_spherical",
    "mean_shift",
    "hopfield",
]

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
    """How native calls have ended, problem by problem."""
    assert library() is not None, "the tests need a C++ compiler"
    seen: Counter[int] = Counter()
    original = Library.run

    def noted(self: Library, *given: Any) -> None:
        original(self, *given)
        seen.update(given[-1][:, 0].tolist())

    monkeypatch.setattr(Library, "run", noted)
    return seen


def by_torch(model: Model, inputs: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """What a model answers and reports when torch runs every layer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlannedBackend, "many_layers", lambda *_: None)
        return model.final(inputs, **options), model.report


def decided(tiers: Any) -> tuple[int, int]:
    """How many rows were decided, and how many were not."""
    return tiers.fast + tiers.bound + tiers.exact, tiers.undecided


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("family", ["random", "exact ties on a grid", "near-ties of 1 to 16 ulp", "abandoned rows"])
@pytest.mark.parametrize("until", [False, True])
def test_layers_in_one_call_are_the_layers(
    ends: Counter[int], dtype: torch.dtype, name: str, family: str, until: bool
) -> None:
    model = weftc_runtime.load(compiled(name, width=9, count=6), dtype=dtype, backend="planned")
    inputs = problem(name, family, 200, 3, str(dtype)[6:], d=9, k=6)
    options = {"until_stable": True, "limit": 9} if until else {"layers": 9}
    try:
        expected, report = by_torch(model, inputs, **options, seed=5)
    except RunError as error:
        with pytest.raises(RunError, match=str(error)[:20]):
            model.final(inputs, **options, seed=5)
        return
    assert not ends
    assert_same_bits(expected, model.final(inputs, **options, seed=5))
    assert ends or report.backend == "reference"
    assert (model.report.backend, model.report.layers) == (report.backend, report.layers)
    assert model.report.stable == report.stable
    assert decided(model.report.total) == decided(report.total)
    assert [decided(layer) for layer in model.report.by_layer] == [decided(layer) for layer in report.by_layer]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 5000])
def test_soft_layers_are_close_to_those_of_torch(
    ends: Counter[int], dtype: torch.dtype, name: str, tokens: int
) -> None:
    width = 8 if tokens == 65 else 3  # eight columns are read at once
    model = weftc_runtime.load(compiled(name, width=width, count=4), dtype=dtype, backend="planned")
    inputs = problem(name, "random", max(tokens, 4), 3, str(dtype)[6:], d=width, k=4)
    try:
        expected, _ = by_torch(model, inputs, layers=1)
    except RunError:
        return
    found = model.final(inputs, layers=1)
    assert ends
    for key in expected:  # kappa: 1 + distances, below 200 for these data
        size = max(1.0, float(plain(expected[key]).abs().max()))
        slack = 16 * torch.finfo(dtype).eps * 200 * size
        assert torch.allclose(plain(expected[key]), plain(found[key]), rtol=0, atol=slack), key


def test_scratch_that_is_made_when_read_at_one_time_and_stored_at_another(ends: Counter[int]) -> None:
    source = Source("mixture.weft", (ROOT / "specs" / "gmm_em_spherical.weft").read_text())
    weighted = forms_of(source).chosen(True).checked  # its last step needs the shares, and scratch that held numbers
    model = weftc_runtime.load(compile(weighted, {"d": 2, "k": 3}), backend="planned")
    random = np.random.default_rng(4)
    inputs = {"x": random.normal(size=(40, 2)), "w": random.random(40), "c": random.normal(size=(3, 2))}
    expected, _ = by_torch(model, inputs, layers=3)
    found = model.final(inputs, layers=3)
    assert ends
    for name in expected:
        assert torch.allclose(expected[name], found[name], rtol=1e-12, atol=1e-12), name


FAR_AWAY = """
algorithm far_away

tokens  i in points
        j in centers : k

inputs  x[i] : R^d
        c[j] : R^d  init spread(x)

layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  c[j]   = mean[i] x[i] weighted y[i,j] / (1 + |x[i] - c[j]|^2) else c[j]

outputs centers = c
"""


def test_scratch_that_is_made_from_what_it_held_before(ends: Counter[int]) -> None:
    model = weftc_runtime.load(weftc.compile(FAR_AWAY, {"d": 2, "k": 3}), backend="planned")
    random = np.random.default_rng(4)
    inputs = {"x": random.normal(size=(300, 2)), "c": random.normal(size=(3, 2))}
    expected, _ = by_torch(model, inputs, layers=3)
    assert torch.allclose(expected["centers"], model.final(inputs, layers=3)["centers"], rtol=1e-12, atol=1e-12)
    assert ends


@pytest.mark.parametrize("style", [{"weights": "unrolled"}, {"erase": "attention"}, {"hardmax": "softmax"}])
@pytest.mark.parametrize("name", ["lloyd", "spherical_kmeans", "gmm_em", "kmedoids"])
def test_styles_run_as_planned(ends: Counter[int], name: str, style: dict[str, str]) -> None:
    """Weights for every layer, tokens that look at themselves, finite temperature: as the reference runs them."""
    checkpoint = compiled(name, width=3, count=4, **style)
    planned, reference = (weftc_runtime.load(checkpoint, backend=backend) for backend in ("planned", "reference"))
    inputs = problem(name, "random", 60, 3, "float64", d=3, k=4)
    expected, found = reference.final(inputs, layers=3), planned.final(inputs, layers=3)
    for key in expected:
        assert torch.allclose(plain(expected[key]), plain(found[key]), rtol=1e-9, atol=1e-9), key
    assert planned.report.backend == "planned"
    if "erase" not in style:  # the reference counts tokens that choose themselves
        assert decided(planned.report.total) == decided(reference.report.total)
    assert planned.report.warnings == reference.report.warnings
    if "weights" in style and name in ("lloyd", "spherical_kmeans"):
        assert ends
        assert len(planned.report.by_layer) == 3


def test_ties_are_settled_natively(ends: Counter[int]) -> None:
    model = weftc_runtime.load(compiled("lloyd"), backend="planned")
    x = torch.tensor([[0.0, 0.1], [1.0, 0.1], [2.0, 0.1], [3.0, 0.1]], dtype=torch.float64).repeat(50, 1)
    c = torch.tensor([[1.0, 0.1], [1.0, 0.1], [3.0, 0.1]], dtype=torch.float64)  # two are the same, one is as far
    expected, report = by_torch(model, {"x": x, "c": c}, layers=5)
    assert_same_bits(expected, model.final({"x": x, "c": c}, layers=5))
    assert not ends[DOUBT]
    assert model.report.total.exact > 0
    assert decided(model.report.total) == decided(report.total)


def test_what_is_beyond_its_range_comes_back_to_be_settled(ends: Counter[int]) -> None:
    model = weftc_runtime.load(compiled("lloyd"), backend="planned")
    x = torch.tensor([[1e-200, 0.0], [3e200, 0.0], [0.0, 1e-190]], dtype=torch.float64)
    c = torch.tensor([[0.0, 0.0], [4e200, 0.0], [0.0, 0.0]], dtype=torch.float64)
    reference = weftc_runtime.load(compiled("lloyd"), backend="reference")
    assert_same_bits(reference.final({"x": x, "c": c}, layers=1), model.final({"x": x, "c": c}, layers=1))
    assert ends[DOUBT]


def test_sums_that_need_more_room_get_it(ends: Counter[int]) -> None:
    model = weftc_runtime.load(compiled("lloyd"), backend="planned")
    generator = torch.Generator().manual_seed(0)
    scale = 2.0 ** torch.randint(-90, 1, (500, 1), generator=generator).double()
    x = torch.randn(500, 2, generator=generator, dtype=torch.float64) * scale
    inputs = {"x": x, "c": x[:3].clone()}
    reference = weftc_runtime.load(compiled("lloyd"), backend="reference")
    assert_same_bits(reference.final(inputs, layers=4), model.final(inputs, layers=4))
    assert set(ends) == {0}


def test_sums_without_a_division(ends: Counter[int]) -> None:
    checkpoint = compile(COUNTED, {"d": 3, "k": 4})
    planned, reference = (weftc_runtime.load(checkpoint, backend=name) for name in ("planned", "reference"))
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inputs = {"x": x, "c": x[:4].clone()}
    assert_same_bits(reference(inputs, layers=3), planned(inputs, layers=3))
    assert ends


def assert_refused_alike(inputs: dict[str, Any]) -> None:
    """Both backends end with the same words."""
    checkpoint, told = compile(COUNTED, {"d": 1, "k": 2}), []
    for backend in ("reference", "planned"):
        model = weftc_runtime.load(checkpoint, dtype=torch.float32, backend=backend)
        with pytest.raises(RunError) as caught:
            model(inputs, layers=1)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_what_grows_out_of_its_dtype_is_told_as_ever(ends: Counter[int]) -> None:
    inputs = {"x": torch.full((200, 1), 3e38), "c": torch.tensor([[1.0], [-1.0]])}
    assert_refused_alike(inputs)
    assert ends[LAYER] == 1


def test_a_layer_that_the_machine_does_not_get_through_is_run_by_torch(ends: Counter[int]) -> None:
    model = weftc_runtime.load(compiled("lloyd"), backend="planned")
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[7] *= 2.0**-600
    inputs = {"x": x, "c": x[:3].clone()}
    expected, _ = by_torch(model, inputs, layers=4)
    assert_same_bits(expected, model.final(inputs, layers=4))
    assert model.report.backend == "planned"
    assert ends[LAYER]
    batch = {"x": torch.stack([x, x]), "c": torch.stack([inputs["c"]] * 2)}
    assert torch.equal(model(batch, layers=4)["centers"][1], model(inputs, layers=4)["centers"])


def test_another_fallback(ends: Counter[int]) -> None:
    checkpoint = compile(SMALLER, {"d": 2, "k": 5})
    planned, reference = (weftc_runtime.load(checkpoint, backend=name) for name in ("planned", "reference"))
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    inputs = {"x": x, "c": torch.cat([x[:4], torch.zeros(1, 2, dtype=torch.float64)])}
    assert_same_bits(reference(inputs, layers=4), planned(inputs, layers=4))
    assert ends


def test_layers_go_on_where_a_run_before_has_stopped(ends: Counter[int]) -> None:
    model = weftc_runtime.load(compiled("lloyd"), backend="planned")
    inputs = problem("lloyd", "random", 300, 7)
    whole = model(inputs, layers=6)
    half = model(inputs, layers=3)
    assert_same_bits(whole, model({**inputs, "c": half["centers"]}, layers=3))
    assert ends


def test_a_long_run_is_cut_so_that_it_can_be_interrupted(ends: Counter[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model = weftc_runtime.load(compiled("lloyd"), backend="planned")
    inputs = problem("lloyd", "random", 300, 8)
    expected = model(inputs, layers=7)
    assert sum(ends.values()) == 1
    monkeypatch.setattr(native_machine, "LONG", 1)
    assert_same_bits(expected, model(inputs, layers=7))
    assert sum(ends.values()) == 8


def test_drawn_numbers_choose_as_the_generator_does() -> None:
    """The best of n drawn numbers, against NumPy: no distance and no index counts."""
    checkpoint = compile("kmedoids", {"d": 1, "k": 5}, {"delta": 0})
    for dtype in (torch.float32, torch.float64):
        model = weftc_runtime.load(checkpoint, dtype=dtype, backend="planned")
        x, c = torch.zeros(777, 1, dtype=dtype), torch.zeros(5, 1, dtype=dtype)
        x[:, 0] = torch.arange(777) * 2.0**-40
        for seed in range(20):
            drawn = noise("gumbel", seed, "g", 0, 777, 5).astype(str(dtype)[6:])
            found = model({"x": x, "c": c}, seed=seed, layers=1)["medoids"][:, 0]
            assert found.tolist() == x[torch.from_numpy(np.argmax(drawn, 0)), 0].tolist()


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(HARD),
    seed=st.integers(0, 10**6),
    tokens=st.integers(1, 200),
    width=st.sampled_from([1, 2, 3, 5, 8, 17]),
    count=st.integers(1, 9),
    threads=st.sampled_from([1, 2, 3]),
    family=st.sampled_from(["random", "exact ties on a grid", "duplicates"]),
)
def test_any_size_and_any_number_of_threads(
    name: str, seed: int, tokens: int, width: int, count: int, threads: int, family: str
) -> None:
    inputs = problem(name, family, max(tokens, count), seed, d=width, k=count)
    checkpoint = compiled(name, width=width, count=count)
    reference, planned = (weftc_runtime.load(checkpoint, backend=name) for name in ("reference", "planned"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_machine, "cores", lambda: threads)
        try:
            expected = reference.final(inputs, layers=3, seed=seed)
        except RunError:
            with pytest.raises(RunError):
                planned.final(inputs, layers=3, seed=seed)
            return
        assert_same_bits(expected, planned.final(inputs, layers=3, seed=seed))


@pytest.mark.parametrize("name", [*HARD, *SOFT])
def test_threads_change_no_bit_of_large_problems(name: str) -> None:
    inputs = problem(name, "random", 20_000, 3, d=3, k=4)
    model = weftc_runtime.load(compiled(name, width=3, count=4), backend="planned")
    answers = []
    for threads in (1, 2, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native_machine, "cores", lambda threads=threads: threads)
            answers.append(model(inputs, layers=3, seed=1))
    for answer in answers[1:]:
        assert_same_bits(answers[0], answer)


# ---------------------------------------------------------------------- batches
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [*HARD, *SOFT])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("until", [False, True])
def test_a_batch_is_its_problems(ends: Counter[int], name: str, ragged: bool, until: bool, dtype: torch.dtype) -> None:
    model = weftc_runtime.load(compiled(name), dtype=dtype, backend="planned")
    sizes = [40, 7, 25, 60] if ragged else [40] * 4
    problems = [problem(name, "random", size, seed, str(dtype)[6:]) for seed, size in enumerate(sizes)]
    options: dict[str, Any] = {"until_stable": True, "limit": 8} if until else {"layers": 4}
    seeds = [3, 1, 4, 1]
    batch: dict[str, Any] = {key: [torch.as_tensor(each[key]) for each in problems] for key in problems[0]}
    try:
        alone = [model(each, **options, seed=seed) for each, seed in zip(problems, seeds, strict=True)]
    except RunError:
        return
    answer, report = model(batch, **options, seed=seeds), model.report
    assert report.backend == "planned"
    assert ends
    for number, one in enumerate(alone):
        for key in one:
            found, wanted = plain(answer[key])[number], plain(one[key])
            where = tuple(slice(0, size) for size in wanted.shape)
            assert torch.equal(found[where], wanted), (key, number)


def test_a_problem_of_a_batch_that_overflows_is_told_as_ever(ends: Counter[int]) -> None:
    x = torch.ones(3, 50, 1)
    x[1] = 3e38
    inputs = {"x": x, "c": torch.tensor([[1.0], [-1.0]]).expand(3, 2, 1).contiguous()}
    assert_refused_alike(inputs)


RANKED = """
algorithm ranked

tokens  i in points
        q in queries

inputs  x[i] : R^d
        t[i] : R^m
        z[q] : R^d

layer
  answer[q] = FORM

outputs answers = answer
"""


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize(
    "form",
    [
        "mean[i] t[i] by lowest[i](|z[q] - x[i]|^2, 5)",
        "mean[i] t[i] by highest[i](<z[q], x[i]>, 40)",
        "mean[i] t[i] by lowest[i](|z[q] - x[i]|^2, 30%)",
        "sum[i] normmax[i](-|z[q] - x[i]|^2, 0.05) * t[i]",
        "sum[i] sparsemax[i](-|z[q] - x[i]|^2 / 9) * t[i]",
    ],
)
def test_rankings_of_all_keys(form: str, grid: bool, ends: Counter[int]) -> None:
    checkpoint = compile(RANKED.replace("FORM", form), {"d": 3, "m": 2})
    chance = np.random.default_rng(7)
    for points, queries, dtype in ((70, 1, "float64"), (130, 45, "float32")):
        sizes = (points, 3), (queries, 3)
        x, z = (chance.integers(-3, 4, s) if grid else 3 * chance.standard_normal(s) for s in sizes)
        inputs = {"x": x.astype(dtype), "z": z.astype(dtype), "t": chance.standard_normal((points, 2)).astype(dtype)}
        model, judge = (weftc.load(checkpoint, dtype=dtype, backend=name) for name in ("planned", "reference"))
        found, wanted = model(inputs, layers=2), judge(inputs, layers=2)
        assert torch.equal(found["answers"], wanted["answers"])
    assert set(ends) == {0}


WEIGHTED = """
algorithm careful

tokens  i in points
        j in centers : k

inputs  x[i] : R^d
        c[j] : R^d

layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  c[j]   = mean[i] x[i] weighted y[i,j] / (1 + |x[i] - c[j]|^2) else c[j]

outputs centers = c
"""


def test_a_trace_keeps_its_names_where_the_reference_goes_on() -> None:
    model = weftc.load(compile(WEIGHTED, {"d": 2, "k": 2}), backend="planned")
    found = model.trace(x=torch.zeros(1, 2), c=torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), layers=1)
    assert not [name for name in found if name.startswith("blocks.")]


@pytest.mark.parametrize("spec", ["lloyd", "spherical_kmeans"])
@pytest.mark.parametrize("power", [0, 300, -520])
def test_the_best_score_has_the_bits_of_the_reference(spec: str, power: int) -> None:
    made = compile(spec, {"d": 7, "k": 3})
    given = {"x": torch.randn(40, 1, 7, dtype=torch.float64), "c": torch.randn(40, 3, 7, dtype=torch.float64)}
    given = {name: torch.nn.functional.normalize(value, dim=-1) for name, value in given.items()}
    given = given if spec == "spherical_kmeans" else {name: value * 2.0**power for name, value in given.items()}
    found = [weftc.load(made, backend=name).objective(**given, layers=0) for name in ("planned", "reference")]
    assert torch.equal(*found)


def test_a_batch_runs_in_lots_and_forgets_what_only_saves_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """More problems than the machine keeps anything of, in lots of which the last is one problem: the same numbers."""
    monkeypatch.setattr(native_machine, "LOT", 1 << 13)
    many = 2 * (1 << 13) + 1
    random = np.random.default_rng(0)
    x, c = random.normal(size=(many, 2, 1)), random.normal(size=(many, 1, 1))
    model = weftc_runtime.load(compile("lloyd", {"d": 1, "k": 1}), backend="planned")
    found = model(x=x, c=c, layers=2)["centers"].numpy()
    assert model.report.backend == "planned"
    assert np.array_equal(found, x.mean(1, keepdims=True))


MEMBERS = """algorithm members
tokens  l in points
        j in centers : k
inputs  x[l] : R^d
        c[j] : R^d
layer
  y[l,j] = argmin[j] |x[l] - c[j]|^2
  then
  c[j] = mean[l] x[l] by argmin[l](|x[l] - c[j]|^2 where y[l,j] TIES) else c[j]
  n[j] = mean[l] x[l] by argmin[l](1 where y[l,j] TIES) else c[j]
outputs c, n
"""


@pytest.mark.parametrize("ties", ["", "ties split", "ties within 0.5"])
def test_ties_among_members_go_where_the_spec_says(ties: str) -> None:
    model = weftc.load(weftc.compile(MEMBERS.replace("TIES", ties), dims={"k": 3, "d": 1}))
    rng = np.random.default_rng(0)
    for _ in range(40):
        x = rng.integers(-3, 4, size=(int(rng.integers(2, 40)), 1)).astype(float)
        c = rng.integers(-2, 3, size=(3, 1)) / 2
        meant = weftc.interpret(MEMBERS.replace("TIES", ties), {"x": x, "c": c}, layers=1, dims={"k": 3})
        found = model(x=x, c=c, layers=1)
        assert found["c"].tolist() == meant["c"].tolist()
        assert found["n"].tolist() == meant["n"].tolist()
