"""How precisely an equation can be computed: the interpreter's error bound of it, which gives the contract its kappa.

The interpreter carries, with every value, a rigorous bound on its distance from exact arithmetic on the same stored
fields (`interpreter/tables.py`). Divided by 16 * eps * max|f| it is the condition of the equation at these fields, in
the units of the numeric contract; `kappa` is that, and at least 1:

    allowed error of a field f   16 * eps * kappa * max|f|  =  max(16 * eps * max|f|, bound)

So kappa is 1 for choices and hard means, about 1 + (range of the scores) for softmax weights, and grows where a spec
divides by small numbers or takes roots near zero. It knows no algorithm, and decisions do not enter it: they are
settled, not rounded. The bound is that of the equation as it is written, whatever backend computes it and however it
was lowered, and in float32 it grows by the ratio of the epsilons.

One style is another way of writing: `--scores dot` asks for |a - b|^2 as <a,a> - 2 <a,b> + <b,b>. There a squared
distance between two tokens is good to eps times the square of how far apart all vectors of its two sides and of the
inputs of that width are, as they are and as they were given (with `--centre off`: how far from zero), and no better
(`Distances`). Runs say how many digits that is on their data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weftc.core.syntax import Binary, Call, Else, Equation, Expr, Norm, Num, Power, Reduce, Ref, Square, Weigh
from weftc.core.types import Checked
from weftc.core.vocabulary import DECIDING
from weftc.interpreter.decisions import Tally
from weftc.interpreter.environment import World, free, is_vector
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.rationals import ExactEvaluator
from weftc.interpreter.tables import Floats, ValueTable, applied, turned

ROUNDINGS = 16  # of the numeric contract
EPSILON = float(np.finfo(np.float64).eps)
TRIALS = 4


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What is allowed for one field at one place."""

    epsilon: float  # of the precision the model stores
    scale: float  # max|f|
    bound: float  # error bound, in that precision
    smallest: float  # normal number: below it there is no relative precision

    @property
    def kappa(self) -> float:
        """The condition; 1 when rounding the result is all there is."""
        least = ROUNDINGS * self.epsilon * self.scale
        return max(1.0, self.bound / least) if least > 0 else 1.0

    @property
    def allowed(self) -> float:
        return max(ROUNDINGS * self.epsilon * self.scale, self.bound) + self.smallest


def tolerance(bound: float, values: Floats, dtype: Any) -> Tolerance:
    """The contract for a field with these values."""
    precision = np.finfo(dtype)
    epsilon = float(precision.eps)
    scale = float(np.max(np.abs(values), initial=0.0))
    return Tolerance(epsilon, scale, bound * (epsilon / EPSILON), float(precision.smallest_normal))


# ---- the bound -------------------------------------------------------------------------------------------------------

Distances: TypeAlias = Literal["as written", "multiplied out", "multiplied out from zero"]


class _MultipliedOut(Evaluator):
    """Evaluates with the error that distances have when they are multiplied out; values are those of the spec."""

    centred = True
    given: Mapping[str, Floats] = {}  # the inputs before the first layer
    lost: list[bool]  # of every distance: whether some are not zero, and as good as zero

    def over(self, domain: Mapping[str, NDArray[np.intp]]) -> Evaluator:
        made = type(self)(self.world, self.exact, self.tally, domain)
        made.centred, made.given, made.lost = self.centred, self.given, self.lost
        return made

    def table(self, node: Expr) -> ValueTable:
        match node:
            case Square(body=Binary(op="-") as body) | Power(base=Binary(op="-") as body, exponent=2):
                return self._doubtful(super().table(node), body)
            case Norm(body=Binary(op="-") as body) if is_vector(self.world.checked, body):
                squared = self._doubtful(super().table(Square(node.span, body)), body)
                return replace(applied("sqrt", squared), data=super().table(node).data)
            case Call(function="sqrt", body=body):  # what is zero as written is not as it is multiplied out
                root = super().table(node)
                return replace(root, error=np.maximum(root.error, applied("sqrt", self.table(body)).error))
        return super().table(node)

    def _doubtful(self, square: ValueTable, body: Binary) -> ValueTable:
        sides = [self.table(side) for side in (body.left, body.right)]
        if {len(free(side)) for side in (body.left, body.right)} != {1} or sides[0].axes == sides[1].axes:
            return square
        rows = [side.data.reshape(-1, side.data.shape[-1]) for side in sides]
        width = rows[0].shape[1]
        if self.centred:
            inputs = (f.target.name for f in self.world.checked.spec.inputs)
            known = {**self.world.fields}
            stored = [np.asarray(at[name]) for name in inputs for at in (known, self.given) if name in at]
            rows += [one.reshape(len(one), -1) for one in stored if one[:1].size == width]
        every = np.concatenate(rows)
        reach = np.ptp(every, axis=0) if self.centred else np.max(np.abs(every), axis=0, initial=0.0)
        with np.errstate(over="ignore"):
            doubt = (width + 4) * EPSILON * float(np.sum(4 * reach * reach))
        self.lost.append(bool(np.any(square.defined & (square.data != 0) & (square.data <= doubt))))
        return replace(square, error=square.error + doubt)


