"""A verdict -> what a page says about it: claim, conditions, the proof by equations, every check with numbers."""

from __future__ import annotations

import math
from typing import Any

from weftc.core.source import printable
from weftc.prover.report.report import Proof
from weftc.verification.verdict import Check, Verdict

MARKS = {"proved": "good", "proved up to eps": "good", "tested": "", "not shown": "bad", "refuted": "bad"}


def evidence(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain text for a template; its conditions and the assumptions of its proofs."""
    return {
        "verdict": verdict.verdict,
        "mark": MARKS[verdict.verdict],
        "claim": printable(verdict.claim.removeprefix(verdict.verdict).lstrip(" :")),
        "conditions": [printable(one) for one in (*verdict.conditions, *verdict.assumptions)],
        "proofs": [_proof(proof) for proof in verdict.proofs],
        "checks": [_check(check) for check in verdict.rows],
        "settled": _settled(verdict),
        "certificates": [_lines("\n".join(one.lines())) for one in verdict.assignments],
        "details": [f"{printable(check.called)}: {_lines(check.detail)}" for check in verdict.checks if check.detail],
    }


def _settled(verdict: Verdict) -> list[tuple[str, ...]]:
    """Who settled the decisions on the user's data, on the last backend that was judged: the fast one if it ran."""
    own = [check for check in verdict.checks if check.name.startswith("your data") and "float64" in check.name]
    return [
        (str(one.layer), *map(str, (one.fast, one.float64, one.exact, one.undecided)))
        for check in own[-1:]
        for one in check.settled
    ]


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def _proof(proof: Proof) -> dict[str, Any]:
    return {
        "note": printable(
            f"{proof.verdict}, in exact arithmetic, for all inputs" + (f"; {proof.error}" if proof.eps else "")
        ),
        "steps": [
            {
                "equation": printable(step.equation or step.place),
                "matched": printable(step.matched),
                "strength": step.strength,
                "reason": printable(step.reason),
                "mark": MARKS[step.strength],
            }
            for step in proof.steps
        ],
        "lists": [
            ("By induction over the layers:", [printable(one) for one in proof.invariants]),
            ("Weights that are only near those proved:", [printable(str(one)) for one in proof.deviations]),
            ("Weights that are the correctly rounded value of", [printable(one) for one in proof.constants]),
        ],
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "name": printable(check.name),
        "compared": printable(check.compared),
        "cases": check.cases,
        "worst": _number(check.worst),
        "allowed": "exact" if check.proof else _number(check.allowed) if check.allowed else "same bits",
        "kappa": "" if check.proof or check.certificate else f"{check.kappa:.3g}" if math.isfinite(check.kappa) else "",
        "result": check.strength,
        "mark": MARKS[check.strength],
    }


def _number(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "none"
