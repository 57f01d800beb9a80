"""What the user gives -> the inputs of every problem of a batch, checked against their contracts.

Shapes: a vector or pair input is [tokens, width], a number [tokens]; one more axis in front makes a batch. A batch of
problems of different sizes comes with `mask={stream: bool[batch, tokens]}`, or as a list of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft_runtime.arrays import tensor_of
from weft_runtime.contracts import all_kept, kept
from weft_runtime.errors import RunError, shown, suggestion
from weft_runtime.initial import start
from weft_runtime.ir import Input, Program
from weft_runtime.noise import check_seed

# what a call takes besides inputs
SETTINGS = ("layers", "seed", "mask", "noise", "until_stable", "limit", "progress", "until")


@dataclass(slots=True)
class Layout:
    """Where the tokens of a stream stand in the arrays of a batch: how many places, and which each problem uses."""

    places: int
    rows: list[Tensor]  # per problem; long

    def sizes(self) -> list[int]:
        return [len(rows) for rows in self.rows]


@dataclass(slots=True)
class Batch:
    """The inputs of every problem (tokens, width), float64 rounded to the storage dtype; the layout of the streams."""

    batched: bool
    count: int
    values: list[dict[str, Tensor]]
    layouts: dict[str, Layout]
    seeds: list[int]


@dataclass(slots=True)
class Reader:
    """Reads arrays for one program; `given` are arrays by name, all with the places and contracts of `inputs`."""

    program: Program
    inputs: Sequence[Input]
    dtype: torch.dtype
    device: torch.device
    may_start: bool = True  # whether initialisers fill what is missing

    def read(self, given: Mapping[str, Any], mask: Mapping[str, Any] | None, seed: int | Sequence[int] | None) -> Batch:
        """The batch, or a RunError that names the input and the row."""
        self._names(given)
        arrays = {
            item.name: self._array(item, given[item.name])
            for item in self.inputs
            if item.name in given and given[item.name] is not None
        }
        missing = [i.name for i in self.inputs if i.name not in arrays and (i.init is None or not self.may_start)]
        if missing and self.may_start:
            raise RunError(f"input {shown(missing[0])} is missing; give {_call(missing[0])}", input=missing[0])
        counts = {
            name: len(array) for name, array in arrays.items() if isinstance(array, list) or self._is_batch(array, name)
        }
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{shown(name)}: {count}" for name, count in counts.items())
            raise RunError(f"the inputs are batches of different lengths ({text})")
        batched = bool(counts) or bool(mask)
        count = next(iter(counts.values())) if counts else 1
        if batched and count == 0:
            raise RunError("the batch is empty; give at least one problem")
        if mask and not counts:
            raise RunError("`mask` is for batches; give inputs of shape [batch, tokens, width]")
        layouts = self._layouts(arrays, mask or {}, count)
        values: list[dict[str, Tensor]] = [{} for _ in range(count)]
        for item in self.inputs:
            if item.name in arrays:
                array = arrays[item.name]
                if isinstance(array, Tensor) and self._is_batch(array, item.name) and item.stream not in (mask or {}):
                    whole = all_kept(item, array if self._rank(item) == 2 else array[..., None], self.dtype)
                    if whole is not None:
                        for number, part in enumerate(whole.unbind()):
                            values[number][item.name] = part
                        continue
                for number in range(count):
                    rows = self._rows(item, arrays[item.name], number, layouts[item.stream])
                    values[number][item.name] = kept(item, rows, self.dtype, number if batched else None)
        seeds = _seeds(seed, count)
        if self.may_start:
            self._start(values, layouts, seeds, count)
        return Batch(batched, count, values, layouts, seeds)

    # ------------------------------------------------------------------ names and shapes
    def _names(self, given: Mapping[str, Any]) -> None:
        known = [item.name for item in self.inputs]
        for name in given:
            if name not in known:
                hint = suggestion(str(name), [*known, *SETTINGS])
                raise RunError(f"unknown input {shown(name)}{hint}", input=str(name))

    def _slot_width(self, item: Input) -> int:
        return self.program.stream(item.stream).slot(item.slot).width

    def _rank(self, item: Input) -> int:
        return 1 if item.kind == "number" else 2

    def _array(self, item: Input, value: Any) -> Tensor | list[Tensor]:
        rank = self._rank(item)
        if isinstance(value, list | tuple) and value and all(isinstance(v, Tensor | np.ndarray) for v in value):
            if all(v.ndim == rank for v in value):
                return [self._one(item, v) for v in value]
            value = [np.asarray(v.detach().cpu() if isinstance(v, Tensor) else v) for v in value]
        return self._one(item, value)

    def _one(self, item: Input, value: Any) -> Tensor:
        name = shown(item.name)
        if hasattr(value, "dense") and not isinstance(value, Tensor):
            value = value.dense()
        value = tensor_of(name, value)
        if value.is_complex() or (value.dtype == torch.bool and item.kind != "onehot"):
            kind = str(value.dtype).removeprefix("torch.")
            raise RunError(f"{name} holds {kind}; give numbers", input=item.name)
        rank, width = self._rank(item), self._slot_width(item)
        if rank == 2 and width == 1 and value.dim() == 1:
            value = value[:, None]
        wanted = "[tokens]" if rank == 1 else f"[tokens, {width}]"
        shape = list(value.shape)
        if value.dim() not in (rank, rank + 1):
            text = f"{name} has shape {shape}; it must be {wanted}, with one more axis in front for a batch"
            raise RunError(text, input=item.name)
        if rank == 2 and shape[-1] != width:
            text = f"{name} has shape {shape}: rows of width {shape[-1]}, but {width} is expected"
            raise RunError(text, input=item.name)
        moved: Tensor = value.to(device=self.device)
        return moved

    def _is_batch(self, array: Tensor | list[Tensor], name: str) -> bool:
        item = next(i for i in self.inputs if i.name == name)
        return isinstance(array, Tensor) and array.dim() > self._rank(item)

    # ------------------------------------------------------------------ sizes
    def _layouts(
        self, arrays: Mapping[str, Tensor | list[Tensor]], mask: Mapping[str, Any], count: int
    ) -> dict[str, Layout]:
        names = [stream.name for stream in self.program.streams]
        for name in mask:
            if name not in names:
                raise RunError(f"mask for an unknown token set {shown(name)}{suggestion(str(name), names)}")
        layouts: dict[str, Layout] = {}
        for stream in self.program.streams:
            found: tuple[str, list[int]] | None = None
            for item in self.inputs:
                if item.stream != stream.name or item.name not in arrays:
                    continue
                sizes = self._sizes(arrays[item.name], item.name, count)
                if found is not None and found[1] != sizes:
                    raise RunError(
                        f"{shown(item.name)} has {_some(sizes)} rows, but {shown(found[0])}, also of {stream.name}, "
                        f"has {_some(found[1])}"
                    )
                found = (item.name, sizes)
                if stream.size is not None and any(size != stream.size for size in sizes):
                    have = f"{shown(item.name)} has {_some(sizes)} rows"
                    text = f"{have}, but {stream.name} has {stream.size} tokens in this model"
                    raise RunError(text, input=item.name)
                if any(size == 0 for size in sizes):
                    text = f"{shown(item.name)} is empty; {stream.name} needs at least one token"
                    raise RunError(text, input=item.name)
            sizes = found[1] if found is not None else [stream.size] * count if stream.size is not None else []
            if stream.name in mask:
                layouts[stream.name] = self._masked(stream.name, mask[stream.name], sizes, count)
            elif sizes:
                layouts[stream.name] = Layout(max(sizes), [self._order(size) for size in sizes])
        return layouts

    def _order(self, size: int) -> Tensor:
        return torch.arange(size, device=self.device)

    def _sizes(self, array: Tensor | list[Tensor], name: str, count: int) -> list[int]:
        if isinstance(array, list):
            return [len(part) for part in array]
        if self._is_batch(array, name):
            return [array.shape[1]] * count
        return [len(array)] * count

    def _masked(self, name: str, mask: Any, sizes: list[int], count: int) -> Layout:
        try:
            tensor = mask if isinstance(mask, Tensor) else torch.as_tensor(np.asarray(mask))
        except (TypeError, ValueError):
            raise RunError(f"the mask of {name} is not an array") from None
        if self.program.stream(name).size is not None:
            raise RunError(f"{name} has a fixed number of tokens; a mask is for sets of open size")
        places = sizes[0] if sizes else 0
        if tensor.dtype != torch.bool or list(tensor.shape) != [count, places]:
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise RunError(f"the mask of {name} is {dtype}{list(tensor.shape)}; it must be bool[{count}, {places}]")
        if len(set(sizes)) > 1:
            raise RunError(f"give {name} as a list of arrays or with a mask, not both")
        tensor = tensor.to(self.device)
        rows = [row.nonzero()[:, 0] for row in tensor]
        for number, places_used in enumerate(rows):
            if len(places_used) == 0:
                raise RunError(f"problem {number} of the batch has no token of {name}; at least one is needed")
        return Layout(places, rows)

    def _rows(self, item: Input, array: Tensor | list[Tensor], number: int, layout: Layout) -> Tensor:
        if isinstance(array, list):
            rows = array[number]
        else:
            rows = array[number] if self._is_batch(array, item.name) else array
            rows = rows if len(layout.rows[number]) == len(rows) else rows[layout.rows[number]]
        return rows[:, None] if self._rank(item) == 1 else rows

    # ------------------------------------------------------------------ initialisers
    def _start(self, values: list[dict[str, Tensor]], layouts: dict[str, Layout], seeds: list[int], count: int) -> None:
        for item in self.inputs:
            if item.name in values[0] or item.init is None:
                continue
            method, source = item.init
            size = self.program.stream(item.stream).size
            rows = []
            for number in range(count):
                if self.device.type == "meta":
                    known = values[number][str(source)]
                    rows.append(known if method == "copy" else known.new_empty(size or 1, known.shape[1]))
                    continue
                known = values[number][str(source)].detach().to(torch.float64).cpu()
                made = start(method, known.numpy(), size, item.name, str(source), seeds[number])
                rows.append(torch.as_tensor(made, device=self.device))
            sizes = [len(part) for part in rows]
            layout = layouts.setdefault(item.stream, Layout(max(sizes), [self._order(size) for size in sizes]))
            if layout.sizes() != sizes:
                raise RunError(
                    f"{shown(item.name)} would start with {_some(sizes)} rows, but {item.stream} has "
                    f"{_some(layout.sizes())} tokens; give {_call(item.name)}"
                )
            for number, part in enumerate(rows):
                values[number][item.name] = kept(item, part, self.dtype, number if count > 1 else None)


def _call(name: str) -> str:
    return f"model({shown(name)}=...)"


def _some(sizes: Sequence[int]) -> str:
    distinct = list(dict.fromkeys(sizes))
    return str(distinct[0]) if len(distinct) == 1 else f"{min(distinct)} to {max(distinct)}"


def _seeds(seed: int | Sequence[int] | None, count: int) -> list[int]:
    if seed is None:
        return [0] * count
    if isinstance(seed, np.ndarray):
        seed = seed.tolist()
    if isinstance(seed, Sequence):
        if len(seed) != count:
            raise RunError(f"{len(seed)} seeds for {count} problems; give one for each, or one for all")
        return [check_seed(one) for one in seed]
    return [check_seed(seed)] * count
