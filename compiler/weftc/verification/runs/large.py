"""Models -> cases with many tokens, judged step by step: what the planned backend does only at some size.

Small cases never leave one tile, and their keys are too few for bounds that are carried from layer to layer. Here sets
are as long as a budget allows, and layers as many as it takes until native searches, bounds and sums that are moved
along are all in use. Every step is held against the interpreter like any other. Then the same run goes on its own, as
users run it, with nobody watching and so with several layers at a time where there is a way: its outputs must be those
of the run that was watched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.types import Checked
from weftc.verification.cases.inputs import Case, Shape, draw
from weftc.verification.runs.backends import Runners
from weftc.verification.runs.runs import failed, judge_of, passed
from weftc.verification.runs.trajectories import CHAOTIC, is_settled_throughout, nudged
from weftc.verification.steps.comparing import StepOutcome
from weftc.verification.steps.condition import ROUNDINGS
from weftc.verification.steps.layers import Judge
from weftc.verification.steps.models import Seen
from weftc.verification.verdict import Check
from weftc_runtime import Checkpoint
from weftc_runtime.format.program import Attend
from weftc_runtime.machines.heads_stream import TILE
from weftc_runtime.machines.search import MANY
from weftc_runtime.plan.instructions import HeadPlan

Array = NDArray[Any]
LENGTHS = (20000, 10000, 5000, 2000, 1000, 500, 250, 125, 60)  # of open sets; the longest that the budget allows
BUDGET = 1 << 17  # products of a layer
SEARCHED = frozenset({"nearest", "best"})
TILED = frozenset({*SEARCHED, "segment", "stream", "self"})
LITERAL = 1 << 23  # scores of all heads, on which the reference would spend seconds if the planned backend gave up
SLOW = 32  # products of the other heads cost as much as this many
SHALLOW, DEPTH, DEEP = 2, 3, 8  # layers: sums are moved along from the second on, bounds carried after a few
NUDGES = 2


def large_runs(
    checked: Checked, models: Sequence[Checkpoint], style: str, dtype: str, seed: int, runners: Runners, tiles: bool
) -> Check | None:
    """Steps of large problems on the planned backend; None where it does the same at any size, or nothing has a value.

    In float32 only the last model runs: what differs is how numbers are read. `tiles`: as many keys as it takes for
    soft weights to be merged from several tiles.
    """
    name = f"large runs ({style}, {dtype})"
    outcomes: list[StepOutcome] = []
    for number, model in enumerate(models if dtype == "float64" else models[-1:]):
        judge = judge_of(checked, model, dtype, "planned", runners)
        plan = judge.watched.model.plan()
        heads = [head for path, head in plan.heads() if path.startswith("layer")]
        if not any(head.strategy in TILED for head in heads):
            continue
        for at, (sizes, depth) in enumerate(_scales(checked, model, heads, tiles and number == 0)):
            rng = np.random.default_rng((seed, 99, number, at))
            case = draw(checked, Shape(model.dims, sizes), "random", rng, np.dtype(dtype))
            case = replace(case, layers=judge.watched.depth or depth)
            outcomes.append(judge.judge(case))
            if outcomes[-1].divergence is not None:
                return failed(name, judge, case, outcomes)
            wrong = _unwatched(judge, case, rng) if at == 0 else None
            if wrong is not None:
                steps = sum(outcome.steps for outcome in outcomes)
                return Check(name, f"{steps} steps", len(outcomes), False, *wrong, backend="planned")
    return passed(name, outcomes, "planned") if any(outcome.steps > 0 for outcome in outcomes) else None


# ---- how large -------------------------------------------------------------------------------------------------------


def _scales(
    checked: Checked, model: Checkpoint, heads: Sequence[HeadPlan], tiles: bool
) -> list[tuple[dict[str, int], int]]:
    """The size of every token set, and how many layers to run."""
    dims = model.dims
    fixed = {name: dims[size] if isinstance(size, str) else size for name, size in checked.sets.items() if size}
    widths = [one.width for one in checked.fields.values() if one.width is not None]
    width = max((dims[one] if isinstance(one, str) else one for one in widths), default=1)
    sizes = dict(fixed)
    for length in LENGTHS:
        sizes = {**dict.fromkeys(checked.sets, length), **fixed}
        if width * sum(_scores(head, sizes) for head in heads) <= BUDGET and _literal(model, sizes) <= LITERAL:
            break
    decides = any(head.strategy in (*SEARCHED, "segment") and not head.uniform_query for head in heads)
    depth = DEEP if any(_carries(head, sizes, width) for head in heads) else DEPTH if decides else SHALLOW
    found = [(sizes, depth)]
    few = [fixed[head.head.query] for head in heads if head.strategy == "stream" and head.head.query in fixed]
    if tiles and few:
        sizes = {**dict.fromkeys(checked.sets, TILE // min(few) + 1), **fixed}
        found += [(sizes, 1)] if _literal(model, sizes) <= LITERAL else []
    return found


def _literal(model: Checkpoint, sizes: Mapping[str, int]) -> int:
    """The scores of all heads, before, in and after a layer."""
    attends = [sub for step in model.program.steps() for sub in step.sublayers if isinstance(sub, Attend)]
    return sum(sizes[head.query] * sizes[head.keys] for attend in attends for head in attend.heads)


def _scores(head: HeadPlan, sizes: Mapping[str, int]) -> int:
    """The scores that a head looks at; those of heads that run as on the reference cost more."""
    if head.strategy in ("segment", "self"):
        return 0
    queries = 1 if head.uniform_query else sizes[head.head.query]
    return queries * sizes[head.head.keys] * (1 if head.strategy in TILED else SLOW)


def _carries(head: HeadPlan, sizes: Mapping[str, int], width: int) -> bool:
    """Whether a search may carry bounds from layer to layer."""
    distances = all(part.kind == "l2" for part in head.head.score.parts)
    return head.strategy in SEARCHED and distances and sizes[head.head.keys] * width >= MANY


# ---- nobody watches --------------------------------------------------------------------------------------------------


def _unwatched(judge: Judge, case: Case, rng: np.random.Generator) -> tuple[float, float, float, str] | None:
    """Error, what is allowed, kappa and the place of the first output that a run of its own has and should not have.

    Bit for bit where every equation is settled; else kappa is what the model does to inputs that are moved by one unit
    in the last place, as in whole runs.
    """
    seen = judge.watched.watch(case)
    if seen.stopped or not seen.layers:
        return None
    got, refusal = judge.watched.attempt(judge.watched.run, case)
    if got is None:
        return np.inf, 0.0, 1.0, f"a run of its own ends with an error, one that is traced does not: {refusal}"
    kappas = {} if is_settled_throughout(judge.checked) else _magnified(judge, case, seen, rng)
    precision = np.finfo(judge.dtype)
    for name, want in seen.outputs.items():
        scale = float(np.max(np.abs(want), initial=0.0))
        allowed = ROUNDINGS * float(precision.eps) * kappas[name] * scale if name in kappas else 0.0
        if allowed > CHAOTIC * scale:
            continue
        gaps = np.abs(got[name].astype(np.float64) - want.astype(np.float64))
        error = float(np.max(gaps, initial=0.0))
        if not error <= allowed + float(precision.smallest_normal) * (name in kappas):
            row = int(np.unravel_index(int(np.argmax(gaps)), gaps.shape)[0]) if gaps.ndim else 0
            why = f"{name}, row {row + 1}: after {case.layers} layers a run of its own differs by {error:.3g} from one "
            why += f"that is traced, allowed {allowed:.3g} ({case.family} inputs of {case.tokens} tokens)"
            return error, allowed, kappas.get(name, 1.0), why
    return None


def _magnified(judge: Judge, case: Case, seen: Seen, rng: np.random.Generator) -> dict[str, float]:
    """How much the watched run magnifies a change of the inputs by one unit in the last place, per output."""
    epsilon = float(np.finfo(judge.dtype).eps)
    largest = dict.fromkeys(seen.outputs, 1.0)
    for _ in range(NUDGES):
        other = judge.watched.watch(nudged(judge.checked, case, epsilon, rng))
        for name, value in seen.outputs.items() if other.outputs else ():
            scale = float(np.max(np.abs(value), initial=0.0))
            change = float(np.max(np.abs(other.outputs[name] - value), initial=0.0))
            largest[name] = max(largest[name], change / (epsilon * scale) if scale else 1.0)
    return {name: case.layers * value for name, value in largest.items()}
