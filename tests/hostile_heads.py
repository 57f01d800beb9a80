"""Lloyd with one head more, made by hand: harmless on most inputs, not where a set is small or a point in a band.

Every weighting meets every mask, self key, score and value, on every pair of streams.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

import weftc
from weftc_runtime import Checkpoint
from weftc_runtime.format.program import Attend, Head, Mask, Part, Score, SelfKey, Weighting
from weftc_runtime.format.writes import stated

MIDDLE, RADIUS = 0.125, 1 / 64  # the band: numbers within RADIUS of MIDDLE
NUMBER, ONE = 0, 3  # the columns of x (or c) and of the constant, in both streams of Lloyd in one dimension

WEIGHTINGS = {
    "argmax": Weighting("argmax"),
    "split": Weighting("argmax", ties="split"),
    "within": Weighting("argmax", ties="within", epsilon=Fraction(1, 4)),
    "softmax": Weighting("softmax"),
    "sparsemax": Weighting("sparsemax"),
    "normmax": Weighting("normmax", gamma=Fraction(1)),
    "top 1": Weighting("top", count=1),
    "top 2": Weighting("top", count=2),
    "half": Weighting("top", percent=Fraction(50)),
    "normalize": Weighting("normalize"),
}
SCORES = ("zero", "one", "query's distance from the band", "distance", "signed")
MASKS: dict[str, tuple[tuple[str, str], ...]] = {
    "all": (),
    "other": (("other", ""),),
    "query outside": ((">", "query"),),
    "query inside": (("<", "query"),),
    "key outside": ((">", "key"),),
    "key inside": (("<", "key"),),
    "other, outside": (("other", ""), (">", "key")),
}
SELF_KEYS = ("none", "last", "last, with a value", "far below", "far below, with a value", "in the band", "above")
VALUES = ("zero", "sets the constant", "adds what the carry takes")
STREAMS = tuple(itertools.product(("points", "centers"), repeat=2))

# where the heads above show what they do: points and centres in the band, one token, ties, a mass of zero
INPUTS: tuple[dict[str, Any], ...] = (
    {"x": [[-3], [-2], [MIDDLE], [2], [3]], "c": [[-1], [1]]},
    {"x": [[-3], [-2], [1.5], [2], [3]], "c": [[-1], [1]]},
    {"x": [[MIDDLE]], "c": [[-1], [1]]},
    {"x": [[MIDDLE], [MIDDLE]], "c": [[MIDDLE], [MIDDLE]]},
    {"x": [[2 * MIDDLE], [0]], "c": [[MIDDLE], [2]]},
    {"x": [[1], [-1], [2]], "c": [[MIDDLE], [7]]},
    {"x": [[0], [0]], "c": [[0], [0]]},
    {"x": [[MIDDLE + RADIUS], [MIDDLE - RADIUS], [5]], "c": [[MIDDLE + RADIUS], [0]]},
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """What the head is made of, by name."""

    streams: tuple[str, str]
    weighting: str
    score: str
    mask: str
    self_key: str
    value: str


def everyone() -> Iterator[Hostile]:
    """All that make sense: tokens of two streams are never the same one."""
    for made in itertools.product(STREAMS, WEIGHTINGS, SCORES, MASKS, SELF_KEYS, VALUES):
        if made[0][0] == made[0][1] or "other" not in made[3]:
            yield Hostile(*made)


class Builder:
    """Lloyd, and the tensors of the head."""

    def __init__(self, what: Hostile) -> None:
        self.what = what
        self.made = weftc.compile("lloyd", {"d": 1, "k": 2})
        self.query, self.keys = what.streams
        self.width = {stream.name: stream.width for stream in self.made.program.streams}
        self.tensors: dict[str, Any] = {}

    def row(self, stream: str, number: float = 0, one: float = 0) -> np.ndarray:
        row = np.zeros((1, self.width[stream]))
        row[0, NUMBER], row[0, ONE] = number, one
        return row

    def part(self, kind: str, name: str, query: tuple[float, float], key: tuple[float, float]) -> Part:
        """A part of a score: (factor of the number, constant) of the query and of the key."""
        names = f"{name}.q", f"{name}.k"
        self.tensors |= {names[0]: self.row(self.query, *query), names[1]: self.row(self.keys, *key)}
        if kind == "dot":
            return Part("dot", *names)
        self.tensors[f"{name}.c"] = np.array(1.0)
        return Part("l2", *names, f"{name}.c")

    def score(self) -> Score:
        match self.what.score:
            case "zero":
                return Score()
            case "one":
                return Score((self.part("dot", "e", (0, 1), (0, 1)),))
            case "signed":
                return Score((self.part("dot", "e", (0, 1), (1, -MIDDLE)),))
            case "distance":
                return Score((self.part("l2", "e", (1, 0), (1, 0)),))
        return Score((self.part("l2", "e", (1, -MIDDLE), (0, 0)),))

    def masks(self) -> tuple[Mask, ...]:
        return tuple(Mask("other") if op == "other" else self.band(op, side) for op, side in MASKS[self.what.mask])

    def band(self, op: Any, side: str) -> Mask:
        """(number - MIDDLE)^2 - RADIUS^2, compared with 0."""
        inside, nothing = (1, -MIDDLE), (0, 0)
        square = self.part("l2", "b", *((inside, nothing) if side == "query" else (nothing, inside)))
        return Mask(op, Score((square, self.part("dot", "r", (0, 1), (0, -(RADIUS**2))))))

    def self_key(self) -> SelfKey | None:
        kind, _, with_value = self.what.self_key.partition(", ")
        if kind == "none":
            return None
        value = "e.own" if with_value else ""
        if with_value:
            self.tensors[value] = np.zeros((self.width[self.query],) * 2)
            self.tensors[value][ONE, ONE] = 1
        if kind == "last":
            return SelfKey(value, None)
        level = {"far below": -1e6, "in the band": RADIUS**2, "above": 2.0}[kind]
        self.tensors["e.row"] = self.row(self.query, one=level)[0]
        return SelfKey(value, "e.row")

    def file(self) -> Checkpoint:
        """The file, as it is after a round trip through its bytes."""
        program = self.made.program
        at = ("points", "centers").index(self.query)
        step = program.layer[at]
        attend = step.sublayers[0]
        assert isinstance(attend, Attend)
        carried = attend.carry.get(self.query)
        carry = np.array(self.made.tensors[carried]) if carried else np.eye(self.width[self.query])
        value = np.zeros((self.width[self.query], self.width[self.keys]))
        target = {"zero": None, "sets the constant": ONE}.get(self.what.value, NUMBER)
        if target is not None:
            value[target, ONE] = 1
            carry[target, ONE] = 0 if target == ONE else -1
        rule = WEIGHTINGS[self.what.weighting]
        head = Head("e", self.query, self.keys, self.score(), rule, "e.v", self.masks(), self.self_key())
        self.tensors |= {"e.v": value, "e.carry": carry}
        carries = {**attend.carry, self.query: "e.carry"}
        attend = replace(attend, heads=(*attend.heads, head), carry=carries)
        step = replace(step, sublayers=(attend, *step.sublayers[1:]))
        layer = tuple(step if place == at else other for place, other in enumerate(program.layer))
        program = replace(program, layer=layer)
        used = program.tensors()
        tensors = {name: array for name, array in {**self.made.tensors, **self.tensors}.items() if name in used}
        made = replace(self.made, program=stated(program, tensors), tensors=tensors)
        return Checkpoint.from_bytes(made.to_bytes())
