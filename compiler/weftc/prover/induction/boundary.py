"""The residual between two steps as the induction knows it: fields are free symbols, everything else follows from them.

field       free symbols, the same as on the side of the spec
constant    what the embedding fills in; else what the prelude has left there, as a symbol that every equal slot shares
derived     the function of fields and constants that its feed-forwards compute, whatever was there before
scratch     zero; or the logarithm of a field that was written beside it; or unknown, so that nothing may depend on it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from weftc.prover.induction.state import Rows
from weftc.prover.kernel import Kernel, equal
from weftc.prover.kernel.polynomials import Poly, constant, freeze, number
from weftc.prover.kernel.rules import Unproved
from weftc.prover.model_side.heads import SlotGaps, SymbolicResidual
from weftc.prover.model_side.matrices import Vector
from weftc.prover.model_side.sublayers import ModelTerms
from weftc_runtime.format.program import Program, Slot, Stream

Cell: TypeAlias = tuple[str, int, int]  # stream, token (0 for an open stream), column
Known: TypeAlias = Mapping[Cell, Poly]  # what is known of scratch columns that are not zero


class Boundary:
    """Makes the residual at a step boundary, and reads one back."""

    def __init__(self, algebra: Kernel, program: Program, model: ModelTerms, symbols: Mapping[str, Rows]) -> None:
        self.algebra, self.program, self.model, self.symbols = algebra, program, model, symbols
        self.kept: dict[Cell, Poly] = {}  # constants that the prelude computes
        self._embedded = {(e.stream, e.slot): e for e in program.embedding}
        self._derived: dict[str, list[Vector]] | None = None
        self._faults: SlotGaps = {}
        self._made: dict[tuple[tuple[Cell, object], ...], SymbolicResidual] = {}

    def replace_symbols(self, symbols: Mapping[str, Rows]) -> None:
        """Takes other symbols for fields."""
        self.symbols, self._derived, self._made = symbols, None, {}

    # ---- making ------------------------------------------------------------------------------------------------------

    def residual(self, known: Known) -> SymbolicResidual:
        """The residual when this is known of the scratch columns."""
        key = tuple(sorted((cell, freeze(p)) for cell, p in known.items()))
        if key not in self._made:
            tokens = {s.name: self._tokens(s, known) for s in self.program.streams}
            self._made[key] = SymbolicResidual(tokens, faults=dict(self._faults))
        return self._made[key]

    def _tokens(self, stream: Stream, known: Known) -> list[Vector]:
        if self._derived is None:
            self._derived = self._derive()
        found = []
        for token in range(stream.size or 1):
            z = self._plain(stream, token)
            for slot in stream.slots:
                for column in _columns(slot):
                    if slot.role == "derived":
                        z[column] = self._derived[stream.name][token][column]
                    elif slot.role == "scratch":
                        z[column] = known.get((stream.name, token, column), {})
            found.append(z)
        return found

    def _plain(self, stream: Stream, token: int) -> Vector:
        """Fields and constants; other columns are unknown."""
        z: Vector = []
        for slot in stream.slots:
            rows = self.symbols.get(slot.name) if slot.role == "field" else None
            if rows is not None and len(rows) == (stream.size or 1) and len(rows[token]) == slot.width:
                z += rows[token]
            elif slot.role == "constant":
                z += [self.constant(stream, slot, token, column) for column in _columns(slot)]
            else:
                z += [self.unknown(stream, slot, token, column) for column in _columns(slot)]
        return z

    def constant(self, stream: Stream, slot: Slot, token: int, column: int) -> Poly:
        """What a constant slot holds."""
        embed = self._embedded.get((stream.name, slot.name))
        place = column - slot.offset
        match embed.kind if embed is not None else "":
            case "one":
                return number(1)
            case "identity":
                return (
                    number(int(place == token))
                    if stream.size == slot.width
                    else self.unknown(stream, slot, token, column)
                )
            case "position":
                if stream.size is not None:
                    return number(token + 1)
                return self.algebra.atom("position", stream.name, (0,))
            case "count":
                assert embed is not None
                size = self.program.stream(embed.source).size
                return self.algebra.atom("count", embed.source) if size is None else number(size)
            case "null":
                return {}  # the null token alone holds something there
            case "":
                return self.kept.get((stream.name, token, column), {})
        raise Unproved(f"an embedding of kind {embed.kind if embed else ''}")

    def unknown(self, stream: Stream, slot: Slot, token: int, column: int) -> Poly:
        """A number of which nothing is known."""
        name = f"{stream.name}.{slot.name}.{column - slot.offset + 1}"
        return self.algebra.atom("other", (name, token), () if stream.size is not None else (0,))

    def _derive(self) -> dict[str, list[Vector]]:
        """The derived slots as functions of fields and constants; an error if they change or read anything else."""
        state = SymbolicResidual(
            {s.name: [self._plain(s, t) for t in range(s.size or 1)] for s in self.program.streams}
        )
        before = {name: [list(z) for z in tokens] for name, tokens in state.z.items()}
        self.model.refresh(state)
        for stream in self.program.streams:
            for token, z in enumerate(state.z[stream.name]):
                for slot in stream.slots:
                    for column in _columns(slot):
                        if slot.role != "derived" and z[column] != before[stream.name][token][column]:
                            raise Unproved(f"bringing derived slots up to date changes {slot.name} of {stream.name}")
                        if slot.role == "derived" and self.has_unknown(z[column]):
                            what = f"the derived slot {slot.name} of {stream.name}"
                            raise Unproved(f"{what} is not a function of fields and constants")
        self._faults = state.faults
        return state.z

    def has_unknown(self, p: Poly) -> bool:
        """Whether p depends on a number of which nothing is known."""
        return any(self.algebra.holds_kind(a, "other") for mono in p for a, _ in mono)

    # ---- reading back ------------------------------------------------------------------------------------------------

    def keep_constants(self, state: SymbolicResidual) -> None:
        """Takes what the prelude left in constant slots as given from here on."""
        for stream in self.program.streams:
            for slot in stream.slots:
                if slot.role == "constant" and (stream.name, slot.name) not in self._embedded:
                    for token, z in enumerate(state.z[stream.name]):
                        for column in _columns(slot):
                            self.kept[stream.name, token, column] = self._kept(z[column])
        self._derived = None
        self._made = {}

    def _kept(self, p: Poly) -> Poly:
        if constant(p) is not None:
            return p
        inside, tokens = self.algebra.local(p)
        return self.algebra.atom("kept", ("kept", freeze(inside)), tokens)

    def changed_constants(
        self, before: SymbolicResidual, after: SymbolicResidual, embedded: bool = False
    ) -> str | None:
        """A constant that a step changes; `embedded`: of those that the embedding fills, the others are being set."""
        for stream in self.program.streams:
            for slot in stream.slots:
                if slot.role == "constant" and (not embedded or (stream.name, slot.name) in self._embedded):
                    for old, new in zip(before.z[stream.name], after.z[stream.name], strict=True):
                        if old is not new and any(old[c] != new[c] for c in _columns(slot)):
                            return f"the constant {slot.name} of {stream.name} changes"
        return None

    def scratch(self, state: SymbolicResidual, written: Iterable[str]) -> dict[Cell, Poly]:
        """What is known of the scratch columns after a step that wrote these fields."""
        fields = set(written)
        known: dict[Cell, Poly] = {}
        for stream in self.program.streams:
            for slot in stream.slots:
                if slot.role != "scratch":
                    continue
                beside = [s for s in stream.slots if s.name in fields and s.role == "field" and s.width == slot.width]
                for token, z in enumerate(state.z[stream.name]):
                    for place, column in enumerate(_columns(slot)):
                        if z[column]:
                            found = self._as_logarithm(z, column, beside, token, place)
                            cell = (stream.name, token, column)
                            known[cell] = found or self.unknown(stream, slot, token, column)
        return known

    def _as_logarithm(self, z: Vector, column: int, beside: list[Slot], token: int, place: int) -> Poly | None:
        for slot in beside:
            if equal(self.algebra, self.algebra.exp(z[column]), z[slot.offset + place]):
                return self.algebra.log(self.symbols[slot.name][token][place])
        return None

    def unknown_answers(self) -> dict[Cell, Poly]:
        """Nothing known of the scratch in which answers are read."""
        written = {(output.stream, output.slot) for output in self.program.answers()}
        return {
            (stream.name, token, column): self.unknown(stream, slot, token, column)
            for stream in self.program.streams
            for slot in stream.slots
            if slot.role == "scratch" and (stream.name, slot.name) in written
            for token in range(stream.size or 1)
            for column in _columns(slot)
        }

    def join(self, one: Known, other: Known) -> dict[Cell, Poly]:
        """What holds in both cases."""
        joined: dict[Cell, Poly] = {}
        streams = {stream.name: stream for stream in self.program.streams}
        for cell in (*one, *(cell for cell in other if cell not in one)):
            p, q = one.get(cell, {}), other.get(cell, {})
            if p == q:
                joined[cell] = p
            else:
                stream = streams[cell[0]]
                slot = next(s for s in stream.slots if s.offset <= cell[2] < s.offset + s.width)
                joined[cell] = self.unknown(stream, slot, cell[1], cell[2])
        return {cell: p for cell, p in joined.items() if p}


def _columns(slot: Slot) -> range:
    return range(slot.offset, slot.offset + slot.width)
