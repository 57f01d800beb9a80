"""Which backend runs a program: the plan it has, and the reasons for which the reference runs instead.

`auto` takes the planned backend where its plan covers the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from weftc_runtime.data.batch import Batch
from weftc_runtime.data.hooks import anyone_listens
from weftc_runtime.errors import RunError, Uncovered, shown, suggestion
from weftc_runtime.exact.weights import MatrixStructure, Weights
from weftc_runtime.format.program import Program
from weftc_runtime.machines.planned_program import PlannedProgram
from weftc_runtime.plan.instructions import Plan
from weftc_runtime.plan.planner import make_plan
from weftc_runtime.plan.prepared import Prepared
from weftc_runtime.reference.derived import DerivedSlots

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


@dataclass(slots=True)
class _Known:
    """What follows from a program and these tensors as they are; each is made when it is first needed."""

    program: Program
    tensors: Mapping[str, Tensor]
    versions: Versions
    small: tuple[tuple[npt.NDArray[Any], bytes], ...]  # the memory of tensors, and what it held
    large: Mapping[str, tuple[Tensor, Tensor]]  # tensors, and copies of them
    planned: PlannedProgram | str = ""  # or why there is no plan
    literal: DerivedSlots | None = None

    @classmethod
    def of(cls, program: Program, tensors: Mapping[str, Tensor], now: Versions) -> _Known:
        found = {name: tensor.detach() for name, tensor in tensors.items()}
        small = {name for name, one in found.items() if one.device.type == "cpu" and one.numel() <= SMALL}
        views = tuple((found[name].numpy(), found[name].numpy().tobytes()) for name in small)
        pairs = {name: (one, one.clone()) for name, one in found.items() if name not in small}
        return cls(program, tensors, now, views, pairs)

    def valid(self, now: Versions) -> bool:
        """Whether nothing has changed since: versions first, then numbers (`.data` changes them silently)."""
        if self.versions != now or any(view.tobytes() != held for view, held in self.small):
            return False
        return all(torch.equal(tensor, copy) for tensor, copy in self.large.values())

    def plan(self) -> PlannedProgram | str:
        """The program with its plan, or why there is none."""
        if not self.planned:
            large = {name: copy for name, (_, copy) in self.large.items()}
            copies = {
                name: large[name] if name in large else one.detach().clone() for name, one in self.tensors.items()
            }
            try:
                self.planned = PlannedProgram.of(self.program, Prepared(make_plan(self.program, copies), copies))
            except Uncovered as reason:
                self.planned = str(reason)
        return self.planned

    def slots(self) -> DerivedSlots:
        """The derived slots of a run of the matrices as they are."""
        if self.literal is None:
            self.literal = DerivedSlots(self.program, Weights(self.tensors))
        return self.literal


@dataclass(slots=True)
class Planner:
    """What runs of a model have in common, made when it is first needed and made anew when a tensor has changed."""

    program: Program
    made: int = 0  # how often a plan was asked of new tensors
    _last: _Known | None = None  # whole at any time: several threads may ask
    _structures: dict[str, MatrixStructure] = field(default_factory=dict)  # of weights that are trained

    def planned(self, tensors: Mapping[str, Tensor]) -> PlannedProgram:
        """The program with its plan for these tensors, or `Uncovered`."""
        known = self._known(tensors)
        self.made += not known.planned
        found = known.plan()
        if isinstance(found, str):
            raise Uncovered(found)
        return found

    def literal(self, tensors: Mapping[str, Tensor]) -> DerivedSlots:
        """The weights as they are, for one run."""
        if any(tensor.requires_grad or tensor.is_meta for tensor in tensors.values()):
            return DerivedSlots(self.program, Weights(tensors, self._structures))
        return self._known(tensors).slots().fresh()

    def _known(self, tensors: Mapping[str, Tensor]) -> _Known:
        now: Versions = tuple((name, id(one), one._version, one.data_ptr()) for name, one in tensors.items())
        known = self._last
        if known is None or not known.valid(now):
            known = self._last = _Known.of(self.program, tensors, now)
        return known


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
