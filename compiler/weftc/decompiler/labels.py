"""A checkpoint and the names that a reading gave it -> the same weights under these names, so that a proof can be made.

Only labels change: names of streams, slots, inputs and outputs, the roles of slots, and where a step ends. Where a
field is a multiple of what the slot table says, the basis says so instead: columns of it are scaled. No tensor of a
sub-layer is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from weftc.core.types import Checked
from weftc.decompiler.linear import Array, magnitude, noise, ratio
from weftc.decompiler.loop import Algorithm, ResidualCell
from weftc.decompiler.text import SpecWriter
from weftc.prover.model_side.interface import outdated
from weftc_runtime.format.basis import bases_of
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
    FFN,
    Attend,
    Embed,
    Head,
    Input,
    Program,
    ProgramOutput,
    ProgramStep,
    Slot,
    Stream,
    Sublayer,
)
from weftc_runtime.format.writes import Matrices, stated

Place = tuple[str, str]  # stream and slot


class Unplaced(Exception):
    """A field that is in no slot of the file, or in several, or is set without an equation, in a step of the layer."""

    def __init__(
        self,
        reason: str,
        several: frozenset[Place] = frozenset(),
        again: frozenset[tuple[int, Place]] = frozenset(),
    ) -> None:
        super().__init__(reason)
        self.several = several
        self.again = again


def labelled(checkpoint: Checkpoint, algorithm: Algorithm, writer: SpecWriter, checked: Checked) -> Checkpoint:
    """The checkpoint under the names of a spec, and with its text."""
    program = checkpoint.program
    fields: dict[Place, str] = {}
    for given in (*program.inputs, *program.noises):
        fields[given.stream, given.slot] = writer.fields[given.name]
    scales: dict[Place, float] = {}
    set_in: dict[int, list[Place]] = {}  # what the spec sets, by the steps of the program
    back = {name: basis.inverse for name, basis in bases_of(program, checkpoint.tensors).items()}
    for at, cell in (
        (at, cell) for at, step in zip(algorithm.places, algorithm.steps, strict=True) for cell, _ in step
    ):
        slot, c = _slot_of(program.stream(cell.stream), cell, back.get(cell.stream))
        place = (cell.stream, slot.name)
        if fields.get(place, writer.fields[cell.number]) != writer.fields[cell.number]:
            raise Unplaced(f"{fields[place]} and {writer.fields[cell.number]} are in one slot")
        fields[place], scales[place] = writer.fields[cell.number], c
        set_in.setdefault(at, []).append(place)
    variables = _places(program, algorithm.variables, back)
    slots: dict[Place, str] = {}
    streams, basis, tensors = [], dict(program.basis), dict(checkpoint.tensors)
    for stream in program.streams:
        factors, made = np.ones(stream.width), []
        for number, slot in enumerate(stream.slots, 1):
            place = (stream.name, slot.name)
            slots[place] = fields.get(place, f"~{number}")
            role = "field" if place in fields else slot.role
            if role == "field" and place not in fields:
                role = "scratch" if place in variables else "constant"
            made.append(replace(slot, role=role, meaning=""))
            factors[slot.columns] = scales.get(place, 1.0)
        streams.append(replace(stream, slots=tuple(made)))
        if (factors != 1).any():
            name = f"basis.{stream.name}.scaled"
            before = tensors[basis[stream.name]] if stream.name in basis else np.eye(stream.width)
            tensors[name], basis[stream.name] = before * factors, name
    again = _set_again(replace(program, streams=tuple(streams), basis=basis), tensors, set_in)
    if again:
        raise Unplaced("a field is set to what it is", again=again)
    layer, place_of = _joined(program.layer, algorithm, set_in)
    lasting = {one.name for one in program.outputs if _is_lasting(checked, writer.outputs.get(one.name, one.name))}
    program = replace(
        program,
        name="explained",
        streams=tuple(streams),
        layer=tuple(layer),
        outputs=tuple(
            replace(one, again=None if one.again is None or one.name in lasting else place_of[one.again])
            for one in program.outputs
        ),
        basis=basis,
    )
    program = Renaming(writer.sets, writer.fields, slots, writer.outputs).program(_with_true_writes(program))
    program = stated(program, tensors)
    used = program.tensors()
    kept = {name: array for name, array in tensors.items() if name in used}
    return Checkpoint(program, kept, "explained", checked.spec.source.text, {}, {}, checkpoint.compiler)


def _is_lasting(checked: Checked, output: str) -> bool:
    """Whether nothing changes later in a layer of what a shown field has been computed from."""
    field = checked.output_field(output)
    return field is not None and field in checked.fields and outdated(checked, field) is None


def _slot_of(stream: Stream, cell: ResidualCell, back: Array | None) -> tuple[Slot, float]:
    """The slot that a cell is, and its value per unit of the slot's."""
    rows = cell.directions if back is None else back @ cell.directions
    filled = [slot for slot in stream.slots if magnitude(rows[slot.columns]) > noise() * magnitude(rows)]
    if len(filled) == 1 and filled[0].width == rows.shape[1]:
        c = ratio(rows[filled[0].columns], np.eye(rows.shape[1]))
        if c is not None:
            return filled[0], 1.0 if abs(c - 1) < noise() else c
    several = frozenset((stream.name, slot.name) for slot in filled)
    raise Unplaced("a field is spread over several slots of the file", several)


