"""What verification answers: checks, each with its numbers, and the verdict they add up to. Plain data, no torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from weft.proof.report import Proof

Strength: TypeAlias = Literal["proved", "proved up to eps", "tested", "not shown"]
ORDER: tuple[Strength, ...] = ("proved", "proved up to eps", "tested", "not shown")  # strongest first


@dataclass(frozen=True, slots=True)
class Check:
    """One piece of evidence.

    `worst` is the error that came nearest to what is allowed, `allowed` the bound there, 16 * eps * kappa * max|f|
    with `kappa` the condition of that equation; 0 allowed means bit for bit. `shows` is what the check is worth if it
    passes. A `proof` is about the equations in exact arithmetic, for all inputs; `cases` counts them, and `worst` is
    the largest relative error of a weight that stands for a constant. A `certificate` bounds how far what is computed
    is from the spec. Other checks are about what runs: rounding, precisions, backends.
    """

    name: str
    compared: str
    cases: int
    passed: bool
    worst: float = 0.0
    allowed: float = 0.0
    kappa: float = 1.0
    detail: str = ""
    shows: Strength = "tested"
    proof: bool = False
    certificate: bool = False

    @property
    def strength(self) -> Strength:
        return self.shows if self.passed else "not shown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of one target, and what they show together."""

    name: str
    checks: tuple[Check, ...]
    seed: int = 0
    conditions: tuple[str, ...] = ()  # under which the model claims to equal the spec; it refuses other inputs
    proofs: tuple[Proof, ...] = ()

    @property
    def verdict(self) -> Strength:
        """As strong as the weakest proof or certificate, unless a check failed; without any, as the weakest check."""
        if not all(check.passed for check in self.checks):
            return "not shown"
        deciding = [check for check in self.checks if check.proof or check.certificate] or self.checks
        return max((check.strength for check in deciding), key=ORDER.index, default="not shown")

    @property
    def claim(self) -> str:
        """What the verdict says, and what it does not."""
        tested = "rounding and what runs it (precisions, backends) are tested"
        match self.verdict:
            case "proved":
                return f"proved in exact arithmetic, for all inputs and any number of layers; {tested}"
            case "proved up to eps" if any(check.certificate for check in self.checks):
                near = "how far that is from the spec is certified layer by layer where leads are large enough"
                return f"the weights are proved to compute the spec at this sharpness, for all inputs; {near}; {tested}"
            case "proved up to eps":
                return f"proved for all inputs and any number of layers up to the stated error of weights; {tested}"
            case "tested":
                return "tested on the cases below; not proved"
        return "not shown: a check failed" if self.checks else "not shown: nothing was compared"

    @property
    def ok(self) -> bool:
        return self.verdict != "not shown"

    def json(self) -> dict[str, Any]:
        """The verdict as plain data; every number is finite or null."""
        checks = [{**asdict(check), "verdict": check.strength} for check in self.checks]
        for check in checks:
            for key in ("worst", "allowed", "kappa"):
                check[key] = check[key] if math.isfinite(check[key]) else None
        return {
            "name": self.name,
            "verdict": self.verdict,
            "ok": self.ok,
            "seed": self.seed,
            "claim": self.claim,
            "conditions": list(self.conditions),
            "checks": checks,
            "proofs": [proof.json() for proof in self.proofs],
        }

    def text(self) -> str:
        """The verdict as people read it: a table, then what went wrong."""
        head = ("", "check", "compared", "cases", "worst error", "allowed", "kappa")
        rows = [head] + [
            (
                "ok" if check.passed else "NO",
                check.name,
                check.compared,
                str(check.cases),
                f"{check.worst:.2g}",
                "exact" if check.proof else f"{check.allowed:.2g}" if check.allowed else "same bits",
                "" if check.proof else f"{check.kappa:.3g}",
            )
            for check in self.checks
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        notes = [f"\n{check.name}: {check.detail}" for check in self.checks if check.detail]
        given = [f"on condition that {condition}" for condition in self.conditions]
        assumed = [f"the proof assumes that {one}" for one in self._assumptions() if one not in self.conditions]
        return "\n".join([f"{self.name}: {self.verdict}", *given, *assumed, *lines, self.claim, *notes])

    def _assumptions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for proof in self.proofs for one in proof.assumptions))

    __str__ = text
