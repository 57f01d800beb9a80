"""A device without float64, made of torch's door for other people's devices: `small`.

Its arrays are kept on the CPU, where nobody sees them. It refuses float64 as Apple's MPS does, knows the operations
listed here and no others (to give it one, add its name as torch's dispatcher spells it), flushes to zero what is below
2^-126, adds products up from the last to the first, and counts what it did. torch takes one such device per process and
keeps it, so nothing but tests that are alone in theirs may import this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "small"
DTYPES = (torch.float32, torch.float16, torch.int32, torch.int64, torch.bool)
TINY = 2.0**-126
MOVES = """
    empty.memory_format empty_strided arange arange.start arange.start_step arange.start_out zero_ fill_.Scalar
    view view.dtype slice.Tensor select.int unsqueeze squeeze.dim t transpose.int permute expand detach alias clone
    scatter_.value nonzero index.Tensor where.self cat full _local_scalar_dense
"""
ARITHMETIC = """
    add.Tensor add.out add_.Tensor sub.Tensor sub_.Tensor mul.Tensor maximum minimum minimum.out amin amin.out amax neg
    eq.Tensor ne.Scalar
    lt.Tensor le.Tensor gt.Tensor gt.Scalar gt.Scalar_out gt.Tensor_out
    bitwise_and.Scalar bitwise_and.Scalar_out bitwise_and_.Scalar bitwise_or_.Tensor bitwise_and.Tensor
    bitwise_and_.Tensor bitwise_not
"""

ran: Counter[str] = Counter()  # operations, by name
flaws: set[str] = set()  # how the device is worse than it says: `broken` fills it


class Small(Tensor):
    """What torch sees of an array on the device."""

    raw: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl


def given(raw: Tensor) -> Tensor:
    """An array on the device."""
    if raw.dtype not in DTYPES:
        kind = str(raw.dtype).removeprefix("torch.")
        raise TypeError(f"Cannot convert a small Tensor to {kind} dtype as it has none. Please use float32 instead.")
    made: Any = torch._C._acc.create_empty_tensor(raw.shape, raw.dtype)  # type: ignore[attr-defined]
    made.__class__ = Small
    made.raw = raw
    return made  # type: ignore[no-any-return]


def flushed(raw: Tensor) -> Tensor:
    """Numbers too small for the device are zeros of their sign."""
    return torch.where(raw.abs() < TINY, torch.copysign(torch.zeros_like(raw), raw), raw) if _real(raw) else raw


def _real(raw: Tensor) -> bool:
    return raw.dtype == torch.float32


def product(one: Tensor, other: Tensor) -> Tensor:
    """A matrix product, every product and every sum rounded, from the last column to the first."""
    one, other = flushed(one), flushed(other)
    if "coarse" in flaws:
        one, other = _shortened(one), _shortened(other)
    total = torch.zeros(len(one), other.shape[1])
    for column in reversed(range(one.shape[1])):
        total = flushed(total + flushed(one[:, column, None] * other[None, column]))
    return total


def _shortened(raw: Tensor) -> Tensor:
    """Numbers with eleven bits, as TensorFloat32 has them."""
    return (raw.contiguous().view(torch.int32) + (1 << 12) & ~((1 << 13) - 1)).view(torch.float32)


def _kernel(name: str, flush: bool) -> Callable[..., Any]:
    """An operation of the CPU on what the arrays hold."""
    base, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, base), overload or "default")

    def run(*args: Any, **options: Any) -> Any:
        ran[name] += 1
        options.pop("device", None)
        seen: dict[int, Tensor] = {}

        def inside(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            raw = value.raw if isinstance(value, Small) else value
            seen[id(raw)] = value
            return raw

        def outside(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) in seen:  # changed in place
                if flush:
                    value.copy_(flushed(value))
                return seen[id(value)]
            return given(flushed(value) if flush else value)

        args, options = tree_map(inside, (args, options))
        if flush and not name.partition(".")[0].endswith("_"):
            args = tree_map(lambda value: flushed(value) if isinstance(value, Tensor) else value, args)
        if "rounding" in flaws and name.startswith("amin") and not _real(args[0]):  # compared as float32
            args = (args[0].to(torch.float32).to(torch.float64).to(args[0].dtype), *args[1:])
        return tree_map(outside, operation(*args, **options))

    return run


def _mm(one: Small, other: Small) -> Tensor:
    ran["mm"] += 1
    return given(product(one.raw, other.raw))


def _mm_out(one: Small, other: Small, *, out: Small) -> Tensor:
    ran["mm"] += 1
    out.raw.copy_(product(one.raw, other.raw))
    return out


def _addmm_out(bias: Small, one: Small, other: Small, *, beta: float = 1, alpha: float = 1, out: Small) -> Tensor:
    ran["mm"] += 1
    assert (beta, alpha) == (1, 1)
    out.raw.copy_(flushed(product(one.raw, other.raw) + flushed(bias.raw)))
    return out


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Between devices and on this one; what leaves it leaves it as it is."""
    ran["copy"] += 1
    if not isinstance(target, Small) and source.dtype != target.dtype:
        raise TypeError(f"a small Tensor of {source.dtype} cannot be copied to {target.dtype}")
    to = target.raw if isinstance(target, Small) else target
    to.copy_(source.raw if isinstance(source, Small) else source)
    return target


@contextmanager
def broken(flaw: str) -> Iterator[None]:
    """The device as it should not be: with `coarse` products, or `rounding` whole numbers."""
    flaws.add(flaw)
    try:
        yield
    finally:
        flaws.discard(flaw)


_setup_privateuseone_for_python_backend(NAME)
_library: Any = torch.library.Library("aten", "IMPL")  # kept: the operations go with it
for _name in MOVES.split():
    _library.impl(_name, _kernel(_name, flush=False), "PrivateUse1")
for _name in ARITHMETIC.split():
    _library.impl(_name, _kernel(_name, flush=True), "PrivateUse1")
_library.impl(
    "view.dtype", _kernel("view.dtype", flush=False), "AutogradPrivateUse1"
)  # torch would make it a plain tensor
_library.impl("mm", _mm, "PrivateUse1")
_library.impl("mm.out", _mm_out, "PrivateUse1")
_library.impl("addmm.out", _addmm_out, "PrivateUse1")
_library.impl("_copy_from", _copy, "PrivateUse1")
