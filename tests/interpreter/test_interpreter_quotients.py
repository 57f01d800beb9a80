"""Quotients of sums over exponentials: values and error bounds against 60 digits, however large the exponents are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

import numpy as np
import pytest

from interpreting import interpreter, run
from weftc.interpreter.environment import EvaluationError
from weftc.verification.steps.condition import bounds

HEAD = "algorithm test\ntokens i in points  j in centers : k\ninputs x[i] : R^d  c[j] : R^d  s[i] : R  b[j] : R >= 0\n"
Row = Sequence[Decimal]

# each with what it means for one j: exponentials w, values v, and the terms c and b that have no exponential
QUOTIENTS: dict[str, Callable[[Row, Row, Decimal, Decimal], Decimal]] = {
    "(c[j] + sum[i] exp(s[i]) * x[i]) / (b[j] + sum[i] exp(s[i]))": (
        lambda w, v, c, b: (c + sum(p * q for p, q in zip(w, v, strict=True))) / (b + sum(w))
    ),
    "(sum[i] exp(s[i]) * x[i] - c[j]) / (sum[i] 2 * exp(s[i]))": (
        lambda w, v, c, b: (sum(p * q for p, q in zip(w, v, strict=True)) - c) / (2 * sum(w))
    ),
    "-(c[j] * (sum[i] exp(s[i]))) / (b[j] + (sum[i] exp(s[i])) / 3)": lambda w, v, c, b: -c * sum(w) / (b + sum(w) / 3),
}


@pytest.mark.parametrize("centre", [0, 2000, -2000, 5000])
@pytest.mark.parametrize("expression", QUOTIENTS)
def test_value_and_bound(expression: str, centre: float) -> None:
    made = interpreter(f"{HEAD}layer a[j] = {expression} outputs a")
    rng = np.random.default_rng(3)
    for spread in (0.1, 5.0, 400.0):
        for b in (0.0, 1.0, 7.5):
            fields = {
                "x": rng.normal(size=(4, 1)),
                "c": np.array([[0.0], [1.5]]) if centre >= 0 else np.zeros((2, 1)),
                "s": centre + rng.normal(size=4) * spread,
                "b": np.full(2, b if centre >= 0 else 0.0),
            }
            got = made.advance(fields, 0).fields["a"][:, 0]
            (bound,) = bounds(made.surroundings.world(fields), made.checked.spec.steps[0].equations).values()
            with localcontext() as context:
                context.prec = 60
                w = [Decimal(v).exp() for v in fields["s"].tolist()]
                v = [Decimal(t) for t in fields["x"][:, 0].tolist()]
                for value, c in zip(got.tolist(), fields["c"][:, 0].tolist(), strict=True):
                    want = QUOTIENTS[expression](w, v, Decimal(c), Decimal(float(fields["b"][0])))
                    assert abs(Decimal(value) - want) <= Decimal(bound)
                    assert bound <= 1e-13 * (1 + abs(value)), "the bound is far from what rounding can do"


def test_the_sharp_mean_of_members() -> None:
    """The quotient that stands for `mean where ... else`: the mean of the members, and c where there is none."""
    text = (
        "algorithm test\ntokens i in points  j in centers : k\ninputs x[i] : R^d  c[j] : R^d  y[i,j] : real\n"
        "layer a[j] = (sum[i] exp(80*(y[i,j] - 1/2)) * x[i] + c[j]) / (sum[i] exp(80*(y[i,j] - 1/2)) + 1) outputs a"
    )
    inputs = {"x": [[1.0], [3.0], [8.0]], "c": [[5.0], [-7.0]], "y": [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]}
    assert np.allclose(run(text, inputs)["a"], [[2.0], [-7.0]], rtol=0, atol=1e-12)


def test_a_quotient_of_different_exponentials_too_large_to_store_is_refused() -> None:
    text = f"{HEAD}layer a[j] = (sum[i] exp(s[i])) / (sum[i] exp(-s[i])) outputs a"
    inputs = {"x": [[1.0]], "c": [[1.0]], "s": [600.0], "b": [1.0]}
    with pytest.raises(EvaluationError, match="too large for float64"):
        run(text, inputs)
    inputs["s"] = [300.0]
    assert run(text, inputs)["a"][0] == pytest.approx(np.exp(600.0), rel=1e-13)
