"""What is known of a coupling after a number of layers, as data, JSON and a table. No torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from weftc.verification.transport.distance_bound import DistanceBound
from weftc.verification.transport.scaling import ProjectiveDistance
from weftc.verification.verdict_text import aligned, wrapped

BEYOND = 1e6  # a larger bound says nothing


@dataclass(frozen=True, slots=True)
class AtDepth:
    """A coupling after `depth` layers: its distance to the optimum, a bound on it, and the errors of its marginals."""

    depth: int
    measured: ProjectiveDistance
    bound: DistanceBound
    rows: float
    columns: float

    @property
    def holds(self) -> bool:
        """Whether nothing is further away than its bound."""
        found, most = asdict(self.measured), asdict(self.bound.distance)
        return all(found[key] <= most[key] for key in found)

    def json(self) -> dict[str, Any]:
        return {
            "depth": self.depth,
            "measured": _finite(asdict(self.measured)),
            "bound": _finite(asdict(self.bound.distance)),
            "because": self.bound.how,
            "row_error": self.rows,
            "column_error": self.columns,
        }


@dataclass(frozen=True, slots=True)
class JudgedDepth:
    """Another implementation's coupling: how far it is from the optimum found here, and how far its sums allow."""

    name: str
    difference: float
    allowed: float

    @property
    def agrees(self) -> bool:
        return self.difference <= self.allowed


@dataclass(frozen=True, slots=True, repr=False)
class Assignment:
    """One coupling, layer by layer, against the unique one with the same kernel and the marginals stated.

    `confirmed`: one layer leaves that optimum where it is. `diameter`: projective, of the kernel. `residual`: how far
    another sweep would move the optimum. `indicative`: log10 of a number of layers that the literature proves to be
    enough for gradient steps on the dual; its proof has gaps, and far fewer do.
    """

    place: str
    size: tuple[int, int]
    marginals: str
    confirmed: bool
    diameter: float
    residual: float
    depths: tuple[AtDepth, ...]
    judged: JudgedDepth | None
    indicative: float | None
    note: str = ""

    @property
    def holds(self) -> bool:
        return all(one.holds for one in self.depths) and (self.judged is None or self.judged.agrees)

    @property
    def failure(self) -> str:
        """What is beyond its bound, or why the other opinion differs."""
        for one in self.depths:
            if not one.holds:
                return f"after {one.depth} layers the coupling is further from the optimum than its sums allow"
        if self.judged is not None and not self.judged.agrees:
            return f"{self.judged.name} finds another coupling, {self.judged.difference:.2g} away"
        return ""

    def json(self) -> dict[str, Any]:
        """The table as plain data; every number is finite or null."""
        return {
            "place": self.place,
            "size": list(self.size),
            "marginals": self.marginals,
            "confirmed": self.confirmed,
            "diameter": self.diameter,
            "residual": self.residual,
            "depths": [one.json() for one in self.depths],
            "judge": None if self.judged is None else {**asdict(self.judged), "agrees": self.judged.agrees},
            "indicative_depth_log10": self.indicative,
            "note": self.note,
            "holds": self.holds,
        }

    def lines(self) -> list[str]:
        """The table as people read it."""
        n, m = self.size
        fixed = "one layer leaves it as it is" if self.confirmed else "an assumption: layers do not keep it"
        about = [
            f"distance to the optimum: {self.place}, {n} x {m}",
            f"optimum: the only rescaling of rows and columns with {self.marginals} ({fixed})",
        ]
        head = ("layers", "projective", "at most", "entries", "at most", "variation", "at most", "rows", "columns")
        rows = [
            head,
            *(
                (
                    str(one.depth),
                    _short(one.measured.projective),
                    _short(one.bound.distance.projective),
                    _short(one.measured.entries),
                    _short(one.bound.distance.entries),
                    _short(one.measured.variation),
                    _short(one.bound.distance.variation),
                    _short(one.rows),
                    _short(one.columns),
                )
                for one in self.depths
            ),
        ]
        below = [
            "projective: log of largest over smallest ratio of entries; entries: largest difference; variation: half "
            "the sum of all differences, per unit of mass; at most: certified from the row and column sums alone; "
            "rows, columns: errors of these sums, per unit of mass",
        ]
        if self.judged is not None:
            verdict = "agrees" if self.judged.agrees else "DISAGREES"
            below.append(
                f"{self.judged.name} {verdict}: its coupling is {_short(self.judged.difference)} away, its own sums "
                f"allow {_short(self.judged.allowed)}"
            )
        if self.indicative is not None:
            below.append(
                f"indicative only: the literature's depth bound for gradient steps on the dual is "
                f"10^{self.indicative:.1f} layers"
            )
        if self.note:
            below.append(self.note)
        return [*wrapped(about), *aligned(rows, right=0), *wrapped(below)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        last = self.depths[-1] if self.depths else None
        far = f"; after {last.depth} layers at most {_short(last.bound.distance.projective)} away" if last else ""
        return f"Assignment({self.place}, {self.size[0]} x {self.size[1]}{far}; print it for the table)"

    def _repr_html_(self) -> str:
        from weftc.show.displays import assignment_html

        return assignment_html(self)


def _short(value: float) -> str:
    return "> 1e6" if value > BEYOND else f"{value:.2g}"


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {key: value if math.isfinite(value) else None for key, value in values.items()}
