"""Rows that several processes hold, brought to the first of them: to start from, or to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from weftc_runtime.data.arrays import tensor_of
from weftc_runtime.data.blocks import ScratchRows
from weftc_runtime.data.results import Lazy, OneHot, Outputs
from weftc_runtime.format.program import Program
from weftc_runtime.kernels.collective import BLOCK, Collective


def rows_of_all(
    name: str, make: Callable[[slice], Tensor], width: int, dtype: torch.dtype, stream: str, collective: Collective
) -> npt.NDArray[Any] | None:
    """The rows of a shared set from all processes, in scratch space of the first one; None in the others.

    `make` gives some rows of this process, (rows, width).
    """
    scratch, whole = ScratchRows(name) if dtype.is_floating_point else None, list[npt.NDArray[Any]]()
    starts, size = collective.starts[stream], max(1, BLOCK // (8 * max(1, width)))
    for source in range(collective.size):
        many = starts[source + 1] - starts[source]
        for first in range(0, many, size):
            last = min(many, first + size)
            mine = make(slice(first, last)).detach().cpu() if source == collective.rank else None
            block = collective.shown(mine, (last - first, width), dtype, source)
            if collective.rank == 0:
                if scratch is not None:
                    scratch.append(block.numpy())
                else:
                    whole.append(block.numpy())
    if collective.rank != 0:
        return None
    return scratch.array() if scratch is not None else np.concatenate(whole)


def outputs_of_all(outputs: Outputs, program: Program, collective: Collective) -> Outputs | None:
    """The outputs of all processes in the first one; None in the others."""
    found: dict[str, Any] = {}
    for output in program.outputs:
        value = outputs.unmade()[output.name]
        pattern = isinstance(value, Lazy) and value.rows is None
        if not collective.shares(output.stream) or output.kind in ("total", "common") or pattern:
            found[output.name] = outputs[output.name] if pattern else value
            continue
        if isinstance(value, Lazy):
            assert value.rows is not None
            make, width, shape = value.rows, value.width, (value.width,)
            dtype = value.dtype
        else:
            whole = value.indices if isinstance(value, OneHot) else value
            rows = (
                whole.reshape(len(whole), -1) if whole.numel() else whole.reshape(len(whole), *whole.shape[1:] or (1,))
            )
            make, width, shape, dtype = rows.__getitem__, rows.shape[1], tuple(whole.shape[1:]), whole.dtype
        array = rows_of_all(output.name, make, width, dtype, output.stream, collective)
        if array is None:
            continue
        tensor = tensor_of(output.name, array).reshape(len(array), *shape)
        found[output.name] = OneHot(tensor, value.columns, value.dtype) if isinstance(value, OneHot) else tensor
    return Outputs(found) if collective.rank == 0 else None
