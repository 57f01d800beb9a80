"""What is made once: properties that are kept, and arrays that are used again once nobody holds them.

A layer writes to the memory of the layer before the last: new memory for every layer would be asked from the system,
filled with zeros by it and left in pieces.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast, overload

import torch
from torch import Tensor

Owner = TypeVar("Owner")
Value = TypeVar("Value")

# how many tensors and other objects share the memory of one; private to torch, so it may be missing
_users: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
OWN = 2  # of these: the tensor itself, and the object that asks
HELD = 3  # references to an array of the list while it is looked at


class once(Generic[Owner, Value]):
    """A property that is made when it is first asked for, and kept.

    `functools.cached_property` of Python 3.11 has one lock for all objects: two threads that make properties of each
    other's classes wait for each other for ever. Here both make the value, and the first one is kept.
    """

    def __init__(self, make: Callable[[Owner], Value]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> once[Owner, Value]: ...
    @overload
    def __get__(self, instance: Owner, owner: type) -> Value: ...
    def __get__(self, instance: Owner | None, owner: type) -> once[Owner, Value] | Value:
        if instance is None:
            return self
        return cast(Value, vars(instance).setdefault(self._name, self._make(instance)))


@dataclass(slots=True)
class Pool:
    """Arrays of one size and dtype on the CPU."""

    size: int
    dtype: torch.dtype
    _arrays: list[Tensor] = field(default_factory=list)

    def take(self) -> Tensor:
        """An array with any content: new, or one that nobody has any more."""
        for array in self._arrays:
            if _is_free(array):
                return array
        made = torch.empty(self.size, dtype=self.dtype)
        if _users is not None:
            self._arrays.append(made)
        return made


def _is_free(array: Tensor) -> bool:
    """Whether only the list of a pool refers to an array, and nothing to its memory."""
    # the list, the loop variable, the parameter, and the argument of getrefcount
    return sys.getrefcount(array) <= HELD + 1 and _users is not None and _users(array.untyped_storage()._cdata) <= OWN