def _evaluator(world: World, distances: Distances, given: Mapping[str, Floats]) -> Evaluator:
    if distances == "as written":
        return Evaluator(world, ExactEvaluator(world), Tally())
    made = _MultipliedOut(world, ExactEvaluator(world), Tally())
    made.centred, made.given, made.lost = distances == "multiplied out", given, []
    return made


def bounds(
    world: World,
    equations: tuple[Equation, ...],
    distances: Distances = "as written",
    given: Mapping[str, Floats] | None = None,
) -> dict[str, float]:
    """The largest error bound of each target; infinite where an equation has no bound, or no value.

    `given`: the inputs before the first layer, where distances are multiplied out.
    """
    evaluator = _evaluator(world, distances, given or {})
    found = {}
    for equation in equations:
        table = turned(evaluator.table(equation.body), equation.target.indices)
        largest = float(np.max(table.error, initial=0.0))
        found[equation.target.name] = largest if (table.defined & table.finite).all() else np.inf
    return found


def loses_a_distance(
    world: World, equations: tuple[Equation, ...], distances: Distances, given: Mapping[str, Floats]
) -> bool:
    """Whether multiplying distances out cannot tell one of them from zero that is none: dividing by it may stop."""
    evaluator = _evaluator(world, distances, given)
    for equation in equations:
        evaluator.table(equation.body)
    return isinstance(evaluator, _MultipliedOut) and any(evaluator.lost)


def log_errors(
    world: World,
    equations: tuple[Equation, ...],
    names: Iterable[str],
    distances: Distances = "as written",
    given: Mapping[str, Floats] | None = None,
) -> dict[str, Floats]:
    """Error bounds of the logarithms of softmax fields, which later steps of the layer weigh by."""
    evaluator = _evaluator(world, distances, given or {})
    found = {}
    for equation in (e for e in equations if e.target.name in set(names)):
        table = turned(evaluator.table(Call(equation.span, "log", equation.body)), equation.target.indices)
        found[equation.target.name] = np.broadcast_to(table.error, table.data.shape)[..., 0]
    return found


def sensitivity(world: World, equations: tuple[Equation, ...], errors: Mapping[str, Floats]) -> dict[str, float]:
    """How far each target moves when logarithms that it weighs by move within their errors, up or down at random.

    These logarithms are no stored fields, so either side has its own; twice the largest change seen is allowed for.
    """
    rng = np.random.default_rng(len(errors))
    largest = dict.fromkeys((e.target.name for e in equations), 0.0)
    usual = _values(world, equations)
    for _ in range(TRIALS):
        moved = dict(world.logs)
        for name, error in errors.items():
            moved[name] = moved[name] + np.where(np.isfinite(error), error, 0.0) * rng.choice((-1.0, 1.0), error.shape)
        for name, values in _values(replace(world, logs=moved), equations).items():
            change = float(np.max(np.abs(values - usual[name]), initial=0.0))
            largest[name] = max(largest[name], 2 * change if np.isfinite(change) else np.inf)
    return largest


def _values(world: World, equations: tuple[Equation, ...]) -> dict[str, Floats]:
    evaluator = Evaluator(world, ExactEvaluator(world), Tally())
    return {e.target.name: turned(evaluator.table(e.body), e.target.indices).data for e in equations}


# ---- what must agree bit for bit -------------------------------------------------------------------------------------


def is_settled(checked: Checked, node: Expr) -> bool:
    """Whether a value is a choice, or an exact sum of chosen stored values over their number: the same bits for all."""
    match node:
        case Ref(name=name, indices=indices) if indices:
            return name in checked.fields
        case Num():
            return True
        case Weigh():
            return node.kind in DECIDING
        case Else(body=body, fallback=fallback):
            return is_settled(checked, body) and is_settled(checked, fallback)
        case Reduce(kind="sum" | "mean", body=body, weighted=None, by=by):
            return (by is None or is_settled(checked, by)) and _is_chosen(checked, body, node.index, by is None)
        case Reduce(kind="max" | "min", body=body):
            return isinstance(body, Ref) and is_settled(checked, body)
    return False


def _is_chosen(checked: Checked, node: Expr, index: str, may_choose: bool) -> bool:
    """A stored value, or one times a hard weighting over the index that is summed."""
    match node:
        case Ref():  # a mean of numbers of two tokens, or of coordinates, is a sum times 1 / count
            return is_settled(checked, node) and len(node.indices) == 1
        case Binary(op="*", left=Weigh() as weights, right=Ref() as value):
            return may_choose and weights.index == index and is_settled(checked, weights) and is_settled(checked, value)
    return False
