"""What a proof answers: every equation with its strength, the invariants of the induction, what is assumed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from weftc.prover.kernel.derivation import Derivation

Strength: TypeAlias = Literal["proved", "proved up to eps", "not shown", "refuted"]


@dataclass(frozen=True, slots=True)
class ProvedEquation:
    """One equation of the spec, the part of the program it was held against, and what came of it."""

    place: str  # layer.0, start, output NAME, objective
    equation: str
    matched: str
    strength: Strength
    reason: str = ""
    leftover: bool = False  # it depends on what the layers before have left in a scratch slot: no few layers show it


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far the weights of one head or feed-forward are from those that were proved to compute the equations.

    When no coordinate of the residual is larger than 1: scores (or arguments of a feed-forward) are within `inside`,
    what is written within `outside`, per unit of what is weighed. Scores grow with the square of the coordinates.
    """

    place: str
    kind: str  # scores, arguments, or nothing
    inside: float
    outside: float

    def __str__(self) -> str:
        parts = [f"{self.kind} within {self.inside:.2g}"] if self.inside else []
        parts += [f"values within {self.outside:.2g}"] if self.outside else []
        return f"{self.place}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Proof:
    """All equations of one checkpoint, and what they show together."""

    name: str
    steps: tuple[ProvedEquation, ...]
    invariants: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    constants: tuple[
        str, ...
    ] = ()  # irrational or periodic constants, of which weights are the correctly rounded value
    eps: float = 0.0  # see `error`
    deviations: tuple[Deviation, ...] = ()  # of weights that are only near those that were proved
    refuted: str = ""  # an input on which the file computes something else, in words, where one has been found
    derivation: Derivation | None = field(default=None, repr=False, compare=False)  # every inference

    @property
    def verdict(self) -> Strength:
        """Proved when every equation is; refuted when an input is known that shows a difference."""
        if self.refuted:
            return "refuted"
        if not self.steps or any(step.strength == "not shown" for step in self.steps):
            return "not shown"
        return "proved up to eps" if self.eps else "proved"

    @property
    def error(self) -> str:
        """What `eps` bounds."""
        if not self.eps:
            return ""
        what = "no score and no value is further than that from what the spec computes, per sub-layer"
        return f"eps = {self.eps:.2g}: {what}, when all coordinates are at most 1; closer choices may fall otherwise"

    @property
    def failures(self) -> tuple[ProvedEquation, ...]:
        return tuple(step for step in self.steps if step.strength == "not shown")

    def json(self) -> dict[str, Any]:
        """The proof as plain data."""
        rules = {} if self.derivation is None else self.derivation.rules
        return {**asdict(replace(self, derivation=None)), "derivation": rules, "verdict": self.verdict}

    def text(self) -> str:
        """The proof as people read it."""
        shown = sum(step.strength != "not shown" for step in self.steps)
        lines = [f"{self.name}: {self.verdict} ({shown} of {len(self.steps)} equations), in exact arithmetic"]
        if self.eps:
            lines.append(self.error)
        if self.refuted:
            lines.append(self.refuted)
        for step in self.steps:
            lines.append(f"  {step.place}: {step.equation}")
            lines.append(f"    {step.strength}: {step.matched}" + (f"; {step.reason}" if step.reason else ""))
        for title, notes in (
            ("by induction over the layers", self.invariants),
            ("assuming that", self.assumptions),
            ("weights that are the correctly rounded value of", self.constants),
            ("weights that are only near those proved, when no coordinate exceeds 1", tuple(map(str, self.deviations))),
        ):
            if notes:
                lines += [f"{title}:", *(f"  {note}" for note in notes)]
        return "\n".join(lines)

    __str__ = text
