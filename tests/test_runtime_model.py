"""The module: outputs, batches, traces, hooks, gradients, dtypes, devices."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from programs import PERCENT, dual_ascent, hard_clustering, largest, nearest_to_mean, soft_clustering, with_objective
from weft_runtime import OneHot, RunError, load
from weft_runtime.hooks import HookSite
from weft_runtime.ir import Condition
from weft_runtime.noise import noise

POINTS = [[-3.0], [-2.0], [0.0], [2.0], [3.0]]
CENTERS = [[-1.0], [1.0]]


def data(seed: int, n: int, d: int = 2) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, d)))


# ---------------------------------------------------------------------- golden values
def test_hard_clustering_by_hand() -> None:
    model = load(hard_clustering(1, 2))
    out = model(x=POINTS, c=CENTERS)
    assert out["centers"].tolist() == [[-5 / 3], [2.5]]
    assert out["labels"].indices.tolist() == [0, 0, 0, 1, 1]
    assert out["labels"].dense().tolist() == [[1, 0]] * 3 + [[0, 1]] * 2
    assert model(x=POINTS, c=CENTERS, layers=0)["labels"].indices.tolist() == [-1] * 5
    assert model.report.layers == (0,)


def test_a_trimmed_cluster_by_hand() -> None:
    x = [[0.0], [1.0], [2.0], [3.0], [10.0]]
    assert load(hard_clustering(1, 1, update=PERCENT))(x=x, c=[[0.0]])["centers"].tolist() == [[1.0]]


def test_soft_clustering_by_hand() -> None:
    trace = load(soft_clustering(1, 2, 0.5)).trace(x=POINTS, c=CENTERS)
    assert trace.outputs["centers"].flatten().tolist() == pytest.approx([-1.965288, 1.965288], abs=5e-7)
    want = [0.997527, 0.982014, 0.5, 0.017986, 0.002473]
    assert trace["layers.0.blocks.0.points.y"][:, 0].tolist() == pytest.approx(want, abs=5e-7)


def test_a_null_key_by_hand() -> None:
    model = load(dual_ascent(1))
    x = [[0.0], [1.0]]
    for layers, want in ((1, -0.00213857), (2, -0.0028494)):
        out = model(x=x, y=x, layers=layers)
        assert out["u"].tolist() == pytest.approx([want] * 2, abs=5e-9)
        assert out["v"].tolist() == pytest.approx([want] * 2, abs=5e-9)


def ascent(x: Any, y: Any, layers: int, smoothing: float, step: float) -> tuple[Any, Any, Any]:
    """The same in plain NumPy."""
    n = len(x)
    u, v = np.zeros(n), np.zeros(n)
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    for _ in range(layers):
        m = np.exp((u[:, None] + v[None] - cost) / smoothing - 1)
        r, s = m.sum(1), m.sum(0)
        u, v = u + step * (1 / n - r) / (1 + r), v + step * (1 / n - s) / (1 + s)
    return u, v, n * np.exp((u[:, None] + v[None] - cost) / smoothing - 1)


@pytest.mark.parametrize(("n", "d", "smoothing"), [(1, 1, 1.0), (7, 3, 0.5), (20, 2, 0.1)])
def test_a_null_key_against_numpy(n: int, d: int, smoothing: float) -> None:
    x, y = data(n, n, d), data(n + 1, n, d)
    out = load(dual_ascent(d, smoothing, 0.3))(x=x, y=y, layers=5)
    u, v, plan = ascent(x.numpy(), y.numpy(), 5, smoothing, 0.3)
    # kappa: a softmax weight moves by its score, 1 + (largest cost) / smoothing; five layers
    kappa = 5 * (1 + float(((x[:, None] - y[None]) ** 2).sum(-1).max()) / smoothing)
    assert np.abs(out["u"].numpy() - u).max() <= 16 * 2.2e-16 * kappa
    assert np.abs(out["v"].numpy() - v).max() <= 16 * 2.2e-16 * kappa
    assert np.abs(out["plan"].numpy() - plan).max() <= 16 * 2.2e-16 * kappa * plan.max()


def test_far_scores_do_not_underflow_the_weights() -> None:
    out = load(soft_clustering(1, 2, 1.0))(x=[[0.0], [1.0]], c=[[0.0], [1.0]])
    assert torch.isfinite(out["centers"]).all()
    near = load(dual_ascent(1))(x=[[1e6], [1e6 + 1]], y=[[1e6], [1e6 + 1]], layers=2)
    assert near["u"].tolist() == pytest.approx([-0.0028494] * 2, abs=5e-8)


# ---------------------------------------------------------------------- final, objective, stable, unrolled
def test_final_makes_labels_for_the_final_centers() -> None:
    model = load(hard_clustering(1, 2))
    x, c = [[0.0], [3.0], [9.0]], [[0.0], [5.0]]
    held, final = model(x=x, c=c), model.final(x=x, c=c)
    assert held["labels"].indices.tolist() == [0, 1, 1]
    assert held["centers"].tolist() == final["centers"].tolist() == [[0.0], [6.0]]
    assert final["labels"].indices.tolist() == [0, 0, 1]  # 3 is half way between 0 and 6
    assert model.report.heads["again.0.assign"].bound == 3
    assert model(x=POINTS, c=CENTERS, layers=0)["labels"].indices.tolist() == [-1] * 5
    assert model.final(x=POINTS, c=CENTERS, layers=0)["labels"].indices.tolist() == [0, 0, 0, 1, 1]


def test_the_objective_is_that_of_the_final_state() -> None:
    model = load(with_objective(hard_clustering(1, 2)))
    value = model.objective(x=POINTS, c=CENTERS)
    centers = model(x=POINTS, c=CENTERS)["centers"].flatten().tolist()
    want = math.fsum(min((p[0] - c) ** 2 for c in centers) for p in POINTS)
    assert float(value) == pytest.approx(want, rel=1e-15)
    assert value.shape == ()
    batch = model.objective(x=torch.stack([torch.tensor(POINTS)] * 3), c=CENTERS)
    assert batch.tolist() == [float(value)] * 3
    with pytest.raises(RunError, match="states no objective"):
        load(hard_clustering(1, 2)).objective(x=POINTS)


def test_an_output_that_overflows_float32_is_named() -> None:
    """1e40 fits the float64 it is computed in, but not the dtype of the model."""
    model = load(with_objective(hard_clustering(1, 2)), torch.float32)
    with pytest.raises(RunError, match=r"cost of points, token 1 .* does not fit float32"):
        model(x=[[0.0], [1e20]], c=[[0.0], [0.0]], layers=0)
    plan = load(dual_ascent(1), torch.float32)
    with torch.no_grad():
        plan.tensor("rows.k").mul_(-100.0)  # the score of the only pair becomes 100, and exp(100) is 2.7e43
    with pytest.raises(RunError, match="output plan does not fit float32"):
        plan(x=[[0.0]], y=[[0.0]], layers=0)["plan"]


def test_until_stable_stops_at_the_fixed_point() -> None:
    x = data(3, 60)
    model = load(hard_clustering(2, 3))
    out = model(x=x, until_stable=True)
    (layers,), (stable,) = model.report.layers, model.report.stable
    assert stable
    assert 2 <= layers < 60
    assert torch.equal(model(x=x, layers=layers + 5)["centers"], out["centers"])
    assert not torch.equal(model(x=x, layers=layers - 2)["centers"], out["centers"])
    model(x=x, until_stable=True, limit=2)
    assert (model.report.layers, model.report.stable) == ((2,), (False,))


def test_problems_of_a_batch_stop_each_in_its_own_time() -> None:
    model = load(hard_clustering(2, 3))
    xs = [data(seed, 40) for seed in range(4)]
    batch = model(x=torch.stack(xs), until_stable=True)
    report = model.report
    for number, x in enumerate(xs):
        single = model(x=x, until_stable=True)
        assert torch.equal(single["centers"], batch["centers"][number])
        assert model.report.layers[0] == report.layers[number]


def test_conditions_are_checked_before_every_layer() -> None:
    base = hard_clustering(1, 2)
    condition = Condition("distinct", "centers", ("c",), "centers must differ pairwise")
    model = load(replace(base, program=replace(base.program, conditions=(condition,))))
    assert (
        model(x=POINTS, c=CENTERS, layers=3)["centers"].tolist()
        == load(base)(x=POINTS, c=CENTERS, layers=3)["centers"].tolist()
    )
    with pytest.raises(RunError, match=r"centers must differ pairwise: before a step of layer 0, tokens 0 and 1"):
        model(x=POINTS, c=[[0.0], [-0.0]])
    with pytest.raises(RunError, match="problem 1 of the batch"):
        model(x=[POINTS, POINTS], c=[CENTERS, [[3.0], [3.0]]])
    assert model(x=POINTS, c=[[0.0], [0.0]], layers=0)["centers"].tolist() == [[0.0], [0.0]]


# ---------------------------------------------------------------------- batches
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_batch_is_bit_equal_to_its_problems(dtype: torch.dtype) -> None:
    for model, inputs in (
        (load(hard_clustering(2, 3), dtype), ("x",)),
        (load(soft_clustering(2, 3, 1.5), dtype), ("x",)),
        (load(dual_ascent(2), dtype), ("x", "y")),
    ):
        parts = [{name: data(10 * seed + ord(name), 7) for name in inputs} for seed in range(3)]
        batch = model({name: torch.stack([part[name] for part in parts]) for name in inputs}, layers=3, seed=4)
        for number, part in enumerate(parts):
            single = model(part, layers=3, seed=4)
            for name, value in single.items():
                if isinstance(value, OneHot):
                    assert batch[name][number] == value
                else:
                    assert torch.equal(batch[name][number], value)


def ragged(places: list[list[int]], width: int, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    whole = torch.full((len(parts), width, parts[0].shape[1]), 77.0, dtype=torch.float64)
    mask = torch.zeros(len(parts), width, dtype=torch.bool)
    for number, (rows, part) in enumerate(zip(places, parts, strict=True)):
        whole[number, rows] = part.double()
        mask[number, rows] = True
    return whole, mask


def test_ragged_batches_use_each_problems_own_size() -> None:
    """count, percentages and null values depend on the number of tokens."""
    places = [[0, 1, 2], [0, 2, 3, 5], [4]]
    xs, ys = [data(n, len(p)) for n, p in enumerate(places)], [data(50 + n, len(p)) for n, p in enumerate(places)]
    x, mask = ragged(places, 6, xs)
    y, _ = ragged(places, 6, ys)
    model = load(dual_ascent(2))
    masked = model(x=x, y=y, mask={"pairs": mask}, layers=2)
    listed = model(x=xs, y=ys, layers=2)
    for number, rows in enumerate(places):
        single = model(x=xs[number], y=ys[number], layers=2)
        assert torch.equal(masked["u"][number, rows], single["u"])
        assert torch.equal(masked["plan"][number][rows][:, rows], single["plan"])
        assert torch.equal(listed["u"][number, : len(rows)], single["u"])
        gaps = [place for place in range(6) if place not in rows]
        assert masked["u"][number, gaps].abs().sum() == 0
        assert masked["plan"][number][gaps].abs().sum() == 0
        assert masked["plan"][number][:, gaps].abs().sum() == 0


def test_padding_has_no_label_and_changes_no_rank() -> None:
    places = [[0, 1, 2, 3, 4], [1, 3]]
    parts = [torch.tensor([[0.0], [1.0], [2.0], [3.0], [10.0]]), torch.tensor([[4.0], [8.0]])]
    x, mask = ragged(places, 5, parts)
    model = load(hard_clustering(1, 1, update=PERCENT))
    out = model(x=x, c=[[0.0]], mask={"points": mask})
    assert out["labels"].indices.tolist() == [[0] * 5, [-1, 0, -1, 0, -1]]
    assert out["labels"].dense()[1].sum() == 2
    assert out["centers"].tolist() == [[[1.0]], [[4.0]]]


def test_fixed_inputs_may_be_shared_by_a_batch() -> None:
    model = load(hard_clustering(2, 2))
    xs, c = torch.stack([data(1, 5), data(2, 5)]), data(9, 2)
    shared = model(x=xs, c=c)
    assert torch.equal(shared["centers"], model(x=xs, c=torch.stack([c, c]))["centers"])


def test_seeds_may_differ_in_a_batch() -> None:
    model = load(hard_clustering(2, 3))
    x = data(5, 30)
    out = model(x=torch.stack([x, x]), seed=[1, 2], layers=0)["centers"]
    assert torch.equal(out[0], model(x=x, seed=1, layers=0)["centers"])
    assert torch.equal(out[1], model(x=x, seed=2, layers=0)["centers"])
    assert not torch.equal(out[0], out[1])


# ---------------------------------------------------------------------- noise
def test_noise_is_a_function_of_seed_name_layer_and_token() -> None:
    model = load(largest("copy", 3, noisy=True))
    fields = model.start(x=[0.0, 1.0], a=[0.0, 0.1, 0.2])
    for layer in range(3):
        fields = after = model.advance(fields, layer, seed=11)
        g = noise("gumbel", 11, "g", layer, 2, 3)
        assert np.array_equal(after["g"].numpy(), g)
        best = (g + np.array([0.0, 0.1, 0.2])).argmax(1)
        assert after["y"].argmax(1).tolist() == best.tolist()
    given = np.array([[[9.0, 0, 0], [0, 9, 0]], [[0, 0, 9], [9, 0, 0]]])
    assert model(x=[0.0, 1.0], a=[0.0, 0.1, 0.2], noise={"g": given}, layers=2)["y"].indices.tolist() == [2, 0]
    assert model.trace(x=[0.0, 1.0], a=[0.0] * 3, noise={"g": given}).fields[1]["g"].tolist() == given[0].tolist()


# ---------------------------------------------------------------------- layer by layer
@pytest.mark.parametrize("style", ["l2", "dot"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_advancing_by_hand_is_the_run(style: str, dtype: torch.dtype) -> None:
    model = load(hard_clustering(2, 3, style=style), dtype)
    x = data(2, 25)
    trace = model.trace(x=x, layers=4)
    fields = model.start(x=x)
    assert set(fields) == {"x", "c"}
    for layer in range(4):
        assert torch.equal(fields["c"], trace.fields[layer]["c"])
        fields = model.advance(fields, layer)
        assert set(fields) == {"x", "y", "c"}
    assert torch.equal(fields["c"], model(x=x, layers=4)["centers"])
    assert trace.layers == 4


def test_advance_takes_ragged_batches() -> None:
    model = load(dual_ascent(1))
    x, mask = ragged([[0, 1], [2]], 3, [data(1, 2, 1), data(2, 1, 1)])
    fields = model.start(x=x, y=x, mask={"pairs": mask})
    after = model.advance(fields, 0, mask={"pairs": mask})
    assert torch.equal(after["u"][..., 0], model(x=x, y=x, mask={"pairs": mask})["u"])


def test_a_trace_names_every_slot() -> None:
    model = load(with_objective(hard_clustering(2, 3, style="dot")))
    trace = model.trace(x=data(0, 4), layers=2, patterns=True)
    assert trace["start.points.x"].shape == (4, 2)
    assert trace["layers.1.blocks.0.points.y"].shape == (4, 3)
    assert trace["layers.1.blocks.1.centers.c2"].shape == (3, 1)
    assert trace["layers.0.blocks.0.assign.pattern"].sum(1).tolist() == [1.0] * 4
    assert trace["layers.0.blocks.1.update.pattern"].shape == (3, 4)
    assert trace["readout.0.points.cost"].shape == (4, 1)
    c = trace["layers.1.blocks.1.centers.c"]
    assert torch.allclose(trace["layers.1.blocks.1.centers.c2"][:, 0], c.square().sum(1), rtol=1e-15)
    with pytest.raises(KeyError, match="did you mean"):
        trace["layers.1.block.0.points.y"]


def test_scratch_is_empty_between_steps() -> None:
    trace = load(nearest_to_mean(2)).trace(x=data(0, 5))
    assert trace["layers.0.blocks.0.points.m"].abs().sum() > 0
    assert trace["layers.0.blocks.1.points.m"].abs().sum() == 0


# ---------------------------------------------------------------------- hooks
def test_hook_sites_have_stable_names() -> None:
    model = load(hard_clustering(2, 3))
    sites = {name for name, module in model.named_modules() if isinstance(module, HookSite)}
    assert {
        "blocks.0.points.hook_resid_pre",
        "blocks.1.centers.hook_resid_post",
        "blocks.0.attn.assign.hook_attn_scores",
        "blocks.0.attn.assign.hook_pattern",
        "blocks.1.attn.update.hook_z",
    } <= sites


def test_hooks_read() -> None:
    model = load(hard_clustering(2, 3))
    seen: dict[str, list[Tensor]] = {}
    for name, module in model.named_modules():
        if isinstance(module, HookSite):
            module.register_forward_hook(lambda _m, _i, out, name=name: seen.setdefault(name, []).append(out) and None)
    x = data(1, 6)
    plain = load(hard_clustering(2, 3))(x=x, layers=2)
    out = model(x=x, layers=2)
    assert torch.equal(out["centers"], plain["centers"])
    assert out["labels"] == plain["labels"]
    assert [len(tensors) for tensors in seen.values()] == [2] * len(seen)
    scores = seen["blocks.0.attn.assign.hook_attn_scores"][0]
    start = model.start(x=x)
    assert torch.allclose(scores, -((start["x"][:, None] - start["c"][None]) ** 2).sum(-1), rtol=1e-14)
    batch = torch.stack([x, x])
    seen.clear()
    model(x=batch)
    assert seen["blocks.0.attn.assign.hook_pattern"][0].shape == (2, 6, 3)
    assert seen["blocks.0.points.hook_resid_pre"][0].shape == (2, 6, 6)


def hooked(site: str, change: Any, **inputs: Any) -> Any:
    model = load(hard_clustering(1, 2))
    model.get_submodule(site).register_forward_hook(lambda _m, _i, out: change(out))
    return model(**({"x": POINTS, "c": CENTERS} | inputs))


def test_hooks_replace() -> None:
    turned = hooked("blocks.0.attn.assign.hook_attn_scores", lambda s: -s)
    assert turned["labels"].indices.tolist() == [1, 1, 0, 0, 0]
    uniform = hooked("blocks.1.attn.update.hook_pattern", lambda p: torch.full_like(p, 0.2))
    assert uniform["centers"].flatten().tolist() == pytest.approx([0.0, 0.0], abs=1e-15)
    nothing = hooked("blocks.1.attn.update.hook_z", torch.zeros_like)
    assert nothing["centers"].tolist() == [[0.0], [0.0]]
    moved = hooked("blocks.0.points.hook_resid_pre", lambda z: z + torch.tensor([10.0, 0, 0, 0]))
    assert moved["labels"].indices.tolist() == [1] * 5

    def in_place(z: Tensor) -> None:
        z[:, 0] = 5.0

    assert hooked("blocks.0.points.hook_resid_pre", in_place)["labels"].indices.tolist() == [1] * 5

    def in_place_batch(z: Tensor) -> None:
        z[:, :, 0] = 5.0

    batch = hooked("blocks.0.points.hook_resid_pre", in_place_batch, x=[POINTS, POINTS])
    assert batch["labels"].indices.tolist() == [[1] * 5] * 2
    with pytest.raises(TypeError, match="a hook returned"):
        hooked("blocks.1.attn.update.hook_z", lambda z: z[:1])


def test_a_removed_hook_leaves_no_trace() -> None:
    model = load(hard_clustering(1, 2))
    handle = model.get_submodule("blocks.0.attn.assign.hook_attn_scores").register_forward_hook(lambda _m, _i, s: -s)
    model(x=POINTS, c=CENTERS)
    handle.remove()
    assert model(x=POINTS, c=CENTERS)["centers"].tolist() == [[-5 / 3], [2.5]]


# ---------------------------------------------------------------------- gradients
def test_gradients_of_soft_programs() -> None:
    model, ascents = load(soft_clustering(2, 3, 1.5)), load(dual_ascent(2, 0.7))
    x, c, y = data(0, 5).requires_grad_(), data(1, 3).requires_grad_(), data(2, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, c: model(x=x, c=c, layers=2)["centers"], (x, c))
    assert torch.autograd.gradcheck(lambda x, y: tuple(ascents(x=x, y=y, layers=2)[k] for k in ("u", "plan")), (x, y))


def test_gradients_through_hard_programs_follow_the_decisions() -> None:
    x = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    load(hard_clustering(1, 2))(x=x, c=CENTERS)["centers"].sum().backward()
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [1 / 3] * 3 + [1 / 2] * 2


def test_weights_are_frozen_unless_trainable() -> None:
    frozen = load(soft_clustering(1, 2, 0.5))
    assert not any(p.requires_grad for p in frozen.parameters())
    model = load(soft_clustering(1, 2, 0.5), trainable=True)
    out = model(x=POINTS, c=CENTERS)["centers"]
    assert torch.equal(out.detach(), frozen(x=POINTS, c=CENTERS)["centers"])
    out.square().sum().backward()
    gradient = model.tensor("assign.coefficient").grad
    h = 1e-6
    ends = []
    for step in (-h, h):
        with torch.no_grad():
            model.tensor("assign.coefficient").add_(step)
            ends.append(float(model(x=POINTS, c=CENTERS)["centers"].square().sum()))
            model.tensor("assign.coefficient").sub_(step)
    assert float(gradient) == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-6)
    value = model.tensor("update.value").grad
    assert value is not None
    assert int((value != 0).sum()) > int((model.tensor("update.value") != 0).sum())  # zeros have gradients too


def test_changed_weights_count_at_once() -> None:
    model = load(hard_clustering(1, 2))
    with torch.no_grad():
        model.tensor("assign.coefficient").fill_(1.0)
    assert model(x=POINTS, c=CENTERS)["labels"].indices.tolist() == [1, 1, 0, 0, 0]


# ---------------------------------------------------------------------- as a module
def test_parameters_are_the_tensors_of_the_file() -> None:
    checkpoint = hard_clustering(2, 3)
    model = load(checkpoint)
    assert {name.removeprefix("weights.") for name, _ in model.named_parameters()} == set(checkpoint.tensors)
    for name, array in checkpoint.tensors.items():
        assert np.array_equal(model.tensor(name).detach().numpy(), array)
    other = load(checkpoint)
    other.load_state_dict(model.state_dict())
    with pytest.raises(KeyError, match="did you mean"):
        model.tensor("assign.qq")


def test_changing_the_dtype_keeps_the_weights() -> None:
    model = load(soft_clustering(2, 3, 0.1)).float()
    assert model.dtype == torch.float32
    assert all(p.dtype == torch.float64 for p in model.parameters())
    x = data(1, 8)
    assert torch.equal(model(x=x)["centers"], load(soft_clustering(2, 3, 0.1), torch.float32)(x=x)["centers"])
    assert model.double()(x=x)["centers"].dtype == torch.float64
    with pytest.raises(RunError, match="float16 is not supported"):
        load(hard_clustering(1, 1), torch.float16)
    with pytest.raises(RunError, match="float16"):
        load(hard_clustering(1, 1)).half()


def test_float32_is_float64_rounded_at_every_step() -> None:
    x = data(4, 20).float()
    model, wide = load(soft_clustering(2, 3, 2.0), torch.float32), load(soft_clustering(2, 3, 2.0))
    fields = model.start(x=x)
    narrow = model.advance(fields, 0)
    y = wide.advance(fields, 0)["y"].float()
    assert torch.equal(narrow["y"], y)
    means = []
    for stored in (y.double(), wide.advance(fields, 0)["y"]):
        sums = [[math.fsum((stored[:, j] * x[:, a].double()).tolist()) for a in range(2)] for j in range(3)]
        mass = [math.fsum(stored[:, j].tolist()) for j in range(3)]
        means.append(
            torch.tensor([[s / m for s in row] for row, m in zip(sums, mass, strict=True)], dtype=torch.float64)
        )
    assert not torch.equal(means[0], means[1])
    assert torch.equal(narrow["c"], means[0].float())  # made from the rounded y, in float64, then rounded
    assert torch.equal(wide.advance(fields, 0)["c"], means[1])


def test_names_that_torch_needs_itself() -> None:
    """A stream, head or tensor may be called like an attribute of a module."""
    base = hard_clustering(1, 2)
    tensors = {("type" if name == "assign.q" else name): array for name, array in base.tensors.items()}
    assign, update = base.program.layer
    attend: Any = assign.sublayers[0]
    head = attend.heads[0]
    part = replace(head.score.parts[0], q="type")
    head = replace(head, name="forward", score=replace(head.score, parts=(part,)))
    step = replace(assign, sublayers=(replace(attend, heads=(head,)),))
    model = load(replace(base, tensors=tensors, program=replace(base.program, layer=(step, update))))
    assert model(x=POINTS, c=CENTERS)["centers"].tolist() == [[-5 / 3], [2.5]]
    assert model.tensor("type").shape == (1, 4)


def test_it_is_an_ordinary_module(tmp_path: Path) -> None:
    checkpoint = hard_clustering(2, 3)
    checkpoint.save(tmp_path / "m.safetensors")
    model = load(tmp_path / "m.safetensors")
    assert isinstance(model, nn.Module)
    assert "x, c -> centers, labels" in repr(model)
    assert torch.equal(model(x=data(0, 9))["centers"], load(checkpoint)(x=data(0, 9))["centers"])


# ---------------------------------------------------------------------- devices
@pytest.mark.parametrize(
    "checkpoint",
    [
        hard_clustering(2, 3),
        hard_clustering(2, 3, style="dot", update=PERCENT),
        with_objective(hard_clustering(2, 3)),
        soft_clustering(2, 3, 1.0),
        dual_ascent(2),
        nearest_to_mean(2),
        largest("exp", 3, noisy=True),
    ],
    ids=lambda c: c.program.name,
)
def test_the_forward_pass_runs_on_another_device(checkpoint: Any) -> None:
    """Meta tensors refuse to meet tensors of the CPU: nothing is left behind on it."""
    model = load(checkpoint).to("meta")
    widths = {i.name: (4,) if i.kind == "number" else (4, 2) for i in checkpoint.program.inputs}
    widths |= {"c": (3, 2), "a": (3,)}
    inputs = {i.name: torch.empty(widths[i.name], device="meta") for i in checkpoint.program.inputs}
    out = model(inputs, layers=2)
    for value in out.values():
        tensor = value.dense() if isinstance(value, OneHot) else value
        assert tensor.device.type == "meta"


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_every_device_gives_the_same_bits(device: str) -> None:
    x = data(0, 200)
    for checkpoint in (hard_clustering(2, 5), hard_clustering(2, 5, style="dot")):
        model = load(checkpoint, device=device)
        out = model(x=x, layers=5)
        assert out["centers"].device.type == device
        assert torch.equal(out["centers"].cpu(), load(checkpoint)(x=x, layers=5)["centers"])
