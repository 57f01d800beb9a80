"""Answers -> whether they are answers to the same question, before anything is timed.

Ours must be exact in every row. A peer's rows that differ from the exact ones are counted; one that differs in
more than a few, or ends far from our objective, did other work and gets no ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from weftc.tools.bench.judges import Reals, dual_steps, nearest, potential_error, soft_means, sweeps
from weftc.tools.bench.results import Agreement
from weftc.tools.bench.samples import REGULARISATION, SHARPNESS, STEP, arrays
from weftc.tools.bench.workloads import Workload

Arrays = Mapping[str, NDArray[Any]]
Way = Literal["gradient", "rows first", "columns first"]
FEW = 0.01  # share of rows a peer may have wrong
APART = 0.05  # how far a peer's inertia may be from ours
WITH_EMPTY = 0.25  # the same where ours has empty clusters, which everyone treats differently
PLAN_ERROR = {"float32": 1e-3, "float64": 1e-9}  # largest relative error of an entry of the plan
SOME = 10  # problems of a batch that are judged
CENTER_ERROR = {"float32": 1e-3, "float64": 1e-9}  # largest error of a soft center beside the largest of its problem


@dataclass(frozen=True, slots=True)
class Ours:
    """Where our side ended: its inertia, and how many clusters are empty."""

    inertia: float
    empty: int = 0

    @property
    def allowed(self) -> float:
        """How far the inertia of others may be from it."""
        return WITH_EMPTY if self.empty else APART


def judge(
    workload: Workload, peer: str, inputs: Arrays, answer: Arrays, held: bool, iterations: int, ours: Ours | None
) -> tuple[Agreement, float | None]:
    """How an answer compares with the exact one, and its inertia. `held`: labels from before the last update."""
    if not answer:
        return Agreement(), None
    if workload.kind == "transport":
        return _transport(workload, peer, answer, iterations), None
    if workload.kind == "spec":
        return _spec(workload, peer, inputs, answer["found"], iterations), None
    if workload.kind == "seeding":
        return _rows_of(inputs["x"][None], answer["found"][None]), None
    if workload.kind == "fit":
        return _clustering(peer, inputs, answer, False, iterations, ours)
    if workload.kind == "batch":
        soft = "labels" not in answer
        return _soft_batch(workload, inputs, answer, iterations) if soft else _batch(peer, inputs, answer), None
    return _clustering(peer, inputs, answer, held, iterations, ours)


def _spec(workload: Workload, peer: str, inputs: Arrays, found: NDArray[Any], iterations: int) -> Agreement:
    """Beside the same formulas in float64; where numbers are drawn, whether the answer is one at all."""
    one = workload.problems == 1
    if workload.spec == "kmedoids":
        return _rows_of(inputs["x"][None] if one else inputs["x"], found[None] if one else found)
    wanted = _formulas(workload, iterations)
    some = found[None] if one else found[: len(wanted)]
    apart = [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(some, wanted, strict=True)]
    error, allowed = max(apart), (1 if is_ours(peer) else 10) * CENTER_ERROR[workload.dtype]
    trouble = "" if error <= allowed else f"its answer is wrong by {error:.1e}, allowed are {allowed:.0e}"
    return Agreement(error=error, trouble=trouble)


@lru_cache(maxsize=1)
def _formulas(workload: Workload, iterations: int) -> list[NDArray[Any]]:
    """What comes out in float64, centers kept as ours are: a point between two may change sides with their last digit.

    Of a batch, for some of its problems.
    """
    import torch

    from weftc.tools.bench.peers.plain import solve

    inputs = {name: torch.from_numpy(array).double() for name, array in arrays(workload).items()}
    stored: torch.dtype = getattr(torch, workload.dtype)
    if workload.problems == 1:
        return [solve(workload.spec, inputs, iterations, stored).numpy()]
    every = range(min(SOME, workload.problems))
    return [solve(workload.spec, {n: a[at] for n, a in inputs.items()}, iterations, stored).numpy() for at in every]


def _rows_of(points: NDArray[Any], found: NDArray[Any]) -> Agreement:
    """How many of the rows found are none of the points."""
    strange = 0
    for x, rows in zip(points, found, strict=True):
        known = {row.tobytes() for row in np.ascontiguousarray(x)}
        strange += sum(row.tobytes() not in known for row in np.ascontiguousarray(rows.astype(x.dtype)))
    return Agreement(strange, trouble=f"{strange} of its rows are none of the data" if strange else "")


def is_ours(peer: str) -> bool:
    """Whether a peer is one of our own models."""
    return peer.startswith("weftc")


def _clustering(
    peer: str, inputs: Arrays, answer: Arrays, held: bool, iterations: int, ours: Ours | None
) -> tuple[Agreement, float | None]:
    x, labels, centers = inputs["x"], answer["labels"], answer["centers"]
    if held and iterations != 1:
        return Agreement(trouble="labels of the last layer cannot be judged after several iterations"), None
    wanted, inertia = nearest(x, inputs["c"] if held else centers)
    rows, empty = _wrong(labels, wanted), len(centers) - len(np.unique(wanted))
    excess = None if held or ours is None else inertia / ours.inertia - 1
    trouble = _too_many(peer, rows, len(x))
    if not trouble and excess is not None and ours is not None and abs(excess) > ours.allowed:
        trouble = f"its inertia is {excess:+.1%} from ours"
    return Agreement(rows, excess=excess, empty=empty, trouble=trouble), None if held else inertia


def _batch(peer: str, inputs: Arrays, answer: Arrays) -> Agreement:
    points = inputs["x"].reshape(-1, inputs["x"].shape[-1])
    ends = np.cumsum(answer["sizes"])[:-1]
    parts = zip(np.split(points, ends), np.split(answer["labels"], ends), answer["centers"], strict=True)
    rows = sum(_wrong(labels, nearest(x, centers)[0]) for x, labels, centers in parts)
    return Agreement(rows, trouble=_too_many(peer, rows, len(points)))


def _soft_batch(workload: Workload, inputs: Arrays, answer: Arrays, iterations: int) -> Agreement:
    points = inputs["x"].reshape(-1, inputs["x"].shape[-1])
    parts = np.split(points, np.cumsum(answer["sizes"])[:-1])
    error = 0.0
    for x, start, centers in zip(parts, inputs["c"], answer["centers"], strict=False):
        wanted = soft_means(x, start, SHARPNESS, iterations)
        error = max(error, float(np.abs(centers - wanted).max() / np.abs(wanted).max()))
    allowed = CENTER_ERROR[workload.dtype]
    trouble = "" if error <= allowed else f"centers are wrong by {error:.1e}, allowed are {allowed:.0e}"
    return Agreement(error=error, trouble=trouble)


def _wrong(labels: NDArray[Any], wanted: NDArray[np.int64]) -> int:
    return len(wanted) if len(labels) != len(wanted) else int((labels != wanted).sum())


def _too_many(peer: str, rows: int, many: int) -> str:
    if rows > (0 if is_ours(peer) else FEW * many):
        return f"{rows} of {many} labels are not the exact ones"
    return ""


def _transport(workload: Workload, peer: str, answer: Arrays, iterations: int) -> Agreement:
    # POT updates columns first, the spec of the sweeps rows
    way: Way = "gradient" if peer == "weftc-dual" else "rows first" if is_ours(peer) else "columns first"
    error = potential_error((answer["f"], answer["g"]), _potentials(workload, way, iterations), REGULARISATION)
    allowed = PLAN_ERROR[workload.dtype]
    trouble = "" if error <= allowed else f"entries of its plan are wrong by {error:.1e}, allowed are {allowed:.0e}"
    return Agreement(error=error, trouble=trouble)


@lru_cache(maxsize=4)
def _potentials(workload: Workload, way: Way, iterations: int) -> tuple[Reals, Reals]:
    """What comes out in float64; several implementations are held against the same."""
    inputs = arrays(workload)
    x, y = inputs["x"], inputs["y"]
    if way == "gradient":
        return dual_steps(x, y, REGULARISATION, STEP, iterations)
    return sweeps(x, y, REGULARISATION, iterations, columns_first=way == "columns first")
