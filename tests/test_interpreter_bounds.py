"""The error bounds of tables really bound: random expressions in float64 against the same in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreting import CLUSTERS

from weft.check import check
from weft.meaning_decisions import Tally
from weft.meaning_expressions import Evaluator
from weft.meaning_rationals import Exact, Irrational
from weft.meaning_surroundings import Surroundings
from weft.parse import parse
from weft.syntax import Expr

law = settings(derandomize=True, deadline=None, max_examples=150)

ATOMS = ["<x[i], c[j]>", "|x[i] - c[j]|^2", "index(i)", "0.1", "s[i]", "|x[i]|^2", "w", "y[i,j]", "count(points)"]
AGGREGATES = [
    "(mean[l] |x[l] - c[j]|^2)",
    "(sum[l] s[l] * x[l])",
    "(mean[l] s[l] weighted |x[l]|^2 where l != i else 1)",
    "(sum[l] lowest[l](|x[l] - c[j]|^2, 2) * s[l])",
    "(mean[l] s[l] where <x[l], c[j]> > 0 else 0.3)",
    "(sum[l] normalize[l](|x[l] - c[j]|^2 + 0.1) * s[l])",
    "(max[l] s[l] * s[i])",
    "(sum[l] sparsemax[l](s[l] * s[i]) * s[l])",
    "relu(s[i])",
]


def combined(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(children, st.sampled_from(["+", "-", "*", "/"]), children)
    return pairs.map(lambda p: f"({p[0]} {p[1]} {p[2]})") | children.map(lambda c: f"(-{c})^2")


EXPRESSIONS = st.recursive(
    st.sampled_from([*ATOMS, *(a for a in AGGREGATES if "x[l])" not in a or "mean" in a)]), combined, max_leaves=6
)


def built(expression: str, seed: int, scale: float) -> tuple[Expr, Evaluator, Exact]:
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
    exact = Exact(world)
    return checked.spec.steps[0].equations[0].body, Evaluator(world, exact, Tally()), exact


@law
@given(EXPRESSIONS, st.integers(0, 2**16), st.sampled_from([1.0, 1e-170, 1e100, 3e7]))
def test_the_exact_value_lies_within_the_bound(expression: str, seed: int, scale: float) -> None:
    body, evaluator, exact = built(expression, seed, scale)
    table = evaluator.table(body)
    for place in range(table.defined.size):
        at = evaluator.env(table.axes, table.data.shape[:-1], place)
        value = exact.value(body, at)
        data, error = float(table.data.reshape(-1)[place]), float(table.error.reshape(-1)[place])
        defined = bool(table.defined.reshape(-1)[place])
        if value is None or not defined:
            continue
        if np.isfinite(error):
            assert abs(Fraction(data) - value[0]) <= Fraction(error), (at, data, error)
        else:
            assert not np.isnan(error)


@pytest.mark.parametrize("expression", [*ATOMS, *(a for a in AGGREGATES if "sum[l] s[l] * x[l]" not in a)])
def test_bounds_are_not_far_from_rounding(expression: str) -> None:
    body, evaluator, _ = built(expression, 7, 1.0)
    table = evaluator.table(body)
    assert (table.error <= 1e-13 * (1 + np.abs(table.data))).all()


@pytest.mark.parametrize("function", ["exp", "log", "sqrt", "tanh"])
def test_bounds_of_functions_hold_over_intervals(function: str) -> None:
    """At both ends of the interval an argument is known to lie in, the function stays within its bound."""
    from weft.meaning_tables import Table, applied

    rng = np.random.default_rng(0)
    data = np.exp(rng.normal(size=(500, 1)) * 3)
    error = data * 10.0 ** rng.uniform(-16, -1, size=data.shape)
    table = applied(function, Table(("i",), data, error, np.ones_like(data, dtype=bool)))
    for end in (data - error, data + error):
        assert (np.abs(getattr(np, function)(end) - table.data) <= table.error).all()


def test_irrational_expressions_say_so() -> None:
    body, _, exact = built("exp(s[i]) * y[i,j]", 0, 1.0)
    with pytest.raises(Irrational):
        exact.value(body, {"i": 0, "j": 0})
