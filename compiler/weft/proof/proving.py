"""`prove`: exactly first; if that fails, with weights that are only near the constants they stand for."""

from __future__ import annotations

import gc
from dataclasses import replace

from weft.language.check import check
from weft.language.parse import parse
from weft.proof.bases import OverSlots, over_slots
from weft.proof.bounded import Bounded
from weft.proof.deviations import deviations
from weft.proof.interface import differences
from weft.proof.matrices import cleared
from weft.proof.prover import Prover
from weft.proof.report import Deviation, Equation, Proof
from weft.proof.state import Sizes, Unproved
from weft.source import Source
from weft.types import Checked
from weft_runtime.checkpoint import Checkpoint

MOST_AMBIGUOUS = 8  # tensors tried one by one
SLACK = 1e-9  # the largest relative error of a weight with which a proof up to eps is attempted


def prove(checkpoint: Checkpoint, checked: Checked | None = None, *, slack: float = SLACK) -> Proof:
    """Shows that the matrices of a checkpoint compute the equations of its spec, or says which ones it could not show.

    `checked` replaces the spec in the checkpoint. With `slack` 0 weights must be exact or correctly rounded.
    """
    if checked is None:
        checked = check(parse(Source(checkpoint.spec_name or "spec", checkpoint.spec_text)))
    wrong = _interface(checkpoint, checked)
    if wrong:
        return Proof(checked.spec.name, tuple(wrong))
    try:
        model = over_slots(checkpoint)
    except Unproved as reason:
        return Proof(checked.spec.name, (Equation("basis", "", "", "not shown", str(reason)),))
    exact = None if model.errors else _best(model, checked, 0.0)
    if exact is not None and (exact.verdict != "not shown" or not slack):
        return exact
    if not slack:
        mixed = "the basis of a residual mixes its slots: nothing is exact"
        return Proof(checked.spec.name, (Equation("basis", "", "", "not shown", mixed),))
    near = _best(_cleared(model, slack), checked, slack)
    close = near.eps and all(step.place == "decisions" for step in near.failures)
    return near if exact is None or close else exact


def _cleared(model: OverSlots, slack: float) -> OverSlots:
    """The model without numbers that are what rounding has left of zero."""
    tensors, errors = dict(model.checkpoint.tensors), dict(model.errors)
    for name, error in model.errors.items():
        tensors[name], errors[name] = cleared(Bounded(tensors[name], error), slack)
    return OverSlots(replace(model.checkpoint, tensors=tensors), errors)


def _best(model: OverSlots, checked: Checked, slack: float) -> Proof:
    """The attempt that shows most, where some weights may stand for one constant or for another."""
    best, ambiguous = _attempt(model, checked, slack, frozenset())
    chosen: frozenset[str] = frozenset()
    if best.verdict != "not shown" or not ambiguous:
        return best
    every = frozenset(ambiguous)
    for others in (every, *(frozenset({name}) for name in ambiguous[:MOST_AMBIGUOUS])):
        tried = chosen | others if others != every else every
        proof, _ = _attempt(model, checked, slack, tried)
        if len(proof.failures) < len(best.failures):
            best, chosen = proof, tried
        if best.verdict != "not shown":
            break
    return best


def _interface(checkpoint: Checkpoint, checked: Checked) -> list[Equation]:
    sizes = Sizes(checked, checkpoint.dims)
    if set(checkpoint.dims) != set(checked.dims):
        return [Equation("interface", "dimensions", "", "not shown", "the file does not have the spec's dimensions")]
    lacking = [p.name for p in checked.params.values() if p.default is None and p.name not in checkpoint.params]
    if lacking or set(checkpoint.params) - set(checked.params):
        return [Equation("interface", "parameters", "", "not shown", "the file does not have the spec's parameters")]
    found = differences(checkpoint.program, checked, sizes)
    return [Equation("interface", "declarations", "", "not shown", sentence) for sentence in found]


def _attempt(model: OverSlots, checked: Checked, slack: float, others: frozenset[str]) -> tuple[Proof, tuple[str, ...]]:
    """A proof, and the tensors whose weights could be read in another way."""
    prover = Prover(model.checkpoint, checked, slack, others, model.errors)
    collects = gc.isenabled()
    gc.disable()  # millions of small tuples and no cycles: looking for some takes half of the time
    try:
        prover.run()
    finally:
        if collects:
            gc.enable()
    notes = tuple(f"{text} ({count} times)" for text, count in sorted(prover.constants.rounded.items()))
    off: tuple[Deviation, ...] = ()
    if slack and all(step.strength != "not shown" for step in prover.equations):
        off = deviations(model.checkpoint.program, prover.model.forms)
        if off or prover.constants.error:
            for decision in prover.model.fragile:
                prover.note("decisions", "", decision, "it rests on numbers that are only near those of the spec")
    proof = Proof(
        checked.spec.name,
        tuple(prover.equations),
        tuple(prover.invariants),
        tuple(prover.assumptions),
        notes,
        max(prover.constants.error, *(max(one.inside, one.outside) for one in off), 0.0),
        off,
    )
    return proof, tuple(prover.constants.ambiguous)
