"""Which heads and feed-forwards carry out which equation: a program and its spec -> lines of the spec and their parts.

The answer is read off the matrices, not off names: a part belongs to an equation when what it writes flows into the
slot that the equation sets. Feed-forwards that bring derived slots up to date behind it belong to it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from weftc.core.source import Span
from weftc.core.syntax import Expr, Ref, walk
from weftc.core.types import Checked
from weftc.emit.matrices import Array
from weftc_runtime.format import program as ir
from weftc_runtime.format.checkpoint import Checkpoint

Place = tuple[str, str]  # stream, slot
OBJECTIVE = "objective"


@dataclass(frozen=True, slots=True)
class EquationLine:
    """Something in the text of a spec that becomes part of the program. `key` is unique on a page."""

    key: str
    section: Literal["start", "layer", "readout", "let"]
    step: int  # of the layer, from 0
    target: str
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Correspondence:
    """The lines of a spec, and for every part of the program (by its key) the keys of the lines it belongs to."""

    lines: tuple[EquationLine, ...]
    parts: Mapping[str, tuple[str, ...]]

    def parts_of(self, line: EquationLine) -> tuple[str, ...]:
        """The parts of a line, in the order of the program."""
        return tuple(part for part, keys in self.parts.items() if line.key in keys)


def head_key(place: str, sublayer: int, head: int) -> str:
    """The key of a head: where it stands."""
    return f"{place}.{sublayer}.{head}"


def map_key(place: str, sublayer: int) -> str:
    """The key of a feed-forward."""
    return f"{place}.{sublayer}"


def output_key(name: str) -> str:
    """The key of a head whose weights are an answer."""
    return f"output.{name}"


def correspondence(checked: Checked, checkpoint: Checkpoint) -> Correspondence:
    """Every line of the spec with its parts."""
    lines = tuple(_lines(checked))
    parts: dict[str, list[str]] = {}
    slicer, earlier = _Slicer(checkpoint), list[tuple[str, ir.ProgramStep]]()
    for place, step in shown_steps(checkpoint.program):
        for key in _part_keys(place, step):
            parts[key] = []
        for line in _lines_of(place, step, lines):
            for key in slicer.parts(place, step, _targets(line, checked, checkpoint.program), earlier):
                parts[key].append(line.key)
        earlier.append((place, step))
    for output in checkpoint.program.outputs:
        if output.head is not None:
            named = [line.key for line in lines if line.section == "readout" and line.target == output.name]
            parts[output_key(output.name)] = named
    for line in lines:
        if line.section == "let":
            users = set(_users(checked, line.target, lines))
            for keys in parts.values():
                if users & set(keys):
                    keys.append(line.key)
    return Correspondence(lines, {key: tuple(dict.fromkeys(keys)) for key, keys in parts.items()})


def shown_steps(program: ir.Program) -> Iterator[tuple[str, ir.ProgramStep]]:
    """The steps of a program; of unrolled layers, which differ in nothing but their names, the first."""
    first = len(program.steps_of(0))
    for place, step in program.places():
        section, _, index = place.partition(".")
        if section != "layer" or int(index) < first:
            yield place, step


# ---- lines of the spec -----------------------------------------------------------------------------------------------


def _lines(checked: Checked) -> Iterator[EquationLine]:
    spec, said = checked.spec, checked.spec.source.said
    found: list[tuple[Literal["start", "layer", "readout", "let"], int, str, Span]] = []
    found += [("let", 0, let.target.name, let.span) for let in spec.lets]
    found += [("start", 0, one.target.name, one.span) for one in spec.state]
    for number, step in enumerate(spec.steps):
        found += [("layer", number, one.target.name, one.span) for one in step.equations]
    for output in spec.outputs:
        if not (isinstance(output.body, Ref) and not output.body.indices):
            found.append(("readout", 0, output.target.name, output.span))
    if spec.objective is not None:
        found.append(("readout", 0, OBJECTIVE, spec.objective.span))
    for at, (section, number, target, span) in enumerate(sorted(found, key=lambda one: one[3])):
        yield EquationLine(f"e{at}", section, number, target, said(span), span)


def _lines_of(place: str, step: ir.ProgramStep, lines: tuple[EquationLine, ...]) -> Iterator[EquationLine]:
    """The lines that a step says it computes."""
    section = {"prelude": "start", "layer": "layer", "readout": "readout"}[place.partition(".")[0]]
    for line in lines:
        told = f"{OBJECTIVE} {line.text}" if line.target == OBJECTIVE and section == "readout" else line.text
        if line.section == section and told in step.equations:
            yield line


def _users(checked: Checked, name: str, lines: tuple[EquationLine, ...]) -> Iterator[str]:
    """The lines whose expressions use a definition, directly or through another."""
    spec = checked.spec
    bodies: dict[Span, Expr] = {let.span: let.body for let in spec.lets}
    bodies |= {one.span: one.body for step in spec.steps for one in step.equations}
    bodies |= {output.span: output.body for output in spec.outputs}
    if spec.objective is not None:
        bodies[spec.objective.span] = spec.objective
    for line in lines:
        body = bodies.get(line.span)
        if body is not None and any(isinstance(node, Ref) and node.name == name for node in walk(body)):
            yield line.key
            if line.section == "let":
                yield from _users(checked, line.target, lines)


def _targets(line: EquationLine, checked: Checked, program: ir.Program) -> set[Place]:
    """Where a line leaves its value."""
    if line.section in ("start", "layer"):
        return {(checked.fields[line.target].home, line.target)}
    if line.target == OBJECTIVE and program.objective is not None:
        return {(program.objective.stream, program.objective.slot)}
    return {(o.stream, o.slot) for o in program.outputs if o.name == line.target and o.slot}


# ---- parts of the program --------------------------------------------------------------------------------------------


def _part_keys(place: str, step: ir.ProgramStep) -> Iterator[str]:
    for n, sublayer in enumerate(step.sublayers):
        if isinstance(sublayer, ir.FFN):
            yield map_key(place, n)
        else:
            yield from (head_key(place, n, m) for m in range(len(sublayer.heads)))


class _Slicer:
    """Follows values backwards through the matrices of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.reader = _Reader(checkpoint)
        streams = checkpoint.program.streams
        self.scratch = {(stream.name, s.name) for stream in streams for s in stream.slots if s.role == "scratch"}

    def parts(
        self, place: str, step: ir.ProgramStep, targets: set[Place], earlier: list[tuple[str, ir.ProgramStep]]
    ) -> list[str]:
        """The parts that the targets of a step depend on, and the maps that follow from the targets.

        Fields are where one equation ends and another begins; scratch is followed into earlier steps of the section.
        """
        found, live = self._backwards(place, step, set(targets))
        for before, other in reversed(earlier):
            if before.partition(".")[0] == place.partition(".")[0]:
                more, live = self._backwards(before, other, live & self.scratch)
                found += more
        changed = set(targets)
        for n, sublayer in enumerate(step.sublayers):
            key = map_key(place, n)
            if isinstance(sublayer, ir.FFN) and key not in found and self.reader.map(sublayer) & changed:
                found.append(key)
                changed |= {(sublayer.stream, slot) for slot in sublayer.writes}
        return found

    def _backwards(self, place: str, step: ir.ProgramStep, live: set[Place]) -> tuple[list[str], set[Place]]:
        """The parts of a step that some slots depend on, and what they depended on before it."""
        reader, found = self.reader, []
        for n, sublayer in reversed(list(enumerate(step.sublayers))):
            if isinstance(sublayer, ir.FFN):
                if live & {(sublayer.stream, slot) for slot in sublayer.writes}:
                    found.append(map_key(place, n))
                    live = live | reader.map(sublayer)
                continue
            before = {one for one in live if one[0] not in sublayer.carry}
            for stream, name in sublayer.carry.items():
                wanted = {slot for home, slot in live if home == stream}
                before |= reader.slots(stream, reader.rows(name, stream, wanted))
            for m, head in enumerate(sublayer.heads):
                if live & {(head.query, slot) for slot in head.writes}:
                    found.append(head_key(place, n, m))
                    before |= reader.head(head)
            live = before
        return found, live


