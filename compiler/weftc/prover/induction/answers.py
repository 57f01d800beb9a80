"""Outputs and objective: what is read after the layers, and what is evaluated once more on the final fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from weftc.language.check.check import type_of
from weftc.prover.induction.boundary import Cell
from weftc.prover.induction.steps import MOST_ROUNDS, UNSETTLED, Steps, layers_of
from weftc.prover.kernel.polynomials import Poly, add
from weftc.prover.kernel.rules import Unproved
from weftc.prover.model_side.heads import SymbolicResidual
from weftc.prover.model_side.interface import outdated, shown_field
from weftc.prover.model_side.scores import KEY
from weftc.prover.report.showing import head_words, summary
from weftc.prover.spec_side.expectation import Undefined
from weftc.prover.spec_side.values import Value
from weftc_runtime.format.program import ProgramOutput
from weftc_runtime.format.tensors import pattern_reads


class Answers(Steps):
    """The answers of one attempt."""

    def answers(self, wanted: Mapping[str, object], goal: Value | None, known: dict[Cell, Poly]) -> None:
        """Outputs and objective, after the readout."""
        state = self.guard("readout", "outputs", lambda: self._readout(known))
        texts = {o.target.name: self.text(o) for o in self.checked.spec.outputs}
        undefined = [p for value in (*wanted.values(), goal) for p in _undefined(value)]
        for output in self.program.outputs:
            place = f"output {output.name}"
            shown = shown_field(self.checked, output.name)
            if shown is not None:
                self._again(place, texts[output.name], output, shown.name, known)
            elif state is not None and wanted.get(output.name) is not None:
                held = partial(self._held, output, texts[output.name], wanted[output.name], state)
                self.guard(place, texts[output.name], held)
        if goal is not None and state is not None and self.program.objective is not None:
            assert self.checked.spec.objective is not None
            text = self.text(self.checked.spec.objective)
            self.guard("objective", text, lambda: self._goal(goal, text, state))
        stops = "" if state is None else self.stops("readout", state, undefined)
        if stops:
            self.note("readout", "outputs", summary(self.program.readout), stops)

    def _readout(self, known: dict[Cell, Poly]) -> SymbolicResidual:
        """The residual after the readout, which may run again on what it left behind: nothing may depend on that."""
        known = self.boundary.join(known, self.boundary.unknown_answers())
        for _ in range(MOST_ROUNDS):
            noted = len(self.equations)
            before = state = self.boundary.residual(known)
            for step in self.program.readout:
                state = self.model.run(step, state)
            broken = self.boundary.changed_constants(before, state)
            if broken is not None:
                self.note("readout", "outputs", summary(self.program.readout), broken)
            self.compare("readout", [], state, summary(self.program.readout), stops=False)
            joined = self.boundary.join(known, self.boundary.scratch(state, ()))
            if joined == known or not self.program.readout:
                self.assume(state)
                return state
            known = joined
            del self.equations[noted:]
        raise Unproved(UNSETTLED)

    def _again(self, place: str, text: str, output: ProgramOutput, name: str, known: dict[Cell, Poly]) -> None:
        """A field that is shown; perhaps evaluated once more on the final fields."""
        stale = outdated(self.checked, name)
        if stale is None or output.again is None:
            self.note(place, text, f"slot {name} as the layers left it")
            return
        steps = layers_of(self.program)[-1]
        if not 0 <= output.again < len(steps):
            self.note(place, text, "", "it is evaluated again by a step that does not exist")
            return
        step = steps[output.again][1]

        def work() -> None:
            after = self.after(step, known)
            self.assume(after)
            equation = next(e for e in self.checked.spec.steps[stale or 0].equations if e.target.name == name)
            one = self.wanted[id(equation.body)]
            home = self.checked.fields[name].home
            undefined = tuple(self._undefined_in_step(stale or 0))
            reason = self.difference(place, home, name, one.rows, after, undefined)
            reason = reason or self.stops(place, after, undefined)
            self.note(place, text, f"slot {name}, evaluated again by {summary((step,))}", reason)

        self.guard(place, text, work)

    def _undefined_in_step(self, number: int) -> list[Poly]:
        """Where a step of the spec has no value."""
        equations = self.checked.spec.steps[number].equations
        return [p for equation in equations for p in self.wanted[id(equation.body)].undefined]

    def _held(self, output: ProgramOutput, text: str, wanted: object, state: SymbolicResidual) -> None:
        place = f"output {output.name}"
        if isinstance(wanted, Value):
            self._pattern(output, text, wanted, state)
            return
        assert isinstance(wanted, tuple)
        rows, undefined = wanted
        state.read((output.stream, output.slot), surely=True)
        reason = ""
        target = next(o.target for o in self.checked.spec.outputs if o.target.name == output.name)
        kind, symbols = self._shape(output.name)
        if (output.kind, output.symbols) != (kind, symbols) or output.stream != self.checked.set_of(target.indices[0]):
            reason = f"it is read as {output.kind} of {output.stream}"
        reason = reason or self.difference(place, output.stream, output.slot, rows, state, undefined)
        self.note(place, text, f"slot {output.slot} after {summary(self.program.readout)}", reason)

    def _shape(self, name: str) -> tuple[str, tuple[str, ...]]:
        """What an output that is an expression is read as, and the symbols it shows."""
        output = next(o for o in self.checked.spec.outputs if o.target.name == name)
        found = type_of(self.checked, output.body, output.target.indices)
        if len(output.target.indices) == 2:
            return "pair", ()
        return ("number" if found.width is None else "onehot" if found.symbols else "vector"), found.symbols

    def _pattern(self, output: ProgramOutput, text: str, wanted: Value, state: SymbolicResidual) -> None:
        head = output.head
        if output.kind != "pattern" or head is None:
            raise Unproved("an output between two open sets that is no attention pattern")
        target = next(o.target for o in self.checked.spec.outputs if o.target.name == output.name)
        if (head.query, head.keys) != tuple(self.checked.set_of(i) for i in target.indices):
            raise Unproved(f"its pattern relates {head.query} to {head.keys}")
        for place in pattern_reads(output, self.model.streams, self.model.matrices.tensors):
            state.read(place, surely=False)
        (z,), keys = state.z[head.query], self.model.keys(head, state)
        found = self.model.weigh(head, z, keys, 0, state)
        if found is None:
            raise Unproved("a pattern of tokens that choose themselves")
        if found.empty:
            state.raised.append(found.empty)
        value = found.weights[0]
        if output.scale is not None:
            row = self.model.matrices[output.scale].rows[0]
            value = self.algebra.multiply(value, self.model.matrices.combine(row, z))
        same = self.shown(f"output {output.name}", "pattern", value, wanted.poly, wanted.missing)
        reason = "" if same else self.unlike(value, wanted.poly)
        self.note(f"output {output.name}", text, f"the pattern of {head_words(head)}", reason)

    def _goal(self, goal: Value, text: str, state: SymbolicResidual) -> None:
        output = self.program.objective
        assert output is not None
        slot = self.program.stream(output.stream).slot(output.slot)
        state.read((output.stream, output.slot), surely=True)
        column = [z[slot.offset] for z in state.z[output.stream]]
        size = self.program.stream(output.stream).size
        if output.kind == "total":
            if size is None:
                moved = self.algebra.rename(column[0], {0: KEY})
                value = self.algebra.total(output.stream, KEY, moved)
            else:
                value = add({}, *column)
        elif output.kind == "common":
            value = column[0]
            if 0 in self.algebra.tokens(value):
                raise Unproved("its value is not the same on every token")
        else:
            raise Unproved(f"it is read as {output.kind}")
        same = self.shown("objective", output.kind, value, goal.poly, goal.missing)
        reason = "" if same else self.unlike(value, goal.poly)
        self.note(
            "objective", text, f"{output.kind} of slot {output.slot} after {summary(self.program.readout)}", reason
        )


def _undefined(value: object) -> Undefined:
    """The indicators of an answer that has no value."""
    if isinstance(value, Value):
        return value.missing
    return value[1] if isinstance(value, tuple) else ()
