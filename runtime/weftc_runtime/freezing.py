"""What stays as it was compiled while a model is trained on: by slot, head or kind.

    weftc.load(path, trainable=True, freeze=["head:y", "slot:x", "kind:carry"])

A tensor that is frozen as a whole needs no gradient. Of one that is frozen in part (the columns that read a slot, the
rows that write it) the frozen numbers are put back whenever it is read, so that no optimizer moves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from weftc_runtime.errors import RunError, shown, suggestion
from weftc_runtime.format.program import Attend, Program, TensorUse

if TYPE_CHECKING:
    from weftc_runtime.model import Model

Words = str | Iterable[str]

KINDS = ("scores", "masks", "values", "mlp", "carry", "basis")


class PutBack(nn.Module):
    """A tensor some numbers of which are what they were."""

    def __init__(self, fixed: Tensor, value: Tensor) -> None:
        super().__init__()
        self.fixed: Tensor
        self.value: Tensor
        self.register_buffer("fixed", fixed, persistent=False)
        self.register_buffer("value", value, persistent=False)

    def forward(self, trained: Tensor) -> Tensor:
        """The tensor as everybody reads it."""
        return torch.where(self.fixed, self.value, trained)


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """One use of a tensor: the head it belongs to, if any, and its kind."""

    name: str
    use: TensorUse
    head: str
    kind: str


def places(program: Program) -> Iterator[TensorPlace]:
    """Every use of every tensor."""
    heads = {}
    for path, step in program.places():
        for index, sublayer in enumerate(step.sublayers):
            for head in sublayer.heads if isinstance(sublayer, Attend) else ():
                heads[f"{path}.{index}.{head.name}."] = head.name
    for output in program.answers():
        if output.head is not None:
            heads[f"outputs.{output.name}.{output.head.name}."] = output.head.name
    for name, uses in program.tensors().items():
        for use in uses:
            start = next((start for start in heads if use.where.startswith(start)), "")
            yield TensorPlace(name, use, heads.get(start, ""), _kind(use.where, start))


def _kind(where: str, head: str) -> str:
    if head:
        part = where[len(head) :].split(".")
        return "masks" if part[0] == "masks" else "values" if part[-1] == "value" else "scores"
    if where.startswith("basis."):
        return "basis"
    if where.endswith(".scale"):
        return "scores"  # of an output that is a pattern
    return "mlp" if where.endswith((".a", ".b", ".out")) else "carry"


def freeze(model: Model, words: Words) -> None:
    """Freezes what words such as `head:y`, `slot:x`, `slot:points.x` and `kind:carry` name."""
    chosen = [_known(model.program, word) for word in ([words] if isinstance(words, str) else words)]
    tensors = {name: model.tensor(name) for name in model.program.tensors()}
    fixed: dict[str, Tensor] = {name: torch.zeros_like(one, dtype=torch.bool) for name, one in tensors.items()}
    for place in places(model.program):
        for what, value in chosen:
            if (what == "head" and place.head == value) or (what == "kind" and place.kind == value):
                fixed[place.name].fill_(True)
            elif what == "slot":
                _fix(model.program, place, value, fixed[place.name])
    for name, mask in fixed.items():
        tensor = tensors[name]
        if bool(mask.all()):
            tensor.requires_grad = False
        elif bool(mask.any()):
            owner, leaf = model.home_of(name)
            parametrize.register_parametrization(owner, leaf, PutBack(mask, tensor.detach().clone()), unsafe=True)


def _fix(program: Program, place: TensorPlace, slot: str, mask: Tensor) -> None:
    """Marks the numbers that read or write a slot."""
    for stream in program.streams:
        for one in stream.slots:
            if slot not in (one.name, f"{stream.name}.{one.name}"):
                continue
            if place.use.columns == stream.name:
                mask[..., one.columns] = True
            if place.use.rows == stream.name:
                mask[one.columns] = True


def _known(program: Program, word: str) -> tuple[str, str]:
    what, _, value = word.partition(":")
    heads = {place.head for place in places(program)} - {""}
    slots = {name for s in program.streams for slot in s.slots for name in (slot.name, f"{s.name}.{slot.name}")}
    known = {"head": sorted(heads), "slot": sorted(slots), "kind": list(KINDS)}
    if what not in known or not value:
        raise RunError(f"{shown(word)} cannot be frozen; say head:NAME, slot:NAME or kind:NAME")
    if value not in known[what]:
        raise RunError(f"there is no {what} {shown(value)}{suggestion(value, known[what])}")
    return what, value
