"""A program and its tensors -> what its sub-layers compute, as polynomials: symbolic execution of the dense matrices.

The residual of a stream is one vector of polynomials per token of a fixed stream, and one, about token 0, for an open
stream. Heads become sums over keys with the weightings of `weights`; feed-forwards act on polynomials.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from weftc.prover.kernel import ONE
from weftc.prover.kernel.polynomials import Poly, add, scale, subtract
from weftc.prover.kernel.rules import Unproved
from weftc.prover.model_side.heads import HeadTerms, SymbolicResidual
from weftc.prover.model_side.matrices import Vector
from weftc_runtime.format.program import FFN, ProgramStep, Sublayer
from weftc_runtime.format.tensors import slots_read


class ModelTerms(HeadTerms):
    """Executes a program symbolically."""

    # ---- steps -------------------------------------------------------------------------------------------------------

    def run(self, step: ProgramStep, before: SymbolicResidual, refresh: bool = True) -> SymbolicResidual:
        """The residual after a step, its derived slots brought up to date."""
        state = before.copy()
        for sublayer in self._needed(step):
            self.sublayer(sublayer, state)
        if refresh:
            self.refresh(state)
        return state

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
            state.raised += self._lost(sublayer, state)
            state.z[name] = [self.feed_forward(sublayer, z, state.raised) for z in state.z[name]]
            return
        state.raised += self._lost(sublayer, state)
        new = {name: [self.matrices.apply(carry, z) for z in state.z[name]] for name, carry in sublayer.carry.items()}
        after = {**state.z, **new}
        for head in sublayer.heads:
            added = self.head(head, state)
            after[head.query] = [_added(z, more) for z, more in zip(after[head.query], added, strict=True)]
        state.z = after

    def _keep(self, ffn: FFN, state: SymbolicResidual) -> None:
        """A feed-forward that keeps derived slots: where it has no value, who reads one of its slots is stopped."""
        found = self._lost(ffn, state)
        state.z[ffn.stream] = [self.feed_forward(ffn, z, found) for z in state.z[ffn.stream]]
        for slot in ffn.writes:
            state.faults.pop((ffn.stream, slot), None)
            if found:
                state.faults[ffn.stream, slot] = tuple(found)

    def _lost(self, sublayer: Sublayer, state: SymbolicResidual) -> list[Poly]:
        """Where a derived slot that a sub-layer reads has no value."""
        if not state.faults:
            return []
        read = slots_read((sublayer,), self.streams, self.matrices.tensors)
        return [one for place in sorted(read) for one in state.faults.get(place, ())]

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
                return [algebra.multiply(p, q) for p, q in zip(a, b, strict=True)]
            case "select":
                assert b is not None
                flag = b[-1]
                if algebra.multiply(flag, flag) != flag:
                    raise Unproved("a selection by a number that is not known to be 0 or 1")
                other = subtract(ONE, flag)
                pairs = zip(a, b[:-1], strict=True)
                return [add(algebra.multiply(flag, p), algebra.multiply(other, q)) for p, q in pairs]
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
        square = algebra.square(a)
        if not square:
            if b is None:
                raise Unproved("a norm of zero")
            return b
        factor = algebra.multiply(algebra.sqrt(square), algebra.inverse(square))
        empty = algebra.nothing(square)
        if empty:
            self.fragile["a feed-forward: whether a vector is zero"] = None
        rows = [algebra.multiply(p, factor) for p in a]
        if b is None:
            raised += algebra.zeros(square)
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
