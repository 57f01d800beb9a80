"""What can be seen and changed inside a run: layer by layer, traces, hooks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from few_points import CENTERS, POINTS, data, ragged
from programs import dual_ascent, hard_clustering, nearest_to_mean, with_objective
from weftc_runtime import load
from weftc_runtime.data.hooks import HookSite


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


SITES = [name for name, module in load(hard_clustering(1, 2)).named_modules() if isinstance(module, HookSite)]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("batched", [False, True])
def test_an_edit_in_place_does_what_a_returned_tensor_does(site: str, batched: bool) -> None:
    inputs = {"x": [POINTS, POINTS], "c": [CENTERS, CENTERS]} if batched else {}

    def turned(value: Tensor) -> Tensor:
        return value + 50.0 * torch.arange(1, value.shape[-1] + 1)

    def in_place(value: Tensor) -> None:
        value.copy_(turned(value))

    plain, returned, edited = (hooked(site, change, **inputs) for change in (lambda _: None, turned, in_place))
    assert torch.equal(returned["centers"], edited["centers"])
    assert returned["labels"] == edited["labels"]
    last = site.startswith("readout") or site.endswith("resid_post")
    # no self key is needed here, and every key has the same score
    last |= site.startswith("blocks.1.attn.update") and site.endswith(("self_input", "hook_q", "hook_k"))
    assert last or not torch.equal(plain["centers"], edited["centers"]) or plain["labels"] != edited["labels"]


def test_an_edit_in_place_changes_nothing_that_came_before() -> None:
    model = load(hard_clustering(1, 2))
    model.blocks[0].resid("points").hook_resid_pre.register_forward_hook(
        lambda _m, _i, z: z[:, 0].add_(1.0).sum() * 0 or None
    )
    x = torch.tensor(POINTS, dtype=torch.float64)
    model(x=x, c=CENTERS, layers=2)
    assert x.tolist() == POINTS


def test_gradients_reach_what_a_hook_has_seen() -> None:
    seen: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, z: Tensor) -> None:
        z.retain_grad()
        seen.append(z)

    model = load(hard_clustering(1, 2), trainable=True)
    model.blocks[1].head("update").hook_z.register_forward_hook(keep)
    model(x=POINTS, c=CENTERS, layers=1)["centers"].sum().backward()
    assert seen[0].grad is not None
