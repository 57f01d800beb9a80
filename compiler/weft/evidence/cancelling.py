"""A program's matrices -> whether large numbers may cancel inside a step: a check that needs no lucky case.

Every column of a residual carries three magnitudes through the sub-layers of a step: the largest number that a traced
run of ordinary data held there, what heads could have added had their decisions fallen otherwise (any key, or none),
and the rounding that this makes possible: u times everything that is added up, carried on by the matrices.

    c + 2^70 s - 2^70 s, s = [some point is in a narrow band]    s may be 1, so c may be off by u * 2^70

Feed-forward functions and unbounded weights count with what was seen. This bounds what sums of a residual can lose, not
all rounding; fields at the end of a step may be off by `LIMIT` times the numeric contract, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.evidence.condition import EPSILON, ROUNDINGS
from weft.evidence.inputs import cases
from weft.evidence.verdict import Check
from weft.types import Checked
from weft_runtime import Checkpoint, WeftRuntimeError, load
from weft_runtime.ir import Attend, Sublayer

Floats = NDArray[np.float64]
LIMIT = 2.0**12
FAMILIES = ("random", "positive")
SHARES = ("argmax", "softmax", "sparsemax", "normmax", "top", "normalize")  # weights that add up to one


@dataclass(frozen=True, slots=True)
class Loss:
    """A field after a step that sums may have spoilt."""

    step: int
    field: str
    error: float
    scale: float


def cancelling(checked: Checked, model: Checkpoint, style: str, seed: int) -> Check | None:
    """Whether a sum inside a step can lose more than `LIMIT` times the contract; None where nothing could be traced."""
    found = [
        loss
        for case in cases(checked, model.dims, 2, seed, families=FAMILIES, first=1)
        for loss in losses(model, case.inputs, case.seed)
    ]
    if not found:
        return None
    worst = max(found, key=lambda one: one.error / one.scale)
    allowed = LIMIT * ROUNDINGS * EPSILON * worst.scale
    detail = f"step {worst.step + 1}, {worst.field}: large numbers may cancel, and leave an error of {worst.error:.2g}"
    passed = worst.error <= allowed
    return Check(
        f"cancellation ({style})",
        "sums of every step",
        len(found),
        passed,
        worst.error,
        allowed,
        detail="" if passed else detail,
    )


def losses(model: Checkpoint, inputs: Mapping[str, Any], seed: int) -> Iterator[Loss]:
    """Every field that a step of the layer writes, on one case."""
    program = model.program
    if program.rotated:
        return
    network = load(model, backend="reference")
    depth = program.layers if program.options.get("weights") == "unrolled" else 1
    try:
        trace = network.trace(dict(inputs), layers=depth, seed=seed)
    except WeftRuntimeError:
        return
    block, each = 0, sum(len(step.sublayers) for step in program.layer) // depth
    seen = {s.name: np.zeros(s.width) for s in program.streams}
    for number, step in enumerate(program.layer):
        spread = {s.name: (np.zeros(s.width), np.zeros(s.width)) for s in program.streams}  # open, error
        for sublayer in step.sublayers:
            before, seen = seen, _seen(model, trace, block // each, block % each, seen)
            spread = _after(model, sublayer, {n: np.maximum(seen[n], before[n]) for n in seen}, spread)
            block += 1
        for home, name in step.writes:
            columns = program.stream(home).slot(name).columns
            scale = max(1.0, float(np.max(seen[home][columns], initial=0.0)))
            yield Loss(number, name, float(np.max(spread[home][1][columns], initial=0.0)), scale)


def _seen(model: Checkpoint, trace: Any, layer: int, block: int, before: Mapping[str, Floats]) -> dict[str, Floats]:
    found = {name: values.copy() for name, values in before.items()}
    for stream in model.program.streams:
        for slot in stream.slots:
            key = f"layers.{layer}.blocks.{block}.{stream.name}.{slot.name}"
            if key in trace:
                values = np.abs(np.asarray(trace[key].detach().numpy(), float)).reshape(-1, slot.width)
                found[stream.name][slot.columns] = np.max(values, axis=0, initial=0.0)
    return found


def _after(
    model: Checkpoint, sublayer: Sublayer, seen: Mapping[str, Floats], spread: Mapping[str, tuple[Floats, Floats]]
) -> dict[str, tuple[Floats, Floats]]:
    """What may be added and lost after a sub-layer."""
    weights = {name: np.abs(np.asarray(array, float)) for name, array in model.tensors.items()}
    carries = sublayer.carry if isinstance(sublayer, Attend) else {sublayer.stream: sublayer.carry}
    found = {}
    for stream, (more, error) in spread.items():
        carry = weights[carries[stream]] if stream in carries else np.eye(len(more))
        summed, may, lost = carry @ (seen[stream] + more), carry @ more, carry @ error
        terms = (carry != 0).sum(axis=1)
        for head in sublayer.heads if isinstance(sublayer, Attend) else ():
            if head.query == stream and head.weighting.kind in SHARES and head.value:
                value, (other, wrong) = weights[head.value], spread[head.keys]
                may = may + value @ (seen[head.keys] + other)
                lost, summed = lost + value @ wrong, summed + value @ (seen[head.keys] + other)
                terms = terms + (value != 0).sum(axis=1)
        found[stream] = may, lost + np.where(terms > 1, terms, 0) * (EPSILON / 2) * summed
    return found
