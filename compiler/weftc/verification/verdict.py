"""What verification answers: checks, each with its numbers, and the verdict they add up to. Plain data, no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from weftc.core.source import printable
from weftc.prover.report.report import Proof
from weftc.verification.transport.by_depth import Assignment

Strength: TypeAlias = Literal["proved", "proved up to eps", "tested", "not shown", "refuted"]
ORDER: tuple[Strength, ...] = ("proved", "proved up to eps", "tested", "not shown", "refuted")  # strongest first


@dataclass(frozen=True, slots=True)
class Rounding:
    """What is known of rounding in float64: `bound` is relative to the largest value of a field, per step.

    certified: no rounding of any step was larger on these data: by how far every stored value was from that of the
        interpreter, and the interpreter's own error bound, which is rigorous
    measured: the largest difference seen from the interpreter, which itself rounds once; not bounded: nothing is known
    """

    kind: Literal["certified", "measured", "not bounded"] = "not bounded"
    bound: float = math.inf

    def __str__(self) -> str:
        if self.kind == "not bounded":
            return "rounding not bounded"
        return f"rounding {self.kind} to {self.bound:.2g}" + " on your data" * (self.kind == "certified")


@dataclass(frozen=True, slots=True)
class SettledRows:
    """How many rows of decisions each tier settled in one layer (counted from 1), over all cases of a check.

    `float64`: scores further apart than their error bounds. `exact`: by rational arithmetic. `undecided`: closer than
    float64 can tell, on scores that are not rational; these follow the rule for ties, and are not compared. `fast`: by
    a backend in float32, with its error bound, or by bounds from the layer before.
    """

    layer: int
    float64: int
    exact: int
    undecided: int
    fast: int = 0


@dataclass(frozen=True, slots=True)
class Lead:
    """One layer (counted from 1) at finite temperature, over all cases of a check.

    `margin`: the smallest lead of a best score (None: nothing to choose between). `enough`: the sharpness that lead
    asks for (None: a tie, no sharpness is). `bound` and `measured`: the largest of any field, over certified cases.
    """

    layer: int
    margin: float | None
    enough: float | None
    bound: float | None
    measured: float | None
    certified: int
    cases: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The first place at which model and spec differ, and a small input that shows it.

    `token` counts from 1; `got` is the model's value there, `want` the spec's. `inputs` (and `noise`, per layer) are
    nested lists, to be given to `model` or `interpret`.
    """

    place: str
    field: str
    token: int | None
    got: str
    want: str
    layers: int
    seed: int
    inputs: dict[str, Any]
    noise: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One piece of evidence.

    `worst` is the error that came nearest to what is allowed, `allowed` the bound there, 16 * eps * kappa * max|f|
    with `kappa` the condition of that equation; 0 allowed means bit for bit. `shows` is what the check is worth if it
    passes. A `proof` is about the equations in exact arithmetic, for all inputs; `cases` counts them, and `worst` is
    the largest relative error of a weight that stands for a constant. A `certificate` bounds how far what is computed
    is from the spec. Other checks are about what runs: rounding, precisions, backends; `backend` is the one that ran.
    `settled` counts the rows of decisions that the model made on the way; `leads` says how sure its choices are at
    finite temperature. `relative` is the largest error seen, over the largest value of its field. `certified` is what
    no rounding of a step exceeded on the user's data, in the same unit: the distance from the interpreter and the bound
    of its own error. `eps` is how far from the spec what was proved can be.
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
    settled: tuple[SettledRows, ...] = ()
    failure: Failure | None = None
    leads: tuple[Lead, ...] = ()
    backend: str = ""
    relative: float | None = None
    eps: float = 0.0
    certified: float | None = None

    @property
    def called(self) -> str:
        """The name, with the backend that ran."""
        return f"{self.name} on {self.backend}" if self.backend else self.name

    @property
    def strength(self) -> Strength:
        return self.shows if self.passed or self.shows == "refuted" else "not shown"


