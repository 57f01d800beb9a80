"""A device with everything that a GPU has, float64 included, made of torch's door for other people's devices: `wide`.

Its arrays are kept on the CPU, where nobody sees them, and every operation runs there. What a GPU refuses it refuses:
arrays of the CPU beside its own (single numbers, and the places of an index, may be the CPU's), and its own as places
of an index into an array of the CPU. It has no address that native code may read. torch takes one such device per
process and keeps it, so nothing but tests that are alone in theirs may import this.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "wide"
PLACES = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")

ran: Counter[str] = Counter()  # operations, by name


class Wide(Tensor):
    """What torch sees of an array on the device."""

    raw: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl


def given(raw: Tensor) -> Tensor:
    """An array on the device; rows that were repeated are written out, as nobody writes to them."""
    raw = raw.contiguous() if 0 in raw.stride() and raw.numel() > 1 else raw
    made: Any = torch._C._acc.create_empty_tensor(raw.shape, raw.dtype)  # type: ignore[attr-defined]
    made.__class__ = Wide
    made.raw = raw
    return made  # type: ignore[no-any-return]


def _run(op: Any, *args: Any, **options: Any) -> Any:
    name = op._schema.name
    ran[name] += 1
    _refuse_mixtures(name, args, options)
    if "device" in options:
        options["device"] = None
    if options.get("pin_memory"):
        options["pin_memory"] = None
    seen: dict[int, Tensor] = {}

    def inside(value: Any) -> Any:
        if isinstance(value, Wide):
            seen[id(value.raw)] = value
            return value.raw
        return value

    def outside(value: Any) -> Any:
        return seen.get(id(value)) if id(value) in seen else given(value) if isinstance(value, Tensor) else value

    args, options = tree_map(inside, (args, options))
    return tree_map(outside, op(*args, **options))


def _refuse_mixtures(name: str, args: Any, options: Any) -> None:
    every = [one for one in tree_flatten((args, options))[0] if isinstance(one, Tensor)]
    if name in PLACES:
        if not isinstance(args[0], Wide):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        every = [args[0], *(args[2:3] if name != "aten::index" else [])]
    for one in every:
        if not isinstance(one, Wide) and one.dim():
            raise RuntimeError(f"Expected all tensors to be on the same device, but found wide:0 and cpu, in {name}")


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Between devices and on this one."""
    ran["copy"] += 1
    to = target.raw if isinstance(target, Wide) else target
    to.copy_(source.raw if isinstance(source, Wide) else source)
    return target


def _view(one: Wide, size: Any) -> Tensor:
    """Rows and columns that were exchanged are copied: the device says that all its arrays are contiguous."""
    ran["view"] += 1
    return given(one.raw.reshape(size))


def _number(one: Any) -> Any:
    return one.raw.item()


_setup_privateuseone_for_python_backend(NAME)
_every: Any = torch.library.Library("_", "IMPL")  # kept: the operations go with it
_every.fallback(_run, "PrivateUse1")
_own: Any = torch.library.Library("aten", "IMPL")
for _name in torch._C._dispatch_get_all_op_names():  # what torch makes of other operations would go past the fallback
    if _name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(
        _name, "CompositeExplicitAutograd"
    ):
        _base, _, _overload = _name.removeprefix("aten::").partition(".")
        if _base not in ("_copy_from", "_local_scalar_dense", "_to_copy", "copy_", "is_pinned", "view"):
            _op = getattr(getattr(torch.ops.aten, _base), _overload or "default")
            _own.impl(_name.removeprefix("aten::"), partial(_run, _op), "PrivateUse1")
_own.impl("_copy_from", _copy, "PrivateUse1")
_own.impl("view", _view, "PrivateUse1")
_own.impl("_local_scalar_dense", _number, "PrivateUse1")
_own.impl("view.dtype", partial(_run, torch.ops.aten.view.dtype), "AutogradPrivateUse1")  # not to be a plain tensor