class _Reader:
    """Which slots the matrices of a checkpoint read."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.tensors, self.program = checkpoint.tensors, checkpoint.program

    def slots(self, stream: str, matrix: Array) -> set[Place]:
        """The slots that some matrix over a stream reads."""
        table = np.atleast_2d(matrix)
        return {(stream, s.name) for s in self.program.stream(stream).slots if table[:, s.columns].any()}

    def rows(self, name: str, stream: str, wanted: set[str]) -> Array:
        """The rows of a carry that end in some slots."""
        matrix = self.tensors[name]
        kept = [matrix[s.columns] for s in self.program.stream(stream).slots if s.name in wanted]
        return np.concatenate([*kept, np.zeros((1, matrix.shape[1]))])

    def map(self, ffn: ir.FFN) -> set[Place]:
        """What a feed-forward reads."""
        names = [ffn.a] if ffn.b is None else [ffn.a, ffn.b]
        return {place for name in names for place in self.slots(ffn.stream, self.tensors[name])}

    def head(self, head: ir.Head) -> set[Place]:
        """What a head reads, of the query and of the keys."""
        found: set[Place] = set()
        for score in (head.score, *(mask.score for mask in head.masks)):
            for part in score.nested():
                found |= self.slots(head.query, self.tensors[part.q]) | self.slots(head.keys, self.tensors[part.k])
                if part.scale is not None:
                    side = head.query if part.scale[0] == "query" else head.keys
                    found |= self.slots(side, self.tensors[part.scale[1]])
        if head.weighting.kind not in ("lse", "max"):
            found |= self.slots(head.keys, self.tensors[head.value])
        if head.self_key is not None:
            found |= self.slots(head.query, self.tensors[head.self_key.value])
            if head.self_key.row is not None:
                found |= self.slots(head.query, self.tensors[head.self_key.row])
        return found
