"""Where a model lives: the device that its user names, and the one that holds what must be float64.

They are one and the same where the device has float64. One that has not (Apple's MPS, for example) is given the float32
scans of `nearest`, which come with a proof; weights, state, sums and rows in doubt are the CPU's. Inputs are read from
either, answers go to the device of the user, and bits are those of the CPU.

A scan is trusted only as far as its proof, and that rests on how the device multiplies, adds and compares. So each such
device is tried out once; one that cannot do it, or proves what is not so, gets no scans.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from weftc_runtime.data.results import Fields, Lazy, OneHot, Outputs, Trace
from weftc_runtime.errors import RunError
from weftc_runtime.kernels.nearest import nearest, ready
from weftc_runtime.plan.instructions import Plan

Result = TypeVar("Result")
CPU = torch.device("cpu")
SCANNED = frozenset({"nearest", "best"})  # strategies that look for best keys


@dataclass(frozen=True, slots=True)
class Placement:
    """The device of the user, and the one with float64: weights, state, sums, decisions."""

    device: torch.device
    state: torch.device
    fault: str = ""  # why no scan runs on a device without float64

    @classmethod
    def of(cls, device: str | torch.device) -> Placement:
        """The home of a model on a device."""
        named = _tried(torch.device(device), torch.float32).device
        return cls(named, named) if _has_float64(named) else cls(named, CPU, _fault(named))

    @property
    def apart(self) -> bool:
        """Whether the device has no float64."""
        return self.device != self.state

    @property
    def scan(self) -> torch.device:
        """Where best keys are looked for in float32."""
        return self.state if self.fault else self.device

    def check(self, dtype: torch.dtype) -> None:
        """Refuses to store in float64 where there is none."""
        if self.apart and dtype == torch.float64:
            raise RunError(f"device {self.device} has no float64; use dtype=float32, or device='cpu'")

    def told(self, plan: Plan | None) -> str:
        """What runs where on a device without float64; `plan` is that of the planned backend, if it ran."""
        if not self.apart:
            return ""
        scans = plan is not None and any(head.strategy in SCANNED for _, head in plan.heads())
        if scans and self.fault:
            return f"{self.device} has no float64, and no scan runs there ({self.fault}): all ran on the CPU"
        where = "best keys were looked for there, all else ran on the CPU" if scans else "all ran on the CPU"
        return f"{self.device} has no float64: {where}"

    def back(self, found: Result) -> Result:
        """Answers on the device of the user."""
        return cast(Result, _moved(found, self.device)) if self.apart else found


def _moved(found: Any, device: torch.device) -> Any:
    if isinstance(found, Tensor):
        return found.to(device)
    if isinstance(found, OneHot):
        return OneHot(found.indices.to(device), found.columns, found.dtype)
    if isinstance(found, Lazy):
        return Lazy(lambda: _moved(found.make(), device))
    if isinstance(found, Trace):
        fields = [_moved(one, device) for one in found.fields]
        return Trace(_named(found, device), fields, _moved(found.outputs, device))
    if isinstance(found, Fields) and found.later is not None:
        return Fields(_named(found, device), {what: _moved(one, device) for what, one in found.later.items()})
    return type(found)(_named(found, device))


def _named(found: Outputs | Fields | Trace, device: torch.device) -> dict[str, Any]:
    return {name: _moved(value, device) for name, value in found.unmade().items()}


# ---- is a device up to it? -------------------------------------------------------------------------------------------


def _tried(device: torch.device, dtype: torch.dtype) -> Tensor:
    """A number of a dtype, computed on a device: some hold what they cannot compute with."""
    return torch.zeros(1, dtype=dtype, device=device) + 1


def _has_float64(device: torch.device) -> bool:
    try:
        _tried(device, torch.float64)
    except TypeError:
        return False
    except RuntimeError as error:
        if not any(word in str(error).lower() for word in ("float64", "fp64", "double")):
            raise
        return False
    return True


@cache
def _fault(device: torch.device) -> str:
    """Why the scan of a device is not to be trusted: near-ties whose answers are known are looked for."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(512, 16, generator=generator, dtype=torch.float64)
    places = torch.randn(8, 16, generator=generator, dtype=torch.float64)
    apart = torch.randn(64, 16, generator=generator, dtype=torch.float64) * 2.0**-10
    keys = places.repeat(8, 1) + apart
    parts = [slice(0, 384), slice(384, 512)]
    for kind in ("l2", "dot"):
        scores = keys.square().sum(1) - 2 * queries @ keys.T if kind == "l2" else -(queries @ keys.T)
        peak = float(queries.abs().max())
        try:
            made = ready(kind, lambda rows: (queries[rows], None), parts, torch.zeros_like(keys[0]), peak, device)
            found = nearest(made, keys, None)
        except (TypeError, RuntimeError) as error:
            return str(error).partition(". ")[0].splitlines()[0]
        certain = torch.ones(len(queries), dtype=torch.bool)
        certain[found.doubt if found.doubt is not None else []] = False
        if not bool((found.index == scores.argmin(1))[certain].all()):
            return "it is less precise than float32"
        if int(certain.sum()) < len(queries) // 2:
            return "it leaves too much in doubt"
    return ""
