"""Scratch slots -> registers: those that are never needed at the same time share their columns.

A register is a range of columns of one stream. A slot holds it from the block that fills it to the last that reads it;
fields, constants and slots that are kept up to date have columns of their own.

spec      tokens i, l in s inputs x[i] : R layer a[i] = exp(mean[l] x[l]) then b[i] = exp(mean[l] a[l]) outputs b
before    step 1: ~ and exp(~)      step 2: ~ and exp(~)
after     step 1: ~1 and ~2         step 2: ~1 and ~2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weftc.normal.form import NormalForm, NormalStep
from weftc.normal.slots import Map, NormalSlot, label, sources
from weftc.passes.schedule import AttentionBlock, Schedule, schedule


@dataclass(frozen=True, slots=True)
class Register:
    """Columns for scratch."""

    stream: str
    number: int  # among those of its stream
    width: int
    name: str


@dataclass(frozen=True, slots=True)
class Allocated:
    """A step in order, with the register of every slot that it computes for itself."""

    step: NormalStep
    schedule: Schedule
    registers: Mapping[NormalSlot, Register]


def allocate(normal: NormalForm) -> tuple[tuple[Allocated, ...], ...]:
    """Start, layer and outputs, each step scheduled and with its registers."""
    made: dict[str, list[Register]] = {stream: [] for stream in normal.checked.sets}
    pinned: set[Register] = set()  # outputs read them after everything
    return _named(
        tuple(
            tuple(_step(step, made, pinned) for step in steps)
            for steps in (normal.prelude, normal.layer, normal.readout)
        )
    )


def _step(step: NormalStep, made: dict[str, list[Register]], pinned: set[Register]) -> Allocated:
    order = schedule(step)
    born, dies = _lifetimes(step, order)
    registers: dict[NormalSlot, Register] = {}
    free_from: dict[Register, int] = {}  # when what a register holds in this step is read for the last time
    blocks = list(order)
    for slot, at in sorted(born.items(), key=lambda z: (z[1], z[0].number)):
        until = at - 1 if order[at] is slot else at  # a feed-forward does not write over what it reads
        own = [r for r in made[slot.stream] if r.width == slot.width and r not in pinned]
        fits = [r for r in own if free_from.get(r, -1) <= until]
        if not fits:
            number = len(made[slot.stream]) + 1
            fits = [Register(slot.stream, number, slot.width, f"~{number}")]
            made[slot.stream].append(fits[0])
        registers[slot] = fits[0]
        block = blocks[at]
        if fits[0] in free_from and isinstance(
            block, AttentionBlock
        ):  # heads add to what is there: it is cleared first
            blocks[at] = replace(block, sets={**block.sets, slot: ()})
        free_from[fits[0]] = dies[slot]
    end = len(order)
    pinned |= {registers[slot] for slot, last in dies.items() if last > end}
    return Allocated(step, _cleared_once(tuple(blocks), registers), registers)


def _named(sections: tuple[tuple[Allocated, ...], ...]) -> tuple[tuple[Allocated, ...], ...]:
    """Registers that only ever hold one token-wise map are called after it."""
    holds: dict[Register, dict[NormalSlot, None]] = {}
    for step in (step for section in sections for step in section):
        for slot, register in step.registers.items():
            holds.setdefault(register, {})[slot] = None
    alone = {register: slot for register, (slot, *more) in holds.items() if not more and isinstance(slot.content, Map)}
    names = {slot: register.name for register, slots in holds.items() for slot in slots if register not in alone}
    called: dict[Register, Register] = {}
    taken: set[tuple[str, str]] = set()
    for register in holds:
        name = label(alone[register], names) if register in alone else register.name
        name = register.name if (register.stream, name) in taken else name
        taken.add((register.stream, name))
        called[register] = replace(register, name=name)
    return tuple(
        tuple(replace(step, registers={s: called[r] for s, r in step.registers.items()}) for step in section)
        for section in sections
    )


def _lifetimes(step: NormalStep, order: Schedule) -> tuple[dict[NormalSlot, int], dict[NormalSlot, int]]:
    """At which place of the order a slot is filled, and at which it is read for the last time."""
    born: dict[NormalSlot, int] = {}
    dies: dict[NormalSlot, int] = {}
    for at, part in enumerate(order):
        if isinstance(part, AttentionBlock):
            reads = [s for run in part.heads for s in run.head.reads]
            reads += [s for run in part.heads for v in run.brings.values() for s, _ in (*v.value, *v.own)]
            reads += [s for terms in part.sets.values() for s, _ in terms]
            born |= {s: at for run in part.heads for s in run.brings if s.level}
        else:
            reads = list(sources(part))
            born[part] = at
        dies |= {s: at for s in reads if s.level}
    dies = {**born, **dies}
    for pattern in step.patterns:
        dies |= {s: len(order) + 1 for s in (*pattern.head.reads, *(s for s, _ in pattern.scale)) if s.level}
    return born, dies


def _cleared_once(order: Schedule, registers: Mapping[NormalSlot, Register]) -> Schedule:
    """The order with every register cleared once where several of its slots are."""
    out: list[AttentionBlock | NormalSlot] = []
    for part in order:
        if isinstance(part, AttentionBlock):
            seen: set[Register] = set()
            sets = {}
            for slot, terms in part.sets.items():
                if slot in registers and not terms:
                    if registers[slot] in seen:
                        continue
                    seen.add(registers[slot])
                sets[slot] = terms
            part = replace(part, sets=sets)
        out.append(part)
    return tuple(out)
