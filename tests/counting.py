"""Counts what a device would be asked: operations, and reads by the host, for which it would be waited for."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# operations whose result the host needs before it can go on: numbers, and arrays whose size follows from numbers
WAITS = {
    "aten._local_scalar_dense.default",
    "aten.nonzero.default",
    "aten.masked_select.default",
    "aten.equal.default",
    "aten.bincount.default",
    "aten.unique_consecutive.default",
    "aten._unique2.default",
    "aten.unique_dim.default",
    "aten.is_nonzero.default",
    "aten.repeat_interleave.Tensor",
}
INSIDE = "weftc_runtime"


class Counting(TorchDispatchMode):
    """Counts operations, waits, and where in the runtime the waits are."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.waits, self.places = 0, 0, Counter[str]()

    def __enter__(self) -> Counting:
        self._patched = patch.object(torch.Tensor, "tolist", self._listed(torch.Tensor.tolist))  # not dispatched
        self._patched.start()
        return super().__enter__()

    def __exit__(self, *given: Any) -> None:
        self._patched.stop()
        super().__exit__(*given)

    def _listed(self, real: Any) -> Any:
        def tolist(tensor: torch.Tensor) -> Any:
            self._wait("tolist")
            return real(tensor)

        return tolist

    def _wait(self, name: str) -> None:
        self.waits += 1
        frames = [frame for frame in traceback.extract_stack() if INSIDE in frame.filename]
        if frames:
            place = frames[-1].filename.rpartition("/")[2]
            self.places[f"{place}:{frames[-1].lineno} {name}"] += 1

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.operations += 1
        name = str(function)
        masked = name == "aten.index.Tensor" and any(one is not None and one.dtype == torch.bool for one in args[1])
        if name in WAITS or masked:
            self._wait(name)
        return function(*args, **(kwargs or {}))
