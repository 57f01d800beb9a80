"""Checks that tensors fit a program: shapes that their uses imply, none missing or left over, sound numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from weftc_runtime.errors import need, shown
from weftc_runtime.format.basis import Basis, bases_of
from weftc_runtime.format.program import FFN, Program, Stream, TensorUse
from weftc_runtime.format.writes import check_writes

MAX_ROWS = 1 << 20  # of one Q, K, A or B
MAX_TENSOR_NAME = 300


def check_shapes(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Every named tensor is there with the shape its uses imply, and there are no others."""
    uses = program.tensors()
    free: dict[str, int] = {}
    for name, all_uses in uses.items():
        need(0 < len(name) <= MAX_TENSOR_NAME and name.isprintable(), f"{shown(name)} cannot be the name of a tensor")
        need(name in shapes, f"{all_uses[0].where} needs a tensor {shown(name)}, which is not in the file")
        for use in all_uses:
            _fit(name, shapes[name], use, free)
    unused = sorted(set(shapes) - set(uses))
    need(not unused, f"tensor {shown(unused[0] if unused else '')} is not used by the program")


def _fit(name: str, shape: tuple[int, ...], use: TensorUse, free: dict[str, int]) -> None:
    wanted: list[int] = []
    for axis, dimension in enumerate(use.shape):
        if isinstance(dimension, tuple):
            symbol, extra = dimension
            if symbol not in free and axis < len(shape):
                free[symbol] = shape[axis] - extra
            dimension = free.get(symbol, 0) + extra
        wanted.append(dimension)
    need(
        shape == tuple(wanted), f"tensor {shown(name)} has shape {shape}, but {shown(use.where)} needs {tuple(wanted)}"
    )
    need(
        all(1 <= size <= MAX_ROWS for size in shape),
        f"tensor {shown(name)} has shape {shape}; sizes are 1 to {MAX_ROWS}",
    )


def check_values(program: Program, tensors: Mapping[str, npt.NDArray[np.float64]]) -> None:
    """All numbers are finite, matrices change what the program says they write, and derived slots have no cycle."""
    for name, array in tensors.items():
        need(bool(np.isfinite(array).all()), f"tensor {shown(name)} holds a value that is not finite")
    check_writes(program, tensors)
    bases = bases_of(program, tensors)
    for stream in program.streams:
        done: set[str] = set()
        for index, ffn in enumerate(stream.derived):
            read = sources(stream, ffn, tensors, bases.get(stream.name))
            for slot in stream.slots:
                early = slot.role != "derived" or slot.name in done or slot.name not in read
                where = f"streams.{shown(stream.name)}.derived.{index}"
                need(early, f"{where} reads derived slot {shown(slot.name)} before it is computed (a cycle)")
            done.update(ffn.writes)


def sources(
    stream: Stream, ffn: FFN, tensors: Mapping[str, npt.NDArray[np.float64]], basis: Basis | None = None
) -> set[str]:
    """The slots that the written slots of a feed-forward depend on."""
    used = np.zeros(stream.width, dtype=bool)
    for name in (ffn.a, ffn.b):
        if name is not None:
            over = tensors[name] if basis is None else basis.over_slots(tensors[name])
            used |= (over != 0).any(0)
    carry = tensors[ffn.carry] if basis is None else basis.over_slots(tensors[ffn.carry], between=True)
    for name in ffn.writes:
        used |= (carry[stream.slot(name).columns] != 0).any(0)
    return {slot.name for slot in stream.slots if used[slot.columns].any()}
