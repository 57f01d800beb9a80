"""Which backend runs a program: the plan it has, and the reasons for which the reference runs instead.

`auto` takes the planned backend where its plan covers the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weftc_runtime.data.hooks import anyone_listens
from weftc_runtime.data.reader import Batch
from weftc_runtime.errors import RunError, Uncovered, shown, suggestion
from weftc_runtime.format.program import Program
from weftc_runtime.plan.instructions import Plan, Versions
from weftc_runtime.plan.planner import make_plan
from weftc_runtime.plan.prepared import Prepared

BACKENDS = ("auto", "reference", "planned")
FORMER = {"linear": "planned"}  # names that are still accepted


def check_backend(name: str) -> str:
    """The name of a backend."""
    name = FORMER.get(name, name) if isinstance(name, str) else name
    if name not in BACKENDS:
        raise RunError(f"unknown backend {shown(name)}{suggestion(str(name), BACKENDS)}")
    return name


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan, or the reason why there is none, and the tensors it was made for."""

    versions: Versions
    copies: Mapping[str, Tensor]
    prepared: Prepared | None
    reason: str = ""

    @classmethod
    def of(cls, program: Program, tensors: Mapping[str, Tensor], now: Versions) -> _Planned:
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        try:
            return cls(now, copies, Prepared(make_plan(program, copies, now), copies))
        except Uncovered as reason:
            return cls(now, copies, None, str(reason))

    def valid(self, tensors: Mapping[str, Tensor], now: Versions) -> bool:
        """Whether nothing has changed since: versions first, then numbers (`.data` changes them silently)."""
        return self.versions == now and all(
            tensor.device == self.copies[name].device and torch.equal(tensor.detach(), self.copies[name])
            for name, tensor in tensors.items()
        )


@dataclass(slots=True)
class Planner:
    """The plan of a model, made when it is first needed and made anew when a tensor has changed."""

    program: Program
    made: int = 0  # how often a plan was made
    _planned: _Planned | None = None  # whole at any time: several threads may ask

    def prepared(self, tensors: Mapping[str, Tensor]) -> Prepared:
        """The plan for these tensors, or `Uncovered`."""
        now: Versions = tuple((name, id(tensor), tensor._version) for name, tensor in tensors.items())
        known = self._planned
        if known is None or not known.valid(tensors, now):
            known = self._planned = _Planned.of(self.program, tensors, now)
            self.made += 1
        if known.prepared is None:
            raise Uncovered(known.reason)
        return known.prepared


def hindrance(sites: Iterable[nn.Module], tensors: Mapping[str, Tensor], batch: Batch) -> str:
    """Why a run needs the reference: somebody looks into it, or wants gradients."""
    if next(iter(tensors.values())).is_meta:
        return "tensors of the meta device have no numbers"
    if any(tensor.requires_grad for tensor in tensors.values()):
        return "the weights require gradients"
    if any(rows.value.requires_grad for rows in batch.values.values()):
        return "an input requires a gradient"
    if anyone_listens(sites):
        return "a hook listens"
    return ""


def given_apart(plan: Plan, places: Iterable[tuple[str, str]]) -> str:
    """Why a plan does not serve for what a run is given."""
    for stream, slot in places:
        if plan.forms[stream, slot] in ("zero", "uniform"):
            return f"{slot} of {stream} is given, but the plan knows it"
    return ""
