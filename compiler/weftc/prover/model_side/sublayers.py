"""A program and its tensors -> what its sub-layers compute, as polynomials: symbolic execution of the dense matrices.

The residual of a stream is one vector of polynomials per token of a fixed stream, and one, about token 0, for an open
stream. Heads become sums over keys with the weightings of `weights`; feed-forwards act on polynomials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from weftc.prover.kernel import ONE, selected
from weftc.prover.kernel.polynomials import Poly, add, scale, subtract
from weftc.prover.kernel.rules import Unproved
from weftc.prover.model_side.heads import NUMBER_HEADS, HeadTerms, SlotGap, SlotGaps, SymbolicResidual
from weftc.prover.model_side.matrices import Vector
from weftc_runtime.format.program import FFN, Head, ProgramStep, Slot, Sublayer


class ModelTerms(HeadTerms):
    """Executes a program symbolically."""

    # ---- steps -------------------------------------------------------------------------------------------------------

    def run(self, step: ProgramStep, before: SymbolicResidual, refresh: bool = True) -> SymbolicResidual:
        """The residual after a step, its derived slots brought up to date."""
        state = before.copy()
        for sublayer in self._needed(step):
            self.sublayer(sublayer, state)
        self._demand(state)
        if refresh:
            self.refresh(state)
        return state

    def _demand(self, state: SymbolicResidual) -> None:
        """A field must have a value after every step; scratch without one may be read later."""
        for stream in self.program.streams:
            for slot in stream.slots:
                place = (stream.name, slot.name)
                if slot.role != "derived" and place in state.faults:
                    state.read(place, surely=slot.role == "field")
                    del state.faults[place]

    def _needed(self, step: ProgramStep) -> tuple[Sublayer, ...]:
        """The sub-layers of a step, less those at its end that renew derived slots: the refresh does that anew."""
        sublayers = step.sublayers
        while sublayers and isinstance(last := sublayers[-1], FFN) and last in self.streams[last.stream].derived:
            sublayers = sublayers[:-1]
        return sublayers

    def refresh(self, state: SymbolicResidual) -> None:
        """Recomputes the derived slots of every token; one without a value matters only where it is read."""
        for stream in self.program.streams:
            for ffn in stream.derived:
                self._keep(ffn, state)

    def sublayer(self, sublayer: Sublayer, state: SymbolicResidual) -> None:
        """Applies one sub-layer."""
        if isinstance(sublayer, FFN):
            name = sublayer.stream
            slots = [self.streams[name].slot(slot) for slot in sublayer.writes]
            if slots and all(slot.role == "derived" for slot in slots):
                self._keep(sublayer, state)
                return
            self._read(sublayer, state)
            state.z[name] = [self.feed_forward(sublayer, z, state.raised) for z in state.z[name]]
            state.faults = self._moved({name: sublayer.carry}, state.faults)
            return
        self._read(sublayer, state)
        new = {name: [self.matrices.apply(carry, z) for z in state.z[name]] for name, carry in sublayer.carry.items()}
        after, lost = {**state.z, **new}, self._moved(sublayer.carry, state.faults)
        for head in sublayer.heads:
            added, every = self.head(head, state)
            after[head.query] = [_added(z, more) for z, more in zip(after[head.query], added, strict=True)]
            if head.value and head.weighting.kind not in NUMBER_HEADS:
                self._move(head.value, head.keys, head.query, self._weighed(head, state), lost, every)
            if head.self_key is not None and head.self_key.value:
                self._move(head.self_key.value, head.query, head.query, state.faults, lost, False)
        state.z, state.faults = after, lost

    def _keep(self, ffn: FFN, state: SymbolicResidual) -> None:
        """A feed-forward that keeps derived slots: where it has no value, they have none, and who reads one stops."""
        inside = SymbolicResidual({}, faults=state.faults)
        self._read(ffn, inside)
        state.z[ffn.stream] = [self.feed_forward(ffn, z, inside.raised) for z in state.z[ffn.stream]]
        state.faults = self._moved({ffn.stream: ffn.carry}, state.faults)
        used = self.matrices[ffn.out].columns()
        sure = not inside.feared and len(ffn.writes) == 1 and len(used) == len(self.matrices[ffn.a].rows)
        for slot in ffn.writes if inside.raised or inside.feared else ():
            _lose(state.faults, (ffn.stream, slot), SlotGap((*inside.raised, *inside.feared), sure))

    # ---- slots without a value ---------------------------------------------------------------------------------------

    def _moved(self, carries: Mapping[str, str], faults: SlotGaps) -> SlotGaps:
        """What has no value after residuals have been carried."""
        found = {place: fault for place, fault in faults.items() if place[0] not in carries}
        for stream, name in carries.items():
            self._move(name, stream, stream, faults, found, True)
        return found

    def _weighed(self, head: Head, state: SymbolicResidual) -> SlotGaps:
        """What values of a head lack, without what has no weight, whatever the fields are."""
        algebra, key = self.algebra, self.bound(head)
        if not state.weighed:
            return state.faults
        found = {}
        for place, fault in state.faults.items():
            where = fault.where
            if place[0] == head.keys:
                where = tuple(
                    p for p in where if any(algebra.multiply(w, algebra.rename(p, {0: key})) for w in state.weighed)
                )
            if where:
                found[place] = SlotGap(where, fault.sure and where == fault.where)
        return found

    def _move(self, name: str, source: str, target: str, faults: SlotGaps, found: SlotGaps, surely: bool) -> None:
        """Slots that a matrix fills from slots without a value have none, if these have a weight."""
        rows = self.matrices[name].rows
        for (stream, slot), fault in faults.items():
            columns = set(_columns(self.streams[stream].slot(slot)))
            for place in self.streams[target].slots if stream == source else ():
                read = columns & {column for row in _columns(place) for column, _ in rows[row]}
                if read:
                    sure = surely and fault.sure and read == columns
                    _lose(found, (target, place.name), SlotGap(fault.where, sure))

    def _read(self, sublayer: Sublayer, state: SymbolicResidual) -> None:
        """Notes where what a sub-layer needs of its tokens has no value: scores, masks, arguments of functions."""
        if state.faults:
            for stream, names, surely in self._arguments(sublayer):
                used = {column for name in names for column in self.matrices[name].columns()}
                for slot in self.streams[stream].slots:
                    if used & set(_columns(slot)):
                        state.read((stream, slot.name), surely and used.issuperset(_columns(slot)))

    def _arguments(self, sublayer: Sublayer) -> Iterator[tuple[str, list[str], bool]]:
        """Matrices whose products a sub-layer needs; and whether it does, whatever is eligible or selected."""
        if isinstance(sublayer, FFN):
            yield sublayer.stream, [sublayer.a], sublayer.function != "select"
            if sublayer.b is not None:
                yield sublayer.stream, [sublayer.b], sublayer.function == "product"
            return
        for head in sublayer.heads:
            for at, score in enumerate((*(mask.score for mask in head.masks), head.score)):
                for side, stream in (("query", head.query), ("key", head.keys)):
                    names = [part.q if side == "query" else part.k for part in score.nested()]
                    names += [
                        part.scale[1] for part in score.nested() if part.scale is not None and part.scale[0] == side
                    ]
                    yield stream, names, at == 0
            if head.self_key is not None and head.self_key.row is not None:
                yield head.query, [head.self_key.row], True

    # ---- feed-forwards -----------------------------------------------------------------------------------------------

    def feed_forward(self, ffn: FFN, z: Vector, stops: list[Poly]) -> Vector:
        """z' = E z + W f(A z, B z); `stops` gets where there is no such value."""
        used = self.matrices[ffn.a].columns() | (self.matrices[ffn.b].columns() if ffn.b else set())
        key = (id(ffn), tuple(id(z[column]) for column in sorted(used)))
        if key not in self._done:
            raised: list[Poly] = []
            out = self.matrices.apply(ffn.out, self._hidden(ffn, z, raised))
            self._done[key] = (out, raised, [z[column] for column in used], ffn)
        out, raised = self._done[key][:2]
        stops += raised
        return _added(self.matrices.apply(ffn.carry, z), dict(enumerate(out)))

    def _hidden(self, ffn: FFN, z: Vector, raised: list[Poly]) -> Vector:
        algebra = self.algebra
        a = self.matrices.apply(ffn.a, z)
        b = None if ffn.b is None else self.matrices.apply(ffn.b, z)
        match ffn.function:
            case "product":
                assert b is not None
                return [algebra.square([p]) if p == q else algebra.multiply(p, q) for p, q in zip(a, b, strict=True)]
            case "select":
                assert b is not None
                return selected(algebra, b[-1], list(zip(a, b[:-1], strict=True)))
            case "unit" | "layer":
                if ffn.function == "layer":
                    mean = scale(add({}, *a), Fraction(1, len(a)))
                    a = [subtract(p, mean) for p in a]
                return self._unit(a, b, raised)
            case "reciprocal":
                if any(not p for p in a):
                    raise Unproved("a feed-forward divides by zero")
        outside = [one for p in a for one in algebra.without_value(ffn.function, p)]
        if outside:
            self.fragile[f"a feed-forward: where {ffn.function} has a value"] = None
        raised += outside
        return [algebra.apply(ffn.function, p) for p in a]

    def _unit(self, a: Vector, b: Vector | None, raised: list[Poly]) -> Vector:
        algebra = self.algebra
        rows, length = algebra.unit(a)
        if not length:
            if b is None:
                raise Unproved("a norm of zero")
            return b
        empty = algebra.nothing(length)
        if empty:
            self.fragile["a feed-forward: whether a vector is zero"] = None
        if b is None:
            raised += algebra.zeros(length)
            return rows
        there = subtract(ONE, empty)
        return [add(algebra.multiply(p, there), algebra.multiply(q, empty)) for p, q in zip(rows, b, strict=True)]


def _added(z: Vector, more: Mapping[int, Poly]) -> Vector:
    """A vector with polynomials added to some columns."""
    if not more:
        return z
    result = list(z)
    for column, p in more.items():
        if p:
            result[column] = add(result[column], p) if result[column] else p
    return result


def _columns(slot: Slot) -> range:
    return range(slot.offset, slot.offset + slot.width)


def _lose(faults: SlotGaps, place: tuple[str, str], fault: SlotGap) -> None:
    """A slot has no value there either."""
    old = faults.get(place, SlotGap())
    faults[place] = SlotGap((*old.where, *fault.where), old.sure and fault.sure)
