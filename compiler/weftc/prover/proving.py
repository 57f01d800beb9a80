"""`prove`: exactly first; if that fails, with weights that are only near the constants they stand for."""

from __future__ import annotations

from weftc.core.source import Source
from weftc.core.types import Checked
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.prover.attempt import attempt, interface, without_leftovers
from weftc.prover.kernel.rules import Unproved
from weftc.prover.near.bases import OverSlots, over_slots
from weftc.prover.report.report import Proof, ProvedEquation
from weftc.prover.search import search
from weftc_runtime.format.checkpoint import Checkpoint

MOST_AMBIGUOUS = 8  # tensors tried one by one
SLACK = 1e-9  # the largest relative error of a weight with which a proof up to eps is attempted


def prove(checkpoint: Checkpoint, checked: Checked | None = None, *, slack: float = SLACK) -> Proof:
    """Shows that the matrices of a checkpoint compute the equations of its spec, or says which ones it could not show.

    `checked` replaces the spec in the checkpoint. With `slack` 0 weights must be exact or correctly rounded.
    """
    if checked is None:
        checked = check(parse(Source(checkpoint.spec_name or "spec", checkpoint.spec_text)))
    wrong = interface(checkpoint, checked)
    if wrong:
        return Proof(checked.spec.name, tuple(wrong))
    try:
        model = over_slots(checkpoint)
    except Unproved as reason:
        return Proof(checked.spec.name, (ProvedEquation("basis", "", "", "not shown", str(reason)),))
    exact = None if model.errors else _best(model, checked, 0.0)
    if exact is not None and (exact.verdict != "not shown" or not slack):
        return exact
    if not slack:
        mixed = "the basis of a residual mixes its slots: nothing is exact"
        return Proof(checked.spec.name, (ProvedEquation("basis", "", "", "not shown", mixed),))
    near = _best(without_leftovers(model, slack), checked, slack)
    close = near.eps and all(step.place == "decisions" for step in near.failures)
    return near if exact is None or close else exact


def _best(model: OverSlots, checked: Checked, slack: float) -> Proof:
    """The attempt that shows most, where some weights may stand for one constant or for another."""
    best, ambiguous = attempt(model, checked, search, slack)
    chosen: frozenset[str] = frozenset()
    if best.verdict != "not shown" or not ambiguous:
        return best
    every = frozenset(ambiguous)
    for others in (every, *(frozenset({name}) for name in ambiguous[:MOST_AMBIGUOUS])):
        tried = chosen | others if others != every else every
        proof, _ = attempt(model, checked, search, slack, tried)
        if len(proof.failures) < len(best.failures):
            best, chosen = proof, tried
        if best.verdict != "not shown":
            break
    return best
