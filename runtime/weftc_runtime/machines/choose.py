"""Which backend runs a program: the plan it has, and the reasons for which the reference runs instead.

`auto` takes the planned backend where its plan covers the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from weftc_runtime.data.batch import Batch
from weftc_runtime.data.hooks import anyone_listens
from weftc_runtime.errors import RunError, Uncovered, shown, suggestion
from weftc_runtime.format.program import Program
from weftc_runtime.machines.planned_program import PlannedProgram
from weftc_runtime.plan.instructions import Plan
from weftc_runtime.plan.planner import make_plan
from weftc_runtime.plan.prepared import Prepared

BACKENDS = ("auto", "reference", "planned")
FORMER = {"linear": "planned"}  # names that are still accepted
SMALL = 1 << 12  # numbers of a tensor that are compared as one string of bytes
Versions = tuple[tuple[str, int, int, int], ...]  # name, identity, version and place of every tensor


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
    small: tuple[tuple[npt.NDArray[Any], bytes], ...]  # the memory of tensors, and what it held
    large: tuple[tuple[Tensor, Tensor], ...]  # tensors, and copies of them
    program: PlannedProgram | None
    reason: str = ""

    @classmethod
    def of(cls, program: Program, tensors: Mapping[str, Tensor], now: Versions) -> _Planned:
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        small = {name for name, copy in copies.items() if copy.device.type == "cpu" and copy.numel() <= SMALL}
        views = tuple((tensors[name].detach().numpy(), copies[name].numpy().tobytes()) for name in small)
        pairs = tuple((tensors[name].detach(), copy) for name, copy in copies.items() if name not in small)
        try:
            made = PlannedProgram.of(program, Prepared(make_plan(program, copies), copies))
        except Uncovered as reason:
            return cls(now, views, pairs, None, str(reason))
        return cls(now, views, pairs, made)

    def valid(self, now: Versions) -> bool:
        """Whether nothing has changed since: versions first, then numbers (`.data` changes them silently)."""
        if self.versions != now or any(view.tobytes() != held for view, held in self.small):
            return False
        return all(torch.equal(tensor, copy) for tensor, copy in self.large)


@dataclass(slots=True)
class Planner:
    """The plan of a model, made when it is first needed and made anew when a tensor has changed."""

    program: Program
    made: int = 0  # how often a plan was made
    _planned: _Planned | None = None  # whole at any time: several threads may ask

    def planned(self, tensors: Mapping[str, Tensor]) -> PlannedProgram:
        """The program with its plan for these tensors, or `Uncovered`."""
        now: Versions = tuple((name, id(one), one._version, one.data_ptr()) for name, one in tensors.items())
        known = self._planned
        if known is None or not known.valid(now):
            known = self._planned = _Planned.of(self.program, tensors, now)
            self.made += 1
        if known.program is None:
            raise Uncovered(known.reason)
        return known.program


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
