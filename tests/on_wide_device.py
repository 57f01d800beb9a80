"""Models on a device with float64, as GPUs have it, that holds no address for C++: what they answer is the CPU's.

Run by `test_small_device.py` in a process of its own; see `wide_device.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import weftc_runtime
import wide_device
from planned_cases import compiled, plain, problem, promises_bits
from weftc.compiling import compile
from weftc.files.locate import names
from weftc_runtime import Model
from weftc_runtime.errors import Uncovered
from weftc_runtime.format.program import FFN
from weftc_runtime.kernels.native.library import address

WIDE = torch.device("wide:0")
DTYPES = (torch.float64, torch.float32)
FEW = ("lloyd", "trimmed_kmeans", "knn", "soft_kmeans")  # every way in which heads run
EVERY = [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in names("")]


def pair(name: str, dtype: torch.dtype) -> tuple[Model, Model]:
    """A model on the CPU and the same on the device."""
    checkpoint = compiled(name)
    here = weftc_runtime.load(checkpoint, dtype=dtype, backend="planned")
    return here, weftc_runtime.load(checkpoint, dtype=dtype, device="wide", backend="planned")


def assert_same(here: Mapping[str, Any], there: Mapping[str, Any], bits: bool) -> None:
    for name in here:
        one, other = plain(here[name]), plain(there[name])
        assert other.device == WIDE, name
        if bits or not one.is_floating_point():
            assert torch.equal(one, other.cpu()), name
        else:
            scale = float(one.abs().max()) if one.numel() else 0.0
            assert torch.allclose(one, other.cpu(), rtol=0, atol=1e3 * torch.finfo(one.dtype).eps * scale), name


def promised(model: Model) -> bool:
    """Whether answers have the bits of the CPU: sums of chosen values have; lengths are added up as torch likes."""
    steps = (*model.program.prelude, *model.program.layer, *model.program.readout)
    functions = {sub.function for step in steps for sub in step.sublayers if isinstance(sub, FFN)}
    return promises_bits(model.plan()) and functions.isdisjoint(("unit", "layer"))


def inputs_of(name: str, dtype: torch.dtype, seed: int = 0, many: int = 23) -> dict[str, Any]:
    return problem(name, "random", many, seed, str(dtype).removeprefix("torch."))


def moved(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.as_tensor(value).to(WIDE) for name, value in inputs.items()}


def test_the_device_refuses_what_a_gpu_refuses() -> None:
    there = torch.arange(3).to(WIDE)
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        torch.zeros(3)[there]
    with pytest.raises(RuntimeError, match="same device"):
        there + torch.zeros(3)
    with pytest.raises(Uncovered, match="native kernels run on the CPU, not on wide"):
        address(there)
    assert (there + 1)[torch.tensor([2])].cpu().tolist() == [3]


def test_best_scores_of_a_batch_beside_no_search_for_nearest_keys() -> None:
    """What searches of a batch prepare on the CPU has no address there."""
    text = "algorithm t\ntokens i in points, j in centers : k\ninputs x[i] : R^d, c[j] : R^d\nlayer\n"
    checkpoint = compile(f"{text}  d2[i] = min[j] |x[i] - c[j]|^2\noutputs d2", {"d": 2, "k": 3})
    batch = {
        "x": np.random.default_rng(0).normal(size=(4, 40, 2)),
        "c": np.random.default_rng(1).normal(size=(4, 3, 2)),
    }
    for dtype in DTYPES:
        models = [weftc_runtime.load(checkpoint, dtype=dtype, device=device) for device in ("cpu", "wide")]
        assert {"best"} == {head.strategy for _, head in models[0].plan().heads()}
        here, there = (model(batch) for model in models)
        assert_same(here, there, bits=False)
        assert models[1].report.backend == "planned"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_runs_and_batches(name: str, dtype: torch.dtype) -> None:
    """One problem, and several side by side; inputs that are there already, and such that are not."""
    here, there = pair(name, dtype)
    bits = promised(here)
    inputs = inputs_of(name, dtype)
    assert_same(here(inputs, seed=1), there(inputs, seed=1), bits)
    parts = [inputs_of(name, dtype, seed) for seed in range(3)]
    batch = {one: np.stack([part[one] for part in parts]) for one in parts[0]}
    assert_same(here(batch, seed=1), there(moved(batch), seed=1), bits)


@pytest.mark.parametrize("name", EVERY)
def test_until_stable(name: str) -> None:
    here, there = pair(name, torch.float64)
    if here.program.noises:
        return
    inputs = inputs_of(name, torch.float64)
    parts = [inputs_of(name, torch.float64, seed) for seed in range(3)]
    batch = {one: np.stack([part[one] for part in parts]) for one in parts[0]}
    bits = promised(here)
    for given in (inputs, batch):
        expected = here(given, until_stable=True, limit=40)
        assert_same(expected, there(moved(given), until_stable=True, limit=40), bits)
        assert there.report.layers == here.report.layers or not bits
        assert there.report.stable == here.report.stable or not bits


def test_something_ran_there() -> None:
    assert sum(wide_device.ran.values()) > 1000
