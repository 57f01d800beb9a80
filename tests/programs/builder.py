"""Slots by name -> dense matrices: what the programs in this folder are built with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
    FFN,
    Program,
    Slot,
)
from weftc_runtime.format.writes import stated

Array = npt.NDArray[np.float64]
Form = Mapping[str, Any]  # slot -> number, or a matrix from that slot


class Builder:
    """Slots by name -> dense matrices, collected under tensor names."""

    def __init__(self, **streams: Sequence[tuple[str, int, str]]) -> None:
        self.slots: dict[str, tuple[Slot, ...]] = {}
        self.tensors: dict[str, Array] = {}
        for stream, slots in streams.items():
            at, made = 0, []
            for name, width, role in slots:
                made.append(Slot(name, at, width, role))  # type: ignore[arg-type]
                at += width
            self.slots[stream] = tuple(made)

    def width(self, stream: str) -> int:
        return sum(slot.width for slot in self.slots[stream])

    def slot(self, stream: str, name: str) -> Slot:
        return next(slot for slot in self.slots[stream] if slot.name == name)

    def put(self, name: str, array: Any) -> str:
        self.tensors[name] = np.asarray(array, dtype=np.float64)
        return name

    def rows(self, name: str, stream: str, *forms: tuple[int, Form]) -> str:
        """Linear forms stacked: (rows, {slot: coefficient or matrix})."""
        out = np.zeros((sum(count for count, _ in forms), self.width(stream)))
        at = 0
        for count, form in forms:
            for slot, value in form.items():
                place = self.slot(stream, slot)
                block = np.asarray(value, dtype=np.float64)
                if block.ndim == 0:
                    block = block * (np.eye(count) if place.width == count else np.ones((count, place.width)))
                out[at : at + count, place.columns] += block
            at += count
        return self.put(name, out)

    def into(self, name: str, query: str, keys: str, writes: Mapping[str, Form]) -> str:
        """A value matrix: slot of the query stream <- form over the key stream."""
        out = np.zeros((self.width(query), self.width(keys)))
        for slot, form in writes.items():
            place = self.slot(query, slot)
            for source, value in form.items():
                block = np.asarray(value, dtype=np.float64)
                if block.ndim == 0:
                    block = block * np.eye(place.width, self.slot(keys, source).width)
                out[place.columns, self.slot(keys, source).columns] += block
        return self.put(name, out)

    def carry(self, name: str, stream: str, erase: Sequence[str] = (), keep: Mapping[str, Form] | None = None) -> str:
        out = np.eye(self.width(stream))
        for slot in erase:
            out[self.slot(stream, slot).columns] = 0
        for slot, form in (keep or {}).items():
            for source, value in form.items():
                place, origin = self.slot(stream, slot), self.slot(stream, source)
                out[place.columns, origin.columns] += value * np.eye(place.width, origin.width)
        return self.put(name, out)

    def column(self, name: str, stream: str, slot: str, value: float = 1.0) -> str:
        out = np.zeros((self.width(stream), 1))
        out[self.slot(stream, slot).columns] = value
        return self.put(name, out)

    def ffn(self, name: str, stream: str, function: str, slot: str, a: Form, b: Form | None = None, **more: Any) -> FFN:
        """slot := f(a z, b z), the hidden rows summed up when the slot is narrower than they are."""
        rows = more.pop("rows", self.slot(stream, slot).width)
        place = self.slot(stream, slot)
        out = np.zeros((self.width(stream), rows))
        out[place.columns] = np.eye(place.width, rows) if rows == place.width else 1.0
        return FFN(
            stream,
            function,  # type: ignore[arg-type]
            self.carry(f"{name}.carry", stream, [slot]),
            self.rows(f"{name}.a", stream, (rows, a)),
            None if b is None else self.rows(f"{name}.b", stream, (rows, b)),
            self.put(f"{name}.out", out),
            (slot,),
            **more,
        )

    def checkpoint(self, program: Program) -> Checkpoint:
        return Checkpoint(
            stated(program, self.tensors),
            dict(self.tensors),
            program.name,
            f"algorithm {program.name}\n",
            {"d": 2},
            {},
            "test",
        )
