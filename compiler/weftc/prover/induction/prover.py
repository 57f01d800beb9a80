"""A checkpoint -> a proof that one layer of its matrices computes the equations of its spec, for all inputs.

Both sides are brought to the same canonical form by separate paths: the spec from its syntax tree (`spec_terms`), the
program by symbolic execution of its matrices (`model_terms`). The proof is an induction: `boundary` states what holds
between two steps, the prelude establishes it, and every step keeps it while it computes its equations.
"""

from __future__ import annotations

from functools import partial

from weftc.prover.induction.answers import Answers
from weftc.prover.model_side.interface import shown_field


class Prover(Answers):
    """One attempt at a proof."""

    def run(self) -> None:
        """Works through prelude, layers and answers; what cannot be shown is noted, not raised."""
        spec = self.checked.spec
        starts = self.guard("start", "the state", lambda: [self.start(f) for f in spec.state])
        steps = [self.guard(f"layer.{n}", "", partial(self.wanted_step, step)) for n, step in enumerate(spec.steps)]
        if starts is None or any(step is None for step in steps):
            return
        shown = [o for o in spec.outputs if shown_field(self.checked, o.target.name) is None]
        answers = {
            o.target.name: self.guard(f"output {o.target.name}", self.text(o), partial(self.answer, o)) for o in shown
        }
        goal = None
        if spec.objective is not None:
            goal = self.guard("objective", self.text(spec.objective), self.goal)
        self.learn()
        known = self.guard("start", "the state", lambda: self.prelude(starts or []))
        if known is None:
            return
        settled = self.guard("layers", "", lambda: self.layers([step or [] for step in steps], known))
        if settled is None:
            return
        self.answers(answers, goal, settled)
        self._complete()

    def _complete(self) -> None:
        """Nothing that the spec states is passed over."""
        spec, shown = self.checked.spec, {(one.place.partition(".")[0], one.equation) for one in self.equations}
        last = {e.target.name: e for step in spec.steps for e in step.equations}
        wanted = [("layer", self.wanted[id(e.body)].text) for e in last.values()]
        wanted += [("start", self.wanted[id(f.start)].text) for f in spec.state]
        wanted += [(f"output {o.target.name}", self.text(o)) for o in spec.outputs]
        wanted += [("objective", self.text(spec.objective))] if spec.objective is not None else []
        for place, text in wanted:
            if (place, text) not in shown:
                self.note(place, text, "", "nothing in the file was held against it")
