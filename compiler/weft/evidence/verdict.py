"""What verification answers: checks, each with its numbers, and the verdict they add up to. Plain data, no torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

Strength: TypeAlias = Literal["proved", "proved up to eps", "tested", "not shown"]
ORDER: tuple[Strength, ...] = ("proved", "proved up to eps", "tested", "not shown")  # strongest first


@dataclass(frozen=True, slots=True)
class Check:
    """One piece of evidence.

    `worst` is the error that came nearest to what is allowed, `allowed` the bound there, 16 * eps * kappa * max|f|
    with `kappa` the condition of that equation; 0 allowed means bit for bit. `shows` is what the check is worth if it
    passes.
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

    @property
    def verdict(self) -> Strength:
        """As strong as the weakest check; without any, nothing is shown."""
        return max((check.strength for check in self.checks), key=ORDER.index, default="not shown")

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
            "conditions": list(self.conditions),
            "checks": checks,
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
                f"{check.allowed:.2g}" if check.allowed else "same bits",
                f"{check.kappa:.3g}",
            )
            for check in self.checks
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        notes = [f"\n{check.name}: {check.detail}" for check in self.checks if check.detail]
        given = [f"on condition that {condition}" for condition in self.conditions]
        return "\n".join([f"{self.name}: {self.verdict}", *given, *lines, *notes])

    __str__ = text
