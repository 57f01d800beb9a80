"""Decisions of the reference backend against rational arithmetic: ties and near ties, offsets, masks, ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from programs import hard_clustering, largest, nearest_to_mean, neighbours
from weftc_runtime import RunError, load
from weftc_runtime.format.program import Weighting

Array = npt.NDArray[np.float64]
QUICK = settings(max_examples=40, deadline=None, derandomize=True)


# ---------------------------------------------------------------------- judges: plain loops over fractions
def distance(a: Any, b: Any) -> Fraction:
    return sum(((Fraction(float(p)) - Fraction(float(q))) ** 2 for p, q in zip(a, b, strict=True)), Fraction(0))


def nearest(x: Array, c: Array) -> list[int]:
    return [min(range(len(c)), key=lambda j: (distance(row, c[j]), j)) for row in x]


def fsum_mean(rows: Array) -> list[float]:
    return [math.fsum(column) / len(rows) for column in rows.T.tolist()]


def layer(x: Array, c: Array, keep: Callable[[list[Fraction]], list[int]] | None = None) -> tuple[list[int], Array]:
    """One layer of hard clustering in exact decisions and correctly rounded sums."""
    labels = nearest(x, c)
    out = c.copy()
    for j in range(len(c)):
        members = [i for i, label in enumerate(labels) if label == j]
        if members and keep is not None:
            members = [members[n] for n in keep([-distance(x[i], c[j]) for i in members])]
        if members:
            out[j] = fsum_mean(x[members])
    return labels, out


def lowest_count(count: int) -> Callable[[list[Fraction]], list[int]]:
    return lambda s: sorted(range(len(s)), key=lambda i: (-s[i], i))[:count]


def lowest_percent(percent: Fraction) -> Callable[[list[Fraction]], list[int]]:
    return lambda s: [i for i in range(len(s)) if 100 * sum(o > s[i] for o in s) <= percent * (len(s) - 1)]


def gap_budget(gamma: Fraction) -> Callable[[list[Fraction]], list[int]]:
    def keep(s: list[Fraction]) -> list[int]:
        order = sorted(range(len(s)), key=lambda i: -s[i])
        for m in range(1, len(s)):
            if gamma * sum(s[i] - s[order[m]] for i in order[:m]) >= 1:
                return order[:m]
        return order

    return keep


# ---------------------------------------------------------------------- data that decides badly in floating point
@st.composite
def clusters(draw: Any) -> tuple[Array, Array]:
    d, k, n = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 9))
    grid = st.integers(-3, 3)
    scale = draw(st.sampled_from([1.0, 0.1, 1 / 3, 1e-9, 1e6, 2.0**-30]))
    offset = draw(st.sampled_from([0.0, 1e6, -1e6 / 3]))
    x = np.array(draw(st.lists(st.lists(grid, min_size=d, max_size=d), min_size=n, max_size=n)), dtype=np.float64)
    c = np.array(draw(st.lists(st.lists(grid, min_size=d, max_size=d), min_size=k, max_size=k)), dtype=np.float64)
    return x * scale + offset, c * scale + offset


@QUICK
@given(clusters(), st.sampled_from(["l2", "dot"]))
def test_hard_clustering_is_bit_equal_to_exact_decisions_and_fsum(data: tuple[Array, Array], style: str) -> None:
    x, c = data
    model = load(hard_clustering(x.shape[1], len(c), style=style))
    for _ in range(2):
        out = model(x=x, c=c)
        labels, moved = layer(x, c)
        assert out["labels"].indices.tolist() == labels
        assert np.array_equal(out["centers"].numpy(), moved)
        c = moved


RANKS: list[tuple[Weighting, Callable[[list[Fraction]], list[int]]]] = [
    (Weighting("top", count=2), lowest_count(2)),
    (Weighting("top", percent=Fraction(0)), lowest_percent(Fraction(0))),
    (Weighting("top", percent=Fraction(50)), lowest_percent(Fraction(50))),
    (Weighting("top", percent=Fraction(200, 3)), lowest_percent(Fraction(200, 3))),
    (Weighting("normmax", gamma=Fraction(1, 2)), gap_budget(Fraction(1, 2))),
    (Weighting("normmax", gamma=Fraction(1)), gap_budget(Fraction(1))),
]


@pytest.mark.parametrize(("weighting", "keep"), RANKS, ids=lambda v: str(v.kind) if isinstance(v, Weighting) else "")
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=clusters())
def test_ranked_members(
    weighting: Weighting, keep: Callable[[list[Fraction]], list[int]], data: tuple[Array, Array]
) -> None:
    x, c = data
    out = load(hard_clustering(x.shape[1], len(c), update=weighting))(x=x, c=c)
    labels, moved = layer(x, c, keep)
    assert out["labels"].indices.tolist() == labels
    assert np.array_equal(out["centers"].numpy(), moved)


@QUICK
@given(clusters())
def test_float32_decides_on_what_it_stores_and_rounds_once(data: tuple[Array, Array]) -> None:
    x, c = (part.astype(np.float32).astype(np.float64) for part in data)
    model = load(hard_clustering(x.shape[1], len(c)), dtype=torch.float32)
    for _ in range(2):
        out = model(x=x, c=c)
        labels, moved = layer(x, c)
        assert out["centers"].dtype == torch.float32
        assert out["labels"].indices.tolist() == labels
        assert np.array_equal(out["centers"].numpy(), moved.astype(np.float32))
        c = out["centers"].numpy().astype(np.float64)
    assert np.array_equal(model(x=x, c=data[1], layers=2)["centers"].numpy(), c.astype(np.float32))


@QUICK
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_change_a_bit(data: tuple[Array, Array], shuffle: Any) -> None:
    x, c = data
    order = list(range(len(x)))
    shuffle.shuffle(order)
    model = load(hard_clustering(x.shape[1], len(c)))
    plain, turned = model(x=x, c=c, layers=3), model(x=x[order], c=c, layers=3)
    assert torch.equal(plain["centers"], turned["centers"])
    assert torch.equal(plain["labels"].indices[order], turned["labels"].indices)


@QUICK
@given(clusters())
def test_split_ties_share_evenly(data: tuple[Array, Array]) -> None:
    x, c = data
    y = load(hard_clustering(x.shape[1], len(c), weighting=Weighting("argmax", "split")))(x=x, c=c)["labels"].numpy()
    for row, point in zip(y, x, strict=True):
        all_of_them = [distance(point, center) for center in c]
        best = [d == min(all_of_them) for d in all_of_them]
        assert row.tolist() == [1 / sum(best) if b else 0.0 for b in best]


@QUICK
@given(clusters(), st.sampled_from([Fraction(1, 10), Fraction(1), Fraction(3), Fraction(1, 10**12)]))
def test_ties_within_take_the_first_in_reach(data: tuple[Array, Array], epsilon: Fraction) -> None:
    x, c = data
    rule = Weighting("argmax", "within", epsilon)
    labels = load(hard_clustering(x.shape[1], len(c), weighting=rule))(x=x, c=c)["labels"].indices.tolist()
    for label, point in zip(labels, x, strict=True):
        far = [distance(point, center) for center in c]
        assert label == next(j for j, d in enumerate(far) if d <= min(far) + epsilon)


# ---------------------------------------------------------------------- tiers
def test_a_near_tie_is_settled_exactly_and_reported() -> None:
    """0.1 + 0.2 style: the two distances differ by less than float64 can tell, the exact winner is the second."""
    x = np.array([[0.3]])
    c = np.array([[np.nextafter(np.nextafter(0.3, 0), 0)], [np.nextafter(0.3, 1)]])
    model = load(hard_clustering(1, 2, style="dot"))
    out = model(x=x, c=c)
    assert out["labels"].indices.tolist() == nearest(x, c)
    assert model.report.heads["blocks.0.assign"].exact == 1
    assert model.report.total.undecided == 0


@pytest.mark.parametrize("style", ["l2", "dot"])
@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_points_on_a_bisector_go_to_the_side_they_are_on(style: str, offset: float) -> None:
    """The middle of two centers, rounded: which side it fell to is below the rounding of any distance."""
    rng = np.random.default_rng(3)
    model = load(hard_clustering(3, 2, style=style))
    exact = wrong = 0
    for _ in range(60):
        c = rng.normal(size=(2, 3)) + offset
        x = c.mean(0, keepdims=True)
        assert model(x=x, c=c)["labels"].indices.tolist() == nearest(x, c)
        exact += model.report.heads["blocks.0.assign"].exact
        wrong += int(((x - c) ** 2).sum(1).argmin() != nearest(x, c)[0])
    assert exact == 60
    assert wrong > 5  # plain float64 is not good enough here


def test_equal_inner_products_are_told_apart() -> None:
    rng = np.random.default_rng(5)
    model = load(hard_clustering(4, 2, style="inner"))
    exact = wrong = 0
    for _ in range(60):
        x, c, w = rng.normal(size=(3, 4))
        centers = np.stack([c, c + w - x * (w @ x) / (x @ x)])  # differ by a vector that is orthogonal to x, rounded
        inner = [sum((Fraction(a) * Fraction(b) for a, b in zip(x, row, strict=True)), Fraction(0)) for row in centers]
        best = int(inner[1] > inner[0])
        assert model(x=x[None], c=centers)["labels"].indices.tolist() == [best]
        exact += model.report.heads["blocks.0.assign"].exact
        wrong += int((centers @ x).argmax() != best)
    assert exact == 60
    assert wrong > 5


def test_whole_numbers_need_no_second_tier() -> None:
    x = np.arange(-6, 7, dtype=np.float64)[:, None]
    model = load(hard_clustering(1, 2))
    assert model(x=x, c=[[-1.0], [1.0]])["labels"].indices.tolist() == [0] * 7 + [1] * 6
    assert (model.report.total.exact, model.report.total.undecided) == (0, 0)


def test_scratch_is_recomputed_exactly() -> None:
    """The mean of a, b, a, b, a, b is half way between a and b, though its float64 value is not."""
    ties = 0
    for n in range(40):
        a, b = 0.1 + n / 7, 0.3 + n / 3
        x = np.array([[a], [b]] * 3)
        model = load(nearest_to_mean(1))
        picked = model(x=x)["pick"]
        assert torch.equal(picked, torch.full((6, 1), a, dtype=torch.float64))
        ties += model.report.heads["blocks.1.near"].exact
    assert ties > 100


def test_a_derived_slot_is_no_data() -> None:
    """1/a rounds to the same double for two different a; exact arithmetic tells them apart."""
    pairs = [(a, float(np.nextafter(a, 1))) for a in np.linspace(1.9, 1.95, 50).tolist()]
    same = [(a, b) for a, b in pairs if 1 / a == 1 / b]
    assert len(same) > 10
    for a, b in same:
        model = load(largest("reciprocal", 2))
        assert model(x=[0.0], a=[a, b])["y"].indices.tolist() == [1]
        assert model.report.total.exact == 1


def test_scores_with_functions_are_reported_when_undecided() -> None:
    model = load(largest("exp", 3))
    out = model(x=[0.0, 1.0], a=[0.5, 2.0, 2.0])
    assert out["y"].indices.tolist() == [1, 1]
    tiers = model.report.heads["blocks.0.choose"]
    assert (tiers.bound, tiers.exact, tiers.undecided) == (0, 0, 2)
    assert load(largest("exp", 3))(x=[0.0], a=[0.5, 2.0, 2.1])["y"].indices.tolist() == [2]


@pytest.mark.parametrize(
    ("rule", "want", "undecided"),
    [
        (Weighting("argmax", "split"), [0, 0.5, 0.5], 1),
        (Weighting("top", count=1), [0, 1, 0], 1),
        (Weighting("top", percent=Fraction(0)), [0, 0.5, 0.5], 1),
        (Weighting("normmax", gamma=Fraction(100)), [0, 0.5, 0.5], 0),  # both are kept whatever their tiny difference
        (Weighting("normmax", gamma=Fraction(10**30)), [0, 0.5, 0.5], 1),
    ],
    ids=["split", "count", "percent", "normmax", "sharp normmax"],
)
def test_undecided_rows_follow_the_tie_rule(rule: Weighting, want: list[float], undecided: int) -> None:
    model = load(largest("exp", 3, rule))
    fields = model.advance(model.start(x=[0.0], a=[0.5, 2.0, 2.0]), 0)
    assert fields["y"].tolist() == [want]
    assert model.report.total.undecided == undecided


# ---------------------------------------------------------------------- masks
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("step", [1.0, 0.1, 1 / 3])
def test_masks_compare_exactly(op: str, step: float) -> None:
    x = [step * n for n in range(-4, 5)]
    radius = (2 * step) ** 2
    out = load(neighbours(op, radius=radius))(x=x)["m"].tolist()
    exact = {"<": Fraction.__lt__, "<=": Fraction.__le__, ">": Fraction.__gt__, ">=": Fraction.__ge__}[op]
    for a, m in zip(x, out, strict=True):
        near = [b for b in x if exact((Fraction(a) - Fraction(b)) ** 2, Fraction(radius))]
        assert m == math.fsum(near) / len(near)


def test_a_mask_may_leave_out_the_token_itself() -> None:
    model = load(neighbours("<=", self_out=True))
    assert model(x=[0.0, 1.0, 5.0])["m"].tolist() == [1.0, 0.0, 5.0]


def test_no_eligible_key_without_else_names_head_and_token() -> None:
    with pytest.raises(RunError, match=r"m\[i\] = mean.*token 0 of points.*zero.*no `else`"):
        load(neighbours("<", radius=0.0))(x=[0.0, 1.0])


@pytest.mark.parametrize("kind", ["lse", "max", "sparsemax"])
def test_numbers_and_weights_over_eligible_keys(kind: str) -> None:
    x = [0.0, 0.25, 0.5, 3.0, 3.5]
    out = load(neighbours("<=", kind=kind))(x=x)["m"].tolist()
    for a, m in zip(x, out, strict=True):
        near = [b for b in x if (a - b) ** 2 <= 1]
        if kind == "lse":
            assert m == pytest.approx(math.log(math.fsum(map(math.exp, near))), rel=1e-15)
        elif kind == "max":
            assert m == max(near)
        else:
            threshold = next(
                t for r in range(len(near), 0, -1) if (t := (sum(sorted(near)[-r:]) - 1) / r) <= sorted(near)[-r]
            )
            assert m == pytest.approx(math.fsum(max(0.0, b - threshold) * b for b in near), abs=1e-15)


# ---------------------------------------------------------------------- range
@pytest.mark.parametrize("scale", [1e160, 1e300, 1e-160, 1e-300])
def test_decisions_survive_squares_out_of_range(scale: float) -> None:
    x = np.array([[-3.0], [-2.0], [0.0], [2.0], [3.0]]) * scale
    c = np.array([[-1.0], [1.0]]) * scale
    out = load(hard_clustering(1, 2))(x=x, c=c)
    labels, moved = layer(x, c)
    assert out["labels"].indices.tolist() == labels
    assert np.array_equal(out["centers"].numpy(), moved)


def test_a_square_that_overflows_in_a_slot_is_settled_from_what_it_is_the_square_of() -> None:
    x, c = np.array([[1.0], [9e199]]), np.array([[0.0], [1e200]])
    out = load(hard_clustering(1, 2, style="dot"))(x=x, c=c)
    assert out["labels"].indices.tolist() == [0, 1]
    assert np.array_equal(out["centers"].numpy(), x)


def test_float32_that_overflows_is_named() -> None:
    with pytest.raises(RunError, match=r"x: row 0.*not finite"):
        load(hard_clustering(1, 1), dtype=torch.float32)(x=[[1e39]], c=[[0.0]])
