"""Places where a reader may look at a run, or change it: identity modules with stable names.

    blocks.{i}.{stream}.hook_resid_pre | mid | post              (tokens, width)
    blocks.{i}.attn.{head}.hook_q_input ... hook_result          HEAD_SITES says what each is
    blocks.{i}.mlp.hook_mlp_in ... hook_mlp_out                  MLP_SITES

Block i is the i-th sub-layer of a layer; weights are shared, so its sites are visited once per iteration. Sites of a
single layer are `layers.{t}.blocks.{i}...`; `prelude` and `readout` have blocks of their own. A batch adds a leading
axis. A forward hook that returns a tensor replaces what it saw, and so does an edit in place; from there on the
replaced numbers are data, and decisions about them compare them as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from weftc_runtime.format.program import FFN, Attend, Head, Program, ProgramStep, Sublayer
from weftc_runtime.format.tensors import NUMBER_HEADS

RESID_SITES = {
    "hook_resid_pre": "the residual before the sub-layer",
    "hook_resid_mid": "after the sub-layer, before fields are stored and derived slots are recomputed",
    "hook_resid_post": "after that",
}
HEAD_SITES = {
    "hook_q_input": "the query tokens, as queries, masks and the score of a self key read them",
    "hook_k_input": "the key tokens, as keys and masks read them; a null token is the last",
    "hook_v_input": "the key tokens, as values read them",
    "hook_self_input": "the query tokens, as the value of a self key reads them",
    "hook_q": "queries: the features of all parts of the score side by side",
    "hook_k": "keys, likewise",
    "hook_v": "values, in the coordinates of the residual they are added to",
    "hook_attn_scores": "scores, before masks",
    "hook_pattern": "weights",
    "hook_z": "the weighted values, with the share of a self key",
    "hook_result": "what the head adds to the residual: z, as the output matrix of a compiled head is the identity",
}
MLP_SITES = {
    "hook_mlp_in": "the residual that the feed-forward reads",
    "hook_pre": "the arguments of its function, A z and B z side by side",
    "hook_post": "the values of its function",
    "hook_mlp_out": "what it adds to the residual",
}


class HookSite(nn.Identity):
    """Passes its input on; forward hooks on it may read and replace it."""


_PASSES_ON = HookSite.forward


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

    def name_of(self, key: str) -> str:
        """The name of the module at this last part of a path."""
        return next(name for (name, parameter), known in self._keys.items() if known == key and not parameter)

    def nested(self, name: str) -> Named:
        """The container of this name, made if there is none."""
        if (name, False) not in self._keys:
            self.place(name, Named())
        return cast(Named, self.at(name))


class SiteGroup(nn.Module):
    """Sites side by side, by name."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, HookSite())

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> nn.Module: ...


class HookBlock(Named):
    """The sites of one sub-layer."""

    def __init__(self, streams: tuple[str, ...], sublayer: Sublayer) -> None:
        super().__init__()
        self.streams, self.attn = streams, Named()
        self.mlp = SiteGroup(MLP_SITES if isinstance(sublayer, FFN) else ())
        for head in sublayer.heads if isinstance(sublayer, Attend) else ():
            self.attn.place(head.name, SiteGroup(sites_of(head)))
        for stream in streams:
            self.place(stream, SiteGroup(RESID_SITES))

    def head(self, name: str) -> SiteGroup:
        """The sites of a head."""
        return cast(SiteGroup, self.attn.at(name))

    def resid(self, stream: str) -> SiteGroup:
        """The sites of a stream."""
        return cast(SiteGroup, self.at(stream))


def sites_of(head: Head) -> Iterator[str]:
    """The sites of a head: a number has no pattern, and only a self key with a value has an input of its own."""
    for name in HEAD_SITES:
        if name in ("hook_v_input", "hook_v", "hook_pattern") and head.weighting.kind in NUMBER_HEADS:
            continue
        if name == "hook_self_input" and (head.self_key is None or not head.self_key.value):
            continue
        yield name


def blocks(steps: Iterable[ProgramStep], streams: tuple[str, ...]) -> nn.ModuleList:
    """One block of sites per sub-layer, in order."""
    return nn.ModuleList(HookBlock(streams, sublayer) for step in steps for sublayer in step.sublayers)


