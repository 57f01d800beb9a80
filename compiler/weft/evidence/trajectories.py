"""Whole runs on both sides, each on its own way, and what a spec does to roundings from layer to layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import WeftError
from weft.evidence.condition import EPSILON, ROUNDINGS, is_settled
from weft.evidence.inputs import Case, Shape, draw, open_sizes
from weft.evidence.models import plain
from weft.evidence.shrinking import written
from weft.evidence.verdict import Check
from weft.meaning.interpreter import Interpreter
from weft.types import Checked
from weft_runtime import Checkpoint, WeftRuntimeError, load

Array = NDArray[Any]
PERTURBATIONS = 4
SMALLEST = float(np.finfo(np.float64).smallest_normal)
CHAOTIC = 1e-2  # relative error above which a whole run says nothing


def whole_runs(
    checked: Checked, model: Checkpoint, style: str, seed: int, count: int = 3, depth: int = 5, backend: str = "auto"
) -> Check | None:
    """Outputs after several layers on both sides, each on its own way.

    Bit for bit where every equation is settled. Else errors travel from layer to layer, and kappa is what the spec
    itself does to them: the interpreter runs again from inputs moved by one unit in the last place, and the largest
    change of an output, in units of eps * max|f|, times the number of layers, is its condition.
    """
    name = f"whole runs ({style}, float64)"
    network = load(model, backend=backend)
    if model.program.options.get("weights") == "unrolled":
        depth = model.program.layers
    meaning = Interpreter(checked, model.dims, model.params)
    bodies = [e.body for step in checked.spec.steps for e in step.equations] + [o.body for o in checked.spec.outputs]
    settled = all(is_settled(checked, body) or not _indexed(body) for body in bodies)
    seen: list[tuple[float, float, float]] = []
    skipped = 0
    for number in range(count):
        rng = np.random.default_rng((seed, 77, number))
        sizes = open_sizes(checked, model.dims, 1 + 3 * number, rng)
        family = ("random", "positive", "exact ties on a grid")[number % (3 if settled else 2)]
        case = replace(draw(checked, Shape(model.dims, sizes), family, rng), layers=depth)
        try:
            want = meaning.run(case.inputs, depth, seed=case.seed, noise=None)
            got = network(dict(case.inputs), layers=depth, seed=case.seed)
        except (WeftError, WeftRuntimeError):
            skipped += 1  # one-sided errors are the business of `layers`
            continue
        except Exception as fault:  # a fault of the runtime: evidence against the model, not against the caller
            detail = f"the run crashed with {type(fault).__name__}: {fault}\n{written(case)}"
            return Check(name, f"outputs after {depth} layers", number + 1, False, detail=detail)
        kappas = {} if settled else _amplified(meaning, case, want, rng)
        for key, value in want.items():
            scale = float(np.max(np.abs(value), initial=0.0))
            kappa = kappas.get(key, 1.0)
            allowed = 0.0 if settled else ROUNDINGS * EPSILON * kappa * scale + SMALLEST
            if allowed > CHAOTIC * scale + SMALLEST:
                skipped += 1
                continue
            error = float(np.max(np.abs(plain(got[key]).reshape(value.shape) - value), initial=0.0))
            seen.append((error, allowed, kappa))
            if not error <= allowed:
                detail = f"{key} differs by {error:.3g} after {depth} layers, allowed {allowed:.3g}\n{written(case)}"
                return Check(name, f"outputs after {depth} layers", number + 1, False, error, allowed, kappa, detail)
    if not seen:
        return None
    worst = max(seen, key=lambda one: one[0] / (one[1] or 1.0), default=(0.0, 0.0, 1.0))
    note = f"{skipped} outputs or runs have no value, or a condition at which nothing can be said" if skipped else ""
    return Check(name, f"outputs after {depth} layers", count, True, *worst, detail=note)


def _indexed(body: Any) -> bool:
    return not (hasattr(body, "indices") and not body.indices)


def _amplified(
    meaning: Interpreter, case: Case, want: Mapping[str, Array], rng: np.random.Generator
) -> dict[str, float]:
    """How much a whole run magnifies a change of the inputs by one unit in the last place, per output."""
    largest = dict.fromkeys(want, 1.0)
    for _ in range(PERTURBATIONS):
        moved = {
            name: values
            if meaning.checked.fields[name].kind == "onehot"
            else values * (1 + EPSILON * rng.choice((-1.0, 1.0), values.shape))
            for name, values in case.inputs.items()
        }
        try:
            other = meaning.run(moved, case.layers, seed=case.seed)
        except WeftError:
            continue
        for name, value in want.items():
            scale = float(np.max(np.abs(value), initial=0.0))
            change = float(np.max(np.abs(other[name] - value), initial=0.0))
            largest[name] = max(largest[name], change / (EPSILON * scale) if scale else 1.0)
    return {name: case.layers * value for name, value in largest.items()}