def _places(program: Program, cells: Iterable[ResidualCell], back: Mapping[str, Array]) -> set[Place]:
    """The slots that cells have a part in."""
    found = set()
    for cell in cells:
        rows = back[cell.stream] @ cell.directions if cell.stream in back else cell.directions
        for slot in program.stream(cell.stream).slots:
            if magnitude(rows[slot.columns]) > noise() * magnitude(rows):
                found.add((cell.stream, slot.name))
    return found


def _set_again(
    program: Program, tensors: Mapping[str, Array], set_in: Mapping[int, list[Place]]
) -> frozenset[tuple[int, Place]]:
    """Fields that the matrices of a step change, though no equation does."""
    matrices = Matrices.of(program, tensors)
    return frozenset(
        (at, place)
        for at, step in enumerate(program.layer)
        for place in matrices.fields(step)
        if place not in set_in.get(at, ())
    )


def _joined(
    steps: tuple[ProgramStep, ...], algorithm: Algorithm, set_in: Mapping[int, list[Place]]
) -> tuple[list[ProgramStep], dict[int, int]]:
    """Steps that set no field of the spec joined with the next one, or the last one; and where each went."""
    found: list[ProgramStep] = []
    place_of: dict[int, int] = {}
    waiting: tuple[Sublayer, ...] = ()
    for at, step in enumerate(steps):
        place_of[at] = len(found)
        if at in algorithm.places or not algorithm.places:
            found.append(ProgramStep(waiting + step.sublayers, tuple(set_in.get(at, ()))))
            waiting = ()
        else:
            waiting += step.sublayers
    if waiting:
        found[-1] = replace(found[-1], sublayers=found[-1].sublayers + waiting)
    return found, {at: min(place, len(found) - 1) for at, place in place_of.items()}


def _with_true_writes(program: Program) -> Program:
    """The program with steps that set fields, and only claim to set these."""
    roles = {(stream.name, slot.name): slot.role for stream in program.streams for slot in stream.slots}

    def steps(given: tuple[ProgramStep, ...]) -> tuple[ProgramStep, ...]:
        return tuple(
            ProgramStep(step.sublayers, tuple(place for place in step.writes if roles[place] == "field"))
            for step in given
        )

    return replace(program, prelude=steps(program.prelude), layer=steps(program.layer), readout=steps(program.readout))


@dataclass(frozen=True, slots=True)
class Renaming:
    """New names for everything that a program names."""

    sets: Mapping[str, str]
    fields: Mapping[object, str]  # of inputs
    slots: Mapping[Place, str]
    outputs: Mapping[str, str]

    def program(self, program: Program) -> Program:
        return replace(
            program,
            streams=tuple(map(self.stream, program.streams)),
            inputs=tuple(map(self.input, program.inputs)),
            noises=tuple(map(self.input, program.noises)),
            embedding=tuple(map(self.embed, program.embedding)),
            prelude=tuple(map(self.step, program.prelude)),
            layer=tuple(map(self.step, program.layer)),
            readout=tuple(map(self.step, program.readout)),
            outputs=tuple(map(self.output, program.outputs)),
            objective=None if program.objective is None else self.output(program.objective),
            conditions=tuple(
                replace(one, stream=self.sets[one.stream], slots=tuple(self.slots[one.stream, s] for s in one.slots))
                for one in program.conditions
            ),
            basis={self.sets[stream]: name for stream, name in program.basis.items()},
        )

    def stream(self, stream: Stream) -> Stream:
        slots = tuple(replace(slot, name=self.slots[stream.name, slot.name], meaning="") for slot in stream.slots)
        return replace(stream, name=self.sets[stream.name], slots=slots, derived=tuple(map(self.ffn, stream.derived)))

    def input(self, given: Input) -> Input:
        init = given.init
        if init is not None:
            init = (init[0], None if init[1] is None else self.fields[init[1]])
        slot = self.slots[given.stream, given.slot]
        return replace(given, name=self.fields[given.name], slot=slot, stream=self.sets[given.stream], init=init)

    def embed(self, embed: Embed) -> Embed:
        named = self.fields.get(embed.source) if embed.kind in ("input", "noise") else self.sets.get(embed.source)
        source = named or embed.source
        return replace(embed, stream=self.sets[embed.stream], slot=self.slots[embed.stream, embed.slot], source=source)

    def places(self, places: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple((self.sets[stream], self.slots[stream, slot]) for stream, slot in places)

    def step(self, step: ProgramStep) -> ProgramStep:
        return ProgramStep(tuple(map(self.sublayer, step.sublayers)), self.places(step.writes))

    def sublayer(self, sublayer: Sublayer) -> Sublayer:
        if isinstance(sublayer, FFN):
            return self.ffn(sublayer)
        carry = {self.sets[stream]: name for stream, name in sublayer.carry.items()}
        heads = tuple(replace(self.head(head), name=f"h{at}") for at, head in enumerate(sublayer.heads, 1))
        return Attend(carry, heads, self.places(sublayer.writes))

    def ffn(self, ffn: FFN) -> FFN:
        writes = tuple(self.slots[ffn.stream, slot] for slot in ffn.writes)
        return replace(ffn, stream=self.sets[ffn.stream], writes=writes, origin="")

    def head(self, head: Head) -> Head:
        writes = tuple(self.slots[head.query, slot] for slot in head.writes)
        query, keys = self.sets[head.query], self.sets[head.keys]
        return replace(head, query=query, keys=keys, writes=writes, origin="")

    def output(self, output: ProgramOutput) -> ProgramOutput:
        name = self.outputs.get(output.name, output.name)
        slot = self.slots.get((output.stream, output.slot), "")
        head = None if output.head is None else self.head(output.head)
        return replace(output, name=name, stream=self.sets[output.stream], slot=slot, head=head)