def merged(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Checks that differ only in their backend as one, if all of them passed; `compared` says which backends ran."""
    groups: dict[tuple[object, ...], list[Check]] = {}
    for number, one in enumerate(checks):
        alike = (one.name, one.compared, one.cases) if one.backend and one.passed else (number,)
        groups.setdefault(alike, []).append(one)
    found = []
    for group in groups.values():
        worst = max(group, key=lambda one: (one.worst / (one.allowed or 1.0), one.allowed))
        where = f" on {worst.backend}" if worst.backend else ""
        where = " on both backends" if len({one.backend for one in group}) > 1 else where
        found.append(replace(worst, compared=worst.compared + where))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of one target, and what they show together."""

    name: str
    checks: tuple[Check, ...]
    seed: int = 0
    conditions: tuple[str, ...] = ()  # under which the model claims to equal the spec; it refuses other inputs
    proofs: tuple[Proof, ...] = ()
    assignments: tuple[Assignment, ...] = ()  # of specs that compute a coupling: its distance to the optimum by depth

    @property
    def verdict(self) -> Strength:
        """As strong as the weakest proof or certificate, unless a check failed; without any, as the weakest check."""
        if any(check.strength == "refuted" for check in self.checks):
            return "refuted"
        if not all(check.passed for check in self.checks):
            return "not shown"
        deciding = [check for check in self.checks if check.proof or check.certificate] or self.checks
        return max((check.strength for check in deciding), key=ORDER.index, default="not shown")

    @property
    def eps(self) -> float:
        """How far from the spec what was proved can be; 0 for `proved`."""
        return max((check.eps for check in self.checks), default=0.0)

    @property
    def rounding(self) -> Rounding:
        """What is known of rounding in float64."""
        own = [one for one in self.checks if one.name.startswith("your data") and "float64" in one.name]
        if own and all(one.certified is not None for one in own):
            return Rounding("certified", max(2.0**-53, *(one.certified or 0.0 for one in own)))
        seen = [one.relative for one in self.checks if one.relative is not None and "float64" in one.name]
        return Rounding("measured", max(2.0**-53, *seen)) if seen and math.isfinite(max(seen)) else Rounding()

    @property
    def line(self) -> str:
        """The verdict with what it says of rounding: `proved (exact arithmetic); rounding measured to 1e-16`."""
        match self.verdict:
            case "proved":
                return f"proved (exact arithmetic); {self.rounding}"
            case "proved up to eps":
                return f"proved up to eps = {self.eps:.2g} (exact arithmetic); {self.rounding}"
            case "tested":
                return f"tested; {self.rounding}"
        return self.verdict

    @property
    def claim(self) -> str:
        """What the verdict says, and what it does not."""
        tested = "what runs it (precisions, backends) is tested"
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
            case "refuted":
                return "refuted: the weights compute another function; an input that shows it is given below"
        return "not shown: a check failed" if self.checks else "not shown: nothing was compared"

    @property
    def ok(self) -> bool:
        return self.verdict not in ("not shown", "refuted")

    @property
    def rows(self) -> tuple[Check, ...]:
        """The checks as a table shows them: one line for what holds on several backends alike."""
        return merged(self.checks)

    def json(self) -> dict[str, Any]:
        """The verdict as plain data; every number is finite or null. `weftc verify --help` says what stands where."""
        checks = [{**asdict(check), "verdict": check.strength} for check in self.checks]
        for check in checks:
            for key in ("worst", "allowed", "kappa", "relative", "eps", "certified"):
                check[key] = check[key] if check[key] is not None and math.isfinite(check[key]) else None
        rounding = self.rounding
        return {
            "name": self.name,
            "verdict": self.verdict,
            "line": self.line,
            "ok": self.ok,
            "eps": self.eps if math.isfinite(self.eps) else None,
            "rounding": {"kind": rounding.kind, "bound": rounding.bound if math.isfinite(rounding.bound) else None},
            "seed": self.seed,
            "claim": self.claim,
            "conditions": list(self.conditions),
            "checks": checks,
            "proofs": [proof.json() for proof in self.proofs],
            "assignments": [one.json() for one in self.assignments],
        }

    def text(self) -> str:
        """The verdict as people read it: a table, what it rests on, then what went wrong."""
        from weftc.verification.verdict_text import verdict_text

        return verdict_text(self)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the proofs assume beside the conditions."""
        every = dict.fromkeys(one for proof in self.proofs for one in proof.assumptions)
        return tuple(one for one in every if one not in self.conditions)

    __str__ = text

    def __repr__(self) -> str:
        return f"Verdict({printable(self.name)}: {self.verdict}, {len(self.checks)} checks)"

    def _repr_html_(self) -> str:
        from weftc.show.displays import verdict_html

        return verdict_html(self)
