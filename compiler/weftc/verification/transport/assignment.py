"""A model whose layers rescale a coupling -> its distance to the optimum after each number of layers.

What is a coupling is decided by the form of the spec (`couplings`), not by its name. The optimum needs marginals. Those
tried are uniform ones and the positive numbers that are given per token; those are taken whose optimum one layer of
the interpreter leaves as it is. If there are none, uniform marginals are assumed, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import WeftError
from weftc.core.syntax import Expr
from weftc.core.types import Checked
from weftc.interpreter.decisions import Tally
from weftc.interpreter.environment import World
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.rationals import ExactEvaluator
from weftc.interpreter.tables import turned
from weftc.verification.cases.inputs import Shape, draw
from weftc.verification.steps.models import plain
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.transport.by_depth import Assignment, AtDepth, JudgedDepth
from weftc.verification.transport.couplings import Coupling, coupling, potential_fields
from weftc.verification.transport.distance_bound import bound, diameter
from weftc.verification.transport.judge_transport import NAME, judged
from weftc.verification.transport.scaling import Optimum, Wide, distance, marginal_errors, optimum
from weftc.verification.verdict import Check
from weftc_runtime import Checkpoint, WeftRuntimeError, load

Array = NDArray[Any]
Floats = NDArray[np.float64]

DEPTH = 100  # layers, where neither spec nor model says more
SHOWN = (0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10000)
TOKENS = 8  # of an open set, in a case of our own
LARGEST = 512  # tokens on a side: beyond, the certificate takes minutes
STEADY = 1e-8  # how far one layer may move an entry of an optimum, relatively


def assignment(
    checked: Checked,
    model: Checkpoint,
    data: Mapping[str, Any] | None = None,
    depth: int | None = None,
    seed: int = 0,
) -> Assignment | None:
    """The table of a model on data, or on a case of its own; None where the spec computes no coupling.

    `depth` is the last number of layers; without it what the model was compiled for, and at least `DEPTH`.
    """
    found = coupling(checked)
    if found is None:
        return None
    given = {name: np.asarray(values, np.float64) for name, values in (data or {}).items()}
    most, note = max((len(values) for values in given.values()), default=0), ""
    if most > LARGEST:
        note = f"your data have {most} tokens, and a certificate takes too long beyond {LARGEST}: random inputs instead"
        given = {}
    inputs = _inputs(checked, found, model, given, seed)
    last = model.program.layers if depth is None else depth
    if depth is None and not model.program.unrolled:
        last = max(last, checked.spec.repeat or DEPTH)
    table = _Case(checked, found, model).follow(inputs, last, seed)
    return replace(table, note=note) if table is not None and note else table


def assignment_check(found: Assignment) -> Check:
    """The table as a piece of evidence: nothing beyond its bound, and another opinion that agrees."""
    last = found.depths[-1]
    measured, allowed = last.measured.variation, last.bound.distance.variation
    compared = f"{found.place}, by depth"
    return Check("assignment", compared, len(found.depths), found.holds, measured, allowed, detail=found.failure)


def _inputs(
    checked: Checked, found: Coupling, model: Checkpoint, given: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """What is given, and random numbers for the rest; positive numbers per token that we draw add up to one."""
    rng = np.random.default_rng((seed, 512))
    sizes = {name: TOKENS - at % 2 for at, name in enumerate(checked.sets)}
    sizes |= {name: model.dims[size] if isinstance(size, str) else size for name, size in checked.sets.items() if size}
    for name, values in given.items():
        sizes[checked.fields[name].home] = len(values)
    drawn = draw(checked, Shape(model.dims, sizes), "positive", rng, given=given)
    inputs = {name: np.asarray(values, np.float64) for name, values in drawn.inputs.items()}
    for name in set(inputs) - set(given):
        if checked.fields[name].kind in ("number", "vector") and checked.fields[name].bound is None:
            inputs[name] = inputs[name] / 2  # from 0.05 to 1
    for name in {*_masses(checked, found.row), *_masses(checked, found.column)} - set(given):
        shares = inputs[name] / inputs[name].sum()
        limits = checked.fields[name].bound
        if limits is None or all(limits.admits(float(share)) for share in shares):
            inputs[name] = shares
    return inputs


def _masses(checked: Checked, index: str) -> list[str]:
    """Inputs that may be masses: positive numbers per token of a set, which no layer writes."""
    written = {e.target.name for step in checked.spec.steps for e in step.equations}
    return [
        name
        for name, one in checked.fields.items()
        if one.role == "input" and one.kind == "number" and one.home == checked.index[index]
        if one.positive and name not in written
    ]


@dataclass(frozen=True, slots=True)
class _Target:
    """Marginals that a coupling may be meant to have."""

    rows: Floats
    columns: Floats
    text: str


class _Case:
    """One model and the coupling of its spec."""

    def __init__(self, checked: Checked, found: Coupling, model: Checkpoint) -> None:
        self.checked, self.found, self.model = checked, found, model
        self.meaning = Stepwise(checked, model.dims, model.params)

    def follow(self, inputs: Mapping[str, Array], last: int, seed: int) -> Assignment | None:
        """The table of one run; None where it has no value."""
        network = load(self.model, backend="reference")  # the matrices as they stand
        try:
            fields = {name: self._array(name, v) for name, v in network.start(dict(inputs), seed=seed).items()}
            kernel = self._kernel(self.meaning.world(fields))
            if kernel is None:
                return None
            target, best, confirmed = self._target(fields, kernel, seed)
            if best is None:
                return None
            across, depths = diameter(kernel), []
            for depth in range(last + 1):
                if depth:
                    after = network.advance(fields, depth - 1, seed=seed)
                    fields = {name: self._array(name, v) for name, v in after.items()}
                if depth in SHOWN or depth == last:
                    log = self._log(kernel, fields)
                    rows, columns = marginal_errors(log, target.rows, target.columns)
                    limit = bound(log, target.rows, target.columns, across)
                    depths.append(AtDepth(depth, distance(log, best), limit, rows, columns))
        except (WeftError, WeftRuntimeError):
            return None
        return Assignment(
            self.found.place,
            (kernel.shape[0], kernel.shape[1]),
            target.text,
            confirmed,
            across,
            best.residual,
            tuple(depths),
            self._judged(kernel, target, best, across),
            self._indicative(fields, best),
            ""
            if confirmed
            else "marginals were tried and not found to be kept; the distance is to the optimum assumed",
        )

    def _array(self, name: str, value: Any) -> Array:
        found = plain(value)
        flat = self.checked.fields[name].width is None and not self.checked.fields[name].is_pair
        return found[..., 0] if flat and found.ndim == 2 else found

    # ---- the coupling ------------------------------------------------------------------------------------------------

    def _value(self, world: World, node: Expr, *axes: str) -> Floats:
        """An expression over some indices, as an array."""
        table = turned(Evaluator(world, ExactEvaluator(world), Tally()).table(node), axes)
        shape = tuple(world.size(axis) for axis in axes)
        return np.array(np.broadcast_to(table.data[..., 0], shape))

    def _kernel(self, world: World) -> Floats | None:
        """What no layer changes, in logarithms."""
        indices = self.found.row, self.found.column
        factor = self._value(world, self.found.factor, *indices)
        kernel = self._value(world, self.found.kernel, *indices)
        if not (factor > 0).all() or not np.isfinite(kernel).all():
            return None
        return kernel + np.log(factor)

    def _log(self, kernel: Floats, fields: Mapping[str, Array]) -> Wide:
        """The coupling at stored fields, in logarithms."""
        world = self.meaning.world(fields)
        rows = self._value(world, self.found.rows, self.found.row)
        columns = self._value(world, self.found.columns, self.found.column)
        return np.asarray(np.asarray(kernel, np.longdouble) + rows[:, np.newaxis] + columns, np.longdouble)

    # ---- what it should be -------------------------------------------------------------------------------------------

    def _target(self, fields: Mapping[str, Array], kernel: Floats, seed: int) -> tuple[_Target, Optimum | None, bool]:
        """Marginals whose optimum a layer keeps; else uniform ones, and no confirmation."""
        first: tuple[_Target, Optimum | None] | None = None
        for target in self._targets(fields, kernel.shape):
            best = optimum(kernel, target.rows, target.columns)
            first = first or (target, best)
            if best is not None and self._moved(fields, kernel, best, seed) <= STEADY:
                return target, best, True
        assert first is not None
        return *first, False

    def _targets(self, fields: Mapping[str, Array], shape: tuple[int, ...]) -> Iterator[_Target]:
        """Uniform marginals of mass 1, one per row, one per column; then those given as numbers per token."""
        n, m = shape
        for mass, text in (
            (1.0, "equal row sums and equal column sums, of mass 1"),
            (n, "row sums 1"),
            (m, "column sums 1"),
        ):
            full = text if mass == 1.0 else f"{text}, and equal sums on the other side"
            yield _Target(np.full(n, mass / n), np.full(m, mass / m), full)
        sides = []
        for index, size in ((self.found.row, n), (self.found.column, m)):
            given = {name: np.asarray(fields[name], float) for name in _masses(self.checked, index)}
            sides.append({**given, "equal shares": np.full(size, 1 / size)})
        for a, rows in sides[0].items():
            for b, columns in sides[1].items():
                if a == b == "equal shares":
                    continue
                totals = {b: float(columns.sum()), a: float(rows.sum())}
                for name in [b] if totals[a] == totals[b] else [b, a]:
                    if name != "equal shares":
                        scaled = rows * (totals[name] / totals[a]), columns * (totals[name] / totals[b])
                        even = np.isclose(totals[a], totals[b], rtol=1e-12)
                        text = f"row sums {a} and column sums {b}"
                        yield _Target(*scaled, text if even else f"{text}, scaled to the total of {name}")

    def _moved(self, fields: Mapping[str, Array], kernel: Floats, best: Optimum, seed: int) -> float:
        """How far one layer moves the entries of an optimum, in logarithms; infinite where it cannot be set up."""
        placed = self._placed(fields, best)
        if placed is None:
            return np.inf
        after = self.meaning.advance(placed, 0, seed=seed).fields
        return float(np.max(np.abs(self._log(kernel, after) - best.log)))

    def _placed(self, fields: Mapping[str, Array], best: Optimum) -> dict[str, Array] | None:
        """Fields at which the coupling is an optimum; row and column terms must be linear in one field each."""
        changed = dict(fields)
        sides = (self.found.row, self.found.rows, best.rows), (self.found.column, self.found.columns, best.columns)
        for index, term, wanted in sides:
            names = potential_fields(self.checked, term)
            if len(names) != 1 or np.shape(fields.get(names[0], ())) != wanted.shape:
                return None
            (name,) = names
            start, one, two = (self._constant(changed, term, index, name, value) for value in (0.0, 1.0, 2.0))
            slope = one - start
            if not np.allclose(two - one, slope, rtol=1e-9, atol=0) or not slope.all():
                return None
            solved = np.asarray((np.asarray(wanted, float) - start) / slope)
            again = name in potential_fields(self.checked, self.found.rows) and index == self.found.column
            changed[name] = (changed[name] + solved) / 2 if again else solved
        return changed

    def _indicative(self, fields: Mapping[str, Array], best: Optimum) -> float | None:
        """log10 of 64 n^3 exp(3 r / lambda) r, with r the length of the dual variables at the optimum."""
        placed = self._placed(fields, best)
        n, m = best.log.shape
        if placed is None or n != m:
            return None
        sides = [placed[potential_fields(self.checked, term)[0]] for term in (self.found.rows, self.found.columns)]
        shift = (sides[1].mean() - sides[0].mean()) / 2  # adding to one side and taking from the other changes nothing
        radius = float(np.linalg.norm(np.concatenate([sides[0] + shift, sides[1] - shift])))
        (name,) = potential_fields(self.checked, self.found.rows)
        start, one = (self._constant(placed, self.found.rows, self.found.row, name, value) for value in (0.0, 1.0))
        steep = float(np.max(np.abs(one - start)))  # 1 / lambda
        return float(np.log10(64 * n**3 * radius) + 3 * radius * steep / np.log(10)) if radius else None

    def _constant(self, fields: Mapping[str, Array], term: Expr, index: str, name: str, value: float) -> Floats:
        """A row or column term where its field is the same number everywhere."""
        world = self.meaning.world({**fields, name: np.full_like(fields[name], value)})
        return self._value(world, term, index)

    # ---- another opinion ---------------------------------------------------------------------------------------------

    def _judged(self, kernel: Floats, target: _Target, best: Optimum, across: float) -> JudgedDepth | None:
        """POT's coupling: as near to ours as its own row and column sums say."""
        other = judged(kernel, target.rows, target.columns)
        if other is None:
            return None
        plan, log = other
        limit = bound(np.asarray(log, np.longdouble), target.rows, target.columns, across)
        apart = float(np.max(np.abs(plan - best.plan)))
        return JudgedDepth(NAME, apart, limit.distance.entries + best.residual * float(best.plan.max()))
