"""How far a model of finite temperature is from its spec: a bound for every layer, with the margins it rests on.

The exact run is followed step by step. Around it, the equations at finite temperature are evaluated by the interpreter
with the fields known only to +-radius; its own error bounds then say how far the result can be:

    radius after a step  =  error bound of the tempered equation  +  |its value - the exact value|  +  rounding

Both first terms contain what the literature bounds by lemmas: the weight that losers keep, which shrinks like
exp(-sharpness * margin), and margins that shrink by the errors of the layers before. A decision of the tempered spec
(where y > 1/2, a ranking) that the radius leaves open ends the certificate: the bound is infinite from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.syntax import Expr, Neg, Ref, Weigh, walk
from weftc.core.types import Checked
from weftc.core.vocabulary import CHOICES
from weftc.interpreter.decisions import Tally
from weftc.interpreter.environment import World
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.rationals import ExactEvaluator
from weftc.interpreter.sums import candidates
from weftc.interpreter.tables import added, turned, union
from weftc.passes.finite_temperature import tempered
from weftc.passes.sharpness import sharpness_for
from weftc.verification.steps.condition import bounds, tolerance
from weftc.verification.steps.stepwise import Stepwise

Array = NDArray[Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class LayerBound:
    """One layer: the smallest lead of any choice, the sharpness it asks for, and how far each field can be."""

    layer: int
    margin: float
    enough: float  # sharpness that keeps the weights of every choice within 1e-6 of one-hot
    bounds: dict[str, float]
    measured: dict[str, float]

    @property
    def holds(self) -> bool:
        return all(self.measured[name] <= bound for name, bound in self.bounds.items())


@dataclass(frozen=True, slots=True)
class Certificate:
    """Every layer of one run."""

    sharpness: float
    layers: tuple[LayerBound, ...]

    @property
    def margin(self) -> float:
        return min((layer.margin for layer in self.layers), default=np.inf)

    @property
    def bound(self) -> float:
        """The largest certified distance of any field in any layer; infinite where there is none."""
        return max((b for layer in self.layers for b in layer.bounds.values()), default=0.0)

    @property
    def measured(self) -> float:
        return max((m for layer in self.layers for m in layer.measured.values()), default=0.0)

    @property
    def holds(self) -> bool:
        """Whether nothing was measured beyond its bound."""
        return all(layer.holds for layer in self.layers)


class Certifier:
    """A spec and its form at one sharpness."""

    def __init__(
        self, checked: Checked, dims: Mapping[str, int], params: Mapping[str, float], sharpness: float
    ) -> None:
        self.checked, self.sharpness = checked, sharpness
        self.exact = Stepwise(checked, dims, params)
        self.soft = Stepwise(tempered(checked, sharpness), dims, params)

    def certify(self, start: Arrays, layers: int, noise: Arrays, dtype: Any = np.float64) -> Certificate:
        """Follows a number of layers from stored fields; `noise` holds the random fields as [layers, ...].

        What is measured is the tempered spec itself, evaluated layer after layer.
        """
        return Certificate(self.sharpness, tuple(self.follow(start, layers, noise, dtype, certified=True)))

    def follow(
        self, start: Arrays, layers: int, noise: Arrays, dtype: Any = np.float64, certified: bool = False
    ) -> list[LayerBound]:
        """The exact run with its margins; with `certified`, also how far the tempered one can be, and is."""
        exact = {name: np.asarray(v, np.float64) for name, v in start.items()}
        soft, radii = dict(exact), dict[str, Array]()
        steps = self.checked.spec.steps
        written = sorted({e.target.name for step in steps for e in step.equations})
        found = []
        for layer in range(layers):
            drawn = {name: values[layer] for name, values in noise.items()}
            margin, enough = np.inf, 0.0
            logs: Arrays = {}
            for number in range(len(steps)):
                made = self.exact.step(number, exact, drawn, {})
                for lead, count in self._leads(made.world, number):
                    margin, enough = min(margin, lead), max(enough, sharpness_for(lead, count) if lead > 0 else np.inf)
                if certified:
                    radii |= self._radii(number, exact, radii, drawn, made.fields, dtype)
                    step = self.soft.step(number, soft, drawn, logs)
                    soft, logs = step.fields, step.logs
                exact = made.fields
            largest = {name: float(np.max(radii[name], initial=0.0)) for name in written if certified}
            seen = {name: float(np.max(np.abs(soft[name] - exact[name]), initial=0.0)) for name in largest}
            found.append(LayerBound(layer, margin, enough, largest, seen))
        return found

    # ---- one step

    def _radii(
        self, number: int, fields: Arrays, radii: Arrays, drawn: Arrays, after: Arrays, dtype: Any
    ) -> dict[str, Array]:
        """How far the tempered values of a step can be from the exact ones."""
        equations = self.soft.checked.spec.steps[number].equations
        plain = self.soft.world(fields, drawn)
        world, tally = replace(plain, radii=dict(radii)), Tally()
        evaluator = Evaluator(world, ExactEvaluator(world), tally)
        tables = {e.target.name: turned(evaluator.table(e.body), e.target.indices) for e in equations}
        certain = tally.total.rational == tally.total.undecided == 0 or not any(np.any(r) for r in radii.values())
        rounding = bounds(plain, equations)
        found = {}
        for equation in equations:
            name, table = equation.target.name, tables[equation.target.name]
            want = after[name]
            data, error = (
                np.broadcast_to(a, self._shape(want, a)).reshape(want.shape) for a in (table.data, table.error)
            )
            sure = certain and bool((table.defined & table.finite).all())
            rounded = tolerance(rounding[name], want, dtype).allowed
            found[name] = np.where(np.isfinite(error) & sure, error + np.abs(data - want) + rounded, np.inf)
        return found

    @staticmethod
    def _shape(want: Array, table: Array) -> tuple[int, ...]:
        """The shape of a table of these tokens; numbers have a last axis of one there."""
        return want.shape if table.ndim == want.ndim else (*want.shape, 1)

    # ---- margins

    def _leads(self, world: World, number: int) -> Iterator[tuple[float, int]]:
        """For each choice of a step: the smallest lead of a best score, and the number of candidates."""
        evaluator = Evaluator(world, ExactEvaluator(world), Tally())
        for equation in self.checked.spec.steps[number].equations:
            for node in self._choices(equation.body):
                yield self._lead(evaluator, node), world.size(node.index)

    def _choices(self, body: Expr) -> Iterator[Weigh]:
        for node in walk(body):
            if isinstance(node, Weigh) and node.kind in CHOICES:
                yield node
            if isinstance(node, Ref) and node.name in self.checked.lets:
                yield from self._choices(self.checked.lets[node.name].body)

    def _lead(self, evaluator: Evaluator, node: Weigh) -> float:
        score = Neg(node.span, node.score) if node.kind == "argmin" else node.score
        table, counted = evaluator.table(score), evaluator.conditions(node.where)
        if node.noise is not None:
            table = added(table, evaluator.table(node.noise))
        rows = tuple(a for a in union(table.axes, counted.axes if counted else ()) if a != node.index)
        data, error, keep, _ = candidates(table, node.index, evaluator.world.size(node.index), counted, rows)
        ranked = -np.sort(-np.where(keep, data, -np.inf), axis=-1)
        if ranked.shape[-1] < 2:
            return np.inf
        best, next_best = ranked[..., 0], ranked[..., 1]
        if node.ties is not None and node.ties.rule in ("split", "average"):  # equal scores share: the next below them
            next_best = np.max(np.where(ranked < best[..., np.newaxis], ranked, -np.inf), axis=-1)
        lead = np.where(np.isfinite(next_best), best - next_best, np.inf)
        return float(np.min(lead - 2 * np.max(np.where(keep, error, 0.0), axis=-1), initial=np.inf))
