"""Activations of a run by name, and runs with some of them replaced.

    outputs, cache = model.run_with_cache(x=x, c=c)
    with model.patch({"layers.0.blocks.0.attn.y.hook_pattern": cache["layers.1.blocks.0.attn.y.hook_pattern"]}):
        model(x=x, c=c)

What replaces an activation is a tensor, a function of it, or an ablation: `zero`, `mean` (the mean over tokens) or
`resample` (the rows of other tokens). A key may also be a path, a pair of names: what a head or feed-forward adds
(`hook_result`, `hook_mlp_out`) is then replaced for one later reader (`hook_q_input`, `hook_k_input`, `hook_v_input`,
`hook_self_input`, `hook_mlp_in`) and for nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from weftc_runtime.data.hooks import HookSite, Named
from weftc_runtime.errors import RunError, shown, suggestion
from weftc_runtime.format.program import FFN, Attend, Program, ProgramStep

if TYPE_CHECKING:
    from weftc_runtime.model import Model

ABLATIONS = ("zero", "mean", "resample")
SOURCES = ("hook_result", "hook_mlp_out")
READERS = ("hook_q_input", "hook_k_input", "hook_v_input", "hook_self_input", "hook_mlp_in")
Names: TypeAlias = str | Iterable[str] | Callable[[str], bool] | None
Replacement: TypeAlias = Tensor | Callable[[Tensor], Tensor] | str
Edit: TypeAlias = Callable[[nn.Module, Tensor], Tensor]


class Cache(dict[str, Tensor]):
    """Activations by the name of their site: `layers.{t}.blocks.{i}...`, `prelude.{i}...`, `readout.{i}...`."""

    def __missing__(self, name: str) -> Tensor:
        raise KeyError(f"nothing was cached under {name!r}{suggestion(name, self)}")


def site_names(model: nn.Module) -> list[str]:
    """The names of all sites, in the order of the program; those of single layers apart."""
    names = (name for name, module in model.named_modules() if isinstance(module, HookSite))
    return [name for name in names if not name.startswith("layers.")]


@contextmanager
def caching(model: Model, names: Names = None) -> Iterator[Cache]:
    """Keeps the activations of the runs inside."""
    wanted = _chosen(names)
    cache, visits = Cache(), dict[str, int]()
    each = len(model.blocks) // model.program.layers if model.program.unrolled else 0

    def keep(site: str, _site: nn.Module, _given: Any, seen: Tensor) -> None:
        name = site
        if site.startswith("blocks."):
            _, block, rest = site.split(".", 2)
            layer, number = divmod(int(block), each) if each else (visits.get(site, 0), int(block))
            visits[site] = visits.get(site, 0) + 1
            name = f"layers.{layer}.blocks.{number}.{rest}"
        if wanted(name) or wanted(site):
            cache[name] = seen.detach().clone()

    with ExitStack() as stack:
        for name in site_names(model):
            if name.startswith("blocks.") or wanted(name):
                stack.callback(model.get_submodule(name).register_forward_hook(partial(keep, name)).remove)
        yield cache


@contextmanager
def patched(model: Model, edits: Mapping[str | tuple[str, str], Replacement], seed: int = 0) -> Iterator[None]:
    """Replaces activations in the runs inside."""
    with ExitStack() as stack:
        for name, what in edits.items():
            edit = _edit(what, torch.Generator().manual_seed(seed))
            if isinstance(name, str):
                stack.callback(_listen(_site(model, name), edit))
            else:
                for site, change in _along(model, *name, edit):
                    stack.callback(_listen(site, change))
        yield


def _listen(site: nn.Module, edit: Edit) -> Callable[[], None]:
    return site.register_forward_hook(lambda module, _given, seen: edit(module, seen)).remove


def _chosen(names: Names) -> Callable[[str], bool]:
    if names is None:
        return lambda _: True
    if callable(names):
        return names
    patterns = [names] if isinstance(names, str) else list(names)
    return lambda name: any(name == one or fnmatchcase(name, one) for one in patterns)


def _site(model: Model, name: str) -> nn.Module:
    try:
        found = model.get_submodule(name)
    except AttributeError:
        found = None
    if not isinstance(found, HookSite):
        known = site_names(model)
        layer = ".".join(name.split(".")[2:]) if name.startswith("layers.") else name
        raise RunError(f"there is no site {shown(name)}{suggestion(layer, known)}; model.sites() lists them")
    return found


# ---- what replaces an activation -------------------------------------------------------------------------------------


def _edit(what: Replacement, generator: torch.Generator) -> Edit:
    if isinstance(what, Tensor):
        return lambda _, seen: what.to(seen)
    if isinstance(what, str):
        if what not in ABLATIONS:
            raise RunError(f"unknown ablation {shown(what)}; known are {', '.join(ABLATIONS)}")
        return lambda site, seen: ablated(what, seen, cast(Any, site).shapes, generator)
    if not callable(what):
        raise RunError(f"an activation is replaced by a tensor, a function or an ablation, not {type(what).__name__}")
    return lambda _, seen: what(seen)


def ablated(kind: str, seen: Tensor, shapes: list[tuple[int, ...]], generator: torch.Generator) -> Tensor:
    """An activation without what it says about single tokens; problems of a batch stay apart, padding stays zero."""
    found = torch.zeros_like(seen)
    for number, shape in enumerate(shapes):
        part: tuple[int | slice, ...] = tuple(slice(size) for size in shape)
        part = part if seen.dim() == len(shape) else (number, *part)
        rows = seen[part]
        if kind == "mean" and len(rows):
            found[part] = rows.mean(0, keepdim=True).expand_as(rows)
        elif kind == "resample":
            found[part] = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
    return found


# ---- paths -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class _Place:
    """A sub-layer of a run: 0 prelude, 1 + t layer t; its block there."""

    phase: int
    block: int


def _place(name: str) -> _Place:
    parts = name.split(".")
    if parts[0] == "prelude":
        return _Place(0, int(parts[1]))
    if parts[0] == "layers" and parts[2] == "blocks":
        return _Place(1 + int(parts[1]), int(parts[3]))
    raise RunError(f"a path leads from layers.T.blocks.I (or prelude.I) to a later one, not through {shown(name)}")


def _along(model: Model, source: str, target: str, edit: Edit) -> Iterator[tuple[nn.Module, Edit]]:
    """Hooks at both ends: the first notes how the source changes, the second adds what arrives of it."""
    if source.rpartition(".")[2] not in SOURCES or target.rpartition(".")[2] not in READERS:
        raise RunError(f"a path leads from {' or '.join(SOURCES)} to {', '.join(READERS[:-1])} or {READERS[-1]}")
    start, end = _place(source), _place(target)
    from_site, to_site = _site(model, source), _site(model, target)
    if not start < end:
        raise RunError(f"{shown(target)} does not come after {shown(source)}")
    program = model.program
    stream, read = _streams(model, source, start)[0], _streams(model, target, end)[1]
    noted: list[Tensor] = []

    def note(site: nn.Module, seen: Tensor) -> Tensor:
        noted[:] = [edit(site, seen) - seen]
        return seen

    def arrive(_: nn.Module, seen: Tensor) -> Tensor:
        (change,) = noted
        for carry in carries(program, stream, start, end):
            change = change @ model.tensor(carry).to(change).T
        more = seen.shape[-2] - change.shape[-2]  # a null token, which nothing changes
        return seen + (nn.functional.pad(change, (0, 0, 0, more)) if more else change)

    yield from_site, note
    if stream == read:
        yield to_site, arrive


def _streams(model: Model, name: str, place: _Place) -> tuple[str, str]:
    """The stream that a sub-layer's part writes, and the one that it reads at this site."""
    sublayer = [sub for step in _steps(model.program, place.phase) for sub in step.sublayers][place.block]
    if isinstance(sublayer, FFN):
        return sublayer.stream, sublayer.stream
    heads, word, _ = name.rsplit(".", 2)
    called = cast(Named, model.get_submodule(heads)).name_of(word)
    head = next(one for one in sublayer.heads if one.name == called)
    return head.query, head.keys if name.endswith(("hook_k_input", "hook_v_input")) else head.query


def _steps(program: Program, phase: int) -> tuple[ProgramStep, ...]:
    if phase == 0:
        return program.prelude
    return program.steps_of(phase - 1)


def carries(program: Program, stream: str, start: _Place, end: _Place) -> Iterator[str]:
    """The matrices that carry what was added to a stream by one sub-layer to a later one."""
    derived = program.stream(stream).derived
    for phase in range(start.phase, end.phase + 1):
        block = 0
        for step in _steps(program, phase):
            for sublayer in step.sublayers:
                if start < _Place(phase, block) < end:
                    if isinstance(sublayer, Attend):
                        yield from (name for one, name in sublayer.carry.items() if one == stream)
                    elif sublayer.stream == stream:
                        yield sublayer.carry
                block += 1
            if start <= _Place(phase, block - 1) < end:
                yield from (ffn.carry for ffn in derived)
