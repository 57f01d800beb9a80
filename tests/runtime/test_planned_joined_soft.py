"""Soft weights in batches that run as one: every step is what the interpreter says, and every problem as if alone."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import weftc
import weftc_runtime
from joined_cases import Steps, batch, one
from planned_cases import both, compiled, plain
from weftc.compiling import checked_spec
from weftc.verification.cases.inputs import Case
from weftc.verification.runs.runs import judge_of
from weftc_runtime import Model, RunError
from weftc_runtime.errors import Uncovered
from weftc_runtime.machines import heads_stream_joined
from weftc_runtime.machines.joined import apart
from weftc_runtime.machines.planned import PlannedBackend

SOFT = (
    "soft_kmeans",
    "gmm_em",
    "gmm_em_spherical",
    "soft_spherical_kmeans",
    "mean_shift",
    "blurring_mean_shift",
    "hopfield",
    "power_iteration",
    "sphere_flow",
)
SIZES = {"equal": [12] * 4, "ragged": [9, 30, 1, 17, 30, 2], "one large": [5, 7, 160, 6, 5]}


def sizes_of(name: str, kind: str) -> list[int]:
    """Tokens of each problem; a mixture of one or two points has no variance."""
    return [size + 3 * name.startswith("gmm") for size in SIZES[kind]]


@pytest.fixture(params=[heads_stream_joined.TILE, 200], ids=["tiles", "small tiles"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Scores of a tile: as they are, or so few that problems make several tiles, and large ones run alone."""
    monkeypatch.setattr(heads_stream_joined, "TILE", request.param)
    return int(request.param)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SOFT)
