"""What the user gives -> the inputs of every problem of a batch, checked against their contracts.

Shapes: a vector or pair input is [tokens, width], a number [tokens]; one more axis in front makes a batch. A batch of
problems of different sizes comes with `mask={stream: bool[batch, tokens]}`, or as a list of arrays. A column [n, 1] of
numbers is n tokens, as it is in a table; n problems of one token it is where another input is a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from keyword import iskeyword
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.data.arrays import tensor_of
from weftc_runtime.data.batch import Batch, InputRows, Layout
from weftc_runtime.data.contracts import kept
from weftc_runtime.data.initial import start
from weftc_runtime.data.noise import check_seed
from weftc_runtime.data.pairs import entered
from weftc_runtime.data.progress import Progress, silence
from weftc_runtime.data.shared import rows_of_all
from weftc_runtime.errors import RunError, shown, suggestion
from weftc_runtime.format.program import Input, Program
from weftc_runtime.kernels.collective import ALONE, Collective

# what a call takes besides inputs
SETTINGS = ("layers", "seed", "mask", "noise", "until_stable", "limit", "progress", "until", "resume")


@dataclass(frozen=True, slots=True)
class InputForm:
    """An input of a program, and the shape of its array."""

    item: Input
    rank: int  # 1: [tokens], 2: [tokens, width]
    width: int
    size: int | None  # tokens of its set; None: any number

    @property
    def name(self) -> str:
        return self.item.name


def forms_of(program: Program, inputs: Sequence[Input]) -> tuple[InputForm, ...]:
    """The shapes of inputs."""
    streams = [program.stream(item.stream) for item in inputs]
    pairs = zip(inputs, streams, strict=True)
    return tuple(InputForm(i, 1 if i.kind == "number" else 2, s.slot(i.slot).width, s.size) for i, s in pairs)


@dataclass(slots=True)
class Reader:
    """Reads arrays for one program; `given` are arrays by name, all with the places and contracts of `inputs`."""

    program: Program
    inputs: tuple[InputForm, ...]
    dtype: torch.dtype
    device: torch.device
    may_start: bool = True  # whether initialisers fill what is missing
    progress: Progress = silence  # told how far they are
    collective: Collective = ALONE
    shared: frozenset[str] = frozenset()  # sets of which this process holds some rows

    def read(self, given: Mapping[str, Any], mask: Mapping[str, Any] | None, seed: int | Sequence[int] | None) -> Batch:
        """The batch, or a RunError that names the input and the row."""
        given = entered(self.program, given)
        self._names(given)
        arrays = {
            form.name: self._array(form, given[form.name])
            for form in self.inputs
            if form.name in given and given[form.name] is not None
        }
        arrays = self._without_columns(arrays, batched=bool(mask))
        missing = [f.name for f in self.inputs if f.name not in arrays and (f.item.init is None or not self.may_start)]
        if missing and self.may_start:
            raise RunError(f"input {shown(missing[0])} is missing; give {call_of(missing[0])}", input=missing[0])
        present = [(form, arrays[form.name]) for form in self.inputs if form.name in arrays]
        counts = {form.name: len(array) for form, array in present if isinstance(array, list) or _is_batch(array, form)}
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{shown(name)}: {count}" for name, count in counts.items())
            raise RunError(f"the inputs are batches of different lengths ({text})")
        batched = bool(counts) or bool(mask)
        count = next(iter(counts.values())) if counts else 1
        if batched and count == 0:
            raise RunError("the batch is empty; give at least one problem")
        if mask and not counts:
            raise RunError("`mask` is for batches; give inputs of shape [batch, tokens, width]")
        if batched and self.collective.size > 1:
            raise RunError("several processes share one problem; a batch runs in one process")
        layouts = self._layouts(present, mask or {}, count)
        self._share(layouts)
        values = {form.name: self._rows(form, array, layouts[form.item.stream], batched) for form, array in present}
        seeds = _seeds(seed, count)
        if self.may_start:
            self._start(values, layouts, seeds, count)
            self._share(layouts)
        return Batch(batched, count, values, layouts, seeds)

    # ------------------------------------------------------------------ names and shapes
    def _names(self, given: Mapping[str, Any]) -> None:
        known = [form.name for form in self.inputs]
        for name in given:
            if name not in known:
                hint = suggestion(str(name), [*known, *SETTINGS])
                raise RunError(f"unknown input {shown(name)}{hint}", input=str(name))

    def _array(self, form: InputForm, value: Any) -> Tensor | list[Tensor]:
        if isinstance(value, list | tuple) and value and all(isinstance(v, Tensor | np.ndarray) for v in value):
            if all(v.ndim == form.rank for v in value):
                first = self._one(form, value[0])
                if all(isinstance(v, Tensor) and _alike(v, first) for v in value):
                    return list(value)  # what holds for the first holds for all
                return [self._one(form, v) for v in value]
            value = [np.asarray(v.detach().cpu() if isinstance(v, Tensor) else v) for v in value]
        return self._one(form, value)

    def _one(self, form: InputForm, value: Any) -> Tensor:
        name, item, rank, width = shown(form.name), form.item, form.rank, form.width
        if not isinstance(value, Tensor) and hasattr(value, "dense"):
            value = value.dense()
        value = tensor_of(name, _encoded(item, value) if item.symbols else value)
        if value.is_complex() or (value.dtype == torch.bool and item.kind != "onehot"):
            kind = str(value.dtype).removeprefix("torch.")
            raise RunError(f"{name} holds {kind}; give numbers", input=item.name)
        if rank == 2 and width == 1 and value.dim() == 1:
            value = value[:, None]
        if value.dim() == rank - 1 and form.size == 1:
            value = value[None]
        shape = value.shape
        if len(shape) not in (rank, rank + 1):
            wanted = "[tokens]" if rank == 1 else f"[tokens, {width}]"
            text = f"{name} has shape {list(shape)}; it must be {wanted}, with one more axis in front for a batch"
            raise RunError(text, input=item.name)
        if rank == 2 and shape[-1] != width:
            text = f"{name} has shape {list(shape)}: rows of width {shape[-1]}, but {width} is expected"
            raise RunError(text, input=item.name)
        moved: Tensor = value.to(device=self.device)
        return moved

    def _without_columns(self, arrays: dict[str, Tensor | list[Tensor]], batched: bool) -> dict[str, Any]:
        """A column [n, 1] of numbers is n tokens, unless another input says that it is n problems of one token."""
        columns = {}
        for form in self.inputs:
            array = arrays.get(form.name)
            if isinstance(array, Tensor) and _is_batch(array, form):
                if form.rank == 1 and array.shape[1] == 1 and form.size != 1:
                    columns[form.name] = array[:, 0]
                else:
                    batched = True
            batched = batched or isinstance(array, list)
        return {**arrays, **columns} if columns and not batched else arrays

    # ------------------------------------------------------------------ sizes
    def _layouts(
        self, present: Sequence[tuple[InputForm, Tensor | list[Tensor]]], mask: Mapping[str, Any], count: int
    ) -> dict[str, Layout]:
        for name in mask:
            names = [stream.name for stream in self.program.streams]
            if name not in names:
                raise RunError(f"mask for an unknown token set {shown(name)}{suggestion(str(name), names)}")
        layouts: dict[str, Layout] = {}
        for stream in self.program.streams:
            found: tuple[str, list[int]] | None = None
            for form, array in present:
                if form.item.stream != stream.name:
                    continue
                sizes = _sizes(array, form, count)
                if found is not None and found[1] != sizes:
                    raise RunError(
                        f"{shown(form.name)} has {_some(sizes)} rows, but {shown(found[0])}, also of {stream.name}, "
                        f"has {_some(found[1])}"
                    )
                found = (form.name, sizes)
                if stream.size is not None and any(size != stream.size for size in sizes):
                    have = f"{shown(form.name)} has {_some(sizes)} rows"
                    text = f"{have}, but {stream.name} has {stream.size} tokens in this model"
                    raise RunError(text, input=form.name)
                if 0 in sizes and stream.name not in self.shared:
                    text = f"{shown(form.name)} is empty; {stream.name} needs at least one token"
                    raise RunError(text, input=form.name)
            sizes = found[1] if found is not None else [stream.size] * count if stream.size is not None else []
            if stream.name in mask:
                layouts[stream.name] = self._masked(stream.name, mask[stream.name], sizes, count)
            elif sizes:
                layouts[stream.name] = Layout(max(sizes), sizes)
        return layouts

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
        counts = [places] * count if tensor.is_meta else tensor.sum(1).tolist()
        if 0 in counts:
            raise RunError(f"problem {counts.index(0)} of the batch has no token of {name}; at least one is needed")
        return Layout(places, counts, tensor)

    def _rows(self, form: InputForm, array: Tensor | list[Tensor], layout: Layout, batched: bool) -> InputRows:
        """The rows of all problems that are used, in the storage dtype, if all of them keep their contract."""
        item = form.item
        starts = [0, *accumulate(layout.counts)]
        if isinstance(array, list):
            rows = torch.cat(array)
        elif not _is_batch(array, form):
            whole = layout.filled(array.device) is None
            rows = array if whole else torch.cat([array[layout.rows(number)] for number in range(len(layout.counts))])
            if whole:
                column = rows[:, None] if form.rank == 1 else rows
                once = [0, len(rows)] if batched else None
                return InputRows(*kept(item, column, self.dtype, once, self._first(item)), starts, shared=True)
        else:
            filled = layout.filled(array.device)
            rows = array.flatten(0, 1) if filled is None else array[filled]
        rows = rows[:, None] if form.rank == 1 else rows
        return InputRows(*kept(item, rows, self.dtype, starts if batched else None), starts)

    # ------------------------------------------------------------------ several processes
    def _first(self, item: Input) -> int:
        """The rows before those of this process."""
        return self.collective.rows(item.stream, 0)[0]

    def _share(self, layouts: Mapping[str, Layout]) -> None:
        """Tells the others how many rows of the shared sets are here."""
        if self.collective.size == 1:
            return
        self.collective.share({name: layout.counts[0] for name, layout in layouts.items() if name in self.shared})
        for name in self.collective.starts:
            if not self.collective.total(name, 0):
                raise RunError(f"{name} is empty in all processes; it needs at least one token")

    # ------------------------------------------------------------------ initialisers
    def _start(self, values: dict[str, InputRows], layouts: dict[str, Layout], seeds: list[int], count: int) -> None:
        for form in self.inputs:
            item, size = form.item, form.size
            if item.name in values or item.init is None:
                continue
            source = item.init[1]
            made = []
            for number in range(count):
                if count > 1:
                    self.progress("start", number, count)
                tell = self.progress if count == 1 else silence
                known = values[str(source)].of(number)
                home = next(other.item.stream for other in self.inputs if other.name == source)
                if home in self.collective.starts and item.init[0] != "copy":
                    made.append(self._started_together(item, known.detach(), home, size, seeds[number], tell))
                else:
                    made.append(self._started(item, known, size, seeds[number], tell))
            sizes = [len(part) for part in made]
            layout = layouts.setdefault(item.stream, Layout(max(sizes), sizes))
            if layout.sizes() != sizes:
                raise RunError(
                    f"{shown(item.name)} would start with {_some(sizes)} rows, but {item.stream} has "
                    f"{_some(layout.sizes())} tokens; give {call_of(item.name)}"
                )
            starts = [0, *accumulate(sizes)]
            rows = made[0] if count == 1 else torch.cat(made)
            values[item.name] = InputRows(*kept(item, rows, self.dtype, starts if count > 1 else None), starts)

    def _started_together(
        self, item: Input, known: Tensor, home: str, size: int | None, seed: int, tell: Progress
    ) -> Tensor:
        """The same from the rows of all processes: the first one sees them all, and tells what it found."""
        assert item.init is not None
        if size is None:
            raise RunError(f"give {shown(item.name)}: how many rows it has is not known, so it cannot start by itself")
        rows = rows_of_all(item.name, known.__getitem__, known.shape[1], known.dtype, home, self.collective)
        found = None
        if rows is not None:
            made = start(item.init[0], rows, size, item.name, str(item.init[1]), seed, progress=tell)
            found = torch.as_tensor(np.ascontiguousarray(made))
        return self.collective.shown(found, (size, known.shape[1]), torch.float64, 0).to(self.device)

    def _started(self, item: Input, known: Tensor, size: int | None, seed: int, tell: Progress) -> Tensor:
        """What an input of one problem starts with."""
        assert item.init is not None
        method, source = item.init
        if known.is_meta:
            return known if method == "copy" else known.new_empty(size or 1, known.shape[1])
        rows = start(method, known.detach().cpu().numpy(), size, item.name, str(source), seed, progress=tell)
        return torch.as_tensor(rows, device=self.device)


def _encoded(item: Input, value: Any) -> Any:
    """Symbols as rows with a single 1; numbers as they are."""
    if isinstance(value, Tensor):
        return value
    values = np.asarray(list(value) if isinstance(value, str) else value)
    if values.dtype.kind not in "US" and not (values.dtype == object and isinstance(values.reshape(-1)[0], str)):
        return value
    places = {symbol: place for place, symbol in enumerate(item.symbols)}
    words = [str(word) for word in values.reshape(-1).tolist()]
    for row, word in enumerate(words):
        if word not in places:
            known = ", ".join(map(shown, item.symbols))
            place = f"row {row % values.shape[-1]}"
            text = f"{shown(item.name)}: {place} ({shown(word)}) is no symbol of its vocabulary, which is {known}"
            raise RunError(f"{text} (rows are counted from 0)", input=item.name, place=place)
    return np.eye(len(places))[[places[word] for word in words]].reshape(*values.shape, -1)


def _is_batch(array: Tensor | list[Tensor], form: InputForm) -> bool:
    return isinstance(array, Tensor) and array.dim() > form.rank


def _sizes(array: Tensor | list[Tensor], form: InputForm, count: int) -> list[int]:
    """The tokens of every problem."""
    if isinstance(array, list):
        return [len(part) for part in array]
    return [array.shape[1] if _is_batch(array, form) else len(array)] * count


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape[1:] == other.shape[1:] and one.device == other.device


def call_of(*names: str) -> str:
    """How to give inputs: `model(x=...)`, or in a mapping where a name is no keyword, or one of a setting."""
    if any(name in SETTINGS or not name.isidentifier() or iskeyword(name) for name in names):
        return f"model({{{', '.join(f'{shown(name)!r}: ...' for name in names)}}})"
    return f"model({', '.join(f'{shown(name)}=...' for name in names)})"


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
