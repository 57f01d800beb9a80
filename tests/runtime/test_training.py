"""Training on from compiled weights: gradients made for it, what stays frozen, and how far a model has gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import weftc
from planned_cases import compiled, plain, problem
from weftc.cli import main
from weftc.core.errors import InputError
from weftc.files.locate import names
from weftc.variants import rotated
from weftc_runtime import Model, RunError
from weftc_runtime.freezing import KINDS, places

DECIDING = ("argmax", "top", "normmax", "sparsemax", "max")


def layers_of(name: str) -> set[str]:
    steps = compiled(name).program.layer
    return {head.weighting.kind for step in steps for sub in step.sublayers for head in getattr(sub, "heads", ())}


SOFT = [name for name in names("") if not layers_of(name) & set(DECIDING)]


def slopes(model: Model, inputs: dict[str, Any]) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """Outputs, and the gradients of a sum over them by inputs and weights."""
    data = {name: torch.tensor(np.asarray(values), requires_grad=True) for name, values in inputs.items()}
    outputs = {name: plain(value) for name, value in model(data).items()}
    random = torch.Generator().manual_seed(0)
    numbers = [value for value in outputs.values() if value.requires_grad]
    total = sum((torch.randn(v.shape, generator=random, dtype=v.dtype) * v).sum() for v in numbers)
    assert isinstance(total, Tensor)
    wanted = [*data.values(), *(weight for weight in model.parameters() if weight.requires_grad)]
    return outputs, list(torch.autograd.grad(total, wanted, allow_unused=True))


def agree(checkpoint: weftc.Checkpoint, inputs: dict[str, Any]) -> str:
    """Gradients of the reference and of what runs by itself agree; which that was."""
    reference = weftc.load(checkpoint, trainable=True, backend="reference")
    model = weftc.load(checkpoint, trainable=True)
    (want, there), (got, here) = slopes(reference, inputs), slopes(model, inputs)
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, rtol=1e-9, atol=1e-11)
    scale = max(float(one.abs().max()) for one in there if one is not None)
    for one, other in zip(there, here, strict=True):
        if one is not None or other is not None:
            zero = torch.zeros_like(one if one is not None else other)  # type: ignore[arg-type]
            ours, theirs = (zero if value is None else value for value in (other, one))
            torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9 * scale)
    return model.report.backend


def test_soft_specs_are_there() -> None:
    assert {"soft_kmeans", "sinkhorn_log", "gmm_em", "mean_shift", "hopfield"} <= set(SOFT)


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", SOFT)
def test_gradients_are_those_of_the_reference(name: str, scores: str) -> None:
    family = "positive" if "gmm" in name else "random"
    assert agree(compiled(name, scores=scores), problem(name, family, 8, 2)) == "gradients"


def test_gradients_in_other_bases_batches_and_masks() -> None:
    checkpoint = compiled("soft_kmeans")
    assert agree(rotated(checkpoint, seed=2), problem("soft_kmeans", "random", 8, 2)) == "gradients"
    one = problem("soft_kmeans", "random", 8, 2)
    two = {name: np.stack([values, values[::-1]]) for name, values in one.items()}
    assert agree(checkpoint, two) == "gradients"
    model = weftc.load(checkpoint, trainable=True)
    mask = {"points": torch.arange(8).expand(2, 8) < torch.tensor([[8], [5]])}
    both = model({name: torch.tensor(values) for name, values in two.items()}, mask=mask)["centers"]
    alone = model(x=torch.tensor(two["x"][1][:5]), c=torch.tensor(two["c"][1]))["centers"]
    torch.testing.assert_close(both[1], alone)


def test_a_step_that_decides_is_the_references() -> None:
    assert agree(compiled("robust_softmax"), problem("robust_softmax", "random", 8, 2)) == "reference"
    model = weftc.load(compiled("soft_kmeans"), trainable=True, deterministic=True)
    slopes(model, problem("soft_kmeans", "random", 8, 2))
    assert model.report.backend == "reference"


def test_what_is_frozen_stays_whatever_the_optimizer() -> None:
    checkpoint = compiled("soft_kmeans")
    model = weftc.load(checkpoint, trainable=True, freeze=["head:y", "slot:centers.c", "kind:carry"])
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=0.1, weight_decay=0.5)
    data = {name: torch.tensor(values) for name, values in problem("soft_kmeans", "random", 8, 2).items()}
    for _ in range(2):
        optimizer.zero_grad()
        model(data)["centers"].square().sum().backward()
        optimizer.step()
    after = model.checkpoint()
    columns = checkpoint.program.stream("centers").slot("c").columns
    moved = set()
    for place in places(checkpoint.program):
        before, now = checkpoint.tensors[place.name], after.tensors[place.name]
        if place.head == "y" or place.kind == "carry":
            assert np.array_equal(before, now), place
        elif not np.array_equal(before, now):
            moved.add(place.kind)
        if place.use.columns == "centers":
            assert np.array_equal(before[..., columns], now[..., columns]), place
        if place.use.rows == "centers":
            assert np.array_equal(before[columns], now[columns]), place
    assert moved == {"scores", "values"}
    assert {place.kind for place in places(rotated(compiled("gmm_em")).program)} == set(KINDS) - {"masks"}


def test_what_cannot_be_frozen_is_said() -> None:
    checkpoint = compiled("soft_kmeans")
    for word, told in (("y", "head:NAME"), ("head:z", "no head"), ("slot:w", "no slot"), ("kind:q", "no kind")):
        with pytest.raises(RunError, match=told):
            weftc.load(checkpoint, trainable=True, freeze=word)
    with pytest.raises(RunError, match="trainable=True"):
        weftc.load(checkpoint, freeze="head:y")


def test_distances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = compiled("soft_kmeans")
    nowhere = weftc.distance(checkpoint, checkpoint)
    assert nowhere.moved == ()
    assert all(far == 0 and share == 0 for far, share in nowhere.outputs.values())
    model = weftc.load(checkpoint)
    with torch.no_grad():
        model.tensor("layer.0.0.y.l2.0.q").mul_(2.0)
    found = weftc.distance(checkpoint, model, cases=3)
    assert found.moved == ("layer.0.0.y",)
    assert found.weights["layer.0.0.y"][0] == pytest.approx(2**0.5)
    assert found.outputs["shares"][1] > 0.9
    checkpoint.save(tmp_path / "a.safetensors")
    model.checkpoint().save(tmp_path / "b.safetensors")
    assert main(["distance", str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["moved"] == ["layer.0.0.y"]
    assert main(["distance", str(tmp_path / "a.safetensors"), str(tmp_path / "none.safetensors")]) != 0
    with pytest.raises(InputError, match="different inputs"):
        weftc.distance(checkpoint, compiled("hopfield"))
