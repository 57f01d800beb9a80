"""Which backend runs a program: the plan it has, and the reasons for which the reference runs instead.

`auto` takes the linear backend where its plan covers the program and the problem is large enough to gain by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft_runtime.errors import RunError, shown, suggestion
from weft_runtime.hooks import HookSite, listens
from weft_runtime.inputs import Batch
from weft_runtime.ir import Attend, Program
from weft_runtime.plan import Plan, Uncovered, Versions
from weft_runtime.planning import make_plan
from weft_runtime.prepared import Prepared

BACKENDS = ("auto", "reference", "linear")
SMALL = 1 << 17  # scores per layer up to which the reference is as fast


def check_backend(name: str) -> str:
    """The name of a backend."""
    if name not in BACKENDS:
        raise RunError(f"unknown backend {shown(name)}{suggestion(str(name), BACKENDS)}")
    return name


@dataclass(slots=True)
class Planner:
    """The plan of a model, made when it is first needed and made anew when a tensor has changed."""

    program: Program
    _prepared: Prepared | None = None
    _reason: str = ""
    _versions: Versions = ()
    _copies: dict[str, Tensor] = field(default_factory=dict)
    made: int = 0  # how often a plan was made

    def prepared(self, tensors: Mapping[str, Tensor]) -> Prepared:
        """The plan for these tensors, or `Uncovered`."""
        now: Versions = tuple((name, id(tensor), tensor._version) for name, tensor in tensors.items())
        if not self._valid(tensors, now):
            self._copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
            self._prepared, self._reason = None, ""
            self.made += 1
            self._versions = now
            try:
                self._prepared = Prepared(make_plan(self.program, self._copies, now), self._copies)
            except Uncovered as reason:
                self._reason = str(reason)
        if self._prepared is None:
            raise Uncovered(self._reason)
        return self._prepared

    def _valid(self, tensors: Mapping[str, Tensor], now: Versions) -> bool:
        """Whether nothing has changed since: versions first, then numbers (`.data` changes them silently)."""
        if not self._copies or self._versions != now:
            return False
        return all(
            tensor.device == self._copies[name].device and torch.equal(tensor.detach(), self._copies[name])
            for name, tensor in tensors.items()
        )

    def plan(self, tensors: Mapping[str, Tensor]) -> Plan:
        """The plan itself."""
        return self.prepared(tensors).plan


def hindrance(sites: Iterable[nn.Module], tensors: Mapping[str, Tensor], batch: Batch) -> str:
    """Why a run needs the reference: somebody looks into it, or wants gradients."""
    if next(iter(tensors.values())).is_meta:
        return "tensors of the meta device have no numbers"
    if any(tensor.requires_grad for tensor in tensors.values()):
        return "the weights require gradients"
    if any(rows.value.requires_grad for rows in batch.values.values()):
        return "an input requires a gradient"
    if any(listens(site) for module in sites for site in module.modules() if isinstance(site, HookSite)):
        return "a hook listens"
    return ""


def is_small(program: Program, batch: Batch) -> bool:
    """Whether no head has enough scores for blocks to pay."""
    sizes = {name: max(layout.sizes()) for name, layout in batch.layouts.items()}
    most = 0  # per problem
    for step in program.steps():
        for sublayer in step.sublayers:
            if isinstance(sublayer, Attend):
                most += sum(sizes[head.query] * sizes[head.keys] for head in sublayer.heads)
    return most * batch.count < SMALL
