"""What the native machine does together with other processes, in the middle of a layer."""

from __future__ import annotations

from ctypes import c_double, c_int64
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.errors import Uncovered
from weftc_runtime.kernels.collective import Collective, Left
from weftc_runtime.kernels.native.library import TOGETHER
from weftc_runtime.machines.native_code import NOISE, Encoded

_ADD, LARGEST, STACK, LEAVE = range(4)  # `Joint` of machine.h
DONE, LEFT, WRONG = range(3)


def refuse_to_share(plan: Encoded, others: Collective, exactly: bool = False) -> None:
    """Says which instruction needs more of shared sets than what processes can add up; `exactly`: soft weights, too."""
    if exactly and any(each.name == "soft" for each in plan.instructions):
        raise Uncovered("soft weights are summed exactly")
    for slot in plan.slots:
        if slot.kind == NOISE and others.shares(slot.place[0]):
            raise Uncovered(f"random numbers are drawn for some tokens of {slot.place[0]} alone")
    for each in plan.instructions:
        if each.keys and others.shares(each.keys) and (not each.adds or any(map(others.shares, each.streams))):
            raise Uncovered(f"it looks at keys of other processes ({each.text})")


def confirms(plan: Encoded, others: Collective) -> bool:
    """Whether a process may find out behind its last sum, and alone, that it does not get through the layer."""
    joint = [at for at, each in enumerate(plan.instructions) if each.keys and others.shares(each.keys)]
    last = joint[-1] + 1 if joint else 0
    return any(others.shares(stream) for each in plan.instructions[last:] for stream in each.streams)


class Exchange:
    """What the machine calls; it must live as long as the machine. An error waits here until the call is over."""

    def __init__(self, others: Collective) -> None:
        self.others = others
        self.error: Exception | None = None
        self.call = TOGETHER(self._together)

    def _together(self, what: int, numbers: int, many: int, out: int) -> int:
        try:
            if what == LEAVE:
                self.others.leave()
            elif what == STACK:
                told = self.others.stack(_seen(numbers, many, c_double))
                _seen(out, told.numel(), c_double).copy_(told.flatten())
            else:
                given = _seen(numbers, many, c_double if what == LARGEST else c_int64)
                given.copy_(self.others.max(given) if what == LARGEST else self.others.sum(given))
        except Left:
            return LEFT
        except Exception as error:
            self.error = error
            return WRONG
        return DONE


def _seen(address: int, many: int, kind: Any) -> Tensor:
    """Numbers where they lie."""
    if not many:
        return torch.empty(0, dtype=torch.float64 if kind is c_double else torch.int64)
    return torch.from_numpy(np.ctypeslib.as_array((kind * many).from_address(address)))
