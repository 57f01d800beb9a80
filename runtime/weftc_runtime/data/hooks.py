"""Places where a reader may look at a run, or change it: identity modules with stable names.

    blocks.{i}.{stream}.hook_resid_pre | hook_resid_post                        (tokens, width)
    blocks.{i}.attn.{head}.hook_attn_scores | hook_pattern                      (queries, keys)
    blocks.{i}.attn.{head}.hook_z                                               (queries, width)

Block i is the i-th sub-layer of a layer; weights are shared, so its sites are visited once per iteration. `prelude`
and `readout` have blocks of their own. A batch adds a leading axis. A forward hook that returns a tensor replaces what
it saw; from there on the replaced numbers are data, and decisions about them compare them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from weftc_runtime.format.program import Attend, Head, ProgramStep


class HookSite(nn.Identity):
    """Passes its input on; forward hooks on it may read and replace it."""


class Named(nn.Module):
    """Modules and parameters by names of a program, whatever these are.

    `at` finds them. Their paths spell the name, with `_` in front where the module itself has an attribute of that name
    (`forward` -> `_forward`, which no spec can call its own), and `_` for a dot.
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[tuple[str, bool], str] = {}  # by name, and whether it is a parameter

    def place(self, name: str, child: nn.Module | nn.Parameter) -> str:
        """Adds a child: the last part of its path."""
        key = name.replace(".", "_") or "_"
        while hasattr(self, key):
            key = f"_{key}"
        self._keys[name, isinstance(child, nn.Parameter)] = key
        if isinstance(child, nn.Parameter):
            self.register_parameter(key, child)
        else:
            self.add_module(key, child)
        return key

    def at(self, name: str) -> nn.Module:
        """The module of this name."""
        module = self._modules[self._keys[name, False]]
        assert module is not None
        return module

    def nested(self, name: str) -> Named:
        """The container of this name, made if there is none."""
        if (name, False) not in self._keys:
            self.place(name, Named())
        return cast(Named, self.at(name))


class HeadSites(nn.Module):
    """The sites of one head."""

    def __init__(self) -> None:
        super().__init__()
        self.hook_attn_scores = HookSite()
        self.hook_pattern = HookSite()
        self.hook_z = HookSite()


class StreamSites(nn.Module):
    """The sites of one stream around a sub-layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hook_resid_pre = HookSite()
        self.hook_resid_post = HookSite()


class HookBlock(Named):
    """The sites of one sub-layer."""

    def __init__(self, streams: tuple[str, ...], heads: tuple[Head, ...]) -> None:
        super().__init__()
        self.attn, self.streams = Named(), streams
        for head in heads:
            self.attn.place(head.name, HeadSites())
        for stream in streams:
            self.place(stream, StreamSites())

    def head(self, name: str) -> HeadSites:
        """The sites of a head."""
        return cast(HeadSites, self.attn.at(name))

    def resid(self, stream: str) -> StreamSites:
        """The sites of a stream."""
        return cast(StreamSites, self.at(stream))


def blocks(steps: tuple[ProgramStep, ...], streams: tuple[str, ...]) -> nn.ModuleList:
    """One block of sites per sub-layer, in order."""
    found = nn.ModuleList()
    for step in steps:
        for sublayer in step.sublayers:
            found.append(HookBlock(streams, sublayer.heads if isinstance(sublayer, Attend) else ()))
    return found


def listens(site: nn.Module) -> bool:
    """Whether anyone would notice that a site is visited."""
    own = site.__dict__
    hooked = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
    return bool(hooked or type(site) is not HookSite or "forward" in own or _everywhere())


def anyone_listens(roots: Iterable[nn.Module]) -> bool:
    """Whether anyone would notice a run, at some site below these modules. It is asked before every run."""
    if _everywhere():
        return True
    left: list[nn.Module | None] = list(roots)
    while left:
        module = left.pop()
        if isinstance(module, HookSite) and listens(module):
            return True
        if module is not None and module._modules:
            left += module._modules.values()
    return False


def _everywhere() -> bool:
    return bool(torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks)


def visit(site: nn.Module, value: Tensor) -> tuple[Tensor, bool]:
    """What comes out of a site, and whether it was changed (replaced, or edited in place)."""
    version = value._version
    out = site(value)
    if not isinstance(out, Tensor) or out.shape != value.shape:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise TypeError(f"a hook returned {shape} where a tensor of shape {tuple(value.shape)} is expected")
    return out, out is not value or out._version != version


def show(site: nn.Module, batched: bool, tensors: list[Tensor]) -> tuple[list[Tensor], bool]:
    """Shows the tensors of all problems to a site, a batch as one tensor padded with zeros.

    A site sees a copy, so that an edit in place does what a returned tensor does, and nothing else.
    """
    if not batched:
        out, changed = visit(site, tensors[0].clone())
        return [out], changed
    out, changed = visit(site, padded(tensors))
    return [out[i][tuple(slice(n) for n in t.shape)] for i, t in enumerate(tensors)], changed


def padded(tensors: list[Tensor]) -> Tensor:
    """Tensors of different sizes as one, filled up with zeros."""
    sizes = [max(t.shape[axis] for t in tensors) for axis in range(tensors[0].dim())]
    rows = []
    for tensor in tensors:
        pads = [n for size, have in zip(reversed(sizes), reversed(tensor.shape), strict=True) for n in (0, size - have)]
        rows.append(nn.functional.pad(tensor, pads) if any(pads) else tensor)
    return torch.stack(rows)