def test_every_step_of_every_problem_agrees_with_the_meaning(
    name: str, dtype: str, sizes: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = judge_of(checked_spec(name), compiled(name, count=4), dtype, backend="planned")
    inputs = batch(name, "random", sizes_of(name, sizes), dtype)
    steps = Steps(judge.watched.model)
    steps.watch(monkeypatch)
    judge.watched.model(inputs, layers=2)
    many = len(SIZES[sizes])
    cases = [Case("random", {key: v.numpy() for key, v in one(inputs, n).items()}, 2) for n in range(many)]
    for outcome in steps.judged(judge, cases):
        assert outcome.divergence is None, outcome.divergence
        assert outcome.steps == 2 * len(judge.steps)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", SOFT)
def test_outputs_and_objectives_are_those_of_each_problem_alone(name: str, sizes: str, tile: int) -> None:
    model = weftc_runtime.load(compiled(name, count=4), backend="planned")
    inputs = batch(name, "random", sizes_of(name, sizes))
    found = model.final(inputs, layers=2)
    assert (model.report.backend, model.report.layers) == ("planned", (2,) * len(SIZES[sizes]))
    goal = None if model.program.objective is None else model.objective(inputs, layers=2)
    for number in range(len(SIZES[sizes])):
        alone = model.final(one(inputs, number), layers=2)
        for key, wanted in alone.items():
            got = plain(found[key])[number][: len(wanted)]
            # kappa: 1 + distances (below 100 for these data), twice; a variance may be as small as 1/100
            assert torch.allclose(got, wanted, rtol=0, atol=16 * 2.0**-52 * 1e4 * max(1.0, float(wanted.abs().max())))
        if goal is not None:
            total = model.objective(one(inputs, number), layers=2)
            assert torch.allclose(goal[number], total, rtol=0, atol=16 * 2.0**-52 * 1e4 * max(1.0, float(total.abs())))


@pytest.mark.parametrize("name", ["soft_kmeans", "hopfield"])
def test_each_problem_runs_until_it_is_stable(name: str) -> None:
    model = weftc_runtime.load(compiled(name, count=4), backend="planned", dtype=torch.float32)
    inputs = batch(name, "random", [9, 30, 1, 17], "float32")
    found = model.final(inputs, until_stable=True, limit=400)
    stable, layers = model.report.stable, model.report.layers
    for number in range(4):
        alone = model.final(one(inputs, number), until_stable=True, limit=400)
        assert stable[number] == model.report.stable[0]
        for key, wanted in alone.items():  # both are fixed points up to rounding; kappa of the way there is below 1e4
            got = plain(found[key])[number][: len(wanted)]
            assert torch.allclose(got, wanted, rtol=0, atol=16 * 2.0**-23 * 1e4)
    assert all(stable)
    assert len(set(layers)) > 1


def test_a_batch_is_one_array_or_a_list_and_starts_by_itself() -> None:
    model = weftc_runtime.load(compiled("soft_kmeans", count=4), backend="planned")
    x = batch("soft_kmeans", "random", [12] * 3)["x"]
    one_array, listed = model(x=torch.stack(x), seed=[1, 2, 3]), model(x=x, seed=[1, 2, 3])
    for key in one_array:
        assert torch.equal(one_array[key], listed[key])


def test_problems_are_never_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    embed = PlannedBackend.embed

    def embedded(self: Any, filled: Any, counts: Any, number: int, peaks: Any) -> Any:
        made.append(number)
        return embed(self, filled, counts, number, peaks)

    monkeypatch.setattr(PlannedBackend, "embed", embedded)
    for name in SOFT:
        model = weftc_runtime.load(compiled(name, count=4), backend="planned")
        assert apart(model.program, model.plan()) == ""
        model.final(batch(name, "random", [9, 4, 9]), layers=2)
    assert set(made) == {-1}


def test_what_was_read_of_a_state_does_not_keep_the_states_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares are made when they are read; those of the last layer hold the centers they are made of, and no others."""
    seen: list[weakref.ref[torch.Tensor]] = []
    step = PlannedBackend.step

    def stepped(self: PlannedBackend, what: Any, problems: Any, blocks: Any, path: str, first: int) -> None:
        step(self, what, problems, blocks, path, first)
        seen.append(weakref.ref(problems[0].residuals["centers"].slot("c").value))

    monkeypatch.setattr(PlannedBackend, "step", stepped)
    model = weftc_runtime.load(compiled("soft_kmeans", count=4), backend="planned")
    found = model(batch("soft_kmeans", "random", [9, 9, 9]), layers=8)
    gc.collect()
    held = {id(ref()) for ref in seen if ref() is not None}
    assert len(held) <= 3  # of nine: the input, those of the shares, the last
    assert found["shares"].shape == (3, 9, 4)


def test_each_problem_has_the_accuracy_of_its_own_scale() -> None:
    """A problem of tiny numbers beside one of large numbers: its distances are as exact as alone."""
    model = weftc_runtime.load(compiled("gmm_em_spherical", count=4), backend="planned")
    inputs = batch("gmm_em_spherical", "random", [20, 20])
    small = {key: [values[0] * 2.0**12, values[1] * 2.0**-12] for key, values in inputs.items()}
    found = model(small, layers=1)
    for number in range(2):
        alone = model(one(small, number), layers=1)
        for key, wanted in alone.items():  # kappa: 1 + range of the scores for the first one, at most 2^24 * 100
            got, allowed = plain(found[key])[number], 16 * 2.0**-52 * (2.0**31 if number == 0 else 1e3)
            assert torch.allclose(got, wanted, rtol=0, atol=allowed * float(wanted.abs().max()))


def refusal(model: Model, inputs: Any = None, **named: Any) -> str:
    with pytest.raises(RunError) as raised:
        model(inputs, **named)
    return str(raised.value)


GROWING = """
algorithm growing

tokens  i in points
        j in centers : k

inputs  x[i] : R^d
        c[j] : R^d

layer
  c[j] = sum[i] exp(<x[i], c[j]>) * x[i]

outputs centers = c
"""


def test_a_problem_that_has_no_value_is_named_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "growing.weft"
    path.write_text(GROWING)
    checkpoint = weftc.compile(path, dims={"d": 2, "k": 2}, layers=2)
    planned, reference = (weftc_runtime.load(checkpoint, backend=backend) for backend in ("planned", "reference"))
    assert apart(planned.program, planned.plan()) == ""
    x = torch.full((3, 4, 2), 0.5, dtype=torch.float64)
    c = torch.full((3, 2, 2), 0.1, dtype=torch.float64)
    assert torch.allclose(planned(x=x, c=c)["centers"], reference(x=x, c=c)["centers"], rtol=16 * 2.0**-52 * 10, atol=0)
    c[1] = 2e3
    assert refusal(planned, x=x, c=c) == refusal(reference, x=x, c=c)
    assert "exp(2000) overflows" in refusal(planned, x=x, c=c)


def test_a_problem_whose_variance_is_zero_is_refused_as_ever() -> None:
    inputs = batch("gmm_em", "random", [9, 1, 7])
    reference, planned = both(compiled("gmm_em", count=4))
    assert refusal(planned, inputs, layers=2) == refusal(reference, inputs, layers=2)
    assert planned(inputs, layers=1)["means"].shape == (3, 4, 2)
    assert planned.report.backend == "planned"


def test_what_only_a_problem_alone_can_tell_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that the joined problems do not get through runs problem by problem, and so do those behind it."""
    original = heads_stream_joined.JoinedStream.run
    calls = []

    def run(self: Any, pairs: Any) -> torch.Tensor:
        calls.append(pairs)
        if len(calls) == 2:
            raise Uncovered("for once")
        return original(self, pairs)

    monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)
    model = weftc_runtime.load(compiled("soft_kmeans", count=4), backend="planned")
    inputs = batch("soft_kmeans", "random", [9, 12])
    wanted = model(inputs, layers=3)
    monkeypatch.setattr(heads_stream_joined.JoinedStream, "run", run)
    found = model(inputs, layers=3)
    assert (len(calls), model.report.backend, model.report.layers) == (2, "planned", (3, 3))
    for key in wanted:  # kappa: 1 + distances, below 100 for these data, three times
        assert torch.allclose(found[key], wanted[key], rtol=0, atol=16 * 2.0**-52 * 1e4)


STILL = """
algorithm still

tokens  i in points
        j in centers : k

inputs  x[i] : R^d
        c[j] : R^d
        s[j] : R^d

layer
  c[j] = unit((sum[i] <x[i], c[j]> * x[i]) - s[j]) else c[j]

outputs centers = c
"""


def test_whether_a_soft_sum_is_zero_is_asked_of_its_own_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "still.weft"
    path.write_text(STILL)
    checkpoint = weftc.compile(path, dims={"d": 2, "k": 1}, layers=1)
    x = torch.tensor([[[1, 0], [3, 0]], [[2, 0], [1, 0]]], dtype=torch.float64)
    c, s = torch.tensor([[[1, 0]]] * 2, dtype=torch.float64), torch.tensor([[[10, 0]], [[1, 0]]], dtype=torch.float64)
    c[0] *= 2
    s[0] *= 2
    parted: list[Any] = []
    monkeypatch.setattr(PlannedBackend, "taken_back", lambda self, noted: parted.append(noted))
    found = weftc_runtime.load(checkpoint, backend="planned")(x=x, c=c, s=s)
    assert found["centers"].tolist() == [[[2.0, 0.0]], [[1.0, 0.0]]]
    assert not parted
