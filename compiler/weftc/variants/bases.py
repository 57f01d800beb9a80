"""A change of basis of every residual: z -> B z, every matrix with it, and B into the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from weftc.variants.drawing import Array, Kind, drawn
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import FFN, Attend, Head, Program, ProgramOutput, ProgramStep, Score, Sublayer
from weftc_runtime.format.tensors import NUMBER_HEADS


def rotated(checkpoint: Checkpoint, seed: int = 0, kind: Kind = "orthogonal") -> Checkpoint:
    """The model with every residual in a random orthogonal basis; `signed`: permutations and signs, without rounding;
    `dyadic`: columns mixed by fours, without rounding where weights are short binary fractions.

    The tensors `basis.STREAM` hold the bases: what the runtime stores is B z, and slots are read through the inverse.
    """
    rng = np.random.default_rng(seed)
    bases = {stream.name: drawn(stream.width, kind, rng) for stream in checkpoint.program.streams}
    return in_bases(checkpoint, bases, {stream: basis.T for stream, basis in bases.items()})


def scaled(checkpoint: Checkpoint, seed: int = 0) -> Checkpoint:
    """The model with every column of a residual in a unit of its own: powers of two, and so without rounding."""
    rng = np.random.default_rng(seed)
    powers = {stream.name: 2.0 ** rng.integers(-3, 4, stream.width) for stream in checkpoint.program.streams}
    there = {stream: np.diag(power) for stream, power in powers.items()}
    return in_bases(checkpoint, there, {stream: np.diag(1 / power) for stream, power in powers.items()})


def in_bases(checkpoint: Checkpoint, bases: Mapping[str, Array], inverses: Mapping[str, Array]) -> Checkpoint:
    """The model over residuals B z: Q B^-1 where Q was, B E B^-1 where E was, so that every product is what it was."""
    program = checkpoint.program
    moved = _Moved(checkpoint.tensors, bases, inverses)
    changed = moved.program(program)
    names = {stream: f"basis.{stream}" for stream in bases}
    for stream, basis in bases.items():
        before = program.basis.get(stream)
        moved.made[names[stream]] = basis if before is None else basis @ checkpoint.tensors[before]
    return replace(checkpoint, program=replace(changed, basis=names), tensors=moved.made)


@dataclass(slots=True)
class _Moved:
    """The parts of a program with their tensors in other coordinates."""

    tensors: Mapping[str, Array]
    bases: Mapping[str, Array]
    inverses: Mapping[str, Array]
    made: dict[str, Array] = field(default_factory=dict)
    names: dict[tuple[str, str | None, str | None], str] = field(default_factory=dict)

    def matrix(self, name: str, rows: str | None = None, columns: str | None = None) -> str:
        """The name of a tensor whose rows or columns belong to the residual of a stream."""
        key = (name, rows, columns)
        if key not in self.names:
            array = np.asarray(self.tensors[name])
            size = array.shape[0] if array.ndim == 2 and array.shape[0] == array.shape[1] else 0
            if not (size and rows == columns and np.array_equal(array, np.eye(size))):
                array = array if columns is None else array @ self.inverses[columns]
                array = array if rows is None else self.bases[rows] @ array
            new = name
            while new in self.made:  # one tensor with two uses that move differently
                new += "'"
            self.names[key], self.made[new] = new, array + 0.0
        return self.names[key]

    def program(self, program: Program) -> Program:
        objective = program.objective
        return replace(
            program,
            streams=tuple(replace(s, derived=tuple(map(self.feed_forward, s.derived))) for s in program.streams),
            prelude=tuple(map(self.step, program.prelude)),
            layer=tuple(map(self.step, program.layer)),
            readout=tuple(map(self.step, program.readout)),
            outputs=tuple(map(self.output, program.outputs)),
            objective=None if objective is None else self.output(objective),
        )

    def step(self, step: ProgramStep) -> ProgramStep:
        return replace(step, sublayers=tuple(map(self.sublayer, step.sublayers)))

    def sublayer(self, sublayer: Sublayer) -> Sublayer:
        if isinstance(sublayer, FFN):
            return self.feed_forward(sublayer)
        carry = {stream: self.matrix(name, stream, stream) for stream, name in sublayer.carry.items()}
        return Attend(carry, tuple(map(self.head, sublayer.heads)), sublayer.writes)

    def feed_forward(self, ffn: FFN) -> FFN:
        stream = ffn.stream
        return replace(
            ffn,
            carry=self.matrix(ffn.carry, stream, stream),
            a=self.matrix(ffn.a, columns=stream),
            b=None if ffn.b is None else self.matrix(ffn.b, columns=stream),
            out=self.matrix(ffn.out, stream),
        )

    def head(self, head: Head) -> Head:
        query, keys, own = head.query, head.keys, head.self_key
        value, columns = head.value, None if head.weighting.kind in NUMBER_HEADS else keys
        if own is not None:
            row = None if own.row is None else self.matrix(own.row, columns=query)
            own = replace(own, value=self.matrix(own.value, query, query) if own.value else "", row=row)
        return replace(
            head,
            score=self.score(head.score, query, keys),
            masks=tuple(replace(mask, score=self.score(mask.score, query, keys)) for mask in head.masks),
            value=self.matrix(value, query, columns) if value else "",
            self_key=own,
        )

    def score(self, score: Score, query: str, keys: str) -> Score:
        parts = []
        for part in score.parts:
            scale = part.scale
            if scale is not None:
                scale = (scale[0], self.matrix(scale[1], columns=query if scale[0] == "query" else keys))
            coefficient = None if part.coefficient is None else self.matrix(part.coefficient)
            q, k = self.matrix(part.q, columns=query), self.matrix(part.k, columns=keys)
            factors = tuple(replace(one, score=self.score(one.score, query, keys)) for one in part.factors)
            parts.append(replace(part, q=q, k=k, coefficient=coefficient, scale=scale, factors=factors))
        return Score(tuple(parts))

    def output(self, output: ProgramOutput) -> ProgramOutput:
        if output.head is None:
            return output
        scale = None if output.scale is None else self.matrix(output.scale, columns=output.head.query)
        return replace(output, head=self.head(output.head), scale=scale)
