"""A derivation, the file and the spec it is about -> whether it proves what it says. Nothing is searched for.

The checker carries out the program and the spec again, with the same kernel. Where a proof has to choose, it takes what
the derivation says, and every rule checks that this is an instance of it. In the end atoms, applications and goals must
be those of the derivation. What is trusted is therefore the kernel, the readings (`spec_side`, `model_side`) and the
induction; the search is not.
"""

from __future__ import annotations

from typing import Any

from weftc.core.types import Checked
from weftc.prover.attempt import attempt, interface, without_leftovers
from weftc.prover.kernel import NotAnInstance, Unproved
from weftc.prover.kernel.derivation import Derivation
from weftc.prover.kernel.rules import Operand, Question
from weftc.prover.near.bases import over_slots
from weftc_runtime.format.checkpoint import Checkpoint


def objection(derivation: Derivation, checkpoint: Checkpoint, checked: Checked) -> str:
    """Why a derivation does not prove that a file computes a spec; empty where it does."""
    wrong = interface(checkpoint, checked)
    if wrong:
        return wrong[0].reason
    said = {(question, about): answer for question, about, answer in derivation.answers}

    def recorded(question: Question, about: Operand, _: Any) -> Any:
        if (question, about) not in said:
            raise NotAnInstance(f"the derivation does not choose {question} where one is needed")
        return said[question, about]

    try:
        model = over_slots(checkpoint)
        model = without_leftovers(model, derivation.slack) if derivation.slack else model
        proof, _ = attempt(model, checked, recorded, derivation.slack, frozenset(derivation.readings))
    except (NotAnInstance, Unproved) as reason:
        return str(reason)
    if proof.failures:
        return proof.failures[0].reason
    again = proof.derivation
    assert again is not None
    for part in ("onehot", "positive", "nonnegative", "atoms", "choices", "applications", "goals"):
        if getattr(again, part) != getattr(derivation, part):
            return f"its {part} are not those that the file and the spec give"
    return ""
