"""Bugs planted by hand, one at a time: in a lowering rule, in a weighting, in a kernel of each backend.

Each must turn `weftc verify` red as it is called by default, and where it is a kernel's, name its backend. The faults
are small: a sign, a tie, one unit too many, a relative error of 2^-30, one row in the layers in which bounds are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from weftc.compiling import checked_spec, compile
from weftc.emit.matrices import Columned
from weftc.passes import heads as lowered_heads
from weftc.passes import scores as lowered_scores
from weftc.verification.verification import verify
from weftc_runtime.exact import decide
from weftc_runtime.format.structure import Structured
from weftc_runtime.kernels.native.sums import NativeSums
from weftc_runtime.machines.heads_stream import StreamedHead
from weftc_runtime.machines.native_machine import NativeMachine
from weftc_runtime.machines.planned import PlannedBackend
from weftc_runtime.machines.search import Search
from weftc_runtime.machines.search_groups import GroupSearch
from weftc_runtime.plan.slots import DenseSlot, IndexSlot
from weftc_runtime.reference import feed_forward as tokenwise
from weftc_runtime.reference import head as attention
from weftc_runtime.reference import soft as weigh

OFF = 1 + 2.0**-30
SIZES = (2, 3)  # of vectors, of fixed sets
SMOOTH = """algorithm smooth
tokens i in points, j in centers : k
inputs x[i] : R^d, c[j] : R^d
layer
  a[j] = logsumexp[i] -|x[i] - c[j]|^2
  b[j] = max[i] <x[i], c[j]>
  n[i] = sum[j] 1 / (1 + |c[j]|^2) where <x[i], c[j]> >= 0
