"""Fields of two sides -> observations, and the first divergence.

A value within 16 * eps * max|f| needs no further argument. Only where it is not is the condition of its equation worked
out (`condition`), and the value held against 16 * eps * kappa * max|f|.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.syntax import Equation
from weftc.interpreter.environment import World
from weftc.verification.steps.condition import Distances, Tolerance, bounds, log_errors, sensitivity, tolerance
from weftc.verification.verdict import SettledRows

Array = NDArray[Any]
Arrays = Mapping[str, Array]
ILL = 2.0**20  # a condition beyond which an error says more about the case than about the model


@dataclass(frozen=True, slots=True)
class Observation:
    """One field at one place: how far apart the two sides are, and what is allowed."""

    place: str
    field: str
    error: float
    tolerance: Tolerance
    settled: bool  # must agree bit for bit

    @property
    def allowed(self) -> float:
        return 0.0 if self.settled else self.tolerance.allowed

    @property
    def relative(self) -> float:
        """The error in units of the largest value; nothing where that has no precision, or the spec none (`ILL`)."""
        scale = self.tolerance.scale
        return self.error / scale if scale > self.tolerance.smallest and self.tolerance.kappa < ILL else 0.0


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place at which the two sides disagree."""

    place: str
    field: str
    token: int | None
    got: str
    want: str
    why: str
    home: str = ""  # the set of its tokens

    def __str__(self) -> str:
        where = self.place + (f", {self.field}" if self.field else "")
        where += "" if self.token is None else f", token {self.token + 1}" + (f" of {self.home}" if self.home else "")
        return f"{where}: {self.why}; the model has {self.got}, the spec {self.want}"


def one_sided(place: str, got: str, want: str) -> Divergence:
    """Only one side has a value."""
    return Divergence(place, "", None, got, want, "only one side has a value")


@dataclass(slots=True)
class StepOutcome:
    """What one case showed."""

    seen: list[Observation] = field(default_factory=list)
    steps: int = 0
    undecided: int = 0  # decisions closer than float64 can tell, on scores that are not rational
    unbounded: int = 0  # values beyond 16 * eps * max|f| whose equation has no finite condition there
    refused: bool = False  # both sides found no value
    edges: int = 0  # of these: the interpreter, only where a field is zero up to its precision
    outside: bool = False  # the model refused what its own conditions exclude
    divergence: Divergence | None = None
    settled: tuple[SettledRows, ...] = ()  # rows of decisions of the model, per layer
    instead: str = ""  # why another backend ran than was asked for
    certify: bool = False  # whether rounding is bounded too, whatever it costs
    certified: float = 0.0  # largest distance of a stored value from exact arithmetic, over the largest value


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """Where two sides are compared: what the equations read, and what their precision rests on."""

    name: str
    world: World
    equations: tuple[Equation, ...]  # as written
    settled: frozenset[str]  # names that must agree bit for bit
    doubtful: frozenset[str] = frozenset()  # softmax fields whose logarithms an earlier step of the layer made
    earlier: tuple[tuple[World, tuple[Equation, ...]], ...] = ()  # those steps
    distances: Distances = "as written"
    given: Mapping[str, Array] = field(default_factory=dict)  # the inputs before the first layer

    @property
    def written(self) -> frozenset[str]:
        return frozenset(equation.target.name for equation in self.equations)

    def limits(self) -> dict[str, float]:
        """The error bound of every target, in float64."""
        found = bounds(self.world, self.equations, self.distances, self.given)
        if self.doubtful:
            doubts: dict[str, Array] = {}
            for world, equations in self.earlier:
                doubts |= log_errors(world, equations, self.doubtful, self.distances, self.given)
            more = sensitivity(self.world, self.equations, doubts)
            found = {name: limit + more[name] for name, limit in found.items()}
        return found


def hold(outcome: StepOutcome, place: FieldPlace, got: Arrays, want: Arrays, dtype: Any) -> None:
    """Compares all fields; what no equation writes must be what it was."""
    limits: dict[str, float] | None = None
    exact = _own_errors(place) if outcome.certify else {}
    for name, expected in want.items():
        found = got.get(name)
        if found is None or found.shape != expected.shape:
            has = "nothing" if found is None else f"shape {list(found.shape)}"
            why = "they have different shapes"
            wrong = Divergence(place.name, name, None, has, f"shape {list(expected.shape)}", why)
            outcome.divergence = outcome.divergence or wrong
            continue
        settled = name in place.settled or name not in place.written
        if settled:
            with np.errstate(over="ignore"):
                expected = expected.astype(dtype)
        gaps = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        error = float(np.max(gaps, initial=0.0))
        seen = Observation(place.name, name, error, tolerance(0.0, expected, dtype), settled)
        if not settled and error > seen.allowed:
            limits = place.limits() if limits is None else limits
            if not np.isfinite(limits[name]):
                outcome.unbounded += 1
                outcome.certified = np.inf
                continue
            seen = Observation(place.name, name, error, tolerance(limits[name], expected, dtype), settled)
        outcome.seen.append(seen)
        if name in exact:
            outcome.certified = max(outcome.certified, _relative(error + exact[name], seen.tolerance))
        if error > seen.allowed and outcome.divergence is None:
            stored = place.world.checked.fields.get(name)
            outcome.divergence = _diverging(seen, found, expected, gaps, stored.home if stored else "")


def _own_errors(place: FieldPlace) -> dict[str, float]:
    """How far the interpreter can be from exact arithmetic on the same stored fields: rigorous, or infinite."""
    radii: dict[str, Array] = {}
    for world, equations in place.earlier if place.doubtful else ():
        radii |= log_errors(world, equations, place.doubtful)
    return bounds(replace(place.world, log_radii=radii), place.equations)


def _relative(error: float, tolerance: Tolerance) -> float:
    """An error in units of the largest value; in units of the smallest normal number where all values are below it."""
    return error / max(tolerance.scale, tolerance.smallest)


def _diverging(seen: Observation, got: Array, want: Array, gaps: Array, home: str) -> Divergence:
    at = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
    limit = "bit for bit" if seen.settled else f"within {seen.allowed:.3g} (kappa {seen.tolerance.kappa:.3g})"
    why = f"they differ by {seen.error:.3g}, but must agree {limit}"
    token = int(at[0]) if at else None
    return Divergence(seen.place, seen.field, token, _shown(got, at), _shown(want, at), why, home)


def _shown(values: Array, at: tuple[Any, ...]) -> str:
    row = values[int(at[0])] if at else values
    text = np.array2string(np.asarray(row, dtype=np.float64), precision=17, threshold=8, separator=", ")
    return " ".join(text.split()).replace("[ ", "[").replace(" ,", ",").replace(" ]", "]")
