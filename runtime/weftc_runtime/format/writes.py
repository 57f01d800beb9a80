"""What the matrices of a program change, and whether the program says so. NumPy only.

A sub-layer changes a slot when a row of its carry is not that of the identity, or when a row of `out`, V or V0 is not
zero. `writes` must be what the matrices say: readers of a file, the runtime among them, go by it.

    FFN.writes      carry and out           Head.writes     V and V0
    Attend.writes   every slot that the carry changes
    Step.writes     the fields that its sub-layers change

The last two may name a further slot, if it is an input or something changes it: `c[j] = c[j]` sets c to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from weftc_runtime.errors import need, shown
from weftc_runtime.format.basis import NOISE, Basis, bases_of
from weftc_runtime.format.program import FFN, Attend, Head, Program, ProgramOutput, ProgramStep, Stream, Sublayer

Place = tuple[str, str]  # stream, slot
Changes = dict[Place, str]  # a slot that is changed -> the entry that does it, in words


@dataclass(frozen=True, slots=True)
class Matrices:
    """The matrices of a program, as changes of slots."""

    streams: Mapping[str, Stream]
    tensors: Mapping[str, npt.NDArray[np.float64]]
    bases: Mapping[str, Basis]

    @classmethod
    def of(cls, program: Program, tensors: Mapping[str, npt.NDArray[np.float64]]) -> Matrices:
        return cls({stream.name: stream for stream in program.streams}, tensors, bases_of(program, tensors))

    def ffn(self, ffn: FFN) -> Changes:
        return self._rows(ffn.stream, ffn.out) | self._rows(ffn.stream, ffn.carry, carried=True)

    def head(self, head: Head) -> Changes:
        own = head.self_key.value if head.self_key is not None else ""
        return self._rows(head.query, own) | self._rows(head.query, head.value)

    def carried(self, attend: Attend) -> Changes:
        """What the carries of an attention sub-layer change."""
        return _all(self._rows(stream, name, carried=True) for stream, name in attend.carry.items())

    def attend(self, attend: Attend) -> Changes:
        return _all(map(self.head, attend.heads)) | self.carried(attend)

    def step(self, step: ProgramStep) -> Changes:
        return _all(self.ffn(sub) if isinstance(sub, FFN) else self.attend(sub) for sub in step.sublayers)

    def fields(self, step: ProgramStep) -> Changes:
        """The fields that a step changes."""
        roles = {(stream.name, slot.name): slot.role for stream in self.streams.values() for slot in stream.slots}
        return {place: why for place, why in self.step(step).items() if roles[place] == "field"}

    def _rows(self, stream: str, name: str, carried: bool = False) -> Changes:
        """The slots whose rows are not zero; of a carry, not those of the identity."""
        if not name:
            return {}
        matrix = np.asarray(self.tensors[name], np.float64)
        differs = matrix != 0
        if carried:
            np.fill_diagonal(differs, matrix.diagonal() != 1)
        if stream in self.bases:  # rows of B^-1 M: zero, or those of B^-1, up to what rounding leaves
            inverse, kept = self.bases[stream].inverse, np.eye(len(matrix)) if carried else np.zeros_like(matrix)
            matrix, kept, terms = inverse @ matrix, inverse @ kept, np.abs(inverse) @ (np.abs(matrix) + np.abs(kept))
            differs = np.abs(matrix - kept) > NOISE * terms
        found = {}
        changed = differs.any(axis=1).tolist()
        for slot in self.streams[stream].slots if any(changed) else ():
            rows = [row for row in range(slot.offset, slot.offset + slot.width) if changed[row]]
            if rows:
                row, column = rows[0], int(differs[rows[0]].argmax())
                found[stream, slot.name] = f"{shown(name)} has {matrix[row, column]:g} at [{row}, {column}]"
        return found


def check_writes(program: Program, tensors: Mapping[str, npt.NDArray[np.float64]]) -> None:
    """Raises `ModelError` unless every `writes` of the program is what its matrices change."""
    matrices = Matrices.of(program, tensors)
    set_by_steps = _all(map(matrices.step, program.steps()))
    known = {(given.stream, given.slot) for given in (*program.inputs, *program.noises)} | set(set_by_steps)
    for stream in program.streams:
        for index, ffn in enumerate(stream.derived):
            _same(f"streams.{shown(stream.name)}.derived.{index}", _placed(stream.name, ffn.writes), matrices.ffn(ffn))
    for path, step in program.places():
        for index, sublayer in enumerate(step.sublayers):
            _check_sublayer(f"{path}.{index}", sublayer, matrices, known)
        _same(path, step.writes, matrices.fields(step), known)
    for answer in program.answers():
        if answer.head is not None:
            _check_head(f"outputs.{shown(answer.name)}", answer.head, matrices)


def _check_sublayer(where: str, sublayer: Sublayer, matrices: Matrices, known: Set[Place]) -> None:
    if isinstance(sublayer, FFN):
        _same(where, _placed(sublayer.stream, sublayer.writes), matrices.ffn(sublayer))
        return
    for head in sublayer.heads:
        _check_head(f"{where}.{shown(head.name)}", head, matrices)
    _same(where, sublayer.writes, matrices.carried(sublayer), known)


def _check_head(where: str, head: Head, matrices: Matrices) -> None:
    _same(where, _placed(head.query, head.writes), matrices.head(head))


def _same(where: str, said: Iterable[Place], least: Changes, known: Set[Place] = frozenset()) -> None:
    """Every slot of `least` is declared, and no other that is not in `known`."""
    declared = set(said)
    for (stream, slot), entry in least.items():
        place = f"slot {shown(slot)} of stream {shown(stream)}"
        need((stream, slot) in declared, f"{where} changes {place} without saying so in its writes: tensor {entry}")
    for stream, slot in sorted(declared - set(least) - known):
        place = f"slot {shown(slot)} of stream {shown(stream)}"
        need(False, f"{where} says that it writes {place}, but none of its tensors changes it")


def stated(program: Program, tensors: Mapping[str, npt.NDArray[np.float64]]) -> Program:
    """The program with every `writes` true of its matrices: of trained or edited weights, say."""
    matrices = Matrices.of(program, tensors)

    def head(one: Head) -> Head:
        return replace(one, writes=_kept(one.writes, matrices.head(one)))

    def ffn(one: FFN) -> FFN:
        return replace(one, writes=_kept(one.writes, matrices.ffn(one)))

    def sublayer(one: Sublayer) -> Sublayer:
        if isinstance(one, FFN):
            return ffn(one)
        writes = tuple(dict.fromkeys((*one.writes, *matrices.carried(one))))
        return replace(one, heads=tuple(map(head, one.heads)), writes=writes)

    def step(one: ProgramStep) -> ProgramStep:
        writes = tuple(dict.fromkeys((*one.writes, *matrices.fields(one))))
        return replace(one, sublayers=tuple(map(sublayer, one.sublayers)), writes=writes)

    def output(one: ProgramOutput) -> ProgramOutput:
        return one if one.head is None else replace(one, head=head(one.head))

    return replace(
        program,
        streams=tuple(replace(one, derived=tuple(map(ffn, one.derived))) for one in program.streams),
        prelude=tuple(map(step, program.prelude)),
        layer=tuple(map(step, program.layer)),
        readout=tuple(map(step, program.readout)),
        outputs=tuple(map(output, program.outputs)),
        objective=None if program.objective is None else output(program.objective),
    )


def _kept(said: tuple[str, ...], changes: Changes) -> tuple[str, ...]:
    """What is declared and true, in its order, then what is missing."""
    slots = [slot for _, slot in changes]
    return (*(slot for slot in said if slot in slots), *(slot for slot in slots if slot not in said))


def _placed(stream: str, slots: Iterable[str]) -> tuple[Place, ...]:
    return tuple((stream, slot) for slot in slots)


def _all(parts: Iterable[Changes]) -> Changes:
    found: Changes = {}
    for part in parts:
        found |= part
    return found
