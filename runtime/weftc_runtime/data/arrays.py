"""What a caller may hand over as an array -> a tensor of numbers, or a `RunError` that says what is wrong with it.

torch takes no NumPy array that runs backwards, is in another byte order or wider than float64; numbers among Python
objects (fractions, decimals, columns of a frame) it takes not at all. All of these are numbers, so they are copied. An
array that must not be written to (a mapped file, say) is read where it lies: no run writes to its inputs. What comes in
blocks goes through scratch space (`blocks.py`). What hides something is refused: masks, sparse forms, text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.data.blocks import block_maker, gathered
from weftc_runtime.errors import RunError


def tensor_of(name: str, value: Any) -> Tensor:
    """The numbers of input `name`, in the dtype they have where torch knows it, in float64 otherwise."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise RunError(f"{name} is sparse; give {name}.to_dense()")
        return value
    if hasattr(value, "toarray"):
        raise RunError(f"{name} is sparse; give {name}.toarray()")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise RunError(f"{name} has masked entries; remove those rows or fill the gaps")
    if not isinstance(value, np.ndarray) and (blocks := block_maker(value)) is not None:
        value = gathered(name, blocks())
    try:
        array = np.asarray(value)
        if array.dtype == object:
            array = _numbers(array)
        plain = array.dtype.isnative and array.dtype.itemsize <= 8 and all(step >= 0 for step in array.strides)
        if array.dtype.kind == "f" and not plain:
            array = array.astype(np.float64)
        elif not plain:
            array = array.astype(array.dtype.newbyteorder("="))
        elif not array.flags.writeable:
            array = (
                np.asarray(_Alias(array)) if all(array.strides) else array.copy()
            )  # a row that repeats is written out
        return torch.as_tensor(array)
    except (TypeError, ValueError, OverflowError):
        raise RunError(f"{name} is not an array of numbers with rows of equal length") from None


class _Alias:
    """The memory of an array that must not be written to, as one that could be: torch asks for such."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array  # stays alive as long as its memory is used
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _numbers(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Objects as float64; text is no number, even where it looks like one, and neither is a truth value."""
    if any(isinstance(entry, str | bytes | bool | type(None)) for entry in array.flat):
        raise TypeError
    return array.astype(np.float64)
