"""As an nn.Module: gradients, parameters, dtypes, names, devices."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from few_points import CENTERS, POINTS, data
from programs import PERCENT, dual_ascent, hard_clustering, largest, nearest_to_mean, soft_clustering, with_objective
from weftc_runtime import OneHot, RunError, load


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
    literal = load(soft_clustering(1, 2, 0.5), trainable=True, backend="reference")
    assert torch.equal(literal(x=POINTS, c=CENTERS)["centers"], frozen(x=POINTS, c=CENTERS)["centers"])
    torch.testing.assert_close(out.detach(), frozen(x=POINTS, c=CENTERS)["centers"], rtol=1e-14, atol=0)
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
    model = load(soft_clustering(2, 3, 2.0), torch.float32)
    wide = load(soft_clustering(2, 3, 2.0), backend="reference")  # other machines may differ in the last place
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
