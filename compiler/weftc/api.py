"""What `import weftc` offers beside `compile` and `catalogue`: thin functions over the passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftc.compiling import SpecLike, checked_spec, spec_source
from weftc.core.source import Source
from weftc.core.syntax import Spec
from weftc.core.types import Checked
from weftc.interpreter.interpreter import InterpretedRun, Interpreter
from weftc.language.parse.parse import parse as parse_source

if TYPE_CHECKING:
    import torch

    from weftc.verification.transport.by_depth import Assignment
    from weftc.verification.verdict import Verdict
    from weftc_runtime import Checkpoint, Model


def parse(spec: Source | str | Path) -> Spec:
    """The syntax tree of a spec; a `SpecError` lists everything wrong with its form."""
    return parse_source(spec_source(spec))


def check(spec: SpecLike) -> Checked:
    """The spec with its names resolved and its types inferred; a `SpecError` lists everything wrong with it."""
    return checked_spec(spec)


def interpret(
    spec: SpecLike,
    inputs: Mapping[str, Any],
    layers: int | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    seed: int = 0,
    noise: Mapping[str, Any] | None = None,
    trace: bool = False,
) -> InterpretedRun:
    """Runs a spec by its meaning, in NumPy: a mapping of named outputs, and every field of every layer with `trace`.

    >>> import weftc
    >>> points = [[-3.0], [-2.0], [0.0], [2.0], [3.0]]
    >>> weftc.interpret("lloyd", {"x": points, "c": [[-1.0], [1.0]]})["centers"].tolist()
    [[-1.6666666666666667], [2.5]]
    """
    checked = checked_spec(spec)
    depth = layers if layers is not None else checked.spec.repeat or 1
    return Interpreter(checked, dims, params).run(inputs, depth, seed=seed, noise=noise, trace=trace)


def load(
    source: str | Path | Checkpoint,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device = "cpu",
    trainable: bool = False,
    backend: str = "auto",
    deterministic: bool = False,
    group: Any = None,
    shared: Iterable[str] | None = None,
    freeze: str | Iterable[str] = (),
) -> Model:
    """The model in a checkpoint, as an `nn.Module`; frozen unless `trainable`.

    `freeze` says what stays as it is while a trainable model is trained: "head:y", "slot:x" or "slot:points.x" (what
    reads or writes it), "kind:scores" (or masks, values, mlp, carry, basis); one word or several.

    `dtype` is float64 unless given, as torch's or by its name ("float32").

    `backend` is `reference` (the matrices as they stand), `planned` (a plan for large inputs) or `auto`. Sums over hard
    weights have the same bits in any order; with `deterministic` so have those with soft weights, at the reference's
    speed. A `device` without float64 takes `dtype=torch.float32`: it looks for best keys, and the CPU does all else.

    `group`: processes of torch.distributed that run together (docs/scale.md); each is given its rows of the `shared`
    sets, all of open size unless some are named, and all rows of every other.
    """
    import torch

    from weftc_runtime import load as load_model

    dtype = dtype or torch.float64
    return load_model(source, dtype, device, trainable, backend, deterministic, group, shared, freeze)


def verify(
    target: SpecLike | Checkpoint,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    **options: Any,
) -> Verdict:
    """Evidence that a spec and its transformer are the same function; see `weftc.verification.verification.verify`."""
    from weftc.verification.verification import verify as verify_target

    return verify_target(target, dims=dims, params=params, **options)


def assignment(
    target: SpecLike | Checkpoint,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    data: Mapping[str, Any] | None = None,
    *,
    depth: int | None = None,
    seed: int = 0,
) -> Assignment:
    """How far the coupling that a spec or model computes is from its optimum after each number of layers, certified.

    `data` (input -> array) may be left out: random inputs then. Printed, what comes back is a table.
    """
    from weftc.verification.verification import distance_to_optimum

    return distance_to_optimum(target, dims or {}, params or {}, data or {}, depth, seed)
