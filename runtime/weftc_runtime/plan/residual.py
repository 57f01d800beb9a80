"""The residual of one stream while a plan runs: its slots, each held as suits it; derived slots are made when read.

Indexing gives what a tensor (tokens, width) would give, but only the rows and columns asked for are ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from weftc_runtime.exact.rows import Rows, count_of
from weftc_runtime.format.program import Stream
from weftc_runtime.plan.slots import DenseSlot, SlotValue, UniformSlot

Derive = Callable[["Residual", str], SlotValue]  # computes a derived slot
Bound = Callable[["Residual", str], Tensor]  # and a bound of its error
Runs: TypeAlias = tuple[tuple[str, tuple[int, ...] | None], ...]  # slots and their columns; None: all of them


class Residual:
    """Slots by name. States share what they have in common: nothing is changed in place."""

    is_meta = False

    def __init__(
        self,
        stream: Stream,
        tokens: int,
        slots: Mapping[str, SlotValue],
        derive: Derive,
        bound: Bound,
        device: torch.device,
    ) -> None:
        self.stream, self.tokens, self.device = stream, tokens, device
        self._slots = dict(slots)
        self._derive, self._bound = derive, bound
        self._derived: dict[str, SlotValue] = {}
        self._radii: dict[str, Tensor] = {}
        self._runs: dict[tuple[int, ...], Runs] = {}  # shared by all states of a stream

    def __len__(self) -> int:
        return self.tokens

    def detach(self) -> Residual:
        """Itself: no gradient flows through a plan."""
        return self

    @property
    def stored(self) -> Mapping[str, SlotValue]:
        """The slots that are not derived and not empty."""
        return self._slots

    def made_of(self, tokens: int, slots: Mapping[str, SlotValue]) -> Residual:
        """The same stream with other tokens."""
        new = Residual(self.stream, tokens, slots, self._derive, self._bound, self.device)
        new._runs = self._runs
        return new

    # ------------------------------------------------------------------ slots
    def slot(self, name: str) -> SlotValue:
        """A slot as it is held."""
        if name in self._slots:
            return self._slots[name]
        slot = self.stream.slot(name)
        if slot.role == "derived":
            if name not in self._derived:
                self._derived[name] = self._derive(self, name)
            return self._derived[name]
        return UniformSlot(torch.zeros(1, slot.width, dtype=torch.float64, device=self.device), self.tokens)

    def radius(self, name: str, rows: Rows) -> Tensor:
        """The bound of the error of a slot: 0 for data."""
        slot = self.stream.slot(name)
        if slot.role != "derived":
            return torch.zeros(1, 1, dtype=torch.float64, device=self.device).expand(
                count_of(rows, self.tokens), slot.width
            )
        if name not in self._radii:
            self._radii[name] = self._bound(self, name)
        whole = self._radii[name]
        return whole.expand(count_of(rows, self.tokens), -1) if len(whole) == 1 else whole[rows]

    def with_slots(self, changed: Mapping[str, SlotValue], sources: Mapping[str, Iterable[str]]) -> Residual:
        """The state with some slots replaced; derived slots whose sources did not change are kept."""
        new = Residual(self.stream, self.tokens, {**self._slots, **changed}, self._derive, self._bound, self.device)
        new._runs = self._runs
        stale = set(changed)
        for name, read in sources.items():  # in order of dependence
            if stale & set(read):
                stale.add(name)
        new._derived = {name: held for name, held in self._derived.items() if name not in stale}
        new._radii = {name: radius for name, radius in self._radii.items() if name not in stale}
        return new

    def overlaid(self, changed: Mapping[str, SlotValue]) -> Residual:
        """The state inside a step: some slots replaced, derived slots as they were unless the step wrote them."""

        def derive(_: Residual, name: str) -> SlotValue:
            return self.slot(name)

        def bound(_: Residual, name: str) -> Tensor:
            return self.radius(name, slice(0, self.tokens))

        new = Residual(self.stream, self.tokens, {**self._slots, **changed}, derive, bound, self.device)
        new._runs = self._runs
        return new

    # ------------------------------------------------------------------ columns
    def columns(self, columns: Sequence[int], rows: Rows, radius: bool = False) -> Tensor:
        """These columns of these rows (or the bounds of their errors), as float64."""
        pieces = []
        for name, inner in self._by_slot(tuple(columns)):
            if radius:
                piece = self.radius(name, rows)
                pieces.append(piece if inner is None else piece[:, inner])
                continue
            held = self.slot(name)
            whole = isinstance(rows, slice) and count_of(rows, self.tokens) == self.tokens
            if whole and inner is not None and not isinstance(held, DenseSlot | UniformSlot):
                pieces.append(torch.stack([held.column(column) for column in inner], 1))
            else:
                piece = held.rows(rows)
                pieces.append(piece if inner is None else piece[:, inner])
        if len(pieces) == 1:
            return pieces[0]
        if not pieces:
            return torch.zeros(count_of(rows, self.tokens), 0, dtype=torch.float64, device=self.device)
        return torch.cat(pieces, 1)

    def _by_slot(self, columns: tuple[int, ...]) -> Runs:
        if columns not in self._runs:
            self._runs[columns] = _by_slot(self.stream, columns)
        return self._runs[columns]

    def dense(self) -> Tensor:
        """All columns but the derived ones, which are zero."""
        pieces = []
        for slot in self.stream.slots:
            if slot.role == "derived":
                pieces.append(torch.zeros(self.tokens, slot.width, dtype=torch.float64, device=self.device))
            else:
                pieces.append(self.slot(slot.name).rows(slice(0, self.tokens)))
        return torch.cat(pieces, 1)

    def __getitem__(self, place: Any) -> Tensor:
        if isinstance(place, int):  # one token, for exact arithmetic: derived slots follow from the others
            row = torch.zeros(self.stream.width, dtype=torch.float64, device=self.device)
            at = torch.tensor([place], device=self.device)
            for slot in self.stream.slots:
                if slot.role != "derived":
                    row[slot.columns] = self.slot(slot.name).rows(at)[0]
            return row
        rows, columns = place
        if isinstance(columns, int):
            return self.columns([columns], rows)[:, 0]
        wanted = range(*columns.indices(self.stream.width)) if isinstance(columns, slice) else map(int, columns)
        return self.columns(list(wanted), rows)


def _by_slot(stream: Stream, columns: tuple[int, ...]) -> Runs:
    """Columns of the residual as runs of columns of its slots, in order; None stands for a whole slot."""
    owner = {column: slot for slot in stream.slots for column in range(slot.offset, slot.offset + slot.width)}
    found: list[tuple[str, list[int]]] = []
    for column in columns:
        slot = owner[column]
        if not found or found[-1][0] != slot.name:
            found.append((slot.name, []))
        found[-1][1].append(column - slot.offset)
    whole = {slot.name: list(range(slot.width)) for slot in stream.slots}
    return tuple((name, None if inner == whole[name] else tuple(inner)) for name, inner in found)
