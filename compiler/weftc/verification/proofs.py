"""The proof that a model computes its spec, as a piece of evidence: models -> one `Check` and the proofs behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weftc.compiling import at_temperature
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.prover import Proof, ProvedEquation, prove
from weftc.prover.checker import objection
from weftc.verification.verdict import ORDER, Check
from weftc_runtime.format.checkpoint import Checkpoint

GIVE, SAYS = "the weights give ", "; the spec says "  # the words of `proof`
LONG, AROUND = 400, 60  # characters


def proofs(checked: Checked, models: Sequence[Checkpoint], style: str) -> tuple[Check, tuple[Proof, ...]]:
    """Every equation of every model, for all inputs, in exact arithmetic.

    A model of finite temperature is held against the spec at that temperature. An equation that is not proved is no
    failure: the rule for it may be missing, and the comparison with the interpreter decides. An input on which the
    two differ is one: then the model is refuted. So is an equation that depends on what earlier layers have left
    behind, since that may show after any number of layers.
    """
    found = tuple(_proof(checked, model) for model in models)
    weakest = max((proof.verdict for proof in found), key=ORDER.index)
    equations = sum(len(proof.steps) for proof in found)
    missing = [step for proof in found for step in proof.failures]
    detail = ""
    refuted = next((proof.refuted for proof in found if proof.refuted), "")
    if missing:
        first = missing[0]
        detail = f"not proved: {first.equation or first.place} ({first.place}): {_brief(first.reason)}"
        detail = f"refuted: {refuted}; {detail}" if refuted else detail
    elif weakest == "proved up to eps":
        detail = "; ".join(dict.fromkeys(proof.error for proof in found if proof.eps))
    shown = f"{equations - len(missing)} of {equations} equations" if missing else f"{equations} equations"
    check = Check(
        f"proof ({style})",
        f"{shown}, all inputs",
        equations,
        not refuted and not any(step.leftover for step in missing),
        max(proof.eps for proof in found),
        detail=detail,
        shows="tested" if weakest == "not shown" else weakest,
        proof=True,
        eps=max(proof.eps for proof in found),
    )
    return check, found


def _proof(checked: Checked, model: Checkpoint) -> Proof:
    """A proof that has been replayed; or one that fails, with an input that shows why, where one is found."""
    meant = at_temperature(checked, Styles.read(model.program.options))
    proof = prove(model, meant)
    if proof.failures:
        from weftc.verification.witness import witness

        found = witness(meant, model)
        return proof if found is None else replace(proof, refuted=str(found))
    wrong = "there is none" if proof.derivation is None else objection(proof.derivation, model, meant)
    if wrong:
        return replace(proof, steps=(ProvedEquation("derivation", "", "", "not shown", wrong), *proof.steps))
    return proof


def _brief(reason: str) -> str:
    """A reason short enough to read: of two long formulas, what stands around the first difference."""
    before, _, both = reason.partition(GIVE)
    left, found, right = both.partition(SAYS)
    if len(reason) <= LONG or not found:
        return reason if len(reason) <= LONG else reason[:LONG] + " ..."
    same = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    start = max(0, same - AROUND)
    ends = [("... " if start else "") + text[start : same + AROUND] + " ..." for text in (left, right)]
    return f"{before}{GIVE}{ends[0]}{SAYS}{ends[1]}"
