"""Slots and registers -> names and columns of every stream: fields, constants, what is kept up to date, scratch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count

from weftc.normal.form import NormalForm, is_leaf
from weftc.normal.slots import Leaf, Map, NormalSlot, label
from weftc.passes.allocate import Allocated, Register
from weftc_runtime.format.program import Roles
from weftc_runtime.format.program import Slot as FileSlot

ORDER = ("field", "constant", "derived", "scratch")
CONSTANT = ("one", "position", "name", "count", "centre", "null")


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """The columns of one stream."""

    slots: tuple[FileSlot, ...]
    names: dict[NormalSlot, str]  # of slots that have columns of their own
    columns: dict[str, tuple[int, int]]

    @property
    def width(self) -> int:
        return sum(slot.width for slot in self.slots)


def role(slot: NormalSlot) -> Roles:
    """What a slot with columns of its own is there for."""
    if isinstance(slot.content, Map):
        return "derived"
    assert isinstance(slot.content, Leaf)
    if slot.content.kind == "field":
        return "field"
    return "constant" if slot.content.kind in CONSTANT else "scratch"


def layouts(normal: NormalForm, sections: Iterable[tuple[Allocated, ...]]) -> dict[str, StreamLayout]:
    """The columns of every stream. Tokens that nobody reads are still there to be counted: they hold a 1."""
    used = dict.fromkeys([*normal.fields, *(s for s in normal.slots if s.level == 0)])
    registers = [r for section in sections for step in section for r in step.registers.values()]
    out = {}
    for stream in normal.checked.sets:
        own = [s for s in used if s.stream == stream]
        scratch = [r for r in registers if r.stream == stream]
        out[stream] = _layout(own if own or scratch else [normal.ones[stream]], scratch)
    return out


def _layout(own: list[NormalSlot], registers: list[Register]) -> StreamLayout:
    names: dict[NormalSlot, str] = {}
    taken: set[str] = set()
    columns: dict[str, tuple[int, int]] = {}
    slots: list[FileSlot] = []
    at = 0

    def place(name: str, width: int, what: Roles) -> None:
        nonlocal at
        columns[name] = (at, width)
        slots.append(FileSlot(name, at, width, what, name))
        at += width

    for slot in sorted(own, key=lambda s: ORDER.index(role(s))):
        called = label(slot)
        names[slot] = next(n for n in chain([called], (f"{called} #{m}" for m in count(2))) if n not in taken)
        taken.add(names[slot])
        place(names[slot], slot.width, role(slot))
    for register in sorted(dict.fromkeys(registers), key=lambda r: r.number):
        place(register.name, register.width, "scratch")
    return StreamLayout(tuple(slots), names, columns)


def is_constant(slot: NormalSlot) -> bool:
    """Whether the embedding fills a slot; what differences are centred on is found by the prelude."""
    return is_leaf(slot, *CONSTANT) and not is_leaf(slot, "centre")
