"""TransformerLens and nnsight on compiled models: read, patch, ablate, single layers. `make interop-test` runs this."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import weftc

pytestmark = pytest.mark.interop

PATTERN = "blocks.0.attn.y.hook_pattern"


def made(layers: int = 2) -> tuple[Any, dict[str, Tensor], Any]:
    model = weftc.load(weftc.compile("lloyd", {"d": 2, "k": 3}, layers=layers))
    x = torch.tensor(np.random.default_rng(0).normal(size=(40, 2)))
    data = {"x": x, "c": x[:3].clone()}
    return model, data, model(**data)


# ---- TransformerLens -------------------------------------------------------------------------------------------------


def lens(layers: int = 2) -> tuple[Any, dict[str, Tensor], Any]:
    pytest.importorskip("transformer_lens")
    from weftc.interop.transformer_lens import hooked

    model, data, want = made(layers)
    return hooked(model), data, want


def test_transformer_lens_reads() -> None:
    model, data, want = lens()
    outputs, cache = model.run_with_cache(**data)
    assert torch.equal(outputs["centers"], want["centers"])
    assert cache[f"layers.1.{PATTERN}"].shape == (40, 3)
    assert not torch.equal(cache[f"layers.0.{PATTERN}"], cache[f"layers.1.{PATTERN}"])
    assert torch.equal(cache[PATTERN], cache[f"layers.1.{PATTERN}"])  # of shared weights, the last visit
    assert model(**data)["labels"] == want["labels"]
    assert model.model.report.backend == "planned", "nobody listens any more"


def test_transformer_lens_patches_a_head() -> None:
    model, data, want = lens()
    _, clean = model.run_with_cache(**data)
    other = {"x": data["x"], "c": data["c"] + 1.5}
    assert not torch.equal(model(**other)["centers"], want["centers"])
    name = f"layers.0.{PATTERN}"
    patched = model.run_with_hooks(**other, fwd_hooks=[(name, lambda value, hook: clean[name])])
    assert torch.allclose(patched["centers"], want["centers"], rtol=1e-12)


def test_transformer_lens_ablates() -> None:
    model, data, want = lens()
    name = "layers.1.blocks.1.attn.c.hook_result"
    zero = model.run_with_hooks(**data, fwd_hooks=[(name, lambda value, hook: value * 0)])
    assert torch.equal(zero["centers"], torch.zeros_like(want["centers"]))


# ---- nnsight ---------------------------------------------------------------------------------------------------------


def sight(layers: int = 2) -> tuple[Any, dict[str, Tensor], Any]:
    nnsight = pytest.importorskip("nnsight")
    model, data, want = made(layers)
    for layer in range(layers):
        model.layers[layer]
    return nnsight.NNsight(model), data, want


def test_nnsight_reads_and_patches() -> None:
    model, data, want = sight()
    with model.trace(**data):
        first = model.layers[0].blocks[0].attn.y.hook_pattern.output.save()
        outputs = model.output.save()
    assert torch.equal(outputs["centers"], want["centers"])
    assert first.shape == (40, 3)
    with model.trace(x=data["x"], c=data["c"] + 1.5):
        model.layers[0].blocks[0].attn.y.hook_pattern.output = first
        outputs = model.output.save()
    assert torch.allclose(outputs["centers"], want["centers"], rtol=1e-12)


def test_nnsight_ablates_in_place() -> None:
    model, data, want = sight()
    with model.trace(**data):
        model.layers[1].blocks[1].attn.c.hook_result.output[:] = 0
        outputs = model.output.save()
    assert torch.equal(outputs["centers"], torch.zeros_like(want["centers"]))
