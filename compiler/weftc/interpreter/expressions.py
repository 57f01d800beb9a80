"""The meaning of an expression for all tokens at once: a `ValueTable` with one axis per index variable it depends on.

Reductions and weightings have modules of their own; this one holds names, arithmetic and conditions. Index variables
run over all tokens of their set unless `domain` restricts them (equations over many pairs are evaluated in blocks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from weftc.core.syntax import (
    Binary,
    Call,
    Compare,
    Condition,
    Count,
    Different,
    Else,
    Expr,
    Inner,
    Member,
    Neg,
    Norm,
    Num,
    Percent,
    Position,
    Power,
    Reduce,
    Ref,
    Square,
    Symbol,
    Weigh,
)
from weftc.interpreter import tables
from weftc.interpreter.decisions import Tally, compare
from weftc.interpreter.environment import World
from weftc.interpreter.exponentials import logarithm, quotient
from weftc.interpreter.inputs import one_hot
from weftc.interpreter.rationals import ExactEvaluator, Irrational
from weftc.interpreter.reductions import reduce
from weftc.interpreter.sums import both, indicator
from weftc.interpreter.tables import Bools, Floats, ValueTable
from weftc.interpreter.weightings import sharp, weigh

Tokens = NDArray[np.intp]
Result = TypeVar("Result")


class Evaluator:
    """Evaluates expressions in one world, over the tokens of `domain`; results of one node are computed once."""

    def __init__(
        self, world: World, exact: ExactEvaluator, tally: Tally, domain: Mapping[str, Tokens] | None = None
    ) -> None:
        self.world = world
        self.exact = exact
        self.tally = tally
        self.domain = dict(domain or {})
        self._known: dict[tuple[str, int], tuple[object, Any]] = {}
        self._opened: dict[str, Evaluator] = {}

    # ---- where index variables run -----------------------------------------------------------------------------------

    def tokens(self, index: str) -> Tokens:
        """The tokens an index variable runs over."""
        return self.domain[index] if index in self.domain else np.arange(self.world.size(index))

    def over(self, domain: Mapping[str, Tokens]) -> Evaluator:
        """The same world over other tokens."""
        return Evaluator(self.world, self.exact, self.tally, domain)

    def opened(self, index: str) -> Evaluator:
        """`index` over its whole set: what a reduction or weighting over it sees."""
        if index not in self.domain:
            return self
        if index not in self._opened:
            self._opened[index] = self.over({i: t for i, t in self.domain.items() if i != index})
        return self._opened[index]

    def inside(self, ref: Ref) -> tuple[Expr, Evaluator, dict[str, str]]:
        """The body of a `let`, the evaluator for it, and the index names its use gives to its own."""
        let = self.world.checked.lets[ref.name]
        names = dict(zip(let.target.indices, ref.indices, strict=True))
        domain = {own: self.domain[given] for own, given in names.items() if given in self.domain}
        if not domain and not self.domain:
            return let.body, self, names
        return let.body, self.once("let", ref, lambda: self.over(domain)), names

    def env(self, axes: Sequence[str], shape: Sequence[int], place: int) -> dict[str, int]:
        """The tokens at a place of a flattened array over `axes`."""
        return self.at(axes, np.unravel_index(place, tuple(shape)))

    def at(self, axes: Sequence[str], place: Sequence[Any]) -> dict[str, int]:
        """The tokens at a place of an array over `axes`."""
        return {axis: int(self.tokens(axis)[position]) for axis, position in zip(axes, place, strict=True)}

    def once(self, what: str, node: object, compute: Callable[[], Result]) -> Result:
        """The result for a node, computed at the first request. (The node is kept, so that its id stays its own.)"""
        key = (what, id(node))
        if key not in self._known:
            self._known[key] = (node, compute())
        result: Result = self._known[key][1]
        return result

    # ---- values ------------------------------------------------------------------------------------------------------

    def table(self, node: Expr) -> ValueTable:
        """The value of an expression."""
        match node:
            case Num():
                return tables.constant(node.value)
            case Symbol():
                return tables.stored((), one_hot(node))
            case Ref():
                return self._reference(node)
            case Count(set=name):
                return tables.constant(float(self.world.sizes[name]))
            case Position(index=index, onehot=True):
                return tables.stored((index,), np.eye(self.world.size(index))[self.tokens(index)])
            case Position(index=index):
                return tables.stored((index,), self.tokens(index)[:, np.newaxis] + 1.0)
            case Reduce():
                return self.once("value", node, lambda: reduce(self, node))
            case Weigh():
                return self.once("value", node, lambda: self._weight(node))
            case Call(function="log", body=body):
                return logarithm(self, body)
            case Call(function="unit", body=body):
                return tables.unit(self.settled(body))
            case Call(function="sqrt", body=body):
                return tables.applied("sqrt", self.settled(body))
            case Call(function=function, body=body):
                return tables.applied(function, self.table(body))
            case Else(body=body, fallback=fallback):
                return tables.otherwise(self.table(body), self.table(fallback))
            case Neg(body=body):
                return tables.negated(self.table(body))
            case Percent(body=body):
                return self.table(body)
            case Norm(body=body):
                return tables.length(self.table(body))
            case Square(body=body):
                value = self.table(body)
                return tables.inner(value, value)
            case Inner(left=left, right=right):
                return tables.inner(self.table(left), self.table(right))
            case Power(base=base, exponent=exponent):
                return tables.power(self.table(base), exponent)
            case Binary(op="/", left=left, right=right):
                return quotient(self, left, right)
            case Binary(op="./", left=left, right=right):
                return tables.divided(self.table(left), self.settled_entries(right))
            case Binary(op=op, left=left, right=right):
                return combine(op, self.table(left), self.table(right))

    def settled(self, node: Expr, computed: ValueTable | None = None) -> ValueTable:
        """The value of an expression (or as computed), exact where float64 cannot tell on which side of zero it is.

        So the domain of an operation is decided as exact arithmetic on the stored fields has it: whether a divisor is
        zero, a vector has a direction, a logarithm or a root exists. What is not rational is decided as computed.
        """
        table = self.table(node) if computed is None else computed
        return self.exactly(node, table, tables.near_zero(table))

    def settled_entries(self, node: Expr) -> ValueTable:
        """The same of a vector each coordinate of which must be known to be zero or not."""
        table = self.table(node)
        doubt = (np.abs(table.data) <= table.error) & (table.error > 0) & table.defined
        return self.exactly(node, table, np.asarray(doubt.any(axis=-1)))

    def exactly(self, node: Expr, table: ValueTable, doubt: Bools) -> ValueTable:
        """The table of an expression, exact at the places (*tokens,) in doubt; as computed where it is not rational."""
        if not doubt.any():
            return table
        data, error, defined = table.data.copy(), table.error.copy(), table.defined.copy()
        for place in map(tuple, np.argwhere(doubt).tolist()):
            try:
                value = self.exact.value(node, self.at(table.axes, place))
            except Irrational:
                data[place], error[place] = self._with_sign(node, self.at(table.axes, place), data[place], error[place])
                continue
            defined[place] = value is not None
            data[place], error[place] = tables.rounded(value or (), data.shape[-1])
        return ValueTable(table.axes, data, error, defined)

    def _with_sign(self, node: Expr, at: Mapping[str, int], data: Floats, error: Floats) -> tuple[Floats, Floats]:
        """A number that is not rational, at one place: as computed, if its sign is known not to be another one."""
        try:
            sign = self.exact.sign(node, at) if len(data) == 1 else None
        except Irrational:
            sign = None
        if sign is None or sign * data[0] > 0:
            return data, error
        return (data * 0.0, error * 0.0) if sign == 0 else (data + np.nan, error + np.inf)  # it has underflowed

    def _reference(self, node: Ref) -> ValueTable:
        world = self.world
        if node.name in world.checked.lets:
            body, evaluator, names = self.inside(node)
            return tables.renamed(evaluator.once("let value", body, lambda: evaluator.table(body)), names)
        if not node.indices:
            number = world.number(node.name)
            return tables.constant(number.value, number.error)
        if node.name not in world.noise and node.name not in world.fields:
            random = world.checked.fields[node.name].role == "random"
            why = "is random, and drawn for each layer anew" if random else "has not been computed yet"
            raise world.error(node.span, f"{node.name} has no value here: it {why}", "", "read it inside a layer")
        table = self.field(node, world.array(node.name))
        if node.name in world.radii:
            return replace(table, error=self.field(node, world.radii[node.name]).data)
        return table

    def field(self, node: Ref, data: Floats) -> ValueTable:
        """Stored numbers as the table of a field that a reference names."""
        if data.ndim == len(node.indices):
            data = data[..., np.newaxis]
        for axis, index in enumerate(node.indices):
            if index in self.domain:
                data = np.take(data, self.domain[index], axis=axis)
        places = tuple(map(str, range(len(node.indices))))
        return tables.renamed(tables.stored(places, data), dict(zip(places, node.indices, strict=True)))

    def _weight(self, node: Weigh) -> ValueTable:
        opened = self.opened(node.index)
        value = weigh(opened, node).value if node.sharpness is None else sharp(opened, node)
        return tables.taken(value, node.index, self.domain[node.index]) if node.index in self.domain else value

    # ---- conditions --------------------------------------------------------------------------------------------------

    def conditions(self, where: Sequence[Condition]) -> ValueTable | None:
        """Where all conditions hold, as ones and zeros; None without conditions."""
        result: ValueTable | None = None
        for condition in where:
            holds = self.once("holds", condition, lambda condition=condition: self._holds(condition))  # type: ignore[misc]
            result = both(result, holds)
        return result

    def _holds(self, condition: Condition) -> ValueTable:
        match condition:
            case Different(left=left, right=right):
                return indicator((left, right), self.tokens(left)[:, np.newaxis] != self.tokens(right))
            case Member(field=ref):
                value = self.table(ref)
                return indicator(value.axes, value.data[..., 0] > 0.5, value.defined[..., 0])
            case Compare(op=op, left=left, right=right):
                gap = combine("-", self.table(left), self.table(right))
                shape = gap.data.shape[:-1]
                flat = gap.data.reshape(-1)

                def sign(place: int) -> int:
                    at = self.env(gap.axes, shape, place)
                    try:
                        return sign_of_difference(self.exact, left, right, at)
                    except Irrational:
                        if not np.isfinite(flat[place]):
                            raise self.world.error(
                                condition.span,
                                "this comparison is of a number that is undefined, or too large for float64",
                            ) from None
                        raise

                defined = np.broadcast_to(gap.defined[..., 0], shape)
                holds = compare(op, flat, gap.error.reshape(-1), defined.reshape(-1), sign, self.tally)
                return indicator(gap.axes, holds.reshape(shape), defined)


def combine(op: str, a: ValueTable, b: ValueTable) -> ValueTable:
    """`a op b` for the four operations."""
    match op:
        case "+":
            return tables.added(a, b)
        case "-":
            return tables.added(a, tables.negated(b))
        case "*" | ".*":
            return tables.multiplied(a, b)
    return tables.divided(a, b)


def sign_of_difference(exact: ExactEvaluator, left: Expr, right: Expr, at: Mapping[str, int]) -> int:
    """The sign of `left - right`; lengths and roots are compared by their squares."""
    try:
        a, b = exact.number(left, at), exact.number(right, at)
    except Irrational:
        a, b = _signed_square(exact, left, at), _signed_square(exact, right, at)
    return (a > b) - (a < b)


def _signed_square(exact: ExactEvaluator, node: Expr, at: Mapping[str, int]) -> Fraction:
    match node:
        case Norm(body=body):
            return exact.number(Square(node.span, body), at)
        case Call(function="sqrt", body=body):
            return exact.number(body, at)
    value = exact.number(node, at)
    return value * abs(value)