class LayerBlocks(nn.Module):
    """The sites of one layer."""

    def __init__(self, steps: Iterable[ProgramStep], streams: tuple[str, ...]) -> None:
        super().__init__()
        self.blocks = blocks(steps, streams)


class LayerSites(nn.Module):
    """`layers.{t}.blocks.{i}`: the sites of single layers, made when somebody asks for them."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def _steps(self, layer: int) -> tuple[ProgramStep, ...]:
        layers = self._program.layers
        if self._program.unrolled and layer >= layers:
            raise AttributeError(f"there is no layer {layer}: the weights are unrolled for {layers}")
        return self._program.steps_of(layer)

    def __getattr__(self, name: str) -> Any:
        if not (name.isascii() and name.isdigit()) or name in self._modules:
            return super().__getattr__(name)
        streams = tuple(stream.name for stream in self._program.streams)
        made = self._modules[name] = LayerBlocks(self._steps(int(name)), streams)  # `add_module` would ask for it first
        return made

    def __getitem__(self, layer: int) -> LayerBlocks:
        return cast(LayerBlocks, getattr(self, str(layer)))

    def known(self, layer: int) -> nn.ModuleList | None:
        """The blocks of a layer that somebody has asked for."""
        found = self._modules.get(str(layer))
        return None if found is None else cast(LayerBlocks, found).blocks


@dataclass(frozen=True, slots=True)
class BlockSites:
    """The sites of one sub-layer of a run: those of its layer alone, if any, then those of its weights."""

    every: tuple[HookBlock, ...]

    def resid(self, stream: str, name: str) -> list[nn.Module]:
        """The sites of a stream at which somebody listens."""
        return self._listening(block.resid(stream) for block in self.every)[name]

    def head(self, head: str) -> Mapping[str, list[nn.Module]]:
        """The sites of a head at which somebody listens, by name."""
        return self._listening(block.head(head) for block in self.every)

    def mlp(self) -> Mapping[str, list[nn.Module]]:
        """The sites of a feed-forward at which somebody listens, by name."""
        return self._listening(block.mlp for block in self.every)

    def _listening(self, groups: Iterable[nn.Module]) -> Mapping[str, list[nn.Module]]:
        found: dict[str, list[nn.Module]] = defaultdict(list)
        for group in groups:
            for name, site in group._modules.items():
                if site is not None and listens(site):
                    found[name].append(site)
        return found


def listens(site: nn.Module) -> bool:
    """Whether anyone would notice that a site is visited."""
    return _is_heard(site) or _everywhere()


def _is_heard(site: nn.Module) -> bool:
    own = site.__dict__
    hooked = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
    return bool(hooked or type(site).forward is not _PASSES_ON or "forward" in own)


def anyone_listens(roots: Iterable[nn.Module]) -> bool:
    """Whether anyone would notice a run, at some site below these modules. It is asked before every run."""
    left = list(roots)
    for module in left:  # which grows
        own = module.__dict__
        if not isinstance(module, HookSite):
            left += filter(None, own["_modules"].values())
        else:
            hooked = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
            if hooked or "forward" in own or type(module).forward is not _PASSES_ON:
                return True
    return _everywhere()


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


def show(sites: Iterable[nn.Module], batched: bool, tensors: list[Tensor]) -> tuple[list[Tensor], bool]:
    """Shows the tensors of all problems to sites, one after the other; a batch as one tensor padded with zeros.

    A site sees a copy, so that an edit in place does what a returned tensor does, and nothing else. While it is
    visited, `shapes` tells it how large every problem is.
    """
    edited = False
    for site in sites:
        site.shapes = [tuple(tensor.shape) for tensor in tensors]  # type: ignore[assignment]
        out, changed = visit(site, padded(tensors) if batched else tensors[0].clone())
        edited |= changed
        if changed or out.requires_grad:
            tensors = [out[i][tuple(map(slice, t.shape))] for i, t in enumerate(tensors)] if batched else [out]
    return tensors, edited


def padded(tensors: list[Tensor]) -> Tensor:
    """Tensors of different sizes as one, filled up with zeros."""
    sizes = [max(t.shape[axis] for t in tensors) for axis in range(tensors[0].dim())]
    rows = []
    for tensor in tensors:
        pads = [n for size, have in zip(reversed(sizes), reversed(tensor.shape), strict=True) for n in (0, size - have)]
        rows.append(nn.functional.pad(tensor, pads) if any(pads) else tensor)
    return torch.stack(rows)
