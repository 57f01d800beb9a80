"""Plans: what they see in the matrices, when they are made anew, and when the reference runs instead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import weftc_runtime
from planned_cases import assert_same_bits, both, compiled, problem
from weftc_runtime import Model, RunError
from weftc_runtime.machines import heads_kept
from weftc_runtime.plan.instructions import AttendPlan, Plan
from weftc_runtime.threads import each


def strategies(plan: Plan) -> dict[str, str]:
    return {head.head.name: head.strategy for _, head in plan.heads()}


def planned(name: str, **styles: Any) -> Model:
    return weftc_runtime.load(compiled(name, **styles), backend="planned")


# ---------------------------------------------------------------------- structure
def test_a_choice_is_an_index_and_its_mean_a_sum_over_segments() -> None:
    plan = planned("lloyd").plan()
    assert strategies(plan) == {"y": "nearest", "c": "segment", "(objective)": "best"}
    assert plan.forms["points", "y"] == "sparse"
    assert plan.forms["points", "1"] == "uniform"
    assert plan.forms["points", "x"] == "dense"


def test_a_number_times_an_index_is_an_index() -> None:
    plan = planned("weighted_kmeans").plan()
    assert plan.forms["points", "w*y"] == "sparse"
    assert strategies(plan)["c"] == "segment"


def test_soft_shares_are_computed_where_they_are_read_and_share_their_scores() -> None:
    plan = planned("soft_kmeans").plan()
    assert plan.forms["points", "y"] == plan.forms["points", "log y"] == "deferred"
    (attend,) = [sublayer for sublayer in plan.steps["layer.0"] if isinstance(sublayer, AttendPlan)]
    assert len({head.score_group for head in attend.heads}) == 1
    assert len(attend.heads) == 3


def test_a_head_whose_queries_are_constants_runs_once() -> None:
    plan = planned("lloyd", scores="dot").plan()
    assert {head.head.name for _, head in plan.heads() if head.uniform_query} == {"centre(x)", "centre(x)'2"}
    assert plan.forms["points", "centre(x)"] == "uniform"


def test_members_are_found_by_their_index() -> None:
    assert strategies(planned("trimmed_kmeans").plan())["c"] == "members"
    assert strategies(planned("kmedoids").plan())["c"] == "queries"


def test_refreshes_that_nobody_reads_in_the_step_are_left_out() -> None:
    plan = planned("lloyd", scores="dot").plan()
    assert "made when it is read" in str(plan)


def test_a_plan_can_be_read() -> None:
    text = str(planned("lloyd").plan())
    assert "slot points.y: an index per token" in text
    assert "head y: nearest (l2 scores in blocks, best and second best)" in text
    assert "head c: segment (keys count by y: exact sums)" in text


def test_structure_is_read_from_the_numbers_not_from_names() -> None:
    """Other numbers in the matrix of a mask: keys count for another query, and the backends still agree."""
    reference, model = both(compiled("lloyd"))
    inputs = problem("lloyd", "random", 30, 1)
    for one in (reference, model):
        mask = one.tensor("layer.1.0.c.mask.0.q")
        with torch.no_grad():
            mask[:3] = mask[[1, 2, 0]]  # cluster j takes the points of cluster j + 1
    assert_same_bits(reference(inputs), model(inputs))
    assert model.report.backend == "planned"


def test_a_rotated_value_is_no_index_any_more() -> None:
    reference, model = both(compiled("lloyd"))
    for one in (reference, model):
        with torch.no_grad():
            one.tensor("layer.0.0.y.v")[2, 2] = 0.5
    assert model.plan().forms["points", "y"] == "dense"
    inputs = problem("lloyd", "random", 30, 2)
    assert_same_bits({"c": reference(inputs)["centers"]}, {"c": model(inputs)["centers"]})


# ---------------------------------------------------------------------- validity
def test_an_edited_weight_makes_a_new_plan() -> None:
    model = planned("lloyd")
    inputs = problem("lloyd", "random", 20, 3)
    before = model(inputs)["centers"]
    assert model._planner.made == 1
    model(inputs)
    assert model._planner.made == 1
    with torch.no_grad():
        model.tensor("layer.1.0.c.v")[0, 0] = 2.0
    after = model(inputs)["centers"]
    assert model._planner.made == 2
    assert not torch.equal(before, after)
    model.backend = "reference"
    assert torch.equal(model(inputs)["centers"], after)


def test_an_edit_that_leaves_no_version_is_seen_too() -> None:
    reference, model = both(compiled("lloyd"))
    inputs = problem("lloyd", "random", 20, 3)
    for one in (reference, model):
        one(inputs)
        one.tensor("layer.1.0.c.v").data[0, 0] = 2.0
    assert_same_bits(reference(inputs), model(inputs))


@pytest.fixture
def large() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50_000, 2, generator=generator, dtype=torch.float64)
    return {"x": x, "c": x[:3].clone()}


def test_auto_takes_the_linear_backend_whatever_the_size(large: dict[str, Tensor]) -> None:
    model = weftc_runtime.load(compiled("lloyd"))
    assert model.backend == "auto"
    model(large, layers=1)
    assert (model.report.backend, model.report.why) == ("planned", "")
    model({"x": large["x"][:50], "c": large["c"]}, layers=1)
    assert (model.report.backend, model.report.why) == ("planned", "")


def test_a_hook_brings_the_reference_and_its_removal_the_plan(large: dict[str, Tensor]) -> None:
    model = weftc_runtime.load(compiled("lloyd"))
    seen: list[torch.Size] = []
    handle = model.blocks[0].resid("points").hook_resid_post.register_forward_hook(lambda m, i, o: seen.append(o.shape))
    hooked = model(large, layers=1)
    assert (model.report.backend, model.report.why) == ("reference", "a hook listens")
    assert seen
    handle.remove()
    assert_same_bits(hooked, model(large, layers=1))
    assert model.report.backend == "planned"


def test_gradients_bring_the_machine_that_is_made_for_them(large: dict[str, Tensor]) -> None:
    model = weftc_runtime.load(compiled("soft_kmeans"))
    wanted = {"x": large["x"][:30_000].clone(), "c": large["c"].clone().requires_grad_()}
    model(wanted, layers=1)["centers"].sum().backward()
    assert (model.report.backend, model.report.why) == ("gradients", "an input requires a gradient")
    assert wanted["c"].grad is not None
    trainable = weftc_runtime.load(compiled("lloyd"), trainable=True)
    trainable({"x": large["x"][:2000], "c": large["c"]}, layers=1)
    assert (trainable.report.backend, trainable.report.why) == ("reference", "the weights require gradients")


def test_what_cannot_run_planned_is_refused_when_planned_is_asked_for() -> None:
    model = planned("lloyd")
    inputs = problem("lloyd", "random", 10, 1)
    model.blocks[0].resid("points").hook_resid_post.register_forward_hook(lambda m, i, o: None)
    with pytest.raises(RunError, match="the planned backend cannot run this: a hook listens"):
        model(inputs)
    with pytest.raises(RunError, match="no attention patterns"):
        planned("lloyd").trace(inputs, patterns=True)
    with pytest.raises(RunError, match="unknown backend plannd; did you mean planned"):
        weftc_runtime.load(compiled("lloyd"), backend="plannd")


def test_errors_are_the_reference_s_own() -> None:
    reference, model = both(compiled("spherical_kmeans"))
    for one in (reference, model):
        with pytest.raises(RunError, match="x: row 1 is not a unit vector"):
            one(x=[[1.0, 0.0], [2.0, 0.0]], c=[[1.0, 0.0]] * 3)


def test_start_advance_and_trace_agree() -> None:
    reference, model = both(compiled("weighted_kmeans"))
    inputs = problem("weighted_kmeans", "random", 15, 4)
    first, second = reference.start(inputs), model.start(inputs)
    assert_same_bits(first, second)
    assert_same_bits(reference.advance(first, 0), model.advance(second, 0))
    assert_same_bits(reference.advance(reference.advance(first, 0), 1), model.advance(model.advance(second, 0), 1))
    one, other = reference.trace(inputs), model.trace(inputs)
    assert set(one) == set(other)
    for state, same in zip(one.fields, other.fields, strict=True):
        assert_same_bits(state, same)


def test_patterns_are_made_on_request() -> None:
    reference, model = both(compiled("sinkhorn_dual"))
    inputs = problem("sinkhorn_dual", "random", 8, 4)
    outputs = model(inputs)
    assert "plan: on request" in repr(outputs)
    # kappa: exp of (u + v - distance) / lambda, below 500 for these data, over three layers
    assert torch.allclose(reference(inputs)["plan"], outputs["plan"], rtol=0, atol=16 * 2.0**-52 * 1500)


# ---------------------------------------------------------------------- memory
class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes (views apart)."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else [out]:
            if isinstance(value, Tensor) and value._base is None:
                self.size = max(self.size, value.untyped_storage().nbytes() // value.element_size())
        return out


@pytest.mark.parametrize("name", ["lloyd", "soft_kmeans", "weighted_kmeans", "robust_softmax", "gmm_em", "kmedoids"])
def test_no_array_of_points_times_centers(name: str) -> None:
    n, k, d = 20_000, 40, 2
    inputs = problem(name, "random", n, 1, d=d, k=k)
    model = weftc_runtime.load(compiled(name, width=d, count=k), backend="planned")
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # so that all work is done where the mode listens
    try:
        with Largest() as largest:
            model(inputs, layers=1)
    finally:
        torch.set_num_threads(before)
    assert model.report.backend == "planned"
    assert n * d <= largest.size < n * k / 2


@pytest.mark.parametrize("name", ["mean_shift", "sinkhorn_dual", "nearest_neighbor", "sphere_flow"])
def test_no_array_of_points_times_points(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_kept, "MEMORY", 0)  # one that is kept on purpose apart
    n = 1500
    inputs = problem(name, "random", n, 1)
    model = weftc_runtime.load(compiled(name), backend="planned")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with Largest() as largest:
            model(inputs, layers=1)
    finally:
        torch.set_num_threads(before)
    assert model.report.backend == "planned"
    assert largest.size < n * n / 4


def test_workers_keep_order_and_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert each(lambda item: item * item, range(50), torch.device("cpu")) == [i * i for i in range(50)]
        assert torch.get_num_threads() == 2
        with torch.inference_mode():
            out = torch.zeros(4)
            each(lambda item: out[item : item + 1].fill_(item), range(4), torch.device("cpu"))
        assert out.tolist() == [0.0, 1.0, 2.0, 3.0]
    finally:
        torch.set_num_threads(before)
