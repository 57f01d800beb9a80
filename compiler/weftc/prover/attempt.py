"""One attempt at a proof: a model over slots, a spec, and an oracle -> what was shown, with its derivation."""

from __future__ import annotations

import gc
from dataclasses import replace

from weftc.core.types import Checked
from weftc.prover.induction.prover import Prover
from weftc.prover.induction.state import TokenCounts
from weftc.prover.kernel import Oracle
from weftc.prover.kernel.derivation import Derivation
from weftc.prover.model_side.interface import differences
from weftc.prover.model_side.matrices import cleared
from weftc.prover.near.bases import OverSlots
from weftc.prover.near.deviations import deviations
from weftc.prover.near.error_matrix import ErrorMatrix
from weftc.prover.report.report import Deviation, Proof, ProvedEquation
from weftc_runtime.format.checkpoint import Checkpoint


def attempt(
    model: OverSlots, checked: Checked, oracle: Oracle, slack: float = 0.0, others: frozenset[str] = frozenset()
) -> tuple[Proof, tuple[str, ...]]:
    """A proof, and the tensors whose weights could be read in another way."""
    prover = Prover(model.checkpoint, checked, oracle, slack, others, model.errors)
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
        derivation=Derivation.of(prover.algebra, tuple(prover.goals), others, slack),
    )
    return proof, tuple(prover.constants.ambiguous)


def without_leftovers(model: OverSlots, slack: float) -> OverSlots:
    """The model without numbers that are what rounding has left of zero."""
    tensors, errors = dict(model.checkpoint.tensors), dict(model.errors)
    for name, error in model.errors.items():
        tensors[name], errors[name] = cleared(ErrorMatrix(tensors[name], error), slack)
    return OverSlots(replace(model.checkpoint, tensors=tensors), errors)


def interface(checkpoint: Checkpoint, checked: Checked) -> list[ProvedEquation]:
    """Where a file promises something else than its spec declares."""
    sizes = TokenCounts(checked, checkpoint.dims)
    if set(checkpoint.dims) != set(checked.dims):
        return [
            ProvedEquation("interface", "dimensions", "", "not shown", "the file does not have the spec's dimensions")
        ]
    lacking = [p.name for p in checked.params.values() if p.default is None and p.name not in checkpoint.params]
    if lacking or set(checkpoint.params) - set(checked.params):
        return [
            ProvedEquation("interface", "parameters", "", "not shown", "the file does not have the spec's parameters")
        ]
    found = differences(checkpoint.program, checked, sizes)
    return [ProvedEquation("interface", "declarations", "", "not shown", sentence) for sentence in found]
