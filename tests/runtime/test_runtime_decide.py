"""Decisions alone: whatever the scores and radii, if the exact scores lie within, the exact answer comes out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weftc_runtime.exact.decide import BOUND, EXACT, UNDECIDED, compare, decide
from weftc_runtime.exact.rational import NotRational
from weftc_runtime.format.program import Weighting

RULES = [
    Weighting("argmax"),
    Weighting("argmax", "split"),
    Weighting("argmax", "within", Fraction(1)),
    Weighting("argmax", "within", Fraction(1, 10)),
    Weighting("top", count=1),
    Weighting("top", count=3),
    Weighting("top", percent=Fraction(0)),
    Weighting("top", percent=Fraction(40)),
    Weighting("top", percent=Fraction(100)),
    Weighting("normmax", gamma=Fraction(1, 4)),
    Weighting("normmax", gamma=Fraction(2)),
]


def wanted(rule: Weighting, values: dict[int, Fraction]) -> set[int]:
    """The rules of `Weighting`, word by word."""
    if not values:
        return set()
    best = max(values.values())
    order = sorted(values, key=lambda k: (-values[k], k))
    if rule.kind == "argmax":
        near = [k for k in values if values[k] >= best - rule.epsilon]
        return set(near) if rule.ties == "split" else {min(near)}
    if rule.count is not None:
        return set(order[: rule.count])
    if rule.percent is not None:
        worse = {k: sum(v > values[k] for v in values.values()) for k in values}
        return {k for k in values if 100 * worse[k] <= rule.percent * (len(values) - 1)}
    assert rule.gamma is not None
    for m in range(1, len(order)):
        if rule.gamma * sum(values[k] - values[order[m]] for k in order[:m]) >= 1:
            return set(order[:m])
    return set(order)


@st.composite
def rows(draw: Any) -> tuple[list[Fraction], list[float], list[float], list[bool]]:
    """Exact scores, what float64 made of them, a radius that covers the difference, and who is eligible."""
    count = draw(st.integers(1, 7))
    spread = draw(st.sampled_from([0.0, 1e-9, 0.3, 2.0, float("inf")]))
    exact, scores, radii = [], [], []
    for _ in range(count):
        value = Fraction(draw(st.integers(-4, 4)), draw(st.sampled_from([1, 2, 3])))
        radius = spread * draw(st.floats(0, 1)) if spread < float("inf") else draw(st.sampled_from([0.5, float("inf")]))
        score = float(value) if radius == float("inf") else float(value) + radius * draw(st.floats(-0.9, 0.9))
        exact.append(value)
        scores.append(0.0 if radius == float("inf") else score)
        radii.append(max(radius, 1e-15 * abs(score)) if Fraction(score) != value else radius)
    return exact, scores, radii, draw(st.lists(st.booleans(), min_size=count, max_size=count))


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda r: f"{r.kind} {r.ties} {r.count or r.percent or r.gamma or r.epsilon}"
)
@settings(max_examples=70, deadline=None, derandomize=True)
@given(row=rows())
def test_the_exact_answer_comes_out(
    rule: Weighting, row: tuple[list[Fraction], list[float], list[float], list[bool]]
) -> None:
    exact, scores, radii, eligible = row
    s, r = (torch.tensor([part], dtype=torch.float64) for part in (scores, radii))
    chosen, tiers = decide(rule, s, r, torch.tensor([eligible]), lambda _row, key: exact[key])
    values = {k: v for k, v in enumerate(exact) if eligible[k]}
    assert set(chosen[0].nonzero()[:, 0].tolist()) == wanted(rule, values)
    assert int(tiers[0]) in (BOUND, EXACT)
    if all(radius == 0 for radius in radii):
        assert int(tiers[0]) == BOUND


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda r: f"{r.kind} {r.ties} {r.count or r.percent or r.gamma or r.epsilon}"
)
@settings(max_examples=35, deadline=None, derandomize=True)
@given(row=rows())
def test_rows_that_float64_decides_ask_nobody(
    rule: Weighting, row: tuple[list[Fraction], list[float], list[float], list[bool]]
) -> None:
    """Without rational scores, sure rows are still right, and the others are reported."""
    exact, scores, radii, eligible = row

    def refuse(_row: int, _key: int) -> Fraction:
        raise NotRational("exp")

    s, r = (torch.tensor([part], dtype=torch.float64) for part in (scores, radii))
    chosen, tiers = decide(rule, s, r, torch.tensor([eligible]), refuse)
    assert int(tiers[0]) in (BOUND, UNDECIDED)
    assert bool(chosen.any()) == any(eligible)
    assert not bool((chosen & ~torch.tensor([eligible])).any())
    if int(tiers[0]) == BOUND:
        values = {k: v for k, v in enumerate(exact) if eligible[k]}
        assert set(chosen[0].nonzero()[:, 0].tolist()) == wanted(rule, values)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rows(), st.sampled_from([">", ">=", "<", "<="]))
def test_comparisons_with_zero(row: tuple[list[Fraction], list[float], list[float], list[bool]], op: str) -> None:
    exact, scores, radii, _ = row
    s, r = (torch.tensor([part], dtype=torch.float64) for part in (scores, radii))
    truth, _ = compare(op, s, r, lambda _row, key: exact[key])
    want = {">": Fraction.__gt__, ">=": Fraction.__ge__, "<": Fraction.__lt__, "<=": Fraction.__le__}[op]
    assert truth[0].tolist() == [want(value, Fraction(0)) for value in exact]
