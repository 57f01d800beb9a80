"""How far outputs are from what is wanted, by name; or a function of one's own: (outputs, targets) -> a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from weftc.core.errors import InputError
from weftc.core.words import did_you_mean, joined

Tensors: TypeAlias = Mapping[str, Tensor]
Loss: TypeAlias = Callable[[Tensors, Tensors], Tensor]
SMALLEST = 1e-30  # a share that is 0 has a logarithm all the same


def mse(outputs: Tensors, targets: Tensors) -> Tensor:
    """Squared differences, on average."""
    return _mean((outputs[name] - wanted).square() for name, wanted in _fitting(outputs, targets))


def mae(outputs: Tensors, targets: Tensors) -> Tensor:
    """Differences without their sign, on average."""
    return _mean((outputs[name] - wanted).abs() for name, wanted in _fitting(outputs, targets))


def cross_entropy(outputs: Tensors, targets: Tensors) -> Tensor:
    """-log of the share that the wanted class has; a target is classes 0, 1, ..., or a share of each."""
    found = []
    for name, wanted in targets.items():
        logs = outputs[name].clamp_min(SMALLEST).log()
        if wanted.shape == logs.shape:
            found.append(-(wanted * logs).sum(-1))
        elif wanted.shape == logs.shape[:-1]:
            found.append(-logs.gather(-1, wanted.long().unsqueeze(-1)))
        else:
            raise InputError(_unlike(name, logs, wanted))
    return _mean(found)


def wasserstein(outputs: Tensors, targets: Tensors) -> Tensor:
    """The squared 2-Wasserstein distance of two sets of points, each point of the same weight."""
    found = []
    for name, wanted in targets.items():
        points = outputs[name]
        if points.ndim < 2 or points.shape[:-2] != wanted.shape[:-2] or points.shape[-1] != wanted.shape[-1]:
            raise InputError(_unlike(name, points, wanted))
        flat = zip(points.reshape(-1, *points.shape[-2:]), wanted.reshape(-1, *wanted.shape[-2:]), strict=True)
        found.append(torch.stack([transport(one, other) for one, other in flat]))
    return _mean(found)


def transport(points: Tensor, others: Tensor, shares: Any = None) -> Tensor:
    """The squared 2-Wasserstein distance, with a gradient: the plan is optimal, and constant nearby."""
    try:
        import ot
    except ImportError:
        raise InputError("the loss wasserstein needs POT; install it: pip install pot") from None
    cost = (points[:, None] - others[None]).square().sum(-1)
    even = np.full(len(points), 1 / len(points))
    wanted = np.full(len(others), 1 / len(others)) if shares is None else np.asarray(shares, dtype=np.float64)
    plan = ot.emd(even, wanted / wanted.sum(), cost.detach().double().numpy())
    return (cost * torch.as_tensor(plan, dtype=cost.dtype)).sum()


def objective(outputs: Tensors, targets: Tensors) -> Tensor:
    """What the spec itself calls its objective; it needs no targets."""
    name = next((name for name in ("(objective)", "objective") if name in outputs), None)
    if name is None:
        raise InputError("this spec states no objective; choose another loss")
    return outputs[name].mean()


LOSSES: Mapping[str, Loss] = {
    "mse": mse,
    "mae": mae,
    "cross-entropy": cross_entropy,
    "wasserstein": wasserstein,
    "objective": objective,
}


def loss_of(loss: str | Loss) -> Loss:
    """A loss by its name, or as it is."""
    if not isinstance(loss, str):
        return loss
    if loss not in LOSSES:
        hint = did_you_mean(loss, LOSSES)
        raise InputError(f"there is no loss {loss!r}; {hint or f'losses are {joined(list(LOSSES))}'}")
    return LOSSES[loss]


def _mean(parts: Any) -> Tensor:
    return torch.stack([part.mean() for part in parts]).mean()


def _fitting(outputs: Tensors, targets: Tensors) -> Any:
    for name, wanted in targets.items():
        if outputs[name].shape != wanted.shape:
            raise InputError(_unlike(name, outputs[name], wanted))
        if not outputs[name].dtype.is_floating_point:
            raise InputError(f"{name} is a choice, which has no gradient; compare a share or a vector instead")
        yield name, wanted


def _unlike(name: str, output: Tensor, wanted: Tensor) -> str:
    return f"the output {name} has the shape {tuple(output.shape)}, and its target {tuple(wanted.shape)}"
