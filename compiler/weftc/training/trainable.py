"""A spec with `learn` parameters as an `nn.Module`: its few numbers are the parameters, its matrices follow from them.

    model = weftc.trainable(spec, dims={"d": 2}, layers=6)
    loss = model(x=points)["points"].square().mean()      # any axes of problems in front
    loss.backward(); optimizer.step()
    model.spec()                                          # the spec with the numbers of now, to compile and to prove

The model is what the compiler writes: the program is compiled once, at values near the start, with numbers that carry
their formulas (`core.tied`), and runs as the plain torch module that `weftc export` writes. A second compilation at
other values says that every tensor follows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from weftc.compiling import SpecLike, at_temperature, checked_spec, settled
from weftc.core import syntax as ast
from weftc.core.errors import InputError
from weftc.core.styles import Styles
from weftc.core.tied import Formula, Tied, nearby, symbols
from weftc.core.types import Checked
from weftc.core.words import joined
from weftc.emit.program import Transformer, build
from weftc.interop.writer import write
from weftc.interpreter.initial import initial_rows
from weftc.interpreter.noise import draw
from weftc.language.bind import bind
from weftc.language.check.constants import NotConstant, constant
from weftc.passes.pipeline import Goal, lowered
from weftc.training.layers import layered, learned, nothing_to_learn
from weftc.training.tensors import TiedTensors
from weftc.version import VERSION
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import Weighting

Choices = Literal["exact", "straight-through"]
CLOSE = 1e-11  # of entries computed by formulas beside those of another compilation, relative


def trainable(
    spec: SpecLike,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    layers: int | None = None,
    *,
    dtype: torch.dtype | str | None = None,
    sharpness: float | None = None,
    choices: Choices = "exact",
    scores: Literal["l2", "dot"] = "dot",
    centre: Literal["auto", "on", "off"] = "auto",
) -> Trainable:
    """A spec with `learn` parameters, ready to be trained in torch; `params` gives values, or where learning starts.

    No gradient goes through a choice (`argmax`, ...). With a `sharpness` every choice is a softmax of so many times its
    score; with `choices="straight-through"` it is made as it is, and its gradient is that of such a softmax, at the
    sharpness given, or 1. What is learned belongs to the spec as it is. Distances are inner products while training,
    which is faster; `scores="l2"` takes them from differences.
    """
    checked = checked_spec(spec)
    found = learned(checked)
    if not found:
        raise InputError(nothing_to_learn(checked))
    depth = layers if layers is not None else checked.spec.repeat or 1
    if not isinstance(depth, int) or depth < 1:
        raise InputError(f"layers must be a whole number, at least 1, not {depth!r}")
    kind = getattr(torch, dtype) if isinstance(dtype, str) else dtype or torch.float64
    styles = Styles(scores=scores, centre=centre)
    if sharpness is not None and choices == "exact":
        styles = replace(styles, hardmax="softmax", sharpness=sharpness)
    return Trainable(checked, dict(dims or {}), dict(params or {}), depth, kind, styles, choices, sharpness or 1.0)


class Trainable(nn.Module):
    """The numbers of a spec, and its transformer as a function of them and of inputs."""

    def __init__(
        self,
        checked: Checked,
        dims: dict[str, int],
        params: dict[str, float],
        depth: int,
        dtype: torch.dtype,
        styles: Styles,
        choices: Choices,
        sharpness: float,
    ) -> None:
        super().__init__()
        self.checked, self.dims, self.given = checked, dims, params
        self.layers = layered(checked, depth)
        self.dtype = dtype
        self.ranges = {name: _Range(param, params.get(name), dims) for name, param in learned(checked).items()}
        starts = {name: [one.start] * len(self.layers.names[name]) for name, one in self.ranges.items()}
        self.flat = checked_spec(
            self.layers.text(starts)
        )  # all layers as one, where numbers differ from layer to layer
        together = any(param.learned == "per layer" for param in learned(checked).values())
        self.depth = 1 if together else depth
        self.others = {name: value for name, value in params.items() if name not in self.ranges}
        names = [one for several in self.layers.names.values() for one in several]
        made, floats = self._compiled(styles, 1)
        self.tensors = TiedTensors(made.tensors, floats, names)
        self._check(styles, made)
        self.module, self.attributes, self.inputs = _module(self._checkpoint(made, {}), self.depth, dtype)
        if choices == "straight-through":
            _pass_straight_through(self.module, sharpness)
        self.calls = 0  # that have drawn random fields
        self.raw = nn.ParameterDict(
            {
                name: nn.Parameter(torch.full((len(self.layers.names[name]),), one.raw, dtype=torch.float64))
                for name, one in self.ranges.items()
            }
        )

    # ---- what is learned

    def values(self) -> dict[str, list[float]]:
        """The numbers of now, one for each layer or one for all."""
        return {name: self.ranges[name].value(raw.detach()).tolist() for name, raw in self.raw.items()}

    def spec(self) -> str:
        """The spec with the numbers of now in it; it needs `params` no more."""
        return self.layers.text(self.values())

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        """Inputs by their names, with any number of axes for problems in front -> the outputs of the spec.

        Random fields, with an axis for layers before those of problems, are drawn anew in every call if left out.
        """
        if any(one.target.name not in inputs for one in self.flat.spec.random) and self._sizes_known(inputs):
            inputs = {**self.noise(inputs, self.calls), **inputs}
            self.calls += 1
        if wrong := set(inputs) ^ set(self.inputs.values()):
            known = ", ".join(self.inputs.values())
            what = "does not know" if wrong <= set(inputs) else "needs"
            raise InputError(f"{self.checked.spec.name} {what} {joined(sorted(wrong))}; its inputs are {known}")
        values = torch.cat([self.ranges[name].value(raw) for name, raw in self.raw.items()])
        tied = self.tensors(values, self.dtype)
        matrices = {self.attributes[name]: tensor for name, tensor in tied.items() if name in self.attributes}
        given = {word: _tensor(inputs[name], self.dtype) for word, name in self.inputs.items()}
        options = {} if self.depth == 1 else {"layers": self.depth}
        found: dict[str, Tensor] = functional_call(self.module, matrices, (), {**given, **options})
        found.pop("margin", None)
        return found

    def noise(self, inputs: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
        """Random fields for all layers and problems of some inputs; problems differ in seed."""
        axes, sizes = self._axes(inputs)
        made: dict[str, Any] = {}
        for field in self.flat.spec.random:
            one = self.flat.fields[field.target.name]
            shape = tuple(sizes[self.flat.index[index]] for index in field.target.indices)
            many = int(np.prod(axes, dtype=np.int64))
            drawn = [
                [draw(one.kind, seed * many + n, one.name, layer, shape) for n in range(many)]
                for layer in range(self.depth)
            ]
            made[one.name] = np.reshape(drawn, (self.depth, *axes, *shape))
        return made

    def _sizes_known(self, inputs: Mapping[str, Any]) -> bool:
        return all(name in inputs for name in self.inputs.values() if self.flat.fields[name].role == "input")

    def _axes(self, inputs: Mapping[str, Any]) -> tuple[tuple[int, ...], dict[str, int]]:
        """The axes of problems, and how many tokens every set has."""
        axes: tuple[int, ...] = ()
        sizes = {name: self.dims[size] if isinstance(size, str) else size for name, size in self.flat.sets.items()}
        found = {name: size for name, size in sizes.items() if size is not None}
        for name in self.inputs.values():
            field = self.flat.fields[name]
            if field.role == "input" and name in inputs:
                shape = tuple(np.shape(inputs[name]))
                own = 1 if field.width is None and field.columns is None else 2
                axes = shape[:-own]
                found.setdefault(field.home, shape[len(axes)])
        return axes, found

    def starts(self, inputs: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
        """Inputs with start values for those that have an `init` clause and are not given; problems differ in seed."""
        made = dict(inputs)
        for field in self.flat.spec.inputs:
            name, init = field.target.name, field.init
            if name in made or init is None or init.of not in made:
                continue
            source = np.asarray(made[str(init.of)], dtype=np.float64)
            size = self.flat.sets[self.flat.fields[name].home]
            count = self.dims[size] if isinstance(size, str) else size
            if count is None:
                count = source.shape[-2]
            flat = source.reshape(-1, *source.shape[-2:])
            rows = [initial_rows(init.kind, name, str(init.of), x, count, seed + n) for n, x in enumerate(flat)]
            made[name] = np.stack(rows).reshape(*source.shape[:-2], count, source.shape[-1])
        return made

    # ---- compiling

    def _compiled(self, styles: Styles, seed: int) -> tuple[Transformer, dict[float, Formula]]:
        """The program and its tensors at values near the start, and the formulas behind what it wrote down."""
        names = [(one, self.ranges[name]) for name, several in self.layers.names.items() for one in several]
        values = {one: where.near(1000 * seed + n) for n, (one, where) in enumerate(names)}
        bound = bind(self.flat, self.dims, {**self.others, **values})
        settled_ = settled(styles, bound)
        tied = symbols(values)
        known: dict[str, Any] = {**bound.params, **tied}
        goal = Goal(bound.dims, known, settled_)
        made = build(lowered(at_temperature(self.flat, settled_), goal), self.depth)
        trace: Tied = next(iter(tied.values()))
        return made, trace.trace.floats

    def _check(self, styles: Styles, first: Transformer) -> None:
        """That formulas give what the compiler gives elsewhere."""
        made, _ = self._compiled(styles, 2)
        names = [(one, self.ranges[name]) for name, several in self.layers.names.items() for one in several]
        values = torch.tensor([where.near(2000 + n) for n, (_, where) in enumerate(names)], dtype=torch.float64)
        found = {**self.tensors.fixed, **self.tensors(values, torch.float64)}
        same = _weightings(made) == _weightings(first) and found.keys() == made.tensors.keys()
        for name, array in made.tensors.items() if same else ():
            close = CLOSE * float(np.abs(array).max(initial=0))
            same &= found[name].shape == array.shape
            same = same and np.allclose(found[name].numpy(), array, rtol=CLOSE, atol=close)
        if not same:
            raise InputError(
                f"{joined(list(self.ranges))}: the weights do not follow from these numbers by formulas alone; numbers "
                "that decide (in an argmax, a condition, an argument of lowest or normmax) need a sharpness"
            )

    def _checkpoint(self, made: Transformer, values: Mapping[str, float]) -> Checkpoint:
        source = self.flat.spec.source.text
        return Checkpoint(
            made.program, made.tensors, self.flat.spec.name, source, self.dims, dict(values), f"weftc {VERSION}"
        )


def _weightings(made: Transformer) -> list[Weighting]:
    """How the heads of a program weigh, in its order."""
    parts = (*made.program.prelude, *made.program.layer, *made.program.readout)
    return [head.weighting for step in parts for sub in step.sublayers for head in getattr(sub, "heads", ())]


def _tensor(values: Any, dtype: torch.dtype) -> Tensor:
    return torch.as_tensor(values if isinstance(values, Tensor) else np.ascontiguousarray(values), dtype=dtype)


class _Range:
    """Where a number may lie, and a number without limits that stands for it."""

    def __init__(self, param: ast.Param, given: float | None, dims: Mapping[str, int]) -> None:
        bound = param.bound
        self.low = bound.low[0] if bound is not None and bound.low is not None else None
        self.high = bound.high[0] if bound is not None and bound.high is not None else None
        try:
            start = constant(param.default, dict(dims)) if given is None and param.default is not None else given
        except (NotConstant, ArithmeticError, ValueError):
            raise InputError(f"learning needs a number to start from for {param.name}; give it, as in -D") from None
        self.start = self._middle() if start is None else float(start)
        if bound is not None and not bound.admits(self.start):
            raise InputError(f"{param.name} must be {bound}, not {self.start:g}")
        if self.start in (self.low, self.high):
            raise InputError(
                f"{param.name} starts at {self.start:g}, an end of its range, from where it cannot be learned; "
                "start inside"
            )
        self.raw = self._raw(self.start)

    def _middle(self) -> float:
        if self.low is not None and self.high is not None:
            return (self.low + self.high) / 2
        return self.low + 1 if self.low is not None else self.high - 1 if self.high is not None else 0.0

    def _raw(self, value: float) -> float:
        if self.low is not None and self.high is not None:
            share = (value - self.low) / (self.high - self.low)
            return float(np.log(share) - np.log1p(-share))
        if self.low is not None:
            return float(np.log(value - self.low))
        return value if self.high is None else float(np.log(self.high - value))

    def value(self, raw: Tensor) -> Tensor:
        if self.low is not None and self.high is not None:
            return self.low + (self.high - self.low) * torch.sigmoid(raw)
        if self.low is not None:
            return self.low + raw.exp()
        return raw if self.high is None else self.high - raw.exp()

    def near(self, seed: int) -> float:
        return nearby(self.start, seed, self.low, self.high)


def _module(checkpoint: Checkpoint, depth: int, dtype: torch.dtype) -> tuple[nn.Module, dict[str, str], dict[str, str]]:
    """The plain torch module of a checkpoint; tensors by the names the module has for them, and so for inputs."""
    written = write(checkpoint, depth)
    home = ModuleType(f"weftc_trainable_{written.class_name}")
    sys.modules[home.__name__] = home
    try:
        exec(compile(written.text, f"<{home.__name__}>", "exec"), vars(home))
    finally:
        del sys.modules[home.__name__]
    kind: type[nn.Module] = vars(home)[written.class_name]
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    for name, array in written.tensors.items():
        module.register_buffer(name, torch.tensor(array, dtype=dtype), persistent=False)
    program = checkpoint.program
    given = [one.name for one in (*program.inputs, *program.noises)]
    return module, dict(written.attributes), dict(zip(written.inputs, given, strict=True))


def _pass_straight_through(module: nn.Module, sharpness: float) -> None:
    """Lets gradients go through choices of one as if they were softmaxes."""
    words: dict[str, Any] = type(module).forward.__globals__

    def soft(word: str) -> Any:
        hard = words[word]

        def chosen(score: Tensor, eligible: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
            weights, none, clear = hard(score.detach(), eligible, *rest)
            masked = torch.where(eligible, score, torch.full_like(score, -torch.inf))
            likely = torch.where(none, torch.zeros_like(score), sharpness * masked).softmax(-1)
            likely = torch.where(eligible, likely, torch.zeros_like(likely))
            return weights + likely - likely.detach(), none, clear

        return chosen

    found = [word for word in ("argmax", "argmax_within") if word in words]
    if not found:
        raise InputError("straight-through is for choices of one (argmax, argmin); this spec makes none")
    for word in found:
        words[word] = soft(word)