outputs a, b, n
"""
Wrapped = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """A function or method, and what is planted instead of it: `change(its result, its arguments)`."""

    owner: Any
    name: str
    change: Callable[..., Any]
    spec: str
    backend: str = "reference"  # that falls short
    sizes: tuple[int, int] = SIZES

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = getattr(self.owner, self.name)

        def broken(*arguments: Any, **named: Any) -> Any:
            return self.change(true(*arguments, **named), *arguments)

        monkeypatch.setattr(self.owner, self.name, broken)


def last_of_ties(found: Any, weighting: Any, scores: torch.Tensor, radius: Any, eligible: Any, *rest: Any) -> Any:
    """The last of equal scores, where the first is asked for."""
    chosen, tiers = found
    best = eligible & (scores == scores.masked_fill(~eligible, -torch.inf).amax(1, keepdim=True))
    last = best.shape[1] - 1 - best.flip(1).to(torch.int8).argmax(1)
    moved = torch.zeros_like(chosen).scatter_(1, last[:, None], chosen.any(1)[:, None])
    return (moved if weighting.kind == "argmax" else chosen), tiers


def strict(found: Any, op: str, scores: torch.Tensor, *rest: Any) -> Any:
    """> where >= is asked for."""
    return (found[0] & (scores != 0) if op in (">=", "<=") else found[0]), found[1]


def wrong_rows(strategy: str) -> Callable[..., Any]:
    """What a kernel of the planned backend gives, off by a little; an index, off by one in the first row."""

    def change(given: Any, engine: Any, call: Any, *rest: Any) -> Any:
        if call.plan.strategy != strategy:
            return given
        if isinstance(given.held, IndexSlot):
            moved = given.held.index.clone()
            moved[0] = (moved[0] + 1) % given.held.width
            return replace(given, held=replace(given.held, index=moved))
        return given if given.out is None else replace(given, out=given.out * OFF)

    return change


def wrong_label(found: Any, search: Search, *rest: Any) -> Any:
    """The key of one query is the next one."""
    found.index[-1] = (found.index[-1] + 1) % len(rest[0])
    return found


def wrong_when_bounded(found: Any, search: Search, *rest: Any) -> Any:
    """The same, in searches that live on bounds from the search before."""
    return wrong_label(found, search, *rest) if search.last.carried else found


def wrong_once_moved(found: Any, sums: NativeSums, *rest: Any) -> Any:
    """Sums that are off once rows have been moved from one to another; `counts` is old enough to tell."""
    first = not MOVED.get(id(sums))
    MOVED[id(sums)] = sums  # held, so that no other one gets its number
    return found if first or found is None else found * OFF


MOVED: dict[int, NativeSums] = {}


def wrong_in_batch(found: Any, *rest: Any) -> Any:
    """The key of one query of a batch is another one."""
    found.index[-1] = (found.index[-1] + 1) % SIZES[1]
    return found


def wrong_slots(found: Any, *rest: Any) -> Any:
    """What several layers at a time leave behind, off by a little."""
    return {
        stream: {
            name: replace(held, value=held.value * OFF) if isinstance(held, DenseSlot) else held
            for name, held in slots.items()
        }
        for stream, slots in found.items()
    }


def wrong_last_label(found: Any, *rest: Any) -> Any:
    """What several layers leave behind: one best key is another one."""
    for slots in found.values():
        for held in slots.values():
            if isinstance(held, IndexSlot):
                held.index[-1] = (held.index[-1] + 1) % held.width
    return found


def wrong_in_a_batch(found: Any, machine: NativeMachine, *rest: Any) -> Any:
    """The same, where several problems are joined."""
    return wrong_last_label(found) if machine.problems > 1 else found


FAULTS = {
    "lowering, sign of a distance": Fault(
        lowered_scores, "_difference", lambda part, *_: part and replace(part, coefficient=-part.coefficient), "lloyd"
    ),
    "lowering, strictness of a comparison": Fault(
        lowered_heads, "_mask", lambda mask, *_: replace(mask, op={">": ">=", ">=": ">"}.get(mask.op, mask.op)), SMOOTH
    ),
    "lowering, a slot is not erased": Fault(
        Columned, "carry", lambda found, *_: Structured.identity(found.rows), "lloyd"
    ),
    "weighting, the last of ties": Fault(attention, "decide", last_of_ties, "lloyd"),
    "weighting, temperature": Fault(
        weigh, "soften", lambda soft, *_: replace(soft, numerators=soft.numerators**OFF), "soft_kmeans"
    ),
    "weighting, one too many": Fault(decide._Top, "_wanted", lambda wanted, *_: wanted + 1, "trimmed_kmeans"),
    "weighting, weights of sparsemax": Fault(weigh, "_sparsemax", lambda found, *_: found * OFF, "robust_kmeans"),
    "weighting, the budget of normmax": Fault(decide._Normmax, "_keep", lambda kept, *_: kept[:1], "trimmed_normmax"),
    "weighting, logsumexp": Fault(weigh, "log_sum_exp", lambda found, *_: (found[0] * OFF, found[1]), SMOOTH),
    "weighting, max": Fault(weigh, "best_score", lambda found, *_: (found[0] * OFF, found[1]), SMOOTH),
    "comparison, > for >=": Fault(attention, "compare", strict, SMOOTH),
    "reference, a sum over keys": Fault(attention, "weighted_sum", lambda found, *_: found * OFF, "lloyd"),
    "reference, a feed-forward": Fault(tokenwise, "apply", lambda found, *_: (found[0] * OFF, found[1]), SMOOTH),
    "planned, nearest": Fault(PlannedBackend, "_run", wrong_rows("nearest"), "lloyd", "planned"),
    "planned, segment": Fault(PlannedBackend, "_run", wrong_rows("segment"), "lloyd", "planned"),
    "planned, stream": Fault(PlannedBackend, "_run", wrong_rows("stream"), "soft_kmeans", "planned"),
    "planned, tiles merged": Fault(
        StreamedHead, "merge", lambda tile, *_: replace(tile, total=tile.total * OFF), "soft_kmeans", "planned"
    ),
    "native, a label": Fault(Search, "find", wrong_label, "lloyd", "planned"),
    "native, bounds": Fault(Search, "find", wrong_when_bounded, "lloyd", "planned", (24, 24)),
    "native, sums that are moved": Fault(NativeSums, "_found", wrong_once_moved, "lloyd", "planned"),
    "native, problems of a batch": Fault(GroupSearch, "find", wrong_in_batch, "weighted_kmeans", "planned"),
    "native, layers of a batch": Fault(NativeMachine, "slots", wrong_in_a_batch, "lloyd", "planned"),
    "native, layers at a time": Fault(NativeMachine, "slots", wrong_slots, "sinkhorn_log", "planned"),
    "native, keys after several layers": Fault(NativeMachine, "slots", wrong_slots, "lloyd", "planned"),
    "native, labels after several layers": Fault(NativeMachine, "slots", wrong_last_label, "lloyd", "planned"),
}
QUICK = (
    "lowering, sign of a distance",
    "weighting, the last of ties",
    "weighting, temperature",
    "reference, a sum over keys",
    "planned, segment",
    "native, bounds",
    "native, problems of a batch",
    "native, labels after several layers",
)


def falls_short(fault: Fault, monkeypatch: pytest.MonkeyPatch, cases: int = 22) -> bool:
    """Whether verify says so, on two cases of each family unless told otherwise, and where."""
    checked = checked_spec(fault.spec)
    sizes = {name: fault.sizes[name == "k"] for name in checked.dims}
    fault.plant(monkeypatch)
    if fault.backend == "planned" and fault.owner is not NativeMachine:
        monkeypatch.setattr(PlannedBackend, "many_layers", lambda *_: None)  # the torch machine has the fault
    verdict = verify(compile(checked, sizes), cases=cases, dtypes=["float64"])
    failed = {check.backend for check in verdict.checks if not check.passed}
    assert failed <= {"", "reference", "planned"}
    return not verdict.ok and (fault.backend == "reference" or failed == {"planned"})


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_turns_verify_red(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert falls_short(FAULTS[name], monkeypatch, cases=9)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in QUICK])
def test_every_planted_bug_turns_verify_red(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert falls_short(FAULTS[name], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("spec", sorted({fault.spec for fault in FAULTS.values()}))
def test_without_a_bug_verify_is_green(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not falls_short(Fault(weigh, "soften", lambda found, *_: found, spec), monkeypatch)
