"""Caches, patches, paths and ablations: what they see is what ran, what they change is what they say."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

import weftc
from planned_cases import compiled, plain, problem
from weftc.variants import rotated
from weftc_runtime import Model, RunError

SPECS = ["lloyd", "trimmed_kmeans", "soft_spherical_kmeans", "sinkhorn_log", "kmedoids", "weighted_kmeans"]


def run(model: Model, data: dict[str, Any]) -> dict[str, Tensor]:
    return {name: plain(value) for name, value in model(data, seed=3).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=1e-9, atol=1e-9, equal_nan=True) for name in one)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("style", [{}, {"weights": "unrolled"}], ids=["shared", "unrolled"])
def test_patching_in_what_was_there_changes_nothing(name: str, style: dict[str, Any]) -> None:
    model = weftc.load(compiled(name, **style))
    data = problem(name, "random", 9, 5)
    want = run(model, data)
    outputs, cache = model.run_with_cache(data, seed=3)
    assert same({key: plain(value) for key, value in outputs.items()}, want)
    layers = {key.split(".")[1] for key in cache if key.startswith("layers.")}
    assert layers == {"0", "1", "2"}
    for site, value in cache.items():
        if site.startswith("layers.1.") or not site.startswith("layers."):
            with model.patch({site: value}):
                assert same(run(model, data), want), site
    assert run(model, data).keys() == want.keys()
    assert model.report.backend == "planned", model.report.why


@pytest.mark.parametrize("turned", [False, True])
def test_a_path_is_the_difference_between_patching_a_head_and_all_its_other_readers(turned: bool) -> None:
    checkpoint = compiled("lloyd")
    model = weftc.load(rotated(checkpoint, 4) if turned else checkpoint)
    data = problem("lloyd", "random", 12, 7)
    want, (_, cache) = run(model, data), model.run_with_cache(data)
    source, target = "layers.0.blocks.1.attn.c.hook_result", "layers.1.blocks.0.attn.y.hook_k_input"
    new = torch.flip(cache[source], [0])
    with model.patch({source: new}):
        whole, (_, changed) = run(model, data), model.run_with_cache(data)
    assert not same(whole, want)
    with model.patch({(source, target): new}):
        _, along = model.run_with_cache(data)
    # the reader sees what it would see if the head had said this to all ...
    assert torch.allclose(along[target], changed[target], atol=1e-9)
    assert not torch.allclose(along[target], cache[target], atol=1e-9)
    # ... and nobody else does
    for other in ("layers.0.blocks.1.centers.hook_resid_post", "layers.1.blocks.0.centers.hook_resid_pre"):
        assert torch.equal(along[other], cache[other])
    for reader in ("layers.1.blocks.0.attn.y.hook_q_input", "layers.1.blocks.1.attn.c.hook_k_input"):
        with model.patch({(source, reader): new}):
            assert same(run(model, data), want), reader


def test_ablations_keep_problems_of_a_batch_apart() -> None:
    model = weftc.load(compiled("lloyd"))
    one, two = problem("lloyd", "random", 7, 1), problem("lloyd", "random", 4, 2)
    x = torch.zeros(2, 7, 2, dtype=torch.float64)
    x[0], x[1, :4] = torch.as_tensor(one["x"]), torch.as_tensor(two["x"])
    c = torch.stack([torch.as_tensor(one["c"]), torch.as_tensor(two["c"])])
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    for kind in ("zero", "mean"):
        for site in ("layers.0.blocks.0.attn.y.hook_q_input", "blocks.1.attn.c.hook_pattern"):
            with model.patch({site: kind}):
                both = model(x=x, c=c, mask={"points": mask})["centers"]
                assert torch.equal(both[0], model(one)["centers"])
                assert torch.equal(both[1], model(two)["centers"])


def test_ablations_are_what_they_say() -> None:
    model, data = weftc.load(compiled("soft_kmeans")), problem("soft_kmeans", "random", 8, 1)
    site = next(name for name in model.run_with_cache(data)[1] if name.endswith("hook_pattern"))
    before = model.run_with_cache(data)[1][site]
    seen: dict[str, Tensor] = {}
    for kind in ("zero", "mean", "resample"):
        with model.patch({site: kind}):
            seen[kind] = model.run_with_cache(data)[1][site]
    assert not seen["zero"].any()
    assert torch.allclose(seen["mean"], before.mean(0, keepdim=True).expand_as(before))
    assert not torch.equal(seen["resample"], before)
    assert torch.equal(seen["resample"].sort(0).values, before.sort(0).values)


def test_what_cannot_be_patched_is_said() -> None:
    model = weftc.load(compiled("lloyd"))
    good = "layers.0.blocks.1.attn.c.hook_result"
    cases: list[tuple[dict[Any, Any], str]] = [
        ({"blocks.0.attn.y.hook_patern": "zero"}, "did you mean"),
        ({"layers.0.blocks.9.attn.y.hook_z": "zero"}, "there is no site"),
        ({"weights": "zero"}, "there is no site"),
        ({good: "half"}, "known are zero, mean, resample"),
        ({good: 3}, "a tensor, a function or an ablation"),
        ({(good, "layers.0.blocks.0.attn.y.hook_k_input"): "zero"}, "does not come after"),
        ({(good, good): "zero"}, "a path leads from hook_result"),
        ({("blocks.1.attn.c.hook_result", "layers.1.blocks.0.attn.y.hook_k_input"): "zero"}, "not through"),
    ]
    for edits, told in cases:
        with pytest.raises(RunError, match=told), model.patch(edits):
            pass
    deep = weftc.load(compiled("lloyd", weights="unrolled"))
    with pytest.raises(RunError, match="no site"), deep.patch({"layers.7.blocks.0.points.hook_resid_pre": "zero"}):
        pass


def test_a_model_with_sites_of_single_layers_is_copied_and_pickled() -> None:
    model, data = weftc.load(compiled("lloyd")), problem("lloyd", "random", 7, 1)
    site = "layers.1.blocks.0.attn.y.hook_pattern"
    want = model(data)["centers"]
    with model.patch({site: "zero"}):
        changed = model(data)["centers"]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(data)["centers"], want)
        with other.patch({site: "zero"}):
            assert torch.equal(other(data)["centers"], changed)
        assert torch.equal(model(data)["centers"], want)
        assert list(other.state_dict()) == list(model.state_dict())
