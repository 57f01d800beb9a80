"""Data and a loss -> the numbers of a spec, and the spec with them in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from weftc.compiling import SpecLike, checked_spec, sizes_from
from weftc.core.errors import InputError
from weftc.core.types import Checked
from weftc.core.words import joined
from weftc.training.layers import learned, nothing_to_learn
from weftc.training.losses import Loss, loss_of, objective
from weftc.training.trainable import Choices, Trainable, trainable
from weftc_runtime.data.progress import Progress

Arrays: TypeAlias = Mapping[str, Any]
Batches: TypeAlias = Callable[[int], tuple[Arrays, Arrays]]
MOST_CERTIFIED = 8  # problems whose certificates are computed


@dataclass(frozen=True, slots=True)
class Hardened:
    """What became of a model that was trained with soft choices when its choices were made hard again."""

    sharpness: float
    soft: float  # the loss as it was trained
    exact: float  # the loss of the spec
    certified: tuple[
        float, ...
    ]  # for each problem: how far any field can have moved; infinite where nothing is certain
    margin: float  # the least lead of any choice in these runs


@dataclass(frozen=True, slots=True)
class Training:
    """What training found."""

    spec: str  # a Weft program with the numbers in it
    values: Mapping[str, list[float]]
    losses: tuple[float, ...]  # of every step, on its batch
    before: float  # the loss on all data; of generated data, of the first batch
    after: float
    hardened: Hardened | None = None

    @property
    def steps(self) -> int:
        return len(self.losses)


def train(
    spec: SpecLike,
    data: Arrays | Batches,
    targets: Arrays | None = None,
    loss: str | Loss = "mse",
    *,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    layers: int | None = None,
    steps: int = 300,
    rate: float = 0.03,
    batch: int = 16,
    seed: int = 0,
    dtype: torch.dtype | str | None = None,
    sharpness: float | None = None,
    choices: Choices = "exact",
    progress: Progress | None = None,
) -> Training:
    """Learns the numbers that a spec declares with `learn`, by Adam with a rate that falls to 0 along a cosine.

    `data` maps inputs to arrays, with an axis for problems in front or of one problem; `targets` maps outputs to what
    is wanted of them. Or `data` is a function: step -> inputs and targets of a batch. An input with an `init` clause
    may be left out. `loss` is mse, mae, cross-entropy, wasserstein, objective, or a function of outputs and targets.
    The same arguments give the same numbers on one thread.
    """
    checked = checked_spec(spec)
    measure = loss_of(loss)
    if steps < 1 or batch < 1 or not rate > 0:
        raise InputError("steps and batch are whole numbers from 1, and the rate is above 0")
    if not learned(checked):
        raise InputError(nothing_to_learn(checked))
    if not callable(data):
        data, targets = _problems(checked, data, targets or {}, measure)
    first = next(iter(data.items()))[1][0] if not callable(data) else None
    found = dict(dims or {})
    if first is not None and not callable(data):
        found = {**sizes_from(checked, {name: values[0] for name, values in data.items()}), **found}
    model = trainable(checked, found, params, layers, dtype=dtype, sharpness=sharpness, choices=choices, scores="dot")
    draw = data if callable(data) else _drawn(model, data, targets or {}, batch, seed)
    check = draw(0) if callable(data) else (model.starts(data, seed), dict(targets or {}))
    check = ({**model.noise(check[0], seed), **check[0]}, check[1])

    def evaluated(on: Trainable) -> float:
        with torch.no_grad():
            return float(_loss(on, measure, check))

    before = evaluated(model)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for step in range(steps):
        value = _loss(model, measure, draw(step))
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        if step == 0 and not any(weight.grad is not None and bool(weight.grad.any()) for weight in model.parameters()):
            raise InputError(
                f"no gradient reaches {joined(list(model.ranges))}: every path to the loss goes through a choice or a "
                "condition; give a sharpness"
            )
        if not all(weight.grad is None or bool(weight.grad.isfinite().all()) for weight in model.parameters()):
            raise InputError(f"the gradient of step {step + 1} is not finite; try a smaller rate, or other starts")
        optimizer.step()
        falling.step()
        losses.append(float(value.detach()))
        if progress is not None:
            progress(f"loss {losses[-1]:.3g}", step + 1, steps)
    hardened = None
    if sharpness is not None and choices == "exact":
        exact = trainable(checked, found, params, layers, dtype=dtype, scores="dot")
        exact.load_state_dict(model.state_dict())
        hardened = harden(model, sharpness, check, evaluated(model), evaluated(exact))
    return Training(model.spec(), model.values(), tuple(losses), before, evaluated(model), hardened)


def harden(model: Trainable, sharpness: float, check: tuple[Arrays, Arrays], soft: float, exact: float) -> Hardened:
    """What hard choices change, with a certificate for each of some problems."""
    from weftc.verification.temperature.certificate import Certifier

    checked = checked_spec(model.spec())
    certifier = Certifier(checked, model.dims, model.others, sharpness)
    inputs = {name: np.asarray(values, dtype=np.float64) for name, values in check[0].items()}
    noise = {one.target.name: inputs.pop(one.target.name) for one in checked.spec.random}
    many = min(len(values) for values in inputs.values())
    found = []
    for number in range(min(many, MOST_CERTIFIED)):
        start = certifier.exact.start({name: values[number] for name, values in inputs.items()})
        drawn = {name: layers[:, number] for name, layers in noise.items()}
        found.append(certifier.certify(start, model.depth, drawn))
    margin = min((one.margin for one in found), default=np.inf)
    return Hardened(sharpness, soft, exact, tuple(float(one.bound) for one in found), float(margin))


def _loss(model: Trainable, measure: Loss, batch: tuple[Arrays, Arrays]) -> Tensor:
    inputs, targets = batch
    outputs = model(**inputs)
    if unknown := [name for name in targets if name not in outputs]:
        raise InputError(f"{model.checked.spec.name} has no output {unknown[0]}; it has {joined(list(outputs))}")
    wanted = {name: torch.as_tensor(np.asarray(values)) for name, values in targets.items()}
    kept = {name: one.to(model.dtype) if one.dtype.is_floating_point else one for name, one in wanted.items()}
    value = measure(outputs, kept)
    if not isinstance(value, Tensor) or value.ndim:
        raise InputError("a loss gives one number, as a tensor")
    return value


def _problems(checked: Checked, data: Arrays, targets: Arrays, measure: Loss) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and targets with an axis for problems in front."""
    if not data:
        raise InputError("training needs data")
    arrays = {name: np.asarray(values) for name, values in data.items()}
    extra = set()
    for name, values in arrays.items():
        if name not in checked.fields or checked.fields[name].role != "input":
            inputs = [field.target.name for field in checked.spec.inputs]
            raise InputError(f"{checked.spec.name} has no input {name}; it has {joined(inputs)}")
        field = checked.fields[name]
        extra.add(values.ndim - (1 if field.width is None and field.columns is None else 2))
    if extra not in ({0}, {1}):
        raise InputError("every input has one row for each token, or all of them have an axis for problems in front")
    wanted = {name: np.asarray(values) for name, values in targets.items()}
    if not wanted and measure is not objective:
        raise InputError("training needs targets: what the outputs should be; the loss objective needs none")
    if extra == {0}:
        arrays, wanted = ({name: values[None] for name, values in some.items()} for some in (arrays, wanted))
    if len({len(values) for values in (*arrays.values(), *wanted.values())}) > 1:
        raise InputError("inputs and targets are of different numbers of problems")
    return arrays, wanted


def _drawn(model: Trainable, data: Arrays, targets: Arrays, batch: int, seed: int) -> Batches:
    """Batches of problems, drawn without replacement until all have been seen."""
    inputs = model.starts(data, seed)
    many = len(next(iter(inputs.values())))
    rng, order = np.random.default_rng(seed), np.zeros(0, dtype=np.int64)

    def draw(step: int) -> tuple[Arrays, Arrays]:
        nonlocal order
        while len(order) < min(batch, many):
            order = np.concatenate([order, rng.permutation(many)])
        chosen, order = order[: min(batch, many)], order[min(batch, many) :]
        return tuple({n: values[chosen] for n, values in some.items()} for some in (inputs, targets))  # type: ignore[return-value]

    return draw
