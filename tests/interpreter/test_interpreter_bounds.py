"""The error bounds of tables really bound: random expressions in float64 against the same in fractions."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interpreting import CLUSTERS
from weftc.core.syntax import Expr
from weftc.interpreter.decisions import Tally
from weftc.interpreter.environment_builder import Surroundings
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.rationals import ExactEvaluator, Irrational
from weftc.interpreter.tables import ValueTable, applied
from weftc.language.check.check import check
from weftc.language.parse.parse import parse

law = settings(derandomize=True, deadline=None, max_examples=100)

ATOMS = ["<x[i], c[j]>", "|x[i] - c[j]|^2", "index(i)", "0.1", "s[i]", "|x[i]|^2", "w", "y[i,j]", "count(points)"]
AGGREGATES = [
    "(mean[l] |x[l] - c[j]|^2)",
    "(mean[l] s[l] weighted |x[l]|^2 where l != i else 1)",
    "(sum[l] lowest[l](|x[l] - c[j]|^2, 2) * s[l])",
    "(mean[l] s[l] where <x[l], c[j]> > 0 else 0.3)",
    "(sum[l] normalize[l](|x[l] - c[j]|^2 + 0.1) * s[l])",
    "(max[l] s[l] * s[i])",
    "(sum[l] sparsemax[l](0.3 * |x[l] - c[j]|^2) * s[l])",
    "relu(s[i])",
    "(sum[l] lowest[l](|x[l] - c[j]|^2, 40%) * s[l])",
    "(sum[l] highest[l](s[l] * s[i], 70%) * s[l])",
    "(sum[l] argmin[l](|x[l] - c[j]|^2 ties split) * s[l])",
    "(sum[l] argmax[l](s[l] * s[i] ties within 0.5) * s[l])",
    "(sum[l] normmax[l](s[l] * s[i], 0.7) * s[l])",
    "(sum[l] lowest[l](index(l), 2) / (4 - index(l)))",  # what has weight zero may be undefined
]


def combined(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(children, st.sampled_from(["+", "-", "*", "/"]), children)
    return pairs.map(lambda p: f"({p[0]} {p[1]} {p[2]})") | children.map(lambda c: f"(-{c})^2")


PAIRS = [f"s[i] {op} y[i,j]" for op in "+-*/"]  # of numbers without any error of their own
EXPRESSIONS = st.sampled_from(PAIRS) | st.recursive(st.sampled_from([*ATOMS, *AGGREGATES]), combined, max_leaves=6)


def built(expression: str, seed: int, scale: float) -> tuple[Expr, Evaluator, ExactEvaluator]:
    head = CLUSTERS.replace("inputs", "inputs s[i] : R, y[i,j] : real,")
    checked = check(parse(f"{head}param w = 1/3 layer a[i,j] = {expression} outputs a"))
    rng = np.random.default_rng(seed)
    fields = {
        "x": rng.normal(size=(4, 2)) * scale,
        "c": rng.normal(size=(3, 2)) * scale,
        "s": rng.normal(size=4),
        "y": rng.normal(size=(4, 3)),
    }
    world = Surroundings(checked, {}, {}).world(fields)
    exact = ExactEvaluator(world)
    return checked.spec.steps[0].equations[0].body, Evaluator(world, exact, Tally()), exact


@law
@given(EXPRESSIONS, st.integers(0, 2**16), st.sampled_from([1.0, 1e-170, 1e100, 3e7]))
def test_the_exact_value_lies_within_the_bound(expression: str, seed: int, scale: float) -> None:
    body, evaluator, exact = built(expression, seed, scale)
    table = evaluator.table(body)
    for place in range(table.defined.size):
        at = evaluator.env(table.axes, table.data.shape[:-1], place)
        data, error = float(table.data.reshape(-1)[place]), float(table.error.reshape(-1)[place])
        if error == np.inf:
            continue
        value = exact.value(body, at)
        assert (value is not None) == bool(table.defined.reshape(-1)[place]), at
        if value is not None:
            assert abs(Fraction(data) - value[0]) <= Fraction(error), (at, data, error)


@pytest.mark.parametrize("expression", [*PAIRS, *ATOMS, *AGGREGATES])
def test_bounds_hold_and_are_not_far_from_rounding(expression: str) -> None:
    for seed in range(10):
        body, evaluator, exact = built(expression, seed, 1.0)
        table = evaluator.table(body)
        assert table.defined.all()
        for place, (data, error) in enumerate(
            zip(table.data.ravel().tolist(), table.error.ravel().tolist(), strict=True)
        ):
            value = exact.number(body, evaluator.env(table.axes, table.data.shape[:-1], place))
            assert abs(Fraction(data) - value) <= Fraction(error) <= Fraction(1e-13 * (1 + abs(data)))


FUNCTIONS: dict[str, Callable[[Decimal], Decimal]] = {
    "exp": Decimal.exp,
    "log": Decimal.ln,
    "sqrt": Decimal.sqrt,
    "tanh": lambda v: 1 - 2 / ((2 * v).exp() + 1),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bounds_of_functions_hold_over_intervals(function: str) -> None:
    """At both ends of the interval an argument is known to lie in, the function (to 60 digits) is within the bound."""
    rng = np.random.default_rng(0)
    data = np.exp(rng.normal(size=(300, 1)) * 1.5)
    error = data * 10.0 ** rng.uniform(-17, -1, size=data.shape)
    error[::5] = 0.0
    table = applied(function, ValueTable(("i",), data, error, np.ones_like(data, dtype=bool)))
    with localcontext() as context:
        context.prec = 60
        for v, e, f, bound in zip(*(a.ravel().tolist() for a in (data, error, table.data, table.error)), strict=True):
            for end in (Decimal(v) - Decimal(e), Decimal(v) + Decimal(e)):
                assert abs(FUNCTIONS[function](end) - Decimal(f)) <= Decimal(bound)


def test_irrational_expressions_say_so() -> None:
    body, _, exact = built("exp(s[i]) * y[i,j]", 0, 1.0)
    with pytest.raises(Irrational):
        exact.value(body, {"i": 0, "j": 0})
