"""Prelude and layers: every step computes its equations and keeps what the induction rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weftc.prover.induction.boundary import Cell, Known
from weftc.prover.induction.state import Rows
from weftc.prover.kernel import covers
from weftc.prover.kernel.derivation import ProofGoal
from weftc.prover.kernel.polynomials import Poly
from weftc.prover.kernel.rules import Unproved
from weftc.prover.model_side.heads import SymbolicResidual
from weftc.prover.model_side.readiness import unready
from weftc.prover.report.showing import show, summary
from weftc.prover.spec_side.expectation import LEFTOVER, Expectation, Undefined, Wanted
from weftc_runtime.format.program import Program, ProgramStep

MOST_ROUNDS = 16  # in which what one layer leaves behind reaches the next
UNSETTLED = f"{LEFTOVER}, further back than is followed"


class Steps(Expectation):
    """The steps of one attempt."""

    def prelude(self, starts: Sequence[Wanted]) -> dict[Cell, Poly]:
        late = unready(self.program, self.checkpoint.tensors)
        for sentence in late:
            self.note("start", "", "", sentence)
        self._forget(one.name for one in self.checked.fields.values() if one.role not in ("input", "random"))
        before = state = self.boundary.residual({})
        for step in self.program.prelude:
            state = self.model.run(step, state)
        self.assume(state)
        broken = self.boundary.changed_constants(before, state, embedded=True)
        if broken is not None:
            self.note("start", "", summary(self.program.prelude), broken)
        # A constant that the prelude computes is zero before it, and may change there and only there.
        self.compare("start", starts, state, summary(self.program.prelude))
        self._set(one.target for one in starts)
        self.boundary.keep_constants(state)
        self._state_invariants()
        return self.boundary.scratch(state, ())

    def _state_invariants(self) -> None:
        for stream in self.program.streams:
            for slot in stream.slots:
                where = f"{slot.name} of {stream.name}"
                if slot.role == "derived":
                    self.invariants[
                        f"{where} is a function of fields and constants of its token, renewed after every step"
                    ] = None
                elif slot.role == "constant":
                    self.invariants[f"{where} is constant: set by the embedding or the prelude, changed by no step"] = (
                        None
                    )
        for one in self.checked.fields.values():
            if one.kind in ("onehot", "simplex", "unit"):
                words = {"onehot": "is one-hot", "simplex": "adds up to one", "unit": "has length one"}[one.kind]
                self.invariants[f"every row of {one.name} {words}: by its equations or the contract of the input"] = (
                    None
                )

    def layers(self, steps: Sequence[Sequence[Wanted]], known: dict[Cell, Poly]) -> dict[Cell, Poly]:
        """All layers of the program; returns what holds between layers."""
        each = layers_of(self.program)
        if self.unset:
            self._first_layer(each[0], steps, known)
        for _ in range(MOST_ROUNDS):
            noted, assumed = len(self.equations), dict(self.assumptions)
            ends = [self._layer(number, group, steps, known) for number, group in enumerate(each)]
            joined = known
            for end in ends:
                joined = self.boundary.join(joined, end)
            if joined == known:
                self.remembers = any(map(self.boundary.has_unknown, known.values()))
                self._scratch_invariants(known)
                return known
            known = joined
            del self.equations[noted:]
            self.assumptions = assumed
        raise Unproved(UNSETTLED)

    # ---- fields that have not been set yet ---------------------------------------------------------------------------

    def _forget(self, fields: Iterable[str]) -> None:
        """Nothing is known of fields before they are set; they are zero then, though their kind may say otherwise."""
        for name in sorted(self.algebra.positive_fields.intersection(fields)):
            is_open = self.sizes.size(self.checked.fields[name].home) is None
            tokens: list[tuple[int, ...]] = [(0,)] if is_open else [()] * len(self.symbols[name])
            self.unset[name] = tuple(
                tuple(
                    self.algebra.atom("kept", (f"{name} before it is set", column, token), about)
                    for column in range(len(row))
                )
                for token, (row, about) in enumerate(zip(self.symbols[name], tokens, strict=True))
            )
        self.boundary.replace_symbols({**self.symbols, **self.unset})

    def _set(self, fields: Iterable[str]) -> None:
        """Fields have been set."""
        done = set(fields)
        self.unset = {name: rows for name, rows in self.unset.items() if name not in done}
        self.boundary.replace_symbols({**self.symbols, **self.unset})

    def _first_layer(
        self, group: Sequence[tuple[int, ProgramStep]], steps: Sequence[Sequence[Wanted]], known: dict[Cell, Poly]
    ) -> None:
        """The first layer, in which some fields are not set yet; what is shown there is shown again for every layer."""
        noted = len(self.equations)
        self._layer(0, group, steps, known)
        self.equations[noted:] = [one for one in self.equations[noted:] if one.strength == "not shown"]
        self._set(list(self.unset))

    def _scratch_invariants(self, known: Known) -> None:
        for stream in self.program.streams:
            for slot in stream.slots:
                if slot.role == "scratch":
                    cells = [c for c in known if c[0] == stream.name and slot.offset <= c[2] < slot.offset + slot.width]
                    words = (
                        "may hold anything between layers, and nothing depends on it"
                        if cells
                        else "is zero between layers"
                    )
                    self.invariants[f"{slot.name} of {stream.name} {words}"] = None

    def _layer(
        self,
        number: int,
        group: Sequence[tuple[int, ProgramStep]],
        steps: Sequence[Sequence[Wanted]],
        known: dict[Cell, Poly],
    ) -> dict[Cell, Poly]:
        """One layer step by step; as a whole where its steps are others than the spec's, or one of them fails."""
        noted = len(self.equations)
        start, unset = known, self.unset
        aligned = group if len(group) == len(steps) else self._aligned(group, steps)
        if aligned:
            for (place, step), wanted in zip(aligned, steps, strict=True):
                known = self._step(f"layer.{place}", step, wanted, known)
            if all(e.strength != "not shown" for e in self.equations[noted:]):
                return known
        failed = self.equations[noted:]
        del self.equations[noted:]
        if unset:
            self.unset = unset
            self._set(())
        whole = self._whole_layer(number, group, start)
        if failed and any(e.strength == "not shown" for e in self.equations[noted:]):
            self.equations[noted:] = failed
        return whole

    def _aligned(
        self, group: Sequence[tuple[int, ProgramStep]], steps: Sequence[Sequence[Wanted]]
    ) -> list[tuple[int, ProgramStep]] | None:
        """The steps of a layer joined so that each writes what one step of the spec writes; None if there is no way."""
        renewed = tuple(ffn for stream in self.program.streams for ffn in stream.derived)
        rest = list(group)
        found: list[tuple[int, ProgramStep]] = []
        for wanted in steps:
            targets = {one.target for one in wanted}
            joined: list[ProgramStep] = []
            while rest and (not joined or {slot for step in joined for _, slot in step.writes} < targets):
                place, step = rest.pop(0)
                joined.append(step)
            if not joined or {slot for step in joined for _, slot in step.writes} != targets:
                return None
            sublayers = joined[0].sublayers
            for step in joined[1:]:
                sublayers += renewed + step.sublayers  # derived slots are renewed between the two
            found.append((place, joined[0] if len(joined) == 1 else ProgramStep(sublayers, joined[-1].writes)))
        return None if rest else found

    def _step(
        self, place: str, step: ProgramStep, wanted: Sequence[Wanted], known: dict[Cell, Poly]
    ) -> dict[Cell, Poly]:
        def work() -> dict[Cell, Poly]:
            before = self.boundary.residual(known)
            after = self.after(step, known)
            self.assume(after)
            broken = self.boundary.changed_constants(before, after)
            if broken is not None:
                self.note(place, "", summary((step,)), broken)
            self.compare(place, wanted, after, summary((step,)))
            if self.unset:
                self._set([one.target for one in wanted])
            return self.boundary.scratch(after, [one.target for one in wanted])

        found = self.guard(place, "; ".join(one.text for one in wanted), work)
        return known if found is None else found

    def after(self, step: ProgramStep, known: Known) -> SymbolicResidual:
        """A step on what is known at its boundary; done once."""
        before = self.boundary.residual(known)
        key = (id(step), id(before))
        if key not in self.ran:
            self.ran[key] = (before, self.model.run(step, before, refresh=False))  # kept, so that its id stays its own
        return self.ran[key][1]

    def _whole_layer(
        self, number: int, group: Sequence[tuple[int, ProgramStep]], known: dict[Cell, Poly]
    ) -> dict[Cell, Poly]:
        place = f"layer.{group[0][0]}" if len(group) == 1 else f"layer.{group[0][0]}-{group[-1][0]}"

        def work() -> dict[Cell, Poly]:
            state: dict[str, Rows] = dict(self.symbols)
            texts: dict[str, Wanted] = {}
            for step in self.checked.spec.steps:
                new = [self.wanted_rows(e.target, e.body, state) for e in step.equations]
                for one in new:
                    earlier = texts[one.target].undefined if one.target in texts else ()
                    texts[one.target] = Wanted(one.target, one.text, one.rows, (*earlier, *one.undefined))
                state |= {one.target: one.rows for one in new}
            before = self.boundary.residual(known)
            after = before
            for _, one_step in group:
                after = self.model.run(one_step, after)
            self.assume(after)
            broken = self.boundary.changed_constants(before, after)
            if broken is not None:
                self.note(place, "", "", broken)
            matched = "the whole layer: " + summary([step for _, step in group])
            self.compare(place, list(texts.values()), after, matched)
            return self.boundary.scratch(after, list(texts))

        found = self.guard(place, "the whole layer", work)
        return known if found is None else found

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def compare(
        self, place: str, wanted: Sequence[Wanted], after: SymbolicResidual, summary: str, stops: bool = True
    ) -> None:
        """Every field the step stores has its new value, every other one its old."""
        new = {one.target: one for one in wanted}
        undefined = tuple(p for one in wanted for p in one.undefined)
        stopped = self.stops(place, after, undefined) if stops else ""
        for one in wanted:
            home = self.checked.fields[one.target].home
            reason = self.difference(place, home, one.target, one.rows, after, undefined)
            self.note(place, one.text, summary, reason or stopped)
        if stopped and not wanted:
            self.note(place, "", summary, stopped)
        for stream in self.program.streams:
            for slot in stream.slots:
                if slot.role == "field" and slot.name not in new and slot.name in self.symbols:
                    rows = self.boundary.symbols[slot.name]
                    reason = self.difference(place, stream.name, slot.name, rows, after, ())
                    if reason:
                        self.note(place, f"{slot.name} stays as it is", summary, reason)

    def stops(self, place: str, after: SymbolicResidual, undefined: Sequence[Poly]) -> str:
        """Whether the program stops with an error on other inputs than the spec has no value for."""
        sides = (after.raised, after.feared, undefined)
        program, perhaps, spec = ({self.algebra.somewhere(p) for p in side} for side in sides)
        if not covers(self.algebra, spec, program | perhaps):
            return (
                f"{self._left(*after.raised, *after.feared)}the program stops with an error where the spec has a value"
            )
        if not covers(self.algebra, program, spec):
            return "the program has a value where the spec stops with an error"
        if program or spec:
            self.goals[ProofGoal(place, "where there is no value", tuple(sorted(program)), tuple(sorted(spec)))] = None
        return ""

    def difference(
        self, place: str, stream: str, slot: str, rows: Rows, after: SymbolicResidual, undefined: Undefined
    ) -> str:
        """Where a slot holds something else than these rows."""
        held = self.program.stream(stream).slot(slot)
        fixed = self.program.stream(stream).size is not None
        tokens = after.z[stream]
        if len(tokens) != len(rows):
            return f"{slot} lives on {len(tokens)} tokens, not {len(rows)}"
        for token, (z, row) in enumerate(zip(tokens, rows, strict=True)):
            found = z[held.offset : held.offset + held.width]
            if len(found) != len(row):
                return f"{slot} has {len(found)} columns, not {len(row)}"
            for column, (p, q) in enumerate(zip(found, row, strict=True)):
                which = f"{slot}[{token + 1}]" if fixed else slot
                if p is not q and not self.shown(place, f"{which}, column {column + 1}", p, q, undefined):
                    return self.unlike(p, q, f"{which}, column {column + 1}: ")
        return ""

    def unlike(self, given: Poly, said: Poly, where: str = "") -> str:
        """That the weights give something else than the spec says."""
        gives, says = (show(self.algebra, p) for p in (given, said))
        return f"{self._left(given)}{where}the weights give {gives}; the spec says {says}"

    def _left(self, *given: Poly) -> str:
        """That something depends on what the layers have left behind, where it does."""
        return f"{LEFTOVER}: " if self.remembers and any(map(self.boundary.has_unknown, given)) else ""

    def assume(self, state: SymbolicResidual) -> None:
        """Notes the conditions that were used; the runtime checks them whenever a step begins."""
        self.assumptions |= state.assumed


def layers_of(program: Program) -> list[list[tuple[int, ProgramStep]]]:
    """The steps of each layer that has weights of its own, with their numbers."""
    layers = [program.steps_of(at) for at in range(max(program.own_layers, 1))]
    return [list(enumerate(steps, start=at * len(steps))) for at, steps in enumerate(layers)]
